"""How this nodrop was installed: from a checkout or a wheel; and what came with it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from nodrop import __version__
from nodrop.untrusted.json_text import one_line

PACKAGE = Path(__file__).resolve().parent
REVISION = "revision.txt"
"""Commit that a wheel or sdist was built from; tools/wheel_node.py writes it."""


def checkout() -> Path | None:
    """Folder of the sources that nodrop runs from; None: it is installed."""
    folder = PACKAGE.parents[1]
    return folder if (folder / "Makefile").is_file() and (folder / "Cargo.toml").is_file() else None


def shipped(name: str) -> Path:
    """Folder of experiments, labs or image recipes that nodrop brings."""
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parents[1] / name


def brought(path: Path) -> Path:
    """The file that was named; if none is there, and nodrop brings one of that path
    (`experiments/demo.toml`), this one."""
    folder, *names = path.parts or ("",)
    ours = shipped(folder).joinpath(*names)
    known = folder in ("experiments", "labs") and len(names) == 1
    return ours if known and not path.exists() and ours.is_file() else path


def adding(*packages: str) -> str:
    """Command that adds Python packages to this environment."""
    names = shlex.join(packages)
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx inject nodrop {names}"
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {python} {names}"
    return f"{python} -m pip install {names}"


def sibling(package: str) -> str:
    """Command that adds another package of this project."""
    folder = checkout()
    if folder is not None:
        return adding(str(folder / "packages" / package))
    wheel = f"./{package.replace('-', '_')}-{__version__}-py3-none-any.whl"
    return f"{adding(wheel)}, where that wheel of this nodrop is"


def getting_a_node(machine: str) -> str:
    """Way to a node binary for the machine."""
    if checkout():
        return f"`make build`, or cargo build --release --target {machine}-unknown-linux-musl"
    return f"install the wheel of nodrop for {machine}"


@cache
def revision() -> str | None:
    """Commit of the checkout that nodrop runs from, with `-dirty` if it has changes, or of the one
    that its wheel was built from. None if neither is known."""
    packaged = PACKAGE / REVISION
    if packaged.is_file():
        return one_line(packaged.read_text()) or None
    folder = checkout()
    if folder is None or not (folder / ".git").exists():
        return None
    try:
        # `describe --dirty` writes the checkout's index, even with GIT_OPTIONAL_LOCKS=0.
        commit = _git(folder, "describe", "--always")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *words: str) -> str:
    said = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
    )
    return said.stdout.strip()
