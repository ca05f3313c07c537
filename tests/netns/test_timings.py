"""`nodrop run --timings --json`, as a script reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENT = """
name = "timed"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 0.3
[measure]
repetitions = 2
late_p99_us = 60e6 # the time is not the question here, on whatever machine
"""


def test_the_last_event_tells_what_each_step_took(tmp_path: Path) -> None:
    file = tmp_path / "timed.toml"
    file.write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "run", str(file), "--out", str(tmp_path / "out"),
         "--timings", "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr  # 1: a busy machine was late
    finished, said = map(json.loads, done.stdout.splitlines()[-2:])
    assert (finished["event"], said["event"]) == ("finished", "timings")
    took = {part["name"]: part["total_s"] for part in said["parts"]}
    assert {"provision", "launch", "offer", "drain", "undo"} < took.keys()
    parts = took["nodrop itself"], took["waiting for the SUT"]
    assert sum(parts) == pytest.approx(took["in all"])
