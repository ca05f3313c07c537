"""Each account that nodrop itself books has one definition, with its class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nodrop
from nodrop.ledger.hops import DEFINITIONS, definition
from nodrop.report.sentences import meaning

PACKAGE = Path(nodrop.__file__).parent


def booked(module: str) -> Iterator[tuple[str, str]]:
    """Name and class of each Account that a module makes, if the name stands there."""
    for node in ast.walk(ast.parse(module)):
        match node:
            case ast.Call(func=ast.Name(id="Account"), keywords=keywords):
                given = {one.arg: one.value for one in keywords}
                match given["kind"], given["name"]:
                    case ast.Attribute(attr=kind), ast.Constant(value=str(name)):
                        yield name, kind


def test_every_account_has_one_definition_and_the_class_it_is_booked_in() -> None:
    assert len({one.name for one in DEFINITIONS}) == len(DEFINITIONS)
    found = {
        each
        for room in ("ledger", "measure", "testbed")
        for path in (PACKAGE / room).rglob("*.py")
        for each in booked(path.read_text(encoding="utf-8"))
    }
    assert len(found) > 20
    assert found <= {(one.name, one.kind.name) for one in DEFINITIONS if one.kind}


def test_a_booked_account_is_found() -> None:
    module = 'Account(into="a", kind=Class.HELD, name="x")\nAccount(kind=Class.LOST, name=y)\n'
    assert [*booked(module)] == [("x", "HELD")]


def test_every_errno_is_one_definition() -> None:
    assert definition("tx_refused_emsgsize") is definition("tx_refused_enobufs") is not None
    assert "EMSGSIZE" in meaning("tx_refused_emsgsize")
    assert meaning("of_a_plugin") == ""


def test_a_meaning_has_no_marks_of_code() -> None:
    assert any("`" in one.meaning for one in DEFINITIONS)
    assert not any("`" in meaning(one.name) for one in DEFINITIONS)
