"""In which order tests run, and which have nothing beside them: those marked `alone`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ALONE = ("vm", "docker")
"""An emulated guest takes all CPUs, and taps and macvtaps stand where every test sees them."""
LABS = (*ALONE, "e2e", "known_answers", "netns")
"""By the time that they take, so that the longest do not begin when all others have ended."""


def is_alone(item: pytest.Item) -> bool:
    return _room(item) in ALONE or item.get_closest_marker("alone") is not None


def rank(item: pytest.Item) -> tuple[bool, float, int]:
    """Tests that stop all others come first and together, then those that were given more time."""
    given = item.get_closest_marker("timeout")
    room = _room(item)
    return (
        not is_alone(item),
        -given.args[0] if given else 0,
        LABS.index(room) if room in LABS else len(LABS),
    )


def _room(item: pytest.Item) -> str:
    return item.nodeid.split("/")[1]


class Turns:
    """Tests share a lock; a test that is `alone` has it to itself.

    A worker keeps it from one such test to the next. Whoever waits for the lock holds the gate, so
    that nobody passes a test that waits to be alone. The locks are on two files of this checkout.
    """

    def __init__(self) -> None:
        here = Path(__file__)
        self._gate = os.open(here, os.O_RDONLY)
        self._turn = os.open(here.with_name("conftest.py"), os.O_RDONLY)
        self._kept = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout looks at its clock
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        if not self._kept:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            fcntl.flock(self._turn, fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH)
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            self._kept = is_alone(item) and nextitem is not None and is_alone(nextitem)
            if not self._kept:
                fcntl.flock(self._turn, fcntl.LOCK_UN)

    def pytest_unconfigure(self) -> None:
        os.close(self._gate)
        os.close(self._turn)
