"""Flows of the packets that a load sent, in the order of sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.ledger.quantities import Count

_PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A conversation of the trace, both directions."""

    name: str
    """Protocol and both ends, as `nodrop trace withhold --flow` takes them."""
    protocol: int
    port: int
    """The lower of both ports, mostly the service's; 0 = it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFlows:
    """A flow for each packet."""

    flows: Sequence[Flow]
    of_packet: Sequence[int]
    """Index into `flows`; the one after the last is that of whatever is no IP."""
    copy_of_packet: Sequence[int]
    """Number of the copy of the trace whose addresses the packet has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyFlows:
    """The fewest flows that half of some work goes to."""

    flows: Count
    """Conversations of the trace; replicas are not counted again."""
    packets: Count
    """Packets, those of replicas included."""
    protocol: Count
    port: Count
    """Protocol and port that most of it goes to."""

    @property
    def kind(self) -> str:
        return kind_of(self.protocol, self.port)


def kind_of(protocol: int, port: int) -> str:
    """`TCP port 80`."""
    name = _PROTOCOLS.get(protocol, f"IP protocol {protocol}")
    return f"{name} port {port}" if port else name
