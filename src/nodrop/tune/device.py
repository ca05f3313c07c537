"""The kernel as a device that is tuned: files of /proc and /sys, and structs of ethtool by ioctl.

By ioctl and not by the program ethtool, which shows values that it cannot set, and ends with 0 when
nothing was set. What GET said is written back by SET, bit for bit.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from nodrop.config.options import unknown_key
from nodrop.errors import BadInput
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.labs import driver

# A knob is a setting of a port or of the host: its place, and the form of its value.
#
# Its state has one or more pieces: a file of /proc or /sys, or a struct of ethtool. Each piece is
# read and written as text (`Raw`), so a saved value is put back without being interpreted.

Raw: TypeAlias = str
"""Content of a piece: a file's text, a struct in hex, a feature as two bits."""
HOST = ""
"""Port of a piece that belongs to the host."""


@dataclass(frozen=True, slots=True)
class Piece:
    port: str
    name: str
    """A struct's name, or a file: below /sys/class/net/PORT, or irq/N/…; of the host below /."""

    def __str__(self) -> str:
        return f"{self.port} {self.name}".strip()


class Device(Protocol):
    """Ports and host that are tuned: the kernel, or a simulated one."""

    def pieces(self, port: str) -> Sequence[Piece]:
        """Pieces of a port that can be read, in the order in which they must be written. BadInput
        if there is no such port."""
        ...

    def host_pieces(self, pattern: str) -> Sequence[Piece]:
        """Files of the host that match, below /."""
        ...

    def driver(self, port: str) -> str: ...

    def read(self, piece: Piece) -> Raw | None:
        """None if there is no such thing."""
        ...

    def write(self, piece: Piece, raw: Raw) -> None:
        """OSError if it is refused."""
        ...

    def flaps(self, port: str) -> int | None:
        """How often the link went up or down since the port is there."""
        ...


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
    """By hand, with {port} and {value}; without one, a file is written."""
    link: str = ""
    """Key of a systemd .link file that sets it at boot."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Value → as the command has it, if not the same."""

    def pieces(self, device: Device, port: str) -> list[Piece]:
        if self.of_host:
            return list(device.host_pieces(self.at))
        return [one for one in device.pieces(port) if re.fullmatch(self.at, one.name)]

    def shown(self, raws: Iterable[Raw]) -> str:
        """Each value once, in order: several queues mostly have the same."""
        return ", ".join(dict.fromkeys(self.show(raw) for raw in raws))

    def by_hand(self, port: str, value: str) -> str:
        return self.command.format(port=port, value=self.words.get(value, value))


RANKS = (
    r"channels",
    r"rings",
    r"mtu",
    r"tx_queue_len",
    r"feature/.*",
    r"private",
    r"rss",
    r"(tcp|udp|sctp|ip)[46]",
    r"coalesce",
    r"pause",
    r"threaded|gro_flush_timeout|napi_defer_hard_irqs",
    r"queues/.*",
    r"irq/.*",
)
"""Pieces of a port, in the order of writing: what is further down is undone by what is further up
(a change of the channels resets the hash table, forgets affinities, and makes queues anew)."""


def rank(piece: Piece) -> int:
    """Place in that order; the host's own come last."""
    if piece.port == HOST:
        return len(RANKS)
    return next((n for n, one in enumerate(RANKS) if re.fullmatch(one, piece.name)), len(RANKS))


STRUCTS = {
    "channels": (driver.GCHANNELS, 0x3D, 36),
    "rings": (driver.GRINGPARAM, 0x11, 36),
    "private": (0x27, 0x28, 8),
    "coalesce": (driver.GCOALESCE, 0x0F, 92),
    "pause": (driver.GPAUSEPARAM, 0x13, 16),
}
"""Name → commands GET and SET, bytes."""
SFEATURES = 0x3B
FEATURE, RSS = "feature/", driver.RSS
FILES = ("mtu", "tx_queue_len", "threaded", "gro_flush_timeout", "napi_defer_hard_irqs")
QUEUE_FILES = ("rps_cpus", "rps_flow_cnt", "xps_cpus")
FILE = re.compile(
    r"(mtu|tx_queue_len|threaded|gro_flush_timeout|napi_defer_hard_irqs"
    r"|queues/[rt]x-\d+/(rps_cpus|rps_flow_cnt|xps_cpus)|irq/\d+/smp_affinity)"
)
HOST_FILE = re.compile(
    r"proc/sys/(net/core|kernel|vm)/[a-z_]+|proc/irq/default_smp_affinity"
    r"|sys/devices/system/cpu/cpu\d+/cpufreq/[a-z_]+|sys/devices/virtual/workqueue/cpumask"
    r"|sys/kernel/mm/transparent_hugepage/enabled"
)
PORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
CHOSEN = re.compile(r"\[(\w+)\]")
"""The chosen word of a file that shows all choices: `always [madvise] never`."""
CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_SLAVE = 0x20000, 0x40000000, 0x4000, 1 << 19
OWN_SPACE = Path("/proc/thread-self/ns/net")
PORTS = Path("/sys/class/net")


class LiveDevice:
    """A `Device`: the network namespace of this thread."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str, *, needs: str = "") -> str | None:
        del needs
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

    def pieces(self, port: str) -> Sequence[Piece]:
        must_be_there(port)
        named = [Piece(port, name) for name in self._piece_names(port)]
        return sorted((one for one in named if self.read(one) is not None), key=rank)

    def _piece_names(self, port: str) -> Iterator[str]:
        yield from (*STRUCTS, RSS, *driver.FLOWS, *FILES)
        yield from (f"{FEATURE}{name}" for name in changeable_features(port))
        folder = self.root / "sys/class/net" / port
        for queue in sorted((folder / "queues").glob("*")):
            yield from (f"queues/{queue.name}/{name}" for name in QUEUE_FILES)
        for number in sorted(driver.line_numbers(self.root, f"sys/class/net/{port}/device")):
            yield f"irq/{number}/smp_affinity"

    def host_pieces(self, pattern: str) -> Sequence[Piece]:
        found = sorted(str(one.relative_to(self.root)) for one in self.root.glob(pattern))
        return [Piece(HOST, name) for name in found if self.text(name) is not None]

    def driver(self, port: str) -> str:
        return driver.driver_name(port) or "unknown driver"

    def flaps(self, port: str) -> int | None:
        said = (self.text(f"sys/class/net/{port}/carrier_changes") or "").strip()
        return int(said) if said.isdecimal() else None

    def read(self, piece: Piece) -> Raw | None:
        port, name = piece.port, piece.name
        if port == HOST or FILE.fullmatch(name):
            said = self.text(path_of(piece))
            chosen = CHOSEN.search(said) if said else None
            return chosen[1] if chosen else said.strip() if said is not None else None
        if name.startswith(FEATURE):
            return feature(port, name.removeprefix(FEATURE))
        if name in STRUCTS:
            get, _, size = STRUCTS[name]
            said_bytes = driver.ioctl(port, struct.pack("=I", get), more=size - 4)
        else:
            said_bytes = driver.read(port, name)
        return None if said_bytes is None else said_bytes.hex()

    def write(self, piece: Piece, raw: Raw) -> None:
        port, name = piece.port, piece.name
        if port == HOST or FILE.fullmatch(name):
            (self.root / path_of(piece)).write_text(raw)
        elif name.startswith(FEATURE):
            set_feature(port, name.removeprefix(FEATURE), raw)
        else:
            saved = bytes.fromhex(raw)
            if name in STRUCTS:
                put = STRUCTS[name][1]
            else:
                put = driver.SRSSH if name == RSS else driver.SRXFH
            driver.ask(port, struct.pack("=I", put) + saved[4:])


def may_be_set(piece: Piece) -> bool:
    """A journal that names anything else is not obeyed."""
    if piece.port == HOST:
        return HOST_FILE.fullmatch(piece.name) is not None
    known = (*STRUCTS, RSS, *driver.FLOWS)
    name = piece.name
    feature = re.fullmatch(FEATURE + r"[A-Za-z0-9_.-]+", name)
    return PORT_NAME.fullmatch(piece.port) is not None and (
        name in known or feature is not None or FILE.fullmatch(name) is not None
    )


def may_be_written(piece: Piece, raw: Raw) -> bool:
    """A structure has the bytes that the kernel gave; a file has a text."""
    if piece.name in STRUCTS:
        return re.fullmatch(rf"[0-9a-f]{{{2 * STRUCTS[piece.name][2]}}}", raw) is not None
    if piece.name == RSS or piece.name in driver.FLOWS:
        return re.fullmatch(r"([0-9a-f]{2}){8,}", raw) is not None
    return "\0" not in raw


def path_of(piece: Piece) -> str:
    """Below /."""
    if piece.port == HOST:
        return piece.name
    if piece.name.startswith("irq/"):
        return f"proc/{piece.name}"
    return f"sys/class/net/{piece.port}/{piece.name}"


def names() -> list[str]:
    """Ports of this network namespace."""
    return [name for _, name in socket.if_nameindex()]


def some_port() -> str:
    """A port to name in a command: the first that is up (the loopback says `unknown`)."""
    states = sorted(Path("/sys/class/net").glob("*/operstate"))
    return next((one.parent.name for one in states if one.read_text() == "up\n"), "NAME")


def must_be_there(port: str) -> None:
    there = names()
    if port not in there:
        near = unknown_key(port, there)
        near = near if "did you mean" in near else ""
        raise BadInput(f"--port {port}: no such port here; there are: {', '.join(there)}{near}")


# --- features -------------------------------------------------------------------------------------


def changeable_features(port: str) -> list[str]:
    names, said = _features(port)
    if said is None:
        return []
    bits = {name: _bits(said, number) for number, name in enumerate(names) if name}
    return [name for name, (available, _, _, never) in bits.items() if available and not never]


def feature(port: str, name: str) -> Raw | None:
    """Two bits: requested, active. A feature that is refused stays requested."""
    names, said = _features(port)
    if said is None or name not in names:
        return None
    _, requested, active, _ = _bits(said, names.index(name))
    return f"{requested}{active}"


def set_feature(port: str, name: str, raw: Raw) -> None:
    """Asks for what was requested."""
    names, _ = _features(port)
    number, places = names.index(name), (len(names) + 31) // 32
    words = [0] * 2 * places
    words[number // 32 * 2] = 1 << number % 32
    words[number // 32 * 2 + 1] = int(raw[0]) << number % 32
    driver.ask(port, struct.pack(f"=II{len(words)}I", SFEATURES, places, *words))


def _features(port: str) -> tuple[list[str], bytes | None]:
    names = driver.feature_names(port)
    places = (len(names) + 31) // 32
    head = struct.pack("=II", driver.GFEATURES, places)
    return names, driver.ioctl(port, head, more=16 * places) if names else None


def _bits(said: bytes, number: int) -> tuple[int, ...]:
    words = struct.unpack_from("=4I", said, 8 + 16 * (number // 32))
    return tuple(word >> number % 32 & 1 for word in words)


# --- namespaces -----------------------------------------------------------------------------------


def own_space() -> int:
    return OWN_SPACE.stat().st_ino


def address(port: str) -> str:
    with suppress(OSError):
        return (PORTS / port / "address").read_text().strip()
    return ""


def enter(space: int) -> bool:
    """This process goes to the network namespace with that inode. False if it is gone."""
    if own_space() != space:
        found = _find(space)
        if found is None:
            return False
        there = os.open(found, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _must(_libc().setns(there, CLONE_NEWNET))
        finally:
            os.close(there)
    see_own_ports()
    return True


def see_own_ports() -> None:
    """/sys shows the ports of the namespace in which it was mounted: if that is another one than
    ours (`nsenter -n`), a /sys of our own is mounted, which no other process sees."""
    shown = {}
    for one in PORTS.glob("*/ifindex"):
        with suppress(OSError, ValueError):
            shown[one.parent.name] = int(one.read_text())
    if shown == {name: index for index, name in socket.if_nameindex()}:
        return
    libc = _libc()
    _must(libc.unshare(CLONE_NEWNS))
    _must(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))
    _must(libc.mount(b"nodrop", b"/sys", b"sysfs", 0, None))


def _find(space: int) -> Path | None:
    places = [*Path("/run/netns").glob("*"), *Path("/proc").glob("[0-9]*/ns/net")]
    for one in places:
        with suppress(OSError):
            if one.stat().st_ino == space:
                return one
    return None


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
    for one in json.loads(addresses_of() or "[]"):
        name = one["ifname"]
        if not {each.get("local") for each in one.get("addr_info", [])} & addresses:
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
