"""Docstrings stand alone: none begins with a word that needs the line before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nodrop

PACKAGE = Path(nodrop.__file__).parent
TESTS = Path(__file__).parents[1]
BESIDE = TESTS.parent / "packages"
GENERATED = {PACKAGE / "protocol.py"}
FRAGMENT = re.compile(r"(Of|That|What|Those|The same|As)\b")
IN_A_STRING = re.compile(rf"[\"']\s*{FRAGMENT.pattern}")
"""Most modules have none, and need not be parsed."""


NO_NOUN = re.compile(r'^\s*r?"""\s*(By|With|In|So|Its?|If|When|They|These)\b', re.MULTILINE)
"""Begin of a docstring with neither a noun nor a verb."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string that stands as a statement: docstrings, also of attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_no_docstring_is_a_fragment() -> None:
    found = [
        f"{path}:{line}: {text.strip().splitlines()[0]}"
        for path in sorted(
            {*PACKAGE.rglob("*.py"), *BESIDE.rglob("*.py"), *TESTS.rglob("*.py")} - GENERATED
        )
        if IN_A_STRING.search(module := path.read_text(encoding="utf-8"))
        for line, text in texts(ast.parse(module))
        if FRAGMENT.match(text.strip())
    ]
    assert found == []


def test_a_docstring_begins_with_a_noun_or_a_verb() -> None:
    found = [
        f"{path}: {first}"
        for path in sorted({*PACKAGE.rglob("*.py"), *BESIDE.rglob("*.py")} - GENERATED)
        for first in NO_NOUN.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_docstring_without_a_noun_is_found() -> None:
    module = 'x: int\n"""In seconds."""\ny: int\n"""Interval in seconds."""\n'
    assert NO_NOUN.findall(module) == ["In"]


def test_a_fragment_is_found() -> None:
    module = 'class A:\n    x: int\n    """Of its record."""\n'
    ((line, text),) = texts(ast.parse(module))
    assert IN_A_STRING.search(module)
    assert line == 3 and FRAGMENT.match(text)
    assert not FRAGMENT.match("Offered packets") and not FRAGMENT.match("Whatever stands")
