"""Room in a capture ring. A slot of TPACKET_V2 holds one frame: the kernel cuts a longer one, and
no counter has it. A block of TPACKET_V3 holds any number."""

from __future__ import annotations

FRAME_HEAD = 66
"""Bytes before a packet in a slot: headers, and alignment."""
ETHERNET = 14
HEADERS_BYTES = 512
"""A program other than Suricata with shorter slots was asked for headers alone (tcpdump -s 96)."""


def slot_needed(
    *, version: int | None, slot_bytes: int | None, mtu: int | None, suricata: bool
) -> int | None:
    """Bytes that the port's longest frame needs; None: it is not cut, or not against its program's
    will, or the ring or the port is not visible."""
    if version != 2 or not slot_bytes or not mtu:
        return None
    needed = mtu + ETHERNET + FRAME_HEAD
    headers = not suricata and slot_bytes < HEADERS_BYTES
    return needed if slot_bytes < needed and not headers else None


def bridged_ms(version: int | None, blocks: int | None, retire_ms: int | None) -> int | None:
    """Time that the reader of a ring of blocks may stand still at any rate, however low: a block is
    given to it every `retire_ms`, however empty. None: it has none, or they are not visible."""
    return blocks * retire_ms if version == 3 and blocks and retire_ms else None
