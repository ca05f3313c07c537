"""The SUT in a guest: its place, its program there, its emulator and its files here."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from nodrop.errors import LabProblem
from nodrop.ledger.hops import SOFTNET, Account, Class, Hop, Owner, Place, WaitsFor
from nodrop.protocol import Counters, ProcessInside, SampleResult
from nodrop.testbed.hosts.api import (
    AnyJob,
    Host,
    HostProcess,
    Json,
    LabPort,
    SampleJob,
    SpawnRequest,
    rise,
)
from nodrop.testbed.hosts.guest import GuestHost
from nodrop.testbed.hosts.processes import Inside, inside, seen_inside
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.setups.api import PlaceReading, ProcessSpec, Proof, SamplesInside, proof_of
from nodrop.testbed.setups.docker import MACVLAN, macvtap_books
from nodrop.testbed.setups.qemu import RunningMachine
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder, read_end
from nodrop.untrusted.json_text import making_sense

# Hops and accounts of what a virtual machine puts between the NIC and the capture socket.

LOOPBACK = "lo"
MACVTAP_QUEUE = Place(
    name="macvtap queue",
    owner=Owner.SETUP,
    counter="rx_dropped of the macvtap (rtnl_link_stats64)",
    source="Linux drivers/net/tap.c (tap_handle_frame): QEMU fetches from it for the guest",
    knob="setup.txqueuelen for bursts; more host CPU for QEMU, or a faster guest",
    waits_for=WaitsFor.EMULATOR,
)
GUEST_SOFTNET = Place(
    name="guest softnet backlog",
    owner=Owner.SETUP,
    counter="dropped in the guest's /proc/net/softnet_stat",
    source=f"{SOFTNET.source}, in the guest",
    knob=f"in the guest: {SOFTNET.knob}",
    waits_for=WaitsFor.CPU,
)
AHEAD_OF_A_GUEST = (MACVLAN, MACVTAP_QUEUE, GUEST_SOFTNET)
"""Places in the order of a packet's way."""


def guest_reading(guest: Host, nic: str) -> Counters:
    return guest.probe("counters", ports=[nic, LOOPBACK])["counters"]


@making_sense("a reading of the guest")
def vm_books(
    nic: str, macvtap: str, guest_nic: str, before: PlaceReading, after: PlaceReading
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """NIC → macvtap → its queue, emptied by QEMU → the virtio ring → the guest's NIC and softnet.

    Every frame that reaches the macvtap ends in its queue or is dropped there: while QEMU holds it
    open, none goes on to the host's protocols, so its rx_dropped has one meaning. QEMU stops
    fetching if the guest's receive ring is full: a slow guest, too, shows in this queue, and the
    ring itself loses nothing.
    """
    dropped = rise(before["macvtap"], after["macvtap"], macvtap, "rx_dropped")
    (macvtap_hop,), accounts = macvtap_books(nic, macvtap, before, after)
    ring = Hop(
        name="virtio_ring",
        packets=None,
        counter="none: QEMU leaves in the macvtap's queue what the ring has no room for",
    )
    guest = Hop(
        name="guest_nic",
        packets=rise(before["guest"], after["guest"], guest_nic, "rx_packets"),
        counter=f"rx_packets of {guest_nic} in the guest (rtnl_link_stats64)",
    )
    softnet, in_softnet = softnet_books(guest_nic, before, after)
    hops = (macvtap_hop, ring, guest, softnet)
    accounts = (*accounts, *in_softnet)
    if dropped <= 0:
        return hops, accounts
    length = after["macvtap"]["links"][macvtap]["tx_queue_length"]
    lost = Account(
        into="guest_nic",
        kind=Class.LOST,
        name="rx_dropped_macvtap_queue",
        place=MACVTAP_QUEUE,
        packets=dropped,
        counter=f"rx_dropped of {macvtap} (rtnl_link_stats64)",
        evidence=f"rx_dropped of {macvtap}, whose queue holds {length} packets, {dropped}",
        knob=MACVTAP_QUEUE.knob,
    )
    return hops, (*accounts, lost)


@making_sense("a reading of the guest")
def softnet_books(
    nic: str, before: PlaceReading, after: PlaceReading
) -> tuple[Hop, Sequence[Account]]:
    """Hop and accounts from the guest's NIC to where its kernel hands frames to the capture
    sockets.

    /proc/net/softnet_stat counts a frame as processed ahead of the taps, of whatever port, the
    loopback included. The backlog lies on the way only if the guest spreads frames over its CPUs
    (RPS). A program in the driver (native XDP) takes frames before they get here.
    """
    program = after["guest"]["links"][nic].get("xdp")
    native = program is not None and program["mode"] == "native"
    processed = _softnet(before, after, "processed")
    if LOOPBACK in after["guest"]["links"]:
        processed -= rise(before["guest"], after["guest"], LOOPBACK, "rx_packets")
    hop = Hop(
        name="guest_softnet",
        packets=None if native else processed,
        counter="processed in /proc/net/softnet_stat of the guest, all CPUs, without its loopback",
    )
    dropped = _softnet(before, after, "dropped")
    if dropped <= 0:
        return hop, ()
    lost = Account(
        into="guest_softnet",
        kind=Class.LOST,
        name="rx_dropped_guest_backlog",
        place=GUEST_SOFTNET,
        packets=dropped,
        counter="dropped in /proc/net/softnet_stat of the guest, all CPUs",
        evidence=f"dropped rose by {dropped:,} in the guest's /proc/net/softnet_stat",
        knob=GUEST_SOFTNET.knob,
    )
    return hop, (lost,)


@making_sense("a reading of the guest")
def queued_packets(macvtap: str, guest_nic: str, reading: PlaceReading) -> int:
    """Packets handed to the macvtap, not dropped, and not yet in the guest; both counters began at
    zero."""
    outside = reading["macvtap"]["links"][macvtap]["stats"]
    inside = reading["guest"]["links"][guest_nic]["stats"]
    return int(outside["rx_packets"] - outside["rx_dropped"] - inside["rx_packets"])


def _softnet(
    before: PlaceReading, after: PlaceReading, column: Literal["processed", "dropped"]
) -> int:
    then, now = (sum(row[column] for row in side["guest"]["softnet"]) for side in (before, after))
    return now - then


WORK_INSIDE = "/var/nodrop"
"""Folder on the guest's disk, which is a snapshot: logs take up no memory of the guest."""
FETCH_INTERVAL_S = 0.1
"""Time between two fetches: while rules load, every question to the guest takes time from it."""
LARGEST_FETCH_BYTES = 64 << 20
"""Limit on one file that the SUT leaves behind; a longer one stays in the guest, and is gone with
it."""
CONSOLE_BYTES = 1 << 20
KILL_TIMEOUT_S = 10.0
PATIENCE = 6
"""Factor by which an emulated guest answers more slowly while it still works off its queue."""
OUT_OF_MEMORY = "Out of memory: Killed process"
"""The guest kernel's words on its console."""


class GuestProcess:
    """A Process (setups/api.py). Its root is QEMU: what the receiving host is charged for."""

    quiet = True
    own_cgroup = False  # its control group is QEMU's surroundings on this host

    def __init__(
        self,
        machine: RunningMachine,
        process: ProcessSpec,
        *,
        near: Host,
        work: Path,
        launched_mono_ns: int,
        phases_s: Mapping[str, float],
    ) -> None:
        self.work = work
        self.launched_mono_ns = launched_mono_ns
        self.phases_s = phases_s
        self.root = HostProcess(near, machine.qemu.pid)
        program = Path(process.argv[0]).name
        self.stdout, self.stderr = work / f"{program}.stdout", work / f"{program}.stderr"
        self._machine = machine
        self._fetched_s: dict[str, float] = {}
        self._left = json_text.raised(json_text.GUEST_TRIAL_BYTES)
        self.used: Json = {}
        self._collected = False
        self._given = set(process.files)
        self._shown = [name for name, what in process.files.items() if isinstance(what, Path)]
        if not process.files:  # which make the folder
            machine.host.run(["mkdir", "-p", WORK_INSIDE])
        self._program = machine.host.spawn(
            SpawnRequest(
                argv=process.argv,
                stdout=self.stdout,
                stderr=self.stderr,
                cwd=Path(WORK_INSIDE),
                env=process.env,
                cpus=process.cpus,
                caps=process.caps,
            )
        )

    @property
    def inside_pid(self) -> int | None:
        """PID in the guest's kernel."""
        return self._program.inside_pid

    def inside(self) -> HostProcess | None:
        """The program, as the guest's node sees it; None if it has ended."""
        pid = self._program.inside_pid
        if pid is None or self._program.poll() is not None:
            return None
        return HostProcess(self._machine.host, pid)

    def look(self) -> Inside | None:
        seen = self._seen()
        # Asleep in there says nothing of what still waits outside for the emulator.
        return None if seen is None else inside(seen, cpu_ns=None)

    def proof(self) -> Proof | None:
        """Proof by the guest's node, of the guest's own files."""
        program = self.inside()
        shown = {name: f"{WORK_INSIDE}/{name}" for name in self._shown}
        return None if program is None else proof_of(program, shown)

    def fetch(self, name: str) -> Path:
        ours = self.work / name
        now = time.monotonic()
        recent = now - self._fetched_s.get(name, 0.0) < FETCH_INTERVAL_S
        if self._collected or recent:
            return ours
        self._fetched_s[name] = now
        self._append(name)
        return ours

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        return self._machine.host.connect(f"{WORK_INSIDE}/{name}", timeout_s=timeout_s * PATIENCE)

    def poll(self) -> int | None:
        status = self._program.poll()
        if status is not None:
            self._collect()
        return status

    def cause_of_death(self) -> str | None:
        if self._machine.qemu.poll() is not None:
            return f"its virtual machine ended (QEMU's status {self._machine.qemu.poll()})"
        console = _end_of(self._machine.console)
        said = next((line for line in reversed(console) if OUT_OF_MEMORY in line), None)
        return None if said is None else f"the guest's kernel: {said.partition('] ')[2] or said}"

    def servants(self) -> Sequence[HostProcess]:
        """vhost threads; since Linux 6.4 they are QEMU's own, and with its process."""
        near, name = self.root.host, f"vhost-{self.root.pid}"
        every = near.probe("processes")["processes"].items()
        return [HostProcess(near, int(pid)) for pid, one in every if one["name"] == name]

    def signal(self, number: int) -> None:
        try:
            self._program.send_signal(number)
        except BrokenPipeError:
            pass  # gone with its guest

    def stop(self, *, timeout_s: float) -> int:
        self._remember()
        self.signal(signal.SIGTERM)
        try:
            status = self._program.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._program.kill()
            try:
                status = self._program.wait(KILL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise LabProblem("the guest hangs: its program outlives SIGKILL") from None
        self._collect()
        return status

    def _seen(self) -> ProcessInside | None:
        """The SUT as the guest's node sees it; None if one of the two is gone."""
        program = self.inside()
        try:
            return None if program is None else seen_inside(program)
        except LabProblem:
            return None

    def _remember(self) -> None:
        """Records the memory used, as the guest's kernel counts it: afterwards it cannot be
        known."""
        seen = self._seen()
        if seen is None:
            return
        try:
            memory = self._machine.host.probe("host")["host"]["memory"]
        except LabProblem:
            return
        self.used = {
            "guest_memory": memory,
            "guest_sut_rss_peak_bytes": seen["rss_peak_bytes"],
        }

    def _append(self, name: str) -> None:
        """Appends what is new in a file since the last look: logs only grow. The name is the
        guest's word: one that leads out of the work folder is refused."""
        *above, last = name.split("/")
        folder = Folder(self.work, tuple(above))
        try:
            have = folder.size(last)
            new = self._machine.host.read_file(f"{WORK_INSIDE}/{name}", offset=have)
            self._left -= len(new)
            if not new or self._left < 0:
                return
            folder.make_all()
            with folder.open_to_change(last, append=True) as file:
                file.write(new)
        except (OSError, LabProblem):
            return  # not written yet, gone with its guest, or no name of a file

    def _collect(self) -> None:
        """Collects everything that the program left behind, once it has ended."""
        if self._collected:
            return
        self._collected = True
        try:
            listed = self._machine.host.run(
                ["find", WORK_INSIDE, "-type", "f", "-size", f"-{LARGEST_FETCH_BYTES}c",
                 "-printf", "%P\\n"],
            )  # fmt: skip
        except LabProblem:
            return
        for name in set(listed.stdout.splitlines()) - self._given:
            self._append(name)


def _end_of(console: Path) -> list[str]:
    said = read_end(console, bytes_from_end=CONSOLE_BYTES)
    return said.decode(errors="replace").splitlines()


INTERVAL_MS = 100
NOT_READ = {"links": 0, "load": 0, "disks": 0, "swap": 0}
"""The sampler's usual sources that are left out: every one is time that an emulated guest does not
have."""
RESULT_TIMEOUT_S = 30.0
"""An emulated guest that still works off its queue answers slowly."""


class GuestSamples:
    """A SamplesInside (setups/api.py): a `sample` job, running from now on."""

    def __init__(self, host: GuestHost, *, pids: Sequence[int], spool: str) -> None:
        self.clock_offset_ns = host.clock_offset_ns
        self._host = host
        self._spool = spool
        self._job: SampleJob = host.job(
            {
                "job": "sample",
                "interval_ms": INTERVAL_MS,
                "every": NOT_READ,
                "pids": list(pids),
                "path": spool,
            }
        )
        self._job.start()
        self._await_first_row()

    def _await_first_row(self) -> None:
        """The load comes next, and what is used before the first row is in no figure."""
        for _ in looks(RESULT_TIMEOUT_S):
            with suppress(FileNotFoundError):
                if b"\n" in self._host.read_file(self._spool):
                    return
        self._job.close()
        raise LabProblem(f"the guest's sampler wrote nothing within {RESULT_TIMEOUT_S:.0f} s")

    def finish(self) -> tuple[SampleResult, bytes]:
        self._job.stop()
        said = self._job.result(timeout_s=RESULT_TIMEOUT_S)
        return said, self._host.read_file(self._spool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()


FETCH_TIMEOUT_S = 15.0


class GuestEnv:
    """The common part of every Env (setups/api.py) whose SUT runs in a guest."""

    cold = True
    delivers_at_once = False
    cpus: AbstractSet[int] = frozenset()
    work_inside = WORK_INSIDE
    near: Host
    _port: LabPort
    """The receiving port, which a macvtap leads into the guest."""
    _guest_nic: str
    _tap: LabPort | None = None
    _work: Path
    _spool: str
    """File of the guest's sampler, in the guest."""
    _process: GuestProcess | None = None

    def _booted(self) -> RunningMachine:
        """The guest, which boots first if this setup boots one."""
        raise NotImplementedError

    def _read(self) -> PlaceReading:
        raise NotImplementedError

    def _phases_s(self, running: RunningMachine) -> Mapping[str, float]:
        """Phases of the activation before the SUT's files are copied."""
        del running
        return {}

    @property
    def _tap_name(self) -> str:
        assert self._tap is not None
        return self._tap.name

    def launch(self, process: ProcessSpec) -> GuestProcess:
        launched_mono_ns = time.monotonic_ns()
        running = self._booted()
        booted_s = time.monotonic()
        for name, content in process.files.items():
            whole = content if isinstance(content, bytes) else content.read_bytes()
            running.host.write_file(f"{WORK_INSIDE}/{name}", whole)
        copying_s = time.monotonic() - booted_s
        self._process = GuestProcess(
            running,
            process,
            near=self.near,
            work=self._work,
            launched_mono_ns=launched_mono_ns,
            phases_s={**self._phases_s(running), "copy_files": copying_s},
        )
        return self._process

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        return self._booted().host.job(spec)

    def read(self) -> PlaceReading:
        """A reading once QEMU has fetched what the macvtap's queue holds: until then the guest
        still gets packets. What never arrives is left to the books."""
        for _ in looks(FETCH_TIMEOUT_S):
            found = self._read()
            if queued_packets(self._tap_name, self._guest_nic, found) == 0:
                break
        return found

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        program = self._process.inside_pid if self._process is not None else None
        pids = [] if program is None else [program]
        return {"guest": GuestSamples(self._booted().host, pids=pids, spool=self._spool)}

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        return vm_books(self._port.name, self._tap_name, self._guest_nic, before, after)
