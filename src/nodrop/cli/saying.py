"""Sends words to the terminal: whatever is in them, they stay one line, without control codes."""

from __future__ import annotations

import sys

from nodrop.untrusted.words import one_line


def say(words: object) -> None:
    print(one_line(words))


def complain(words: object) -> None:
    print(f"nodrop: {one_line(words)}", file=sys.stderr)
