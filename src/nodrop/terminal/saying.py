"""Sends words to the terminal: whatever is in them, they stay one line, without control codes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.hosts.interrupts import Interrupted, interrupts
from nodrop.untrusted.words import one_line, plain


def say(words: object = "") -> None:
    _print(one_line(words))


def say_indented(words: str) -> None:
    """A line of a text that keeps its indentation."""
    _print(plain(words.expandtabs(), longest=2000))


def say_json(found: object) -> None:
    """One line for a program; all but ASCII is escaped, for a terminal obeys some of it."""
    _print(json.dumps(found, default=str))


def _print(line: str) -> None:
    with named("stdout"):
        print(line, flush=True)


@contextmanager
def named(stream: str) -> Iterator[None]:
    """Names the stream in an error: its destination may be full, and the kernel does not say whose
    error it is."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or stream
        raise


def complain(words: object) -> None:
    print(f"nodrop: {one_line(words)}", file=sys.stderr)


@contextmanager
def reporting(run: Path) -> Iterator[None]:
    """Whoever ends it hears that no trial is lost, and how to come by the report."""
    try:
        with interrupts():
            yield
    except Interrupted as ended:
        ended.left = "every trial has ended, but the report may be missing"
        ended.hint = f"nodrop report {shlex.quote(str(run))}"
        raise
