"""Control groups: where a process's are, and one per trial with a memory limit.

Hosts mount version 1, version 2, or each for a part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from nodrop.errors import LabProblem
from nodrop.ledger.sender import Quota
from nodrop.protocol import Captures, CaptureSocket, NotVisible, RingLevels, RingSpells
from nodrop.testbed.hosts.api import HostProcess, Json, UndoAction, UndoJournal
from nodrop.testbed.hosts.processes import Jobs, KeptProbe
from nodrop.testbed.hosts.waiting import looks

REMOVAL_S = 10.0
"""A program with gigabytes of rings takes seconds to end."""
NOT_V1 = ""
"""The name under which a process's one group of version 2 stands in /proc/PID/cgroup."""


@dataclass(frozen=True, slots=True)
class Mount:
    root: str
    """The part of the hierarchy that is mounted; a container sees its own part."""
    point: Path
    version: int

    def folder(self, group: str) -> Path:
        within = self.root if self.root != "/" else ""
        return self.point / group.removeprefix(within).lstrip("/")


def mounts(controller: str, root: Path = Path("/"), *, seen_by: str = "self") -> Iterator[Mount]:
    """Hierarchies that may have the controller. A hybrid host has both versions, and the controller
    is in one of them."""
    for line in (root / "proc" / seen_by / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        _, _, _, within, point = mount.split()[:5]
        place = top(root, seen_by) / point.lstrip("/")
        if kind.startswith("cgroup ") and controller in kind.split()[-1].split(","):
            yield Mount(within, place, 1)
        if kind.startswith("cgroup2 "):
            yield Mount(within, place, 2)


def group_path(file: Path, controller: str) -> str:
    """A process's group, from its /proc/PID/cgroup."""
    for line in file.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def top(root: Path, process: str) -> Path:
    """The root folder as a process sees it."""
    return root if process == "self" else root / "proc" / process / "root"


def sees_groups(root: Path = Path("/")) -> str | None:
    """`self`, or where no control group is mounted (`ip netns exec` mounts a /sys without them) a
    process whose mounts we may read: its parents, process 1, any. None: nobody's."""
    for process in _near(root):
        try:
            if any(mounts("cpu", root, seen_by=process)) and top(root, process).is_dir():
                return process
        except (OSError, ValueError):
            continue
    return None


def _near(root: Path) -> Iterator[str]:
    yield "self"
    parent, known = "self", set[str]()
    with suppress(OSError, IndexError):
        while parent not in ("0", *known):
            known.add(parent)
            stat = (root / "proc" / parent / "stat").read_text()
            yield (parent := stat.rpartition(")")[2].split()[1])
    yield "1"
    with suppress(OSError):
        yield from (one.name for one in (root / "proc").iterdir() if one.name.isdecimal())


def groups_of(
    controller: str, root: Path = Path("/"), process: str = "self"
) -> Iterator[tuple[str, Path]]:
    """Control groups of a process that may have the controller, the innermost first: name as a user
    of this host types it, and folder. OSError if they may not be read."""
    if (seen_by := sees_groups(root)) is None:
        return
    for mount in mounts(controller, root, seen_by=seen_by):
        name = controller if mount.version == 1 else NOT_V1
        folder = mount.folder(group_path(root / f"proc/{process}/cgroup", name))
        for group in (folder, *folder.parents):
            if group.is_relative_to(mount.point):
                yield f"/{group.relative_to(top(root, seen_by))}", group


def own_quotas(root: Path = Path("/"), process: str = "self") -> tuple[Quota, ...]:
    """CPU quotas that hold for a process, this one if none is named: its group's own, and that of
    each group above."""
    try:
        quotas = [_quota(name, group) for name, group in groups_of("cpu", root, process)]
    except OSError:  # no /proc, or not ours to read: then it is not known
        return ()
    return tuple(filter(None, quotas))


def _said(stat: Path) -> tuple[dict[str, int], int | None]:
    """Values of a cpu.stat, and the time in which its group was held back."""
    said = {name: int(value) for name, value in map(str.split, stat.read_text().splitlines())}
    if "throttled_time" in said:
        return said, said["throttled_time"]
    return said, said["throttled_usec"] * 1000 if "throttled_usec" in said else None


def _quota(name: str, group: Path) -> Quota | None:
    cpus = _cpus(group)
    stat = group / "cpu.stat"
    if cpus is None or not stat.exists():
        return None
    said, held_ns = _said(stat)
    return Quota(
        group=name,
        cpus=cpus,
        periods=said.get("nr_periods", 0),
        throttled_periods=said.get("nr_throttled", 0),
        throttled_s=(held_ns or 0) / 1e9,
    )


def _cpus(group: Path) -> float | None:
    """None if the group has no quota of its own."""
    v2, v1 = group / "cpu.max", group / "cpu.cfs_quota_us"
    if v2.exists():
        quota, period = v2.read_text().split()
    elif v1.exists():
        quota, period = v1.read_text().strip(), (group / "cpu.cfs_period_us").read_text().strip()
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """Names in a control group's folder. Some kernels lack the optional ones."""

    limit: str
    with_swap: str
    """Optional: caps memory and swap (v1), or swap alone (v2)."""
    peak: str
    """Optional: v2 has it since Linux 5.19."""
    events: str
    """File with a line `oom_kill <n>`."""
    swappiness: str = ""
    """Optional: swappiness of each group; version 2 has none."""


V1 = GroupFiles(
    limit="memory.limit_in_bytes",
    with_swap="memory.memsw.limit_in_bytes",
    peak="memory.max_usage_in_bytes",
    events="memory.oom_control",
    swappiness="memory.swappiness",
)
V2 = GroupFiles(
    limit="memory.max",
    with_swap="memory.swap.max",
    peak="memory.peak",
    events="memory.events",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    path: Path
    files: GroupFiles
    limit_bytes: int | None

    def facts(self) -> Json:
        peak = self.path / self.files.peak
        return {
            "limit_bytes": self.limit_bytes,
            "peak_bytes": _number(peak),
            "oom_kills": oom_kills(self.path / self.files.events),
            "swappiness": _number(self.path / self.files.swappiness)
            if self.files.swappiness
            else None,
        }


def _number(file: Path) -> int | None:
    return int(file.read_text()) if file.exists() else None


def oom_kills(events: Path) -> int | None:
    """None if the kernel does not count them (before Linux 4.13), or the group is gone."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return None
    found = dict(line.split(maxsplit=1) for line in lines)
    return int(found["oom_kill"]) if "oom_kill" in found else None


def oom_events_of(pid: int) -> Path | None:
    """The file that counts the kills in a process's control group, for `oom_kills`."""
    for mount in mounts("memory", Path("/")):
        files, name = (V1, "memory") if mount.version == 1 else (V2, NOT_V1)
        events = mount.folder(group_path(Path(f"/proc/{pid}/cgroup"), name)) / files.events
        if events.exists():
            return events
    return None


def memory_controller(root: Path = Path("/")) -> tuple[Path, GroupFiles]:
    """The folder that groups with a memory limit can be made in. Touches nothing.

    Version 1: below our own group, whose limit goes on to hold. Version 2: below the top, because a
    group that has processes, as ours, may not hand its controllers on. A hybrid host has both, and
    the memory controller is in one of them.
    """
    for mount in mounts("memory", root):
        if mount.version == 1:
            own = group_path(root / "proc/self/cgroup", "memory")
            return _writable(mount.folder(own)), V1
        handed_on = mount.point / "cgroup.subtree_control"
        if handed_on.exists() and "memory" in handed_on.read_text().split():
            return _writable(mount.point), V2
    raise LabProblem(
        "this host has no control groups with a memory controller",
        hint="mount cgroup2 and enable memory in its cgroup.subtree_control, or drop the limit",
    )


@contextmanager
def memory_group(
    limit_bytes: int | None,
    journal: UndoJournal,
    *,
    of: str = "sut",
    swappiness: int | None = None,
) -> Iterator[MemoryGroup]:
    """A fresh group; removed on exit. Without a swappiness it has no swap if the kernel can
    forbid it."""
    parent, files = memory_controller()
    path = parent / f"nodrop-{journal.label}-{of}"
    journal.push(
        what=f"control group {path}", action=UndoAction.REMOVE_GROUP, arguments=[str(path)]
    )
    try:
        try:
            path.mkdir(exist_ok=True)
            for name, number in _settings(files, limit_bytes, swappiness).items():
                if name == files.limit or (path / name).exists():
                    (path / name).write_text(str(number))
        except OSError as error:
            raise LabProblem(f"cannot limit memory in {path}: {error.strerror}") from error
        yield MemoryGroup(path=path, files=files, limit_bytes=limit_bytes)
    finally:
        with suppress(OSError):  # a process that ends slowly keeps it; the journal has it too
            path.rmdir()


def _settings(files: GroupFiles, limit_bytes: int | None, swappiness: int | None) -> dict[str, int]:
    """File → what to write, in this order: memory and swap together are never below memory."""
    found = {} if limit_bytes is None else {files.limit: limit_bytes}
    if swappiness is not None:
        return {**found, files.swappiness: swappiness}
    if limit_bytes is not None:
        found[files.with_swap] = 0 if files is V2 else limit_bytes
    return found


def _writable(folder: Path) -> Path:
    if not os.access(folder, os.W_OK):
        raise LabProblem(
            f"no permission to make a control group in {folder}",
            hint="run as root, or drop the limit",
        )
    return folder


# Packet sockets seen from outside: what came to them, what was dropped, what their rings hold.
#
# The node reads them by a BPF iterator (docs/adr/0026), and resets no counter of anybody's.

LOOK_TIMEOUT_S = 20.0
QUOTAS_HIDDEN = NotVisible(
    what="CPU quotas",
    needs="a /sys/fs/cgroup: `ip netns exec` mounts a /sys without it; start nodrop outside, where "
    "it finds other namespaces itself, or by `nsenter --net=/run/netns/NAME nodrop …`",
    why="no control group is mounted here, nor for a process that may be read",
)


class SocketLooks:
    """One probe job of a host, asked again and again: it keeps files and the iterator open."""

    def __init__(self, host: Jobs, *, only: Sequence[int] = (), root: Path | None = None) -> None:
        """`only`: the roots of the process trees that are looked at; none: every program. `root`:
        of this host's files, whose control groups may be hidden (`ip netns exec`)."""
        self._root = root
        self._only = list(only)
        self._kept = KeptProbe(host)

    def __call__(self) -> Captures:
        seen: Captures = self._asked("captures")
        if self._root and sees_groups(self._root) is None:
            seen["missing"].append(QUOTAS_HIDDEN)
        return seen

    def levels(self) -> RingLevels:
        """How full the rings of the look before are: cheap, to be asked often."""
        seen: RingLevels = self._asked("rings")
        return seen

    def spells(self) -> RingSpells:
        """Spells of 250 looks a second at those rings, of some seconds in a minute, that have ended
        since the last question. The first question begins them."""
        seen: RingSpells = self._asked("spells")
        return seen

    def _asked(self, what: str) -> Any:
        spec = {"job": "probe", "what": [what], "pids": self._only}
        return cast(Json, self._kept.asked(spec, LOOK_TIMEOUT_S))[what]

    def close(self) -> None:
        self._kept.close()


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


def copies(sockets: Sequence[CaptureSocket]) -> int:
    """Times that a program has each packet: fanout groups, and sockets that stand alone."""
    lone = sum(socket["fanout"] is None for socket in sockets)
    return lone + len({socket["fanout"]["id"] for socket in sockets if socket["fanout"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLook:
    """One look at the capture sockets of a process tree. None = not visible."""

    mono_ns: int
    """Time on the clock of the host."""
    sockets: Sequence[CaptureSocket]
    arrived: int | None
    """Packets since the sockets were opened, those included that found no room."""
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
    def read(self) -> int | None:
        """Packets taken out of the rings."""
        if self.arrived is None or self.dropped is None or self.waiting is None:
            return None
        return self.arrived - self.dropped - self.waiting


@dataclass(slots=True)
class SocketWatch:
    """The capture sockets of one process tree, on the ports with these names. To be closed."""

    process: HostProcess
    ports: Sequence[str]
    _sums: dict[int, SocketSums] = field(default_factory=dict)
    _looks: SocketLooks | None = None

    def look(self) -> SocketLook:
        if self._looks is None:
            self._looks = SocketLooks(self.process.host, only=[self.process.pid])
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

    def _watched(self, seen: Captures) -> SocketLook:
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
        return SocketLook(
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


def remove_group(group: Path, *, within_s: float = REMOVAL_S) -> None:
    """Removes a group whose processes are ending. OSError if one is left in it."""
    for passed_s in looks(within_s, every_s=0.05):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            # The kernel lists a process that ends no more, and counts it until its rings are freed.
            # No event of version 1 tells when.
            if passed_s >= within_s:
                raise


if __name__ == "__main__":  # of `nodrop undo` (hosts/reversal.py)
    try:
        remove_group(Path(sys.argv[1]))
    except OSError as problem:
        sys.exit(f"{problem}")
