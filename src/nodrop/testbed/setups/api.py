"""WHERE a SUT runs. A setup knows nothing of Suricata, a SUT not of Docker; they meet in `Env`."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import BadInput, LabProblem
from nodrop.ledger.hops import Account, Hop, Place
from nodrop.protocol import Counters, SampleResult
from nodrop.testbed.hosts.api import AnyJob, Host, HostProcess, Json, LabPort, Link, UndoJournal
from nodrop.testbed.hosts.control_groups import memory_controller
from nodrop.testbed.hosts.processes import Inside
from nodrop.testbed.hosts.rights import SUT
from nodrop.testbed.images.image_tree import Bits

PROOF_TIMEOUT_S = 60.0
"""Hashing megabytes takes a machine without KVM seconds."""

PlaceReading = Mapping[str, Counters]
"""Counters read at one moment, by a name for what counted them: NIC, macvtap, guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A process described without saying where it will run.

    It sees its work folder at `Env.work_inside`; `files` are put there before it starts.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Name inside the work folder → content, or a host file to be visible there (never changed)."""
    reads: Sequence[Path] = ()
    """Files of the host that a program of the host sees at their own places: those that its files
    name."""
    devices: Sequence[Path] = ()
    """Folders of device files of the host that it opens, at their own places."""
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: str | None = None
    """CPU list to pin to, as in cpuset(7)."""
    needs: tuple[str, ...] = ()
    """Capabilities that it takes beside those of any SUT."""

    @property
    def caps(self) -> tuple[str, ...]:
        return (*SUT, *self.needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The program that really runs, as its own kernel shows it."""

    exe: str
    """Path as the program's kernel names it."""
    exe_sha256: str
    libraries: Mapping[str, str | None] = field(default_factory=dict)
    """sha256 of what else it runs code from; None if a file is gone from there."""
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the host's files that it was shown (rules), by their names in the work folder."""
    capabilities: str = ""
    """Capabilities that it can ever have: CapBnd of /proc/PID/status, a hexadecimal mask
    (capabilities(7))."""
    effective_capabilities: str = ""
    """Capabilities that the program has now: CapEff."""
    no_new_privileges: bool | None = None
    user_id: int | None = None
    """Effective, as nodrop's own user namespace counts; a guest's is the guest's."""
    filters_system_calls: bool | None = None
    """System calls are filtered: Seccomp of /proc/PID/status is 2."""


def proof_of(process: HostProcess, shown: Mapping[str, str]) -> Proof | None:
    """`shown`: the names of files in the work folder → their paths as the process sees them. None
    if it is gone."""
    said = process.host.probe(
        "proof", pids=[process.pid], files=list(shown.values()), timeout_s=PROOF_TIMEOUT_S
    )
    seen = said["proof"].get(str(process.pid))
    if seen is None:
        return None
    return Proof(
        exe=seen["exe"],
        exe_sha256=seen["exe_sha256"],
        libraries=seen["libraries"],
        files={name: seen["files"][path] for name, path in shown.items()},
        capabilities=seen["capabilities"],
        effective_capabilities=seen["effective_capabilities"],
        no_new_privileges=seen["no_new_privileges"],
        user_id=seen["user_id"],
        filters_system_calls=seen["filters_system_calls"],
    )


class Process(Protocol):
    """A launched SUT."""

    root: HostProcess
    """Root of the process tree that the link's receiving host is charged for: the SUT, or the
    machine emulator of its guest."""
    work: Path
    """The work folder as the controller sees it: logs and results appear here, at the latest when
    the process has been stopped."""
    stdout: Path
    stderr: Path
    launched_mono_ns: int
    own_cgroup: bool
    """The process has a control group to itself, whose figures are therefore its own."""
    phases_s: Mapping[str, float]
    """Parts of the activation time before the program itself began: create, boot."""
    quiet: bool
    """A look while it is measured would take time from it: a guest has one line and few CPUs."""

    def inside(self) -> HostProcess | None:
        """The program itself, on the host whose kernel runs it: `root`, or a process of a guest.
        None if it is gone."""
        ...

    def look(self) -> Inside | None:
        """A look into the running program, wherever it runs. None if it is gone."""
        ...

    def proof(self) -> Proof | None:
        """None if it is gone, or if it cannot be looked at."""
        ...

    def fetch(self, name: str) -> Path:
        """A file of the work folder, brought up to date if another machine writes it; it may not
        exist yet."""
        ...

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        """A connection to a Unix socket in the work folder; OSError if nothing listens."""
        ...

    def poll(self) -> int | None: ...
    def cause_of_death(self) -> str | None:
        """A cause of its end that the place knows and its exit status does not say: lack of
        memory."""
        ...

    def servants(self) -> Sequence[HostProcess]:
        """Processes that work for it outside its own process tree: a container's daemons and shim,
        the kernel threads of a guest's NIC."""
        ...

    def signal(self, number: int) -> None: ...
    def stop(self, *, timeout_s: float) -> int:
        """SIGTERM, waits, SIGKILL at the deadline. Returns the exit status."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    cpus: str | None = None
    cpus_left: bool = False
    """`cpus` is not in the experiment: it is what the generator leaves (measure/cells.py)."""
    memory_bytes: int | None = None
    swappiness: int | None = None
    """Swappiness: with it there may be swap beside `memory_bytes`, without it none."""


class SamplesInside(AbstractContextManager["SamplesInside"], Protocol):
    """A sampler of a machine inside a place, running; ended on every way out."""

    clock_offset_ns: int
    """Add to its rows' CLOCK_MONOTONIC to get the controller's."""

    def finish(self) -> tuple[SampleResult, bytes]:
        """Ends it: its result, and its rows as JSON lines."""
        ...


class Env(Protocol):
    """A provisioned place."""

    @property
    def host(self) -> Host:
        """The host with the capture sockets: its /proc/net/snmp counts their fanout
        defragmentation."""
        ...

    near: Host
    """The link's receiving host: it is charged for what runs here, and its node sees it."""

    @property
    def nic(self) -> LabPort | None:
        """The receiving NIC, in whichever namespace this place has put it; known once launched.
        None: no driver of the kernel has it, so nothing but the SUT counts there."""
        ...

    capture_interfaces: Sequence[str]
    """Interfaces as seen from inside: the NIC itself, or what stands between it and the SUT."""
    work_inside: str
    """The work folder as the SUT sees it."""
    bits: Bits | None
    cpus: AbstractSet[int]
    """CPUs that the programs in this place may use, by the numbers they have here; empty: all that
    are online here."""
    cold: bool
    """The first load after its start runs slower than any later one (a guest that has just booted):
    the load is offered once before, and discarded."""
    delivers_at_once: bool
    """True if what was sent is in the capture sockets when the sender has ended: one kernel carries
    it, and only softirqs lie between. False if a queue waits for another process (an emulator, a
    worker of the kernel)."""

    def launch(self, process: ProcessSpec) -> Process:
        """Launches a program. The call is timed: activation starts here."""
        ...

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        """Runs a node job inside."""
        ...

    def read(self) -> PlaceReading:
        """Counters of what this place puts between the NIC and the capture interface; read at the
        same quiet moments as the NICs. {} if there is nothing."""
        ...

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        """Samples of the machines in this place that have a kernel of their own, by a name for
        each; asked once, when the SUT is ready. {} if this host's sampler sees everything."""
        ...

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        """Hops and accounts that two readings of `read` add to the packet books, in the order of
        the packets' way."""
        ...

    def facts(self) -> Json: ...


class Setup(ABC):
    """Provider of places; the defaults are those of one that shows a port of this host's kernel."""

    name: str
    places: Sequence[Place] = ()
    """The places this setup adds to a packet's way, in the order of the way."""
    alone: str = ""
    """Why there cannot be several of its places at once, behind a split; "" if there can."""
    heeds_cpus: bool = True
    """`Limits.cpus` holds its places; False if something else says which CPUs they have."""
    brings_cpus: bool = False
    """CPUs of its own, which are the same on any host."""
    several_ports: bool = False
    """A place shows a SUT all of `Link.capture_ports`; False if it takes one NIC inside."""
    gives_device: bool = False
    """The SUT drives the receiving NIC itself."""

    @abstractmethod
    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        """Why it cannot run here, each in words a user can act on. Touches nothing."""

    def cpus(self, limits: Limits) -> AbstractSet[int]:
        """CPUs that the SUT can be pinned to, by the numbers they have in this place."""
        return host_cpus(limits)

    @abstractmethod
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> AbstractContextManager[Env]:
        """Untimed; undone on exit. `work` is an empty folder for this trial."""


def cpu_problems(limits: Limits) -> Sequence[str]:
    if limits.cpus is None:
        return []
    return missing_cpus("limits.cpus", limits.cpus, os.sched_getaffinity(0), "this host has no")


def memory_problems(limits: Limits) -> Sequence[str]:
    """A limit beyond what this host has limits nothing, and a guest of that size does not boot."""
    has_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if limits.memory_bytes is None or limits.memory_bytes <= has_bytes:
        return []
    return [
        f"limits.memory = {limits.memory_bytes}: this host has {has_bytes} bytes "
        f"({has_bytes >> 20} MiB); give less, or leave it out"
    ]


def host_cpus(limits: Limits) -> AbstractSet[int]:
    """The CPUs that a SUT on the host itself can be pinned to."""
    return set(parse_cpus(limits.cpus)) if limits.cpus else os.sched_getaffinity(0)


def pin_problems(pins: Mapping[str, str], there: AbstractSet[int]) -> Sequence[str]:
    """`pins`: key of the experiment → CPU list."""
    found = [missing_cpus(key, cpus, there, "the SUT's place has no") for key, cpus in pins.items()]
    return [problem for problems in found for problem in problems]


def pins_within_limits(pins: Mapping[str, str], setup: Setup, limits: Limits) -> None:
    """BadInput if the experiment itself leaves out a CPU that it pins to, on any host."""
    known = limits.cpus is not None or setup.brings_cpus
    if pins and known and setup.heeds_cpus:
        why = f'for limits.cpus = "{limits.cpus}"' if limits.cpus else "without limits.cpus"
        for key, cpus in pins.items():
            for words in pin_problems({key: cpus}, setup.cpus(limits)):
                raise BadInput(f"{words}, {why}", keys=[key])


def missing_cpus(key: str, asked: str, there: AbstractSet[int], words: str) -> Sequence[str]:
    """`words` say whose they are."""
    missing = format_cpus(cpu for cpu in parse_cpus(asked) if cpu not in there)
    return [f'{key} = "{asked}": {words} CPU {missing}'] if missing else []


def swappiness_problems(limits: Limits) -> Sequence[str]:
    """Problems of `limits.swappiness`: only version 1 of control groups has a swappiness of each
    group's own."""
    if limits.swappiness is None:
        return []
    try:
        folder, files = memory_controller()
    except LabProblem as problem:
        return [f"limits.swappiness: {problem}"]
    if files.swappiness and (folder / files.swappiness).exists():
        return []
    return [
        f"limits.swappiness = {limits.swappiness}: control groups of version 2, which this host "
        "has, know none (memory.swappiness was one of version 1); leave it out"
    ]


def out_of_memory_words(memory_bytes: int | None) -> str:
    limit = "" if memory_bytes is None else f" (limits.memory = {memory_bytes / (1 << 20):g} MiB)"
    return f"the kernel killed it for lack of memory{limit}"
