"""Folders in the temporary folder: where dask works, each trial of a fleet until it is sent, and
the cases of `nodrop calibrate`.

Each is locked by who made it. One without a lock was left by a process that was killed, and goes
with `nodrop undo`, or when a worker or a calibration starts on that host.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "nodrop-scratch-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of this user alone; it is gone afterwards."""
    folder, held = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def sweep() -> list[str]:
    """Removes the folders that killed processes of this user have left; returns them in words."""
    swept = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is locked, or has just gone
            held = _locked(folder)
            try:
                if os.fstat(held).st_uid == os.geteuid():
                    shutil.rmtree(folder)
                    swept.append(f"folder {folder}")
            finally:
                os.close(held)
    return swept


def _made() -> tuple[Path, int]:
    """Again, if it was swept before it had its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(OSError):
            held = _locked(folder)
            if folder.is_dir():
                return folder, held
            os.close(held)


def _locked(folder: Path) -> int:
    """OSError if another process has it."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
