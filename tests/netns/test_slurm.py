"""A fleet whose workers are jobs of a real SLURM, started for these tests on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.netns.slurm import Slurm, lacks, running
from tests.netns.test_fleet import BOTH, MANY, Ground


@dataclass(frozen=True, slots=True)
class OnSlurm(Ground):
    slurm: Slurm

    @property
    def environment(self) -> dict[str, str]:
        ours = {"XDG_STATE_HOME": str(self.folder / "state"), "PWD": str(self.folder)}
        return {**os.environ, **ours, **self.slurm.environment}

    def argv(self, *arguments: str | Path) -> list[str]:
        return ["env", "-C", str(self.folder), *Ground.argv(self, *arguments)]

    def many(self, fleet: str = "", *settings: str) -> Sequence[str | Path]:
        given = [word for one in settings for word in ("--set", one)]
        where = self.fleet(sorted(BOTH), f'cluster = "slurm"\n{fleet}')
        return [self.write("many.toml", MANY), *given, "--fleet", where]

    def journals(self) -> int:
        """Number of workers that have something to put back."""
        return len([*(self.folder / "state").glob("nodrop/undo/*")])

    def is_clean(self) -> bool:
        certificates = [*self.folder.glob(".nodrop-tls-*")]
        return not (self.slurm.jobs() or self.journals() or certificates)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue")
    missing = lacks()
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs SLURM: root, and {missing}")
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def ground(tmp_path: Path, slurm: Slurm) -> OnSlurm:
    return OnSlurm(tmp_path, slurm)


def until(what: Callable[[], Any], words: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, words
        time.sleep(0.05)


def both_measure(run: subprocess.Popen[str], ground: OnSlurm) -> None:
    assert run.stdout is not None
    begun = (e for e in map(json.loads, run.stdout) if e["event"] == "trial_started")
    assert {next(begun)["index"], next(begun)["index"]} == {1, 2}
    until(lambda: ground.journals() == 2, "two pairs at work")


def test_jobs_of_slurm_share_a_plan(ground: OnSlurm) -> None:
    done = ground.run(*ground.many())
    assert done.returncode in (0, 1), done.stderr
    run = ground.measured()
    assert {record.pair for record in run.trials.records} == BOTH
    assert len(run.trials.records) == 8 and not run.damage and not [*run.unlisted()]
    for record in run.trials.records:
        assert record.packets.books_closed and record.packets.lost_packets == 0
        assert run.detail(record.run, "ledger") and any(run.samples(record.run, "rx"))
    workers = {facts["worker"] for facts in run.manifest["fleet"]["pairs"].values()}
    assert all(one.startswith("tls://") for one in workers) and len(workers) == 2
    assert ground.nothing_is_left() and ground.is_clean()


def test_the_trial_of_a_cancelled_job_is_done_again(ground: OnSlurm) -> None:
    argv = ground.argv(*ground.many("", "load.duration_s=4", "measure.repetitions=1"), "--json")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ground.environment
    ) as run:
        both_measure(run, ground)
        job = ground.slurm.jobs()[0]
        ground.slurm.says("scancel", job)
        until(lambda: ground.journals() == 1, "the cancelled job does not undo", 20)
        _, words = run.communicate(timeout=120)
    assert run.returncode == 0, words
    measured = ground.measured()
    assert [record.outcome for record in measured.trials.records] == ["measured"] * 4
    pairs = measured.manifest["fleet"]["pairs"].values()
    (failure,) = [words for facts in pairs for words in facts.get("failures", ())]
    assert failure.startswith("its worker ended in 000")
    assert ground.nothing_is_left() and ground.is_clean()


def test_a_killed_run_leaves_no_job_and_is_gone_on_with(ground: OnSlurm) -> None:
    settings = ("load.duration_s=2", "measure.repetitions=1")
    argv = ground.argv(*ground.many("", *settings), "--json")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ground.environment
    ) as run:
        both_measure(run, ground)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=30)
    until(lambda: not ground.slurm.jobs(), "jobs are left", 120)
    assert not ground.journals()
    resumed = ground.run(*ground.many("", *settings), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert len(ground.measured().trials.records) == 4


def test_a_job_that_never_starts_is_named(ground: OnSlurm) -> None:
    tomorrow = 'options = { job_extra_directives = ["--begin=now+1day"] }'
    done = ground.run(*ground.many(f"wait_s = 2\n{tomorrow}"))
    assert done.returncode == 2
    assert "no worker of dask has the resource pair after 2 s: job " in done.stderr
    assert done.stderr.count("is PENDING (BeginTime)") == 2 and "wait_s" in done.stderr
    assert ground.is_clean()


def test_what_sbatch_refuses_is_one_sentence(ground: OnSlurm) -> None:
    done = ground.run(*ground.many('options = { queue = "none" }'))
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "cannot start: sbatch: error: invalid partition specified: none" in done.stderr
    assert ground.is_clean()
