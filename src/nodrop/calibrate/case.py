"""A known answer: what is put in, what nodrop must say of it, and what it said."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from nodrop import plugins
from nodrop.calibrate.faults import Fault
from nodrop.config.lab_file import LabSource
from nodrop.hosts.rights import in_user_namespace
from nodrop.ledger.reasons import Outcome
from nodrop.results.other_records import Spread
from nodrop.results.trial import TrialRecord

ON_THIS_KERNEL = frozenset({"bare", "docker", "oci"})
"""Setups whose SUT is a process of this host, with the receiver's port beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    lab: LabSource
    setup: str
    work: Path
    """For traces and runs."""
    cpus: tuple[int, ...]
    """CPUs that this process may use."""
    rootless: bool

    @classmethod
    def here(cls, lab: LabSource, setup: str, work: Path) -> Site:
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        return cls(lab=lab, setup=setup, work=work, cpus=cpus, rootless=in_user_namespace())

    @property
    def _ports(self) -> tuple[str, str]:
        return plugins.build_lab(self.lab).ports

    @property
    def tx(self) -> str:
        return self._ports[0]

    @property
    def rx(self) -> str:
        return self._ports[1]

    def no_filter(self) -> str:
        """Why nothing can be dropped on the sender's way out; "" if it can."""
        return "" if shutil.which("nft") else "program nft is missing (package nftables)"

    def no_xdp(self) -> str:
        if self.rootless:
            return "a normal user may attach no XDP program"
        return self.no_sut_process()

    def no_sut_process(self) -> str:
        """Why the SUT cannot be stopped, frozen or killed from here."""
        if self.setup in ON_THIS_KERNEL:
            return ""
        return f"with setup {self.setup} the SUT is no process of this host"

    def no_frozen_thread(self) -> str:
        if not ctypes.util.find_library("c"):
            return "no C library that ptrace(2) could be called through"
        return self.no_sut_process()

    def no_shared_cpu(self) -> str:
        if self.setup not in ON_THIS_KERNEL:
            return f"with setup {self.setup} the SUT's CPUs are not the sender's"
        return ""


OF_THE_SENDER = "sender_"
"""Beginning of the codes of a sender that was late or short."""

Judge = Callable[[Path, Sequence[TrialRecord]], Sequence[str]]
"""The directory and records of a whole run → what is false in it, in words."""


class Answer(StrEnum):
    CAUGHT = "caught"
    MISSED = "missed"
    NOT_POSSIBLE = "not possible here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Requirements on a record. None and "" leave a field open."""

    outcome: Outcome = Outcome.MEASURED
    reasons: frozenset[str] = frozenset()
    """One of these codes, at least, if the trial is no measurement."""
    lost: tuple[int, int] | None = None
    """Packets, from and to."""
    place: str = ""
    """Regular expressions, of loss_place and of knob."""
    knob: str = ""
    rules: frozenset[str] = frozenset()
    """By one of these the cause with the largest share is named."""

    @property
    def exact(self) -> bool:
        return self.lost is not None and self.lost[0] == self.lost[1]

    def mismatches(self, record: TrialRecord) -> list[str]:
        """Differences of a record from the requirements, in words."""
        found, books = [], record.packets
        if record.outcome != self.outcome:
            found.append(f"{record.outcome}, not {self.outcome}")
        if self.reasons and not self.reasons.intersection(record.invalid_reasons):
            said = ", ".join(record.invalid_reasons) or "none"
            found.append(f"reasons {said}, not {' or '.join(sorted(self.reasons))}")
        if self.lost is not None and not self._fits(books.lost_packets):
            low, high = self.lost
            wanted = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            lost = "unknown" if books.lost_packets is None else f"{books.lost_packets:,}"
            found.append(f"lost {lost}, not {wanted}")
        for name, wanted, told in (
            ("place", self.place, books.loss_place or ""),
            ("knob", self.knob, books.knob),
        ):
            if wanted and not re.search(wanted, told):
                found.append(f"{name} {told or 'not named'!r}")
        if self.rules and not self.rules.intersection(c.rule for c in books.loss_causes[:1]):
            words = " or ".join(sorted(self.rules))
            found.append(f"cause {books.loss_cause or 'not named'!r}, not {words}")
        return found

    def _fits(self, lost: int | None) -> bool:
        assert self.lost is not None
        return lost is not None and self.lost[0] <= lost <= self.lost[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One known answer: an experiment of a few short trials with a fault in each."""

    name: str
    put_in: str
    """In words, for the table."""
    settings: Sequence[str]
    """`--set`s on the base experiment; measure.repetitions as long as `expected`."""
    expected: Sequence[Expected] = ()
    """One per trial, in their order; empty if `judge` says all."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """Step of the trial → what is put in as it begins."""
    judge: Judge | None = None
    not_possible: str = ""
    """Why it cannot be tried here."""
    about_s: float = 4.0

    def misses(self, directory: Path, records: Sequence[TrialRecord]) -> list[str]:
        """Everything that was said otherwise; empty: the known answer is caught."""
        found = []
        if self.expected and len(records) != len(self.expected):
            found.append(f"{len(records)} trials, not {len(self.expected)}")
        for number, (record, wanted) in enumerate(zip(records, self.expected, strict=False), 1):
            said = wanted.mismatches(record)
            if said:
                trial = f"trial {number}: " if len(self.expected) > 1 else ""
                found.append(trial + "; ".join(said))
        if self.judge is not None and not found:
            found += self.judge(directory, records)
        return found

    def disturbed(self, records: Sequence[TrialRecord]) -> bool:
        """The host made the sender late, not the case: the trial says nothing, which is not a false
        sentence."""
        return any(
            wanted.outcome is not Outcome.VOID
            and Outcome(record.outcome) is Outcome.VOID
            and all(reason.startswith(OF_THE_SENDER) for reason in record.invalid_reasons)
            for record, wanted in zip(records, self.expected, strict=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Result of a case that was tried."""

    case: Case
    answer: Answer
    seen: str
    """The trials as nodrop judged them, in words."""
    why: str = ""
    """Differences from what was expected, or why the case could not be tried."""
    took_s: float = 0.0
    records: tuple[TrialRecord, ...] = ()
    directory: Path | None = None
    spread: Spread | None = None
    """Spread of the two cells that differ in nothing."""


MOST_LISTED = 4


def seen_words(records: Sequence[TrialRecord]) -> str:
    """The trials' outcomes in a line, those alike together."""
    groups: dict[str, list[int]] = {}
    for record in records:
        words = _words(record)
        groups.setdefault(words, []).append(record.packets.lost_packets or 0)
    return "; ".join(_together(words, lost) for words, lost in groups.items())


def _words(record: TrialRecord) -> str:
    """With the place of the number of lost packets left open."""
    if not record.valid:
        return f"{record.outcome}: {', '.join(record.invalid_reasons)}"
    of, books = f"{record.offered.sent or 0:,}", record.packets
    return f"lost {{}} of {of}, {books.loss_place}" if books.lost_packets else f"no loss in {of}"


def _together(words: str, lost: Sequence[int]) -> str:
    if "{}" not in words:
        return f"{len(lost)} x {words}" if len(lost) > 1 else words
    if len(lost) <= MOST_LISTED:
        return words.format(", ".join(f"{packets:,}" for packets in lost))
    return f"{len(lost)} x {words.format(f'{min(lost):,} to {max(lost):,}')}"
