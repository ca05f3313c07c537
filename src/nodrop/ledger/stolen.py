"""Losses that the hypervisor does not explain, by when it took a CPU and when packets went.

A load that is too much loses all the time; a hypervisor's theft loses what comes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.running import Running
from nodrop.ledger.timeline import Timeline

AFTERMATH_NS = 100_000_000
"""A ring that a theft has filled overflows until the thread has caught up."""
TIMES = 2
"""Losses that a theft explains, in multiples of what came during it: as much again may be lost
while the ring empties."""


def lost_beyond_steal(
    running: Running, host: Timeline, cpus: frozenset[int], until_ns: int
) -> int | None:
    """Packets that the SUT lost at moments at which none of these CPUs of the host was taken, or
    more than came at the load's mean rate in `TIMES` the time that was. The kernel counts that time
    in ticks of 10 ms. None if it is not known when packets were lost, or came."""
    if running.losses is None or running.arrivals is None or not host.intervals:
        return None
    beyond = 0.0
    for window in _closer(running.losses, running.over_time, until_ns):
        stolen_ns = sum(
            interval.cpus[cpu].stolen_ns
            for interval in host.intervals
            if interval.end_ns > window.begin_mono_ns - AFTERMATH_NS
            and interval.begin_ns < window.end_mono_ns
            for cpu in cpus & interval.cpus.keys()
        )
        beyond += max(0.0, window.packets - TIMES * stolen_ns / 1e9 * running.arrivals.mean_pps)
    return round(beyond)


def _closer(
    losses: Sequence[Losses], over_time: Mapping[str, Sequence[Served]], until_ns: int
) -> Iterable[Losses]:
    """The losses by the SUT's own readings, if those are more frequent: each may be a reading late,
    and what came after the last of them was lost at the end."""
    for thread in dict.fromkeys(window.thread for window in losses):
        of_thread = [window for window in losses if window.thread == thread]
        left, readings = sum(window.packets for window in of_thread), over_time.get(thread, ())
        if not readings or readings[-1].lost > left:
            yield from of_thread
            continue
        lost, begins = 0, [readings[0].mono_ns] * 2
        for reading in readings:
            if reading.lost > lost:
                yield Losses(
                    thread=thread,
                    begin_mono_ns=begins[-2],
                    end_mono_ns=reading.mono_ns,
                    packets=reading.lost - lost,
                )
            lost, begins = max(lost, reading.lost), [begins[-1], reading.mono_ns]
        if left > lost:
            end_ns = max(until_ns, begins[-1])
            yield Losses(
                thread=thread, begin_mono_ns=begins[-2], end_mono_ns=end_ns, packets=left - lost
            )
