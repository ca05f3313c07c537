"""A real run directory is the one that docs/results-format.md describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Run
from tests.known_answers.test_parting import SINK

PAGE = (Path(__file__).parents[2] / "docs/results-format.md").read_text()


@pytest.fixture(scope="session")
def real_trace() -> Path:
    return Path("make:demo")


def documented(heading: str) -> set[str]:
    """Words in code of its section."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([a-z_]+)`", section))


def test_its_files_and_their_keys_are_those_of_the_page(run: Run) -> None:
    outcome = run(text=SINK)
    directory = outcome.directory
    trial = directory / "runs" / outcome.records[0].run
    tree = PAGE.split("```")[1]
    files = set(re.findall(r"^ +([a-z]+(?:\.(?:json|jsonl|toml))?) ", tree, re.M))
    there = {path.name for path in (*directory.iterdir(), *trial.iterdir()) if path.is_file()}
    assert {name for name in there if not name.startswith(("samples-", "levels-"))} == files

    readings = json.loads((trial / "readings.json").read_text())
    words = documented("readings.json")
    assert set(readings) == {"before", "after"} <= words
    for reading in readings.values():
        assert set(reading) == {"tx", "nic", "capture", "place"} <= words
        assert reading["place"] == {}
        for port in ("tx", "nic", "capture"):
            assert set(reading[port]) <= words
            assert reading[port]["links"]
        assert reading["capture"] == reading["nic"]

    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    details = json.loads((trial / "trial.json").read_text())["details"]
    assert set(details) <= named, set(details) - named
    assert set(json.loads((trial / "offered.json").read_text())["achieved"]) <= named
