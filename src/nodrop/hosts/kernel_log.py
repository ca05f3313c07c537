"""What the kernel has written of itself: whom it killed for lack of memory."""

from __future__ import annotations

import os
import re

RECORD_BYTES = 8192
"""The longest record of /dev/kmsg (PRINTK_MESSAGE_MAX is 2048, escaped it is longer)."""
CLOCKS_APART_S = 1.0
"""The log's clock is the scheduler's, which no one sets by NTP."""
_KILLED = re.compile(r"(?:^|: )Killed process (\d+) \(")


def killed_for_memory(pid: int, *, since_mono_ns: int) -> bool:
    """Whether the kernel says so (`__oom_kill_process`, mm/oom_kill.c), whatever became of the
    process's control group. False too if the log cannot be read. `pid`: as the host counts."""
    begin_us = since_mono_ns / 1e3 - CLOCKS_APART_S * 1e6
    return any(when >= begin_us and pid == killed for when, killed in _kills())


def _kills() -> list[tuple[int, int]]:
    """Time in us, and the PID: Documentation/ABI/testing/dev-kmsg."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found = []
    try:
        while record := _next(handle):
            head, _, text = record.partition(";")
            if killed := _KILLED.search(text.partition("\n")[0]):
                found.append((int(head.split(",")[2]), int(killed[1])))
    finally:
        os.close(handle)
    return found


def _next(handle: int) -> str:
    """One record a read; empty at the end."""
    while True:
        try:
            return os.read(handle, RECORD_BYTES).decode(errors="replace")
        except BrokenPipeError:
            continue  # it was overwritten meanwhile: the next read begins at the oldest
        except OSError:
            return ""
