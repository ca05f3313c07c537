"""Real traces and rules: read if the machine has them, never committed."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REALMIX_PACKETS = 101_171
REALMIX_SHA256 = "a5e5c8fd87a1c876082d715807dfcc79b81184f13d7915da58d7c7c362c0262e"


def shared_data() -> Path:
    """NODROP_SHARED_DATA, else ../shared/data beside the checkout; skips if neither is there."""
    named = os.environ.get("NODROP_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (set NODROP_SHARED_DATA)")
    return folder


def realmix(folders: pytest.TempPathFactory) -> Path:
    """The unpacked trace, checked by its hash; one for the whole session, for it takes seconds."""
    packed = shared_data() / "realmix.pcap.xz"
    if not packed.is_file():
        pytest.skip(f"no {packed}")
    with made_once(folders, "realmix") as (folder, is_made):
        trace = folder / "realmix.pcap"
        if not is_made:
            with lzma.open(packed) as source, trace.open("wb") as target:
                shutil.copyfileobj(source, target)
            trace.chmod(0o444)
            assert hashlib.sha256(trace.read_bytes()).hexdigest() == REALMIX_SHA256
    return trace


@contextmanager
def made_once(folders: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder that all workers of a session share, and whether one of them has filled it. The
    others wait meanwhile."""
    above = folders.getbasetemp()
    folder = (above.parent if "PYTEST_XDIST_WORKER" in os.environ else above) / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / ".made"
        yield folder, made.exists()
        made.touch()
