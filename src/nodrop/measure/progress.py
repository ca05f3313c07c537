"""What a run reports while it goes on, for whatever shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nodrop.ledger.running import BusyThread
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.plan import Plan
from nodrop.results.trial import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A reading of the trial under way; None = not known, or not known yet.

    The SUT's counters are as old as it makes them: Suricata's kernel counters 1 s, its decoder's up
    to 4 s. So a rate is taken over the time between two changes of its counter.
    """

    mono_ns: int
    phase: str
    offering_s: float | None = None
    """Since the first packet was due."""
    intended_s: float | None = None
    intended_packets: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None
    """By the receiving NIC."""
    captured_packets: int | None = None
    dropped_packets: int | None = None
    dropped_by_thread: Mapping[str, int] = field(default_factory=dict)
    decoded_packets: int | None = None
    sent_pps: float | None = None
    received_pps: float | None = None
    captured_pps: float | None = None
    dropped_pps: float | None = None
    decoded_pps: float | None = None
    busiest_thread: BusyThread | None = None
    """Of the SUT, between this reading and the one before."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Live:
        """Of live.jsonl; fields of a later version are left out."""
        known = {name: row[name] for name in cls.__slots__ if name in row}
        if thread := known.get("busiest_thread"):
            known["busiest_thread"] = BusyThread(**thread)
        return cls(**known)


class Progress(Protocol):
    """Called from the thread that runs the trials, in this order; a call must return quickly."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        """`earlier`: records of a resumed run, whose trials are not run again."""
        ...

    def note(self, words: str) -> None:
        """Something about the run as a whole: what is being prepared, what could not be undone."""
        ...

    def trial_started(self, trial: TrialInput) -> None: ...

    def phase(self, name: str) -> None:
        """A step of the trial's lifecycle begins."""
        ...

    def live(self, reading: Live) -> None: ...

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None: ...

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        """Everything that could be run was; also called if the run was interrupted."""
        ...


class Silent:
    """Reports nothing (-q, and tests)."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        pass

    def note(self, words: str) -> None:
        pass

    def trial_started(self, trial: TrialInput) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def live(self, reading: Live) -> None:
        pass

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        pass

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        pass
