"""Whether a workbook file is safe to hand to a spreadsheet reader: whole, small, not sparse."""

from __future__ import annotations

import copy
import io
import re
import zipfile
import zlib

# The largest of the 956 published workbooks is 1.0 MB and unpacks to 3.4 MB at a ratio of 14.
MAX_UNPACKED_BYTES = 256 << 20
MAX_ENTRIES = 5_000
CHUNK_BYTES = 1 << 20

# A reader lays a sheet out as a full rectangle: one cell at XFD1048576 costs 17 G cells.
# Published sheets end before row 400 and column W.
# No spreadsheet spells a reference with entities.
_FAR_CELL = re.compile(
    rb"""<(?:[\w.-]+:)?(?:c|row)\s(?:[^<]*?\s)?r\s*=\s*["']"""
    rb"""(?:[A-Za-z]{3,}\d|[A-Za-z]*\d{5}|[^"'&<]*&)"""
)
_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|<\0|\0<")


class UnsafeArchiveError(ValueError):
    """The file must not be opened as a workbook; the text says why."""


def check_archive(content: bytes) -> None:
    """Unpacks into nothing, counting. UnsafeArchiveError if the file is broken, huge or sparse.

    The sizes that an archive declares may lie, so each member is unpacked to its real end.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            declared = sum(member.file_size for member in members)
            if len(members) > MAX_ENTRIES or declared > MAX_UNPACKED_BYTES:
                raise UnsafeArchiveError(
                    f"unpacks to {declared} bytes in {len(members)} parts,"
                    f" allowed are {MAX_UNPACKED_BYTES} in {MAX_ENTRIES}"
                )
            for member in members:
                _check_member(archive, member)
    except UnsafeArchiveError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise UnsafeArchiveError(f"not a whole zip archive: {error}") from error
    except RuntimeError as error:  # zipfile's word for an encrypted member
        raise UnsafeArchiveError(f"cannot be unpacked: {error}") from error


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    unbounded = copy.copy(member)
    unbounded.file_size = MAX_UNPACKED_BYTES  # zipfile would stop reading at the declared size
    unpacked = 0
    tail = b""
    with archive.open(unbounded) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            unpacked += len(chunk)
            if unpacked > member.file_size:
                raise UnsafeArchiveError(
                    f"{member.filename} declares {member.file_size} bytes and unpacks to more"
                )
            # Any part may be a sheet: workbook.xml says which, by any name.
            if unpacked == len(chunk) and _UTF16.match(chunk):
                raise UnsafeArchiveError(f"{member.filename} is XML in UTF-16")
            chunk = tail + chunk
            if _FAR_CELL.search(chunk):
                raise UnsafeArchiveError(f"{member.filename} has a cell beyond ZZ9999")
            begun = chunk.rfind(b"<")
            tail = chunk[begun:] if begun >= 0 else b""
            if len(tail) > CHUNK_BYTES:
                raise UnsafeArchiveError(f"{member.filename} has a tag of more than 1 MiB")
