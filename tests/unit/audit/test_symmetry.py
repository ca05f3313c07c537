"""Flows whose two directions meet, or not: their packets, the filter that chooses them, groups."""

from __future__ import annotations

import random
import socket
import struct
from ipaddress import ip_address

import pytest

from nodrop.audit.symmetry import Meeting, flow_of, mask_for, sampling, watch


def frame(
    one: str, other: str, ports: tuple[int, int], *, protocol: int = 6, fragment: int = 0
) -> bytes:
    source, target = (ip_address(each).packed for each in (one, other))
    behind = struct.pack(">HH", *ports) + bytes(40)
    if len(source) == 16:
        head = b"\x60" + bytes(5) + bytes([protocol, 64]) + source + target
        return bytes(12) + b"\x86\xdd" + head + behind
    head = b"\x46" + bytes(5) + struct.pack(">H", fragment) + bytes([64, protocol, 0, 0])
    return bytes(12) + b"\x08\x00" + head + source + target + bytes(4) + behind


def passes(code: bytes, packet: bytes) -> int:
    """The kernel's machine for classic BPF, as far as it is used."""
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    a = x = at = 0
    kept = [0] * 16
    while True:
        what, yes, no, k = steps[at]
        at += 1
        match what:
            case 0x20 | 0x28 | 0x30:
                a = int.from_bytes(packet[k : k + {0x20: 4, 0x28: 2, 0x30: 1}[what]], "big")
            case 0x48:
                a = int.from_bytes(packet[x + k : x + k + 2], "big")
            case 0xB1:
                x = 4 * (packet[k] & 15)
            case 0x02:
                kept[k] = a
            case 0x61:
                x = kept[k]
            case 0xAC:
                a ^= x
            case 0x54:
                a &= k
            case 0x74:
                a >>= k
            case 0x15:
                at += yes if a == k else no
            case 0x45:
                at += yes if a & k else no
            case 0x05:
                at += k
            case 0x06:
                return k
            case _:
                raise AssertionError(hex(what))


@pytest.mark.parametrize(("version", "mask"), [(4, 0), (4, 3), (6, 1), (6, 7)])
def test_a_part_of_the_flows_is_chosen_and_both_directions_of_each(version: int, mask: int) -> None:
    rng = random.Random(version + mask)
    code, bits, chosen = sampling(mask), {4: 32, 6: 128}[version], 0
    for _ in range(800):
        # Small numbers would be IPv4 addresses.
        one, other = (str(ip_address(rng.getrandbits(bits) | 1 << bits - 1)) for _ in range(2))
        ports = rng.randrange(65536), rng.randrange(65536)
        protocol = rng.choice((6, 17))
        there = passes(code, frame(one, other, ports, protocol=protocol))
        assert there == passes(code, frame(other, one, ports[::-1], protocol=protocol))
        chosen += there > 0
    # 6 standard deviations
    share = 1 / (mask + 1)
    assert abs(chosen - 800 * share) <= 6 * (800 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("odd", [{"protocol": 1}, {"fragment": 0x2000}, {"fragment": 7}])
def test_what_is_no_flow_is_left_out_by_both(odd: dict[str, int]) -> None:
    other = frame("10.0.0.1", "10.0.0.2", (1, 2), **odd)
    assert flow_of(other) is None and passes(sampling(0), other) == 0


def test_flows_that_meet_and_flows_that_do_not() -> None:
    """Over sockets, as from a fanout group of two; what came before the watch is thrown away."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    meeting = Meeting(kind=5, members=2)
    pairs[1][0].send(frame("10.0.0.9", "10.0.0.8", (7, 7)))
    ticks = iter([0.0, 0.0])

    def clock() -> float:
        """The second look is before the sockets are read, the third after."""
        now = next(ticks, None)
        if now is None:
            return 9.0
        if meeting.dealt().seen == 0 and not sent:
            sent.append(True)
            for member, one, other, ports in (
                (0, "10.0.0.1", "10.0.0.2", (5, 80)),
                (0, "10.0.0.2", "10.0.0.1", (80, 5)),
                (0, "10.0.0.1", "10.0.0.2", (6, 80)),
                (1, "10.0.0.2", "10.0.0.1", (80, 6)),
                (1, "fd00::1", "fd00::2", (6, 80)),
            ):
                pairs[member][0].send(frame(one, other, ports))
        return now

    sent: list[bool] = []
    watch([(meeting, [theirs for _, theirs in pairs])], 1.0, clock)
    for pair in pairs:
        for one in pair:
            one.close()
    found = meeting.dealt()
    assert (found.seen, found.both_ways, found.together) == (3, 2, 1)
    assert found.words == "tcp4: 1 of 2"


@pytest.mark.parametrize(
    ("rate", "mask"), [(0, 0), (2000, 0), (2001, 1), (1e6, 511), (1e12, 65535)]
)
def test_the_part_that_is_chosen_follows_the_rate(rate: float, mask: int) -> None:
    assert mask_for(rate) == mask
