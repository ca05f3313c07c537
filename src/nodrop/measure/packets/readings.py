"""One host's counters before and after the traffic, what they rose by, and what was lost between
two ports of a cable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nodrop.config.units import count_of
from nodrop.ledger.hops import BETWEEN, RECEIVING_PORT, SENDER, SOFTNET, Account, Class
from nodrop.ledger.nic_counters import beyond, in_rx_dropped, witnesses
from nodrop.ledger.outcome import Problem, Reason
from nodrop.protocol import Counters, SoftnetRow, Xdp
from nodrop.testbed.hosts.api import Json, rise
from nodrop.testbed.labs.split import SplitCounters
from nodrop.testbed.setups.api import PlaceReading


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
        """A column summed over the CPUs; the whole machine's, not one namespace's."""

        def total(rows: Sequence[SoftnetRow]) -> int:
            return sum(row[column] for row in rows)

        return total(self.after["softnet"]) - total(self.before["softnet"])

    def kinds(self, ports: Sequence[str]) -> set[str | None]:
        return {self.state(port, "kind")[1] for port in ports}

    def ethtool(self, port: str, ending: str) -> int:
        """A counter summed over the queues: veth names them rx_queue_0_xdp_drops and so on."""

        def total(names: Mapping[str, int]) -> int:
            return sum(value for name, value in names.items() if name.endswith(ending))

        after = total(self.after["links"][port].get("ethtool") or {})
        return after - total(self.before["links"][port].get("ethtool") or {})

    def said_by_drivers(self, ports: Sequence[str]) -> list[str]:
        """Words about what the ports' drivers count of packets that they or the NICs threw away."""
        found = []
        for port in ports:
            of = f" of {port}" if len(ports) > 1 else ""
            found += [f"{words}{of}" for words in witnesses(*self._of_driver(port))]
        return found

    def lost_beyond(self, ports: Sequence[str]) -> int:
        """Packets lost by the drivers' own counters, beside rx_missed_errors."""
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


VETH = "veth"
ABOVE_MTU_BYTES = 18
"""A veth takes frames of its MTU, an Ethernet header and a VLAN tag (__is_skb_forwardable)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The ports that cables join, each with the other end's at the same place."""

    tx: Readings
    tx_ports: Sequence[str]
    rx: Readings
    rx_ports: Sequence[str]
    longest_frame_bytes: int | None
    """Longest frame of the trace; None = not known."""

    @property
    def cables(self) -> Sequence[tuple[str, str]]:
        """Sending and receiving port of each; () if no driver of the kernel has those that
        receive."""
        return [*zip(self.tx_ports, self.rx_ports, strict=True)] if self.rx_ports else []

    @property
    def kind(self) -> str | None:
        """Kind of all ports, if they are of one kind; else None."""
        kinds = self.tx.kinds(self.tx_ports) | self.rx.kinds(self.rx_ports)
        return kinds.pop() if len(kinds) == 1 else None


def nothing_arrived(ends: Ends, *, tx_host: str, rx_host: str) -> Sequence[Problem]:
    """Problems of cables on which nothing arrived, also if only one of several is out. The cables
    are the user's. Packets that the receiving NIC had no room for did arrive."""
    found = []
    for tx, rx in ends.cables:
        left = ends.tx.link([tx], "tx_packets")
        missed = ends.rx.link([rx], "rx_missed_errors") + ends.rx.lost_beyond([rx])
        if left > 0 and not ends.rx.link([rx], "rx_packets") and missed <= 0:
            words = (
                f"not one of {count_of(left, 'packet')} that left {tx} of {tx_host} reached {rx} "
                f"of {rx_host}: cable, switch or VLAN; look with `nodrop lab check LAB`"
            )
            found.append(Problem(code=Reason.NOTHING_ARRIVED, words=words))
    return found


def refused(ends: Ends, packets: int, *, name: str, counter: str) -> Account:
    """An account for packets that went lost between send() and the receiving port's counter."""
    short, flapped = too_small_mtu(ends), carrier_changes(ends)
    receiving = ", ".join(ends.rx_ports)
    backlog = ends.rx.softnet("dropped")
    softnet = f"softnet dropped rose by {backlog:,} (/proc/net/softnet_stat, all CPUs)"
    said = [words for words in (short, flapped) if words]
    if said and (backlog or (flapped and ends.kind != VETH)):
        place, knob = BETWEEN, BETWEEN.knob
    elif said:
        # What was refused while the carrier was off was offered to a sending port that was up: one
        # that is down answers ENETDOWN, which ends the offer. On a veth that leaves the peer.
        place = RECEIVING_PORT
        knob = f"ip link show {receiving}: its MTU, and what took it down"
    elif backlog >= packets:
        place, name, knob = SOFTNET, "tx_dropped_backlog", "net.core.netdev_max_backlog"
    elif ends.kind != VETH and VETH not in ends.tx.kinds(ends.tx_ports):
        place, knob = SENDER, SENDER.knob
    else:
        place, knob = BETWEEN, BETWEEN.knob
    dropped = ends.rx.link(ends.rx_ports, "rx_dropped")
    said += [softnet] if backlog else []
    said.append(f"rx_dropped of {receiving} rose by {dropped:,}")
    return Account(
        into="tx_nic",
        kind=Class.LOST,
        name=name,
        place=place,
        packets=packets,
        counter=counter,
        evidence=f"{counter} {packets:,}; " + "; ".join(said),
        knob=knob,
    )


def too_small_mtu(ends: Ends) -> str:
    """Words if a receiving port takes no frames as long as those that were sent; else empty."""
    return "; ".join(filter(None, (_too_small_mtu(ends, tx, rx) for tx, rx in ends.cables)))


def _too_small_mtu(ends: Ends, tx_port: str, rx_port: str) -> str:
    sends = [mtu for mtu in ends.tx.state(tx_port, "mtu") if mtu is not None]
    takes = [mtu for mtu in ends.rx.state(rx_port, "mtu") if mtu is not None]
    if not sends or not takes or min(takes) >= max(sends):
        return ""
    longest, mtu = ends.longest_frame_bytes, min(takes)
    if longest is not None and longest <= mtu + ABOVE_MTU_BYTES:
        return ""
    frames = "" if longest is None else f", and frames of up to {longest} bytes were sent"
    return f"MTU of {rx_port} is {mtu}, of {tx_port} {max(sends)}{frames}"


def carrier_changes(ends: Ends) -> str:
    """Words if the carrier of any port came or went during the trial; else empty."""
    found = []
    for readings, ports in ((ends.tx, ends.tx_ports), (ends.rx, ends.rx_ports)):
        for port in ports:
            before, after = readings.state(port, "carrier_changes")
            if before is not None and after is not None and after > before:
                found.append(f"{after - before} times of {port}")
    return "the carrier changed " + ", ".join(found) if found else ""
