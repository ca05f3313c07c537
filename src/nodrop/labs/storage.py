"""The storage of a lab: a host that keeps raw files of runs, reached over the user's own ssh."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Self

from nodrop.errors import LabProblem, NotReady
from nodrop.hosts.ssh_connection import SshConnection
from nodrop.untrusted.folder import Folder

LOOK_TIMEOUT_S = 30.0
FILE_TIMEOUT_S = 3600.0
LOOK = """\
umask 077
command -v sha256sum >/dev/null || { echo "there is no sha256sum" >&2; exit 1; }
mkdir -p "$1" && : >"$1/.nodrop" && rm "$1/.nodrop" && df -Pk "$1" | awk 'END { print $4 }'
"""
BEGUN = """\
wc -c 2>/dev/null <"$1/.$2.$3" || sha256sum 2>/dev/null <"$1/$2" || :
"""
"""How much of a file is there, or the hash of one that is whole."""
KEEP = """\
umask 077
mkdir -p "$1" && cat >>"$1/.$2.$3" || exit
[ $(wc -c <"$1/.$2.$3") -ge "$4" ] || { echo "the line was cut" >&2; exit 1; }
if [ "$(sha256sum <"$1/.$2.$3")" != "$3  -" ]; then
  rm "$1/.$2.$3"
  echo "it did not arrive whole" >&2
  exit 1
fi
sync "$1/.$2.$3" && mv "$1/.$2.$3" "$1/$2" && sync "$1"
"""
"""$1: the folder, $2: the file, $3: its hash, $4: its size; stdin: what is not there yet. A file
has its name once it is whole and on disk. What has begun bears its hash, and is gone on with."""


class Storage:
    """A Keeper (results/raw_files.py), while it is entered. NotReady, in one sentence, if it is not
    to be had."""

    def __init__(self, host: str, path: str, *, config: Path | None) -> None:
        self.host, self.path = host, path.rstrip("/")
        self.name = f"storage {host}"
        self.free_bytes = 0
        self._connection = SshConnection(host, name=self.name, config=config)

    def __enter__(self) -> Self:
        try:
            self._connection.__enter__()
            self.free_bytes = self._look()
        except LabProblem as problem:
            self._connection.close()
            raise NotReady(problem.message, hint=problem.hint) from problem
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def keep(self, folder: Folder, name: str, sha256: str, *, there: str) -> None:
        """When this returns, the file is there and on disk."""
        if self._connection.gone():
            self._connection.close()
            self._connection.__enter__()
        begun = self._run(BEGUN, there, name, sha256).strip()
        if begun == f"{sha256}  -":
            return
        with folder.open(name) as file:
            size = str(os.fstat(file.fileno()).st_size)
            os.lseek(file.fileno(), int(begun) if begun.isdecimal() else 0, os.SEEK_SET)
            self._run(KEEP, there, name, sha256, size, stdin=file, timeout_s=FILE_TIMEOUT_S)

    def _look(self) -> int:
        free = self._run(LOOK, self.path).strip()
        if free == "0":
            raise LabProblem(f"{self.name}: {self.path}: {os.strerror(errno.ENOSPC)}")
        return int(free) << 10 if free.isdecimal() else 0

    def _run(
        self,
        script: str,
        folder: str,
        *names: str,
        stdin: str | IO[bytes] = "",
        timeout_s: float = LOOK_TIMEOUT_S,
    ) -> str:
        path = "/".join((folder, *names[:1]))
        done = self._connection.run(
            ["sh", "-c", script, "nodrop", folder, *names],
            timeout_s=timeout_s,
            check=False,
            stdin=stdin,
            shown=f"keep {path}",
        )
        if done.returncode != 0:
            raise LabProblem(f"{self.name}: {path} cannot be kept: {_said(done.stderr)}")
        return done.stdout


def _said(stderr: str) -> str:
    """A full disk, or what was complained of at last."""
    if (full := os.strerror(errno.ENOSPC)) in stderr:
        return full
    lines = stderr.strip().splitlines()
    return lines[-1].strip() if lines else "it does not say why"
