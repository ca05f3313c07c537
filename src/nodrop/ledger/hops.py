"""The words of the packet books: places where packets can die, hops and accounts.

The host's own places stand here; setups, labs and SUTs add theirs. An entry goes with the account
of what was lost there; findings, verdicts, records and docs/reference/places.md take words from it.
`DEFINITIONS` says what each hop and account of nodrop's own counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from nodrop.ledger.quantities import Count, Signed


class Owner(StrEnum):
    """The part that puts a place on a packet's way."""

    HOST = "host"
    SETUP = "setup"
    SUT = "SUT"


class WaitsFor(StrEnum):
    """The thing that packets wait for at a place. It decides which causes of losses can be
    named."""

    NOTHING = "nothing"
    """Packets are refused or filtered as they come."""
    CPU = "a CPU"
    """A CPU for the kernel's own work: softirqs, kernel workers."""
    EMULATOR = "its emulator"
    """A thread that works for the SUT, and fetches for a slow one no faster than that reads."""
    THREAD = "a thread of the SUT"
    """The place whose counters may say when packets were lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """A SUT's names for its settings. The defaults are words that fit any SUT."""

    ring: str = "a larger capture ring"
    threads: str = "more capture threads"
    workers: str = "more workers"
    fewer_threads: str = "fewer threads"
    less_work: str = "less work per packet"
    cpus: str = "limits.cpus"
    defrag: str = "no fanout defragmentation"


NEUTRAL = Knobs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place where packets can die."""

    name: str
    """The name in a verdict: "lost in the <name>"."""
    owner: Owner | None = Owner.HOST
    """None: not known, of a place that no entry describes."""
    within_sut: bool = False
    """A packet lost here had arrived at the SUT's sockets. Every other place lies before the SUT:
    what is lost there did not arrive."""
    counter: str = ""
    """The counter of the losses, and where it is read."""
    source: str = ""
    """The file and function that drop: the kernel's, or the SUT's own."""
    knob: str = ""
    """The setting that affects the losses, if the account itself names none."""
    waits_for: WaitsFor = WaitsFor.NOTHING
    knobs: Knobs = NEUTRAL
    """Settings of the SUT that owns the place."""

    def __str__(self) -> str:
        return self.name


SENDER = Place(
    name="sender",
    counter="tx_dropped of the sending NIC (rtnl_link_stats64)",
    source="Linux net/core/dev.c (__dev_queue_xmit) and the NIC's driver",
    knob="txqueuelen, a lower load",
)
BETWEEN = Place(
    name="link between the ports",
    counter="tx_dropped of the sending port (rtnl_link_stats64), and no counter shows which end",
    source="Linux drivers/net/veth.c (veth_xmit)",
    knob="look at both ports (ip -s -s link show): carrier, MTU, their drop counters",
)
PATH = Place(
    name="path",
    counter="sending NIC's tx_packets - receiving NIC's rx_packets; send() answered ENOBUFS and no "
    "port counted it; xdp_drops (ethtool -S)",
    source="a filter, cable or switch: Linux net/core/dev.c (sch_handle_egress, nf_hook_egress), "
    "XDP programs",
    knob="look at the link between the sending and the receiving NIC: "
    "filters (nft, tc, XDP), cable errors, a switch",
)
RECEIVING_PORT = Place(
    name="receiving port",
    counter="tx_dropped of the sending port, beside the receiving port's MTU and carrier changes; "
    "rx_dropped beyond rx_packets of the receiving one",
    source="Linux net/core/dev.c (__dev_forward_skb): it was down, or takes no frames so long",
    knob="ip link show of the port: its MTU, and what took it down",
)
NIC = Place(
    name="receiving NIC",
    counter="rx_missed_errors of the receiving NIC (rtnl_link_stats64)",
    source="the NIC, whose driver had no buffer ready (Linux drivers/net/ethernet)",
    knob="larger NIC ring (ethtool -G), more queues, or fewer packets per second",
    waits_for=WaitsFor.CPU,
)
SOFTNET = Place(
    name="softnet backlog",
    counter="dropped in /proc/net/softnet_stat",
    source="Linux net/core/dev.c (enqueue_to_backlog)",
    knob="net.core.netdev_max_backlog, or spread interrupts over more CPUs (RPS)",
    waits_for=WaitsFor.CPU,
)
KERNEL = Place(
    name="kernel ahead of the tap",
    counter="ReasmFails, ReasmTimeout in /proc/net/snmp; the trace, of frames cut in a VLAN tag",
    source="Linux net/ipv4/ip_fragment.c (ip_defrag), net/core/skbuff.c (skb_vlan_untag)",
    knob="net.ipv4.ipfrag_high_thresh, ipfrag_max_dist, ipfrag_time; take cut frames out of the "
    "trace",
)


def socket_ring(knobs: Knobs = NEUTRAL, *, counter: str = "", source: str = "") -> Place:
    """The ring of a packet socket, which the SUT sizes and a thread of it empties."""
    return Place(
        name="socket ring",
        owner=Owner.SUT,
        within_sut=True,
        counter=counter or "tp_drops (PACKET_STATISTICS), as the SUT reports it",
        source=f"Linux net/packet/af_packet.c (tpacket_rcv){source and '; ' + source}",
        knob=f"{knobs.ring} for bursts; {knobs.threads} or {knobs.less_work} "
        "if a thread has no time left",
        waits_for=WaitsFor.THREAD,
        knobs=knobs,
    )


SOCKET_RING = socket_ring()
"""The ring of a SUT that names no words of its own."""


def places_of(plugin: object) -> Sequence[Place]:
    """The places a setup or a SUT names; a plugin may name none."""
    places: Sequence[Place] = getattr(plugin, "places", ())
    return places


def ring_of(sut: object) -> Place:
    """The ring of a SUT: with the SUT's own words for its settings, or with neutral ones."""
    return next((p for p in places_of(sut) if p.waits_for is WaitsFor.THREAD), SOCKET_RING)


ON_EVERY_HOST = (SENDER, BETWEEN, PATH, RECEIVING_PORT, NIC, SOFTNET, KERNEL)
"""Places in the order of a packet's way."""


class Class(StrEnum):
    """Why packets counted at one hop are not counted at the next."""

    UNSENT = "unsent"
    """Intended but never given to the wire: the generator's matter, not the SUT's."""
    LOST = "lost"
    MERGED = "merged"
    """Fragments taken out of the stream by fanout defragmentation and put back as one datagram."""
    HELD = "held"
    """Fragments of datagrams that never became whole: kept, then thrown away, by the kernel."""
    FOREIGN = "foreign"
    """Packets that the generator did not send."""
    COPIED = "copied"
    """Packets that a split handed on once more, to another receiver: it was asked to."""
    ANSWERED = "answered"
    """Packets of the load that the receiving host itself sent: a capture socket sees both ways."""
    NOT_FOR_US = "not-for-us"
    """Packets counted as dropped after the tap has seen them: no loss, never in the balance."""
    SHORTENED = "shortened"
    """Went on with fewer bytes: in the balance of bytes alone."""
    PADDED = "padded"
    """Went on with more bytes: in the balance of bytes alone."""
    INVALID = "invalid"
    """Broken headers, says the decoder, which has them all the same: never in the balance."""
    CHECKSUM = "checksum"
    """Decoded, and left out of the SUT's streams for a wrong checksum: never in the balance."""


ADDING = frozenset({Class.FOREIGN, Class.COPIED, Class.ANSWERED})
"""Classes that put packets into the stream; every other balanced class takes them out."""
BYTES_ALONE = frozenset({Class.SHORTENED, Class.PADDED})
"""Classes of packets that came and went on, with other bytes."""
LISTED = frozenset({Class.NOT_FOR_US, Class.INVALID, Class.CHECKSUM})
"""Classes in no balance."""
NO_PACKETS = BYTES_ALONE | LISTED
"""Classes in no balance of packets."""

CUT = "rx_cut_ring_slot"
"""The account of frames that a ring had no room for: the SUT has their beginnings."""
PATH_LOST = "path_lost"
PATH_FOREIGN = "path_foreign"
"""The two accounts a `wire` hop derives from its counters."""


def _named(name: object) -> object:
    return Place(name=name, owner=None) if isinstance(name, str) and name else name or None


PlaceByName = Annotated[
    Place | None, BeforeValidator(_named), PlainSerializer(lambda place: str(place or ""))
]
"""A place, of which a file has the name alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A place that counted packets during one trial."""

    name: str
    """intended, sent, tx_nic, rx_nic, socket, decoded; setups add theirs (macvtap, guest_nic …)."""
    packets: Count | None
    """None = nothing there can be read ("not visible from the host")."""
    bytes: Signed | None = None
    """Bytes of whole Ethernet frames without their check sequence; None = the hop counts other
    bytes, or none. Where packets are sent: bytes of the frames that the kernel took."""
    counter: str
    """The counter that was read, e.g. "rx_packets of ndrx0 (rtnl_link_stats64)"."""
    wire: bool = False
    """The way to this hop is a cable: what is missing here was lost on it, by definition."""
    look_at: str = ""
    """Stages that may take packets on the way to this hop and count none: named beside a
    difference, and never in place of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One class of packets on the way to a hop."""

    into: str
    """Name of the hop before which they went."""
    kind: Class
    name: str
    """<direction>_<event>_<reason>, as in `DEFINITIONS`; a plugin's own is not there."""
    packets: Count
    """Always >= 0; `ADDING` classes put packets into the next hop, the others take them out."""
    bytes: Signed | None = None
    """Bytes of these packets, among the bytes of the hop before; None = not counted. In
    `BYTES_ALONE` classes: the bytes that were taken off or put on."""
    bytes_between: tuple[Signed, Signed] | None = None
    """The least and the most that `bytes` can be by the lengths of the trace's frames; None =
    nothing is known of them, or `bytes` is."""
    counter: str
    evidence: str = ""
    knob: str = ""
    """The setting with which a user can change `packets`."""
    place: PlaceByName = None
    """The place where they died; None = on the way into the hop."""
    details: tuple[tuple[str, Signed], ...] = field(default=())
    """Numbers that make up `packets`, e.g. fragments absorbed and datagrams given back."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The meaning of a hop or account, in the words of the page and of docs/reference/places.md."""

    name: str
    kind: Class | None
    """Class of an account's packets; None: a hop."""
    counted_by: str
    meaning: str


DEFINITIONS = (
    Definition(
        "intended", None, "`replay` result `intended_packets`",
        "the schedule, not an observation",
    ),
    Definition(
        "sent", None, "`sent_packets`",
        "what `send()` accepted. On veth ENOBUFS is a loss on the way, seen by the sender; a "
        "retry after it makes `tx_dropped` rise without a loss",
    ),
    Definition(
        "tx_nic", None, "`links.PORT.stats.tx_packets`",
        "on veth counted by the driver after the peer took it",
    ),
    Definition(
        "rx_nic", None, "`links.PORT.stats.rx_packets`",
        "on veth equal to the peer's `tx_packets`; anything else was lost, or came from another "
        "sender, on the cable. Frames that XDP consumed are counted or not depending on the "
        "driver",
    ),
    Definition(
        "socket", None, "`tp_packets`",
        "includes `tp_drops`. Proved on each kernel by `probe af_packet`",
    ),
    Definition(
        "decoded", None, "the SUT's last count of the packets that it read",
        "`tp_packets - tp_drops`, if the SUT read its ring to the end",
    ),
    Definition(
        "tx_refused_ERRNO", Class.UNSENT, "generator",
        "`send()` refused the frame (EMSGSIZE: longer than the MTU). Not the SUT's matter",
    ),
    Definition(
        "tx_unsent_never_attempted", Class.UNSENT, "generator",
        "the end came before the frame's turn",
    ),
    Definition(
        "tx_dropped_backlog", Class.LOST,
        "`tx_dropped` of the sender's veth, `softnet[].dropped` as witness",
        "the receiver's backlog (`net.core.netdev_max_backlog`) was full",
    ),
    Definition(
        "tx_dropped_device", Class.LOST,
        "ENOBUFS, within `tx_dropped` of the sender's port; MTU, `carrier_changes` and "
        "`rx_dropped` of both ends as witnesses",
        "refused between the ports: a receiving port that was down or takes no frames so long, or "
        "a device without room; the evidence says what counters show of it",
    ),
    Definition(
        "tx_dropped_accepted", Class.LOST,
        "`tx_dropped` of the sender's port beyond the refused sends",
        "as tx_dropped_device, after send() had accepted the frame",
    ),
    Definition(
        "tx_dropped_filter", Class.LOST, "ENOBUFS without `tx_dropped`",
        "nft or tc egress threw it away",
    ),
    Definition(
        "tx_foreign", Class.FOREIGN, "`tx_packets` beyond the accepted sends",
        "another sender used our port",
    ),
    Definition(
        "path_lost", Class.LOST, "`tx_packets` of one end − `rx_packets` of the other",
        "what two ends of a cable disagree about happened on it",
    ),
    Definition(
        "path_foreign", Class.FOREIGN, "`tx_packets` of one end − `rx_packets` of the other",
        "what two ends of a cable disagree about happened on it",
    ),
    Definition(
        "rx_dropped_nic", Class.LOST,
        "`rx_missed_errors` of the receiving port, and what its driver counts beside it",
        "the NIC had no host buffer (rx_missed_errors)",
    ),
    Definition(
        "rx_dropped_xdp", Class.LOST, "`ethtool.rx_queue_N_xdp_drops`",
        "an XDP program dropped it",
    ),
    Definition(
        "rx_dropped_vlan_cut", Class.LOST, "the trace",
        "frames that end within their VLAN tag: the kernel frees them ahead of every tap "
        "(`skb_vlan_untag`) and counts them nowhere",
    ),
    Definition(
        "rx_dropped_unhandled", Class.NOT_FOR_US, "`rx_dropped` of the receiving port",
        "frames that no protocol of the host takes, counted after the taps have seen them: never a "
        "loss of the IDS",
    ),
    Definition(
        "rx_merged_fanout_defrag", Class.MERGED, "`Ip.ReasmReqds`, `Ip.ReasmOKs`, the trace",
        "fragments that a fanout group with PACKET_FANOUT_FLAG_DEFRAG put together: n fragments "
        "go in, 1 packet comes out, nothing is lost",
    ),
    Definition(
        "rx_held_incomplete_datagrams", Class.HELD, "the trace; `Ip.ReasmTimeout` up to 30 s later",
        "fragments of datagrams that never became whole. The kernel keeps and then frees them: a "
        "loss that no drop counter shows",
    ),
    Definition(
        "rx_dropped_reassembly", Class.LOST,
        "`Ip.ReasmFails`, `Ip.ReasmTimeout`, `Ip.ReasmOKs`, the trace",
        "datagrams that the trace has whole and the kernel did not put together, because it "
        "refused fragments (memory, distance) or their time was over; a packet each",
    ),
    Definition(
        "rx_dropped_macvtap_queue", Class.LOST,
        "`rx_dropped` of the macvtap under a virtual machine",
        "its queue (`txqueuelen`, 500) was full: QEMU did not fetch in time, as it had no CPU or "
        "the guest's receive ring was full",
    ),
    Definition(
        "bridge_dropped_source_mac", Class.LOST, "nft netdev ingress of the receiving port",
        'with `setup.splitter = "bridge"`: a bridge drops frames that come from a group address '
        "or from 00:00:00:00:00:00 (MAC_INVALID_SOURCE); no interface counts them",
    ),
    Definition(
        "bridge_dropped_netfilter", Class.LOST,
        "nft in the bridge family, before and after br_netfilter",
        "br_netfilter drops frames whose IP header is not good (`Ip.InHdrErrors`, "
        '`Ip6InHdrErrors` and `InTruncatedPkts` say so too); `setup.bridge_netfilter = "no"` lets '
        "them pass",
    ),
    Definition(
        "bridge_dropped_no_way", Class.LOST,
        "nft in the bridge family, out of prerouting less into forward",
        "the destination is the bridge's own address, or lies where the frame came from",
    ),
    Definition(
        "rx_dropped_guest_backlog", Class.LOST,
        "`dropped` in `/proc/net/softnet_stat` of the guest",
        "the backlog that the guest puts frames into for another CPU (RPS) was full. Hop "
        "`guest_softnet` is `processed` of all its CPUs, without its loopback",
    ),
    Definition(
        "split_copied", Class.COPIED, "a counter of nft at the front of the receiving port",
        'once more for each further receiver (setup.splitter = "copy")',
    ),
    Definition(
        "split_dropped_backlog", Class.LOST,
        "`tx_dropped` of the ports that hand packets to instances",
        "as `tx_dropped_backlog`, at the split",
    ),
    Definition(
        "rx_merged_macvlan_defrag", Class.MERGED, "`Ip.ReasmReqds - Ip.ReasmOKs` where the NIC is",
        "a macvlan or macvtap puts fragments to broadcast and multicast addresses together before "
        "it hands them on (IP_DEFRAG_MACVLAN), whatever the capture asks for",
    ),
    Definition(
        "rx_dropped_macvlan_queue", Class.LOST,
        "`rx_dropped` of the NIC below, as far as the macvtap lacks packets",
        "frames to a group wait for a worker of the kernel in a queue of `bcqueuelen` (1000) "
        "frames",
    ),
    Definition(
        "rx_answered", Class.ANSWERED,
        "`tx_packets` of the receiving port, as far as its host's stack sent so many "
        "(`Tcp.OutSegs + RetransSegs + Udp.OutDatagrams`, with offloads `Ip.OutRequests`)",
        "a capture socket sees both ways of a load that the receiver answers (iperf3); what it "
        "loses of either is lost",
    ),
    Definition(
        "rx_foreign_outgoing", Class.FOREIGN, "`tx_packets` of the receiving port",
        "the receiving port itself sent; an ETH_P_ALL socket also gets what its own host sends",
    ),
    Definition(
        "rx_vlan_tag", Class.SHORTENED, "the trace",
        "the outermost VLAN tag, 4 bytes, which the kernel takes off before any tap "
        "(`skb_vlan_untag`) and hands over beside the frame. In the balance of bytes alone, as "
        "the next two",
    ),
    Definition(
        "rx_cut_ring_slot", Class.SHORTENED,
        "the SUT; the trace's lengths and the room in the ring",
        "frames longer than a slot (TPACKET_V2) or a block (V3) of the SUT's ring has room for: "
        "the SUT has their beginning",
    ),
    Definition(
        "rx_padding", Class.PADDED, "the trace",
        "frames shorter than an Ethernet wire carries, which a NIC fills with zeros; virtual "
        "ports do not",
    ),
    Definition(
        "rx_invalid", Class.INVALID, "the SUT's decoder",
        "packets with at least one broken header: they are decoded all the same. In no balance",
    ),
    Definition(
        "rx_checksum", Class.CHECKSUM, "the SUT",
        "packets with a wrong TCP checksum: they are decoded, and left out of streams. In no "
        "balance",
    ),
    Definition(
        "rx_dropped_ring_full", Class.LOST, "`tp_drops`",
        "no free frame in the capture ring. Invisible to `skb:kfree_skb` while the IP stack holds "
        "the packet as well: the socket's owner is the only witness",
    ),
)  # fmt: skip
"""Hops and accounts in the order of a packet's way."""
REFUSED = "tx_refused_"
"""Beginning of the accounts of refused sends, one for each errno."""


def definition(name: str) -> Definition | None:
    """None: a hop or account of a plugin's own."""
    name = f"{REFUSED}ERRNO" if name.startswith(REFUSED) else name
    return next((one for one in DEFINITIONS if one.name == name), None)
