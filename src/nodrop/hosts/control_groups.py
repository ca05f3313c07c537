"""Finds a process's control groups: hosts mount version 1, version 2, or each for a part."""

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
