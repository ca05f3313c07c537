"""The plan of the question, through the command line of nodrop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.cli import main

EXPERIMENT = """
name = "toy-question"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
[measure]
mode = "toy-question"
"""


def test_each_cell_is_measured_whole_and_by_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    assert main.exit_code(["plan", str(tmp_path / "experiment.toml"), "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [trial["load"]["multiplier"] for trial in trials] == [1.0, 0.5]
