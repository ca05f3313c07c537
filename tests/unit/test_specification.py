"""SPECIFICATION.md can be scanned, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "SPECIFICATION.md").read_text().splitlines()
ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith("| promise")]


def test_each_promise_has_a_bound_a_figure_and_a_test() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 4 and all(cells), row
        assert len(row) <= 260, row


def test_each_named_test_is_there() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([a-z_0-9*/]+\.py)`", row)}
    assert len(named) > 20
    assert [name for name in sorted(named) if not [*(ROOT / "tests").glob(name)]] == []
