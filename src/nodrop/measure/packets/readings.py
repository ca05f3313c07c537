"""One host's counters before and after the traffic, and what they rose by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nodrop.hosts.seam import Json, rise
from nodrop.labs.branches import SplitCounters
from nodrop.ledger.nic_counters import beyond, in_rx_dropped, witnesses
from nodrop.protocol.events import Counters, SoftnetRow, Xdp
from nodrop.setups.seam import PlaceReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Counters of one way into the sockets: its NIC, its capture port, and its place in between."""

    nic: Counters
    capture: Counters
    place: PlaceReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Branched:
    """Counters of a split, and of the instances behind it."""

    split: SplitCounters
    instances: Sequence[Received]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Every place that counts, from the sender to the capture sockets, at a quiet moment."""

    tx: Counters
    nic: Counters
    """Counters of the receiving NIC, ahead of any split."""
    capture: Counters
    """Counters of the last port on the way of all packets."""
    place: PlaceReading
    """Reading of what the one place has in between; {} behind a split."""
    branched: Branched | None

    def as_json(self) -> Json:
        place = self.place if self.branched is None else asdict(self.branched)
        return {"tx": self.tx, "nic": self.nic, "capture": self.capture, "place": place}


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One host's counters (node job `probe`, word `counters`) before and after the traffic."""

    before: Counters
    after: Counters

    def link(self, ports: Sequence[str], counter: str) -> int:
        """Rise of a counter, summed over the ports."""
        return sum(rise(self.before, self.after, port, counter) for port in ports)

    def state(self, port: str, name: Literal["mtu", "kind", "carrier_changes"]) -> tuple[Any, Any]:
        """A port's `mtu`, `kind` or `carrier_changes`, before and after. None = not read."""
        before, after = (side["links"][port].get(name) for side in (self.before, self.after))
        return before, after

    def ip(self, counter: str, *, table: str = "Ip") -> int:
        """Rise of a counter of the namespace, from /proc/net/snmp, or /proc/net/netstat (IpExt)."""
        name = f"{table}.{counter}"
        return int(self.after["snmp"][name]) - int(self.before["snmp"][name])

    def softnet(self, column: Literal["processed", "dropped", "time_squeeze"]) -> int:
        """Summed over the CPUs; the whole machine's, not one namespace's."""

        def total(rows: Sequence[SoftnetRow]) -> int:
            return sum(row[column] for row in rows)

        return total(self.after["softnet"]) - total(self.before["softnet"])

    def kinds(self, ports: Sequence[str]) -> set[str | None]:
        return {self.state(port, "kind")[1] for port in ports}

    def ethtool(self, port: str, ending: str) -> int:
        """Summed over the queues: veth names them rx_queue_0_xdp_drops and so on."""

        def total(names: Mapping[str, int]) -> int:
            return sum(value for name, value in names.items() if name.endswith(ending))

        after = total(self.after["links"][port].get("ethtool") or {})
        return after - total(self.before["links"][port].get("ethtool") or {})

    def said_by_drivers(self, ports: Sequence[str]) -> list[str]:
        """In words, what their drivers count of packets that they or the NICs threw away."""
        found = []
        for port in ports:
            of = f" of {port}" if len(ports) > 1 else ""
            found += [f"{words}{of}" for words in witnesses(*self._of_driver(port))]
        return found

    def lost_beyond(self, ports: Sequence[str]) -> int:
        """By their drivers' own counters, beside rx_missed_errors."""
        return sum(
            beyond(*self._of_driver(port), self.link([port], "rx_missed_errors")) for port in ports
        )

    def unhandled(self, ports: Sequence[str]) -> int:
        """Packets that no protocol of the kernel took: `rx_dropped`, less what the NIC lost."""
        return sum(
            max(0, self.link([port], "rx_dropped") - in_rx_dropped(*self._of_driver(port)))
            for port in ports
        )

    def _of_driver(self, port: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        before, after = (side["links"][port] for side in (self.before, self.after))
        return before.get("ethtool") or {}, after.get("ethtool") or {}

    def xdp(self, port: str) -> Xdp | None:
        return self.after["links"][port].get("xdp")
