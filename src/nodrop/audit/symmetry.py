"""Flows whose two directions meet in one member of a fanout group, or not (`audit --watch`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodrop.protocol import FlowsMet


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Flows that came to one group of ours."""

    kind: int
    """PACKET_FANOUT_*: 2 by CPU, 5 by queue."""
    members: int
    met: Mapping[str, FlowsMet]
    """Flows per protocol (`tcp4`, `udp6` …): seen in at least one direction, in both, and those of
    these all of whose packets came to one member of the group (together)."""

    @property
    def both_ways(self) -> int:
        return sum(one["flows"] for one in self.met.values())

    @property
    def together(self) -> int:
        return sum(one["together"] for one in self.met.values())

    @property
    def seen(self) -> int:
        return sum(one["seen"] for one in self.met.values())

    @property
    def words(self) -> str:
        return "; ".join(
            f"{name}: {one['together']} of {one['flows']}"
            for name, one in sorted(self.met.items())
            if one["flows"]
        )
