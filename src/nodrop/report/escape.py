"""Foreign words as text, everywhere: names of traces, rules and hosts are written by anybody.

HTML and SVG are escaped by Jinja; what only looks like text (control characters, marks that turn
the reading direction around) is made visible by `untrusted.words.plain`, before any format is
chosen, and once more in the page as a whole.
"""

from __future__ import annotations

import re

from nodrop.untrusted.json_text import LONGEST, THIN, csv_text, plain, visible

__all__ = ["LONGEST", "THIN", "csv_text", "latex", "markdown", "plain", "visible"]

_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "\u202f": r"\,",
    "≥": r"$\geq$",
    "−": r"$-$",
    "–": "--",
    "×": r"$\times$",
    "·": r"\textperiodcentered{}",
    "µ": r"\textmu{}",
    "…": r"\dots{}",
}
_MARKDOWN = re.compile(r"([\\`*\[\]<>|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""An underscore within a word marks nothing up: commands stay as they are typed."""
_BLOCK_START = re.compile(r"^(\s*)([#=]|[+-](?!\d)|\d+(?=[.)](?:\s|$)))")
"""A number such as 8.4 or -3 begins no list."""


def markdown(text: str, *, longest: int = LONGEST) -> str:
    """Inline text: neither markup, nor HTML, nor a heading or list at the start of a line."""
    inline = _MARKDOWN.sub(r"\\\1", plain(text, longest=longest))
    return _BLOCK_START.sub(r"\1&#8203;\2", inline)


def markdown_code(text: str, *, longest: int = LONGEST) -> str:
    """A code span, also within a table: a command stays as it is typed."""
    code = plain(text, longest=longest)
    fence = "`" * (1 + max(map(len, re.findall("`+", code)), default=0))
    pad = " " if code[:1] == "`" or code[-1:] == "`" else ""
    return f"{fence}{pad}{code}{pad}{fence}".replace("|", r"\|")


def latex(text: str, *, longest: int = LONGEST) -> str:
    return "".join(_LATEX.get(c, c) for c in plain(text, longest=longest))
