"""The proof that Suricata listens: which of its threads capture, with which rings, and with which
settings it runs beside those it was asked for: it may choose otherwise without a word."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nodrop.ledger.imbalance import ThreadRole
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.suts.api import SMALLEST_V3_BYTES
from nodrop.testbed.suts.suricata.log import BadRule
from nodrop.testbed.suts.suricata.sut_options import PAGE_BYTES, CaptureKind

ROLES = (
    ("RX#", ThreadRole.RECEIVE),
    ("W#", ThreadRole.WORKER),
    ("FM#", ThreadRole.FLOW_MANAGER),
    ("FR#", ThreadRole.FLOW_MANAGER),
    ("Suricata-Main", ThreadRole.OTHER),
    ("CW", ThreadRole.OTHER),
    ("CS", ThreadRole.OTHER),
    ("US", ThreadRole.OTHER),
)
"""Roles by the beginning of a thread's name: recycler and manager share the work on ended flows;
the last three are counters' and commands'."""
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
class SocketRing:
    """The kernel's description of one capture socket."""

    tpacket_version: int | None
    block_bytes: int | None
    blocks: int | None
    frame_bytes: int | None
    frames: int | None
    fanout_id: int | None
    fanout_type: str | None
    """None: the socket stands alone, so PACKET_FANOUT_FLAG_DEFRAG has no effect either."""


def role(thread: str) -> ThreadRole | None:
    return next((role for begins, role in ROLES if thread.startswith(begins)), None)


def holds_packets(rings: Sequence[SocketRing]) -> int | None:
    """The most that all rings hold; None if one of them is not known."""
    held = [_slots(ring) for ring in rings]
    known = [slots for slots in held if slots is not None]
    return sum(known) if known and len(known) == len(held) else None


def frame_room(rings: Sequence[SocketRing]) -> Json | None:
    """The longest frame that every ring takes whole, for packets.reassembly.Room; None = not known.

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


def _slots(ring: SocketRing) -> int | None:
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


def parse_ss(text: str, inodes: Sequence[int]) -> tuple[SocketRing, ...]:
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
            SocketRing(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """The settings that the configuration asks for, to be compared with what runs."""

    interfaces: tuple[str, ...]
    capture: CaptureKind = "af-packet"
    threads: int | None
    """Threads per interface; None = auto."""
    runmode: str | None
    """None: the user's own yaml decides."""
    detect_threads: int | None = None
    """Detect threads of autofp; None leaves it to Suricata."""
    ring_frames: int | None
    """Frames of a thread's ring; None leaves it to Suricata."""
    defrag: bool
    full_sync_s: float
    """How old the answer of dump-counters can be."""
    retire_s: float
    """How long a frame can lie in a ring before its thread is woken."""
    names_rules: bool
    """Rules are named, if only by the user's own yaml."""
    rules_errors: Literal["error", "warn"]
    rule_names: Mapping[str, str] = field(default_factory=dict)
    """Name in the work folder → what a user calls that file."""
    rules_not_utf8: Sequence[BadRule] = ()
    rules_lacking: tuple[str, ...] = ()
    """Rule files that a user's own yaml names and that are not there."""
    replaced: Sequence[Json] = ()
    """Keys of a user's own yaml that it runs without (own_yaml.py)."""
    yaml: str | None = None
    """Name of the user's own yaml."""
    defrag_named: bool = True
    """The user asked for defragmentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The capture as seen from outside: the threads of the process and the rings of its sockets."""

    asked: CaptureSettings
    threads: tuple[str, ...]
    rings: tuple[SocketRing, ...]

    @property
    def capturing(self) -> Sequence[str]:
        return capture_threads(self.threads)

    @property
    def detecting(self) -> Sequence[str]:
        """Threads that decode and detect what others capture: of autofp alone."""
        receives = any(name.startswith("RX#") for name in self.threads)
        return [name for name in self.threads if receives and name.startswith("W#")]

    def settings(self) -> Json:
        """Settings seen on the running process, by their names in [sut]; others are left out."""
        receivers = any(name.startswith("RX#") for name in self.capturing)
        # One thread alone may be `single` or `workers`, which differ in nothing then.
        alone = self.asked.runmode or ("workers" if len(self.capturing) > 1 else None)
        fans_out = self.asked.capture == "af-packet"
        rings = self.rings if fans_out or self.asked.capture == "dpdk" else ()
        fanout = {r.fanout_type for r in rings}
        frames = {r.frames for r in rings if r.frames}
        found = {
            "capture": None if fans_out else self.asked.capture,
            "runmode": "autofp" if receivers else alone,
            "threads": len(self.capturing) // len(self.asked.interfaces) or None,
            "detect_threads": len(self.detecting) or None,
            "cluster_type": _CLUSTERS.get(*fanout) if fans_out and len(fanout) == 1 else None,
            "ring_size": frames.pop() if len(frames) == 1 else None,
            "defrag": self.defrag(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def holds_packets(self) -> int | None:
        """Packets that the rings hold. None if packets wait in queues between threads as well, as
        in autofp."""
        alone = self.asked.runmode in ("workers", "single")
        return holds_packets(self.rings) if alone else None

    def defrag(self) -> bool | None:
        """The flag goes with a fanout group by flow hash; a thread alone joins no group."""
        if not self.asked.defrag:
            return False
        if not self.rings:
            return None
        return all(ring.fanout_type == "hash" for ring in self.rings)

    def notes(self) -> list[str]:
        """Differences between what was asked for and what runs, in words."""
        notes = []
        asked, have = self.asked.threads, len(self.capturing)
        wanted = asked * len(self.asked.interfaces) if asked is not None else have
        if self.threads and wanted != have:
            notes.append(
                f"{wanted} capture threads were asked for, {have} run: "
                "Suricata allows no more workers than the host has CPUs"
            )
        detect, detecting = self.asked.detect_threads, len(self.detecting)
        if self.threads and detect not in (None, detecting):
            notes.append(f"{detect} detect threads were asked for, {detecting} run")
        frames, rings = self.asked.ring_frames, [r.frames for r in self.rings if r.frames]
        # Frames come in whole blocks, so a few more than asked for are normal.
        if frames is not None and rings and max(rings) > 2 * frames:
            notes.append(
                f"a ring of {frames} frames was asked for, {max(rings)} exist: "
                "Suricata makes it as large as max-pending-packets divided by the threads"
            )
        if self.asked.defrag and self.asked.defrag_named and self.defrag() is False:
            notes.append(
                "defrag = yes has no effect here: Suricata gives the flag to cluster_flow groups "
                "of two threads or more"
            )
        return notes


_CLUSTERS = {"hash": "cluster_flow", "cpu": "cluster_cpu", "qm": "cluster_qm", None: "none"}
"""Fanout type in the words of `ss` → Suricata's cluster type; a thread alone joins no group."""
