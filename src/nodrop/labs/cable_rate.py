"""Holds the rate that both ends of a cable say against what comes over.

A port knows only the rate to its neighbour: with a switch between, the other half may be slower. A
burst at the full rate shows it, for a switch cannot keep a tenth of a second of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodrop.hosts.seam import Json, Port, rise
from nodrop.labs.crossing import CableEnd, Crossed, cross

ETHERTYPE_OF_BURSTS = 0x88B6
BURST_S = 0.1
MOST_BYTES = 100e6
"""A sender that cannot keep the rate takes longer, and not for long."""
TRIES = 3
"""Of a burst that does not come whole: a host that is late once is not late three times."""
WIRE_BYTES = 24
"""Of each frame that no program sees: checksum, preamble, and the gap before the next."""
LOST_BY_HOST = ("rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_dropped")
REFUSED_BY_HOST = ("tx_dropped", "tx_errors")
SECOND_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    crossed: Crossed
    frame_bytes: int
    own: Mapping[str, int] = field(default_factory=dict)
    """What the two ports themselves count as lost, by the counter's name."""

    @property
    def missing_packets(self) -> int:
        return max(0, self.crossed.sent_packets - self.crossed.arrived_packets)

    @property
    def mbit(self) -> float | None:
        """At which it left, with what only the wire has. None if too few were sent to say."""
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
    """What is wrong about the rates that the two ends say; "" if nothing is."""
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
    ports: Sequence[tuple[Port, Sequence[str]]] = (
        (Port(host=tx.host, name=tx.port), REFUSED_BY_HOST),
        (Port(host=rx.host, name=rx.port), LOST_BY_HOST),
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
    """What was seen, and what is wrong; either may be ""."""
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
