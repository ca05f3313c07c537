"""A domain of the user's own, through libvirt: it runs before and goes on afterwards.

It gets a NIC on a macvtap of the receiving port for as long as a trial lasts. What happens inside
goes through its channel `nodrop.ctl`, on which `nodrop-node guest --serve` has to listen in it.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.config.options import Options, check
from nodrop.errors import LabProblem
from nodrop.ledger.hops import Place
from nodrop.testbed.hosts.api import Host, HostProcess, Json, LabPort, Link, UndoAction, UndoJournal
from nodrop.testbed.hosts.guest import NODE, GuestHost, GuestLine
from nodrop.testbed.hosts.processes import listener_of, usage
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.netns import add_macvtap_here
from nodrop.testbed.setups.api import Limits, PlaceReading, Setup
from nodrop.testbed.setups.guest_process import (
    AHEAD_OF_A_GUEST,
    WORK_INSIDE,
    GuestEnv,
    guest_reading,
)
from nodrop.testbed.setups.libvirt_domain import CHANNEL, Domain, domain_problems
from nodrop.testbed.setups.qemu import RunningMachine

HELLO_TIMEOUT_S = 60.0
"""A service that is started again, or a guest that boots again after the trial before."""
NIC_TIMEOUT_S = 20.0
POLL_S = 0.1
SPOOL = "/var/tmp/nodrop-samples.jsonl"


class LibvirtOptions(Options):
    domain: Annotated[str, Field(min_length=1)]
    """Name of a running domain."""
    uri: str = "qemu:///system"
    txqueuelen: Annotated[int, Field(ge=1)] | None = None
    """Packets that the macvtap holds until QEMU fetches them. Without it, the kernel's 500."""
    ring_size: Literal[256, 512, 1024] = 1024
    """Slots of the guest NIC's receive ring."""


class Libvirt(Setup):
    """A Setup (setups/api.py)."""

    name = "libvirt"
    places: Sequence[Place] = AHEAD_OF_A_GUEST
    alone = "one domain is one place for the SUT"
    heeds_cpus = False

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self.options = check(LibvirtOptions, options or {}, table="setup", base=base)

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        del bits  # the domain has its own; each trial proves whether they are the same
        found = [
            f"limits.{name}: the domain's own definition says what it has; leave it out"
            for name, value in (
                ("cpus", limits.cpus),
                ("memory", limits.memory_bytes),
                ("swappiness", limits.swappiness),
            )
            if value is not None
        ]
        if not is_root_of_the_host():
            found.append("setup libvirt gives a macvtap to a domain: run as root of the host")
        return [*found, *domain_problems(self.options.uri, self.options.domain)]

    def cpus(self, limits: Limits) -> AbstractSet[int]:
        del limits
        try:
            domain = Domain(self.options.uri, self.options.domain)
        except (ImportError, LabProblem):
            return frozenset()  # `problems` says why
        try:
            return frozenset(range(domain.vcpus))
        finally:
            domain.close()

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[LibvirtEnv]:
        del limits  # refused by `problems`
        with ExitStack() as undo:
            yield LibvirtEnv(link.rx, self.options, bits, work=work, journal=journal, undo=undo)


class DomainProcess:
    """A Child (hosts/api.py) that is not ours to end: the QEMU of the domain."""

    def __init__(self, process: HostProcess) -> None:
        self.pid = process.pid
        self._process = process
        self._start_ticks = self._started()
        if self._start_ticks is None:
            raise LabProblem(f"the domain's QEMU, process {self.pid}, has ended")

    def poll(self) -> int | None:
        return None if self._started() == self._start_ticks else -1

    def _started(self) -> int | None:
        """The process's start in ticks, as its host's node sees it; None if no such process
        lives."""
        seen = usage([self._process]).get(self._process)
        return None if seen is None else seen["start_ticks"]

    def wait(self, timeout: float | None = None) -> int:
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(["qemu"], timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        raise LabProblem(f"the domain is the user's: signal {sig} is not sent to its QEMU")

    def kill(self) -> None:
        """Does nothing: the domain is the user's, and goes on."""


class LibvirtEnv(GuestEnv):
    """An Env (setups/api.py)."""

    _spool = SPOOL
    _tap: LabPort

    def __init__(
        self,
        port: LabPort,
        options: LibvirtOptions,
        bits: Bits | None,
        *,
        work: Path,
        journal: UndoJournal,
        undo: ExitStack,
    ) -> None:
        self.nic = self._port = port
        self.near = port.host
        self.bits = bits
        self._options = options
        self._work = work.absolute()
        self._domain = Domain(options.uri, options.domain)
        undo.callback(self._domain.close)
        here, self._tap = add_macvtap_here(port, journal, queue=options.txqueuelen)
        undo.callback(_remove, self._tap)
        undo.callback(here.close)
        self._running = self._spoken_to(undo)
        self.host: Host = self._running.host
        self._clean()
        undo.callback(self._leave)
        self._guest_nic = self._attached(journal, undo)
        self.capture_interfaces: Sequence[str] = (self._guest_nic,)

    def _booted(self) -> RunningMachine:
        return self._running

    def _read(self) -> PlaceReading:
        return {
            "nic": self.nic.counters(),
            "macvtap": self._tap.counters(),
            "guest": guest_reading(self.host, self._guest_nic),
        }

    def facts(self) -> Json:
        found: Json = {
            "setup": Libvirt.name,
            "domain": self._domain.name,
            "uri": self._domain.uri,
            "accelerator": self._domain.accelerator,
            "vcpus": self._domain.vcpus,
            "memory_bytes": self._domain.memory_bytes,
            "guest_nic": self._guest_nic,
            "txqueuelen": self._options.txqueuelen,
            "ring_size": self._options.ring_size,
            "node_inside": self._running.host.hello.get("version"),
            "kernel_inside": self._running.host.hello.get("kernel"),
            "clock_bound_ns": self._running.host.clock_bound_ns,
        }
        return found | (self._process.used if self._process is not None else {})

    def _spoken_to(self, undo: ExitStack) -> RunningMachine:
        """The node in the domain waits in its first word until someone listens."""
        path = self._domain.channel
        if path is None:
            raise LabProblem(f"domain {self._domain.name} has no channel {CHANNEL}")
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.connect(str(path))
        except OSError as error:
            stream.close()
            raise LabProblem(
                f"{path}: {error.strerror or error}", hint="is the domain running?"
            ) from None
        # The domain's QEMU, whatever folder its libvirtd keeps PID files in.
        qemu = DomainProcess(HostProcess(self.near, listener_of(stream)))
        line = GuestLine(stream, pid=qemu.pid)
        undo.callback(line.close)
        try:
            hello = line.said(HELLO_TIMEOUT_S)
        except TimeoutError:
            hello = None
        if hello is None:
            raise LabProblem(
                f"in domain {self._domain.name} nothing answers on {CHANNEL} within "
                f"{HELLO_TIMEOUT_S:g} s",
                hint="run `nodrop-node guest --serve` in it as a service that is started again",
            )
        console = self._work / "console.log"
        console.touch()  # the domain's own is its owner's
        host = GuestHost(line, hello)
        host.learn_clock()
        return RunningMachine(qemu=qemu, line=line, host=host, console=console, boot_s=0.0)

    def _attached(self, journal: UndoJournal, undo: ExitStack) -> str:
        """The name that the guest gives the NIC; ready to receive, and silent."""
        tap = self._tap.name
        mac = self._tap.host.run(["cat", f"/sys/class/net/{tap}/address"]).stdout.strip()
        journal.push(
            what=f"NIC of domain {self._domain.name} on {tap}",
            action=UndoAction.DETACH_NIC,
            arguments=[self._domain.uri, self._domain.name, tap],
        )
        undo.callback(self._domain.detach, tap)
        self._domain.attach(tap, mac, self._options.ring_size)
        name = self._named(mac)
        quiet = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        if self.host.run(["test", "-e", quiet], check=False).returncode == 0:
            self._running.host.write_file(quiet, b"1")
        mtu = str(self._tap.counters()["links"][self._tap.name]["mtu"])
        # Offloads too: frames that its driver has put together are counted as one from there on.
        self.host.run([NODE, "guest", "--receive-on", name, "--mtu", mtu])
        return name

    def _named(self, mac: str) -> str:
        for _ in looks(NIC_TIMEOUT_S, every_s=POLL_S):
            for name in self.host.run(["ls", "/sys/class/net"]).stdout.split():
                said = self.host.run(["cat", f"/sys/class/net/{name}/address"], check=False)
                if said.stdout.strip() == mac:
                    return name
        raise LabProblem(
            f"the guest of domain {self._domain.name} does not see its new NIC {mac} within "
            f"{NIC_TIMEOUT_S:g} s",
            hint="its machine needs a free slot for PCI hot-plug (q35: one more pcie-root-port), "
            "and its kernel virtio_net",
        )

    def _clean(self) -> None:
        """Removes what an earlier trial has left in the guest."""
        self.host.run(["rm", "-rf", WORK_INSIDE, SPOOL])
        self.host.run(["mkdir", "-p", WORK_INSIDE])

    def _leave(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.stop(timeout_s=1.0)
        with suppress(LabProblem):
            self._clean()


def _remove(tap: LabPort) -> None:
    tap.host.run(["ip", "link", "del", tap.name], check=False)
