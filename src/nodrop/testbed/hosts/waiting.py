"""Looks at something that is awaited, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

POLL_S = 0.02


def looks(within_s: float, *, every_s: float = POLL_S) -> Iterator[float]:
    """Seconds that have passed at each look: at least one, the last one when `within_s` are over.

    The loop's `else` is where what was awaited did not come.
    """
    began = time.monotonic()
    while True:
        passed_s = time.monotonic() - began
        yield passed_s
        if passed_s >= within_s:
            return
        time.sleep(max(0.0, min(every_s, began + within_s - time.monotonic())))
