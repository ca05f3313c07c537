"""A receive ring that holds all frames of a test until they are read.

A socket's own buffer is too small for them, and only real root may make it larger.
"""

from __future__ import annotations

import mmap
import select
import socket
import struct
from dataclasses import dataclass

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 263, 5, 6, 10
TPACKET_V2, ETH_P_8021Q = 1, 0x8100
BLOCK_BYTES = 1 << 20
FREE, USED, HAS_TAG, HAS_TPID = 0, 1, 1 << 4, 1 << 6
HEADER = struct.Struct("=3I2H2I2H4x")
"""struct tpacket2_hdr; a struct sockaddr_ll follows it."""
ADDRESS = struct.Struct("=2xH4x2xB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    ethertype: int
    kind: int
    """PACKET_HOST, PACKET_OUTGOING, …"""
    captured: bytes


class Ring:
    def __init__(self, receiver: socket.socket, *, slots: int, slot_bytes: int) -> None:
        self._receiver, self._slots, self._slot_bytes = receiver, slots, slot_bytes
        size = slots * slot_bytes
        receiver.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        request = struct.pack("=4I", BLOCK_BYTES, size // BLOCK_BYTES, slot_bytes, slots)
        receiver.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self._memory = mmap.mmap(receiver.fileno(), size)
        self._next = 0

    def read(self, wait_s: float) -> Frame | None:
        """The next frame; None if none comes."""
        at = self._next % self._slots * self._slot_bytes
        if not self._status(at) & USED:
            select.select([self._receiver], [], [], wait_s)
            if not self._status(at) & USED:
                return None
        status, _, captured, begin, *_, tag, tpid = HEADER.unpack_from(self._memory, at)
        ethertype, kind = ADDRESS.unpack_from(self._memory, at + HEADER.size)
        frame = self._memory[at + begin : at + begin + captured]
        if status & HAS_TAG:  # the kernel takes the outer VLAN tag out of the frame
            tpid = tpid if status & HAS_TPID else ETH_P_8021Q
            frame = frame[:12] + struct.pack("!2H", tpid, tag) + frame[12:]
        struct.pack_into("=I", self._memory, at, FREE)
        self._next += 1
        return Frame(ethertype=socket.ntohs(ethertype), kind=kind, captured=frame)

    def dropped(self) -> int:
        """Frames that found no slot, since this was last asked."""
        counted = self._receiver.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        return int(struct.unpack("=2I", counted)[1])

    def _status(self, at: int) -> int:
        return int(struct.unpack_from("=I", self._memory, at)[0])
