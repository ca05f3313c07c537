"""The node's MME as the SUT: a yardstick whose service time is known, with faults on order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.config.options import CpuList, Options, check
from nodrop.config.subscribers import Eea, Eia, Subscribers
from nodrop.config.units import format_cpus
from nodrop.errors import NodeDied, TrialFailed
from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.transactions import Latency, Messages
from nodrop.protocol import ReferenceMmeResult, StubResult
from nodrop.testbed.hosts.api import HostProcess, Json, ReferenceMmeJob, StubJob
from nodrop.testbed.hosts.sctp import sctp_lacking
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Env, Process
from nodrop.testbed.suts.api import NOTHING_SAID, Drained, Readiness, Sut, SutCounters
from nodrop.testbed.suts.job import JobProcess

SCTP_PREFIX = "sctp:"
ANY_PORT = "0.0.0.0:0"
STUBS = ("hss", "sgw")
"""Instances of one network namespace share its address, so each has a port of its own."""
MOST_WORK_US = 60_000_000
MOST_SUBSCRIBERS = 1 << 24
Ratio = Annotated[float, Field(ge=0, le=1)]
COUNTS = (
    *("attach_requests", "attached", "rejected", "detached", "given_up", "repeats", "undecodable"),
    *("mac_failures", "unknown_ue_ids", "peak_ues", "dropped"),
)


class ReferenceMmeOptions(Subscribers):
    transport: Literal["tcp-framed", "sctp"] = "tcp-framed"
    """Carrier of its messages: the kernel's SCTP, as of every real MME, or TCP with a frame of
    nodrop's own, for kernels without SCTP."""
    work_us: Annotated[int, Field(ge=0, le=MOST_WORK_US)] = 0
    """CPU time that each Attach Request takes beside the work itself: an MME whose capacity is
    known."""
    eea: Eea = 2
    """Ciphering algorithm that it prefers; it takes the best that a UE offers."""
    eia: Eia = 2
    """Integrity algorithm that it prefers; it takes the best that a UE offers."""
    subscribers: Annotated[int, Field(ge=1, le=MOST_SUBSCRIBERS)] = 1_000_000
    core: Literal["inside", "stubs"] = "inside"
    """Home network and sessions: within the MME itself, or as a real MME has them, behind S6a
    (Diameter) and S11 (GTPv2-C), by a stub HSS and a stub SGW beside it."""
    core_cpus: CpuList | None = None
    """CPUs of the stubs. None = all that the MME does not have."""
    drop: Ratio = 0.0
    """Fault: share of messages that are not sent."""
    delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 0
    """Fault: time that each message waits."""
    silent_after: Annotated[int, Field(ge=0)] | None = None
    """Fault: number of Attach Requests after which the MME is silent."""
    wrong_id: Ratio = 0.0
    """Fault: share of messages with UE ids that no UE has."""
    bad_mac: Ratio = 0.0
    """Fault: share of protected messages with a wrong MAC."""
    reject: Ratio = 0.0
    """Fault: share of Attach Requests that are turned away."""
    limit: Annotated[int, Field(ge=0)] | None = None
    """Fault: UEs at most."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the faults."""


class Mme(Sut):
    """The part of a `Sut` that all MMEs have alike."""

    answers = "attach"
    options: Options

    def facts(self) -> Json:
        return {"options": self.options.model_dump(mode="json")}


class ReferenceMme(Mme):
    """A `Sut`. The constructor refuses bad options (BadInput) and touches nothing."""

    name = "reference-mme"
    options: ReferenceMmeOptions

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(ReferenceMmeOptions, options, table="sut", base=base)

    def problems(self, bits: Bits | None) -> Sequence[str]:
        del bits
        return [*filter(None, [sctp_lacking()])] if self.options.transport == "sctp" else ()

    def misplaced(self, setup: str, *, mtu: int | None, standing: bool) -> str:
        del mtu, standing
        if self.options.core == "stubs" and setup != "bare":
            return (
                f'sut.core = "stubs": not with setup.kind = "{setup}", where the MME alone runs; '
                "leave it out"
            )
        return ""

    def inputs_sha256(self) -> Mapping[str, str]:
        return self.options.files_sha256("sut")

    def role(self, thread: str) -> ThreadRole | None:
        return ThreadRole.WORKER if thread == "nodrop-node" else None

    def launch(self, env: Env) -> RunningReferenceMme:
        launched_mono_ns = time.monotonic_ns()
        asked = self.options
        listen = SCTP_PREFIX * (asked.transport == "sctp") + ANY_PORT
        own = {"transport", "core", "core_cpus", "subscribers_file"}
        spec = {"job": "reference-mme", "listen": listen, **asked.model_dump(exclude=own)}
        spec |= self._usims()
        with ExitStack() as stack:
            stubs = [*self._stubs(env, stack)] if asked.core == "stubs" else []
            behind = dict(zip(STUBS, (stub.ready["listen"] for stub in stubs), strict=False))
            job: ReferenceMmeJob = env.job(spec | behind)
            stack.callback(job.close)
            running = RunningReferenceMme(job, launched_mono_ns, env, stubs)
            running.close = stack.pop_all().close
        return running

    def _usims(self) -> Json:
        file = self.options.subscribers_file
        return {} if file is None else {"usims": file.usims}

    def _stubs(self, env: Env, stack: ExitStack) -> Iterator[StubJob]:
        """HSS and SGW, off the CPUs of the MME where there are others."""
        here = os.sched_getaffinity(0)
        cpus = self.options.core_cpus or format_cpus((here - env.cpus) or here)
        env.host.run(["ip", "link", "set", "lo", "up"])  # a new namespace's is down
        known = {"first_imsi", "subscribers", "k", "opc", "mcc", "mnc"}
        home = self.options.model_dump(include=known) | self._usims()
        for spec in ({"job": "stub-hss", **home}, {"job": "stub-sgw"}):
            job: StubJob = env.host.job(spec, cpus=cpus)
            stack.enter_context(closing(job))
            job.start()
            yield job


class JobWithStubs(JobProcess):
    """The MME's process; HSS and SGW work for it beside it."""

    stubs: Sequence[HostProcess] = ()

    def servants(self) -> Sequence[HostProcess]:
        return self.stubs


class RunningReferenceMme:
    """An `AnsweringSut`."""

    lies_outside = False

    def __init__(
        self,
        job: ReferenceMmeJob,
        launched_mono_ns: int,
        env: Env,
        stubs: Sequence[StubJob],
    ) -> None:
        process = JobWithStubs(env.near, env.host, job, launched_mono_ns)
        process.stubs = [HostProcess(env.near, stub.pid) for stub in stubs]
        self.process: Process = process
        self.close: Callable[[], None] = job.close
        self._stubs = dict(zip(STUBS, stubs, strict=False))
        self._job = job
        self._ready_mono_ns = time.monotonic_ns()
        transport, _, self._port = job.ready["listen"].rpartition(":")
        self._carried_by = SCTP_PREFIX if transport.startswith(SCTP_PREFIX) else ""
        self.messages: Messages | None = None
        self.round_trips: Mapping[str, Latency] = {}
        job.start()

    def server(self, address: str) -> str:
        return f"{self._carried_by}{address}:{self._port}"

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        del timeout_s  # a launched node job is ready: it listens
        return Readiness(
            ready_mono_ns=self._ready_mono_ns,
            phases_s={"listen": (self._ready_mono_ns - self.process.launched_mono_ns) / 1e9},
            evidence=self._job.ready,
        )

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        """The MME is at rest: it reads what came before anything else, and its eNodeBs have waited
        for that."""
        del expected_packets, timeout_s
        if self.process.poll() is not None:
            raise TrialFailed("the reference MME ended before it was stopped")
        return Drained(rested_mono_ns=time.monotonic_ns())

    def live(self) -> None:
        """Nothing: the MME says what it counted only at its end."""

    def counted(self) -> SutCounters:
        """Nothing: the MME says what it counted only at its end."""
        return NOTHING_SAID

    def mark(self) -> None:
        """No counters: those of a standing MME are sums over all trials."""

    def finish(self, *, timeout_s: float) -> SutCounters:
        try:
            self._job.stop()
            said = self._job.result(timeout_s=timeout_s)
            beside = {name: _ended(job, timeout_s) for name, job in self._stubs.items()}
        except NodeDied as error:
            words = f"the reference MME ended without its counters: {error.message}"
            raise TrialFailed(words) from error
        finally:
            self.process.stop(timeout_s=timeout_s)
        self.messages = Messages(sent=said["sent"], received=said["received"])
        took = {"HSS, round trip": said["hss_us"], "SGW, round trip": said["sgw_us"]}
        self.round_trips = {name: found for name, us in took.items() if (found := Latency.of(**us))}
        return _counters(said, beside)

    def facts(self) -> Json:
        return {**self._job.ready}


def _ended(stub: StubJob, timeout_s: float) -> StubResult:
    stub.stop()
    return stub.result(timeout_s=timeout_s)


def _counters(said: ReferenceMmeResult, stubs: Mapping[str, StubResult]) -> SutCounters:
    counts: Mapping[str, Any] = said
    beside = {
        f"{stub}.{name}": n for stub, one in stubs.items() for name, n in one["requests"].items()
    }
    for stub, one in stubs.items():
        beside |= {f"{stub}.refused": one["refused"], f"{stub}.undecodable": one["undecodable"]}
    return SutCounters(
        captured_packets=None,
        dropped_ring_full_packets=None,
        decoded_packets=None,
        results={name: counts[name] for name in COUNTS} | beside,
        sources={"results": "reference-mme result"},
    )
