"""The folders that nodrop keeps between runs: caches by content hash, and what must be undone."""

from __future__ import annotations

import contextlib
import os
import time
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
    """Once in a process. A run that reads a file since before goes on reading it."""
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
