"""Sends marked frames from one far port to another, and counts what arrives.

Their EtherTypes are for experiments (IEEE 802): no stack takes them, no router passes them on.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from nodrop.hosts.seam import Host, SinkJob
from nodrop.protocol.events import ReplayResult, SinkResult

ETHERTYPE = 0x88B5
RING_BYTES = 4 << 20
ARRIVAL_S = 1.0
"""After the last was sent: a switch between holds a frame for ms."""
JOB_TIMEOUT_S = 20.0
POLL_S = 0.02
MICROSECONDS_PCAP = 0xA1B2C3D4
LINKTYPE_ETHERNET = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CableEnd:
    host: Host
    port: str
    mac: str
    mtu: int
    others: Sequence[str] = ()
    """Ports of that host that are up, this one and loopback left out."""
    speed_mbit: int | None = None
    """Rate that the port has agreed on with whatever is at its cable; None if it does not say."""
    half_duplex: bool = False
    alone: bool = True
    """It has no address and belongs to no bridge: what is sent there goes to its cable alone."""

    @property
    def words(self) -> str:
        return f"{self.port} of {self.host.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """Frames sent in one direction, and those that came over."""

    sent: ReplayResult
    sent_packets: int
    arrived_packets: int
    """Packets that the kernel had, read or not."""
    arrived_bytes: int
    """Bytes of the packets that were read."""


def cross(
    tx: CableEnd,
    rx: CableEnd,
    lengths: Sequence[int],
    *,
    ethertype: int = ETHERTYPE,
    **pace: Any,
) -> Crossed:
    """Sends frames of these lengths one way. `pace`: as job `replay` takes it."""
    listen = {"job": "sink", "interface": rx.port, "ring_bytes": RING_BYTES}
    with NamedTemporaryFile(suffix=".pcap") as file:
        file.write(capture(lengths, src=tx.mac, dst=rx.mac, ethertype=ethertype))
        file.flush()
        trace = tx.host.reads(Path(file.name))
        send = {"job": "replay", "trace": trace, "interface": tx.port, **pace}
        with closing(rx.host.job(listen)) as sink, closing(tx.host.job(send)) as replay:
            sink.start()
            replay.start()
            sent: ReplayResult = replay.result(timeout_s=JOB_TIMEOUT_S)
            _await(sink, sent["sent_packets"])
            sink.stop()
            got: SinkResult = sink.result(timeout_s=JOB_TIMEOUT_S)
    return Crossed(
        sent=sent,
        sent_packets=sent["sent_packets"],
        arrived_packets=got["tp_packets"],
        arrived_bytes=got["bytes"],
    )


def _await(sink: SinkJob, packets: int) -> None:
    """Until so many have arrived, or none can be on their way any more."""
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:
        samples = sink.samples()
        if samples and samples[-1]["tp_packets"] >= packets:
            return
        time.sleep(POLL_S)


def capture(lengths: Sequence[int], *, src: str, dst: str, ethertype: int) -> bytes:
    """A capture file of frames of these lengths."""
    header = bytes.fromhex((dst + src).replace(":", "")) + struct.pack("!H", ethertype)
    file = struct.pack("<IHHiIII", MICROSECONDS_PCAP, 2, 4, 0, 0, 1 << 18, LINKTYPE_ETHERNET)
    for number, length in enumerate(lengths):
        frame = (header + b"nodrop lab check").ljust(length, b"\0")
        file += struct.pack("<IIII", 0, number, length, length) + frame
    return file
