"""The clock of a sender elsewhere, before and after its load: its times are turned into ours."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

from nodrop.hosts.kept_clock import ClockFix
from nodrop.hosts.seam import Host, Json
from nodrop.ledger.reasons import Problem, Reason

SLEW = 500e-6
"""A clock is made to run faster or slower by this at most (adjtimex(2)); a crystal is off by a
fifth of it. What goes beyond stood still, or was another machine's (a guest that was moved)."""


@runtime_checkable
class OwnClock(Protocol):
    """A Host whose CLOCK_MONOTONIC is not ours."""

    def learn_clock(self) -> ClockFix: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    at_ns: int
    """On our CLOCK_MONOTONIC."""
    clock: ClockFix


def fix(host: Host) -> Fix | None:
    """None of a host that has our clock."""
    if host.here or not isinstance(host, OwnClock):
        return None
    return Fix(clock=host.learn_clock(), at_ns=time.monotonic_ns())


def facts(host: Host, before: Fix, after: Fix) -> Json:
    return {
        "host": host.name,
        "before": asdict(before.clock),
        "after": asdict(after.clock),
        "drift_ns": after.clock.offset_ns - before.clock.offset_ns,
    }


def moved(host: Host, before: Fix, after: Fix) -> list[Problem]:
    """If more than two clocks that run can drift apart."""
    drift_ns = abs(after.clock.offset_ns - before.clock.offset_ns)
    bound_ns = before.clock.bound_ns + after.clock.bound_ns
    if drift_ns <= bound_ns + SLEW * (after.at_ns - before.at_ns):
        return []
    words = (
        f"{host.name}: its clock moved by {drift_ns / 1e6:.3f} ms against ours in the trial (known "
        f"within {bound_ns / 1e6:.3f} ms), so its times say nothing: was it suspended, or moved?"
    )
    return [Problem(code=Reason.CLOCK_MOVED, words=words)]
