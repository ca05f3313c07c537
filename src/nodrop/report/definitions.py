"""What the ledger's counters mean, in the words of docs/reference/counters.md (a test compares)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEFINITIONS: Mapping[str, str] = MappingProxyType(
    {
        "intended": ("the schedule, not an observation"),
        "sent": (
            "what send() accepted. On veth ENOBUFS is a loss on the way, seen by the sender; "
            "a retry after it makes tx_dropped rise without a loss"
        ),
        "tx_nic": ("on veth counted by the driver after the peer took it"),
        "rx_nic": (
            "on veth equal to the peer's tx_packets; anything else was lost, or came from "
            "another sender, on the cable. Frames that XDP consumed are counted or not "
            "depending on the driver"
        ),
        "softnet": (
            "of the whole machine, not of one network namespace. One veth loss may be counted "
            "here and in tx_dropped of the sender's port: one loss, two counters"
        ),
        "socket": (
            "includes tp_drops (Suricata's manual says otherwise about "
            "capture.kernel_packets). Proved on each kernel by probe af_packet"
        ),
        "read": (
            "tp_packets - tp_drops. Suricata's counters step every 3 s; only the exit record "
            "is final"
        ),
        "tx_refused_ERRNO": (
            "send() refused the frame (EMSGSIZE: longer than the MTU). Not the SUT's matter"
        ),
        "tx_unsent_never_attempted": ("the end came before the frame's turn"),
        "tx_dropped_backlog": ("the receiver's backlog (net.core.netdev_max_backlog) was full"),
        "tx_dropped_device": (
            "refused between the ports: a receiving port that was down or takes no frames so "
            "long, or a device without room; the evidence says what counters show of it"
        ),
        "tx_dropped_accepted": ("as tx_dropped_device, after send() had accepted the frame"),
        "rx_dropped_nic": ("the NIC had no host buffer (rx_missed_errors)"),
        "rx_dropped_reassembly": (
            "datagrams that the trace has whole and the kernel did not put together, because it "
            "refused fragments (memory, distance) or their time was over; a packet each"
        ),
        "tx_dropped_filter": ("nft or tc egress threw it away"),
        "tx_foreign": ("another sender used our port"),
        "path_lost": ("what two ends of a cable disagree about happened on it"),
        "path_foreign": ("what two ends of a cable disagree about happened on it"),
        "rx_dropped_xdp": ("an XDP program dropped it"),
        "rx_dropped_vlan_cut": (
            "frames that end within their VLAN tag: the kernel frees them ahead of every tap "
            "(skb_vlan_untag) and counts them nowhere"
        ),
        "rx_dropped_unhandled": ("see rx_dropped below: never a loss of the IDS"),
        "rx_merged_fanout_defrag": (
            "fragments that a fanout group with PACKET_FANOUT_FLAG_DEFRAG put together: n "
            "fragments go in, 1 packet comes out, nothing is lost"
        ),
        "rx_held_incomplete_datagrams": (
            "fragments of datagrams that never became whole. The kernel keeps and then frees "
            "them: a loss that no drop counter shows"
        ),
        "rx_dropped_macvtap_queue": (
            "its queue (txqueuelen, 500) was full: QEMU did not fetch in time, as it had no CPU "
            "or the guest's receive ring was full"
        ),
        "rx_dropped_guest_backlog": (
            "the backlog that the guest puts frames into for another CPU (RPS) was full. "
            "Hop guest_softnet is processed of all its CPUs, without its loopback"
        ),
        "rx_merged_macvlan_defrag": (
            "a macvlan or macvtap puts fragments to broadcast and multicast addresses together "
            "before it hands them on (IP_DEFRAG_MACVLAN), whatever the capture asks for"
        ),
        "rx_dropped_macvlan_queue": (
            "frames to a group wait for a worker of the kernel in a queue of bcqueuelen (1000) "
            "frames"
        ),
        "bridge_dropped_source_mac": (
            'with setup.splitter = "bridge": a bridge drops frames that come from a group address '
            "or from 00:00:00:00:00:00 (MAC_INVALID_SOURCE); no interface counts them"
        ),
        "bridge_dropped_netfilter": (
            "br_netfilter drops frames whose IP header is not good (Ip.InHdrErrors, "
            "Ip6InHdrErrors and InTruncatedPkts say so too); "
            'setup.bridge_netfilter = "no" lets them pass'
        ),
        "bridge_dropped_no_way": (
            "the destination is the bridge's own address, or lies where the frame came from"
        ),
        "split_dropped_backlog": ("as tx_dropped_backlog, at the split"),
        "split_copied": 'once more for each further receiver (setup.splitter = "copy")',
        "rx_foreign_outgoing": (
            "the receiving port itself sent; an ETH_P_ALL socket also gets what its own host sends"
        ),
        "rx_vlan_tag": (
            "the outermost VLAN tag, 4 bytes, which the kernel takes off before any tap "
            "(skb_vlan_untag) and hands over beside the frame. In the balance of bytes alone, "
            "as the next two"
        ),
        "rx_cut_ring_slot": (
            "frames longer than a slot (TPACKET_V2) or a block (V3) of the SUT's ring has "
            "room for: the SUT has their beginning"
        ),
        "rx_padding": (
            "frames shorter than an Ethernet wire carries, which a NIC fills with zeros; "
            "virtual ports do not"
        ),
        "rx_invalid": (
            "packets with at least one broken header: they are decoded all the same. In no balance"
        ),
        "rx_dropped_ring_full": (
            "no free frame in the capture ring. Invisible to skb:kfree_skb while the IP stack "
            "holds the packet as well: the socket's owner is the only witness"
        ),
    }
)


def definition(name: str) -> str:
    """Empty if the page has none: an account of a plugin's own."""
    if name.startswith("tx_refused_"):
        name = "tx_refused_ERRNO"
    return DEFINITIONS.get(name, "")
