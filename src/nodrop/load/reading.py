"""Node commands that read a capture, and the line on a terminal that says how far they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import IO, TextIO

from nodrop.config.units import format_seconds
from nodrop.errors import LabProblem
from nodrop.hosts.local import LABEL_VARIABLE
from nodrop.hosts.rights import KEPT_BY_OURS, environment
from nodrop.hosts.seam import Completed
from nodrop.untrusted.words import one_line

_PROGRESS = re.compile(r"progress (0\.\d{1,6}|1\.0{1,6})\n")
LEAST_RATIO = 0.02
"""The time that is left is not guessed from less."""
LONGEST_WORDS = 64 << 10
"""Characters of a command's stderr after which nothing more is kept."""


class ReadingLine:
    """Share of a capture that is read, and the time left. Nothing is written where stderr is no
    terminal, and nothing by who is done before the node first says how far it is: a second."""

    def __init__(self, path: Path, out: TextIO | None = None) -> None:
        self._path, self._out = path, sys.stderr if out is None else out
        self._began_s, self._is_shown = monotonic(), False

    def at(self, ratio: float) -> None:
        if not self._out.isatty():
            return
        words = f"reading {self._path.name}: {100 * ratio:.0f} %"
        if ratio >= LEAST_RATIO:
            took_s = monotonic() - self._began_s
            words += f", about {format_seconds(took_s * (1 - ratio) / ratio)} left"
        self._is_shown = True
        self._out.write(f"\r\x1b[K{one_line(words)}")
        self._out.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._out.write("\r\x1b[K")
            self._out.flush()


@contextmanager
def reading(path: Path) -> Iterator[ReadingLine]:
    line = ReadingLine(path)
    try:
        yield line
    finally:
        line.clear()


def read_by(argv: Sequence[str], path: Path, *, timeout_s: float) -> Completed:
    """A command of the node that reads this capture, to its end."""
    began_s = monotonic()
    try:
        process = subprocess.Popen(
            [*argv, "--progress"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment(KEPT_BY_OURS, **{LABEL_VARIABLE: "trace"}),
            process_group=0,
        )
    except OSError as error:
        raise LabProblem(f"cannot start {argv[0]}: {error.strerror}") from error
    out_of_time = Timer(timeout_s, process.kill)
    with process, reading(path) as line:
        assert process.stdout is not None and process.stderr is not None
        out_of_time.start()
        try:
            said = _said(process.stderr, line)
            # One line, which the pipe holds.
            found = process.stdout.read()
            status = process.wait()
        finally:
            is_over = not out_of_time.is_alive()
            out_of_time.cancel()
            process.kill()
    if is_over:
        raise LabProblem(f"{path}: reading took longer than {format_seconds(timeout_s)}")
    return Completed(
        argv=tuple(argv),
        returncode=status,
        stdout=found,
        stderr=said,
        seconds=monotonic() - began_s,
    )


def _said(stderr: IO[str], line: ReadingLine) -> str:
    """All but how far it is."""
    said = ""
    for words in iter(lambda: stderr.readline(LONGEST_WORDS), ""):
        if found := _PROGRESS.fullmatch(words):
            line.at(float(found[1]))
        elif len(said) < LONGEST_WORDS:
            said += words
    return said
