"""Arrival times by the receiving kernel's clock: a TPACKET_V3 ring that nobody reads until the
sender is done, so that the receiver costs the sender's CPU nothing but the copy of a few bytes."""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from dataclasses import dataclass
from typing import Self

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 263, 5, 6, 10
TPACKET_V3 = 2
SO_ATTACH_FILTER = 26
ETH_P_ALL = 3
BLOCK_BYTES = 1 << 17
BLOCKS = 512
KEPT_BYTES = 16
BLOCK_TIMEOUT_MS = 60
"""A block that is not full is handed over then, the last one, too: the ring lasts 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    times_ns: list[int]
    dropped: int


class Receiver:
    """Keeps when each frame arrived on an interface of the caller's network namespace."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        # A classic BPF program of one instruction: keep the first bytes of every frame.
        keep = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, KEPT_BYTES))
        program = struct.pack("HL", 1, ctypes.addressof(keep))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        frames = BLOCK_BYTES // 2048 * BLOCKS
        ring = struct.pack("7I", BLOCK_BYTES, BLOCKS, 2048, frames, BLOCK_TIMEOUT_MS, 0, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._socket.bind((interface, ETH_P_ALL))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ring.close()
        self._socket.close()

    def arrivals(self) -> Arrivals:
        """All so far, in order; call it once, a block's timeout after the last frame."""
        times: list[int] = []
        for block in range(BLOCKS):
            begin = block * BLOCK_BYTES
            status, packets, first = struct.unpack_from("3I", self._ring, begin + 8)
            if not status & 1:
                break
            at = begin + first
            for _ in range(packets):
                following, seconds, ns = struct.unpack_from("3I", self._ring, at)
                times.append(seconds * 1_000_000_000 + ns)
                at += following
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12)
        return Arrivals(times_ns=times, dropped=struct.unpack("3I", statistics)[1])
