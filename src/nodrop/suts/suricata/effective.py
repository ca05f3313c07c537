"""The settings that Suricata runs with, beside those it was asked for: it may choose otherwise
without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nodrop.hosts.seam import Json
from nodrop.suts.suricata.capture import Ring, capture_threads, holds_packets
from nodrop.suts.suricata.log import BadRule
from nodrop.suts.suricata.options import CaptureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The settings that the configuration asks for, to be compared with what runs."""

    interfaces: tuple[str, ...]
    capture: CaptureKind = "af-packet"
    threads: int | None
    """Per interface; None = auto."""
    runmode: str | None
    """None: the user's own yaml decides."""
    detect_threads: int | None = None
    """Detect threads of autofp; None leaves it to Suricata."""
    ring_frames: int | None
    """Per thread; None leaves it to Suricata."""
    defrag: bool
    full_sync_s: float
    """How old the answer of dump-counters can be."""
    retire_s: float
    """How long a frame can lie in a ring before its thread is woken."""
    names_rules: bool
    """Also if it is the user's own yaml that names them."""
    rules_errors: Literal["error", "warn"]
    rule_names: Mapping[str, str] = field(default_factory=dict)
    """Name in the work folder → what a user calls that file."""
    rules_not_utf8: Sequence[BadRule] = ()
    rules_lacking: tuple[str, ...] = ()
    """Rule files that a user's own yaml names and that are not there."""
    replaced: Sequence[Json] = ()
    """Keys of a user's own yaml that it runs without (own_yaml.py)."""
    yaml: str | None = None
    """The name of that yaml."""
    defrag_named: bool = True
    """The user asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Seen from outside: the threads of the process and the rings of its sockets."""

    asked: Asked
    threads: tuple[str, ...]
    rings: tuple[Ring, ...]

    @property
    def capturing(self) -> Sequence[str]:
        return capture_threads(self.threads)

    @property
    def detecting(self) -> Sequence[str]:
        """Threads that decode and detect what others capture: of autofp alone."""
        receives = any(name.startswith("RX#") for name in self.threads)
        return [name for name in self.threads if receives and name.startswith("W#")]

    def settings(self) -> Json:
        """Seen where it runs, by the names of the [sut] table; what cannot be seen is left out."""
        receivers = any(name.startswith("RX#") for name in self.capturing)
        # One thread alone may be `single` or `workers`, which differ in nothing then.
        alone = self.asked.runmode or ("workers" if len(self.capturing) > 1 else None)
        fans_out = self.asked.capture == "af-packet"
        rings = self.rings if fans_out else ()
        fanout = {r.fanout_type for r in rings}
        frames = {r.frames for r in rings if r.frames}
        found = {
            "capture": None if fans_out else self.asked.capture,
            "runmode": "autofp" if receivers else alone,
            "threads": len(self.capturing) // len(self.asked.interfaces) or None,
            "detect_threads": len(self.detecting) or None,
            "cluster_type": _CLUSTERS.get(*fanout) if len(fanout) == 1 else None,
            "ring_size": frames.pop() if len(frames) == 1 else None,
            "defrag": self.defrag(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def holds_packets(self) -> int | None:
        """Between threads, as in autofp, packets wait in queues of their own."""
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
