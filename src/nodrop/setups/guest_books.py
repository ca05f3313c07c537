"""What a virtual machine puts between the NIC and the capture socket, as hops and accounts."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.lab.seam import Json
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.setups.macvtap import macvtap_books

QUEUE_PLACE = "macvtap queue"


def vm_books(
    nic: str, macvtap: str, guest_nic: str, before: Json, after: Json
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """NIC → macvtap → its queue, emptied by QEMU → the guest's NIC.

    Every frame that reaches the macvtap ends in its queue or is dropped there: while QEMU holds it
    open, none goes on to the host's protocols, so its rx_dropped has one meaning. QEMU stops
    fetching where the guest's receive ring is full: a slow guest, too, shows in this queue.
    """
    dropped = _rise(before, after, "macvtap", macvtap, "rx_dropped")
    (macvtap_hop,), accounts = macvtap_books(nic, macvtap, before, after)
    guest = Hop(
        name="guest_nic",
        packets=_rise(before, after, "guest", guest_nic, "rx_packets"),
        counter=f"rx_packets of {guest_nic} in the guest (rtnl_link_stats64)",
    )
    hops = (macvtap_hop, guest)
    if dropped <= 0:
        return hops, accounts
    length = after["macvtap"]["links"][macvtap]["tx_queue_length"]
    lost = Account(
        into="guest_nic",
        kind=Class.LOST,
        name="rx_dropped_macvtap_queue",
        place=QUEUE_PLACE,
        packets=dropped,
        counter=f"rx_dropped of {macvtap} (rtnl_link_stats64)",
        evidence=f"rx_dropped of {macvtap}, whose queue holds {length} packets, {dropped}",
        knob="setup.txqueuelen for bursts; more host CPU for QEMU, or a faster guest",
    )
    return hops, (*accounts, lost)


def queued_packets(macvtap: str, guest_nic: str, reading: Json) -> int:
    """Handed to the macvtap, not dropped, and not yet in the guest; both began at zero."""
    outside = reading["macvtap"]["links"][macvtap]["stats"]
    inside = reading["guest"]["links"][guest_nic]["stats"]
    return int(outside["rx_packets"] - outside["rx_dropped"] - inside["rx_packets"])


def _rise(before: Json, after: Json, place: str, port: str, counter: str) -> int:
    then, now = (int(side[place]["links"][port]["stats"][counter]) for side in (before, after))
    return now - then
