"""The lock of a run directory: one process writes, others see whether one does, and what a
killed one left is cut off."""

from __future__ import annotations

import fcntl
import os
from io import FileIO
from pathlib import Path

from nodrop.errors import BadInput
from nodrop.results.names import LOCK, TRIALS
from nodrop.untrusted.folder import Folder

LOCKS = Path("/proc/locks")


def locked(path: Path) -> FileIO:
    """flock(2): the kernel lets go of it when the holder dies, however it dies."""
    file = Folder(path).changing(LOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failed:
        holder = file.read(20).decode(errors="replace").strip()
        file.close()
        raise BadInput(
            f"{path}: another nodrop (pid {holder if holder.isdecimal() else 'unknown'}) "
            "is writing to this run directory",
            hint="wait for it, or watch it with `nodrop watch`",
        ) from failed
    file.truncate()
    file.write(f"{os.getpid()}\n".encode())
    return file


def is_written(path: Path) -> bool:
    """Whether a process holds the flock: asked of the kernel's list, for whoever takes the lock
    even for a moment could turn away a run that wants to resume."""
    try:
        with Folder(path).open(LOCK) as file:
            inode = os.fstat(file.fileno()).st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return False
    return any(
        words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode)
        for words in map(str.split, lines)
        if len(words) > 5
    )


def cut_half_line(folder: Folder) -> None:
    """The next line must not be glued to what an interrupted writer left."""
    whole_bytes = 0
    if folder.is_there(TRIALS):
        lines = filter(lambda line: line.endswith(b"\n"), folder.lines(TRIALS))
        whole_bytes = sum(map(len, lines))
    with folder.open_to_change(TRIALS) as file:
        file.truncate(whole_bytes)
        os.fsync(file.fileno())
