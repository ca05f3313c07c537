"""From what was read at each place to the hops and accounts of one trial's packet books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.ledger.hops import Account, Class, Hop, Place
from nodrop.load.seam import Fragments, OfferedLoad
from nodrop.measure.ahead_of_tap import Readings, cut_vlan_tags, generic_xdp, xdp
from nodrop.suts.seam import SutCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that was counted during one trial, place by place."""

    tx_port: str
    nic_port: str
    capture_port: str
    offered: OfferedLoad
    tx: Readings
    nic: Readings
    """Of the receiving NIC."""
    capture: Readings
    """Of the interface and namespace the SUT captures in; in a bare setup the NIC's own."""
    between: tuple[Sequence[Hop], Sequence[Account]]
    """What the setup puts between the two."""
    sut: SutCounters
    defrag: bool
    fragments: Fragments | None
    """Of the load sent whole; None where it was cut short."""
    never_at_tap_packets: int = 0
    """Frames of the trace that no capture socket can be handed (load/seam.py), at the most."""
    several: bool = False
    """Behind a split: what is taken out before each instance's sockets is in `between`."""

    @property
    def cut_packets(self) -> int:
        """Of `never_at_tap_packets`, those that send() took."""
        return max(0, self.never_at_tap_packets - self.offered.refused_packets.get("einval", 0))

    @property
    def handed_packets(self) -> int:
        """Given to the sender's kernel: sent, or accepted and dropped there (ENOBUFS)."""
        return self.offered.sent_packets + self.offered.refused_packets.get("enobufs", 0)

    @property
    def expected_captured_packets(self) -> int:
        """What the capture sockets should have been handed by now."""
        found = [] if self.several else into_socket(self)
        found += [a for a in self.between[1] if a.into == "socket"]
        taken = (a for a in found if a.kind is not Class.NOT_FOR_US)
        return self.arrived_packets - sum(account.packets for account in taken)

    @property
    def arrived_packets(self) -> int:
        """At the last place before the capture sockets that can be read."""
        readable = [hop.packets for hop in self.between[0] if hop.packets is not None]
        return readable[-1] if readable else self.nic.link(self.nic_port, "rx_packets")


def hops(seen: Observed) -> list[Hop]:
    tx = seen.tx_port
    return [
        Hop(
            name="intended",
            packets=seen.offered.intended_packets,
            counter="load: packets of the trace x loops x replicas",
        ),
        Hop(
            name="sent",
            packets=seen.handed_packets,
            counter="generator: send() accepted by the kernel, or answered ENOBUFS",
        ),
        Hop(
            name="tx_nic",
            packets=seen.tx.link(tx, "tx_packets"),
            counter=f"tx_packets of {tx} (rtnl_link_stats64)",
        ),
        *received_hops(seen),
    ]


def received_hops(seen: Observed) -> list[Hop]:
    """From the receiving NIC on: of one instance among several, its own part of the way."""
    nic, sut = seen.nic_port, seen.sut
    return [
        Hop(
            name="rx_nic",
            packets=seen.nic.link(nic, "rx_packets"),
            counter=f"rx_packets of {nic} (rtnl_link_stats64)",
            wire=True,
        ),
        *seen.between[0],
        Hop(
            name="socket",
            packets=sut.captured_packets,
            counter=sut.sources.get("captured_packets", "the SUT's capture counter"),
        ),
        Hop(
            name="decoded",
            packets=sut.decoded_packets,
            counter=sut.sources.get("decoded_packets", "the SUT's decoder counter"),
        ),
    ]


def accounts(seen: Observed) -> list[Account]:
    return [
        *into_sent(seen),
        *into_tx_nic(seen),
        *seen.between[1],
        *(ahead_of_split(seen) if seen.several else into_socket(seen)),
        *into_decoded(seen),
    ]


_REFUSAL_KNOBS = {
    "emsgsize": "a larger MTU on the link",
    "einval": "take frames shorter than an Ethernet header out of the trace",
}


def into_sent(seen: Observed) -> list[Account]:
    """Packets the generator never got rid of."""
    found = [
        Account(
            into="sent",
            kind=Class.UNSENT,
            name=f"tx_refused_{reason}",
            packets=packets,
            counter=f"generator: send() refused with {reason.upper()}",
            knob=_REFUSAL_KNOBS.get(reason, ""),
        )
        for reason, packets in seen.offered.refused_packets.items()
        if reason != "enobufs" and packets
    ]
    never = (
        seen.offered.intended_packets
        - seen.handed_packets
        - sum(account.packets for account in found)
    )
    if never > 0:
        found.append(
            Account(
                into="sent",
                kind=Class.UNSENT,
                name="tx_unsent_never_attempted",
                packets=never,
                counter="generator: intended minus attempted",
                knob="a lower load, or a faster generator (load.kind, load.cpu)",
            )
        )
    return found


def into_tx_nic(seen: Observed) -> list[Account]:
    """Between send() and the sender's NIC: the backlog of a veth peer, or a filter on egress."""
    port = seen.tx_port
    missing = seen.handed_packets - seen.tx.link(port, "tx_packets")
    if missing < 0:
        return [
            Account(
                into="tx_nic",
                kind=Class.FOREIGN,
                name="tx_foreign",
                packets=-missing,
                counter=f"tx_packets of {port} beyond what the generator sent",
            )
        ]
    found = []
    dropped = min(missing, seen.tx.link(port, "tx_dropped"))
    if dropped:
        backlog = seen.nic.softnet("dropped")
        found.append(
            Account(
                into="tx_nic",
                kind=Class.LOST,
                name="tx_dropped_backlog" if backlog else "tx_dropped_device",
                place=Place.SOFTNET if backlog else Place.SENDER,
                packets=dropped,
                counter=f"tx_dropped of {port} (rtnl_link_stats64)",
                evidence=f"softnet dropped rose by {backlog} (/proc/net/softnet_stat, all CPUs)",
                knob="net.core.netdev_max_backlog" if backlog else "txqueuelen, a lower load",
            )
        )
    filtered = min(missing - dropped, seen.offered.refused_packets.get("enobufs", 0))
    if filtered:
        found.append(
            Account(
                into="tx_nic",
                kind=Class.LOST,
                name="tx_dropped_filter",
                place=Place.PATH,
                packets=filtered,
                counter=f"generator: ENOBUFS, and {port} counted neither sent nor dropped",
                evidence="only a filter on the way out (nft or tc egress) drops uncounted",
                knob=f"nft list ruleset; tc filter show dev {port} egress",
            )
        )
    return found


def ahead_of_split(seen: Observed) -> list[Account]:
    """Between the receiving NIC and the split: what the kernel takes out before any hook of it."""
    split, port = seen.between[0][0], seen.nic_port
    assert split.packets is not None
    missing = seen.nic.link(port, "rx_packets") - split.packets
    missing -= sum(a.packets for a in seen.between[1] if a.into == split.name)
    found = xdp(seen.nic, port, into=split.name)
    missing -= sum(account.packets for account in found)
    cut = cut_vlan_tags(seen.cut_packets, missing, into=split.name)
    missing -= sum(account.packets for account in cut)
    return [*found, *cut, *generic_xdp(seen.nic, port, missing, into=split.name)]


def into_socket(seen: Observed) -> list[Account]:
    """Between the receiving NIC and the capture socket: XDP, and fanout defragmentation."""
    port = seen.capture_port
    found = xdp(seen.capture, port, into="socket")
    if seen.defrag:
        found += defragmented(seen, sum(account.packets for account in found) + seen.cut_packets)
    found += cut_vlan_tags(seen.cut_packets, _missing(seen, found), into="socket")
    if (missing := _missing(seen, found)) is not None:
        found += generic_xdp(seen.capture, port, missing, into="socket")
    if own := _sent_by_the_receiver(seen, found):
        found.append(own)
    not_for_us = seen.capture.link(port, "rx_dropped")
    if not_for_us > 0:
        found.append(
            Account(
                into="socket",
                kind=Class.NOT_FOR_US,
                name="rx_dropped_unhandled",
                packets=not_for_us,
                counter=f"rx_dropped of {port} (rtnl_link_stats64)",
                evidence="frames that no protocol of the kernel takes, counted after the capture "
                "socket has seen them",
            )
        )
    return found


def _missing(seen: Observed, others: list[Account]) -> int | None:
    """What arrived, was not captured and is in no class yet; None before the SUT has said."""
    if seen.sut.captured_packets is None:
        return None
    missing = seen.arrived_packets - seen.sut.captured_packets
    return missing - sum(account.packets for account in others)


def _sent_by_the_receiver(seen: Observed, others: list[Account]) -> Account | None:
    """A capture socket is handed what its own host sends out of the port as well."""
    port = seen.capture_port
    missing = _missing(seen, others)
    own = 0 if missing is None else min(-missing, seen.capture.link(port, "tx_packets"))
    if own <= 0:
        return None
    return Account(
        into="socket",
        kind=Class.FOREIGN,
        name="rx_foreign_outgoing",
        packets=own,
        counter=f"tx_packets of {port} (rtnl_link_stats64)",
        evidence="the receiving host itself sent packets out of the port it captures on",
        knob="find who sends there: nothing should (no address, no IPv6, no ARP)",
    )


def defragmented(seen: Observed, elsewhere_packets: int) -> list[Account]:
    """What PACKET_FANOUT_FLAG_DEFRAG took out: no drop counter shows it, Ip Reasm* does.

    The kernel says how many fragments went in (ReasmReqds) and how many datagrams came out
    (ReasmOKs); only the trace says which fragments belong to datagrams that never become whole.
    The kernel's figures are the namespace's: what the receiver's own stack took is taken off.
    """
    requests, done = seen.capture.ip("ReasmReqds"), seen.capture.ip("ReasmOKs")
    again = _by_the_stack(seen.capture)
    ahead = requests - done - again
    kernel = f"ReasmReqds {requests} - ReasmOKs {done} = {requests - done} (/proc/net/snmp)"
    counter = "Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
    knob = 'sut.defrag = "no"'
    simulated = seen.fragments
    by_the_trace = _by_the_trace_alone(seen, elsewhere_packets, ahead, requests - done)
    if by_the_trace:
        kernel += ", with what a filter of the receiver's hides: exactly the trace's is missing"
        counter = "of the trace, within Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
    elif again:
        kernel += f", of which the receiver's own stack took {again} (broadcast, multicast)"
        counter += f", less its stack's {STACK_COUNTERS}"
    if simulated is None or not (by_the_trace or simulated.missing_packets == ahead):
        said = "" if simulated is None else f"; the trace, whole, says {simulated.missing_packets}"
        return _some(
            Account(
                into="socket",
                kind=Class.MERGED,
                name="rx_merged_fanout_defrag",
                packets=max(0, ahead),
                counter=counter,
                evidence=f"{kernel}{said}; merged and held cannot be told apart",
                knob=knob,
            )
        )
    absorbed, datagrams = simulated.absorbed_packets, simulated.datagrams
    return _some(
        Account(
            into="socket",
            kind=Class.MERGED,
            name="rx_merged_fanout_defrag",
            packets=absorbed - datagrams,
            counter=counter,
            evidence=f"{kernel}; {absorbed} fragments became {datagrams} datagrams",
            knob=knob,
            details=(("fragments", absorbed), ("datagrams", datagrams)),
        ),
        Account(
            into="socket",
            kind=Class.HELD,
            name="rx_held_incomplete_datagrams",
            packets=simulated.held_packets,
            counter=counter,
            evidence=f"{kernel}; fragments whose datagram never becomes whole (from the trace): "
            "the kernel keeps them for net.ipv4.ipfrag_time and throws them away",
            knob=knob,
        ),
    )


def _by_the_trace_alone(
    seen: Observed, elsewhere_packets: int, ahead_packets: int, taken_packets: int
) -> bool:
    """Where the receiver filters packets (a firewall drops what its stack was to deliver, conntrack
    reassembles before it is routed), its part cannot be read. Then the trace tells, where that is
    exactly what is missing, and no more than the kernel says was taken out in all."""
    simulated, captured = seen.fragments, seen.sut.captured_packets
    if simulated is None or captured is None:
        return False
    missing = seen.arrived_packets - elsewhere_packets - captured
    return simulated.missing_packets == missing <= taken_packets and missing != ahead_packets


STACK_COUNTERS = "IpExt InBcastPkts + InMcastPkts - Ip InDelivers - InUnknownProtos"


def _by_the_stack(receiver: Readings) -> int:
    """What the receiver's own reassembly took out: 0.0.0.0 to broadcast passes any rp_filter.

    Linux counts a packet for itself twice: as it is routed, fragment by fragment (IpExt), and as
    it is handed to its protocol, put together (Ip). Nothing else is for itself where no port has an
    address; where one has, more is handed on than broadcast and multicast, and this says nothing.
    """
    routed = receiver.ip("InBcastPkts", table="IpExt") + receiver.ip("InMcastPkts", table="IpExt")
    return max(0, routed - receiver.ip("InDelivers") - receiver.ip("InUnknownProtos"))


def into_decoded(seen: Observed) -> list[Account]:
    dropped = seen.sut.dropped_ring_full_packets
    if not dropped:
        return []
    return [
        Account(
            into="decoded",
            kind=Class.LOST,
            name="rx_dropped_ring_full",
            place=Place.SOCKET_RING,
            packets=dropped,
            counter=seen.sut.sources.get("dropped_ring_full_packets", "tp_drops"),
        )
    ]


def _some(*found: Account) -> list[Account]:
    return [account for account in found if account.packets > 0]
