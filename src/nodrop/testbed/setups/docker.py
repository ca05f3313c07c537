"""Docker: the SUT runs in a container, and the receiving NIC is moved in to it.

The image is the same root filesystem that other setups run, imported. The container begins at a
gate: only when its NIC is there and up does its first process become the SUT, under the same PID.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nodrop.config.options import Options, check
from nodrop.errors import LabProblem
from nodrop.ledger.hops import Account, Class, Hop, Owner, Place, WaitsFor
from nodrop.testbed.hosts.api import (
    AnyJob,
    HostProcess,
    Json,
    LabPort,
    Link,
    UndoAction,
    UndoJournal,
    rise,
)
from nodrop.testbed.hosts.local import LABEL_VARIABLE, LocalHost
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.processes import seen_inside
from nodrop.testbed.hosts.rights import entering
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits, image_tar
from nodrop.testbed.labs.netns import MACVTAP, add_macvtap, moved_port, named_namespace
from nodrop.testbed.setups import contained
from nodrop.testbed.setups.api import Limits, PlaceReading, ProcessSpec
from nodrop.testbed.setups.contained import (
    NODE_INSIDE,
    WORK_INSIDE,
    ContainedEnv,
    ContainedJob,
    ContainedProcess,
    Ending,
    OnThisKernel,
    contained_job,
    output_files,
)
from nodrop.testbed.setups.docker_engine import (
    LABEL,
    Attached,
    DockerEngine,
    docker_problems,
    docker_url,
)

RECORD_BYTES = 8192
"""The longest record of /dev/kmsg (PRINTK_MESSAGE_MAX is 2048, escaped it is longer)."""
CLOCKS_APART_S = 1.0
"""The log's clock is the scheduler's, which no one sets by NTP."""
_KILLED = re.compile(r"(?:^|: )Killed process (\d+) \(")


def killed_for_memory(pid: int, *, since_mono_ns: int) -> bool:
    """Whether the kernel says so (`__oom_kill_process`, mm/oom_kill.c), whatever became of the
    process's control group. False too if the log cannot be read. `pid`: as the host counts."""
    begin_us = since_mono_ns / 1e3 - CLOCKS_APART_S * 1e6
    return any(when >= begin_us and pid == killed for when, killed in _kills())


def _kills() -> list[tuple[int, int]]:
    """Time in us, and the PID: Documentation/ABI/testing/dev-kmsg."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found = []
    try:
        while record := _next(handle):
            head, _, text = record.partition(";")
            if killed := _KILLED.search(text.partition("\n")[0]):
                found.append((int(head.split(",")[2]), int(killed[1])))
    finally:
        os.close(handle)
    return found


def _next(handle: int) -> str:
    """A record at each read; empty at the end."""
    while True:
        try:
            return os.read(handle, RECORD_BYTES).decode(errors="replace")
        except BrokenPipeError:
            continue  # it was overwritten meanwhile: the next read begins at the oldest
        except OSError:
            return ""


GATE = ".gate"
EMPTY = ".empty.tar"
DEATH_TIMEOUT_S = 5.0
EXEC_TIMEOUT_S = 5.0


class Docker(OnThisKernel):
    """A Setup (setups/api.py)."""

    name = "docker"

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        found = [*contained.problems(self.name, bits, limits), *docker_problems()]
        if bits is not None and bits.kind == "image" and not image_tar(bits.path).exists():
            found.append(f"{image_tar(bits.path)} is gone: run `nodrop image build`")
        if found:
            return found
        try:
            with closing(DockerEngine()) as engine:
                facts = engine.facts()
        except LabProblem as problem:
            return [str(problem)]
        if limits.memory_bytes is not None and not facts["memory_limit"]:
            found.append("limits.memory: this Docker has no memory controller")
        return found

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[DockerEnv]:
        with ExitStack() as stack:
            journal.push(
                what=f"containers labelled {journal.label}",
                action=UndoAction.REMOVE_CONTAINERS,
                arguments=[docker_url()],
            )
            engine = DockerEngine()
            stack.callback(engine.close)
            env = self._env(engine, link, bits=bits, limits=limits, work=work, journal=journal)
            stack.callback(env.close)
            yield env

    def _env(self, engine: DockerEngine, link: Link, **given: Any) -> DockerEnv:
        return DockerEnv(self.name, engine, link, **given)


class DockerEnv(ContainedEnv):
    """An Env (setups/api.py)."""

    def __init__(
        self, name: str, engine: DockerEngine, link: Link, *, bits: Bits | None, **given: Any
    ) -> None:
        super().__init__(name, link, bits=bits, **given)
        self._engine = engine
        self._image = self._imported(bits)
        self._containers: list[str] = []

    def launch(self, process: ProcessSpec) -> ContainedProcess:
        outputs = output_files(Path(WORK_INSIDE), Path(process.argv[0]).name)
        to_files = [
            f"--{name}={path}" for name, path in zip(("stdout", "stderr"), outputs, strict=True)
        ]
        launched, _ = self._run(process, to_files)
        return launched

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        """A job that names an interface, or listens, gets the NIC, for good; any other leaves it
        alone."""
        wired = "interface" in spec or "listen" in spec

        def run(process: ProcessSpec) -> ContainedJob:
            launched, attached = self._run(process, wired=wired, attach=True)
            assert attached is not None
            return ContainedJob(
                process=launched,
                stdin=attached.stdin,
                stdout=attached.stdout,
                stderr=attached.stderr,
            )

        return contained_job(spec, where=self._name, run=run)

    def _run(
        self,
        process: ProcessSpec,
        outputs: Sequence[str] = (),
        *,
        wired: bool = True,
        attach: bool = False,
    ) -> tuple[ContainedProcess, Attached | None]:
        launched_ns, began_s = time.monotonic_ns(), time.monotonic()
        gate = self._gate() if wired else None
        container = self._create(process, _entry(process, *outputs, gated=wired), attach=attach)
        self._containers.append(container)
        attached = self._engine.attach(container) if attach else None
        if attached is not None:
            self._undo.callback(attached.close)
        created_s = contained.since(began_s)
        pid = self._engine.start(container)
        self._must_be_ours(pid)
        self._journal.process(pid, Path(process.argv[0]).name)
        started_s = contained.since(began_s)

        def ending() -> Ending:
            ended = self._engine.ended(container, timeout_s=DEATH_TIMEOUT_S)
            # Docker hears nothing of it if it takes the container's group away first.
            killed = ended.out_of_memory or killed_for_memory(pid, since_mono_ns=launched_ns)
            return Ending(status=ended.status, out_of_memory=killed)

        if wired:
            self._wire(self._undo.enter_context(named_namespace(pid, self._near, self._journal)))
        launched = self._launched(
            process,
            pid,
            launched_mono_ns=launched_ns,
            phases_s={
                "create": created_s,
                "start": started_s - created_s,
                "wire": contained.since(began_s) - started_s,
            },
            ending=ending,
            servants=self._servants(pid),
        )
        if gate is not None:
            os.write(gate, b"x")
        return launched, attached

    def _servants(self, pid: int) -> Sequence[HostProcess]:
        pids = self._engine.servants(pid, self.near.probe("processes")["processes"])
        return [HostProcess(self.near, one) for one in pids]

    def facts(self) -> Json:
        return {
            **super().facts(),
            "image_id": self._image,
            "container": self._containers[-1] if self._containers else None,
            "docker": self._engine.facts(),
        }

    def close(self) -> None:
        try:
            self._engine.remove(self._containers)
        finally:
            self._undo.close()
            self._work.close()
            (self._work.path / GATE).unlink(missing_ok=True)

    def _wire(self, inside: LocalHost) -> None:
        """Moves the NIC into the container."""
        self.nic = self._undo.enter_context(moved_port(self.nic, inside, self._journal))
        self.host = inside

    def _gate(self) -> int:
        """A gate that is held open: what waits there sees its end when we die."""
        fifo = self._work.path / GATE
        os.mkfifo(fifo)
        gate = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
        self._undo.callback(os.close, gate)
        return gate

    def _imported(self, bits: Bits | None) -> str:
        if bits is not None:
            return self._engine.image(bits.sha256, image_tar(bits.path))
        tar = self._work.path / EMPTY
        tar.write_bytes(_empty_tar())
        try:
            return self._engine.image(file_sha256(tar), tar)
        finally:
            tar.unlink()

    def _create(self, process: ProcessSpec, entry: Sequence[str], *, attach: bool) -> str:
        from docker.types import LogConfig, Mount

        shown = {Path(self._near.node): NODE_INSIDE}
        shown |= self._work.place(process.files, copies=self._work.path, user=None)
        # Not `volumes`, whose words are divided by colons: a path may hold one.
        mounts = [
            Mount(inside, str(path), type="bind", read_only=True) for path, inside in shown.items()
        ]
        mounts.insert(0, Mount(WORK_INSIDE, str(self._work.path), type="bind"))
        limits: dict[str, Any] = {}
        if self._limits.memory_bytes is not None:
            limits["mem_limit"] = self._limits.memory_bytes
            # Memory and swap together: no part may be swap, unless the experiment says how readily.
            swap = self._limits.swappiness is not None
            limits["memswap_limit"] = -1 if swap else self._limits.memory_bytes
        if self._limits.swappiness is not None:
            limits["mem_swappiness"] = self._limits.swappiness
        if self._limits.cpus is not None:
            limits["cpuset_cpus"] = self._limits.cpus
        return self._engine.create(
            self._image,
            [*entry, *process.argv],
            labels={LABEL: self._journal.label},
            environment={**process.env, LABEL_VARIABLE: self._journal.label},
            network_mode="none",
            cap_drop=["ALL"],  # its own defaults
            security_opt=["no-new-privileges"],
            cap_add=list(process.caps),
            mounts=mounts,
            log_config=LogConfig(type="none"),
            stdin_open=attach,
            **limits,
        )

    def _must_be_ours(self, pid: int) -> None:
        """A PID of a rootless or virtualised Docker means no process here, or another one. And
        on a busy machine Docker says that a container has started while it is still runc's own
        process."""
        for _ in looks(EXEC_TIMEOUT_S):
            seen = seen_inside(HostProcess(self.near, pid))
            if seen is None:
                break
            if seen["lab"] == self._journal.label:
                return
        raise LabProblem(
            f"PID {pid}, which Docker names as the container's, is not that here",
            hint="it ended at once, or Docker runs in a machine of its own",
        )


def _entry(process: ProcessSpec, *outputs: str, gated: bool) -> list[str]:
    gate = ["--gate", f"{WORK_INSIDE}/{GATE}"] if gated else []
    return entering(NODE_INSIDE, *gate, *outputs, cpus=process.cpus, caps=process.caps)


def _empty_tar() -> bytes:
    """The node brings everything it needs; Docker imports no archive without an entry."""
    folder = tarfile.TarInfo("run")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(folder)
    return packed.getvalue()


MACVTAP_HOP = "macvtap"
# Docker with a macvtap: the receiving NIC stays outside, and a macvtap on it goes inside.
#
# This is the studies' DockerV: the way of the packets is the one into a virtual machine, up to the
# queue that its emulator would read. Nothing reads that queue here: the SUT captures on the
# macvtap.
MACVLAN = Place(
    name="macvtap",
    owner=Owner.SETUP,
    counter="rx_dropped of the receiving NIC (rtnl_link_stats64), of frames to a group",
    source="Linux drivers/net/macvlan.c (macvlan_broadcast_enqueue)",
    knob="bcqueuelen of the macvtap: frames to a group wait there for a kernel worker",
    waits_for=WaitsFor.CPU,
)


class MacvtapOptions(Options):
    txqueuelen: Annotated[int, Field(ge=1)] | None = None
    """Queue length of the macvtap; it matters if something reads the queue. Without it, the
    kernel's 500."""


class DockerMacvtap(Docker):
    """A Setup (setups/api.py)."""

    name = "docker-macvtap"
    places: Sequence[Place] = (MACVLAN,)

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self._options = check(MacvtapOptions, options or {}, table="setup", base=base)

    def _env(self, engine: DockerEngine, link: Link, **given: Any) -> DockerMacvtapEnv:
        env = DockerMacvtapEnv(self.name, engine, link, **given)
        env.txqueuelen = self._options.txqueuelen
        env.capture_interfaces = (MACVTAP,)  # the NIC stays where it is
        return env


class DockerMacvtapEnv(DockerEnv):
    """An Env (setups/api.py)."""

    delivers_at_once = False  # frames to a group wait for a worker of the kernel
    txqueuelen: int | None = None
    _macvtap: LabPort | None = None

    def read(self) -> PlaceReading:
        if self._macvtap is None:
            return {}
        return {
            "nic": self.nic.counters(),
            MACVTAP_HOP: self._macvtap.counters(),
        }

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        return macvtap_books(self.nic.name, MACVTAP, before, after)

    def facts(self) -> Json:
        return {**super().facts(), "macvtap_mode": "passthru", "txqueuelen": self.txqueuelen}

    def _wire(self, inside: LocalHost) -> None:
        self._macvtap = add_macvtap(self.nic, inside, queue=self.txqueuelen)
        self.host = inside


def macvtap_books(
    nic: str, macvtap: str, before: PlaceReading, after: PlaceReading
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """Hops and accounts from the NIC to the macvtap's own receive counter.

    Unicast frames are handed over at once and cannot be lost. Frames to a group take another way:
    their fragments are put together first (IP_DEFRAG_MACVLAN), then a queue of `bcqueuelen` frames
    carries them to a worker of the kernel; if it is full they are counted in the NIC's rx_dropped,
    together with group frames that the host itself has no protocol for. What did not arrive at the
    macvtap separates the two.
    """
    arrived = rise(before[MACVTAP_HOP], after[MACVTAP_HOP], macvtap, "rx_packets")
    missing = rise(before["nic"], after["nic"], nic, "rx_packets") - arrived
    accounts = []
    merged = min(missing, _reassembled(before, after))
    if merged > 0:
        accounts.append(
            Account(
                into=MACVTAP_HOP,
                kind=Class.MERGED,
                name="rx_merged_macvlan_defrag",
                packets=merged,
                counter=f"Ip ReasmReqds - ReasmOKs (/proc/net/snmp where {nic} is)",
                evidence="macvlan puts fragments to broadcast and multicast addresses together",
            )
        )
    dropped = min(missing - max(0, merged), rise(before["nic"], after["nic"], nic, "rx_dropped"))
    if dropped > 0:
        accounts.append(
            Account(
                into=MACVTAP_HOP,
                kind=Class.LOST,
                name="rx_dropped_macvlan_queue",
                place=MACVLAN,
                packets=dropped,
                counter=f"rx_dropped of {nic} (rtnl_link_stats64)",
                evidence=f"{nic} handed on {missing:,} packets that {macvtap} never counted; its "
                "rx_dropped counts such frames, and those to a group that no protocol takes",
                knob=MACVLAN.knob,
            )
        )
    hop = Hop(
        name=MACVTAP_HOP, packets=arrived, counter=f"rx_packets of {macvtap} (rtnl_link_stats64)"
    )
    return (hop,), tuple(accounts)


def _reassembled(before: PlaceReading, after: PlaceReading) -> int:
    def total(side: PlaceReading) -> int:
        snmp = side["nic"]["snmp"]
        return int(snmp["Ip.ReasmReqds"]) - int(snmp["Ip.ReasmOKs"])

    return total(after) - total(before)
