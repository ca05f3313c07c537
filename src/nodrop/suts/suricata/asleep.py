"""Suricata's threads as the kernel sees them: while all of them sleep, its rings are empty."""

from __future__ import annotations

import time

from nodrop.setups.seam import Process

IDLE_RATIO = 0.1
"""Share of one core below which Suricata counts as asleep. Its own housekeeping, between two looks,
takes some 1 %."""


class Asleep:
    """Asked at every look. A frame in a ring wakes its thread at once, and a packet between two
    threads keeps one of them running: if every thread sleeps at each look, and has hardly run
    since the last, nothing is left. That is known seconds before Suricata's counters show it: it
    asks the kernel once a second, and its threads publish every 3 s.

    Frames in an open block of TPACKET_V3 wake no thread: sleep must outlast its timeout.
    """

    def __init__(self, process: Process, *, at_least_s: float) -> None:
        self._process = process
        self._at_least_s = at_least_s
        self._seen: tuple[float, int] | None = None
        self._awake = 0
        self.since_s: float | None = None
        """From here on it has slept; None = it does not."""
        self.worked_s: float | None = None
        """It was at work here: awake at two looks in a row, which housekeeping is not."""

    def __call__(self) -> bool:
        now_s, inside = time.monotonic(), self._process.look()
        before, self._seen = self._seen, None
        if inside is None or inside.cpu_ns is None or inside.stopped:
            self._woken(now_s)
            return False
        self._seen = time.monotonic(), inside.cpu_ns
        if before and inside.cpu_ns - before[1] >= IDLE_RATIO * (now_s - before[0]) * 1e9:
            self._woken(now_s)
        else:
            self._awake = 0
        if self.since_s is None:
            self.since_s = self._seen[0]
            return False
        return now_s - self.since_s >= self._at_least_s

    def _woken(self, now_s: float) -> None:
        self.since_s, self._awake = None, self._awake + 1
        if self._awake > 1:
            self.worked_s = now_s
