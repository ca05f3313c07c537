"""Regular expressions of others, bounded in time: few that may take for ever show it in writing."""

from __future__ import annotations

import re
import signal
import threading

WITHIN_S = 5.0


class TooSlow(Exception):
    """An expression that was stopped."""


def matches(regex: str, text: str) -> list[re.Match[str]]:
    """Matches in lines of a text. A thread that is not the program's first one cannot be stopped,
    and waits."""

    def late(_signal: int, _frame: object) -> None:
        raise TooSlow(f"its regex takes more than {WITHIN_S:g} s for {len(text)} bytes")

    if threading.current_thread() is not threading.main_thread():
        return [*re.finditer(regex, text, re.MULTILINE)]
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, WITHIN_S)
        return [*re.finditer(regex, text, re.MULTILINE)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
