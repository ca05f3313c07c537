"""One virtual machine: QEMU on a tap of the receiving port, spoken to through its serial line."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import (
    Child,
    Host,
    Json,
    LabPort,
    SpawnRequest,
    Surroundings,
    UndoJournal,
)
from nodrop.testbed.hosts.guest import GuestHost, GuestLine, deadline_left
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.rights import QEMU
from nodrop.testbed.images.guest_assets import GuestAssets
from nodrop.untrusted.folder import read_end

PROGRAM = "qemu-system-x86_64"
KILL_TIMEOUT_S = 10.0
CONSOLE_SHOWN_LINES = 15
CONSOLE_SHOWN_BYTES = 64 << 10
TB_SIZE_MIB = 256
"""Room for translated code; the default, a quarter of the guest's memory or more, swells with
-m."""


class NotBooted(LabProblem):
    """The guest never said hello; carries the end of its console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The resources that a guest is given."""

    assets: GuestAssets
    accelerator: str
    """kvm or tcg."""
    vcpus: int
    memory_bytes: int
    cpus: str | None
    """Host CPUs that QEMU may use."""
    ring_size: int
    """Size of the virtio NIC's receive ring."""
    devices: tuple[str, ...] = ()
    """More arguments, for a NIC that is not on a tap."""


@dataclass(slots=True, kw_only=True)
class RunningMachine:
    qemu: Child
    line: GuestLine
    host: GuestHost
    console: Path
    boot_s: float

    def close(self) -> None:
        """Ends QEMU at once: its disk is a snapshot, so nothing is lost."""
        self.qemu.kill()
        self.qemu.wait(KILL_TIMEOUT_S)
        self.line.close()


def version() -> str | None:
    if shutil.which(PROGRAM) is None:
        return None
    said = run_command([PROGRAM, "--version"], where="qemu", timeout_s=10, check=False).stdout
    found = re.search(r"version (\S+)", said)
    return found[1] if found else None


def boot(
    machine: Machine,
    tap: LabPort | None,
    *,
    on: Host,
    work: Path,
    journal: UndoJournal,
    timeout_s: float,
) -> RunningMachine:
    """Starts QEMU and waits for the guest's hello. NotBooted if it does not come."""
    console = work / "console.log"
    began = time.monotonic()
    with ExitStack() as opened:
        ours, theirs = socket.socketpair()
        opened.callback(theirs.close)
        failed = opened.enter_context(ExitStack())
        failed.callback(ours.close)
        mtu = 1500
        nic: list[str] = []
        fds = [theirs.fileno()]
        if tap is not None:
            handle = opened.enter_context(tap_opened(tap))
            fds.append(handle)
            seen = tap.host.probe("counters", ports=[tap.name])["counters"]["links"][tap.name]
            mtu = seen["mtu"]
            nic = _nic(handle, _mac(tap), machine.ring_size)
        qemu = on.spawn(
            SpawnRequest(
                argv=command(machine, line_fd=theirs.fileno(), nic=nic, console=console, mtu=mtu),
                stdout=work / "qemu.log",
                stderr=work / "qemu.log",
                cpus=machine.cpus,
                # A passed-through device takes more of root, at each reset of the guest.
                caps=None if machine.devices else QEMU,
                around=Surroundings(fds=fds),
            )
        )
        failed.pop_all()
    line = GuestLine(ours, pid=qemu.pid)
    running = RunningMachine(
        qemu=qemu, line=line, host=GuestHost(line, {}), console=console, boot_s=0
    )
    try:
        journal.process(qemu.pid, "virtual machine")
        running.host.hello = _hello(running, work, began + timeout_s)
        running.boot_s = time.monotonic() - began
        running.host.set_clock()
    except BaseException:
        running.close()
        raise
    return running


_RIGHTS = ("-sandbox", "on,obsolete=deny,spawn=deny")
"""A guest that breaks out of its devices finds a user without rights that can start no program. Not
`elevateprivileges`: it forbids to become that user, too, which is done once all files are open."""


def command(
    machine: Machine, *, line_fd: int, nic: Sequence[str], console: Path, mtu: int
) -> list[str]:
    """The command with only what is named: no default devices, no configuration files, no
    display."""
    tcg = f"tcg,thread=multi,tb-size={TB_SIZE_MIB}"
    assets = machine.assets
    disk: list[str] = []
    init = f"-- guest --mtu {mtu}"
    if assets.disk is not None:
        init += " --root /dev/vda"
        disk = [
            *("-drive", f"file={_escaped(assets.disk)},format=raw,if=none,id=disk0,snapshot=on"),
            *("-device", "virtio-blk-pci,drive=disk0"),
        ]
    return [
        PROGRAM,
        *("-name", "nodrop,debug-threads=on"),
        *("-machine", "q35"),
        *("-accel", tcg if machine.accelerator == "tcg" else machine.accelerator),
        *("-cpu", "max" if machine.accelerator == "tcg" else "host"),
        *("-smp", str(machine.vcpus)),
        *("-m", f"{machine.memory_bytes >> 20}M"),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *_RIGHTS,
        # A passed-through device is set up again at each reset, which takes rights of root.
        *(() if machine.devices else ("-runas", "nobody")),
        *("-chardev", f"file,id=console,path={_escaped(console)}"),
        *("-serial", "chardev:console"),
        *("-kernel", str(assets.kernel.image)),
        *("-initrd", str(assets.initramfs)),
        # IPv6 off: not one packet of the guest's own may get into the books.
        *(
            "-append",
            f"console=ttyS0 quiet panic=-1 ipv6.disable=1 net.ifnames=0 rdinit=/init {init}",
        ),
        *disk,
        *nic,
        *machine.devices,
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=line,fd={line_fd}"),
        *("-device", "virtserialport,chardev=line,name=nodrop.ctl"),
    ]


def _nic(tap_fd: int, mac: str, ring_size: int) -> list[str]:
    return [
        *("-netdev", f"tap,id=nic0,fd={tap_fd}"),
        *("-device", f"virtio-net-pci,netdev=nic0,mac={mac},rx_queue_size={ring_size}"),
    ]


def _escaped(path: Path) -> str:
    """A path as QEMU's list of options has it: a comma is written twice."""
    return str(path).replace(",", ",,")


@contextmanager
def tap_opened(port: LabPort) -> Iterator[int]:
    """A macvtap's queue as an open file.

    /dev/tapN is named by an index that repeats in other namespaces, so the device's own numbers are
    asked for, in its namespace, and a node of our own is made for as long as opening takes.
    """
    index = port.host.probe("counters", ports=[port.name])["counters"]["links"][port.name]["index"]
    numbers = port.host.run(["cat", f"/sys/class/net/{port.name}/tap{index}/dev"]).stdout
    major, minor = map(int, numbers.strip().split(":"))
    node = Path(f"/dev/nodrop-tap-{os.getpid()}-{index}")
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        handle = os.open(node, os.O_RDWR)
    except PermissionError as error:
        raise LabProblem(
            f"cannot open the tap of {port.name}: {error.strerror}",
            hint="only root of the host may make device nodes",
        ) from error
    finally:
        node.unlink(missing_ok=True)
    try:
        yield handle
    finally:
        os.close(handle)


def _mac(port: LabPort) -> str:
    return port.host.run(["cat", f"/sys/class/net/{port.name}/address"]).stdout.strip()


def _hello(running: RunningMachine, work: Path, deadline: float) -> Json:
    try:
        said = running.line.said(deadline_left(deadline))
    except TimeoutError:
        raise NotBooted(f"the guest did not boot in time{last_words(running.console)}") from None
    if said is None:
        try:
            status = running.qemu.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        log = read_end(work / "qemu.log", bytes_from_end=500).decode(errors="replace").strip()
        raise NotBooted(
            f"the virtual machine ended before it spoke: {running.line.why} "
            f"(QEMU's status {status})"
            f"{f': {log}' if log else ''}{last_words(running.console)}"
        )
    return said


def last_words(console: Path) -> str:
    """The end of the guest's console, for an error message."""
    text = read_end(console, bytes_from_end=CONSOLE_SHOWN_BYTES).decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-CONSOLE_SHOWN_LINES:]
    return "; its console: " + (" | ".join(lines) if lines else "empty")
