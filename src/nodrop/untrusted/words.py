"""Foreign words as text, on whatever they are shown: names of traces, rules and hosts are written
by anybody, and a terminal obeys some of them. What does not make sense raises one error that names
its source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nodrop.errors import LabProblem

THIN = "\u202f"
"""Narrow no-break space: groups digits in every language, and never breaks a line."""
LONGEST = 300
"""Limit on a name in running text; a 10 kB name must not bury the page."""


def plain(text: object, *, longest: int = LONGEST) -> str:
    """The text with every invisible or direction-turning character spelled out, and an end."""
    given = str(text)
    if len(given) <= longest and given.replace(THIN, "").isprintable():
        return given  # nearly always, and 20 times as fast
    spelled = "".join(_spelled(c) for c in given[:longest])
    return spelled if len(given) <= longest else f"{spelled}… ({len(given)} characters)"


def one_line(text: object, *, longest: int = 2000) -> str:
    """For a terminal: what an error, a journal or a name says, on one line, without controls."""
    lines = (line.strip() for line in str(text).splitlines())
    return plain(" ".join(line for line in lines if line), longest=longest)


def is_utf8(text: object) -> bool:
    """The name of a file may hold any bytes; others are lone surrogates here."""
    return not any("\ud800" <= char <= "\udfff" for char in str(text))


_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""In a text of many lines; U+202F is left."""


def visible(text: str) -> str:
    """A whole page or file with every such character spelled out, whatever part brought it."""
    return _INVISIBLE.sub(lambda found: _spelled(found[0]), text)


def _spelled(char: str) -> str:
    # Cc control, Cf format (bidirectional marks, zero width), Cs lone surrogates, Zl Zp line ends,
    # Co private use. U+202F is our own thin separator (Zs) and stays.
    if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    return char


@contextmanager
def making_sense(source: str) -> Iterator[None]:
    """Around the few lines that take fields out of what `source` said. A missing field, a list in
    place of an object, a text in place of a number end in LabProblem. Also a decorator."""
    try:
        yield
    except KeyError as error:
        raise LabProblem(f"{source} makes no sense: it has no {_short(error.args[0])}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise LabProblem(f"{source} makes no sense: {_short(error)}") from error


def _short(words: Any) -> str:
    return one_line(words, longest=200)
