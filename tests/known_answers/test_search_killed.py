"""kill -9 in the middle of a search: a resumed one asks for the same next trial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress, make_plan
from nodrop.results.rundir import find_run, open_run
from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.e2e.killing import undo
from tests.known_answers.test_capacity import SINK, short_trace

DIES = """
import os, signal, sys
from pathlib import Path
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.plan import Progress
from nodrop.measure.manager import run_experiment
trial, file, out = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
class Die(Progress):
    def trial_started(self, asked):
        self.index = asked.index
    def phase(self, name):
        if name == "offer" and self.index == trial:
            os.kill(os.getpid(), signal.SIGKILL)
run_experiment(load_experiment(file), load_lab(), out=out, resume=False, progress=Die())
"""

__all__ = ["short_trace"]


class _Enough(BaseException):
    pass


class _FirstTrial(Progress):
    """Ends the resumed run before it offers anything."""

    def __init__(self) -> None:
        self.asked: TrialInput | None = None

    def trial_started(self, asked: TrialInput) -> None:
        self.asked = asked
        raise _Enough


@pytest.mark.parametrize("dies_at", [1, 3, depth(2), depth(5)])  # the first is the ramp
def test_a_killed_search_goes_on_where_it_was(
    dies_at: int, tmp_path: Path, short_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file, out = tmp_path / "search.toml", tmp_path / "results"
    # A budget too: what it bought so far decides how the search goes on.
    file.write_text(SINK.replace("make:demo", str(short_trace)) + "budget_s = 90\n")
    killed = subprocess.run(
        [sys.executable, "-c", DIES, str(dies_at), str(file), str(out)],
        capture_output=True, text=True, timeout=180, env=dict(os.environ), check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    undo()
    experiment = load_experiment(file)
    found = open_run(find_run(out, experiment.name))
    lines = (found.path / "trials.jsonl").read_text().splitlines()
    done = [TrialRecord.from_line(line) for line in lines]
    assert len(done) == dies_at - 1
    plan = make_plan(experiment)
    expected = plan.controller.next(done)
    assert plan.forecast is not None and found.manifest["forecast"] == plan.forecast.model_dump()
    first = _FirstTrial()
    with pytest.raises(_Enough):
        run_experiment(experiment, load_lab(), out=out, resume=True, progress=first)
    assert expected is not None and first.asked is not None
    assert (first.asked.index, first.asked.searched) == (dies_at, expected.searched)
    assert first.asked.load == expected.load
