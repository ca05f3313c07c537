"""A Python of another version than ours that this machine has, and packages for it.

Tests reach no package index; `python -m tests.ssh.other_python` fetches those packages before.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nodrop.remote import upload


def other_python() -> Path | None:
    for minor in range(11, 20):
        found = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")]
        found += [Path(f"/usr/bin/python3.{minor}"), Path(f"/usr/local/bin/python3.{minor}")]
        if minor != sys.version_info.minor and (there := [path for path in found if path.exists()]):
            return there[0].resolve()
    return None


def version(python: Path) -> str:
    return python.name.removeprefix("python")


if __name__ == "__main__" and (other := other_python()) is not None:
    for distribution in upload._distributions():
        list(upload._installed(distribution, version(other)))
