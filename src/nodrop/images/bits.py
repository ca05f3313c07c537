"""Which bits of a program run, by content hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """Which bits of a program run: from an image (root filesystem) or a binary of the host."""

    kind: str
    """`image` or `binary`."""
    path: Path
    """Unpacked root filesystem folder, or the binary."""
    sha256: str
    """Hash of the image tar, or of the binary."""
    version: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
