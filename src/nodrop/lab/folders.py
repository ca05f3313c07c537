"""Where nodrop keeps things between runs: caches by content hash, and what must be undone."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Images, made traces, unpacked rules; safe to delete."""
    return _base("XDG_CACHE_HOME", ".cache") / "nodrop"


def state_folder() -> Path:
    """Undo journals; not safe to delete while something is to be undone."""
    return _base("XDG_STATE_HOME", ".local/state") / "nodrop"


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path.home() / default
