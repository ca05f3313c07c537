"""Proves the cable between two far ports: marked frames that leave one arrive at the other, and
nowhere else, at the MTU and rate that both ports have.

The mark is their number and the sum of their lengths, which are random; the node's sink counts
both. A frame of somebody else's, one too few and one that was cut change one of the two.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Self

from nodrop.config.units import count_of
from nodrop.protocol import OverhearResult, ReplayResult, SinkResult
from nodrop.testbed.hosts.api import Host, Json, LabPort, OverhearJob, SinkJob, rise
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs.api import Checked
from nodrop.testbed.labs.netns import ETHERNET_HEADER_BYTES

ETHERTYPE = 0x88B5
RING_BYTES = 4 << 20
ARRIVAL_S = 1.0
"""Time after the last frame was sent: a switch between holds a frame for ms."""
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
    """The port has no address and belongs to no bridge: what is sent there goes to its cable alone.
    """

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
    """Waits until so many have arrived, or none can be on their way any more."""
    for _ in looks(ARRIVAL_S):
        samples = sink.samples()
        if samples and samples[-1]["tp_packets"] >= packets:
            return


def capture(lengths: Sequence[int], *, src: str, dst: str, ethertype: int) -> bytes:
    """A capture file of frames of these lengths."""
    header = bytes.fromhex((dst + src).replace(":", "")) + struct.pack("!H", ethertype)
    file = struct.pack("<IHHiIII", MICROSECONDS_PCAP, 2, 4, 0, 0, 1 << 18, LINKTYPE_ETHERNET)
    for number, length in enumerate(lengths):
        frame = (header + b"nodrop lab check").ljust(length, b"\0")
        file += struct.pack("<IIII", 0, number, length, length) + frame
    return file


MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class StrayPlace:
    """A port at which frames of one sender came that were not sent there."""

    port: str
    host: str
    packets: int

    @property
    def name(self) -> str:
        return f"{self.port} of {self.host}"

    @property
    def words(self) -> str:
        return f"{self.packets} to {self.name}"

    def facts(self) -> Json:
        return {"host": self.host, "port": self.port, "packets": self.packets}


class Overhearing:
    """Listens at all ports of both hosts, one job a host. To be entered before a frame leaves, and
    ended after the last has come."""

    def __init__(self, end: CableEnd, other: CableEnd) -> None:
        self._pairs = ((end, other), (other, end))
        self._jobs: list[OverhearJob] = []
        self._heard: list[OverhearResult] = []

    def __enter__(self) -> Self:
        try:
            for end, _ in self._pairs:
                ports = [end.port, *end.others]
                spec = {"job": "overhear", "interfaces": ports, "ethertype": ETHERTYPE}
                self._jobs.append(end.host.job(spec))
                self._jobs[-1].start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            job.close()

    def end(self) -> None:
        for job in self._jobs:
            job.stop()
        self._heard = [job.result(timeout_s=JOB_TIMEOUT_S) for job in self._jobs]

    def lost(self) -> bool:
        """More came than could be counted."""
        return any(result["lost_packets"] for result in self._heard)

    def arrived(self, sender: CableEnd) -> int:
        """Packets at the other end of the cable."""
        return sum(
            one["packets"]
            for (end, other), result in zip(self._pairs, self._heard, strict=True)
            for one in result["heard"]
            if one["source"] == sender.mac.lower() and one["interface"] == end.port
            if other is sender
        )

    def of(self, sender: CableEnd) -> Sequence[StrayPlace]:
        """Places of stray frames: all but the other end of the cable. What comes back to the sender
        is one."""
        return [
            StrayPlace(one["interface"], end.host.name, one["packets"])
            for (end, other), result in zip(self._pairs, self._heard, strict=True)
            for one in result["heard"]
            if one["source"] == sender.mac.lower()
            and not (one["interface"] == end.port and other is sender)
        ]

    def words(self) -> str:
        """Names of the ports besides those of the cable."""
        said = []
        for (end, _), job in zip(self._pairs, self._jobs, strict=True):
            names = [name for name in job.ready["interfaces"] if name != end.port]
            more = len(names) - MOST_NAMES
            some = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
            said.append(f"{some or 'none'} of {end.host.name}")
        return "; ".join(said)


ETHERTYPE_OF_BURSTS = 0x88B6
BURST_S = 0.1
MOST_BYTES = 100e6
"""A sender that cannot keep the rate takes longer, and not for long."""
TRIES = 3
"""Attempts at a burst that does not come whole: a host that is late once is not late three
times."""
WIRE_BYTES = 24
"""Bytes of each frame that no program sees: checksum, preamble, and the gap before the next."""
LOST_BY_HOST = ("rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_dropped")
REFUSED_BY_HOST = ("tx_dropped", "tx_errors")
SECOND_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    crossed: Crossed
    frame_bytes: int
    own: Mapping[str, int] = field(default_factory=dict)
    """Losses that the two ports themselves count, by the counter's name."""

    @property
    def missing_packets(self) -> int:
        return max(0, self.crossed.sent_packets - self.crossed.arrived_packets)

    @property
    def mbit(self) -> float | None:
        """Rate at which it left, with what only the wire has. None if too few were sent to say."""
        sent = self.crossed.sent
        first, last = sent["first_sent_mono_ns"], sent["last_sent_mono_ns"]
        if first is None or last is None or last <= first:
            return None
        bits = (sent["sent_packets"] - 1) * (self.frame_bytes + WIRE_BYTES) * 8
        return bits / ((last - first) / SECOND_NS) / 1e6

    def facts(self) -> Json:
        return {
            "sent_packets": self.crossed.sent_packets,
            "arrived_packets": self.crossed.arrived_packets,
            "frame_bytes": self.frame_bytes,
            "mbit_per_s": None if self.mbit is None else round(self.mbit),
            "lost_by_ports": dict(self.own),
        }


def unlike(one: CableEnd, other: CableEnd) -> str:
    """The fault in the rates that the two ends report; "" if there is none."""
    for end in (one, other):
        if end.half_duplex:
            return (
                f"{end.words} is half duplex, so frames wait for each other or are lost; let both "
                f"ends agree by themselves (`ethtool -s {end.port} autoneg on`)"
            )
    if one.speed_mbit is None or other.speed_mbit is None or one.speed_mbit == other.speed_mbit:
        return ""
    return (
        f"{one.words} has {one.speed_mbit} Mbit/s, and {other.words} has {other.speed_mbit}: a "
        "switch between has to drop what is too fast for the slower; connect them directly, or "
        f"give both the same (`ethtool -s {other.port} speed {one.speed_mbit} autoneg on`)"
    )


def burst(tx: CableEnd, rx: CableEnd, frame_bytes: int) -> Burst:
    """The best of some tries, at the rate that both say."""
    assert tx.speed_mbit is not None
    pps = tx.speed_mbit * 1e6 / 8 / (frame_bytes + WIRE_BYTES)
    tries: list[Burst] = []
    while len(tries) < TRIES:
        tries.append(_burst(tx, rx, frame_bytes, pps))
        if not tries[-1].missing_packets:
            break
    return min(tries, key=lambda one: one.missing_packets)


def _packets(frame_bytes: int, pps: float) -> int:
    return max(1, int(min(pps * BURST_S, MOST_BYTES / frame_bytes)))


def _burst(tx: CableEnd, rx: CableEnd, frame_bytes: int, pps: float) -> Burst:
    ports: Sequence[tuple[LabPort, Sequence[str]]] = (
        (LabPort(host=tx.host, name=tx.port), REFUSED_BY_HOST),
        (LabPort(host=rx.host, name=rx.port), LOST_BY_HOST),
    )
    before = [port.counters() for port, _ in ports]
    pace = {"pps": pps, "loops": _packets(frame_bytes, pps)}
    crossed = cross(tx, rx, [frame_bytes], ethertype=ETHERTYPE_OF_BURSTS, **pace)
    own = {
        name: rose
        for (port, names), then in zip(ports, before, strict=True)
        for now in [port.counters()]
        for name in names
        if (rose := rise(then, now, port.name, name)) > 0
    }
    return Burst(crossed=crossed, frame_bytes=frame_bytes, own=own)


def judged(tx: CableEnd, rx: CableEnd, found: Burst) -> tuple[str, str]:
    """The words for what was seen, and those for what is wrong; either may be ""."""
    crossed, speed = found.crossed, tx.speed_mbit
    rate = "" if found.mbit is None else f" at {found.mbit:,.0f} of {speed:,} Mbit/s"
    megabytes = crossed.sent_packets * found.frame_bytes / 1e6
    words = f"a burst of {megabytes:.1f} MB{rate} from {tx.words} to {rx.words}"
    if not found.missing_packets:
        return f"{words} came whole", ""
    came = f"{words} came with {crossed.arrived_packets:,} of {crossed.sent_packets:,} frames"
    if found.own:
        own = ", ".join(f"{name} {count:,}" for name, count in found.own.items())
        return f"{came}; the ports themselves count the loss ({own}), so it is no switch's", ""
    return "", (
        f"{came}, though both ports say {speed} Mbit/s and count no loss: something between is "
        "slower (a switch, a port of it at another speed); connect the two directly"
    )


FRAMES = 32
PPS = 2000
SHORTEST_BYTES = 60
"""The length to which Ethernet pads frames, without the checksum: shorter ones would arrive
longer."""
SHORT_BYTES = 500
"""A length that passes wherever anything does (IPv4 wants an MTU of 576)."""
MEND = "put the cable or the switch right, and look with `nodrop lab check LAB`"

Ways = Sequence[tuple[str, CableEnd, CableEnd]]


def prove(sender: CableEnd, receiver: CableEnd, rng: random.Random) -> Checked:
    """Proves a cable both ways, with frames up to the smaller MTU. LabProblem if a host cannot send
    or listen."""
    ways: Ways = (("there", sender, receiver), ("back", receiver, sender))
    seen: list[str] = []
    problems: list[str] = []
    facts: dict[str, Json] = {}
    faults: dict[str, str] = {}
    with Overhearing(sender, receiver) as overhearing:
        for name, tx, rx in ways:
            facts[name], faults[name] = _marked(tx, rx, rng, seen)
        overhearing.end()
        for name, tx, rx in ways:
            elsewhere = overhearing.of(tx)
            facts[name]["elsewhere"] = [one.facts() for one in elsewhere]
            if not facts[name]["arrived_packets"] and elsewhere:
                faults[name] = f"{_none(tx, rx)}; {leads_to(elsewhere)}"
            elif elsewhere:
                places = ("at least " if overhearing.lost() else "") + ", ".join(
                    one.words for one in elsewhere
                )
                problems.append(
                    f"of the marked frames from {tx.words}, {places} came, too: a switch floods "
                    "them, a mirror port copies them, or there is a second cable; give these two "
                    "ports a cable or a VLAN of their own"
                )
            problems += [faults[name]] if faults[name] else []
        if not any(facts[name]["elsewhere"] for name, *_ in ways):
            seen.append(f"none came to another port that is up ({overhearing.words()})")
    _rate(ways, facts, seen, problems)
    return Checked(
        what="cable", seen=seen, problems=[f"cable: {problem}" for problem in problems], facts=facts
    )


def prove_one_way(sender: CableEnd, receiver: CableEnd, rng: random.Random) -> Checked:
    """Checks the cable of a run, before its first trial: a mirror port has no way back, and the
    trials show what a smaller MTU loses. At other ports it listens only if no frame came where it
    was sent."""
    ends = [replace(end, others=()) for end in (sender, receiver)]
    for tx, rx in (ends, (sender, receiver)):
        with Overhearing(tx, rx) as overhearing:
            crossed = cross(tx, rx, marked_lengths(SHORT_BYTES, rng), pps=PPS)
            overhearing.end()
        if overhearing.arrived(tx):
            return Checked(what="cable")
    if crossed.sent_packets < FRAMES:
        words = _sent_less(tx, crossed)
    elif elsewhere := overhearing.of(tx):
        words = f"{_none(tx, rx)}; {leads_to(elsewhere)}"
    else:
        words = f"{_none(tx, rx)}, nor to another port that is up ({overhearing.words()})"
    return Checked(what="cable", problems=[f"cable: {words}; {MEND}"])


def _marked(tx: CableEnd, rx: CableEnd, rng: random.Random, seen: list[str]) -> tuple[Json, str]:
    """Facts of marked frames, and what is wrong, in words; "" if nothing is."""
    fault = ""
    mtu = min(tx.mtu, rx.mtu)
    longest = mtu + ETHERNET_HEADER_BYTES
    lengths = marked_lengths(longest, rng)
    crossed = cross(tx, rx, lengths, pps=PPS)
    whole = is_whole(lengths, crossed)
    if whole:
        seen.append(
            f"{crossed.sent_packets:,} marked frames of {SHORTEST_BYTES} to {longest} bytes went "
            f"from {tx.words} to {rx.words}"
        )
    else:
        short = marked_lengths(min(SHORT_BYTES, longest), rng)
        short_pass = is_whole(short, cross(tx, rx, short, pps=PPS))
        fault = _fault(tx, rx, crossed, mtu, short_pass=short_pass)
    facts = {
        "sent_packets": crossed.sent_packets,
        "arrived_packets": crossed.arrived_packets,
        "whole": whole,
    }
    return facts, fault


def is_whole(asked: Sequence[int], crossed: Crossed) -> bool:
    """All frames that were asked for arrived whole, and no others."""
    arrived = (crossed.sent_packets, crossed.arrived_packets, crossed.arrived_bytes)
    return arrived == (len(asked), len(asked), sum(asked))


def _fault(tx: CableEnd, rx: CableEnd, crossed: Crossed, mtu: int, *, short_pass: bool) -> str:
    way = f"from {tx.words} to {rx.words}"
    if crossed.sent_packets < FRAMES:
        return _sent_less(tx, crossed)
    if short_pass:
        return (
            f"{way} short frames pass and those of up to MTU {mtu} do not: something between "
            f"has a smaller MTU ({crossed.arrived_packets} of {FRAMES} arrived)"
        )
    if crossed.arrived_packets == 0:
        return f"{_none(tx, rx)}; is the cable between these two ports?"
    if crossed.arrived_packets < FRAMES:
        return f"{crossed.arrived_packets} of {FRAMES} marked frames came {way}"
    return (
        f"{count_of(crossed.arrived_packets, 'frame')} came {way}, and {FRAMES} were sent: "
        "others send on this cable, too"
    )


def marked_lengths(longest: int, rng: random.Random) -> list[int]:
    """Lengths of frames without their checksum, in bytes; one is the longest."""
    return [longest, *(rng.randint(SHORTEST_BYTES, longest) for _ in range(FRAMES - 1))]


def _sent_less(tx: CableEnd, crossed: Crossed) -> str:
    return f"{tx.words} sent {crossed.sent_packets} of {FRAMES} marked frames"


def _none(tx: CableEnd, rx: CableEnd) -> str:
    return f"none of {FRAMES} marked frames came from {tx.words} to {rx.words}"


def leads_to(elsewhere: Sequence[StrayPlace]) -> str:
    return f"the cable leads to {', '.join(place.name for place in elsewhere)}"


def _rate(ways: Ways, facts: Mapping[str, Json], seen: list[str], problems: list[str]) -> None:
    """A burst disturbs others, so it is sent only between ports that were shown to be alone."""
    _, one, other = ways[0]
    if wrong := unlike(one, other):
        problems.append(wrong)
    if problems or not (one.alone and other.alone):
        return
    if one.speed_mbit is None or other.speed_mbit is None:
        seen.append("its rate is not known, for a port does not say it, and was not tried")
        return
    for name, tx, rx in ways:
        found = burst(tx, rx, min(tx.mtu, rx.mtu) + ETHERNET_HEADER_BYTES)
        facts[name]["burst"] = found.facts()
        words, wrong = judged(tx, rx, found)
        seen += [words] if words else []
        problems += [wrong] if wrong else []
