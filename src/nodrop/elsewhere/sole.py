"""On the receiver: one run has it at a time. Two would share its CPUs, on whichever ports."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodrop.elsewhere.control_plane import CONTROL_FOLDER
from nodrop.errors import LabProblem
from nodrop.hosts.journal import living
from nodrop.hosts.whose import this_host

WAIT_S = 10.0
"""A run whose line was cut may still be at its undoing."""
LOOK_S = 0.1


@contextmanager
def sole_run() -> Iterator[None]:
    """LabProblem if another run has this host. The kernel lets go of it if we die."""
    held = os.open(CONTROL_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _hold(held, until=time.monotonic() + WAIT_S)
        yield
    finally:
        os.close(held)


def _hold(file: int, *, until: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                whose = " and ".join(living().values()) or "another run"
                raise LabProblem(
                    f"{this_host()}: {whose} has this host",
                    hint="wait for its end, or end it from there (`nodrop undo LAB --all`)",
                ) from None
        time.sleep(LOOK_S)
