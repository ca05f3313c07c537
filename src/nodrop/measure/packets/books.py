"""Hops and accounts of one trial's packet books, made from what was read at each place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nodrop.ledger.hops import (
    ADDING,
    KERNEL,
    NIC,
    PATH,
    REFUSED,
    SOCKET_RING,
    Account,
    Class,
    Hop,
    Place,
)
from nodrop.measure.packets import reassembly
from nodrop.measure.packets.readings import (
    VETH,
    Ends,
    Readings,
    carrier_changes,
    refused,
    too_small_mtu,
)
from nodrop.measure.packets.reassembly import FrameFacts, Room, cut, invalid, wrong_checksums
from nodrop.testbed.load.api import AtTap, Fragments, OfferedLoad
from nodrop.testbed.suts.api import SutCounters


def xdp(readings: Readings, port: str, *, into: str) -> list[Account]:
    """Account of the drops that a driver counts if it runs the program itself; [] if there are
    none."""
    drops = readings.ethtool(port, "xdp_drops")
    return [_xdp(port, drops, into, f"ethtool -S {port}: xdp_drops of all queues")] if drops else []


def uncounted_xdp(readings: Readings, port: str) -> str:
    """A program that the kernel runs for the driver may drop, and no counter says so (none in Linux
    up to 6.18: BPF statistics count its runs, not its drops)."""
    program = readings.xdp(port)
    if program is None or program.get("mode") != "generic":
        return ""
    return (
        f"XDP program {program['program_id']} is attached to {port} in generic mode: "
        "the kernel counts its drops nowhere"
    )


def cut_vlan_tags(
    cut_packets: int, missing_packets: int | None, *, lost_before: int, into: str
) -> list[Account]:
    """A frame that ends within its VLAN tag is freed ahead of every tap (skb_vlan_untag, Linux 6.x)
    and no counter of the kernel says so: only the trace knows that there were such frames. A kernel
    frees all of them or none, so fewer missing than the trace has prove something else; but up to
    `lost_before` of them may have been lost on the way. `missing_packets` is None if what was
    captured is not known yet."""
    packets = cut_packets if missing_packets is None else min(cut_packets, missing_packets)
    if packets <= 0 or packets < cut_packets - lost_before:
        return []
    return [
        Account(
            into=into,
            kind=Class.LOST,
            name="rx_dropped_vlan_cut",
            place=KERNEL,
            packets=packets,
            counter="the trace: frames that end within their VLAN tag",
            evidence=f"the trace sends {cut_packets:,} frames that end within their VLAN tag; the "
            "kernel frees such a frame before any capture socket sees it and counts it nowhere",
            knob="take these frames out of the trace: no IDS on Linux is ever handed them",
        )
    ]


def _xdp(port: str, packets: int, into: str, counter: str) -> Account:
    return Account(
        into=into,
        kind=Class.LOST,
        name="rx_dropped_xdp",
        place=PATH,
        packets=packets,
        counter=counter,
        knob=f"ip link show {port}: the XDP program attached there",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that was counted during one trial, place by place."""

    tx_ports: Sequence[str]
    nic_ports: Sequence[str]
    """Ports of the receiving NIC, one for each cable."""
    capture_ports: Sequence[str]
    """Ports of the SUT's sockets; several share what came in at `nic_ports`."""
    offered: OfferedLoad
    tx: Readings
    nic: Readings
    """Readings of the receiving NICs."""
    capture: Readings
    """Readings of the interface and namespace the SUT captures in; the NIC's own if bare."""
    between: tuple[Sequence[Hop], Sequence[Account]]
    """Hops and accounts of what the setup puts between `nic` and `capture`."""
    sut: SutCounters
    defrag: bool
    fragments: Fragments | None
    """Fragments of the load sent whole; None if it was cut short."""
    never_at_tap_packets: int = 0
    """Frames of the trace that no capture socket can be handed (testbed/load/api.py), at most."""
    longest_frame_bytes: int | None = None
    """Longest frame of the trace; None = not known."""
    at_tap: AtTap | None = None
    """Frames of the load sent whole, if they reach the sockets by one way; None = not known."""
    room: Room | None = None
    ring: Place = SOCKET_RING
    """The SUT's ring, with what the SUT calls its settings."""
    sut_places: Sequence[Place] = ()
    """All places of the SUT."""
    split: bool = False
    """Several instances or ports share the packets."""
    split_keeps_frames: bool = False
    """The split hands each frame to one receiver, as it came, and nothing else is on the way."""
    several: bool = False
    """Several instances do: what is taken out before each one's sockets is in `between`."""
    ignores_outgoing: bool = False
    """The SUT's sockets are not handed what the receiving host sends as part of the load."""
    takes_frames: bool = False
    """The SUT's frames go to no protocol (AF_XDP): rx_dropped counts what its socket had no room
    for."""
    sender_here: bool = True
    """The sender is on this host, and under its quotas."""

    @property
    def cut_packets(self) -> int:
        """Frames of `never_at_tap_packets` that send() took."""
        return max(0, self.never_at_tap_packets - self.offered.refused_packets.get("einval", 0))

    @property
    def handed_packets(self) -> int:
        """Packets given to the sender's kernel: sent, or accepted and dropped there (ENOBUFS)."""
        return self.offered.sent_packets + self.offered.refused_packets.get("enobufs", 0)

    @property
    def lost_before_packets(self) -> int:
        """Packets lost on the way to the last place before the sockets: some of any kind of
        frame."""
        return max(0, self.handed_packets - self.arrived_packets)

    @property
    def ends(self) -> Ends:
        return Ends(
            tx=self.tx,
            tx_ports=self.tx_ports,
            rx=self.nic,
            rx_ports=self.nic_ports,
            longest_frame_bytes=self.longest_frame_bytes,
        )

    @property
    def expected_captured_packets(self) -> int:
        """Packets that the capture sockets should have been handed by now."""
        found = [] if self.several else into_socket(self)
        found += [a for a in self.between[1] if a.into == "socket"]
        return self.arrived_packets - _taken(a for a in found if a.kind is not Class.NOT_FOR_US)

    @property
    def arrived_packets(self) -> int:
        """Packets at the last place before the capture sockets that can be read."""
        readable = [hop.packets for hop in self.between[0] if hop.packets is not None]
        if not readable and not self.nic_ports:
            return self.tx.link(self.tx_ports, "tx_packets")
        return readable[-1] if readable else self.nic.link(self.nic_ports, "rx_packets")


def hops(seen: Observed) -> list[Hop]:
    tx = seen.tx_ports
    received = received_hops(seen)
    said = filter(
        None,
        (
            too_small_mtu(seen.ends),
            carrier_changes(seen.ends),
            *seen.nic.said_by_drivers(seen.nic_ports),
        ),
    )
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
            bytes=seen.offered.sent_bytes,
        ),
        Hop(
            name="tx_nic",
            packets=seen.tx.link(tx, "tx_packets"),
            counter=f"tx_packets of {', '.join(tx)} (rtnl_link_stats64)",
            bytes=_bytes_of_veth(seen.tx, tx, "tx_bytes", seen.nic, seen.nic_ports)
            if seen.ends.kind == VETH
            else None,
        ),
        replace(received[0], look_at="; ".join(said)),
        *received[1:],
    ]


def received_hops(seen: Observed) -> list[Hop]:
    """Hops from the receiving NIC on: of one instance among several, its own part of the way."""
    nics, sut = seen.nic_ports, seen.sut
    between = list(seen.between[0])
    tap = [uncounted_xdp(seen.capture, port) for port in seen.capture_ports]
    if between:
        ahead = filter(None, (uncounted_xdp(seen.nic, nic) for nic in nics))
        between[0] = replace(between[0], look_at="; ".join(ahead))
        tap = tap if not set(nics) & set(seen.capture_ports) else []
    if seen.defrag and not seen.several:
        tap.append(reassembly.look_at(reassembly.reassembled(seen.capture, seen.fragments)))
    return [
        Hop(
            name="rx_nic",
            packets=seen.nic.link(nics, "rx_packets") if nics else None,
            counter=f"rx_packets of {', '.join(nics)} (rtnl_link_stats64)"
            if nics
            else "no driver of the kernel has the NIC, and its own counters are the SUT's",
            wire=True,
            bytes=_bytes_of_veth(seen.nic, nics, "rx_bytes", seen.nic, nics),
        ),
        *between,
        Hop(
            name="socket",
            packets=sut.captured_packets,
            counter=sut.sources.get("captured_packets", "the SUT's capture counter"),
            look_at="; ".join(filter(None, tap)),
        ),
        Hop(
            name="decoded",
            packets=sut.decoded_packets,
            counter=sut.sources.get("decoded_packets", "the SUT's decoder counter"),
            bytes=sut.decoded_bytes if _bytes_compare(seen) else None,
        ),
    ]


def _bytes_compare(seen: Observed) -> bool:
    """Frames are those of the trace unless fragments were put together on the way; a bridge takes
    such datagrams apart again, and no counter says so."""
    if seen.between[0] and not seen.split_keeps_frames:
        merged = any(a.kind in (Class.MERGED, Class.HELD) and a.packets for a in seen.between[1])
        may_be_other = seen.split and (not seen.fragments or seen.fragments.offered_packets)
        if merged or may_be_other:
            return False
    return seen.sut.counts_wire_bytes or seen.at_tap is not None


def _bytes_of_veth(
    readings: Readings,
    ports: Sequence[str],
    counter: str,
    receiver: Readings,
    receiving: Sequence[str],
) -> int | None:
    """A veth counts whole frames, but without their Ethernet header if the receiving end runs
    NAPI (an XDP program, GRO). Other drivers pad, strip tags or add the check sequence."""
    napi = any(receiver.ethtool(port, "xdp_packets") for port in receiving)
    if readings.kinds(ports) != {VETH} or napi:
        return None
    return readings.link(ports, counter)


def accounts(seen: Observed) -> list[Account]:
    found = [
        *into_sent(seen),
        *into_tx_nic(seen),
        *into_rx_nic(seen),
        *seen.between[1],
        *(ahead_of_split(seen) if seen.split else ()),
        *(() if seen.several else into_socket(seen)),
        *into_decoded(seen),
    ]
    sut, at_tap = seen.sut, seen.at_tap
    if at_tap is not None and _bytes_compare(seen):
        frames = FrameFacts(
            at_tap=at_tap,
            sut=sut,
            arrived_packets=seen.arrived_packets - seen.cut_packets,
            room=seen.room,
            on_veth=seen.ends.kind == VETH,
        )
        found = frames.accounts(found)
    else:
        found += cut(sut, None, seen.room, at_tap, longest_bytes=seen.longest_frame_bytes)
    return [*found, *invalid(sut, at_tap), *wrong_checksums(sut)]


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
            name=f"{REFUSED}{reason}",
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
    """Accounts between send() and the sender's NIC. What was refused is lost, whatever the port
    sent for others; and what the port sent beyond the accepted sends is foreign, whatever was
    refused."""
    ports, names = seen.tx_ports, ", ".join(seen.tx_ports)
    enobufs = seen.offered.refused_packets.get("enobufs", 0)
    dropped = seen.tx.link(ports, "tx_dropped")
    beyond = seen.tx.link(ports, "tx_packets") - seen.offered.sent_packets
    found = []
    if by_device := min(enobufs, dropped):
        account = refused(
            seen.ends,
            by_device,
            name="tx_dropped_device",
            counter=f"generator: ENOBUFS, within tx_dropped of {names} (rtnl_link_stats64)",
        )
        found.append(replace(account, bytes=0))
    if filtered := enobufs - by_device:
        found.append(
            Account(
                into="tx_nic",
                kind=Class.LOST,
                name="tx_dropped_filter",
                place=PATH,
                packets=filtered,
                bytes=0,
                counter=f"generator: ENOBUFS, and {names} counted neither sent nor dropped",
                evidence="only a filter on the way out (nft or tc egress) drops uncounted",
                knob="nft list ruleset; "
                + "; ".join(f"tc filter show dev {port} egress" for port in ports),
            )
        )
    accepted = min(-beyond, dropped - by_device)
    if accepted > 0:
        counter = f"tx_dropped of {names} (rtnl_link_stats64), beyond the refused sends"
        found.append(refused(seen.ends, accepted, name="tx_dropped_accepted", counter=counter))
    if beyond > 0:
        found.append(
            Account(
                into="tx_nic",
                kind=Class.FOREIGN,
                name="tx_foreign",
                packets=beyond,
                counter=f"tx_packets of {names} beyond the accepted sends",
            )
        )
    return found


def into_rx_nic(seen: Observed) -> list[Account]:
    """NICs say themselves what they had no host buffer for. Not every driver says it in
    rx_missed_errors: what its own counters have beside that is taken as far as packets are missing.
    """
    ports = seen.nic_ports
    if not ports:
        return []
    missed = seen.nic.link(ports, "rx_missed_errors")
    lost = seen.tx.link(seen.tx_ports, "tx_packets") - seen.nic.link(ports, "rx_packets")
    more = min(seen.nic.lost_beyond(ports), max(0, lost - missed))
    if missed + more <= 0:
        return []
    beside = f", and {more} more by its driver (ethtool -S)" if more else ""
    return [
        Account(
            into="rx_nic",
            kind=Class.LOST,
            name="rx_dropped_nic",
            place=NIC,
            packets=missed + more,
            counter=f"rx_missed_errors of {', '.join(ports)} (rtnl_link_stats64){beside}",
            evidence="; ".join(seen.nic.said_by_drivers(ports)),
        )
    ]


def ahead_of_split(seen: Observed) -> list[Account]:
    """Accounts between the receiving NIC and the split: what the kernel takes out before any hook
    of the split."""
    split, ports = seen.between[0][0], seen.nic_ports
    assert split.packets is not None
    missing = seen.nic.link(ports, "rx_packets") - split.packets
    missing -= _taken(a for a in seen.between[1] if a.into == split.name)
    found = [a for port in ports for a in xdp(seen.nic, port, into=split.name)]
    missing -= sum(account.packets for account in found)
    lost_before = max(0, seen.handed_packets - seen.nic.link(ports, "rx_packets"))
    cut = cut_vlan_tags(seen.cut_packets, missing, lost_before=lost_before, into=split.name)
    return [*found, *cut]


def into_socket(seen: Observed) -> list[Account]:
    """Accounts between the receiving NIC and the capture socket: XDP, and fanout
    defragmentation."""
    found = [a for port in seen.capture_ports for a in xdp(seen.capture, port, into="socket")]
    # A split takes frames out that end within their VLAN tag.
    cut_packets = 0 if seen.split else seen.cut_packets
    own = _sent_by_the_receiver(seen)
    if seen.defrag:
        missing = _missing(seen, [*found, *own])
        found += reassembly.accounts(
            reassembly.reassembled(seen.capture, seen.fragments),
            None if missing is None else missing - cut_packets,
            seen.ring.knobs,
        )
    found += cut_vlan_tags(
        cut_packets,
        _missing(seen, [*found, *own]),
        lost_before=seen.lost_before_packets,
        into="socket",
    )
    found += own
    not_for_us = 0 if seen.takes_frames else seen.capture.unhandled(seen.capture_ports)
    if not_for_us > 0:
        found.append(
            Account(
                into="socket",
                kind=Class.NOT_FOR_US,
                name="rx_dropped_unhandled",
                packets=not_for_us,
                counter=f"rx_dropped of {_names(seen)} (rtnl_link_stats64)",
                evidence="frames that no protocol of the kernel takes, counted after the capture "
                "socket has seen them",
            )
        )
    return found


def _missing(seen: Observed, others: list[Account]) -> int | None:
    """Packets that arrived, were not captured and have no class yet; None until the SUT has
    said."""
    if seen.sut.captured_packets is None:
        return None
    return seen.arrived_packets - seen.sut.captured_packets - _taken(others)


def _taken(accounts: Iterable[Account]) -> int:
    """Packets that they take out; what an account adds counts against it."""
    return sum(-a.packets if a.kind in ADDING else a.packets for a in accounts)


def _sent_by_the_receiver(seen: Observed) -> list[Account]:
    """A capture socket is handed what its own host sends out of the port as well. Whether it was
    (PACKET_QDISC_BYPASS passes by the taps) no counter says: a trial with such packets is void."""
    names = _names(seen)
    own, answered = _of_ports(seen, "tx_packets"), seen.offered.answered_packets or 0
    if own <= 0 or (seen.ignores_outgoing and own <= answered):
        return []
    ours = Account(
        into="socket",
        kind=Class.ANSWERED,
        name="rx_answered",
        packets=min(own, answered),
        bytes=_of_ports(seen, "tx_bytes") if own == answered else None,
        counter=f"tx_packets of {names} (rtnl_link_stats64)",
        evidence=f"the receiving host's stack sent {answered:,} packets of the load "
        "(/proc/net/snmp)",
    )
    if own <= answered:
        return [ours]
    own -= answered
    return [
        *([ours] if answered else ()),
        Account(
            into="socket",
            kind=Class.FOREIGN,
            name="rx_foreign_outgoing",
            packets=own,
            counter=f"tx_packets of {names} (rtnl_link_stats64)",
            evidence=f"the receiving host itself sent packets out of {names}, on which it captures",
            knob="find who sends there: nothing should (no address, no IPv6, no ARP)",
        ),
    ]


def _of_ports(seen: Observed, counter: str) -> int:
    return seen.capture.link(seen.capture_ports, counter)


def _names(seen: Observed) -> str:
    return ", ".join(seen.capture_ports)


def into_decoded(seen: Observed) -> list[Account]:
    dropped, sources = seen.sut.dropped_ring_full_packets, seen.sut.sources
    ring = Account(
        into="decoded",
        kind=Class.LOST,
        name="rx_dropped_ring_full",
        place=seen.ring,
        packets=dropped or 0,
        counter=sources.get("dropped_ring_full_packets", "tp_drops"),
    )
    places = {place.name: place for place in seen.sut_places}
    within = [
        Account(
            into="decoded",
            kind=Class.LOST,
            name=f"rx_dropped_{re.sub('[^a-z0-9]+', '_', name.lower())}",
            place=places.get(name),
            packets=packets,
            counter=sources.get(f"lost.{name}_packets", name),
            knob=places[name].knob if name in places else "",
        )
        for name, packets in seen.sut.lost.items()
    ]
    return [account for account in (ring, *within) if account.packets]
