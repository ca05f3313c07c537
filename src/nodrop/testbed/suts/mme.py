"""The node's MME as the SUT: a yardstick whose service time is known, with faults on order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.config.options import Options, check
from nodrop.config.subscribers import Subscribers
from nodrop.errors import NodeDied, TrialFailed
from nodrop.ledger.hops import Place
from nodrop.ledger.imbalance import Role
from nodrop.ledger.transactions import Messages
from nodrop.protocol import ReferenceMmeResult
from nodrop.testbed.hosts.api import Json, ReferenceMmeJob
from nodrop.testbed.hosts.sctp import sctp_lacking
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Env, Process
from nodrop.testbed.suts.api import NOTHING_SAID, Drained, Readiness, SutCounters
from nodrop.testbed.suts.job import JobProcess

SCTP_PREFIX = "sctp:"
ANY_PORT = "0.0.0.0:0"
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
    eea: Annotated[int, Field(ge=0, le=3)] = 2
    """Ciphering algorithm."""
    eia: Annotated[int, Field(ge=1, le=3)] = 2
    """Integrity algorithm."""
    subscribers: Annotated[int, Field(ge=1, le=MOST_SUBSCRIBERS)] = 1_000_000
    drop: Ratio = 0.0
    """Fault: share of messages that are not sent."""
    delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 0
    """Fault: each message waits so long."""
    silent_after: Annotated[int, Field(ge=0)] | None = None
    """Fault: silence after so many Attach Requests."""
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


class Mme:
    """The part of a `Sut` that all MMEs have alike."""

    answers: Literal["attach"] = "attach"
    defrag = False
    cpus: str | None = None
    places: Sequence[Place] = ()
    holds_packets: int | None = None
    rest_seen_s: float | None = None
    options: Options

    def needs_bits(self) -> str | None:
        return None

    def files(self) -> Mapping[str, Path]:
        return {}

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
        del setup, mtu
        if standing:
            return (
                'measure.sut = "standing": the reference MME says what it counted only at its end; '
                "leave it out"
            )
        return ""

    def role(self, thread: str) -> Role | None:
        return Role.WORKER if thread == "nodrop-node" else None

    def launch(self, env: Env) -> RunningReferenceMme:
        launched_mono_ns = time.monotonic_ns()
        asked = self.options
        listen = SCTP_PREFIX * (asked.transport == "sctp") + ANY_PORT
        spec = {"job": "reference-mme", "listen": listen}
        job: ReferenceMmeJob = env.job(spec | asked.model_dump(exclude={"transport"}))
        with ExitStack() as stack:
            stack.callback(job.close)
            running = RunningReferenceMme(job, launched_mono_ns, env)
            stack.pop_all()
        return running


class RunningReferenceMme:
    """An `AnsweringSut`."""

    lies_outside = False

    def __init__(self, job: ReferenceMmeJob, launched_mono_ns: int, env: Env) -> None:
        self.process: Process = JobProcess(env.near, env.host, job, launched_mono_ns)
        self._job = job
        self._ready_mono_ns = time.monotonic_ns()
        transport, _, self._port = job.ready["listen"].rpartition(":")
        self._carried_by = SCTP_PREFIX if transport.startswith(SCTP_PREFIX) else ""
        self.messages: Messages | None = None
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
        """It reads what came before anything else, and its eNodeBs have waited for that."""
        del expected_packets, timeout_s
        if self.process.poll() is not None:
            raise TrialFailed("the reference MME ended before it was stopped")
        return Drained(rested_mono_ns=time.monotonic_ns())

    def live(self) -> None:
        """It says nothing before its end."""

    def counted(self) -> SutCounters:
        return NOTHING_SAID

    def mark(self) -> None:
        """It carries one trial."""

    def finish(self, *, timeout_s: float) -> SutCounters:
        try:
            self._job.stop()
            said = self._job.result(timeout_s=timeout_s)
        except NodeDied as error:
            words = f"the reference MME ended without its counters: {error.message}"
            raise TrialFailed(words) from error
        finally:
            self.process.stop(timeout_s=timeout_s)
        self.messages = Messages(sent=said["sent"], received=said["received"])
        return _counters(said)

    def facts(self) -> Json:
        return {**self._job.ready}


def _counters(said: ReferenceMmeResult) -> SutCounters:
    counts: Mapping[str, Any] = said
    return SutCounters(
        captured_packets=None,
        dropped_ring_full_packets=None,
        decoded_packets=None,
        results={name: counts[name] for name in COUNTS},
        sources={"results": "reference-mme result"},
    )
