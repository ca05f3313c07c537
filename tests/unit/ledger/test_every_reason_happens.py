"""Every reason for which a trial is no measurement, and every class of packets, is made to happen
by some test: we use no word for what never happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.ledger.hops import Class
from nodrop.ledger.outcome import Reason

TESTS = Path(__file__).parents[2]
SAID = {
    path: path.read_text(encoding="utf-8")
    for path in TESTS.rglob("test_*.py")
    if path != Path(__file__)
}


@pytest.mark.parametrize("name", [*Reason, *Class], ids=str)
def test_some_test_asks_for_it(name: Reason | Class) -> None:
    words = (f'"{name}"', f"{type(name).__name__}.{name.name}")
    assert any(word in text for text in SAID.values() for word in words)
