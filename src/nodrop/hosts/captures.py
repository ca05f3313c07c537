"""Packet sockets seen from outside: what came to them, what was dropped, what their rings hold.

The node reads them by a BPF iterator (docs/adr/0026), and resets no counter of anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nodrop.hosts.control_groups import sees_groups, throttled_ns
from nodrop.hosts.seam import AnyJob, HostProcess
from nodrop.protocol.events import Captures, CaptureSocket, NotVisible, RingLevels

LOOK_TIMEOUT_S = 20.0
QUOTAS_HIDDEN = NotVisible(
    what="CPU quotas",
    needs="a /sys/fs/cgroup: `ip netns exec` mounts a /sys without it; start nodrop outside, where "
    "it finds other namespaces itself, or by `nsenter --net=/run/netns/NAME nodrop …`",
    why="no control group is mounted here, nor for a process that may be read",
)


class Jobs(Protocol):
    """The part of a host (hosts/seam.py) that is needed here."""

    def job(self, spec: dict[str, Any], *, timeout_s: float = 30) -> AnyJob: ...


class Looks:
    """One probe job of a host, asked again and again: it keeps files and the iterator open."""

    def __init__(self, host: Jobs, *, only: Sequence[int] = (), root: Path | None = None) -> None:
        """`only`: the roots of the process trees that are looked at; none: every program. `root`:
        of this host's files, whose control groups are looked for elsewhere if we see none here
        (`ip netns exec`)."""
        self._host = host
        self._root = root
        self._only = list(only)
        self._job: AnyJob | None = None

    def __call__(self) -> Captures:
        seen: Captures = self._asked("captures")
        seer = sees_groups(self._root) if self._root else "self"
        if seer is None:
            seen["missing"].append(QUOTAS_HIDDEN)
        elif self._root and seer != "self":
            for pid, one in seen["programs"].items():
                one["usage"]["throttled_ns"] = throttled_ns(self._root, pid)
        return seen

    def levels(self) -> RingLevels:
        """How full the rings of the look before are: cheap, to be asked often."""
        seen: RingLevels = self._asked("rings")
        return seen

    def _asked(self, what: str) -> Any:
        spec = {"job": "probe", "what": [what], "pids": self._only, "again": True}
        if self._job is None:
            self._job = self._host.job(spec, timeout_s=LOOK_TIMEOUT_S)
        else:
            self._job.again(spec, timeout_s=LOOK_TIMEOUT_S)
        return self._job.result(timeout_s=LOOK_TIMEOUT_S)[what]

    def close(self) -> None:
        if self._job is not None:
            self._job.close()
            self._job = None


@dataclass(slots=True)
class SocketSums:
    """A socket's counters as sums: its owner's readings set them to zero."""

    packets: int = 0
    drops: int = 0
    seen: tuple[int, int] = (0, 0)
    taken: bool = False
    """The owner has read them, so that some may be missing here."""

    def add(self, packets: int, drops: int) -> None:
        if packets < self.seen[0] or drops < self.seen[1]:
            self.packets += self.seen[0]
            self.drops += self.seen[1]
            self.taken = True
        self.seen = (packets, drops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One look at the capture sockets of a process tree. None = not visible."""

    mono_ns: int
    """On the clock of the host."""
    sockets: Sequence[CaptureSocket]
    arrived: int | None
    """Since the sockets were opened, those included that found no room."""
    dropped: int | None
    waiting: int | None
    """Packets in the rings; of two readings around the counters, the larger."""
    ready_to_read: bool
    """Something in the rings is the program's to take: an open block of TPACKET_V3 is not."""
    at_least: bool
    """The owner reads the counters itself: arrived and dropped may be more."""
    threads: Sequence[str]
    missing: str
    """Why something is not visible; empty if all is."""

    @property
    def copies(self) -> int:
        """Times that the program has each packet: fanout groups, and sockets that stand alone."""
        lone = sum(one["fanout"] is None for one in self.sockets)
        return lone + len({one["fanout"]["id"] for one in self.sockets if one["fanout"]})

    @property
    def read(self) -> int | None:
        """Taken out of the rings."""
        if self.arrived is None or self.dropped is None or self.waiting is None:
            return None
        return self.arrived - self.dropped - self.waiting


@dataclass(slots=True)
class SocketWatch:
    """The capture sockets of one process tree, on the ports with these names. To be closed."""

    process: HostProcess
    ports: Sequence[str]
    _sums: dict[int, SocketSums] = field(default_factory=dict)
    _looks: Looks | None = None

    def look(self) -> Watched:
        if self._looks is None:
            self._looks = Looks(self.process.host, only=[self.process.pid])
        return self._watched(self._looks())

    def owner_read(self) -> None:
        """The owner was made to read its counters just now, at rest: they begin anew, and nothing
        is missing."""
        for one in self._sums.values():
            one.packets += one.seen[0]
            one.drops += one.seen[1]
            one.seen = (0, 0)

    def close(self) -> None:
        if self._looks is not None:
            self._looks.close()
            self._looks = None

    def _watched(self, seen: Captures) -> Watched:
        numbers = {
            (port["namespace"], port["index"])
            for port in seen["ports"]
            if port["name"] in self.ports
        }
        mine: dict[int, CaptureSocket] = {}
        for socket in seen["sockets"]:
            # Ports are opened by the first look that finds a socket there.
            at = (socket["namespace"], socket["ifindex"])
            if at in numbers or socket["ifindex"] == 0:
                mine.setdefault(socket["inode"], socket)
        arrived, dropped, at_least = self._counted(mine)
        fills = [socket["waiting"] for socket in mine.values()]
        known = [max(fill["packets"] for fill in both) for both in fills if both is not None]
        return Watched(
            mono_ns=seen["mono_ns"],
            sockets=tuple(mine.values()),
            arrived=arrived,
            dropped=dropped,
            waiting=sum(known) if mine and len(known) == len(fills) else None,
            ready_to_read=any(min(fill["full"] for fill in both) > 0 for both in fills if both),
            at_least=at_least,
            threads=tuple(
                thread["name"] for one in seen["programs"].values() for thread in one["threads"]
            ),
            missing="; ".join(f"{one['what']}: {one['why']}" for one in seen["missing"]),
        )

    def _counted(self, sockets: Mapping[int, CaptureSocket]) -> tuple[int | None, int | None, bool]:
        sums = []
        for inode, socket in sockets.items():
            if (counted := socket["counted"]) is None:
                return None, None, False
            one = self._sums.setdefault(inode, SocketSums())
            one.add(counted["tp_packets"], counted["tp_drops"])
            sums.append(one)
        if not sums:
            return None, None, False
        drops = sum(one.drops + one.seen[1] for one in sums)
        # Inside the kernel tp_packets leaves out those that were dropped.
        packets = sum(one.packets + one.seen[0] for one in sums)
        return packets + drops, drops, any(one.taken for one in sums)
