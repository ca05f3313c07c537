"""Network namespaces of ports, and the ports that a thread sees."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_SLAVE = 0x20000, 0x40000000, 0x4000, 1 << 19
SIOCGIFHWADDR = 0x8927
OWN_SPACE = Path("/proc/thread-self/ns/net")
PORTS = Path("/sys/class/net")


def some_port() -> str:
    """A port to name in a command: the first that is up (the loopback says `unknown`)."""
    states = sorted(Path("/sys/class/net").glob("*/operstate"))
    return next((state.parent.name for state in states if state.read_text() == "up\n"), "NAME")


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
