"""The SUT in all of its places: ready when the last is, counting what all count together.

One is the ordinary case, and is asked directly. Each of several instances has its own part of the
books as well (packets/instances.py), because a sum can hide two errors that make up for each other.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from nodrop.errors import LabProblem, TrialFailed
from nodrop.hosts.seam import HostProcess, Json
from nodrop.ledger.reasons import Reason
from nodrop.setups.seam import Env, Proof
from nodrop.suts.seam import Drained, Readiness, RunningSut, Sut, SutCounters

T = TypeVar("T")
STOP_TIMEOUT_S = 30.0
DRAIN_POLL_S = 0.1
AT_REST_S = 5.0
"""Longer than a SUT's counters may lie behind."""

Each = Sequence[RunningSut]
"""The running SUT, one in each place."""


def launch(sut: Sut, envs: Sequence[Env], stack: ExitStack) -> Each:
    """One in each place; each is on the way to its end as soon as it runs. Its place has
    journalled what must not outlive us: its PID here may be that of a machine of the user's."""
    running = []
    for env in envs:
        running.append(sut.launch(env))
        stack.push(partial(_end, running[-1]))
    return tuple(running)


def _end(running: RunningSut, error: type[BaseException] | None, *_: object) -> None:
    if (close := getattr(running, "close", None)) is not None:
        close()
    if running.process.poll() is not None:
        return
    if error is not None and not issubclass(error, Exception):
        running.process.signal(signal.SIGKILL)  # Ctrl-C: no one reads its last words
    running.process.stop(timeout_s=STOP_TIMEOUT_S)


def roots(each: Each) -> Sequence[HostProcess]:
    """Roots of the process trees that are the SUT."""
    return tuple(one.process.root for one in each)


def programs(each: Each) -> Sequence[HostProcess]:
    """Programs of the SUT that run, on the hosts whose kernels run them."""
    return tuple(found for one in each if (found := one.process.inside()) is not None)


def servants(each: Each) -> Sequence[HostProcess]:
    """Servants of all instances, each once: one daemon serves every container."""
    return tuple(dict.fromkeys(found for one in each for found in one.process.servants()))


def proof(each: Each) -> Proof | None:
    """Proof of the first instance; LabProblem if the instances do not run the same."""
    first, *others = [one.process.proof() for one in each]
    if any(p and first and p != first for p in others):
        raise LabProblem("the instances do not run the same program and rules")
    return first


def facts(each: Each) -> Json:
    found = [one.facts() for one in each]
    return found[0] if len(found) == 1 else {**found[0], "instances": found}


def wait_ready(each: Each, *, timeout_s: float) -> Readiness:
    deadline = time.monotonic() + timeout_s
    found = [one.wait_ready(timeout_s=deadline - time.monotonic()) for one in each]
    if len(found) == 1:
        return found[0]
    last = max(found, key=lambda ready: ready.ready_mono_ns)
    return replace(last, evidence={"instances": [dict(ready.evidence) for ready in found]})


def live(each: Each) -> SutCounters | None:
    found = [one.live() for one in each]
    known = [one for one in found if one is not None]
    return total(known) if len(known) == len(found) else None


def finish(each: Each, *, timeout_s: float) -> Sequence[SutCounters]:
    """Last counters of each instance; an instance takes a second or two to end."""
    return _of_each(each, lambda one: one.finish(timeout_s=timeout_s))


def counted(each: Each) -> Sequence[SutCounters]:
    """Counters of each instance at rest; what comes from now on is the next trial's."""
    found = _of_each(each, lambda one: one.counted())
    for one in each:
        one.mark()
    return found


def drain(each: Each, *, expected_packets: int | None, timeout_s: float) -> Drained:
    if len(each) == 1:
        return each[0].drain(expected_packets=expected_packets, timeout_s=timeout_s)
    if any(one.process.quiet for one in each):
        # Must not be asked while they are measured. Each knows when it is at rest, though not
        # how many packets are its share.
        return _the_last(
            _of_each(each, lambda one: one.drain(expected_packets=None, timeout_s=timeout_s))
        )
    return _drained_together(each, expected_packets=expected_packets, timeout_s=timeout_s)


def _drained_together(each: Each, *, expected_packets: int | None, timeout_s: float) -> Drained:
    """None knows its share, so their sum has to come to rest."""
    began = unchanged_since = time.monotonic()
    last: tuple[int | None, ...] = ()
    while True:
        seen, now = live(each), time.monotonic()
        # Of packets alone: what a SUT says of its own housekeeping never rests.
        counted = () if seen is None else _packets(seen)
        if counted != last:
            unchanged_since, last = now, counted
        rests = seen is not None and seen.captured_packets == expected_packets
        rests = rests or now - unchanged_since >= AT_REST_S
        if rests and seen is not None and _balanced(seen):
            return Drained(rested_mono_ns=int(unchanged_since * 1e9))
        if now - began > timeout_s:
            raise TrialFailed(
                f"the counters of {len(each)} instances do not come to rest within {timeout_s:g} s",
                reason=Reason.NOT_DRAINED,
            )
        if any(one.process.poll() is not None for one in each):
            raise TrialFailed("an instance ended before it was stopped")
        time.sleep(DRAIN_POLL_S)


def _of_each(each: Each, asked: Callable[[RunningSut], T]) -> list[T]:
    """All at once. The pool waits for its threads, and they for the SUTs: if one fails, or
    Ctrl-C ends the trial, nothing is worth waiting for, and the SUTs are killed."""
    if len(each) == 1:
        return [asked(each[0])]
    with ThreadPoolExecutor(len(each)) as pool:
        try:
            answers = [pool.submit(asked, one) for one in each]
            return [answer.result() for answer in answers]
        except BaseException:
            for one in each:
                one.process.signal(signal.SIGKILL)
            raise


def _the_last(each: Sequence[Drained]) -> Drained:
    """At rest when the last of them is."""
    busy = [one.busy_mono_ns for one in each if one.busy_mono_ns is not None]
    left = [one.left_packets for one in each if one.left_packets is not None]
    return Drained(
        rested_mono_ns=max(one.rested_mono_ns for one in each),
        busy_mono_ns=max(busy, default=None),
        left_packets=sum(left) if len(left) == len(each) else None,
    )


def _packets(seen: SutCounters) -> tuple[int | None, ...]:
    return seen.captured_packets, seen.dropped_ring_full_packets, seen.decoded_packets


def _balanced(seen: SutCounters) -> bool:
    captured, dropped = seen.captured_packets, seen.dropped_ring_full_packets
    return captured is not None and captured - (dropped or 0) == seen.decoded_packets


def total(each: Sequence[SutCounters]) -> SutCounters:
    """The sum; what one does not say is not known of all."""
    if len(each) == 1:
        return each[0]

    def summed(value: Callable[[SutCounters], int | None]) -> int | None:
        values = [value(one) for one in each]
        known = [v for v in values if v is not None]
        return sum(known) if len(known) == len(values) else None

    return SutCounters(
        captured_packets=summed(lambda c: c.captured_packets),
        dropped_ring_full_packets=summed(lambda c: c.dropped_ring_full_packets),
        decoded_packets=summed(lambda c: c.decoded_packets),
        decoded_bytes=summed(lambda c: c.decoded_bytes),
        counts_wire_bytes=all(one.counts_wire_bytes for one in each),
        cut_packets=summed(lambda c: c.cut_packets),
        invalid_packets=summed(lambda c: c.invalid_packets),
        invalid_by=_added([one.invalid_by for one in each]),
        lost=_added([one.lost for one in each]),
        results=_added([one.results for one in each]),
        per_thread=_numbered([one.per_thread for one in each]),
        over_time=_numbered([one.over_time for one in each]),
        lag_s=max(one.lag_s for one in each),
        per_thread_lag_s=max(one.per_thread_lag_s for one in each),
        sources={k: f"{v}, all instances" for k, v in each[0].sources.items()},
    )


def _added(each: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found = Counter[str]()
    for one in each:
        found.update(one)
    return dict(found)


def _numbered(each: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """By thread: `0:W#01` of the first instance."""
    return {f"{i}:{name}": value for i, one in enumerate(each) for name, value in one.items()}
