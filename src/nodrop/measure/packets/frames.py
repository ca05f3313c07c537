"""Bytes of the packet books as far as the decoder: what the kernel takes off the frames on their
way to the capture sockets, what the ring has no room for, and what the decoder calls broken.

No counter says how long the frames were that were lost, put together or cut. The trace does: it is
known of each of its frames, so bytes are exact if all came, and bounded if some did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodrop.ledger.byte_books import Lengths, beyond, bytes_in, bytes_of_some, packets_in
from nodrop.ledger.hops import CUT, Account, Class
from nodrop.load.seam import AtTap
from nodrop.measure.packets.reassembly import REASSEMBLY_LOST
from nodrop.suts.seam import SutCounters

TAG_BYTES = 4
SHORTEST_ON_A_WIRE_BYTES = 64
"""With the tag that may have been taken off; without the check sequence 60."""
MOST_FAULTS = 3
"""Kinds of broken packets that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The longest frame that every ring of a SUT takes whole, and what makes it longer."""

    bytes: int
    knob: str
    """The setting's name, as the SUT has it."""
    beside_bytes: int = 0
    """Its value is longer than the frame by so many bytes …"""
    multiple_bytes: int = 1
    """… and a multiple of this."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Room | None:
        """By what a running SUT says of itself: `frame_room`, with the names of these fields."""
        said = facts.get("frame_room")
        return None if said is None else cls(**said)

    def knob_for(self, frame_bytes: int) -> str:
        pages = -(-(frame_bytes + self.beside_bytes) // self.multiple_bytes)
        return f"{self.knob} = {pages * self.multiple_bytes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Facts that are known of the frames of one trial."""

    at_tap: AtTap
    sut: SutCounters
    arrived_packets: int
    """At the last port ahead of the sockets, without those that no socket can be handed."""
    room: Room | None
    """None = not known, or of no matter to the SUT."""
    on_veth: bool
    """Other ports pad short frames."""

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
    found = Account(
        into="decoded",
        kind=Class.SHORTENED,
        name=CUT,
        packets=least,
        counter=sut.sources.get("cut_packets", "the trace, and the room in the ring"),
        evidence="" if room is None else f"its ring takes {room.bytes:,} bytes of a frame",
        knob=_cut_knob(room, at_tap, longest_bytes),
    )
    if not most:
        return [replace(found, bytes=0, evidence="", knob="")]
    if excess is None:
        return [found]
    low, high = bytes_of_some(excess, least)[0], bytes_of_some(excess, most)[1]
    return [replace(found, bytes=low) if low == high else replace(found, bytes_between=(low, high))]


def _cut_knob(room: Room | None, at_tap: AtTap | None, longest_bytes: int | None) -> str:
    knobs = []
    if room is not None and longest_bytes is not None:
        knobs.append(f"{room.knob_for(longest_bytes)} takes them whole")
    if at_tap is not None and at_tap.joined:
        knobs.append('load.offloaded = "split" sends them as a wire carries them')
    return ", ".join(knobs)


def invalid(sut: SutCounters, at_tap: AtTap | None) -> list[Account]:
    """Packets that the decoder calls broken. Those that a capture cut are the capture's doing."""
    packets = sut.invalid_packets
    if packets is None:
        return []
    largest = sorted(sut.invalid_by.items(), key=lambda one: -one[1])
    faults = ", ".join(f"{name} {n:,}" for name, n in largest[:MOST_FAULTS])
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
