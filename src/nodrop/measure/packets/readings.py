"""One host's counters before and after the traffic, and what they rose by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodrop.hosts.seam import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One host's counters (node job `probe`, word `counters`) before and after the traffic."""

    before: Json
    after: Json

    def link(self, port: str, counter: str) -> int:
        before, after = (side["links"][port]["stats"] for side in (self.before, self.after))
        return int(after[counter]) - int(before[counter])

    def state(self, port: str, name: str) -> tuple[Any, Any]:
        """Of a port before and after: `mtu`, `kind`, `carrier_changes`. None = not read."""
        before, after = (side["links"][port].get(name) for side in (self.before, self.after))
        return before, after

    def ip(self, counter: str, *, table: str = "Ip") -> int:
        """Of the namespace: from /proc/net/snmp, or /proc/net/netstat (IpExt)."""
        name = f"{table}.{counter}"
        return int(self.after["snmp"][name]) - int(self.before["snmp"][name])

    def softnet(self, column: str) -> int:
        """Summed over the CPUs; the whole machine's, not one namespace's."""

        def total(rows: list[Json]) -> int:
            return sum(int(row[column]) for row in rows)

        return total(self.after["softnet"]) - total(self.before["softnet"])

    def ethtool(self, port: str, ending: str) -> int:
        """Summed over the queues: veth names them rx_queue_0_xdp_drops and so on."""

        def total(names: Mapping[str, int]) -> int:
            return sum(value for name, value in names.items() if name.endswith(ending))

        after = total(self.after["links"][port].get("ethtool") or {})
        return after - total(self.before["links"][port].get("ethtool") or {})

    def xdp(self, port: str) -> Json | None:
        found: Json | None = self.after["links"][port].get("xdp")
        return found
