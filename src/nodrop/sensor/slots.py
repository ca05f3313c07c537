"""Slots of a TPACKET_V2 ring, each for one frame. The kernel cuts a longer one, and no counter has
it."""

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
