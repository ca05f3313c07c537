"""LTE UEs that attach by the clock, whatever the MME does (docs/node-protocol.md, job `attach`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from nodrop.config.options import YesNo, check
from nodrop.config.replay import ANY_CPU, Cpu
from nodrop.config.subscribers import IMSI_DIGITS, Eea, Eia, Subscribers
from nodrop.errors import LabProblem, LoadFailed, NodeRefused, TrialFailed
from nodrop.ledger.outcome import Reason
from nodrop.ledger.transactions import Latency, Messages, Transactions
from nodrop.protocol import AttachResult
from nodrop.testbed.hosts.api import AttachJob, HostProcess, Json, Link, UndoJournal
from nodrop.testbed.hosts.node import job_lacking
from nodrop.testbed.load.api import (
    LoadGenerator,
    OfferedFlows,
    OfferedLoad,
    Offerer,
    ScheduleError,
    Tick,
)
from nodrop.untrusted.json_text import making_sense

MOST_PER_S = 1e6
MOST_UES = 1 << 24
"""UE ids have 24 bits."""
MOST_S = 86_400.0
ENB_IDS = 1 << 20
RELEASE_S = 5.0
LINGER_S = 5.0
"""Time that the node gives a UE for its release, and the MME for the last message."""
BIN_S = 0.1
SETUPS = ("bare", "docker", "docker-macvtap", "oci", "vm")
"""Setups whose port gets an address: of this kernel, or of a guest that ends with the trial."""
Wait = Annotated[float, Field(gt=0, le=MOST_S)]


class AttachOptions(Subscribers):
    rate: Annotated[float, Field(gt=0, le=MOST_PER_S)]
    """Attaches begun per second. UE i begins at i / rate, whatever the MME does."""
    count: Annotated[int, Field(ge=1, le=MOST_UES)] | None = None
    """Number of UEs."""
    duration_s: Wait | None = None
    """Time in which `rate` begins the UEs, instead of `count`."""
    subscribers: Annotated[int, Field(ge=1)] | None = None
    """IMSIs there are. An MME that stands between trials is offered new ones in each, and after
    the last the first again. None = all from `first_imsi` on."""
    hold_s: Annotated[float, Field(ge=0, le=MOST_S)] = 1.0
    """Seconds from Attach Accept to Detach Request."""
    keep: YesNo = False
    """UEs stay attached: sessions pile up."""
    eea: Annotated[tuple[Eea, ...], Field(min_length=1)] = (0, 1, 2, 3)
    """Ciphering algorithms of each UE; 0 = none."""
    eia: Annotated[tuple[Eia, ...], Field(min_length=1)] = (1, 2, 3)
    """Integrity algorithms of each UE."""
    enodebs: Annotated[int, Field(ge=1, le=256)] = 1
    """eNodeBs, each with an association of its own, for each MME."""
    timeout_s: Wait = 15.0
    """T3410: an attach that takes longer has timed out."""
    setup_s: Wait = 10.0
    """Longest time until an MME has answered S1 Setup."""
    tac: Annotated[int, Field(ge=0, le=65_535)] = 1
    enb_id: Annotated[int, Field(ge=0, lt=ENB_IDS)] = 1
    """Number of the first eNodeB; the others follow."""
    cpu: Cpu | None = None
    """CPU of the generator. None = nodrop chooses; "any" = the kernel does."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.count is None) == (self.duration_s is None):
            raise ValueError("give one of count and duration_s")
        if self.ues > MOST_UES:
            raise ValueError(f"duration_s x rate are {self.ues:,} UEs, more than {MOST_UES:,}")
        if self.ues / self.rate > MOST_S:
            raise ValueError(f"count / rate is longer than a day ({self.ues:,} UEs)")
        if self.ues > self.imsis and (file := self.subscribers_file) is not None:
            raise ValueError(
                f"{file.path}: has {self.imsis:,} subscribers, and there are {self.ues:,} UEs"
            )
        if self.ues > self.imsis:
            raise ValueError(
                f"first_imsi has no room for {self.ues:,} UEs, or subscribers are fewer"
            )
        return self

    @property
    def imsis(self) -> int:
        """Number of IMSIs that may be used."""
        if self.subscribers_file is not None:
            return len(self.subscribers_file.usims)
        room: int = 10**IMSI_DIGITS - int(self.first_imsi)
        return room if self.subscribers is None else min(room, self.subscribers)

    @property
    def ues(self) -> int:
        if self.count is not None:
            return self.count
        assert self.duration_s is not None
        return max(1, round(self.rate * self.duration_s))


class Attach(LoadGenerator):
    """A LoadGenerator of transactions."""

    name = "attach"
    unit: Literal["packets", "transactions"] = "transactions"
    late_ratio = 0.05
    constant_rate = True
    senders = 1

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(AttachOptions, options, table="load", base=base)

    def problems(self) -> Sequence[str]:
        return [*filter(None, [job_lacking("attach")])]

    def misplaced(self, setup: str, *, mtu: int | None, alone: bool) -> str:
        """Why it cannot reach an MME there, in words; "" if it can. Several instances share the
        address of the port, so that need not be `alone`."""
        del alone
        if mtu is None:
            return (
                'load.kind = "attach" gives addresses to both ports, and to none of the user\'s: '
                "use the lab netns"
            )
        if setup not in SETUPS:
            return (
                f'load.kind = "attach": not with setup.kind = "{setup}", whose port '
                f"gets no address; it is one of {', '.join(SETUPS)}"
            )
        return ""

    def duration_s(self) -> float | None:
        return self.options.ues / self.options.rate

    def inputs_sha256(self) -> Mapping[str, str]:
        return self.options.files_sha256("load")

    def facts(self) -> Json:
        return {"generator": self.name, "options": self.options.model_dump(exclude_none=True)}

    @contextmanager
    def prepare(self, link: Link, *, work: Path, journal: UndoJournal) -> Iterator[Offerer]:
        del journal  # the job ends with us
        offerer = _AttachOfferer(self, link, work)
        try:
            yield offerer
        finally:
            offerer.close()


class _AttachOfferer:
    """Associations that are set up. Each offer takes new ones: an MME may have lost the old."""

    flows: OfferedFlows = "repeated"
    processes: Sequence[HostProcess] = ()
    completed: int | None = None
    in_progress: int | None = None

    def __init__(self, load: Attach, link: Link, work: Path) -> None:
        self._link = link
        self._job: AttachJob | None = None
        self._used = 0
        """IMSIs that were offered: a UE that the MME still knows would attach anew."""
        self.aim(load, work=work)

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        del work  # it writes nothing
        if not isinstance(load, Attach):
            raise TypeError(f"UEs cannot offer a load of kind {load.name}")
        self.close()
        self._load, asked = load, load.options
        self.intended_packets: int | None = asked.ues
        self.intended_duration_s = load.duration_s()
        host = self._link.tx.host
        if self._used + asked.ues > asked.imsis:
            self._used = 0
        own = {"count", "duration_s", "enodebs", "cpu", "subscribers", "subscribers_file"}
        spec = {
            "job": "attach",
            "mme": [*self._link.servers] * asked.enodebs,
            "count": asked.ues,
            **asked.model_dump(exclude=own),
        }
        if asked.subscribers_file is None:
            spec["first_imsi"] = f"{int(asked.first_imsi) + self._used:0{IMSI_DIGITS}}"
        else:
            spec["usims"] = asked.subscribers_file.usims[self._used : self._used + asked.ues]
        cpu = None if asked.cpu in (None, ANY_CPU) else str(asked.cpu)
        try:
            self._job = host.job(spec, timeout_s=asked.setup_s + 30, cpus=cpu)
        except NodeRefused as refused:
            if refused.kind != "no_association":
                raise
            raise TrialFailed(refused.said, reason=Reason.SUT_NOT_READY) from None
        self.processes = (HostProcess(host, self._job.pid),)

    def close(self) -> None:
        if self._job is not None:
            self._job.close()
            self._job = None

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        job, asked = self._job, self._load.options
        assert job is not None
        ready = job.ready
        job.start()
        self._used += asked.ues

        def tell() -> None:
            samples = job.samples()
            if samples:
                self.completed = samples[-1]["attached"]
                self.in_progress = samples[-1]["in_progress"]
            tick(samples[-1]["started"] if samples else None)

        longest_s = asked.timeout_s + asked.hold_s + RELEASE_S + LINGER_S
        try:
            said = job.result(timeout_s=timeout_s + longest_s, tick=tell)
        except LabProblem as problem:
            raise LoadFailed(f"the generator of attaches failed: {problem}") from problem
        with making_sense("the result of node job 'attach'"):
            seen = transactions(said, setup_s=max(ready["setup_ns"], default=0) / 1e9)
        lateness, begun_ns = said["lateness_us"], said["start_mono_ns"]
        return OfferedLoad(
            intended_packets=asked.ues,
            sent_packets=seen.started,
            sent_bytes=0,
            duration_s=said["last_start_ns"] / 1e9 + 1 / asked.rate,
            intended_duration_s=self.intended_duration_s,
            schedule_error_us=ScheduleError(
                p50=lateness["p50"], p99=lateness["p99"], max=lateness["max"]
            ),
            cpu_s=said["cpu_s"],
            first_sent_mono_ns=begun_ns,
            last_sent_mono_ns=begun_ns + said["last_start_ns"],
            facts={"cpu": asked.cpu if asked.cpu != ANY_CPU else None, "ready": dict(ready)},
            transactions=seen,
        )


def transactions(said: AttachResult, *, setup_s: float) -> Transactions:
    """Class and times of each UE's attach. Its session begins with the Attach Accept."""
    first, last, resolved = (
        said["first_accept_ns"],
        said["last_accept_ns"],
        said["resolved_ns"],
    )
    return Transactions(
        name="attach",
        started=said["started"],
        completed=said["attached"],
        rejected=said["rejected"],
        timed_out=said["timed_out"],
        aborted=said["aborted"],
        latency=Latency.of(**said["attach_us"]),
        steps={
            name: found
            for name, took in (
                ("authentication", said["auth_us"]),
                ("security mode", said["smc_us"]),
                ("context setup", said["ics_us"]),
                ("detach", said["detach_us"]),
            )
            if (found := Latency.of(**took)) is not None
        },
        peak_in_progress=said["peak_in_progress"],
        peak_sessions=said["peak_sessions"],
        first_completed_s=None if first is None else first / 1e9,
        last_completed_s=None if last is None else last / 1e9,
        resolved_s=None if resolved is None else resolved / 1e9,
        bin_s=BIN_S,
        completed_per_bin=tuple(said["accepts"]),
        messages=Messages(sent=said["sent"], received=said["received"]),
        anomalies=_numbers(said["anomalies"]),
        setup_s=setup_s,
        transport=said["transport"],
        retransmits=said["sctp_retransmits"],
        unreleased=said["unreleased"],
    )


def _numbers(counts: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
