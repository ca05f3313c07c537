"""Sends words to the terminal: whatever is in them, they stay one line, without control codes."""

from __future__ import annotations

import json
import sys

from nodrop.untrusted.words import one_line


def say(words: object = "") -> None:
    print(one_line(words), flush=True)


def say_json(found: object) -> None:
    """One line for a program; all but ASCII is escaped, for a terminal obeys some of it."""
    print(json.dumps(found, default=str), flush=True)


def complain(words: object) -> None:
    print(f"nodrop: {one_line(words)}", file=sys.stderr)
