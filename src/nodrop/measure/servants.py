"""What a place costs this host beside the SUT itself: daemons, shims, a guest's kernel threads."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.hosts.seam import Json
from nodrop.measure.usage_probe import UsageProbe


class Servants:
    """Watched from now on. A daemon's other work counts as well: it cannot be separated."""

    def __init__(self, probe: UsageProbe, pids: Sequence[int]) -> None:
        self._probe = probe
        self._before = probe.look(pids) if pids else {}

    def used(self) -> list[Json]:
        """CPU of each since then; None of one that has ended."""
        now = self._probe.look(self._before) if self._before else {}
        found = []
        for pid, before in self._before.items():
            after = now.get(pid)
            lives = after is not None and after["start_ticks"] == before["start_ticks"]
            used = round((after["cpu_ns"] - before["cpu_ns"]) / 1e9, 2) if after and lives else None
            found.append({"pid": pid, "name": before["name"], "cpu_s": used})
        return found


def setup_cpu_s(sut_cpu_s: float | None, servants: Sequence[Json] | None) -> float | None:
    """The SUT and its servants together. A guest's time is within its emulator's, which is the
    SUT's process on this host, and is added to nothing. None if a part is not known."""
    if sut_cpu_s is None or servants is None:
        return None
    parts = [one["cpu_s"] for one in servants]
    return None if None in parts else sut_cpu_s + sum(parts)
