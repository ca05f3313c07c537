"""What a place costs this host beside the SUT itself: daemons, shims, a guest's kernel threads."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.hosts.processes import ProcessId, cpu_s, name_of
from nodrop.hosts.seam import Json


class Servants:
    """Watched from now on. A daemon's other work counts as well: it cannot be told apart."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._before = {
            process: (name_of(process), cpu_s(process))
            for process in filter(None, map(ProcessId.find, pids))
        }

    def used(self) -> list[Json]:
        """CPU of each since then; None of one that has ended."""
        found = []
        for process, (name, before) in self._before.items():
            now = cpu_s(process)
            used = None if before is None or now is None else round(now - before, 2)
            found.append({"pid": process.pid, "name": name, "cpu_s": used})
        return found


def setup_cpu_s(sut_cpu_s: float | None, servants: Sequence[Json] | None) -> float | None:
    """The SUT and its servants together. A guest's time is within its emulator's, which is the
    SUT's process on this host, and is added to nothing. None where a part is not known."""
    if sut_cpu_s is None or servants is None:
        return None
    parts = [one["cpu_s"] for one in servants]
    return None if None in parts else sut_cpu_s + sum(parts)
