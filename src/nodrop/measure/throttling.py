"""Whether a CPU quota kept the SUT from running while packets came."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from nodrop.hosts.inside import usage
from nodrop.hosts.seam import HostProcess


class Throttling:
    """Watched from now on, in every group that has a say: a quota may be a container's own, or that
    of what nodrop itself was started in."""

    def __init__(self, processes: Sequence[HostProcess]) -> None:
        self._processes = tuple(processes)
        self._before = self._read()
        self.readings: list[tuple[int, float]] = []
        """(when on CLOCK_MONOTONIC, seconds so far)"""

    def look(self) -> float | None:
        """Seconds so far, summed over CPUs and groups. None if the kernel does not say, or the
        SUT is gone."""
        seconds = self._seconds()
        if seconds is not None:
            self.readings.append((time.monotonic_ns(), seconds))
        return seconds

    def _seconds(self) -> float | None:
        now = self._read()
        rises = [now[file] - before for file, before in self._before.items() if file in now]
        return sum(rises) / 1e9 if rises else None

    def _read(self) -> Mapping[str, int]:
        """Each group once, however many of the SUT's processes are in it."""
        seen = usage(self._processes).values()
        return {file: ns for one in seen for file, ns in one["throttled_ns"].items()}
