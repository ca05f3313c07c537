"""Folders that nodrop keeps between runs, caches by content hash and what must be undone, and those
of one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from nodrop.untrusted.folder import Folder

TRACES_KEPT_DAYS = 30
"""A capture that is sent again after that is prepared again."""


def cache_folder() -> Path:
    """Images, made traces, unpacked rules; safe to delete. nodrop runs what lies there, so the
    host's root refuses the folder of another user (`sudo -E`), or one that others may write to."""
    folder = _base("XDG_CACHE_HOME", ".cache") / "nodrop"
    if is_root_of_host() and folder.is_dir():
        Folder(folder).must_be_ours("the cache")
    return folder


def traces_folder() -> Path:
    """Captures as they are sent. It exists; what nobody read for `TRACES_KEPT_DAYS` is deleted."""
    folder = cache_folder() / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    return folder


@cache
def _sweep(folder: Path) -> None:
    """Removes old traces, once in a process. A run that reads a file since before goes on reading
    it."""
    oldest_s = time.time() - TRACES_KEPT_DAYS * 86_400
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process sweeps as well
            seen = path.stat()
            if max(seen.st_atime, seen.st_mtime) < oldest_s:
                path.unlink()


def state_folder() -> Path:
    """Undo journals; not safe to delete while something is to be undone."""
    return _base("XDG_STATE_HOME", ".local/state") / "nodrop"


def is_root_of_host() -> bool:
    """Root of a user namespace has no rights but its user's."""
    if os.geteuid() != 0:
        return False
    try:
        return Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"]
    except OSError:
        return True


def uid_of_host(uid_map: Path = Path("/proc/self/uid_map")) -> int:
    """Ours; of root of a user namespace its user's: /tmp is the same in both."""
    uid = os.geteuid()
    try:
        rows = uid_map.read_text().splitlines()
    except OSError:
        return uid
    for first, outside, many in (map(int, row.split()) for row in rows):
        if first <= uid < first + many:
            return outside + uid - first
    return uid


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path.home() / default


# Folders in the temporary folder: where dask works, each trial of a fleet until it is sent, and
# the cases of `nodrop calibrate`.
#
# Each is locked by who made it. One without a lock was left by a process that was killed, and goes
# with `nodrop undo`, or when a worker or a calibration starts on that host.
PREFIX = "nodrop-scratch-"


@contextmanager
def building(above: Path) -> Iterator[Path]:
    """A folder in which something is put together; gone afterwards, unless it was moved away."""
    folder = Path(tempfile.mkdtemp(prefix=".building-", dir=above))
    try:
        folder.chmod(0o755)  # a normal user may run what root built
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The folder, which is made: two that make the same in it wait for each other. The lock goes
    with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    with Folder(folder).open_to_change(".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@contextmanager
def put_in_place(made: Path) -> Iterator[Path]:
    """The path for a file that has its name once it is whole. Nothing stays if that fails."""
    partial = made.with_suffix(f".{os.getpid()}.partial")
    try:
        yield partial
        if partial.is_file():
            partial.rename(made)
    finally:
        partial.unlink(missing_ok=True)


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
    """A folder and its lock; made again if it was swept before it had its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(OSError):
            held = _locked(folder)
            if folder.is_dir():
                return folder, held
            os.close(held)


def _locked(folder: Path) -> int:
    """Locks a folder. OSError if another process has it."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
