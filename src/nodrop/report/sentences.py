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


PARTS: Mapping[Part, tuple[str, ...]] = {
    Part.ANSWER: (
        "no-trial", "watched-loss", "watched-nothing", "direct", "direct-disturbed",
        "direct-left", "carries", "no-loss", "absorbed", "loses", "loses-sometimes", "failed",
        "always-void", "load-void", "some-void", "loads-contradict", "loads-out-of-order",
        "loss-not-known", "setup-against-base", "capacity", "capacity-window", "capacity-soak",
        "capacity-broke", "capacity-between-rounds", "capacity-confidence", "capacity-fitted",
        "capacity-rounds-differ", "capacity-contradicted", "capacity-changed", "capacity-lowered",
        "capacity-noise", "capacity-set-aside", "capacity-rounds-missing", "frames-cut",
        "frames-invalid",
    ),
    Part.RESTS_ON: (
        "watched", "trials-counted", "books-closed", "search-cost", "compared-at-once",
    ),
    Part.CANNOT_SAY: (
        "watched-hidden", "beyond-not-tried", "cannot-read", "too-few-for-an-interval",
        "too-few-starts", "too-few-hosts", "other-hosts", "void-says-nothing",
        "failed-in-no-figure", "quiet-host", "idle-port", "serious-finding", "flows-differ",
        "not-extrapolated", "beyond-window", "few-flows-begin", "emulated",
    ),
    Part.TRUST: (
        "trials-failed", "trials-void", "rules-not-loaded", "trace-changed", "yaml-replaced",
        "calibrated", "calibration-lacks", "books-differ", "books-missing",
        "books-balanced-again", "sender-lateness", "sender-burst", "sender-shaped",
        "rule-reached", "rule-not-reached", "sender-silent", "cpus-shared", "cpus-apart",
        "foreign-packets", "host-crowded", "host-quiet", "own-quota", "stands-apart",
        "hosts-differ", "several-hosts", "cold-start", "guest-warmed-up", "reset",
    ),
}  # fmt: skip
"""Codes of all rules: stable, and each in one part of the answer."""
RULES: Mapping[str, Part] = {code: part for part, codes in PARTS.items() for code in codes}
GOOD = frozenset((
    "yaml-replaced", "calibrated", "books-balanced-again", "sender-lateness", "sender-burst",
    "sender-shaped", "rule-reached", "cpus-apart", "host-quiet", "guest-warmed-up", "reset",
))  # fmt: skip
"""Rules under *Trust* that speak for the run."""


@dataclass(frozen=True, slots=True)
class Sentence:
    rule: str
    """Its code."""
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

    finding: bool = False
    """Its rule is a finding: findings.md says when it is raised and on what evidence."""

    def __post_init__(self) -> None:
        if not self.finding and self.rule not in RULES:
            raise ValueError(f"{self.rule}: no rule of a sentence")

    @property
    def part(self) -> Part:
        return Part.TRUST if self.finding else RULES[self.rule]

    @property
    def good(self) -> bool:
        return not self.finding and self.rule in GOOD

    def as_json(self, story: Story) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "part": str(self.part),
            "text": self.text,
            "evidence": dict(self.evidence),
            "trials": [
                {"run_directory": story.sources[t.source].name, "run": t.name} for t in self.trials
            ],
            "subject": self.subject,
            "knob": self.knob,
            "to_do": self.to_do,
            "good": self.good if self.part is Part.TRUST else None,
        }


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; empty if there is none."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def plural(number: int, thing: str) -> str:
    return f"{number} {noun(number, thing)}"
