"""The files that a SUT sees if it is a program of this host: the host's own, read-only, without
people's own.

Folders that hold secrets or other programs' sockets are empty folders of the trial; only what the
SUT names of them is shown there, read-only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

COVERED = ("/home", "/root", "/run", "/tmp", "/var/log", "/var/tmp")
PROGRAM_FOLDERS = frozenset({"bin", "sbin", "libexec", ".libs"})
"""Names of folders of programs: what belongs to a program in one of these lies beside the
folder."""


def covered(home: str | None = None) -> list[Path]:
    """Folders of this host that are empty for the SUT, `home` of whoever runs nodrop included."""
    own = home if home is not None else os.environ.get("HOME", "")
    named = [Path(name) for name in (*COVERED, own) if name.startswith("/")]
    real = dict.fromkeys(path.resolve() for path in named if path.is_dir())
    return [path for path in real if path != Path("/") and not any(p in real for p in path.parents)]


def shown(argv: Sequence[str], reads: Iterable[Path], below: Sequence[Path]) -> list[Path]:
    """Paths below the covered folders `below` that must be seen: the program with its libraries,
    what its arguments name and what it `reads`. A path inside another one is left out."""
    wanted = [path for way in _ways(argv[0]) for path in (way, _installed(way, below))]
    wanted += [path for word in argv[1:] for path in _named(word)]
    wanted += reads
    found = {
        path
        for path in map(Path.absolute, wanted)
        if ":" not in str(path) and path.exists() and any(top in path.parents for top in below)
    }
    return sorted(path for path in found if not found & set(path.parents))


def _ways(program: str) -> Iterator[Path]:
    """The program, and each file that a link on the way to it leads to."""
    found = shutil.which(program)
    path = Path(found).absolute() if found else Path(program)
    for _ in range(40):  # as many as the kernel follows
        yield path
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    yield path.resolve()


def _installed(program: Path, below: Sequence[Path]) -> Path:
    """The folder that was installed with it; only the program if that folder is a user's home."""
    folder = program.parent
    if folder.name in PROGRAM_FOLDERS:
        folder = folder.parent
    for choice in (folder, program.parent):
        if choice not in below and choice.parent != Path("/home"):
            return choice
    return program


def _named(word: str) -> Iterator[Path]:
    path = word.partition("=")[2] if word.startswith("-") else word
    if path.startswith("/"):
        yield Path(path)


def refusal(program: Path, below: Sequence[Path], user: int | None) -> str | None:
    """Why the SUT's user, who owns nothing, cannot run the program, in words."""
    if ":" in str(program):
        return f"{program}: a path with a colon cannot be shown to the SUT; move or link it"
    for path in (program, *program.parents) if user is not None else ():
        if path in below:
            break  # from here on the folders are the trial's
        letters, wanted = ("rx", 0o005) if path == program else ("x", 0o001)
        if path.stat().st_mode & wanted != wanted:
            return (
                f"the SUT has a user of its own, who may not use {path}: chmod o+{letters} {path}"
            )
    return None
