"""The folders that nodrop keeps between runs: caches by content hash, and what must be undone."""

from __future__ import annotations

import os
from pathlib import Path

from nodrop.untrusted.folder import Folder


def cache_folder() -> Path:
    """Images, made traces, unpacked rules; safe to delete. nodrop runs what lies there, so the
    host's root refuses the folder of another user (`sudo -E`), or one that others may write to."""
    folder = _base("XDG_CACHE_HOME", ".cache") / "nodrop"
    if is_root_of_host() and folder.is_dir():
        Folder(folder).must_be_ours("the cache")
    return folder


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
