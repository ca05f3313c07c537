"""How much of a foreign thing is read, and the one key that allows more.

Every bound is far above what nodrop itself writes. `NODROP_BOUNDS_TIMES=8` in the environment
raises all of them eightfold.
"""

from __future__ import annotations

import lzma
import os
import zlib
from pathlib import Path
from typing import IO

from nodrop.errors import BadInput

KEY = "NODROP_BOUNDS_TIMES"
MIB = 1 << 20

SMALL_FILE_BYTES = 64 * MIB
"""A file that is read as a whole: a manifest, an experiment, a journal, a rule file's page."""
LINE_BYTES = 4 * MIB
"""A line of JSON. A trial record has a few kilobytes, eve.json's statistics of 64 threads 200."""
LINES_FILE_BYTES = 16 << 30
"""A file that is read line by line: no bound of memory, but of time."""
GUEST_FILE_BYTES = 256 * MIB
"""One file, or all that one program says, out of a guest; it lies in memory on its way."""
GUEST_TRIAL_BYTES = 1 << 30
"""All files that a SUT leaves in its guest, of one trial."""
FOLDER_ENTRIES = 1_000_000
"""Names in one folder."""


def times() -> float:
    """The factor by which every bound is multiplied."""
    text = os.environ.get(KEY, "").strip()
    if not text:
        return 1.0
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= 1e6:
        raise BadInput(f"{KEY}={text!r}: must be a number from 1 to 1,000,000")
    return number


def raised(bound: int) -> int:
    return int(bound * times())


def said(number_bytes: int) -> str:
    """A bound in words: `64 MiB`."""
    whole, unit = (number_bytes, "bytes")
    for bigger in ("KiB", "MiB", "GiB"):
        if whole < 1024 or whole % 1024:
            break
        whole, unit = whole // 1024, bigger
    return f"{whole:,} {unit}"


PIECE_BYTES = 1 << 20


def unpack(packed: IO[bytes], to: Path, *, most_bytes: int, where: str) -> None:
    """Writes what `packed` yields to `to`, whole or not at all."""
    most = raised(most_bytes)
    partial = to.with_name(f"{to.name}.{os.getpid()}.partial")
    unpacked = 0
    try:
        with partial.open("xb") as out:
            while piece := packed.read(PIECE_BYTES):
                unpacked += len(piece)
                if unpacked > most:
                    raise BadInput(
                        f"{where}: unpacks to more than {said(most)}",
                        hint=f"{KEY}=2 in the environment allows twice as much",
                    )
                out.write(piece)
        partial.rename(to)
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise BadInput(f"{where}: cannot be unpacked: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadInput(f"{where}: cannot be unpacked: {error}") from None  # gzip's own
    finally:
        partial.unlink(missing_ok=True)
