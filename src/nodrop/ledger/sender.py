"""Judging the sender: did what was asked for leave, and in time? The sender is a suspect."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import Class
from nodrop.ledger.reasons import Problem, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What the generator did. The sender is a suspect."""

    intended_packets: int
    sent_packets: int
    duration_s: float | None = None
    intended_duration_s: float | None = None
    """None at top speed: then nobody can be late."""
    constant_rate: bool = False
    """Packets per second were asked for, and not the trace's own timing."""
    schedule_error_p99_us: float | None = None
    """None where the generator cannot say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the sender may stray before the trial says more of it than of the SUT."""

    schedule_error_p99_us: float = 5_000
    """A trace's own bursts of equal timestamps go out back to back: 1.9 ms p99 was measured on one
    at original timing with nothing wrong. A starved sender is late by tens of milliseconds."""
    late_ratio: float = 0.05
    """Sending may take this much longer than asked, with at least `late_floor_s` of grace; at a
    constant rate that grace is never longer than what was asked."""
    late_floor_s: float = 0.05
    unsent_ratio: float = 0.0


def problems_of_the_sender(
    ledger: Ledger | None, sending: Sending | None, bounds: Bounds
) -> list[Problem]:
    if sending is None:
        return []
    found: list[Problem] = []
    if sending.sent_packets == 0:
        found.append(Problem(code=Reason.NOTHING_SENT, words="no packet was sent"))
    unsent = sending.intended_packets - sending.sent_packets
    if sending.sent_packets and unsent > bounds.unsent_ratio * sending.intended_packets:
        refused = [a for a in ledger.accounts if a.kind is Class.UNSENT] if ledger else []
        why = "; ".join(f"{a.packets}: {a.counter}" for a in refused)
        words = f"only {sending.sent_packets} of {sending.intended_packets} packets were sent"
        words += f" ({why})" if why else ""
        found.append(Problem(code=Reason.SENDER_SHORT, words=words))
    late = _lateness(sending, bounds)
    if late:
        found.append(Problem(code=Reason.SENDER_LATE, words=f"the sender was late: {late}"))
    return found


def _lateness(sending: Sending, bounds: Bounds) -> str:
    p99 = sending.schedule_error_p99_us
    if p99 is not None and p99 > bounds.schedule_error_p99_us:
        return (
            f"schedule error p99 {p99 / 1000:.1f} ms "
            f"(bound {bounds.schedule_error_p99_us / 1000:g} ms)"
        )
    asked, took = sending.intended_duration_s, sending.duration_s
    if asked is None or took is None:
        return ""
    # The floor forgives a pause of the host. It must not forgive a rate: a thousand packets at any
    # rate are gone in 2 ms, and that is no proof of 10^18 per second.
    floor_s = min(bounds.late_floor_s, asked) if sending.constant_rate else bounds.late_floor_s
    if took > asked + max(bounds.late_ratio * asked, floor_s):
        return f"sending took {took:.3g} s instead of {asked:.3g} s"
    return ""
