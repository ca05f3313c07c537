"""A virtual machine: QEMU on a macvtap of the receiving port, its disk the image's own files.

The way of a packet: NIC → macvtap → the macvtap's queue, which QEMU reads → the guest's NIC → the
guest's capture socket. Packets that QEMU does not fetch in time die in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.config.options import Options, check
from nodrop.config.units import parse_cpus
from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.hops import Place
from nodrop.testbed.hosts.api import Host, Json, LabPort, Link, UndoJournal
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.images import guest_assets
from nodrop.testbed.images.guest_assets import make_assets
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.netns import add_macvtap
from nodrop.testbed.setups import qemu
from nodrop.testbed.setups.api import Limits, PlaceReading, Setup, cpu_problems, memory_problems
from nodrop.testbed.setups.guest_process import AHEAD_OF_A_GUEST, GuestEnv, guest_reading
from nodrop.testbed.setups.qemu import Machine, NotBooted, RunningMachine
from nodrop.untrusted.json_text import making_sense


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    name: str
    """`kvm` or `tcg`; tcg is emulation, and never printed as anything else."""
    reason: str
    """Reason for the accelerator."""
    ns_per_iteration: float | None
    """Time per iteration that the probe of /dev/kvm measured."""

    def facts(self) -> Json:
        return {
            "accelerator": self.name,
            "accelerator_reason": self.reason,
            "kvm_ns_per_iteration": self.ns_per_iteration,
        }


@making_sense("what the node says of KVM")
def choose_accelerator(host: Host, asked: str) -> Accelerator:
    """`auto` takes KVM if it is usable. LabProblem if `kvm` is asked for and is not."""
    if asked == "tcg":
        return Accelerator(name="tcg", reason="setup.accelerator", ns_per_iteration=None)
    said = host.probe("kvm")["kvm"]
    each = said["ns_per_iteration"]
    if said["usable"]:
        return Accelerator(
            name="kvm", reason=f"{each:.1f} ns for an instruction pair", ns_per_iteration=each
        )
    if asked == "kvm":
        raise LabProblem(
            f"KVM is not usable here: {said['reason']}",
            hint='setup.accelerator = "tcg" emulates, and says so in every row',
        )
    return Accelerator(name="tcg", reason=said["reason"] or "", ns_per_iteration=each)


GUEST_NIC = "eth0"
"""The only NIC, and net.ifnames=0 keeps the kernel's name for it."""
SPOOL = "/run/samples.jsonl"
SPOOL_ON_DISK = "/var/tmp/nodrop-samples.jsonl"
"""Rows on the disk, which is a snapshot, take none of the guest's memory."""
MEMORY_BYTES = 1 << 30
VCPUS = 2
BOOT_TIMEOUT_S = 60.0
BOOT_TRIES = 2
LEAST_MEMORY_BYTES = 128 << 20
"""Memory below which the kernel has no room to unpack itself."""


class VmOptions(Options):
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """`auto` takes KVM if a probe finds it as fast as the CPU, else emulation (tcg)."""
    txqueuelen: Annotated[int, Field(ge=1)] | None = None
    """Packets that the macvtap holds until QEMU fetches them. Without it, the kernel's 500."""
    ring_size: Literal[256, 512, 1024] = 1024
    """Slots of the guest NIC's receive ring."""


class Vm(Setup):
    """A Setup (setups/api.py)."""

    name = "vm"
    places: Sequence[Place] = AHEAD_OF_A_GUEST
    brings_cpus = True

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self.options = check(VmOptions, options or {}, table="setup", base=base)

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        found = [*memory_problems(limits), *cpu_problems(limits)]
        if qemu.version() is None:
            found.append(f"program {qemu.PROGRAM} is missing; install the package qemu-system-x86")
        if not is_root_of_the_host():
            found.append("setup vm opens a macvtap by its device numbers; run as root of the host")
        if bits is not None and bits.kind != "image":
            found.append(
                f"setup vm runs an image, not the host's {bits.path}: `nodrop image list` "
                "names those that sut.image can be, `nodrop image build NAME` makes one"
            )
        if limits.memory_bytes is not None and limits.memory_bytes < LEAST_MEMORY_BYTES:
            found.append(
                f"limits.memory: a guest does not boot with {limits.memory_bytes >> 20} MiB; "
                f"give it {LEAST_MEMORY_BYTES >> 20} MiB or more"
            )
        if limits.swappiness is not None:
            found.append(
                "limits.swappiness: a guest has memory of its own and no swap; leave it out"
            )
        return [*found, *guest_assets.problems(bits)]

    def cpus(self, limits: Limits) -> AbstractSet[int]:
        return set(range(_vcpus(limits)))

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[VmEnv]:
        accelerator, machine = self._machine(link, bits, limits)
        env = VmEnv(link, machine, accelerator, self.options, bits, work=work, journal=journal)
        with ExitStack() as stack:
            stack.callback(env.close)
            env.wire()
            yield env

    def _machine(
        self, link: Link, bits: Bits | None, limits: Limits
    ) -> tuple[Accelerator, Machine]:
        accelerator = choose_accelerator(link.rx.host, self.options.accelerator)
        return accelerator, Machine(
            assets=make_assets(bits),
            accelerator=accelerator.name,
            vcpus=_vcpus(limits),
            memory_bytes=limits.memory_bytes or MEMORY_BYTES,
            cpus=limits.cpus,
            ring_size=self.options.ring_size,
        )


def _vcpus(limits: Limits) -> int:
    """CPUs that the experiment names are counted; of those that a generator leaves, the usual."""
    if limits.cpus is None:
        return VCPUS
    named = len(parse_cpus(limits.cpus))
    return min(VCPUS, named) if limits.cpus_left else named


class VmEnv(GuestEnv):
    """An Env (setups/api.py). The machine boots at the launch: that is part of the activation."""

    setup = Vm.name
    _guest_nic = GUEST_NIC

    def __init__(
        self,
        link: Link,
        machine: Machine,
        accelerator: Accelerator,
        options: VmOptions,
        bits: Bits | None,
        *,
        work: Path,
        journal: UndoJournal,
    ) -> None:
        self._port, self.near = link.rx, link.rx.host
        self.capture_interfaces: Sequence[str] = (GUEST_NIC,)
        self.bits = bits
        self._spool = SPOOL if bits is None else SPOOL_ON_DISK
        self._machine = machine
        self._accelerator = accelerator
        self._options = options
        self._work = work.absolute()
        self._journal = journal
        self._running: RunningMachine | None = None
        self._boots = 0

    @property
    def nic(self) -> LabPort:
        return self._port

    @property
    def host(self) -> Host:
        return self._booted().host

    def wire(self) -> None:
        here: Any = self._port.host
        self._tap = add_macvtap(self._port, here, queue=self._options.txqueuelen)

    def _phases_s(self, running: RunningMachine) -> Mapping[str, float]:
        return {"boot": running.boot_s}

    def _read(self) -> PlaceReading:
        assert self._tap is not None
        nic, tap = self._port.name, self._tap.name
        here = self._tap.host.probe("counters", ports=[nic, tap])["counters"]
        return {
            "nic": here,
            "macvtap": here,
            "guest": guest_reading(self.host, GUEST_NIC),
        }

    def facts(self) -> Json:
        machine = self._machine
        kernel = machine.assets.kernel
        found: Json = {
            "setup": self.setup,
            **self._accelerator.facts(),
            "qemu": qemu.version(),
            "machine": "q35",
            "vcpus": machine.vcpus,
            "memory_bytes": machine.memory_bytes,
            "cpus": machine.cpus,
            "txqueuelen": self._options.txqueuelen,
            "ring_size": machine.ring_size,
            "kernel": {
                "package": kernel.package,
                "version": kernel.version,
                "sha256": kernel.image_sha256,
            },
            "initramfs": machine.assets.initramfs.name,
            "boots": self._boots,
        }
        if self._running is not None:
            found["boot_s"] = self._running.boot_s
            found["clock_bound_ns"] = self._running.host.clock_bound_ns
        return found | (self._process.used if self._process is not None else {})

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _booted(self) -> RunningMachine:
        """A guest that does not come up is tried once more: one boot in forty was seen to hang."""
        while self._running is None:
            self._boots += 1
            try:
                self._running = qemu.boot(
                    self._machine,
                    self._tap,
                    on=self._port.host,
                    work=self._work,
                    journal=self._journal,
                    timeout_s=BOOT_TIMEOUT_S,
                )
            except NotBooted as problem:
                if self._boots == BOOT_TRIES:
                    raise TrialFailed(
                        f"{problem.message} (tried {BOOT_TRIES} times, up to {BOOT_TIMEOUT_S:g} s)",
                        hint=f"the whole console is in {self._work / 'console.log'}",
                    ) from problem
        return self._running
