"""The capture files of the known answers: small, the same everywhere, written when needed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
ETHERNET = bytes.fromhex("020000000002 020000000001 0800")
ETHERNET_BYTES = len(ETHERNET)
UDP, MORE_FRAGMENTS = 17, 0x2000

Timed = tuple[float, bytes]
"""Seconds from the first packet on, and the frame."""


def write(path: Path, frames: Iterable[Timed]) -> Path:
    with path.open("wb") as file:
        file.write(PCAP_HEADER)
        for at_s, frame in frames:
            s, us = divmod(round(at_s * 1e6), 1_000_000)
            file.write(struct.pack("<IIII", s, us, len(frame), len(frame)) + frame)
    return path


def steady(packets: int) -> Iterator[Timed]:
    """UDP of 64 flows in turn; to be sent at a constant rate."""
    for n in range(packets):
        yield n * 1e-4, datagram(n % 64, 128)


def every(nth: int, packets: int, *, frame_bytes: int) -> Iterator[Timed]:
    """Small frames, of which each n-th is a larger one."""
    for n in range(packets):
        yield n * 1e-4, datagram(n % 64, frame_bytes if n % nth == nth - 1 else 128)


def bursts(count: int, *, packets: int, gap_s: float, apart_s: float) -> Iterator[Timed]:
    """So many packets `apart_s` from each other, then quiet, again and again."""
    for burst in range(count):
        for n in range(packets):
            yield burst * gap_s + n * apart_s, datagram(n % 64, 128)


def fragments(*, unfinished: int, whole: int) -> Iterator[Timed]:
    """First fragments whose datagrams never become whole, then datagrams in two fragments each."""
    first, rest = bytes(1400), bytes(200)
    told = chain(
        ((_fragment(n, first, at=0, more=True),) for n in range(unfinished)),
        (
            (_fragment(n, first, at=0, more=True), _fragment(n, rest, at=1400, more=False))
            for n in range(unfinished, unfinished + whole)
        ),
    )
    for n, frame in enumerate(chain.from_iterable(told)):
        yield n * 1e-4, frame


def datagram(flow: int, frame_bytes: int) -> bytes:
    room = frame_bytes - ETHERNET_BYTES - 20 - 8
    payload = struct.pack(">HHHH", 10_000 + flow, 9, 8 + room, 0) + bytes(room)
    return ETHERNET + _ipv4(flow, payload, number=0, offset=0) + payload


def _fragment(number: int, payload: bytes, *, at: int, more: bool) -> bytes:
    offset = at // 8 | (MORE_FRAGMENTS if more else 0)
    return ETHERNET + _ipv4(number % 64, payload, number=number, offset=offset) + payload


def _ipv4(host: int, payload: bytes, *, number: int, offset: int) -> bytes:
    source, target = bytes((10, 1, 0, 1 + host % 250)), bytes((10, 2, 0, 1))
    length = 20 + len(payload)
    head = struct.pack(">BBHHHBBH", 0x45, 0, length, number & 0xFFFF, offset, 64, UDP, 0)
    total = sum(struct.unpack(">10H", head + source + target))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + source + target
