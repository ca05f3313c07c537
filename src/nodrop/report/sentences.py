"""The rules by which a report speaks. What it says has one here or in findings.

docs/reference/sentences.md says when each is said and on what evidence (a test compares the lists);
`nodrop report --json` names the rule of every sentence beside its evidence and its trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodrop.config.units import noun
from nodrop.report.story import Story
from nodrop.report.trials import Trial


class Part(StrEnum):
    ANSWER = "answer"
    RESTS_ON = "it rests on"
    CANNOT_SAY = "it cannot say"
    TRUST = "trust"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    code: str
    """Stable."""
    part: Part
    good: bool = False
    """Under *Trust*: it speaks for the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    rule: Rule
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON. None = not measured."""
    trials: tuple[Trial, ...] = ()
    """On which it rests."""
    subject: str = ""
    """Subject of the sentence, if several must be distinguished at a glance."""
    knob: str = ""
    """The knob that touches the loss named in the sentence."""
    to_do: str = ""
    """Remedy to paste, as commands or settings; empty if there is none."""

    @property
    def good(self) -> bool:
        return self.rule.good

    def as_json(self, story: Story) -> dict[str, Any]:
        return {
            "rule": self.rule.code,
            "part": str(self.rule.part),
            "text": self.text,
            "evidence": dict(self.evidence),
            "trials": [
                {"run_directory": story.sources[t.source].name, "run": t.name} for t in self.trials
            ],
            "subject": self.subject,
            "knob": self.knob,
            "to_do": self.to_do,
            "good": self.good if self.rule.part is Part.TRUST else None,
        }


RULES: dict[str, Rule] = {}


def _rule(part: Part, code: str, *, good: bool = False) -> Rule:
    RULES[code] = Rule(code=code, part=part, good=good)
    return RULES[code]


NO_TRIAL = _rule(Part.ANSWER, "no-trial")
WATCHED_LOSS = _rule(Part.ANSWER, "watched-loss")
WATCHED_NOTHING = _rule(Part.ANSWER, "watched-nothing")
WATCHED_WORDS = _rule(Part.RESTS_ON, "watched")
WATCHED_HIDDEN = _rule(Part.CANNOT_SAY, "watched-hidden")
DIRECT = _rule(Part.ANSWER, "direct")
DIRECT_DISTURBED = _rule(Part.ANSWER, "direct-disturbed")
DIRECT_LEFT = _rule(Part.ANSWER, "direct-left")
CARRIES = _rule(Part.ANSWER, "carries")
NO_LOSS = _rule(Part.ANSWER, "no-loss")
ABSORBED = _rule(Part.ANSWER, "absorbed")
LOSES = _rule(Part.ANSWER, "loses")
LOSES_SOMETIMES = _rule(Part.ANSWER, "loses-sometimes")
FAILED = _rule(Part.ANSWER, "failed")
ALWAYS_VOID = _rule(Part.ANSWER, "always-void")
LOAD_VOID = _rule(Part.ANSWER, "load-void")
SOME_VOID = _rule(Part.ANSWER, "some-void")
LOADS_CONTRADICT = _rule(Part.ANSWER, "loads-contradict")
LOADS_OUT_OF_ORDER = _rule(Part.ANSWER, "loads-out-of-order")
LOSS_NOT_KNOWN = _rule(Part.ANSWER, "loss-not-known")
SETUP_COST = _rule(Part.ANSWER, "setup-against-base")

CAPACITY = _rule(Part.ANSWER, "capacity")
WINDOW = _rule(Part.ANSWER, "capacity-window")
SOAK = _rule(Part.ANSWER, "capacity-soak")
BROKE = _rule(Part.ANSWER, "capacity-broke")
BETWEEN_ROUNDS = _rule(Part.ANSWER, "capacity-between-rounds")
CONFIDENCE = _rule(Part.ANSWER, "capacity-confidence")
FITTED = _rule(Part.ANSWER, "capacity-fitted")
ROUNDS_DIFFER = _rule(Part.ANSWER, "capacity-rounds-differ")
CONTRADICTED = _rule(Part.ANSWER, "capacity-contradicted")
CHANGED = _rule(Part.ANSWER, "capacity-changed")
LOWERED = _rule(Part.ANSWER, "capacity-lowered")
NOISE = _rule(Part.ANSWER, "capacity-noise")
SET_ASIDE = _rule(Part.ANSWER, "capacity-set-aside")
ROUNDS_MISSING = _rule(Part.ANSWER, "capacity-rounds-missing")
FRAMES_CUT = _rule(Part.ANSWER, "frames-cut")
FRAMES_INVALID = _rule(Part.ANSWER, "frames-invalid")

RESTS_ON_TRIALS = _rule(Part.RESTS_ON, "trials-counted")
RESTS_ON_BOOKS = _rule(Part.RESTS_ON, "books-closed")
SEARCH_COST = _rule(Part.RESTS_ON, "search-cost")
COMPARED_AT_ONCE = _rule(Part.RESTS_ON, "compared-at-once")

BEYOND_NOT_TRIED = _rule(Part.CANNOT_SAY, "beyond-not-tried")
CANNOT_READ = _rule(Part.CANNOT_SAY, "cannot-read")
TOO_FEW = _rule(Part.CANNOT_SAY, "too-few-for-an-interval")
TOO_FEW_STARTS = _rule(Part.CANNOT_SAY, "too-few-starts")
TOO_FEW_HOSTS = _rule(Part.CANNOT_SAY, "too-few-hosts")
OTHER_HOSTS = _rule(Part.CANNOT_SAY, "other-hosts")
VOID_SAYS_NOTHING = _rule(Part.CANNOT_SAY, "void-says-nothing")
FAILED_NO_FIGURE = _rule(Part.CANNOT_SAY, "failed-in-no-figure")
QUIET_HOST = _rule(Part.CANNOT_SAY, "quiet-host")
IDLE_PORT = _rule(Part.CANNOT_SAY, "idle-port")
PUBLISHED_CLAIM = _rule(Part.CANNOT_SAY, "serious-finding")
FLOWS_DIFFER = _rule(Part.CANNOT_SAY, "flows-differ")
NOT_EXTRAPOLATED = _rule(Part.CANNOT_SAY, "not-extrapolated")
BEYOND_WINDOW = _rule(Part.CANNOT_SAY, "beyond-window")
FEW_BEGIN = _rule(Part.CANNOT_SAY, "few-flows-begin")
EMULATED = _rule(Part.CANNOT_SAY, "emulated")

TRIALS_FAILED = _rule(Part.TRUST, "trials-failed")
TRIALS_VOID = _rule(Part.TRUST, "trials-void")
RULES_NOT_LOADED = _rule(Part.TRUST, "rules-not-loaded")
TRACE_CHANGED = _rule(Part.TRUST, "trace-changed")
YAML_REPLACED = _rule(Part.TRUST, "yaml-replaced", good=True)
CALIBRATED = _rule(Part.TRUST, "calibrated", good=True)
CALIBRATION_LACKS = _rule(Part.TRUST, "calibration-lacks")
BOOKS_DIFFER = _rule(Part.TRUST, "books-differ")
BOOKS_MISSING = _rule(Part.TRUST, "books-missing")
BOOKS_AGAIN = _rule(Part.TRUST, "books-balanced-again", good=True)
SENDER_LATENESS = _rule(Part.TRUST, "sender-lateness", good=True)
SENDER_BURST = _rule(Part.TRUST, "sender-burst", good=True)
SENDER_SHAPED = _rule(Part.TRUST, "sender-shaped", good=True)
RULE_REACHED = _rule(Part.TRUST, "rule-reached", good=True)
RULE_NOT_REACHED = _rule(Part.TRUST, "rule-not-reached")
SENDER_SILENT = _rule(Part.TRUST, "sender-silent")
CPUS_SHARED = _rule(Part.TRUST, "cpus-shared")
CPUS_APART = _rule(Part.TRUST, "cpus-apart", good=True)
FOREIGN = _rule(Part.TRUST, "foreign-packets")
HOST_CROWDED = _rule(Part.TRUST, "host-crowded")
HOST_QUIET = _rule(Part.TRUST, "host-quiet", good=True)
OWN_QUOTA = _rule(Part.TRUST, "own-quota")
STANDS_APART = _rule(Part.TRUST, "stands-apart")
HOSTS_DIFFER = _rule(Part.TRUST, "hosts-differ")
SEVERAL_HOSTS = _rule(Part.TRUST, "several-hosts")
COLD_START = _rule(Part.TRUST, "cold-start")
GUEST_WARMED_UP = _rule(Part.TRUST, "guest-warmed-up", good=True)
RESET = _rule(Part.TRUST, "reset", good=True)


def finding_rule(code: str) -> Rule:
    """A finding is a rule of its own: findings.md says when it is raised and on what evidence."""
    return Rule(code=code, part=Part.TRUST)


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; empty if there is none."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def plural(number: int, thing: str) -> str:
    return f"{number} {noun(number, thing)}"
