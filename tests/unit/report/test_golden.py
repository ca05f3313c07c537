"""Real run directories of every format version still give the tables they gave when they were new.

After a change of the report that is meant to change them, write them again:
    python tests/unit/report/test_golden.py
"""

from __future__ import annotations

import filecmp
import sys
from pathlib import Path

import pytest

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.layout import WrittenPart

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS = sorted((FIXTURES / "runs").iterdir())
TABLES = [WrittenPart.CSV, WrittenPart.MARKDOWN]
SAYS = {
    "rings-v1": ["−130 · "],
    "setups-v1": [
        "Counted, as reported while it ran",
        "2 trials began in a guest that had just booted",
        "The cost of a clock",
        "Nothing here is a KVM result",
    ],
}
"""Run → sentences on its page. setups-v1 has the SUT's own words while it ran (live.jsonl), a
guest's samples, phases and clocks."""


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_tables_are_what_they_were(run: Path, tmp_path: Path) -> None:
    write_report(read_story([run]), tmp_path, only=TABLES)
    expected = FIXTURES / "reports" / run.name
    names = sorted(p.name for p in expected.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    same, different, unread = filecmp.cmpfiles(expected, tmp_path, names, shallow=False)
    assert (different, unread) == ([], [])
    assert same == names


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_page_has_the_same_bytes_twice(run: Path, tmp_path: Path) -> None:
    one, two = (
        write_report(read_story([run]), tmp_path / "1"),
        write_report(read_story([run]), tmp_path / "2"),
    )
    assert one.read_bytes() == two.read_bytes()
    page = one.read_text(encoding="utf-8")
    for words in SAYS[run.name]:
        assert words in page
    assert "tp_packets includes tp_drops" in page
    assert "traffic starts" in page


if __name__ == "__main__":
    for run in RUNS:
        write_report(read_story([run]), FIXTURES / "reports" / run.name, only=TABLES)
    sys.exit(0)
