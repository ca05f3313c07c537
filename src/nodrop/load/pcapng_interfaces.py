"""What libpcap cannot read of a pcapng file that we can: interfaces that differ, used or not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

SECTION, INTERFACE = 0x0A0D0D0A, 1
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"\x04\x22\x4d\x18")
"""First bytes of gzip, zstd, xz and lz4."""
LONGEST_SNAPSHOT_BYTES = 262_144
"""What libpcap makes of 0 and of more."""


def is_plain(path: Path) -> bool:
    """Whether libpcap reads the capture."""
    with path.open("rb") as file:
        packed = file.read(4).startswith(PACKED)
    return not packed and len(interface_kinds(path)) < 2


def interface_kinds(path: Path) -> frozenset[tuple[int, int]]:
    """Link type and snapshot length of its interfaces; libpcap wants all alike.
    Empty for a pcap file."""
    with path.open("rb") as file:
        return frozenset(_interfaces(file))


def _interfaces(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    order = "<"
    while len(head := file.read(12)) == 12:
        if head[:4] == SECTION.to_bytes(4, "big"):  # the same in either byte order
            order = "<" if head[8:] == b"\x4d\x3c\x2b\x1a" else ">"
        elif file.tell() == 12:
            return
        kind, length = struct.unpack(f"{order}II", head[:8])
        if kind == INTERFACE:
            if len(tail := file.read(4)) < 4:
                return
            linktype, snapshot = struct.unpack(f"{order}H2xI", head[8:] + tail)
            yield linktype, min(snapshot or LONGEST_SNAPSHOT_BYTES, LONGEST_SNAPSHOT_BYTES)
            file.seek(-4, 1)
        if length < 12:
            return
        file.seek(length - 12, 1)
