"""Replays over a veth pair into the sink, and what is known of the trace they send."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.api import Json, Link

DEADLINE_S = 60.0
FLOWS = 8_561
"""Outermost 5-tuples of realmix.pcap, without VLAN tags."""
UNMAPPED_FLOWS = 15
"""Flows of realmix.pcap without a mappable address: 0.0.0.0 and :: to all, ::1 to itself."""
MERGED = 1_423
"""Packets that vanish if the kernel puts realmix.pcap's IPv4 fragments together."""


def small_trace(path: Path, lengths: list[int]) -> Path:
    """UDP from 10.0.0.1 to 10.0.0.2, one packet per length, 1 ms apart."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    with path.open("wb") as file:
        file.write(head)
        for number, length in enumerate(lengths):
            ip = struct.pack(
                "!BBHHHBBH4s4s", 0x45, 0, length - 14, 0, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\0\2"
            )
            udp = struct.pack("!HHHH", 1000 + number, 53, length - 34, 0)
            frame = b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + udp
            file.write(struct.pack("<IIII", 0, number * 1000, length, length))
            file.write(frame.ljust(length, b"\0"))
    return path


def replayed(link: Link, sink: Json, replay: Json) -> tuple[Json, Json]:
    """Result of the sender, result of the sink."""
    receiver = link.rx.host.job({"job": "sink", "interface": link.rx.name, **sink})
    try:
        receiver.start()
        sender = link.tx.host.job({"job": "replay", "interface": link.tx.name, **replay})
        try:
            sender.start()
            sent = sender.result(timeout_s=DEADLINE_S)
        finally:
            sender.close()
        receiver.stop()
        return sent, receiver.result(timeout_s=DEADLINE_S)
    finally:
        receiver.close()


def down_under_way(link: Link, port: str, replay: Json) -> Json:
    """A port goes down while a replay sends, which ends it by name; what it said when ready."""
    sender = link.tx.host.job({"job": "replay", "interface": link.tx.name, **replay})
    try:
        ready = sender.ready
        sender.start()
        link.tx.host.run(["ip", "link", "set", port, "down"])
        with pytest.raises(NodeRefused, match="Network is down"):
            sender.result(timeout_s=DEADLINE_S)
        return ready
    finally:
        sender.close()


def picked(result: Json, like: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in like}


def assert_all_sent(sent: Json, packets: int) -> None:
    expected = {
        "intended_packets": packets,
        "sent_packets": packets,
        "unsent_packets": 0,
        "refused_packets": {},
    }
    assert picked(sent, expected) == expected


TOP_SPEED = [{"top_speed": True, "backend": backend} for backend in ("af_packet", "af_xdp")]
