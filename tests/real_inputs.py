"""Real traces and rules: read if the machine has them, never committed."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
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


def realmix(into: Path) -> Path:
    """The unpacked trace, checked by its hash."""
    packed = shared_data() / "realmix.pcap.xz"
    if not packed.is_file():
        pytest.skip(f"no {packed}")
    trace = into / "realmix.pcap"
    with lzma.open(packed) as source, trace.open("wb") as target:
        shutil.copyfileobj(source, target)
    assert hashlib.sha256(trace.read_bytes()).hexdigest() == REALMIX_SHA256
    return trace
