"""Finds a process's control groups: hosts mount version 1, version 2, or each for a part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodrop.ledger.quota import Quota

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


def mounts(controller: str, root: Path = Path("/")) -> Iterator[Mount]:
    """Hierarchies that may have the controller. A hybrid host has both versions, and the controller
    is in one of them."""
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        _, _, _, within, point = mount.split()[:5]
        place = root / point.lstrip("/")
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


def own_quotas(root: Path = Path("/"), process: str = "self") -> tuple[Quota, ...]:
    """CPU quotas that hold for a process, this one if none is named: its group's own, and that of
    each group above."""
    found = []
    try:
        for mount in mounts("cpu", root):
            name = "cpu" if mount.version == 1 else NOT_V1
            folder = mount.folder(group_path(root / f"proc/{process}/cgroup", name))
            for group in (folder, *folder.parents):
                if group.is_relative_to(mount.point) and (quota := _quota(group, root)):
                    found.append(quota)
    except OSError:  # no /proc, or not ours to read: then it is not known
        return ()
    return tuple(found)


def _quota(group: Path, root: Path) -> Quota | None:
    cpus = _cpus(group)
    stat = group / "cpu.stat"
    if cpus is None or not stat.exists():
        return None
    said = {name: int(value) for name, value in map(str.split, stat.read_text().splitlines())}
    throttled_ns = said.get("throttled_time", said.get("throttled_usec", 0) * 1000)
    return Quota(
        group=f"/{group.relative_to(root)}",
        cpus=cpus,
        periods=said.get("nr_periods", 0),
        throttled_periods=said.get("nr_throttled", 0),
        throttled_s=throttled_ns / 1e9,
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
