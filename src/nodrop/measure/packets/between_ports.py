"""Packets that a send lost before the receiving port had them: the end that refused them, as far as
counters show it.

On a veth pair the sender's `tx_dropped` counts what the *peer* refused: it was down, took no frames
so long, or the backlog behind it was full. The count is the sender's, the cause need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.config.units import count_of
from nodrop.ledger.hops import Account, Class
from nodrop.ledger.places import BETWEEN, RECEIVING_PORT, SENDER, SOFTNET
from nodrop.ledger.reasons import Problem, Reason
from nodrop.measure.packets.readings import Readings

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
    def kind(self) -> str | None:
        """Kind of all ports, if they are of one kind; else None."""
        kinds = self.tx.kinds(self.tx_ports) | self.rx.kinds(self.rx_ports)
        return kinds.pop() if len(kinds) == 1 else None


def nothing_arrived(ends: Ends, *, tx_host: str, rx_host: str) -> Sequence[Problem]:
    """Problems of cables on which nothing arrived, also if only one of several is out. The cables
    are the user's. Packets that the receiving NIC had no room for did arrive."""
    found = []
    for tx, rx in zip(ends.tx_ports, ends.rx_ports, strict=True):
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
    softnet = f"softnet dropped rose by {backlog} (/proc/net/softnet_stat, all CPUs)"
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
    said.append(f"rx_dropped of {receiving} rose by {dropped}")
    return Account(
        into="tx_nic",
        kind=Class.LOST,
        name=name,
        place=place,
        packets=packets,
        counter=counter,
        evidence=f"{counter} {packets}; " + "; ".join(said),
        knob=knob,
    )


def too_small_mtu(ends: Ends) -> str:
    """In words, if a receiving port takes no frames as long as those that were sent."""
    cables = zip(ends.tx_ports, ends.rx_ports, strict=True)
    return "; ".join(filter(None, (_too_small_mtu(ends, tx, rx) for tx, rx in cables)))


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
    """In words, if the carrier of any port came or went during the trial."""
    found = []
    for readings, ports in ((ends.tx, ends.tx_ports), (ends.rx, ends.rx_ports)):
        for port in ports:
            before, after = readings.state(port, "carrier_changes")
            if before is not None and after is not None and after > before:
                found.append(f"{after - before} times of {port}")
    return "the carrier changed " + ", ".join(found) if found else ""
