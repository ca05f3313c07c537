"""Packets that the receiving kernel's reassembly took out: put together, kept, or refused.

PACKET_FANOUT_FLAG_DEFRAG puts IPv4 fragments together ahead of the capture sockets. No drop counter
shows that, the Ip Reasm* counters do: how many fragments went in (ReasmReqds), how many datagrams
came out (ReasmOKs), how often it gave up (ReasmFails). Only the trace says which fragments belong
to datagrams that never become whole, and how many datagrams a kernel that refuses nothing makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from nodrop.config.units import count_of
from nodrop.ledger.balance import Lengths, beyond, bytes_in, bytes_of_some, packets_in
from nodrop.ledger.hops import CUT, KERNEL, NEUTRAL, Account, Class, Knobs
from nodrop.measure.packets.readings import Readings
from nodrop.testbed.load.api import AtTap, Fragments
from nodrop.testbed.suts.api import SutCounters

COUNTER = "Ip ReasmReqds - ReasmOKs (/proc/net/snmp of the receiver)"
REASSEMBLY_LOST = "rx_dropped_reassembly"
STACK_COUNTERS = "IpExt InBcastPkts + InMcastPkts - Ip InDelivers - InUnknownProtos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembled:
    """Reassembly as the kernel counted it, and what the trace says of it."""

    requests: int
    done: int
    again: int
    """Packets taken out by the receiver's own stack, in the same counters."""
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
        """The memory was above its limit at the end: reassembly refuses all until datagrams time
        out."""
        held, limit = self.memory.get("memory_bytes"), self.memory.get("high_thresh_bytes")
        return held is not None and limit is not None and held > limit

    @property
    def kernel(self) -> str:
        taken = self.requests - self.done
        return f"ReasmReqds {self.requests:,} - ReasmOKs {self.done:,} = {taken:,} (/proc/net/snmp)"


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
        kernel += f", of which the receiver's own stack took {found.again:,} (broadcast, multicast)"
        counter += f", less its stack's {STACK_COUNTERS}"
    if trace is not None and (by_the_trace or trace.missing_packets == found.ahead):
        return _of_the_trace(trace, kernel, counter, knobs)
    if trace is not None and _went_in_whole(found, trace) and found.ahead > trace.missing_packets:
        return [
            *_of_the_trace(trace, kernel, counter, knobs),
            *_not_put_together(found, trace, knobs),
        ]
    lost = min(found.refused, max(0, found.ahead)) if found.full else 0
    said = "" if trace is None else f"; the trace, whole, says {trace.missing_packets:,}"
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
        _lost(found, lost, f"{count_of(lost, 'fragment')} refused", knobs),
    )


def look_at(found: Reassembled) -> str:
    """Words beside a residual, if reassembly made less than it should and counted no failure."""
    trace = found.trace
    if trace is None or not _went_in_whole(found, trace):
        return ""
    short = found.ahead - trace.missing_packets - found.refused - found.timed_out
    if short <= 0:
        return ""
    return (
        f"reassembly put {found.done:,} of {trace.datagrams:,} datagrams together "
        f"and counted only {found.refused + found.timed_out:,} failures"
    )


def _went_in_whole(found: Reassembled, trace: Fragments) -> bool:
    """No fragment was lost on the way in, and nothing else was counted."""
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
            evidence=f"{kernel}; {absorbed:,} fragments became {count_of(datagrams, 'datagram')}",
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
            f"{found.done:,} of {trace.datagrams:,} whole datagrams were put together",
            knobs,
        )
    )


def _lost(found: Reassembled, packets: int, what: str, sut: Knobs) -> Account:
    held, limit = found.memory.get("memory_bytes"), found.memory.get("high_thresh_bytes")
    said = [what]
    knobs = []
    if found.refused:
        said.append(f"ReasmFails {found.refused:,} without timeouts and overlaps")
        said.append(
            f"it held {held:,} bytes at the end, net.ipv4.ipfrag_high_thresh is {limit:,}"
            if found.full
            else "its memory was not full at the end"
        )
        knobs.append("ipfrag_high_thresh" if found.full else "ipfrag_max_dist")
    if found.timed_out:
        said.append(f"ReasmTimeout {found.timed_out:,} more than the trace explains")
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
    """The trace's own count of what reassembly took out is used. The receiver's part cannot be read
    if it filters packets: a firewall drops what its stack was to deliver, conntrack reassembles
    before routing. The trace counts if it is exactly what is missing, and no more than the kernel
    says was taken out in all."""
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


# Bytes of the packet books as far as the decoder: what the kernel takes off the frames on their
# way to the capture sockets, what the ring has no room for, and what the decoder calls broken.
#
# No counter says how long the frames were that were lost, put together or cut. The trace does: it
# is known of each of its frames, so bytes are exact if all came, and bounded if some did not.
TAG_BYTES = 4
SHORTEST_ON_A_WIRE_BYTES = 64
"""Length with a VLAN tag, which may have been taken off; without the check sequence it is 60."""
MOST_FAULTS = 3
"""Kinds of broken packets that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The longest frame that every ring of a SUT takes whole, and what makes it longer."""

    bytes: int
    knob: str
    """The setting's name, as the SUT has it; empty if there is none."""
    beside_bytes: int = 0
    """Bytes by which the setting's value is longer than the frame …"""
    multiple_bytes: int = 1
    """… and a multiple of this."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Room | None:
        """Room by what a running SUT says of itself: `frame_room`, with the names of these
        fields."""
        said = facts.get("frame_room")
        return None if said is None else cls(**said)

    def knob_for(self, frame_bytes: int) -> str:
        pages = -(-(frame_bytes + self.beside_bytes) // self.multiple_bytes)
        return f"{self.knob} = {pages * self.multiple_bytes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFacts:
    """Facts that are known of the frames of one trial."""

    at_tap: AtTap
    sut: SutCounters
    arrived_packets: int
    """Packets at the last port ahead of the sockets, without those that no socket can be handed."""
    room: Room | None
    """None = not known, or of no matter to the SUT."""
    on_veth: bool
    """The port is a veth; other ports pad short frames."""

    def accounts(self, found: Iterable[Account]) -> list[Account]:
        """`found` with the bytes that are known of them, and those of bytes alone."""
        known = [*found]
        handed = self._handed(known)
        return [
            *(self._with_bytes(one, handed) for one in known),
            *self._tags(),
            *self._padding(),
            *cut(self.sut, handed, self.room, self.at_tap, longest_bytes=None),
        ]

    def _handed(self, found: Sequence[Account]) -> Lengths | None:
        """Frames that the sockets are handed if all come; None if reassembly did otherwise than
        the trace says."""
        merged = [a for a in found if a.kind in (Class.MERGED, Class.HELD) and a.packets]
        if not merged:
            return self.at_tap.arriving
        return self.at_tap.defragmented if all(a.bytes is not None for a in merged) else None

    def _with_bytes(self, account: Account, handed: Lengths | None) -> Account:
        """Tags are counted by a SUT that counts the bytes of the wire."""
        tags = TAG_BYTES if self.sut.counts_wire_bytes and self.at_tap.tagged_packets else 0
        if account.kind in (Class.MERGED, Class.HELD):
            if not tags or account.bytes is None:
                return account
            most = account.bytes + tags * account.packets
            return replace(account, bytes=None, bytes_between=(account.bytes, most))
        # Of the frames that sockets would have been handed: whole datagrams among them.
        lacks = account.into == "decoded" or account.name == REASSEMBLY_LOST
        if account.kind is not Class.LOST or not lacks or handed is None:
            return account
        least, most = bytes_of_some(handed, account.packets)
        return replace(account, bytes_between=(least, most + tags * account.packets))

    def _tags(self) -> list[Account]:
        tagged = self.at_tap.tagged_packets
        if self.sut.counts_wire_bytes or not tagged:
            return []
        gone = max(0, packets_in(self.at_tap.arriving) - self.arrived_packets)
        least = max(0, tagged - gone)
        return [
            Account(
                into="socket",
                kind=Class.SHORTENED,
                name="rx_vlan_tag",
                packets=tagged,
                bytes=TAG_BYTES * tagged if least == tagged else None,
                bytes_between=None if least == tagged else (TAG_BYTES * least, TAG_BYTES * tagged),
                counter="the trace: frames with a VLAN tag",
                evidence="the kernel takes the outermost tag off before a capture socket is handed "
                "a frame, and hands it over beside it",
            )
        ]

    def _padding(self) -> list[Account]:
        short = [
            (n, packets) for n, packets in self.at_tap.arriving if n < SHORTEST_ON_A_WIRE_BYTES
        ]
        if self.on_veth or not short:
            return []
        packets = packets_in(short)
        return [
            Account(
                into="socket",
                kind=Class.PADDED,
                name="rx_padding",
                packets=packets,
                bytes_between=(0, SHORTEST_ON_A_WIRE_BYTES * packets - bytes_in(short)),
                counter="the trace: frames shorter than an Ethernet wire carries",
                evidence="a NIC fills them with zeros; virtual ports do not",
            )
        ]


def cut(
    sut: SutCounters,
    handed: Lengths | None,
    room: Room | None,
    at_tap: AtTap | None,
    *,
    longest_bytes: int | None,
) -> list[Account]:
    """Frames longer than a slot or a block of the ring has room for. The SUT says how many it was
    handed, or the trace does: all that are so long, if none was lost."""
    said, decoded = sut.cut_packets, sut.decoded_packets
    excess: Lengths | None = None
    if handed is not None and room is not None and decoded is not None:
        excess, longest_bytes = beyond(handed, room.bytes), handed[-1][0]
        most = packets_in(excess)
        least = max(0, most - max(0, packets_in(handed) - decoded))
        if said is not None:
            least = most = said
    elif said is not None:
        least = most = said
    else:
        return []  # not known
    account = Account(
        into="decoded",
        kind=Class.SHORTENED,
        name=CUT,
        packets=least,
        counter=sut.sources.get("cut_packets", "the trace, and the room in the ring"),
        evidence="" if room is None else f"its ring takes {room.bytes:,} bytes of a frame",
        knob=_cut_knob(room, at_tap, longest_bytes),
    )
    if not most:
        return [replace(account, bytes=0, evidence="", knob="")]
    if excess is None:
        return [account]
    low, high = bytes_of_some(excess, least)[0], bytes_of_some(excess, most)[1]
    return [
        replace(account, bytes=low) if low == high else replace(account, bytes_between=(low, high))
    ]


def _cut_knob(room: Room | None, at_tap: AtTap | None, longest_bytes: int | None) -> str:
    knobs = []
    if room is not None and room.knob and longest_bytes is not None:
        knobs.append(f"{room.knob_for(longest_bytes)} takes them whole")
    if at_tap is not None and at_tap.joined:
        knobs.append('load.offloaded = "split" sends them as a wire carries them')
    return ", ".join(knobs)


def wrong_checksums(sut: SutCounters) -> list[Account]:
    """Packets that the SUT decoded, and left out of its streams."""
    if sut.checksum_packets is None:
        return []
    return [
        Account(
            into="decoded",
            kind=Class.CHECKSUM,
            name="rx_checksum",
            packets=sut.checksum_packets,
            counter=sut.sources.get("checksum_packets", "the SUT's streams"),
            knob=sut.checksum_knob if sut.checksum_packets else "",
        )
    ]


def invalid(sut: SutCounters, at_tap: AtTap | None) -> list[Account]:
    """Packets that the decoder calls broken. Those that a capture cut are the capture's doing."""
    packets = sut.invalid_packets
    if packets is None:
        return []
    largest = sorted(sut.invalid_by.items(), key=lambda one: -one[1])
    faults = ", ".join(f"{name} {n:,}" for name, n in largest[:MOST_FAULTS])
    if sum(n for _, n in largest[:MOST_FAULTS]) > packets:
        faults += "; a packet can have several"
    stubs = 0 if at_tap is None else at_tap.cut_packets
    return [
        Account(
            into="decoded",
            kind=Class.INVALID,
            name="rx_invalid",
            packets=packets,
            counter=sut.sources.get("invalid_packets", "the SUT's decoder"),
            evidence="; ".join(
                filter(
                    None,
                    (
                        f"the capture cut {stubs:,} of the frames that were sent" if stubs else "",
                        f"{sut.cut_packets:,} of them cut to the room in the ring"
                        if sut.cut_packets
                        else "",
                        faults,
                    ),
                )
            ),
            knob='load.cut = "pad"' if stubs else "",
            details=(("capture_cut", stubs),) if stubs else (),
        )
    ]
