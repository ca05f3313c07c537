"""From what was read at each place to the hops and accounts of one trial's packet books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodrop.lab.seam import Json
from nodrop.ledger.hops import Account, Class, Hop, Place
from nodrop.load.seam import Fragments, OfferedLoad
from nodrop.suts.seam import SutCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One host's counters (node job `probe`, word `counters`) before and after the traffic."""

    before: Json
    after: Json

    def link(self, port: str, counter: str) -> int:
        before, after = (side["links"][port]["stats"] for side in (self.before, self.after))
        return int(after[counter]) - int(before[counter])

    def ip(self, counter: str) -> int:
        """From /proc/net/snmp, its line "Ip"."""
        name = f"Ip.{counter}"
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
    def handed_packets(self) -> int:
        """Given to the sender's kernel: sent, or accepted and dropped there (ENOBUFS)."""
        return self.offered.sent_packets + self.offered.refused_packets.get("enobufs", 0)

    @property
    def expected_captured_packets(self) -> int:
        """What the capture sockets should have been handed by now."""
        found = [*into_socket(self), *(a for a in self.between[1] if a.into == "socket")]
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
        *into_socket(seen),
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


def into_socket(seen: Observed) -> list[Account]:
    """Between the receiving NIC and the capture socket: XDP, and fanout defragmentation."""
    if seen.several:
        return []
    port = seen.capture_port
    found = []
    xdp_drops = seen.capture.ethtool(port, "xdp_drops")
    if xdp_drops:
        found.append(_xdp(port, xdp_drops, counter=f"ethtool -S {port}: xdp_drops of all queues"))
    if seen.defrag:
        found += defragmented(seen, xdp_drops + _never_at_tap(seen))
    if cut := _cut_vlan_tags(seen, found):
        found.append(cut)
    if uncounted := _uncounted_by_generic_xdp(seen, found):
        found.append(uncounted)
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


def _xdp(port: str, packets: int, *, counter: str, evidence: str = "") -> Account:
    return Account(
        into="socket",
        kind=Class.LOST,
        name="rx_dropped_xdp",
        place=Place.PATH,
        packets=packets,
        counter=counter,
        evidence=evidence,
        knob=f"ip link show {port}: the XDP program attached there",
    )


def _cut_vlan_tags(seen: Observed, others: list[Account]) -> Account | None:
    """A frame that ends within its VLAN tag is freed ahead of every tap (skb_vlan_untag, Linux 6.x)
    and no counter of the kernel says so: only the trace knows that there were such frames."""
    dropped = _never_at_tap(seen)
    if seen.sut.captured_packets is not None:
        missing = seen.arrived_packets - seen.sut.captured_packets
        dropped = min(dropped, missing - sum(account.packets for account in others))
    if dropped <= 0:
        return None
    return Account(
        into="socket",
        kind=Class.LOST,
        name="rx_dropped_vlan_cut",
        place=Place.KERNEL,
        packets=dropped,
        counter="the trace: frames that end within their VLAN tag",
        evidence="inferred: the kernel frees such a frame before any capture socket sees it and "
        f"counts it nowhere; the trace sends {seen.never_at_tap_packets}",
        knob="take these frames out of the trace: no IDS on Linux is ever handed them",
    )


def _never_at_tap(seen: Observed) -> int:
    """Of those that no capture socket is handed, the ones that send() did take."""
    return max(0, seen.never_at_tap_packets - seen.offered.refused_packets.get("einval", 0))


def _uncounted_by_generic_xdp(seen: Observed, others: list[Account]) -> Account | None:
    """A generic XDP program drops ahead of the tap and no counter of the kernel says so."""
    port = seen.capture_port
    program = seen.capture.xdp(port)
    if program is None or program.get("mode") != "generic" or seen.sut.captured_packets is None:
        return None
    missing = seen.arrived_packets - seen.sut.captured_packets
    missing -= sum(account.packets for account in others)
    if missing <= 0:
        return None
    return _xdp(
        port,
        missing,
        counter=f"rx_packets of {port} minus what its capture sockets were handed",
        evidence=f"inferred: XDP program {program['program_id']} is attached to {port} "
        "in generic mode, where drops are counted nowhere",
    )


def _sent_by_the_receiver(seen: Observed, others: list[Account]) -> Account | None:
    """A capture socket is handed what its own host sends out of the port as well."""
    port = seen.capture_port
    if seen.sut.captured_packets is None:
        return None
    arrived = seen.arrived_packets - sum(account.packets for account in others)
    own = min(seen.sut.captured_packets - arrived, seen.capture.link(port, "tx_packets"))
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
    The kernel's figures are the namespace's: where the receiver's own stack reassembles as well
    (broadcast, multicast), the trace alone says what happened ahead of the socket.
    """
    requests, done = seen.capture.ip("ReasmReqds"), seen.capture.ip("ReasmOKs")
    kernel = f"ReasmReqds {requests} - ReasmOKs {done} = {requests - done} (/proc/net/snmp)"
    counter = "Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
    knob = 'sut.defrag = "no"'
    simulated = seen.fragments
    if shared := _shared_with_the_stack(seen, requests, done, elsewhere_packets):
        return _some(shared)
    if simulated is None or not _agrees(seen, simulated, requests - done, elsewhere_packets):
        said = "" if simulated is None else f"; the trace, whole, says {simulated.missing_packets}"
        return _some(
            Account(
                into="socket",
                kind=Class.MERGED,
                name="rx_merged_fanout_defrag",
                packets=max(0, requests - done),
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


def _shared_with_the_stack(
    seen: Observed, requests: int, done: int, elsewhere_packets: int
) -> Account | None:
    """Where the receiver's own stack reassembled as well, and copies of the trace met in an order
    that nobody planned (several tcpreplays): neither the kernel's sums nor the trace say what
    happened ahead of the socket, but together they bound it.

    Every fragment was offered ahead of the socket, so the kernel's requests beyond these were the
    stack's, and it can have made at most one datagram of two of them. A difference outside of that
    stays a residual.
    """
    simulated, captured = seen.fragments, seen.sut.captured_packets
    arrived = seen.arrived_packets
    if simulated is None or captured is None or arrived != seen.offered.intended_packets:
        return None
    of_the_stack = requests - simulated.offered_packets
    if of_the_stack <= 0 or _agrees(seen, simulated, requests - done, elsewhere_packets):
        return None
    missing = arrived - elsewhere_packets - captured
    by_the_stack = done - (simulated.offered_packets - missing)
    if not 0 <= by_the_stack <= min(done, of_the_stack // 2):
        return None
    return Account(
        into="socket",
        kind=Class.MERGED,
        name="rx_merged_fanout_defrag",
        packets=missing,
        counter="arrived - captured, within the bounds of Ip ReasmReqds and ReasmOKs",
        evidence=f"inferred: ReasmReqds {requests}, of which {simulated.offered_packets} are the "
        f"trace's fragments ahead of the socket and {of_the_stack} the receiver's own stack's "
        f"(broadcast, multicast); ReasmOKs {done}, of which the stack can have made "
        f"{of_the_stack // 2} at most, and has made {by_the_stack}; merged and held cannot be "
        "told apart",
        knob='sut.defrag = "no"',
    )


def _agrees(seen: Observed, simulated: Fragments, kernel: int, elsewhere_packets: int) -> bool:
    if simulated.missing_packets == kernel:
        return True
    if seen.sut.captured_packets is None:
        return False
    return (
        seen.arrived_packets - elsewhere_packets - seen.sut.captured_packets
        == simulated.missing_packets
    )


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
