"""Where words leave for the terminal: whatever is in them, they are one line and no control."""

from __future__ import annotations

import sys

from nodrop.untrusted.words import one_line


def say(words: object) -> None:
    print(one_line(words))


def complain(words: object) -> None:
    print(f"nodrop: {one_line(words)}", file=sys.stderr)
