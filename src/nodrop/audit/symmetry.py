"""Do both directions of real flows meet in one queue, and in one thread (`nodrop audit --watch`)?

For some seconds fanout groups of our own stand beside those of the capture programs and deal
packets as those do: by queue, or by CPU. A filter lets only some flows through, chosen by a value
that is the same in both directions, so that it costs little however busy the port is.
"""

from __future__ import annotations

import ctypes
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

SOL_PACKET = 263
PACKET_FANOUT, PACKET_IGNORE_OUTGOING = 18, 23
SO_ATTACH_FILTER = 26
UNIQUE_ID = 0x2000
"""PACKET_FANOUT_FLAG_UNIQUEID: the kernel chooses a number that no group has."""
EVERY_PROTOCOL = 3
KEPT_BYTES = 128
MOST_FLOWS = 50_000
PACKETS_PER_S = 2000
"""So many are looked at, about."""
TCP, UDP = 6, 17
IPV4, IPV6 = 0x0800, 0x86DD
FRAGMENT = 0x3FFF
"""More to come, or an offset."""
End = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """Flows of a protocol."""

    seen: int
    """In one direction or both."""
    flows: int
    """In both."""
    together: int
    """All of whose packets came to one member of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Flows that came to one group of ours."""

    kind: int
    """PACKET_FANOUT_*: 2 by CPU, 5 by queue."""
    members: int
    met: Mapping[str, Met]
    """By protocol: `tcp4`, `udp6` …"""

    @property
    def both_ways(self) -> int:
        return sum(one.flows for one in self.met.values())

    @property
    def together(self) -> int:
        return sum(one.together for one in self.met.values())

    @property
    def seen(self) -> int:
        return sum(one.seen for one in self.met.values())

    @property
    def words(self) -> str:
        return "; ".join(
            f"{name}: {one.together} of {one.flows}"
            for name, one in sorted(self.met.items())
            if one.flows
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    protocol: str
    ends: tuple[End, End]
    """In an order that does not depend on the direction."""
    forward: bool


def flow_of(frame: bytes) -> Flow | None:
    """None if it is no TCP or UDP, or a fragment, whose queue is chosen without ports."""
    if len(frame) < 34:
        return None
    kind = int.from_bytes(frame[12:14], "big")
    if kind == IPV4:
        protocol, addresses, size, version = frame[23], 26, 4, "4"
        ports = 14 + 4 * (frame[14] & 15)
        if int.from_bytes(frame[20:22], "big") & FRAGMENT:
            return None
    elif kind == IPV6:
        protocol, addresses, size, version, ports = frame[20], 22, 16, "6", 54
    else:
        return None
    if protocol not in (TCP, UDP) or len(frame) < ports + 4:
        return None
    source, target = struct.unpack_from(">HH", frame, ports)
    middle = addresses + size
    one, other = (frame[addresses:middle], source), (frame[middle : middle + size], target)
    return Flow(
        protocol=("tcp" if protocol == TCP else "udp") + version,
        ends=(one, other) if one <= other else (other, one),
        forward=one <= other,
    )


@dataclass(slots=True)
class Meeting:
    """Packets in, flows that meet out."""

    kind: int
    members: int
    _seen: dict[tuple[str, End, End], tuple[set[int], set[int]]] = field(default_factory=dict)

    def add(self, member: int, frame: bytes) -> None:
        flow = flow_of(frame)
        if flow is None:
            return
        key = (flow.protocol, *flow.ends)
        if key in self._seen or len(self._seen) < MOST_FLOWS:
            self._seen.setdefault(key, (set(), set()))[flow.forward].add(member)

    def dealt(self) -> Dealt:
        met: dict[str, tuple[int, int, int]] = {}
        for (protocol, *_), (back, forth) in self._seen.items():
            seen, flows, together = met.get(protocol, (0, 0, 0))
            both = bool(back and forth)
            met[protocol] = seen + 1, flows + both, together + (both and len(back | forth) == 1)
        return Dealt(
            kind=self.kind,
            members=self.members,
            met={
                name: Met(seen=seen, flows=flows, together=together)
                for name, (seen, flows, together) in met.items()
            },
        )


def watch(
    groups: Sequence[tuple[Meeting, Sequence[socket.socket]]],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fills the meetings from the sockets of their groups; what came before is thrown away."""
    with selectors.DefaultSelector() as selector:
        for meeting, members in groups:
            for number, one in enumerate(members):
                one.setblocking(False)
                _drained(one, lambda _: None)
                selector.register(
                    one, selectors.EVENT_READ, lambda frame, m=meeting, n=number: m.add(n, frame)
                )
        until = clock() + seconds
        while (left := until - clock()) > 0:
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                _drained(key.fileobj, key.data)


def _drained(one: socket.socket, into: Callable[[bytes], None]) -> None:
    try:
        while True:
            into(one.recv(KEPT_BYTES))
    except BlockingIOError:
        return


def group(port: str, kind: int, members: int, mask: int) -> list[socket.socket]:
    """A fanout group of the network namespace in which it is called."""
    made: list[socket.socket] = []
    joined = kind << 16 | UNIQUE_ID << 16
    try:
        for _ in range(members):
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            made.append(one)
            code = sampling(mask)
            held = ctypes.create_string_buffer(code)
            head = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)
            one.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            one.bind((port, EVERY_PROTOCOL))
            one.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=I", joined))
            number = one.getsockopt(SOL_PACKET, PACKET_FANOUT) & 0xFFFF
            joined = kind << 16 | number
    except BaseException:
        for one in made:
            one.close()
        raise
    return made


def mask_for(packets_per_s: float) -> int:
    """One flow in `mask + 1`."""
    mask = 0
    while packets_per_s / (mask + 1) > PACKETS_PER_S and mask < 0xFFFF:
        mask = mask * 2 + 1
    return mask


LOAD, LOAD_HALF, LOAD_BYTE, LOAD_HALF_AT = 0x20, 0x28, 0x30, 0x48
HEADER_TO_X, STORE, X_FROM, XOR_X = 0xB1, 0x02, 0x61, 0xAC
AND, RIGHT, EQUAL, ANY_BIT, RETURN = 0x54, 0x74, 0x15, 0x45, 0x06
LEAVE, TEST = -1, -2
"""Jumps to the end that refuses, and to the test of the mixed value."""


def sampling(mask: int) -> bytes:
    """A classic BPF filter: TCP and UDP of flows whose addresses and ports, mixed, are 0 under the
    mask; the first bytes of those."""
    four: list[tuple[int, int, int, int]] = [
        (LOAD_BYTE, 1, 0, 23), (EQUAL, 1, 0, TCP), (EQUAL, 0, LEAVE, UDP),
        (LOAD_HALF, 0, 0, 20), (ANY_BIT, LEAVE, 0, FRAGMENT),
        (LOAD, 0, 0, 26), *_mixed(30), (HEADER_TO_X, 0, 0, 14),
        (STORE, 0, 0, 0), (LOAD_HALF_AT, 0, 0, 14), (STORE, 0, 0, 1),
        (LOAD_HALF_AT, 0, 0, 16), *_with(1), *_with(0), (0x05, 0, 0, TEST),
    ]  # fmt: skip
    six: list[tuple[int, int, int, int]] = [
        (LOAD_BYTE, 0, 0, 20), (EQUAL, 1, 0, TCP), (EQUAL, 0, LEAVE, UDP), (LOAD, 0, 0, 22),
    ]  # fmt: skip
    for word in range(26, 54, 4):
        six += _mixed(word)
    six += [(STORE, 0, 0, 0), (LOAD_HALF, 0, 0, 54), (STORE, 0, 0, 1), (LOAD_HALF, 0, 0, 56)]
    six += [*_with(1), *_with(0)]
    start = [(LOAD_HALF, 0, 0, 12), (EQUAL, 1, 0, IPV4), (EQUAL, len(four), LEAVE, IPV6)]
    test = [(STORE, 0, 0, 0), (RIGHT, 0, 0, 16), *_with(0), (AND, 0, 0, mask)]
    test += [(EQUAL, 0, 1, 0), (RETURN, 0, 0, KEPT_BYTES), (RETURN, 0, 0, 0)]
    code = [*start, *four, *six, *test]
    begins, end = len(code) - len(test), len(code) - 1
    placed = []
    for place, (what, yes, no, value) in enumerate(code):
        jumps = [end - place - 1 if one == LEAVE else one for one in (yes, no)]
        placed.append(
            struct.pack("=HBBI", what, *jumps, begins - place - 1 if value == TEST else value)
        )
    return b"".join(placed)


def _mixed(word: int) -> list[tuple[int, int, int, int]]:
    return [(STORE, 0, 0, 0), (LOAD, 0, 0, word), *_with(0)]


def _with(slot: int) -> list[tuple[int, int, int, int]]:
    return [(X_FROM, 0, 0, slot), (XOR_X, 0, 0, 0)]
