"""Rates of counters that are renewed in steps, as seen by a reader who looks now and then."""

from __future__ import annotations

from collections import deque

WINDOW_S = 2.0
"""A counter that is renewed often is averaged over this: its steps and our looks beat."""
STALE_S = 4.5
"""Suricata's decoders hand over every 3 s, and what gathers them looks once a second: a counter
that does not move for longer stands still."""


class SteppedRate:
    """Per second, over the time between changes and not between looks."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()
        self._rate: float | None = None

    def at(self, now_s: float, count: int | None) -> float | None:
        """None until the counter has moved once, or has stood still for long enough."""
        if count is None:
            return None
        if not self._changes:
            self._changes.append((now_s, count))
            return None
        changed_s, last = self._changes[-1]
        if count == last:
            if now_s - changed_s >= STALE_S:
                self._rate = 0.0
            return self._rate
        while len(self._changes) > 1 and self._changes[1][0] <= now_s - WINDOW_S:
            self._changes.popleft()
        since_s, before = self._changes[0]
        self._changes.append((now_s, count))
        self._rate = (count - before) / (now_s - since_s) if now_s > since_s else self._rate
        return self._rate
