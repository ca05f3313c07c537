"""Sentences for a user that stand in code, outside the table of words: fewer with each change."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src/nodrop"
SENTENCE = re.compile(r"\w[\w,;:'’%]* \w[\w,;:'’%]* \w")
STILL = {
    "capacity/answering.py": 3,
    "capacity/card.py": 7,
    "capacity/controller.py": 10,
    "capacity/dots.py": 3,
    "capacity/load_words.py": 3,
    "capacity/page.py": 28,
    "capacity/pictures.py": 29,
    "capacity/section.py": 12,
    "capacity/terminal.py": 1,
    "capacity/words.py": 28,
    "report/answer.py": 3,
    "report/sentences.py": 5,
    "watch/so_far.py": 7,
}
"""File → literals of three words or more that it may still have: lower these, never raise them."""


def literals(text: str) -> list[str]:
    """String literals with two or more spaces between words, docstrings left out; each value in
    an f-string is a word."""
    tree = ast.parse(text)
    left_out: set[int] = set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))  # docstrings, of attributes too
        elif isinstance(node, ast.Assert):
            left_out |= {id(one) for one in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            left_out |= {id(one) for one in node.values}
            if id(node) not in left_out:
                found.append("".join(_part(one) for one in node.values))
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            found += [node.value] if isinstance(node.value, str) else []
    return [one for one in found if SENTENCE.search(one)]


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "x"


def rooms() -> dict[str, str]:
    """File → its text, of the rooms that answer a search."""
    named = ("capacity/*.py", "answer/*.py", "watch/so_far.py", "report/answer.py",
             "report/sentences.py")  # fmt: skip
    found = {path for name in named for path in SOURCE.glob(name)}
    found.remove(SOURCE / "capacity/command.py")  # help of options stands with the option
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(found)}


@pytest.mark.parametrize("file", rooms())
def test_words_stand_in_the_table(file: str) -> None:
    found = literals(rooms()[file])
    assert len(found) <= STILL.get(file, 0), f"put them into answer/words.toml: {found}"


def test_the_list_names_no_more_than_there_is() -> None:
    assert STILL.keys() <= rooms().keys()


@pytest.mark.parametrize(
    ("code", "n"),
    [
        ('x = "the budget ended"', 1),
        ('x = f"{n} trials carried {load} and more"', 1),
        ('x = "capacity-found"', 0),
        ('x = "two words"', 0),
        ('def f():\n    """Words that nobody reads on screen."""', 0),
        ('class A:\n    b: int\n    """Words on an attribute."""', 0),
    ],
)
def test_a_sentence_in_code_is_seen(code: str, n: int) -> None:
    assert len(literals(code)) == n
