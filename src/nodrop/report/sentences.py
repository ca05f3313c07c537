"""The rules by which a report speaks, and its words. What it says has a rule here or in findings.

docs/reference/sentences.md says when each is said and on what evidence (a test compares the lists);
`nodrop report --json` names the rule of every sentence beside its evidence and its trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodrop.answer.finding import WORDS, filled
from nodrop.ledger.hops import definition
from nodrop.report import escape, numbers
from nodrop.report.story import Story
from nodrop.report.trials import StoredTrial

TRUST = "trust"
RULES: Mapping[str, str] = {code: part for part, codes in WORDS["rules"].items() for code in codes}
"""Rule → the part of the answer that has its sentences."""
GOOD = frozenset(WORDS["trust"]["good"])
"""Rules under *Trust* that speak for the run."""


@dataclass(frozen=True, slots=True)
class Sentence:
    rule: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON. None = not measured."""
    trials: tuple[StoredTrial, ...] = ()
    """Trials on which the sentence rests."""
    subject: str = ""
    """Subject of the sentence, if several must be distinguished at a glance."""
    knob: str = ""
    """The knob that touches the loss named in the sentence."""
    to_do: str = ""
    """Remedy to paste, as commands or settings; empty if there is none."""

    finding: bool = False
    """The rule is a finding: findings.md says when it is raised and on what evidence."""

    def __post_init__(self) -> None:
        if not self.finding and self.rule not in RULES:
            raise ValueError(f"{self.rule}: no rule of a sentence")

    @property
    def part(self) -> str:
        return TRUST if self.finding else RULES[self.rule]

    @property
    def good(self) -> bool:
        return not self.finding and self.rule in GOOD

    def as_json(self, story: Story) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "part": self.part,
            "text": self.text,
            "evidence": dict(self.evidence),
            "trials": [
                {"run_directory": story.sources[t.source].name, "run": t.name} for t in self.trials
            ],
            "subject": self.subject,
            "knob": self.knob,
            "to_do": self.to_do,
            "good": self.good if self.part == TRUST else None,
        }


SHOWN: Mapping[str, Callable[[Any], str]] = {
    shown.__name__: shown
    for shown in (
        numbers.count,
        numbers.megabits,
        numbers.mebibytes,
        numbers.millis,
        numbers.percent,
        numbers.seconds,
        numbers.whole_percent,
    )
}
"""Ways to show a number that words and templates name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerText:
    sentences: tuple[Sentence, ...]
    rests_on: tuple[Sentence, ...] = ()
    cannot_say: tuple[Sentence, ...] = ()


def phrase(name: str, /, **words: Any) -> str:
    """Words of words.toml, filled in."""
    return filled(WORDS["phrases"][name], words, SHOWN)


def sentence_of(
    rule: str, evidence: Mapping[str, Any] = {}, trials: Iterable[StoredTrial] = (), /,
    subject: str = "", knob: str = "", to_do: str = "", **words: Any,
) -> Sentence:  # fmt: skip
    """The sentence that words.toml has for a rule. `words`: what it needs beside the evidence."""
    known = {**evidence, "subject": subject, **words}
    text = filled(WORDS["sentences"][rule], known, SHOWN)
    return Sentence(rule, text, evidence, tuple(trials), subject, knob, to_do)


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`; empty if there is none."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def first_of(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


REASON_WORDS: Mapping[str, str] = WORDS["reasons"]
TITLES: Mapping[str, str] = WORDS["titles"]
"""Hops and accounts on drawings, if not by their own names."""


def meaning(name: str) -> str:
    """Meaning of a hop or account, without marks of code; empty for one of a plugin's own."""
    found = definition(name)
    return found.meaning.replace("`", "") if found else ""


def hop_title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def reason_words(code: str) -> str:
    """Words of a reason; a plugin's own code stands as it is."""
    return REASON_WORDS.get(code, escape.plain(code))


def reasons_of(trial: StoredTrial) -> list[str]:
    """Reasons of a trial: of a failed one, what the SUT did. What follows from that is no reason of
    its own."""
    return trial.record.failures or [*trial.invalid_reasons]


def counted(trials: Iterable[StoredTrial]) -> Counter[str]:
    return Counter(code for trial in trials for code in dict.fromkeys(reasons_of(trial)))


def why(trials: Iterable[StoredTrial]) -> str:
    """`the sender was late in 2, nothing was sent in 1`; without numbers if it is always so."""
    listed = list(trials)
    found = counted(listed)
    if len(found) == 1 or all(n == len(listed) for n in found.values()):
        return ", ".join(map(reason_words, found))
    return ", ".join(f"{reason_words(code)} in {n}" for code, n in found.most_common())
