"""The harness's own time in the steps of a trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.results.rundir import open_run
from nodrop.results.step_times import harness_time, own_time_s
from tests.made.rundirs import Fake, make_run

STEPS = {
    "provision": 0.2, "launch": 10.1, "ready": 4.0, "warm up the guest": 30.0, "warm up": 5.0,
    "offer": 60.5, "drain": 2.0, "stop": 1.0, "undo": 0.1,
}  # fmt: skip
PHASES = {"boot": 10.0, "load_rules": 3.5, "open_capture": 0.5}


def test_traffic_rules_boot_and_asked_for_quiet_are_not_the_harnesss() -> None:
    own = own_time_s({"timings_s": STEPS, "readiness": {"phases_s": PHASES}}, offered_s=60.0)
    assert own == pytest.approx(
        {
            "provision": 0.2, "launch": 0.1, "ready": 0.5, "offer": 0.5, "drain": 2.0, "stop": 1.0,
            "undo": 0.1, "nodrop itself": 0.9, "waiting for the SUT": 3.5, "in all": 4.4,
        }
    )  # fmt: skip


def test_a_row_per_step_over_the_trials_of_a_run(tmp_path: Path) -> None:
    run = open_run(make_run(tmp_path, Fake()))
    assert harness_time(run) == ()  # no details of the steps
    took_s = iter((1.0, 2.0, 9.0))
    for record, seconds in zip(run.trials.records, took_s, strict=False):
        path = run.path / "runs" / record.run / "trial.json"
        trial = json.loads(path.read_text())
        steps = {
            "provision": seconds,
            "offer": 1.0 + (record.offered.duration_s or 0),
            "drain": 3.0,
        }
        trial["details"]["timings_s"] = steps
        path.write_text(json.dumps(trial))
    assert [(row.name, row.median_s, row.total_s) for row in harness_time(run)] == [
        ("provision", 2.0, 12.0),
        ("offer", pytest.approx(1.0), pytest.approx(3.0)),
        ("drain", 3.0, 9.0),
        ("nodrop itself", pytest.approx(3.0), pytest.approx(15.0)),
        ("waiting for the SUT", 3.0, 9.0),
        ("in all", pytest.approx(6.0), pytest.approx(24.0)),
    ]
