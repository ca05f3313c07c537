"""Proves the cable between two far ports: marked frames that leave one arrive at the other.

The mark is their number and the sum of their lengths, which are random; the node's sink counts
both. A frame of somebody else's, one too few and one that was cut change one of the two. Their
EtherType is for experiments (IEEE 802, 0x88B5): no stack takes them, no router passes them on.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from nodrop.hosts.seam import Host, Json, SinkJob
from nodrop.labs.netns import ETHERNET_HEADER_BYTES
from nodrop.labs.seam import Checked
from nodrop.protocol.events import ReplayResult, SinkResult

ETHERTYPE = 0x88B5
FRAMES = 32
SHORTEST_BYTES = 60
"""What Ethernet pads to, without its checksum: shorter ones would arrive longer."""
SHORT_BYTES = 500
"""These pass wherever anything does (IPv4 wants an MTU of 576)."""
PPS = 2000
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

    @property
    def words(self) -> str:
        return f"{self.port} of {self.host.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """What of the marked frames came over in one direction."""

    asked: Sequence[int]
    """Lengths."""
    sent_packets: int
    arrived_packets: int
    arrived_bytes: int

    @property
    def whole(self) -> bool:
        """These, all of them, and no others."""
        arrived = (self.sent_packets, self.arrived_packets, self.arrived_bytes)
        return arrived == (len(self.asked), len(self.asked), sum(self.asked))


def prove(sender: CableEnd, receiver: CableEnd, rng: random.Random) -> Checked:
    """Both ways, with frames up to the smaller MTU. LabProblem if a host cannot send or listen."""
    mtu = min(sender.mtu, receiver.mtu)
    longest = mtu + ETHERNET_HEADER_BYTES
    seen, problems = [], []
    facts: Json = {}
    for name, tx, rx in (("there", sender, receiver), ("back", receiver, sender)):
        crossed = cross(tx, rx, marked_lengths(longest, rng))
        facts[name] = {"sent_packets": crossed.sent_packets, "whole": crossed.whole}
        if crossed.whole:
            seen.append(
                f"{crossed.sent_packets} marked frames of {SHORTEST_BYTES} to {longest} bytes went "
                f"from {tx.words} to {rx.words}"
            )
        else:
            short = cross(tx, rx, marked_lengths(min(SHORT_BYTES, longest), rng))
            problems.append(f"cable: {_fault(tx, rx, crossed, short, mtu)}")
    return Checked(what="cable", seen=seen, problems=problems, facts=facts)


def _fault(tx: CableEnd, rx: CableEnd, crossed: Crossed, short: Crossed, mtu: int) -> str:
    way = f"from {tx.words} to {rx.words}"
    if crossed.sent_packets < FRAMES:
        return f"{tx.words} sent {crossed.sent_packets} of {FRAMES} marked frames"
    if short.whole:
        return (
            f"{way} short frames pass and those of up to MTU {mtu} do not: something between "
            f"has a smaller MTU ({crossed.arrived_packets} of {FRAMES} arrived)"
        )
    if crossed.arrived_packets == 0:
        return f"none of {FRAMES} marked frames came {way}; is the cable between these two ports?"
    if crossed.arrived_packets < FRAMES:
        return f"{crossed.arrived_packets} of {FRAMES} marked frames came {way}"
    return (
        f"{crossed.arrived_packets} frames came {way}, and {FRAMES} were sent: "
        "others send on this cable, too"
    )


def marked_lengths(longest: int, rng: random.Random) -> list[int]:
    """Of frames without their checksum, in bytes; one is the longest."""
    return [longest, *(rng.randint(SHORTEST_BYTES, longest) for _ in range(FRAMES - 1))]


def cross(tx: CableEnd, rx: CableEnd, lengths: Sequence[int]) -> Crossed:
    """Sends frames of these lengths one way."""
    listen = {"job": "sink", "interface": rx.port, "ring_bytes": 4 << 20}
    with NamedTemporaryFile(suffix=".pcap") as file:
        file.write(capture(lengths, src=tx.mac, dst=rx.mac))
        file.flush()
        trace = tx.host.reads(Path(file.name))
        send = {"job": "replay", "trace": trace, "interface": tx.port, "pps": PPS}
        with closing(rx.host.job(listen)) as sink, closing(tx.host.job(send)) as replay:
            sink.start()
            replay.start()
            sent: ReplayResult = replay.result(timeout_s=JOB_TIMEOUT_S)
            _await(sink, sent["sent_packets"])
            sink.stop()
            got: SinkResult = sink.result(timeout_s=JOB_TIMEOUT_S)
    return Crossed(
        asked=lengths,
        sent_packets=sent["sent_packets"],
        arrived_packets=got["packets"],
        arrived_bytes=got["bytes"],
    )


def _await(sink: SinkJob, packets: int) -> None:
    """Until so many have arrived, or none can be on their way any more."""
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:
        samples = sink.samples()
        if samples and samples[-1]["packets"] >= packets:
            return
        time.sleep(POLL_S)


def capture(lengths: Sequence[int], *, src: str, dst: str) -> bytes:
    """A capture file of frames of these lengths."""
    header = bytes.fromhex((dst + src).replace(":", "")) + struct.pack("!H", ETHERTYPE)
    file = struct.pack("<IHHiIII", MICROSECONDS_PCAP, 2, 4, 0, 0, 1 << 18, LINKTYPE_ETHERNET)
    for number, length in enumerate(lengths):
        frame = (header + b"nodrop lab check").ljust(length, b"\0")
        file += struct.pack("<IIII", 0, number, length, length) + frame
    return file
