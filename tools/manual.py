"""The manual page and the completions that a wheel brings, from the help of the commands:
`python tools/manual.py FOLDER` writes them as they lie below share/ of an environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from nodrop import __version__
from nodrop.cli import main
from nodrop.cli.lab import NODE_JOBS

COMPLETIONS = {
    "bash": "bash-completion/completions/nodrop",
    "fish": "fish/vendor_completions.d/nodrop.fish",
    "zsh": "zsh/site-functions/_nodrop",
}
"""Shell → where it looks below share/."""


def commands(command: Any, context: Any) -> Iterator[Any]:
    """Contexts of the commands, groups before what is in them."""
    yield context
    for name, below in getattr(command, "commands", {}).items():
        if context.parent is None and name in NODE_JOBS:
            continue  # the node's own help
        yield from commands(below, below.context_class(below, info_name=name, parent=context))


def roff(text: str) -> str:
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def page() -> str:
    program: Any = typer.main.get_command(main.app)
    top = program.context_class(program, info_name="nodrop", terminal_width=78, color=False)
    said = [
        f'.TH NODROP 1 "" "nodrop {__version__}" "User Commands"',
        ".SH NAME",
        "nodrop \\- how much traffic an IDS carries on a host before it drops a packet",
    ]
    for context in commands(program, top):
        said += [
            ".SH SYNOPSIS" if context is top else f'.SH "{roff(context.command_path)}"',
            ".nf",
            roff(context.command.get_help(context)),
            ".fi",
        ]
    return "\n".join(said) + "\n"


def completion(shell: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", "from nodrop.cli.main import app; app(prog_name='nodrop')"],
        env={**os.environ, "_NODROP_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def write(folder: Path) -> None:
    manual = folder / "man/man1/nodrop.1"
    texts = {manual: page()} | {folder / p: completion(s) for s, p in COMPLETIONS.items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    write(Path(sys.argv[1]))
