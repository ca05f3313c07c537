"""The places where packets can die: one entry each, which setups, labs and SUTs add to.

The host's own stand here. An entry goes with the account of what was lost there; findings,
verdicts, records and docs/reference/places.md take their words from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Owner(StrEnum):
    """Who puts a place on a packet's way."""

    HOST = "host"
    SETUP = "setup"
    SUT = "SUT"


class WaitsFor(StrEnum):
    """The thing that packets wait for at a place. It decides which causes of losses can be
    named."""

    NOTHING = "nothing"
    """They are refused or filtered as they come."""
    CPU = "a CPU"
    """A CPU for the kernel's own work: softirqs, kernel workers."""
    EMULATOR = "its emulator"
    """A thread that works for the SUT, and fetches for a slow one no faster than that reads."""
    THREAD = "a thread of the SUT"
    """Whose counters may say when packets were lost."""


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
"""For a SUT that names no words of its own."""


def places_of(plugin: object) -> Sequence[Place]:
    """The places a setup or a SUT names; a plugin may name none."""
    found: Sequence[Place] = getattr(plugin, "places", ())
    return found


def ring_of(sut: object) -> Place:
    """The ring of a SUT: with the SUT's own words for its settings, or with neutral ones."""
    return next((p for p in places_of(sut) if p.waits_for is WaitsFor.THREAD), SOCKET_RING)


ON_EVERY_HOST = (SENDER, BETWEEN, PATH, RECEIVING_PORT, NIC, SOFTNET, KERNEL)
"""In the order of a packet's way."""
