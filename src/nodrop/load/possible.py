"""Checks for claims of a replay job that cannot be true."""

from __future__ import annotations

from nodrop.protocol.events import ReplayResult, ScheduleError

CLOCK_SLACK_NS = 1_000_000_000
"""A host's clock is known within far less than this."""


def must_be_possible(said: ReplayResult, *, began_ns: int, ended_ns: int) -> None:
    """ValueError names what cannot be: packets sent outside of the offer (times by the sender's
    clock), errors below zero, a rate over no time."""
    first, last = said["first_sent_mono_ns"], said["last_sent_mono_ns"]
    if first is None or last is None:
        if said["sent_packets"] or first != last:
            raise ValueError(
                f"{said['sent_packets']} packets sent: first at {first}, last at {last}"
            )
    elif not began_ns - CLOCK_SLACK_NS <= first <= last <= ended_ns + CLOCK_SLACK_NS:
        times = f"first at {first}, last at {last} ns"
        raise ValueError(f"{times}; it was offered from {began_ns} to {ended_ns} ns")
    _must_not_be_early("schedule_error_us", said["schedule_error_us"])
    _must_not_be_early("asked_schedule_error_us", said["asked_schedule_error_us"])
    if not said["achieved"]["interval_ns"]:
        raise ValueError("achieved.interval_ns is 0")


def _must_not_be_early(name: str, error: ScheduleError | None) -> None:
    if error is not None and not 0 <= error["p50"] <= error["p99"] <= error["max"]:
        raise ValueError(f"{name} is {error}")
