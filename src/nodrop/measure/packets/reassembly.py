"""Packets that the receiving kernel's reassembly took out: put together, kept, or refused.

PACKET_FANOUT_FLAG_DEFRAG puts IPv4 fragments together ahead of the capture sockets. No drop counter
shows that, the Ip Reasm* counters do: how many fragments went in (ReasmReqds), how many datagrams
came out (ReasmOKs), how often it gave up (ReasmFails). Only the trace says which fragments belong
to datagrams that never become whole, and how many datagrams a kernel that refuses nothing makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from nodrop.config.units import noun
from nodrop.ledger.hops import Account, Class
from nodrop.ledger.places import KERNEL, NEUTRAL, Knobs
from nodrop.load.seam import Fragments
from nodrop.measure.packets.readings import Readings

COUNTER = "Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
REASSEMBLY_LOST = "rx_dropped_reassembly"
STACK_COUNTERS = "IpExt InBcastPkts + InMcastPkts - Ip InDelivers - InUnknownProtos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembled:
    """Reassembly as the kernel counted it, and what the trace says of it."""

    requests: int
    done: int
    again: int
    """Taken out by the receiver's own stack, in the same counters."""
    refused: int
    """Times it gave up that neither time, overlaps nor the trace's own faults explain: no memory,
    or too many other fragments of the source in between."""
    timed_out: int
    """Datagrams thrown away for their time, beyond those of the trace that never become whole."""
    memory: Mapping[str, int | None]
    """Reading of the probe after the trial: `memory_bytes`, `high_thresh_bytes` …"""
    trace: Fragments | None

    @property
    def ahead(self) -> int:
        """Packets fewer, ahead of the capture sockets."""
        return self.requests - self.done - self.again

    @property
    def full(self) -> bool:
        """Above its limit of memory at the end: it refuses all until datagrams time out."""
        held, limit = self.memory.get("memory_bytes"), self.memory.get("high_thresh_bytes")
        return held is not None and limit is not None and held > limit

    @property
    def kernel(self) -> str:
        taken = self.requests - self.done
        return f"ReasmReqds {self.requests} - ReasmOKs {self.done} = {taken} (/proc/net/snmp)"


def reassembled(receiver: Readings, trace: Fragments | None) -> Reassembled:
    known = trace or Fragments(offered_packets=0, absorbed_packets=0, datagrams=0, held_packets=0)
    timeouts, overlaps = receiver.ip("ReasmTimeout"), receiver.ip("ReasmOverlaps", table="IpExt")
    fails = receiver.ip("ReasmFails") - timeouts - overlaps
    return Reassembled(
        requests=receiver.ip("ReasmReqds"),
        done=receiver.ip("ReasmOKs"),
        again=_by_the_stack(receiver),
        refused=max(0, fails - (known.fails - known.timeouts - known.overlaps)),
        timed_out=max(0, timeouts - known.timeouts),
        memory=cast(Mapping[str, int | None], receiver.after.get("reassembly") or {}),
        trace=trace,
    )


def accounts(
    found: Reassembled, missing_packets: int | None, knobs: Knobs = NEUTRAL
) -> list[Account]:
    """`missing_packets`: what the sockets lack that nothing else explains; None = not known yet."""
    trace, kernel, counter = found.trace, found.kernel, COUNTER
    by_the_trace = _by_the_trace_alone(found, missing_packets)
    if by_the_trace:
        kernel += ", with what a filter of the receiver's hides: exactly the trace's is missing"
        counter = "of the trace, within Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
    elif found.again:
        kernel += f", of which the receiver's own stack took {found.again} (broadcast, multicast)"
        counter += f", less its stack's {STACK_COUNTERS}"
    if trace is not None and (by_the_trace or trace.missing_packets == found.ahead):
        return _of_the_trace(trace, kernel, counter, knobs)
    if trace is not None and _went_in_whole(found, trace) and found.ahead > trace.missing_packets:
        return [
            *_of_the_trace(trace, kernel, counter, knobs),
            *_not_put_together(found, trace, knobs),
        ]
    lost = min(found.refused, max(0, found.ahead)) if found.full else 0
    said = "" if trace is None else f"; the trace, whole, says {trace.missing_packets}"
    return _some(
        Account(
            into="socket",
            kind=Class.MERGED,
            name="rx_merged_fanout_defrag",
            packets=max(0, found.ahead) - lost,
            counter=counter,
            evidence=f"{kernel}{said}; merged and held cannot be separated",
            knob=knobs.defrag,
        ),
        _lost(found, lost, f"{lost} {noun(lost, 'fragment')} refused", knobs),
    )


def look_at(found: Reassembled) -> str:
    """Beside a residual: reassembly that made less than it should and counted no failure."""
    trace = found.trace
    if trace is None or not _went_in_whole(found, trace):
        return ""
    short = found.ahead - trace.missing_packets - found.refused - found.timed_out
    if short <= 0:
        return ""
    return (
        f"reassembly put {found.done} of {trace.datagrams} datagrams together "
        f"and counted only {found.refused + found.timed_out} failures"
    )


def _went_in_whole(found: Reassembled, trace: Fragments) -> bool:
    """Nothing else was counted, and no fragment was lost on the way in."""
    return not found.again and found.requests == trace.offered_packets


def _of_the_trace(trace: Fragments, kernel: str, counter: str, knobs: Knobs) -> list[Account]:
    absorbed, datagrams = trace.absorbed_packets, trace.datagrams
    return _some(
        Account(
            into="socket",
            kind=Class.MERGED,
            name="rx_merged_fanout_defrag",
            packets=absorbed - datagrams,
            bytes=trace.merged_bytes,
            counter=counter,
            evidence=f"{kernel}; {absorbed} fragments became {datagrams} "
            f"{noun(datagrams, 'datagram')}",
            knob=knobs.defrag,
            details=(("fragments", absorbed), ("datagrams", datagrams)),
        ),
        Account(
            into="socket",
            kind=Class.HELD,
            name="rx_held_incomplete_datagrams",
            packets=trace.held_packets,
            bytes=trace.held_bytes,
            counter=counter,
            evidence=f"{kernel}; fragments whose datagram never becomes whole (from the trace): "
            "the kernel keeps them for net.ipv4.ipfrag_time and throws them away",
            knob=knobs.defrag,
        ),
    )


def _not_put_together(found: Reassembled, trace: Fragments, knobs: Knobs) -> list[Account]:
    """Datagrams that the trace has whole and the kernel did not make: as many as failures say."""
    lost = min(found.ahead - trace.missing_packets, found.refused + found.timed_out)
    return _some(
        _lost(
            found,
            lost,
            f"{found.done} of {trace.datagrams} whole datagrams were put together",
            knobs,
        )
    )


def _lost(found: Reassembled, packets: int, what: str, sut: Knobs) -> Account:
    held, limit = found.memory.get("memory_bytes"), found.memory.get("high_thresh_bytes")
    said = [what]
    knobs = []
    if found.refused:
        said.append(f"ReasmFails {found.refused} without timeouts and overlaps")
        by_memory = f"it held {held} bytes at the end, net.ipv4.ipfrag_high_thresh is {limit}"
        said.append(by_memory if found.full else "its memory was not full at the end")
        knobs.append("ipfrag_high_thresh" if found.full else "ipfrag_max_dist")
    if found.timed_out:
        said.append(f"ReasmTimeout {found.timed_out} more than the trace explains")
        knobs.append("ipfrag_time")
    return Account(
        into="socket",
        kind=Class.LOST,
        name=REASSEMBLY_LOST,
        place=KERNEL,
        packets=packets,
        counter="Ip ReasmFails, ReasmOKs (/proc/net/snmp of the receiver) and the trace",
        evidence="; ".join(said),
        knob=" and ".join(f"net.ipv4.{knob}" for knob in knobs)
        + f" of the receiver, or {sut.defrag}",
    )


def _by_the_trace_alone(found: Reassembled, missing_packets: int | None) -> bool:
    """If the receiver filters packets (a firewall drops what its stack was to deliver, conntrack
    reassembles before routing), its part cannot be read. Then the trace's own count is used, if it
    is exactly what is missing, and no more than the kernel says was taken out in all."""
    if found.trace is None or missing_packets is None or missing_packets == found.ahead:
        return False
    return found.trace.missing_packets == missing_packets <= found.requests - found.done


def _by_the_stack(receiver: Readings) -> int:
    """Packets taken out by the receiver's own reassembly: 0.0.0.0 to broadcast passes any
    rp_filter.

    Linux counts a packet for itself twice: as it is routed, fragment by fragment (IpExt), and as
    it is handed to its protocol, put together (Ip). Nothing else is for itself if no port has an
    address; if one has, more is handed on than broadcast and multicast, and this says nothing.
    """
    routed = receiver.ip("InBcastPkts", table="IpExt") + receiver.ip("InMcastPkts", table="IpExt")
    return max(0, routed - receiver.ip("InDelivers") - receiver.ip("InUnknownProtos"))


def _some(*found: Account) -> list[Account]:
    return [account for account in found if account.packets > 0]
