"""The SUT's own user: no other program has its number, so it may not change the host's files."""

from __future__ import annotations

import os
import shutil
import stat
from functools import cache
from pathlib import Path

SUT_USER = 65530
"""No distribution gives it to anybody (systemd's list of users, Debian's policy 9.2.2)."""
CAP_CHOWN, CAP_SETGID, CAP_SETUID = 0, 6, 7


@cache
def sut_user() -> int | None:
    """None if it runs as nodrop's: a normal user's namespace has one user and no other."""
    if os.geteuid() != 0 or not all(map(_is_mapped, ("uid_map", "gid_map"))):
        return None
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    may = all(effective >> number & 1 for number in (CAP_CHOWN, CAP_SETGID, CAP_SETUID))
    return SUT_USER if may else None


def _is_mapped(file: str) -> bool:
    rows = (line.split() for line in Path("/proc/self", file).read_text().splitlines())
    return any(int(first) <= SUT_USER < int(first) + int(many) for first, _, many in rows)


def give(folder: Path, user: int | None) -> None:
    """Everything in the folder, and itself, to this user; no link is followed."""
    if user is None:
        return
    for _, folders, files, handle in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, user)


def readable_by(user: int | None, file: Path, copy: Path) -> Path:
    """The file, or this copy of it if the user may not read it. The way there is not looked at: a
    file is shown at another place."""
    if user is None or file.stat().st_mode & stat.S_IROTH:
        return file
    shutil.copyfile(file, copy)
    os.chown(copy, user, user)
    return copy
