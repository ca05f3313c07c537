"""A fleet's worker at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.plan import make_plan
from nodrop_fleet import worker
from nodrop_fleet.worker import Job, Sitting
from tests.slow.measure.fleet.test_pairs import EXPERIMENT


def test_a_trial_that_comes_after_the_end_of_its_run_does_not_begin(tmp_path: Path) -> None:
    """The word to stop may overtake it on its way here."""

    @contextmanager
    def sits(_job: Job) -> Iterator[Sitting]:
        raise AssertionError("it has begun")
        yield

    file = tmp_path / "shared.toml"
    file.write_text(EXPERIMENT)
    experiment = load_experiment(file)
    job = Job(run="ended", pair="a", experiment=experiment, lab=load_lab(), sits=sits)
    asked = make_plan(experiment).controller.next([])
    assert asked is not None
    worker.stop("ended")
    assert worker.measure(job, asked, asks_tsc=False) is None
