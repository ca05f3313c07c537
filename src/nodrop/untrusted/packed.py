"""Unpacking what may be a bomb: in pieces, onto disk, with an end, and nothing left if it fails."""

from __future__ import annotations

import lzma
import os
import zlib
from pathlib import Path
from typing import IO

from nodrop.errors import BadInput
from nodrop.untrusted import bounds

PIECE_BYTES = 1 << 20


def unpack(packed: IO[bytes], to: Path, *, most_bytes: int, where: str) -> None:
    """Writes what `packed` yields to `to`, whole or not at all."""
    most = bounds.raised(most_bytes)
    partial = to.with_name(f"{to.name}.{os.getpid()}.partial")
    unpacked = 0
    try:
        with partial.open("xb") as out:
            while piece := packed.read(PIECE_BYTES):
                unpacked += len(piece)
                if unpacked > most:
                    raise BadInput(
                        f"{where}: unpacks to more than {bounds.said(most)}",
                        hint=f"{bounds.KEY}=2 in the environment allows twice as much",
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
