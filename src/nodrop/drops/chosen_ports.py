"""Looks at a host of which only the captures at chosen ports are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodrop.protocol import Captures, RingLevels

ANY = 0
"""Index of the port of a socket that takes packets from every port (`tcpdump -i any`)."""


@dataclass(slots=True)
class ChosenPorts:
    """Sockets at the ports of these names, and those that take from every port."""

    names: Sequence[str]
    look: Callable[[], Captures]
    look_at_levels: Callable[[], RingLevels]
    _inodes: set[str] = field(default_factory=set)

    def __call__(self) -> Captures:
        seen = self.look()
        ports = [port for port in seen["ports"] if port["name"] in self.names]
        chosen = {(port["namespace"], port["index"]) for port in ports}
        sockets = [
            one
            for one in seen["sockets"]
            if (one["namespace"], one["ifindex"]) in chosen or one["ifindex"] == ANY
        ]
        pids = {one["pid"] for one in sockets}
        programs = {pid: one for pid, one in seen["programs"].items() if int(pid) in pids}
        self._inodes = {str(one["inode"]) for one in sockets}
        return {**seen, "ports": ports, "sockets": sockets, "programs": programs}

    def levels(self) -> RingLevels:
        seen = self.look_at_levels()
        rings = {inode: ring for inode, ring in seen["rings"].items() if inode in self._inodes}
        return {**seen, "rings": rings}
