"""Hosts, ports and links, and the jobs a node does on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from nodrop.protocol import (
    AttachReady,
    AttachResult,
    AttachSample,
    Counters,
    OverhearReady,
    OverhearResult,
    ProbeResult,
    ReferenceMmeReady,
    ReferenceMmeResult,
    ReplayReady,
    ReplayResult,
    ReplaySample,
    SampleReady,
    SampleResult,
    SinkReady,
    SinkResult,
    SinkSample,
    StubReady,
    StubResult,
    TraceResult,
)

Json = dict[str, Any]
"""A JSON object of the node protocol or the run directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended; `seconds` is wall time."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Child(Protocol):
    """A long-lived program: a Popen, or one in a guest that looks like one."""

    pid: int
    """PID as the host's node sees it."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


ReadyT = TypeVar("ReadyT", covariant=True)
SampleT = TypeVar("SampleT", covariant=True)
ResultT = TypeVar("ResultT", covariant=True)


class NodeJob(Protocol[ReadyT, SampleT, ResultT]):
    """One `nodrop-node` process doing one job (docs/node-protocol.md). Its types are those of the
    job that the spec names; the session has checked each event against them."""

    pid: int
    """PID as the host's node sees it: a job that is the SUT must be sampled."""
    far_pid: int
    """PID that the node itself gives in its hello; in a guest, the number that the guest's kernel
    uses."""

    @property
    def ready(self) -> ReadyT:
        """The `ready` event, once `prepare` has returned."""
        ...

    def again(self, spec: Mapping[str, Any], *, timeout_s: float) -> None:
        """Another spec for the same process, which is then ready anew. The spec before said
        `again`, and its result was asked for."""
        ...

    def start(self, *, at_mono_ns: int | None = None) -> None: ...
    def stop(self) -> None: ...
    def samples(self) -> Sequence[SampleT]:
        """The sample events since the last spec."""
        ...

    def result(self, *, timeout_s: float, tick: Callable[[], None] | None = None) -> ResultT:
        """Waits for it. NodeDied if the node ended without one; NodeRefused for its `error`.

        `tick` is called about twice a second meanwhile, by the thread that waits.
        """
        ...

    def ended(self) -> bool:
        """The job has said its last, of its own accord or not."""
        ...

    def close(self) -> None:
        """Ends the job whatever it is doing (closes its stdin; kills it after a grace period)."""
        ...


AnyJob: TypeAlias = NodeJob[Any, Any, Any]
"""A job whose spec is not known here."""
ReplayJob: TypeAlias = NodeJob[ReplayReady, ReplaySample, ReplayResult]
SampleJob: TypeAlias = NodeJob[SampleReady, Any, SampleResult]
"""A sampler, whose rows go to a file."""
SinkJob: TypeAlias = NodeJob[SinkReady, SinkSample, SinkResult]
AttachJob: TypeAlias = NodeJob[AttachReady, AttachSample, AttachResult]
ReferenceMmeJob: TypeAlias = NodeJob[ReferenceMmeReady, Any, ReferenceMmeResult]
StubJob: TypeAlias = NodeJob[StubReady, Any, StubResult]
OverhearJob: TypeAlias = NodeJob[OverhearReady, Any, OverhearResult]
ProbeJob: TypeAlias = NodeJob[Any, Any, ProbeResult]
TraceJob: TypeAlias = NodeJob[Any, Any, TraceResult]
"""A job whose result comes at once, like a probe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The environment and user of a program of this kernel; a host with another kernel takes
    none."""

    root: Path | None = None
    """The folder that it sees as /."""
    of_host: bool = False
    """True if `root` is an empty folder that shows the host's own files."""
    binds: Mapping[Path, str] = field(default_factory=dict)
    """Path of the host → where the program sees it; with `:ro` behind it, read-only."""
    private: bool = False
    """The program is in a PID namespace of its own, with few variables of our environment. A root
    of its own is read-only but for `binds`, and shows nothing else of this host."""
    cgroup: Path | None = None
    user: int | None = None
    """User that the program is of, once it has been started."""
    fds: Sequence[int] = ()
    """Open files of ours that it inherits."""


AS_OURS = Surroundings()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A long-lived program to be started, and what it gets."""

    argv: Sequence[str]
    stdout: Path
    stderr: Path
    cwd: Path | None = None
    """Working folder as the program sees it."""
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: str | None = None
    caps: Sequence[str] | None = None
    """All the capabilities it keeps, and system calls that need others are denied; None = ours."""
    around: Surroundings = AS_OURS


class Host(Protocol):
    """A machine, or a network namespace of this one."""

    name: str
    clock_offset_ns: int
    """Add to this host's CLOCK_MONOTONIC to get the controller's."""
    here: bool
    """The host has the controller's kernel: they share PIDs, CPUs and files."""

    def reads(self, file: Path) -> str:
        """Path under which a node job there reads this file of ours; if need be it is copied, for
        as long as the host is connected."""
        ...

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, stdin: str = ""
    ) -> Completed:
        """Runs a program on the host. LabProblem (with the end of stderr) on failure if `check`."""
        ...

    def spawn(self, request: SpawnRequest) -> Child:
        """Starts a long-lived program as a direct child, through `nodrop-node enter`.

        The PID is the program's own, it dies with us, it carries our label in NODROP_LAB.
        LabProblem if this host cannot give the program what the request has.
        """
        ...

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> AnyJob:
        """Starts a node job and waits until it is ready. Probe and trace are `ready` at once."""
        ...

    def probe(
        self,
        *what: str,
        ports: Sequence[str] = (),
        pids: Sequence[int] = (),
        files: Sequence[str] = (),
        timeout_s: float = 30,
    ) -> ProbeResult:
        """The host as its node sees it now (docs/node-protocol.md, job `probe`)."""
        ...


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process, on the host whose node can look at it: a PID alone means nothing."""

    host: Host
    pid: int
    """PID as that host's node sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPort:
    host: Host
    name: str

    def counters(self) -> Counters:
        """Current counters of the port and of the network namespace it is in."""
        return counters_of([self])


def counters_of(ports: Sequence[LabPort]) -> Counters:
    """Current counters of several ports of one network namespace."""
    return counters_at(ports[0].host, ports)


def counters_at(host: Host, ports: Sequence[LabPort]) -> Counters:
    """Current counters of a host's network namespace, and of these ports of it, if any."""
    return host.probe("counters", ports=[port.name for port in ports])["counters"]


def rise(before: Counters, after: Counters, port: str, counter: str) -> int:
    """Increase of a port's counter, which is given by its name in LinkStats
    (protocol.py)."""
    then, now = (cast(Mapping[str, int], side["links"][port]["stats"]) for side in (before, after))
    return now[counter] - then[counter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way of the packets: from the sender's port to the receiver's."""

    tx: LabPort
    rx: LabPort
    further: Sequence[tuple[LabPort, LabPort]] = ()
    """Ends of more cables between the same two hosts: a SUT of several ports has one at each, and
    the sender shares flows among them."""
    capture_ports: Sequence[str] = ()
    """Ports of the receiver's host, if several share what comes in at `rx`: a SUT captures on them
    instead."""
    dst_macs: Sequence[str] = ()
    """Addresses of several receivers behind a split: the sender shares the load among them and
    writes each frame's over its own."""
    dst_macs_by: Literal["flows", "replicas"] = "flows"
    """The unit that the sender shares among `dst_macs`."""
    servers: Sequence[str] = ()
    """Address and port of each server of a SUT that answers its load; () before one is ready, and
    of a SUT that only listens."""
    queues: int = 1
    """Receive and send queues of each port that the lab has made."""
    sender_may_spin: bool = False
    """The CPU that the sender is pinned to is its own (measure/cells.py)."""

    @property
    def tx_ports(self) -> Sequence[LabPort]:
        return (self.tx, *(tx for tx, _ in self.further))

    @property
    def rx_ports(self) -> Sequence[LabPort]:
        return (self.rx, *(rx for _, rx in self.further))


class UndoAction(StrEnum):
    """The actions that an undo can take, and no others (hosts/reversal.py). Journals contain these
    words."""

    DELETE_NETNS = "delete_netns"
    DELETE_MACVTAP = "delete_macvtap"
    REMOVE_GROUP = "remove_group"
    REMOVE_CONTAINERS = "remove_containers"
    DELETE_CONTAINER = "delete_container"
    DETACH_NIC = "detach_nic"
    RESTORE_DRIVER = "restore_driver"
    MOVE_PORT_BACK = "move_port_back"
    RETURN_PORT = "return_port"
    LOAD_DRIVER = "load_driver"
    RESTORE_SETTINGS = "restore_settings"


class UndoJournal(Protocol):
    """The record of what must be put back. An entry is on disk before the host is touched."""

    label: str

    def push(self, *, what: str, action: UndoAction, arguments: Sequence[str] = ()) -> None:
        """Journals what reverses the change about to be made."""
        ...

    def process(self, pid: int, what: str) -> None:
        """Journals a process that must not outlive us."""
        ...

    def undo(self) -> Sequence[str]:
        """Reverses everything, last first; returns what could not be undone, in words."""
        ...
