"""Settings of a port or of the host: files of /proc and /sys, and structs of ethtool by ioctl.

By ioctl and not by the program ethtool, which shows values that it cannot set, and ends with 0 when
nothing was set. What GET said is written back by SET, bit for bit.
"""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nodrop.config.options import unknown_key
from nodrop.errors import BadInput

Raw: TypeAlias = str
"""Content of a piece: a file's text, a struct in hex, a feature as two bits. Read and written as it
is, so that a saved one is put back without being interpreted."""
HOST = ""
"""Port of a piece that belongs to the host."""


@dataclass(frozen=True, slots=True)
class Piece:
    port: str
    name: str
    """A struct's name, or a file: below /sys/class/net/PORT, or irq/N/…; of the host below /."""

    def __str__(self) -> str:
        return f"{self.port} {self.name}".strip()


STRUCTS = {
    "channels": (0x3C, 0x3D, 36),
    "rings": (0x10, 0x11, 36),
    "private": (0x27, 0x28, 8),
    "coalesce": (0x0E, 0x0F, 92),
    "pause": (0x12, 0x13, 16),
}
"""Name → commands GET and SET, bytes."""
RSS = "rss"
GRSSH, SRSSH = 0x46, 0x47
"""struct ethtool_rxfh: `HEAD`, the table of u32, the key."""
HEAD = struct.Struct("=IIII8s")
"""Command, context (0: the port's own), entries of the table, bytes of the key, the function."""
GRXFH, SRXFH, GRXCLSRLCNT = 0x29, 0x2A, 0x2E
FIELDS = struct.Struct("=IIQ")
"""Command, kind of flow, fields that are hashed: the front of struct ethtool_rxnfc."""
RXNFC_BYTES, RULES_AT = 192, 184
FLOWS = {
    "tcp4": 1, "udp4": 2, "sctp4": 3, "tcp6": 5, "udp6": 6, "sctp6": 7, "ip4": 16, "ip6": 17
}  # fmt: skip
"""Kind of flow → the kernel's number. All but the last two are in the words of `ethtool -n PORT
rx-flow-hash`."""
FEATURE = "feature/"
FEATURES = 4
"""Set of strings: ETH_SS_FEATURES."""
GSTRINGS, GSSET_INFO, GFEATURES, SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
GDRVINFO, NAME_BYTES = 0x03, 32
FILES = ("mtu", "tx_queue_len", "threaded", "gro_flush_timeout", "napi_defer_hard_irqs")
QUEUE_FILES = ("rps_cpus", "rps_flow_cnt", "xps_cpus")
FILE = re.compile(
    rf"({'|'.join(FILES)}|queues/[rt]x-\d+/({'|'.join(QUEUE_FILES)})|irq/\d+/smp_affinity)"
)
HOST_FILE = re.compile(
    r"proc/sys/(net/core|kernel|vm)/[a-z_]+|proc/irq/default_smp_affinity"
    r"|sys/devices/system/cpu/cpu\d+/cpufreq/[a-z_]+|sys/devices/virtual/workqueue/cpumask"
    r"|sys/kernel/mm/transparent_hugepage/enabled"
)
PORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
CHOSEN = re.compile(r"\[(\w+)\]")
"""The chosen word of a file that shows all choices: `always [madvise] never`."""
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
PASSES = 4
"""Features pull each other along: what the first pass cannot set, a later one can."""


def rank(piece: Piece) -> int:
    """Place in that order; the host's own come last."""
    if piece.port == HOST:
        return len(RANKS)
    return next((n for n, one in enumerate(RANKS) if re.fullmatch(one, piece.name)), len(RANKS))


class Device:
    """Ports and host that are tuned: those in the network namespace of this thread."""

    def pieces(self, port: str) -> Sequence[Piece]:
        """Pieces of a port that can be read, in the order in which they must be written. BadInput
        if there is no such port."""
        must_be_there(port)
        named = [Piece(port, name) for name in (*of_driver(port), *FILES, *_of_queues(port))]
        return sorted((one for one in named if self.read(one) is not None), key=rank)

    def host_pieces(self, pattern: str) -> Sequence[Piece]:
        """Files of the host that match, below /."""
        found = sorted(str(one.relative_to("/")) for one in Path("/").glob(pattern))
        return [Piece(HOST, name) for name in found if _text(name) is not None]

    def driver(self, port: str) -> str:
        said = ioctl(port, struct.pack("=I", GDRVINFO), more=192)
        return (_word(said[4:36]) if said else "") or "unknown driver"

    def flaps(self, port: str) -> int | None:
        """How often the link went up or down since the port is there."""
        said = (_text(f"sys/class/net/{port}/carrier_changes") or "").strip()
        return int(said) if said.isdecimal() else None

    def read(self, piece: Piece) -> Raw | None:
        """None if there is no such thing."""
        port, name = piece.port, piece.name
        if port == HOST or FILE.fullmatch(name):
            said = _text(path_of(piece))
            chosen = CHOSEN.search(said) if said else None
            return chosen[1] if chosen else said.strip() if said is not None else None
        if name.startswith(FEATURE):
            bits = _features(port).get(name.removeprefix(FEATURE))
            return None if bits is None else f"{bits[1]}{bits[2]}"
        answer = _struct(port, name)
        return None if answer is None else answer.hex()

    def write(self, piece: Piece, raw: Raw) -> None:
        """OSError if it is refused."""
        port, name = piece.port, piece.name
        if port == HOST or FILE.fullmatch(name):
            (Path("/") / path_of(piece)).write_text(raw)
        elif name.startswith(FEATURE):
            _set_feature(port, name.removeprefix(FEATURE), raw)
        else:
            put = STRUCTS[name][1] if name in STRUCTS else SRSSH if name == RSS else SRXFH
            ask(port, struct.pack("=I", put) + bytes.fromhex(raw)[4:])


def settle(device: Device, goal: Mapping[Piece, Raw]) -> dict[Piece, str]:
    """Writes what differs, until nothing does; what is refused, in the kernel's words.

    The last set goes first (a veth without GRO has no NAPI, so `threaded` cannot be set any more),
    then the other way round, for what has been changed along.
    """
    refusals: dict[Piece, str] = {}
    for number in range(PASSES):
        differs = False
        for one in sorted(goal, key=rank, reverse=number % 2 == 0):
            now = device.read(one)
            if now is None or now == goal[one]:
                continue
            differs = True
            try:
                device.write(one, goal[one])
            except OSError as error:
                refusals[one] = error.strerror or str(error)
        if not differs:
            break
    return refusals


def may_be_set(piece: Piece) -> bool:
    """A journal that names anything else is not obeyed."""
    if piece.port == HOST:
        return HOST_FILE.fullmatch(piece.name) is not None
    known = (*STRUCTS, RSS, *FLOWS)
    name = piece.name
    feature = re.fullmatch(FEATURE + r"[A-Za-z0-9_.-]+", name)
    return PORT_NAME.fullmatch(piece.port) is not None and (
        name in known or feature is not None or FILE.fullmatch(name) is not None
    )


def may_be_written(piece: Piece, raw: Raw) -> bool:
    """A structure has the bytes that the kernel gave; a file has a text."""
    if piece.name in STRUCTS:
        return re.fullmatch(rf"[0-9a-f]{{{2 * STRUCTS[piece.name][2]}}}", raw) is not None
    if piece.name == RSS or piece.name in FLOWS:
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


def must_be_there(port: str) -> None:
    there = names()
    if port not in there:
        near = unknown_key(port, there)
        near = near if "did you mean" in near else ""
        raise BadInput(f"--port {port}: no such port here; there are: {', '.join(there)}{near}")


def _text(path: str) -> str | None:
    try:
        return (Path("/") / path).read_text(errors="replace")
    except OSError:
        return None


def _of_queues(port: str) -> Iterator[str]:
    """Files of its queues and of its interrupt lines; those of a virtio port are one level up."""
    folder = Path("/sys/class/net") / port
    for queue in sorted((folder / "queues").glob("*")):
        yield from (f"queues/{queue.name}/{name}" for name in QUEUE_FILES)
    lines = [*folder.glob("device/msi_irqs/*")] or [*folder.glob("device/../msi_irqs/*")]
    for number in sorted({int(line.name) for line in lines}):
        yield f"irq/{number}/smp_affinity"


# --- what the driver says -------------------------------------------------------------------------


def of_driver(port: str) -> Iterator[str]:
    """Names of the pieces that a driver keeps; some have only a part."""
    yield from (*STRUCTS, RSS, *FLOWS)
    for name, (available, _, _, never) in _features(port).items():
        if available and not never:
            yield f"{FEATURE}{name}"


def flow_rules(port: str) -> int:
    """How many were set (`ethtool -n PORT`); 0 if the driver has no such thing."""
    said = ioctl(port, struct.pack("=I", GRXCLSRLCNT), more=RXNFC_BYTES - 4)
    return 0 if said is None else int(struct.unpack_from("=I", said, RULES_AT)[0])


def _struct(port: str, name: str) -> bytes | None:
    if name in STRUCTS:
        get, _, size = STRUCTS[name]
        return ioctl(port, struct.pack("=I", get), more=size - 4)
    if name in FLOWS:
        return ioctl(port, FIELDS.pack(GRXFH, FLOWS[name], 0))
    sizes = ioctl(port, HEAD.pack(GRSSH, 0, 0, 0, b""))
    if sizes is None:
        return None
    _, _, entries, key_bytes, _ = HEAD.unpack(sizes)
    asked = HEAD.pack(GRSSH, 0, entries, key_bytes, b"")
    return ioctl(port, asked, more=4 * entries + key_bytes)


def _features(port: str) -> Mapping[str, tuple[int, ...]]:
    """Name → available, requested, active, never to be changed. One that is refused stays
    requested."""
    names = _feature_names(port)
    places = (len(names) + 31) // 32
    head = struct.pack("=II", GFEATURES, places)
    said = ioctl(port, head, more=16 * places) if names else None
    if said is None:
        return {}
    found = {}
    for number, name in enumerate(names):
        words = struct.unpack_from("=4I", said, 8 + 16 * (number // 32))
        found[name] = tuple(word >> number % 32 & 1 for word in words)
    return {name: bits for name, bits in found.items() if name}


def _set_feature(port: str, name: str, raw: Raw) -> None:
    """Asks for what was requested."""
    names = _feature_names(port)
    number, places = names.index(name), (len(names) + 31) // 32
    words = [0] * 2 * places
    words[number // 32 * 2] = 1 << number % 32
    words[number // 32 * 2 + 1] = int(raw[0]) << number % 32
    ask(port, struct.pack(f"=II{len(words)}I", SFEATURES, places, *words))


def _feature_names(port: str) -> list[str]:
    said = ioctl(port, struct.pack("=IIQ", GSSET_INFO, 0, 1 << FEATURES), more=4)
    if said is None or not struct.unpack_from("=Q", said, 8)[0]:
        return []
    count = struct.unpack_from("=I", said, 16)[0]
    named = ioctl(port, struct.pack("=III", GSTRINGS, FEATURES, count), more=NAME_BYTES * count)
    if named is None:
        return []
    places = range(12, 12 + NAME_BYTES * count, NAME_BYTES)
    return [_word(named[place : place + NAME_BYTES]) for place in places]


def _word(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


SIOCETHTOOL = 0x8946


def ioctl(port: str, asked: bytes, *, more: int = 0) -> bytes | None:
    """The answer, which may be longer; None if the driver has none."""
    try:
        return ask(port, asked, more=more)
    except OSError:
        return None


def ask(port: str, asked: bytes, *, more: int = 0) -> bytes:
    """OSError if the driver refuses."""
    length = len(asked) + more
    answer = ctypes.create_string_buffer(asked, max(length, RXNFC_BYTES))
    request = struct.pack("16sP16x", port.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    return answer.raw[:length]
