"""Foreign words as text, everywhere: names of traces, rules and hosts are written by anybody.

HTML and SVG are escaped by Jinja; what only looks like text (control characters, marks that turn
the reading direction around) is made visible here, before any format is chosen.
"""

from __future__ import annotations

import re
import unicodedata

THIN = "\u202f"
"""Narrow no-break space: groups digits in every language, and never breaks a line."""
LONGEST = 300
"""Of a name in running text; a 10 kB name must not bury the page."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
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
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$])")
_BLOCK_START = re.compile(r"^(\s*)([#+=-]|\d+(?=[.)]))")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def plain(text: object, *, longest: int = LONGEST) -> str:
    """The text with every invisible or direction-turning character spelled out, and an end."""
    given = str(text)
    if len(given) <= longest and given.replace(THIN, "").isprintable():
        return given  # nearly always, and 20 times as fast
    spelled = "".join(_spelled(c) for c in given[:longest])
    return spelled if len(given) <= longest else f"{spelled}… ({len(given)} characters)"


def _spelled(char: str) -> str:
    # Cc control, Cf format (bidirectional marks, zero width), Cs lone surrogates, Zl Zp line ends,
    # Co private use. U+202F is our own thin separator (Zs) and stays.
    if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    return char


def csv_text(text: str) -> str:
    """A spreadsheet must not compute it (CWE-1236); numbers never come through here."""
    clean = plain(text, longest=10_000)
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def markdown(text: str, *, longest: int = LONGEST) -> str:
    """Inline text: neither markup, nor HTML, nor a heading or list where it begins a line."""
    inline = _MARKDOWN.sub(r"\\\1", plain(text, longest=longest))
    return _BLOCK_START.sub(r"\1&#8203;\2", inline)


def latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in plain(text))


def terminal(text: str) -> str:
    """No escape sequence survives; Rich's own markup is escaped by who prints with Rich."""
    return plain(text)
