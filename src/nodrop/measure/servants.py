"""Costs of a place on this host beside the SUT itself: daemons, shims, a guest's kernel threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.hosts.inside import usage
from nodrop.hosts.seam import HostProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Servant:
    """CPU time that one such process used."""

    pid: int
    name: str
    cpu_s: float | None
    """None if it has ended."""


class Servants:
    """Watched from now on. A daemon's other work counts as well: it cannot be separated."""

    def __init__(self, processes: Sequence[HostProcess]) -> None:
        self._before = usage(processes)

    def used(self) -> Sequence[Servant]:
        """CPU of each since then; None of one that has ended."""
        now = usage(self._before)
        found = []
        for process, before in self._before.items():
            after = now.get(process)
            lives = after is not None and after["start_ticks"] == before["start_ticks"]
            used = round((after["cpu_ns"] - before["cpu_ns"]) / 1e9, 2) if after and lives else None
            found.append(Servant(pid=process.pid, name=before["name"], cpu_s=used))
        return found


def setup_cpu_s(sut_cpu_s: float | None, servants: Sequence[Servant] | None) -> float | None:
    """The SUT and its servants together. A guest's time is within its emulator's, which is the
    SUT's process on this host, and is added to nothing. None if a part is not known."""
    if sut_cpu_s is None or servants is None:
        return None
    parts = [one.cpu_s for one in servants if one.cpu_s is not None]
    return sut_cpu_s + sum(parts) if len(parts) == len(servants) else None
