"""Our own generator: the node's replay job, an open loop on an absolute schedule."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop import protocol as events
from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadKey
from nodrop.ledger.over_time import SenderBurst
from nodrop.ledger.sent_flows import SentFlows
from nodrop.protocol import ReplayResult
from nodrop.testbed.hosts.api import HostProcess, Json, Link, ReplayJob, UndoJournal
from nodrop.testbed.load.api import (
    LoadGenerator,
    OfferedFlows,
    OfferedLoad,
    Offerer,
    ScheduleError,
    Tick,
    lasting,
)
from nodrop.testbed.load.trace import (
    TraceLoad,
    memory_problem,
    pace_of,
    pass_words,
    sent_flows,
    silence_after,
)
from nodrop.untrusted.json_text import counted, making_sense

PREPARE_TIMEOUT_S = 120.0
CLOCK_SLACK_NS = 1_000_000_000
"""A host's clock is known within far less than this."""


class Replay(TraceLoad):
    """Sends one trace, NX at once, at the trace's own timing, a constant rate or top speed."""

    name = "replay"
    late_ratio = 0.05
    writes_dst_macs = True
    senders = 1

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(ReplayOptions, options, table="load", base=base)
        self.constant_rate = self.options.pps is not None
        if len(self.options.cpus) > 1:
            raise BadKey(
                "load.cpu", "one thread sends: name one CPU", given=f'"{self.options.cpu}"'
            )

    def files(self) -> Sequence[Path]:
        return [self.trace]

    def problems(self) -> Sequence[str]:
        facts = self.trace_facts()
        too_large = memory_problem(facts.path, facts.memory_bytes)
        return [too_large] if too_large else []

    def sent_flows(self) -> SentFlows | None:
        options = self.options
        if options.is_for_ports or options.ramp or options.top_speed:
            return None
        cut = {"tolerate_truncated": options.tolerate_truncated}
        return sent_flows(self.trace, {**self.words(), **cut})

    @contextmanager
    def prepare(self, link: Link, *, work: Path, journal: UndoJournal) -> Iterator[Offerer]:
        del work, journal  # the node keeps everything in memory and dies with us
        job: ReplayJob = link.tx.host.job(self.spec(link), timeout_s=PREPARE_TIMEOUT_S)
        try:
            yield _ReplayOfferer(self, job, link)
        finally:
            job.close()

    def spec(self, link: Link) -> Json:
        reads, words = link.tx.host.reads, self.words()
        if rate := words.get("profile"):
            words["profile"] = reads(Path(rate))
        return {
            "job": "replay",
            # A new process reads and indexes the trace anew: 20 ms for 30 MB, 52 ms for 4 replicas.
            "again": True,
            "trace": reads(self.trace),
            "interface": [port.name for port in link.tx_ports],
            **words,
            # As a NIC does, by flows; left alone, the sender's CPU chooses the queue.
            "backend": "af_packet_qdisc" if link.queues > 1 else "auto",
            "spin": link.sender_may_spin,
            # The host that is measured idles as it does.
            "shallow_idle": False,
            "cpus": [*self.options.cpus] * len(link.tx_ports),
            "first_copy": 0,
            "tolerate_truncated": self.options.tolerate_truncated,
            # The frames of a trace for each port have theirs.
            "dst_macs": list(link.dst_macs) if not self.options.is_for_ports else [],
            "dst_macs_by": link.dst_macs_by,
        }

    def words(self) -> Json:
        """The part of a trace that is sent, and its timing."""
        options = self.options
        return {
            **pace_of(options),
            **pass_words(options),
            "loops": options.loops,
            "multiplier": options.multiplier,
            "flow_seed": options.flow_seed,
            "flows": options.flows,
            "loop_flows": options.loop_flows,
            "duration_s": options.duration_s,
            "seed": options.seed,
        }


class _ReplayOfferer:
    def __init__(self, load: Replay, job: ReplayJob, link: Link) -> None:
        self._load, self._job, self._link = load, job, link
        self._offered = False
        self._unsent_copy = 0
        """The first copy of the trace whose flows no offer has sent."""
        self._spec = load.spec(link)
        self.processes: Sequence[HostProcess] = (HostProcess(link.tx.host, job.pid),)
        self._look_ahead()

    def _look_ahead(self) -> None:
        with making_sense("what node job 'replay' says when ready"):
            self.intended_packets: int = counted(self._job.ready, "intended_packets")
            intended_ns = self._job.ready["intended_duration_ns"]
            self._first_copy = counted(self._job.ready, "first_copy")
            self._copies = counted(self._job.ready, "copies")
            self.flows: OfferedFlows = "new"
            if self._first_copy < self._unsent_copy:
                same = self._load.options.flows == "same"
                self.flows = "repeated" if same else "used up"
            self.silence_s = silence_after(self._load.options, self._load.trace_facts())
            self.intended_duration_s = (
                None
                if intended_ns is None
                else lasting(intended_ns / 1e9, self.intended_packets) + self.silence_s
            )

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        del work  # it writes no logs
        if not isinstance(load, Replay):
            raise TypeError(f"a replay cannot offer a load of kind {load.name}")
        spec = {**load.spec(self._link), "first_copy": self._unsent_copy}
        if not self._offered and spec == self._spec:
            return
        if not self._offered:
            self._job.stop()  # a replay of length zero: each spec has its result
            self._job.result(timeout_s=PREPARE_TIMEOUT_S)
        self._job.again(spec, timeout_s=PREPARE_TIMEOUT_S)
        self._load, self._spec, self._offered = load, spec, False
        self._look_ahead()

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        def tell() -> None:
            samples = self._job.samples()
            with making_sense("a sample of node job 'replay'"):
                sent = counted(samples[-1], "sent_packets") if samples else None
            tick(sent)

        assert not self._offered, "aim first"
        self._offered = True
        self._unsent_copy = max(self._unsent_copy, self._first_copy + self._copies)
        began_ns = time.monotonic_ns()
        self._job.start()
        said = self._job.result(timeout_s=timeout_s, tick=tell)
        with making_sense("the result of node job 'replay'"):
            ours_ns = self._link.tx.host.clock_offset_ns
            ended_ns = time.monotonic_ns() - ours_ns
            must_be_possible(said, began_ns=began_ns - ours_ns, ended_ns=ended_ns)
        offered = offered_load(said, self.intended_duration_s, silence_s=self.silence_s)
        facts = self._load.trace_facts()
        sent = {"trace_sha256": facts.sha256, **self._load.words()}
        if facts.source is not None:
            sent |= {"trace_sha256": facts.source.sha256, "window": facts.source.window.span}
        copies = {"first_copy": self._first_copy, "copies": self._copies}
        facts_of_offer = {**offered.facts, **copies, "load": sent}
        return replace(offered, facts=facts_of_offer)


@making_sense("the result of node job 'replay'")
def offered_load(
    said: ReplayResult, intended_duration_s: float | None, *, silence_s: float = 0.0
) -> OfferedLoad:
    """The replay job's result in our words. `silence_s`: what follows the last packet and is part
    of the time in which all were offered."""
    refused = said["refused_packets"]
    if odd := [name for name in refused if not name.isidentifier()]:
        raise ValueError(f"{odd[0]!r} is no name of an error")
    if said["sent_packets"] > said["intended_packets"]:
        raise ValueError("it sent more than it meant to")
    late = said["late_bursts"]
    first, last = said["first_sent_mono_ns"], said["last_sent_mono_ns"]
    return OfferedLoad(
        intended_packets=said["intended_packets"],
        sent_packets=said["sent_packets"],
        sent_bytes=said["sent_bytes"],
        refused_packets=dict(refused),
        duration_s=0.0
        if first is None or last is None
        else lasting((last - first) / 1e9, said["sent_packets"]) + silence_s,
        intended_duration_s=intended_duration_s,
        schedule_error_us=_error(said["schedule_error_us"]),
        asked_schedule_error_us=_error(said["asked_schedule_error_us"]),
        shaped_packets=said["shaped_packets"],
        shaped_pps=said["shaped_pps"],
        spun_share=said["spun_share"],
        late_bursts=None if late is None else tuple(SenderBurst(**b) for b in late["largest"]),
        late_burst_packets=None if late is None else late["packets"],
        cpu_s=said["cpu_s"],
        first_sent_mono_ns=first,
        last_sent_mono_ns=last,
        achieved=said["achieved"],
        sent_profile=said["sent_profile"],
        facts={
            "backend": said["backend"],
            "realtime": said["realtime"],
            "not_rewritten_packets": said["not_rewritten_packets"],
            "replica_offsets_ns": said["replica_offsets_ns"],
            "cpu": said["ports"][0]["cpu"],
        },
    )


def _error(said: events.ScheduleError | None) -> ScheduleError | None:
    if said is None:
        return None
    return ScheduleError(p50=said["p50"], p99=said["p99"], max=said["max"])


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
    profile = said["sent_profile"]
    if not profile["bin_ns"] or sum(profile["packets"]) != said["sent_packets"]:
        raise ValueError("sent_profile does not hold the packets sent")


def _must_not_be_early(name: str, error: events.ScheduleError | None) -> None:
    if error is not None and not 0 <= error["p50"] <= error["p99"] <= error["max"]:
        raise ValueError(f"{name} is {error}")
