"""Knobs of a port or of the host, the network namespaces of ports, and the port of our own
session."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.labs.port_settings import HOST, Device, Piece, Raw

Edit: TypeAlias = Callable[[Raw, str], Raw]
"""The raw value that stands there, and a value → the raw value to be written. ValueError in words
for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    id: str
    title: str
    at: str
    """Pattern of the names of its pieces (a regular expression; of the host a glob)."""
    of_host: bool = False
    show: Callable[[Raw], str]
    edit: Edit
    values: str
    """Values that it takes, in words."""
    why: str
    """The knob's effect for a sensor."""
    wrong_when: str = ""
    source: str
    flaps: bool = False
    """Setting it takes the link down and up on drivers of hardware."""
    command: str = ""
    """Command that sets it by hand, with {port} and {value}; without one, a file is written."""
    link: str = ""
    """Key of a systemd .link file that sets it at boot."""

    def pieces(self, device: Device, port: str) -> list[Piece]:
        if self.of_host:
            return list(device.host_pieces(self.at))
        return [piece for piece in device.pieces(port) if self.has(piece)]

    def has(self, piece: Piece) -> bool:
        if piece.port == HOST:
            return self.of_host and fnmatchcase(piece.name, self.at)
        return not self.of_host and re.fullmatch(self.at, piece.name) is not None

    def shown(self, raws: Iterable[Raw]) -> str:
        """Each value once, in order: several queues mostly have the same."""
        return ", ".join(dict.fromkeys(self.show(raw) for raw in raws))

    def by_hand(self, port: str, value: str) -> str:
        return self.command.format(port=port, value=value)


CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_SLAVE = 0x20000, 0x40000000, 0x4000, 1 << 19
SIOCGIFHWADDR = 0x8927
OWN_SPACE = Path("/proc/thread-self/ns/net")
PORTS = Path("/sys/class/net")


def some_port() -> str:
    """A port to name in a command: the first that is up (the loopback says `unknown`)."""
    states = sorted(Path("/sys/class/net").glob("*/operstate"))
    return next((state.parent.name for state in states if state.read_text() == "up\n"), "NAME")


# --- namespaces -----------------------------------------------------------------------------------


def own_space() -> int:
    return OWN_SPACE.stat().st_ino


def hardware_address(port: str) -> str:
    """Address in this thread's namespace, whatever /sys shows; empty: there is no such port."""
    asked = struct.pack("16s24x", port.encode())
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return fcntl.ioctl(one, SIOCGIFHWADDR, asked)[18:24].hex(":")
    return ""


def spaces() -> Mapping[int, Path]:
    """Network namespaces that have a name, or a process: inode → file."""
    found: dict[int, Path] = {}
    for one in [*Path("/run/netns").glob("*"), *Path("/proc").glob("[0-9]*/ns/net")]:
        with suppress(OSError):
            found.setdefault(one.stat().st_ino, one)
    return found


def enter(space: int) -> bool:
    """This thread goes to the network namespace with that inode. False if it is gone."""
    if own_space() == space:
        see_own_ports()
        return True
    if (found := spaces().get(space)) is None:
        return False
    go(found)
    _mount_own_sys()
    return True


def go(space: Path) -> None:
    """This thread goes to a network namespace, and /sys still shows another's ports."""
    there = os.open(space, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _must(_libc().setns(there, CLONE_NEWNET))
    finally:
        os.close(there)


def see_own_ports() -> None:
    """/sys shows the ports of the namespace in which it was mounted: if that is another one than
    ours (`nsenter -n`), a /sys of our own is mounted, which no other process sees."""
    shown = {}
    for one in PORTS.glob("*/ifindex"):
        with suppress(OSError, ValueError):
            shown[one.parent.name] = int(one.read_text())
    if shown != {name: index for index, name in socket.if_nameindex()}:
        _mount_own_sys()


def _mount_own_sys() -> None:
    libc = _libc()
    _must(libc.unshare(CLONE_NEWNS))
    _must(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))
    try:
        _must(libc.mount(b"nodrop", b"/sys", b"sysfs", 0, None))
    except OSError as error:
        if error.errno != errno.EBUSY:  # it shows this namespace already
            raise


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# --- our own session ------------------------------------------------------------------------------


def session_ports(
    root: Path = Path("/"),
    *,
    environment: Mapping[str, str] = os.environ,
    addresses_of: Callable[[], str] = lambda: _addresses_shown(),
) -> frozenset[str]:
    """Ports that the TCP connection of an ancestor of ours runs over (sshd), with what lies below
    them: the ports of a bond, a bridge, a VLAN."""
    addresses = set(_session_addresses(root, environment))
    if not addresses:
        return frozenset()
    found: set[str] = set()
    for load in json.loads(addresses_of() or "[]"):
        name = load["ifname"]
        if not {each.get("local") for each in load.get("addr_info", [])} & addresses:
            continue
        found |= {name, *_below(root / "sys/class/net" / name)}
    return frozenset(found)


def _session_addresses(root: Path, environment: Mapping[str, str]) -> Iterator[str]:
    said = environment.get("SSH_CONNECTION", "").split()
    if len(said) == 4:
        yield said[2]
    inodes: set[str] = set()
    pid = os.getppid()
    while pid > 1:
        folder = root / f"proc/{pid}"
        with suppress(OSError):
            for one in (folder / "fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(one.readlink()))
        try:
            pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError):
            for row in (root / "proc/self/net" / table).read_text().splitlines()[1:]:
                words = row.split()
                if words[3] == "01" and f"socket:[{words[9]}]" in inodes:
                    raw = bytes.fromhex(words[1].partition(":")[0])
                    swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                    yield socket.inet_ntop(family, swapped).removeprefix("::ffff:")


def _addresses_shown() -> str:
    return run_command(["ip", "-j", "address"], where="tune", timeout_s=10.0).stdout


def _below(folder: Path) -> Iterator[str]:
    for one in folder.glob("lower_*"):
        name = one.name.removeprefix("lower_")
        yield name
        yield from _below(folder.parent / name)
