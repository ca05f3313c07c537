"""Files and trees of files that another host keeps by their content: each is copied there once."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.node import file_sha256
from nodrop.untrusted.json_text import one_line

LOOK_TIMEOUT_S, SLOWEST_READ_BYTES_S = 60.0, 10_000_000
"""Seconds that any look may take, and the rate (bytes per second) at which a file's size adds to
them, for it is hashed there."""
LONGEST_COMPLAINT = 500
FOUND = "there"
SUMS = "SHA256SUMS"
"""List of the hashes of a tree's files; its own hash is the tree's."""
LOOK_AT_FILE = f"""\
[ "$(sha256sum 2>/dev/null <"$1/$2/$4")" = "$2  -" ] && echo {FOUND} || :
"""
LOOK_AT_TREE = f"""\
cd "$1/$2" 2>/dev/null || exit 0
[ "$(sha256sum <{SUMS})" = "$2  -" ] && sha256sum --check --quiet {SUMS} >/dev/null 2>&1 || exit 0
echo {FOUND}
"""
BEGIN = """\
set -eu
umask 022
of_root() {
  case "$(stat -c %u:%a "$1")" in
  0:7[0145][0145]) ;;
  *) echo "$1 is not root's alone" >&2; exit 1 ;;
  esac
}
mkdir -p "$1"
of_root "${1%/*}"
of_root "$1"
chmod "$3" "$1"
"""
TAKE_FILE = f"""{BEGIN}\
mkdir -p "$1/$2"
of_root "$1/$2"
find "$1" -name '.begun.??????' -type f -mmin +10 -delete
new=$(mktemp "$1/$2/.begun.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP TERM
cat >"$new"
[ "$(sha256sum <"$new")" = "$2  -" ] || {{ echo "it did not arrive whole" >&2; exit 1; }}
chmod "$5" "$new"
mv -f "$new" "$1/$2/$4"
"""
TAKE_TREE = f"""{BEGIN}\
new=$(mktemp -d "$1/.begun.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP TERM
tar -xz --no-same-owner -f - -C "$new"
cd "$new"
[ "$(sha256sum <{SUMS})" = "$2  -" ] && sha256sum --check --quiet {SUMS} >&2 || {{
  echo "it did not arrive whole" >&2
  exit 1
}}
chmod 755 "$new"
rm -rf "${{1:?}}/$2"
mv -T "$new" "$1/$2"
"""
"""$1: the store, $2: the hash, $3: the store's mode, $4 and $5: a file's name and mode. Files of
one content and two names lie beside each other, so a file alone takes the place of a file."""


class Taking(Protocol):
    """A host where we are root, and whose programs take a file of ours (hosts/ssh.py)."""

    name: str

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True
    ) -> Completed: ...

    def copied(self, argv: Sequence[str], content: IO[bytes], name: str) -> Completed: ...


class Placed(NamedTuple):
    """Content that lies there whole."""

    path: str
    copied: bool
    """The content was not there before."""


@dataclass(frozen=True, slots=True)
class ContentStore:
    """A folder of a host, root's, with one folder in it for each content hash. What is in those has
    its name once it is whole, and is held against its hash whenever it is put there again."""

    host: Taking
    folder: str
    mode: str = "755"

    def put_file(self, file: Path, *, name: str = "", mode: str = "644", shown: str = "") -> Placed:
        """`name` there, and `shown` in a message; the file's own if they are not given."""
        digest, name = file_sha256(file), name or file.name
        copied = self._put(
            (LOOK_AT_FILE, TAKE_FILE),
            (digest, self.mode, name, mode),
            lambda: file.open("rb"),
            shown=shown or file.name,
            size_bytes=file.stat().st_size,
        )
        return Placed(f"{self.folder}/{digest}/{name}", copied)

    def put_tree(self, files: Mapping[str, Path | bytes], *, shown: str) -> Placed:
        """Files by their names below the tree: contents, or the files that have them."""
        sums = "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items()))
        digest = hashlib.sha256(sums.encode()).hexdigest()
        copied = self._put(
            (LOOK_AT_TREE, TAKE_TREE),
            (digest, self.mode),
            partial(_packed, {**files, SUMS: sums.encode()}),
            shown=shown,
        )
        return Placed(f"{self.folder}/{digest}", copied)

    def _put(
        self,
        scripts: tuple[str, str],
        words: Sequence[str],
        content: Callable[[], AbstractContextManager[IO[bytes]]],
        *,
        shown: str,
        size_bytes: int = 0,
    ) -> bool:
        look, take = (["sh", "-c", script, "nodrop", self.folder, *words] for script in scripts)
        timeout_s = LOOK_TIMEOUT_S + size_bytes / SLOWEST_READ_BYTES_S
        if FOUND in self.host.run(look, timeout_s=timeout_s).stdout:
            return False
        with content() as file:
            done = self.host.copied(take, file, shown)
        if done.returncode != 0:
            said = done.stderr or done.stdout or f"status {done.returncode}"
            said = one_line(said, longest=LONGEST_COMPLAINT)
            raise LabProblem(f"{self.host.name}: {shown} cannot be copied to {self.folder}: {said}")
        return True


@contextmanager
def _packed(files: Mapping[str, Path | bytes]) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                if isinstance(content, Path):
                    entry.size, entry.mode = content.stat().st_size, content.stat().st_mode & 0o755
                    with content.open("rb") as file:
                        tar.addfile(entry, file)
                else:
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
        packed.seek(0)
        yield packed


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, Path):
        return file_sha256(content)
    return hashlib.sha256(content).hexdigest()
