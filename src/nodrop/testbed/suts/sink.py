"""The node's sink as the SUT: it loses nothing by itself, or, slowed down, has a known capacity."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from nodrop.config.options import MemorySize, Options, YesNo, check
from nodrop.errors import LabProblem, NodeDied, NodeRefused, TrialFailed
from nodrop.ledger.hops import Knobs, Place, socket_ring
from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.outcome import Reason
from nodrop.ledger.over_time import Served
from nodrop.protocol import SinkResult, SinkSample
from nodrop.testbed.hosts.api import Json, SinkJob
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Env, Process
from nodrop.testbed.suts.api import (
    SMALLEST_V3_BYTES,
    Drained,
    Readiness,
    SinceMark,
    Sut,
    SutCounters,
    sum_of_known,
)
from nodrop.testbed.suts.job import JobProcess
from nodrop.untrusted.json_text import counted, making_sense

POLL_S = 0.05
THREAD = "sink-"
WORKER = "sink-w"
QUEUE_PACKETS = 101
"""Length of a worker's queue, the packet that it has in hand included."""
MOST_SLOTS = 1 << 18
SLOT_BYTES = 4096
MOST_RING_BYTES = MOST_SLOTS * SLOT_BYTES
MOST_THREADS = 1024
"""Limit on threads, equal to Suricata's."""
SLOWEST_PPS = 0.001
"""A packet takes a quarter of an hour: slower than any trial lasts."""
SAMPLES_AT_REST = 5


Busy = Annotated[int, Field(ge=0, le=1_000_000_000)]


class SinkOptions(Options):
    service_rate_pps: Annotated[float, Field(ge=SLOWEST_PPS)] | None = None
    """Serve no more than this: a SUT whose capacity is known. None = as fast as it can."""
    ring_bytes: Annotated[MemorySize, Field(ge=SLOT_BYTES, le=MOST_RING_BYTES)] = 64 << 20
    """Size of each thread's ring; with a service rate, each slot takes 4 KiB."""
    ring_frames: Annotated[int, Field(gt=0, le=MOST_SLOTS)] | None = None
    """Packets that a queue for each thread holds exactly, the one in service included."""
    defrag: YesNo = False
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)] = 1
    receive_ns: Busy = 0
    """CPU time that a thread with a socket uses on each packet."""
    costly_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """TCP or UDP port; packets from or to it take costly_times as long."""
    costly_times: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Factor on the service time, or on receive_ns."""
    workers: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Threads that those hand packets on to, by flow."""
    worker_ns: Busy = 0
    """CPU time that each of those workers uses on each packet."""
    lock_ns: Busy = 0
    """CPU time that each worker uses on each packet, holding a lock that the workers share."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ring_frames is not None and "ring_bytes" in self.model_fields_set:
            raise ValueError("ring_frames and ring_bytes contradict each other: give one of them")
        if (self.costly_port is None) != (self.costly_times is None):
            raise ValueError("costly_port and costly_times belong together: give both")
        if self.costly_port is not None and self.service_rate_pps is None and not self.receive_ns:
            raise ValueError("costly_port needs service_rate_pps or receive_ns")
        if not self.workers and (self.worker_ns or self.lock_ns):
            raise ValueError("worker_ns and lock_ns are of workers: set workers")
        if self.service_rate_pps is not None and (self.receive_ns or self.workers):
            raise ValueError(
                "service_rate_pps sleeps between packets: leave out receive_ns, workers"
            )
        return self


RING = socket_ring(
    Knobs(
        ring="sut.ring_frames (or sut.ring_bytes)",
        threads="sut.threads",
        fewer_threads="fewer threads (sut.threads)",
        workers="sut.workers",
        less_work="faster service (sut.service_rate_pps, sut.receive_ns, sut.worker_ns)",
        defrag='sut.defrag = "no"',
    ),
    counter="tp_drops (PACKET_STATISTICS), read by nodrop-node sink",
)


class Sink(Sut):
    """A `Sut`. The constructor refuses bad options (BadInput) and touches nothing."""

    name = "sink"
    places: Sequence[Place] = (RING,)

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(SinkOptions, options, table="sut", base=base)
        self.defrag = self.options.defrag
        asked = self.options
        slots, works = asked.ring_frames, asked.receive_ns or asked.workers
        if slots is None and (works or asked.service_rate_pps is not None):
            slots = max(1, asked.ring_bytes // SLOT_BYTES)
        self.holds_packets = None if slots is None else slots * asked.threads + _queued(asked)
        # One packet's service, or a block that is not full.
        self.rest_seen_s = (
            asked.threads / rate * max(1.0, asked.costly_times or 1.0)
            if (rate := asked.service_rate_pps)
            else 0.02
        )

    def problems(self, bits: Bits | None) -> Sequence[str]:
        del bits
        return ()

    def role(self, thread: str) -> ThreadRole | None:
        if not thread.startswith(THREAD):
            return None
        hands_on = self.options.workers and not thread.startswith(WORKER)
        return ThreadRole.RECEIVE if hands_on else ThreadRole.WORKER

    def launch(self, env: Env) -> RunningSink:
        if len(env.capture_interfaces) != 1:
            raise LabProblem(f"the sink captures one interface, not {len(env.capture_interfaces)}")
        launched_mono_ns = time.monotonic_ns()
        spec = {"job": "sink", "interface": env.capture_interfaces[0]}
        job: SinkJob = env.job(spec | self.options.model_dump())
        with ExitStack() as stack:
            stack.callback(job.close)
            running = RunningSink(job, launched_mono_ns, self.options, env)
            stack.pop_all()
        return running

    def facts(self) -> Json:
        return {"options": self.options.model_dump(mode="json")}


def _queued(asked: SinkOptions) -> int:
    """The most that wait before workers."""
    return asked.workers * QUEUE_PACKETS


class RunningSink(SinceMark):
    def __init__(self, job: SinkJob, launched_mono_ns: int, options: SinkOptions, env: Env) -> None:
        self.process: Process = JobProcess(env.near, env.host, job, launched_mono_ns)
        self._clock_offset_ns = env.host.clock_offset_ns
        self._job = job
        self._options = options
        self._ready_mono_ns = time.monotonic_ns()
        self._rest: SinkSample | None = None
        """The sample that the last drain ended with."""
        self._since = 0
        """Number of samples that were taken before the mark."""
        job.start()

    def _samples(self) -> Sequence[SinkSample]:
        return self._job.samples()

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        del timeout_s  # a launched node job is ready: its sockets are open
        return Readiness(
            ready_mono_ns=self._ready_mono_ns,
            phases_s={"open_capture": (self._ready_mono_ns - self.process.launched_mono_ns) / 1e9},
            evidence=self._job.ready,
        )

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        began_ns = time.monotonic_ns()
        seen = len(self._samples())
        if expected_packets is not None:
            expected_packets += self._base_packets()
        for _ in looks(timeout_s, every_s=POLL_S):
            if self.process.poll() is not None:
                self._refuse_nonsense()
                raise TrialFailed("the sink ended before it was stopped")
            fresh = self._samples()[seen:]
            if _at_rest(fresh, expected_packets):
                self._rest = fresh[-1]
                return self._drained(fresh, began_ns)
        raise _not_at_rest(fresh, timeout_s)

    def _refuse_nonsense(self) -> None:
        """A sink that was ended for what it said is no loss of the load's."""
        try:
            self._job.result(timeout_s=0)
        except NodeRefused as refused:
            if refused.kind == "protocol":
                raise
        except LabProblem:
            return

    @making_sense("a sample of node job 'sink'")
    def _drained(self, samples: Sequence[SinkSample], began_ns: int) -> Drained:
        """A queue is at work until its last packet is done. Of a ring of blocks, which come late by
        themselves, that is said only if a sample shows packets that wait."""
        offset_ns, threads = self._clock_offset_ns, samples[-1]["per_thread"]
        served = [t["served_mono_ns"] for t in threads if t["served_mono_ns"] is not None]
        rested_ns = max(served, default=samples[-1]["mono_ns"]) + offset_ns
        since = [s for s in samples if _read_at(s) >= began_ns - offset_ns]
        left = [max(0, s["tp_packets"] - s["tp_drops"] - s["packets"]) for s in since]
        busy = [s["mono_ns"] + offset_ns for s, packets in zip(since, left, strict=True) if packets]
        busy_ns = max(busy, default=None)
        rate, slots = self._options.service_rate_pps, self._job.ready["ring_frames"]
        if slots is not None and rate is not None:
            busy_ns = rested_ns - round(self._options.threads / rate * 1e9)
        return Drained(
            rested_mono_ns=rested_ns, busy_mono_ns=busy_ns, left_packets=left[0] if left else None
        )

    def counted(self) -> SutCounters:
        # Several sinks are drained together, by their sum: each is then asked for its newest.
        rest = self._rest or self._samples()[-1]
        found = _counters(rest, source="sink sample")
        each = (thread.get("decoded_bytes") for thread in found.per_thread.values())
        found = replace(found, decoded_bytes=sum_of_known(each), over_time=self._over_time())
        return self._since_mark(found)

    def mark(self) -> None:
        self._base, self._since = None, 0
        self._base = self.counted()
        self._since = len(self._samples())

    def live(self) -> SutCounters | None:
        samples = self._samples()
        if not samples:
            return None
        read_ns = _read_at(samples[-1]) + self._clock_offset_ns
        lag_s = max(0, time.monotonic_ns() - read_ns) / 1e9
        found = replace(
            _counters(samples[-1], source="sink sample"), lag_s=lag_s, per_thread_lag_s=lag_s
        )
        return self._since_mark(found)

    def finish(self, *, timeout_s: float) -> SutCounters:
        try:
            self._job.stop()
            result = self._job.result(timeout_s=timeout_s)
        except NodeDied as error:
            raise TrialFailed(f"the sink ended without its counters: {error.message}") from error
        finally:
            self.process.stop(timeout_s=timeout_s)
        final = replace(_counters(result, source="sink result"), over_time=self._over_time())
        return self._since_mark(final)

    @making_sense("a sample of node job 'sink'")
    def _over_time(self) -> dict[str, list[Served]]:
        found: dict[str, list[Served]] = {}
        before = {} if self._base is None else self._base.per_thread
        for sample in self._samples()[self._since :]:
            at_ns = counted(sample, "mono_ns") + self._clock_offset_ns
            for name, thread in _threads(sample):
                served, lost = thread["decoded_packets"], thread["dropped_ring_full_packets"]
                # A thread reads its socket's counters less often than it counts what it served.
                waiting = max(0, thread["captured_packets"] - lost - served)
                base = before.get(name, {})
                now = Served(
                    mono_ns=at_ns,
                    served=served - base.get("decoded_packets", 0),
                    lost=lost - base.get("dropped_ring_full_packets", 0),
                    waiting=waiting,
                )
                found.setdefault(name, []).append(now)
        return found

    def facts(self) -> Json:
        # Unlike Suricata, the sink joins a fanout group even if it is a single thread.
        defrag = self._options.defrag
        ready = self._job.ready
        return {
            **ready,
            "holds_packets": (ready["ring_frames"] or ready["ring_bytes"] // SMALLEST_V3_BYTES)
            * ready["threads"]
            + _queued(self._options),
            "defrag_asked": defrag,
            "defrag_effective": defrag,
            "ignores_outgoing": True,  # PACKET_IGNORE_OUTGOING, Linux 4.20
        }


@making_sense("a sample of node job 'sink'")
def _read_at(sample: SinkSample) -> int:
    """Every thread read its socket's counters then, or later."""
    return min(counted(thread, "mono_ns") for thread in sample["per_thread"])


@making_sense("a sample of node job 'sink'")
def _not_at_rest(fresh: Sequence[SinkSample], timeout_s: float) -> TrialFailed:
    if not fresh:
        words, hint = f"the sink says nothing for {timeout_s:g} s: it hangs, or its host", None
    else:
        read, came = fresh[-1]["packets"], fresh[-1]["tp_packets"] - fresh[-1]["tp_drops"]
        words = (
            f"the sink's counters do not come to rest within {timeout_s:g} s: it has read "
            f"{read:,} of {came:,} packets"
        )
        hint = "a slow sink needs as long as its ring holds; see sut.service_rate_pps"
    return TrialFailed(words, hint=hint, reason=Reason.NOT_DRAINED)


@making_sense("a sample of node job 'sink'")
def _at_rest(samples: Sequence[SinkSample], expected_packets: int | None) -> bool:
    """Delivered and dropped make up all, and nothing moved for half a second."""
    if not samples:
        return False
    last = samples[-1]
    if last["tp_packets"] - last["tp_drops"] != last["packets"]:
        return False
    if last["tp_packets"] == expected_packets:
        return True
    before = samples[-1 - SAMPLES_AT_REST :]
    different = {(sample["packets"], sample["tp_packets"]) for sample in before}
    return len(before) > SAMPLES_AT_REST and len(different) == 1


@making_sense("the counters of node job 'sink'")
def _counters(said: SinkResult | SinkSample, *, source: str) -> SutCounters:
    fields = _fields(said)
    return SutCounters(
        captured_packets=fields["captured_packets"],
        dropped_ring_full_packets=fields["dropped_ring_full_packets"],
        decoded_packets=fields["decoded_packets"],
        decoded_bytes=fields.get("decoded_bytes"),
        counts_wire_bytes=True,
        per_thread=dict(_threads(said)),
        sources={field: f"{source} {_NAMES[field]}" for field in fields},
    )


_NAMES = {
    "captured_packets": "tp_packets",
    "dropped_ring_full_packets": "tp_drops",
    "decoded_packets": "packets",
    "decoded_bytes": "bytes",
}


def _threads(said: SinkResult | SinkSample) -> Iterator[tuple[str, dict[str, int]]]:
    for i, thread in enumerate(said.get("per_thread", ())):
        yield f"{THREAD}{i}", _fields(thread)


def _fields(said: Mapping[str, Any]) -> dict[str, int]:
    return {ours: counted(said, theirs) for ours, theirs in _NAMES.items() if theirs in said}
