"""The ports of one SUT that share the packets: what came in at each, and what its sockets say.

The kernel counts what it puts together for a whole network namespace, so the books are balanced
over the ports' sum, and a port's own figures stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.hosts.seam import rise
from nodrop.ledger.hops import Hop
from nodrop.load.seam import TraceFacts
from nodrop.measure.packets.readings import Reading
from nodrop.measure.places import Places
from nodrop.suts.seam import SutCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPackets:
    """None = the SUT does not say it of each port."""

    port: str
    trace: str | None
    """Path of the trace that came in at this port; None if the ports share one."""
    received_packets: int
    captured_packets: int | None
    dropped_packets: int | None
    """Captured packets that found no room in a ring of this port."""


def ports_hop(places: Places, before: Reading, after: Reading) -> Hop:
    names = [port.name for port in places.ports]
    return Hop(
        name="ports",
        packets=sum(_received(name, before, after) for name in names),
        counter=f"rx_packets of {', '.join(names)} (rtnl_link_stats64)",
        wire=True,
    )


def each_port(
    places: Places,
    before: Reading,
    after: Reading,
    counters: SutCounters,
    traces: Sequence[TraceFacts] = (),
) -> Sequence[PortPackets]:
    """Empty if one port gets all packets. `traces`: of each port, if they share none."""
    found = []
    for number, name in enumerate(port.name for port in places.ports):
        said = counters.per_port.get(name, {})
        found.append(
            PortPackets(
                port=name,
                trace=str(traces[number].path) if traces else None,
                received_packets=_received(name, before, after),
                captured_packets=said.get("captured_packets"),
                dropped_packets=said.get("dropped_ring_full_packets"),
            )
        )
    return found


def _received(port: str, before: Reading, after: Reading) -> int:
    return rise(before.capture, after.capture, port, "rx_packets")
