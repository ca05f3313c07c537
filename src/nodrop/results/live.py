"""A reading of a trial under way: a row of live.jsonl, and what a watcher shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodrop.ledger.running import BusyThread


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
    """The SUT's busiest thread between this reading and the one before."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Live:
        """The reading in a row of live.jsonl; fields of a later version are left out."""
        known = {name: row[name] for name in cls.__slots__ if name in row}
        if thread := known.get("busiest_thread"):
            known["busiest_thread"] = BusyThread(**thread)
        return cls(**known)
