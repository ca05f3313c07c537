"""What a kernel takes out ahead of every tap and hook: XDP programs, and frames cut in a VLAN tag.

A driver that runs the program itself counts the first; if the kernel runs it, nothing does. The
second are known only from the trace.
"""

from __future__ import annotations

from nodrop.ledger.hops import Account, Class
from nodrop.ledger.places import KERNEL, PATH
from nodrop.measure.packets.readings import Readings


def xdp(readings: Readings, port: str, *, into: str) -> list[Account]:
    """What a driver counts that runs the program itself."""
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
            evidence=f"the trace sends {cut_packets} frames that end within their VLAN tag; the "
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
