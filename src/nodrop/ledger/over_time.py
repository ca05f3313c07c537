"""When packets were lost, and when the sender was late: what must be held side by side in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Packets that one thread of the SUT lost between two readings of its counter."""

    thread: str
    """The SUT's name for the thread; empty if its counters are not kept per thread."""
    begin_mono_ns: int
    """Earliest moment at which they can have been lost: what the counter lags is taken off."""
    end_mono_ns: int
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Packets that one thread of the SUT had served and lost, and that waited, at one moment."""

    mono_ns: int
    served: int
    lost: int
    """For want of room in its ring. May be a reading late."""
    waiting: int
    """At least so many packets were in its ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateBurst:
    """The sender was late and caught up: packets left back to back that were asked for apart."""

    begin_mono_ns: int
    """When the first of them left, on the controller's CLOCK_MONOTONIC."""
    end_mono_ns: int
    late_ns: int
    """The largest schedule error among them."""
    packets: int
    """Beyond what the schedule asked for within that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReading:
    """Drops since the first packet, as the SUT said at one moment. None = it did not say; each
    figure may be as old as its lag."""

    mono_ns: int
    dropped: int | None
    lag_ns: int = 0
    by_thread: Mapping[str, int] = field(default_factory=dict)
    by_thread_lag_ns: int = 0


def losses(
    readings: Sequence[DropReading], *, begin_ns: int, end_ns: int
) -> tuple[Losses, ...] | None:
    """Windows in which the counters rose; the last reading is the one at rest. Nothing can be lost
    before `begin_ns`, the first packet, or after `end_ns`, when the last one had arrived. None if
    the final counters are not known."""
    if not readings or readings[-1].dropped is None:
        return None
    totals = _windows(
        "",
        [(r.mono_ns, r.lag_ns, r.dropped) for r in readings if r.dropped is not None],
        (begin_ns, end_ns),
    )
    losers = [thread for thread, packets in readings[-1].by_thread.items() if packets]
    if not losers:
        return tuple(totals)
    if len(losers) == 1:
        return tuple(replace(window, thread=losers[0]) for window in totals)
    found = []
    for thread in losers:
        counted = [
            (r.mono_ns, r.by_thread_lag_ns, r.by_thread[thread])
            for r in readings
            if thread in r.by_thread
        ]
        found += [
            _narrowed(window, totals) for window in _windows(thread, counted, (begin_ns, end_ns))
        ]
    return tuple(sorted(found, key=lambda window: window.begin_mono_ns))


def _windows(
    thread: str, counted: Sequence[tuple[int, int, int]], within: tuple[int, int]
) -> list[Losses]:
    begin_ns, end_ns = within
    return [
        Losses(
            thread=thread,
            begin_mono_ns=min(max(begin_ns, then_ns - lag_ns), end_ns),
            end_mono_ns=max(begin_ns, min(now_ns, end_ns)),
            packets=now - before,
        )
        for (then_ns, lag_ns, before), (now_ns, _, now) in pairwise([(begin_ns, 0, 0), *counted])
        if now > before
    ]


def _narrowed(window: Losses, totals: Sequence[Losses]) -> Losses:
    """A thread loses only when the sum rises, and the sum is often reported earlier."""
    meant = [
        total
        for total in totals
        if total.begin_mono_ns < window.end_mono_ns and total.end_mono_ns > window.begin_mono_ns
    ]
    if not meant:
        return window
    return replace(
        window,
        begin_mono_ns=max(window.begin_mono_ns, min(t.begin_mono_ns for t in meant)),
        end_mono_ns=min(window.end_mono_ns, max(t.end_mono_ns for t in meant)),
    )
