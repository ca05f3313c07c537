"""Looks at a host of which only the programs are kept that capture at chosen ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodrop.protocol import Captures, RingLevels

ANY = 0
"""Index of the port of a socket that takes packets from all ports."""


@dataclass(slots=True)
class ChosenPorts:
    """A program that captures there is kept whole, with its other ports: its own counters are of
    all of them."""

    names: Sequence[str]
    look: Callable[[], Captures]
    look_at_levels: Callable[[], RingLevels]
    _inodes: set[str] = field(default_factory=set)

    def __call__(self) -> Captures:
        seen = self.look()
        chosen = {(p["namespace"], p["index"]) for p in seen["ports"] if p["name"] in self.names}
        spaces = {namespace for namespace, _ in chosen}
        pids = {
            s["pid"]
            for s in seen["sockets"]
            if (s["namespace"], s["ifindex"]) in chosen
            or (s["ifindex"] == ANY and s["namespace"] in spaces)
        }
        sockets = [
            s
            for s in seen["sockets"]
            if (s["namespace"], s["ifindex"]) in chosen or (s["pid"] in pids and s["pid"])
        ]
        kept = {(s["namespace"], s["ifindex"]) for s in sockets}
        ports = [p for p in seen["ports"] if (p["namespace"], p["index"]) in kept]
        programs = {pid: p for pid, p in seen["programs"].items() if int(pid) in pids}
        self._inodes = {str(s["inode"]) for s in sockets}
        return {**seen, "ports": ports, "sockets": sockets, "programs": programs}

    def levels(self) -> RingLevels:
        seen = self.look_at_levels()
        rings = {inode: ring for inode, ring in seen["rings"].items() if inode in self._inodes}
        return {**seen, "rings": rings}
