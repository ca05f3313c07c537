"""Hops and accounts of what a virtual machine puts between the NIC and the capture socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nodrop.hosts.seam import Host, rise
from nodrop.ledger.hops import SOFTNET, Account, Class, Hop, Owner, Place, WaitsFor
from nodrop.protocol.events import Counters
from nodrop.setups.docker import MACVLAN, macvtap_books
from nodrop.setups.seam import PlaceReading
from nodrop.untrusted.words import making_sense

LOOPBACK = "lo"
MACVTAP_QUEUE = Place(
    name="macvtap queue",
    owner=Owner.SETUP,
    counter="rx_dropped of the macvtap (rtnl_link_stats64)",
    source="Linux drivers/net/tap.c (tap_handle_frame): QEMU fetches from it for the guest",
    knob="setup.txqueuelen for bursts; more host CPU for QEMU, or a faster guest",
    waits_for=WaitsFor.EMULATOR,
)
GUEST_SOFTNET = Place(
    name="guest softnet backlog",
    owner=Owner.SETUP,
    counter="dropped in the guest's /proc/net/softnet_stat",
    source=f"{SOFTNET.source}, in the guest",
    knob=f"in the guest: {SOFTNET.knob}",
    waits_for=WaitsFor.CPU,
)
AHEAD_OF_A_GUEST = (MACVLAN, MACVTAP_QUEUE, GUEST_SOFTNET)
"""In the order of a packet's way."""


def guest_reading(guest: Host, nic: str) -> Counters:
    return guest.probe("counters", ports=[nic, LOOPBACK])["counters"]


@making_sense("a reading of the guest")
def vm_books(
    nic: str, macvtap: str, guest_nic: str, before: PlaceReading, after: PlaceReading
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """NIC → macvtap → its queue, emptied by QEMU → the virtio ring → the guest's NIC and softnet.

    Every frame that reaches the macvtap ends in its queue or is dropped there: while QEMU holds it
    open, none goes on to the host's protocols, so its rx_dropped has one meaning. QEMU stops
    fetching if the guest's receive ring is full: a slow guest, too, shows in this queue, and the
    ring itself loses nothing.
    """
    dropped = rise(before["macvtap"], after["macvtap"], macvtap, "rx_dropped")
    (macvtap_hop,), accounts = macvtap_books(nic, macvtap, before, after)
    ring = Hop(
        name="virtio_ring",
        packets=None,
        counter="none: QEMU leaves in the macvtap's queue what the ring has no room for",
    )
    guest = Hop(
        name="guest_nic",
        packets=rise(before["guest"], after["guest"], guest_nic, "rx_packets"),
        counter=f"rx_packets of {guest_nic} in the guest (rtnl_link_stats64)",
    )
    softnet, in_softnet = softnet_books(guest_nic, before, after)
    hops = (macvtap_hop, ring, guest, softnet)
    accounts = (*accounts, *in_softnet)
    if dropped <= 0:
        return hops, accounts
    length = after["macvtap"]["links"][macvtap]["tx_queue_length"]
    lost = Account(
        into="guest_nic",
        kind=Class.LOST,
        name="rx_dropped_macvtap_queue",
        place=MACVTAP_QUEUE,
        packets=dropped,
        counter=f"rx_dropped of {macvtap} (rtnl_link_stats64)",
        evidence=f"rx_dropped of {macvtap}, whose queue holds {length} packets, {dropped}",
        knob=MACVTAP_QUEUE.knob,
    )
    return hops, (*accounts, lost)


@making_sense("a reading of the guest")
def softnet_books(
    nic: str, before: PlaceReading, after: PlaceReading
) -> tuple[Hop, Sequence[Account]]:
    """From the guest's NIC to where its kernel hands frames to the capture sockets.

    /proc/net/softnet_stat counts a frame as processed ahead of the taps, of whatever port, the
    loopback included. The backlog lies on the way only if the guest spreads frames over its CPUs
    (RPS). A program in the driver (native XDP) takes frames before they get here.
    """
    program = after["guest"]["links"][nic].get("xdp")
    native = program is not None and program["mode"] == "native"
    processed = _softnet(before, after, "processed")
    if LOOPBACK in after["guest"]["links"]:
        processed -= rise(before["guest"], after["guest"], LOOPBACK, "rx_packets")
    hop = Hop(
        name="guest_softnet",
        packets=None if native else processed,
        counter="processed in /proc/net/softnet_stat of the guest, all CPUs, without its loopback",
    )
    dropped = _softnet(before, after, "dropped")
    if dropped <= 0:
        return hop, ()
    lost = Account(
        into="guest_softnet",
        kind=Class.LOST,
        name="rx_dropped_guest_backlog",
        place=GUEST_SOFTNET,
        packets=dropped,
        counter="dropped in /proc/net/softnet_stat of the guest, all CPUs",
        evidence=f"dropped rose by {dropped} in the guest's /proc/net/softnet_stat",
        knob=GUEST_SOFTNET.knob,
    )
    return hop, (lost,)


@making_sense("a reading of the guest")
def queued_packets(macvtap: str, guest_nic: str, reading: PlaceReading) -> int:
    """Handed to the macvtap, not dropped, and not yet in the guest; both began at zero."""
    outside = reading["macvtap"]["links"][macvtap]["stats"]
    inside = reading["guest"]["links"][guest_nic]["stats"]
    return int(outside["rx_packets"] - outside["rx_dropped"] - inside["rx_packets"])


def _softnet(
    before: PlaceReading, after: PlaceReading, column: Literal["processed", "dropped"]
) -> int:
    then, now = (sum(row[column] for row in side["guest"]["softnet"]) for side in (before, after))
    return now - then
