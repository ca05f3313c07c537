"""Where a process's control groups are: hosts mount version 1, version 2, or each for a part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NOT_V1 = ""
"""The name under which a process's one group of version 2 stands in /proc/PID/cgroup."""


@dataclass(frozen=True, slots=True)
class Mount:
    root: str
    """What of the hierarchy is mounted; a container sees its own part."""
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


def throttled_ns(pid: int, root: Path = Path("/")) -> dict[Path, int]:
    """File → how long the processes of that group, summed over CPUs, were not let run for want of
    its quota so far: of the process's own group and of each above it, whose quotas hold as well.
    The kernel keeps no such time per CPU, nor of the group as a whole. {} where the process is
    gone."""
    found: dict[Path, int] = {}
    for mount in mounts("cpu", root):
        try:
            path = group_path(root / f"proc/{pid}/cgroup", "cpu" if mount.version == 1 else NOT_V1)
        except OSError:
            return {}
        folder = mount.folder(path)
        for group in (folder, *folder.parents):
            if not group.is_relative_to(mount.point):
                break
            waited = _throttled_ns(group / "cpu.stat")
            if waited is not None:
                found[group / "cpu.stat"] = waited
    return found


def _throttled_ns(stat: Path) -> int | None:
    """None where no quota can be set: there is no such controller, or it is the host's top."""
    try:
        pairs = dict(line.split() for line in stat.read_text().splitlines())
    except OSError:
        return None
    if "throttled_usec" in pairs:
        return int(pairs["throttled_usec"]) * 1000
    return int(pairs["throttled_time"]) if "throttled_time" in pairs else None
