"""The proof that Suricata listens: which of its threads capture, with which rings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.hosts.seam import Json
from nodrop.ledger.threads import Role
from nodrop.suts.suricata.options import PAGE_BYTES

ROLES = (
    ("RX#", Role.RECEIVE),
    ("W#", Role.WORKER),
    ("FM#", Role.FLOW_MANAGER),
    ("FR#", Role.FLOW_MANAGER),
    ("Suricata-Main", Role.OTHER),
    ("CW", Role.OTHER),
    ("CS", Role.OTHER),
    ("US", Role.OTHER),
)
"""By how the names of its threads begin: recycler and manager share the work on ended flows; the
last three are counters' and commands'."""
_CAPTURE_THREAD = re.compile(r"(W|RX)#\d+")
_SS_SOCKET = re.compile(r"\bino:(\d+)")
_SS_RING = re.compile(r"ring_rx\(([^)]*)\)")
_SS_FANOUT = re.compile(r"fanout\(([^)]*)\)")
_SS_VERSION = re.compile(r"\bver:(\d+)")
_SS_KEYS = {
    "blk_size": "block_bytes",
    "blk_nr": "blocks",
    "frm_size": "frame_bytes",
    "frm_nr": "frames",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The kernel's description of one capture socket."""

    tpacket_version: int | None
    block_bytes: int | None
    blocks: int | None
    frame_bytes: int | None
    frames: int | None
    fanout_id: int | None
    fanout_type: str | None
    """None: the socket stands alone, so PACKET_FANOUT_FLAG_DEFRAG has no effect either."""


SMALLEST_V3_BYTES = 128
"""Version 3 packs packets one behind the other, header and at least 60 bytes of frame: less than
this none takes, whatever the ring calls a frame."""


def role(thread: str) -> Role | None:
    return next((role for begins, role in ROLES if thread.startswith(begins)), None)


def holds_packets(rings: Sequence[Ring]) -> int | None:
    """The most that all rings hold; None if one of them is not known."""
    held = [_slots(ring) for ring in rings]
    known = [slots for slots in held if slots is not None]
    return sum(known) if known and len(known) == len(held) else None


def frame_room(rings: Sequence[Ring]) -> Json | None:
    """The longest frame that every ring takes whole, for packets.frames.Room; None = not known.

    tpacket_rcv (Linux net/packet/af_packet.c) puts a frame behind its own header and an address:
    66 bytes into a slot of version 2; of version 3, which packs frames into blocks, 82 bytes behind
    the 48 of a block. Suricata reserves 4 more (PACKET_RESERVE), in which it puts a tag back.
    """
    found = []
    for ring in rings:
        if ring.tpacket_version == 3 and ring.block_bytes is not None:
            found.append((ring.block_bytes - V3_BEFORE_BYTES, 3))
        elif ring.tpacket_version == 2 and ring.frame_bytes is not None:
            found.append((ring.frame_bytes - V2_BEFORE_BYTES, 2))
    if not found or len(found) < len(rings):
        return None
    room, version = min(found)
    if version == 2:
        return {"bytes": room, "knob": "sut.overrides.default-packet-size"}
    return {
        "bytes": room,
        "knob": "sut.block_size",
        "beside_bytes": V3_BEFORE_BYTES,
        "multiple_bytes": PAGE_BYTES,
    }


V2_BEFORE_BYTES = 66 + 4
V3_BEFORE_BYTES = 48 + 82 + 4


def _slots(ring: Ring) -> int | None:
    if ring.tpacket_version != 3:
        return ring.frames
    if ring.block_bytes is None or ring.blocks is None:
        return None
    return ring.block_bytes * ring.blocks // SMALLEST_V3_BYTES


def capture_threads(names: Sequence[str]) -> tuple[str, ...]:
    """Threads that own a capture socket: RX#… in autofp, where W#… only work; else W#…."""
    found = [name for name in names if _CAPTURE_THREAD.match(name)]
    receivers = [name for name in found if name.startswith("RX#")]
    return tuple(receivers or found)


def parse_ss(text: str, inodes: Sequence[int]) -> tuple[Ring, ...]:
    """`ss -0 -e -n` of the namespace, the sockets with these inodes, in table order."""
    rings = []
    for record in re.split(r"\n(?=\S)", text):
        match = _SS_SOCKET.search(record)
        if match is None or int(match[1]) not in inodes:
            continue
        sizes = _pairs(_SS_RING.search(record))
        fanout = _pairs(_SS_FANOUT.search(record))
        version = _SS_VERSION.search(record)
        rings.append(
            Ring(
                # ss prints the kernel's enum, which counts TPACKET_V1 as 0.
                tpacket_version=int(version[1]) + 1 if version else None,
                fanout_id=int(fanout["id"]) if "id" in fanout else None,
                fanout_type=fanout.get("type"),
                **{ours: int(sizes[k]) if k in sizes else None for k, ours in _SS_KEYS.items()},
            )
        )
    return tuple(rings)


def _pairs(match: re.Match[str] | None) -> dict[str, str]:
    if match is None:
        return {}
    return dict(part.split(":", 1) for part in match[1].split(",") if ":" in part)
