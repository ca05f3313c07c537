"""Records of a run of any length: each lies as some hundred bytes and is made when it is asked for.

A record takes 5.7 kB as objects: 100,000 of them are more memory than many a laptop has left.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import overload

from nodrop.results.trial import TrialRecord

ROOM = 40_000
"""Records that stay as they were made, 240 MB: a run of no more trials makes each once."""
made: dict[bytes, TrialRecord] = {}
"""Records that stay as they were made, by their packed bytes."""


def pack(record: TrialRecord) -> bytes:
    """Every figure as it is: JSON gives back each number to its last digit."""
    packer = zlib.compressobj(level=1, wbits=-zlib.MAX_WBITS, zdict=_names())
    return packer.compress(record.model_dump_json().encode()) + packer.flush()


def unpack(packed: bytes) -> TrialRecord:
    """Whoever reads a run goes from its first record to its last, again and again. If the latest
    stayed, none would be there when it is next asked for; so the first do."""
    found = made.get(packed)
    if found is None:
        found = _unpacked(packed)
        if len(made) < ROOM:
            made[packed] = found
    return found


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> TrialRecord:
    unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS, zdict=_names())
    return TrialRecord.model_validate_json(unpacker.decompress(packed))


@lru_cache
def _names() -> bytes:
    """The names of fields, which every record has, so that no packed one has to."""
    record = TrialRecord(
        cell={}, repetition=1, index=0, run="r", outcome="measured", valid=True, verdict=""
    )
    return record.model_dump_json().encode()


class Records(Sequence[TrialRecord]):
    """In the order in which they were measured."""

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        self.packed = tuple(packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[TrialRecord]:
        return map(unpack, self.packed)

    @overload
    def __getitem__(self, index: int) -> TrialRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> TrialRecord | Records:
        found = self.packed[index]
        return unpack(found) if isinstance(found, bytes) else Records(found)
