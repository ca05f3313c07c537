"""A fleet whose workers are pods of a real Kubernetes of two nodes, with dask's operator.

It is the one of KUBECONFIG; NODROP_TEST_KUBERNETES names an image with this nodrop, for its pods.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.netns.test_fleet import BOTH, MANY, Ground
from tests.netns.test_slurm import until

IMAGE = os.environ.get("NODROP_TEST_KUBERNETES", "")


@dataclass(frozen=True, slots=True)
class OnKubernetes(Ground):
    kr8s: Any

    def options(self, **more: Any) -> str:
        return f"[options]\n{toml({'image': IMAGE, **more})}"

    def many(self, fleet: str = "", *settings: str) -> Sequence[str | Path]:
        given = [word for one in settings for word in ("--set", one)]
        where = self.fleet(sorted(BOTH), f'cluster = "kubernetes"\n{fleet}')
        return [self.write("many.toml", MANY), *given, "--fleet", where]

    def ours(self, kind: str = "pods", part: str = "worker") -> Sequence[Any]:
        labels = f"dask.org/component={part}"
        found = self.kr8s.get(kind, namespace=self.kr8s.ALL, label_selector=labels)
        return [one for one in found if one.name.startswith("nodrop-ours-")]

    def is_clean(self) -> bool:
        kinds = ("daskclusters.kubernetes.dask.org", "pods", "services", "secrets", "deployments")
        left = (one.name for kind in kinds for one in self.kr8s.get(kind, namespace=self.kr8s.ALL))
        return not any(name.startswith("nodrop-ours-") for name in left)

    @contextmanager
    def measuring(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Both pairs measure."""
        with subprocess.Popen(
            self.argv(*arguments, "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        ) as run:
            assert run.stdout is not None
            begun = (e for e in map(json.loads, run.stdout) if e["event"] == "trial_started")
            assert {next(begun)["index"], next(begun)["index"]} == {1, 2}
            yield run


def toml(table: dict[str, Any]) -> str:
    """JSON is TOML, but for tables."""

    def of(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {of(v)}" for k, v in value.items()) + "}"
        return json.dumps(value)

    return "\n".join(f"{key} = {of(value)}" for key, value in table.items())


@pytest.fixture
def ground(tmp_path: Path) -> OnKubernetes:
    if not IMAGE:
        pytest.skip("needs Kubernetes: KUBECONFIG, and NODROP_TEST_KUBERNETES, an image")
    kr8s = pytest.importorskip("kr8s", reason="needs dask-kubernetes")
    return OnKubernetes(tmp_path, kr8s)


def test_pods_share_a_plan(ground: OnKubernetes) -> None:
    done = ground.run(*ground.many(ground.options()))
    assert done.returncode in (0, 1), done.stderr
    run = ground.measured()
    assert {record.pair for record in run.trials.records} == BOTH
    assert len(run.trials.records) == 8 and not run.damage and not [*run.unlisted()]
    for record in run.trials.records:
        assert record.packets.books_closed and record.packets.lost_packets == 0
        assert run.detail(record.run, "ledger") and any(run.samples(record.run, "rx"))
    workers = {facts["worker"] for facts in run.manifest["fleet"]["pairs"].values()}
    assert all(one.startswith("tls://") for one in workers) and len(workers) == 2
    assert run.manifest["undo"]["changed"] and not run.manifest["undo"].get("left")
    assert ground.is_clean()


def test_the_trial_of_a_deleted_pod_is_done_again(ground: OnKubernetes) -> None:
    settings = ("load.duration_s=4", "measure.repetitions=1")
    with ground.measuring(*ground.many(ground.options(), *settings)) as run:
        nodes = {pod.spec.nodeName for pod in ground.ours()}
        ground.ours()[0].delete(grace_period=1)
        _, words = run.communicate(timeout=180)
    assert run.returncode == 0, words
    assert len(nodes) == 2
    measured = ground.measured()
    assert [record.outcome for record in measured.trials.records] == ["measured"] * 4
    pairs = measured.manifest["fleet"]["pairs"].values()
    (failure,) = [words for facts in pairs for words in facts.get("failures", ())]
    assert failure.startswith("its worker ended in 000")
    assert ground.is_clean()


def test_ctrl_c_leaves_nothing(ground: OnKubernetes) -> None:
    with ground.measuring(*ground.many(ground.options(), "load.duration_s=60")) as run:
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=180)
    assert run.returncode == 130 and "go on with --resume" in words
    assert ground.is_clean()


def test_ctrl_c_before_the_scheduler_runs_leaves_nothing(ground: OnKubernetes) -> None:
    argv = ground.argv(*ground.many(ground.options()))
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=ground.environment) as run:
        until(lambda: ground.ours("services", "scheduler"), "the operator begins")
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=120)
    assert run.returncode == 130, words
    assert ground.is_clean()


def test_what_a_killed_run_left_is_deleted_and_it_is_gone_on_with(ground: OnKubernetes) -> None:
    settings = ("load.duration_s=2", "measure.repetitions=1")
    with ground.measuring(*ground.many(ground.options(), *settings)) as run:
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=30)
    assert not ground.is_clean()
    until(ground.is_clean, "the operator leaves a cluster that nobody uses", 240)
    resumed = ground.run(*ground.many(ground.options(), *settings), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert len(ground.measured().trials.records) == 4


def test_two_fleets_of_a_name_measure_at_once(ground: OnKubernetes) -> None:
    runs = []
    for pair in sorted(BOTH):
        (folder := ground.folder / pair).mkdir()
        own = OnKubernetes(folder, ground.kr8s)
        where = own.fleet([pair], f'cluster = "kubernetes"\nwait_s = 120\n{own.options()}')
        argv = own.argv(own.write("many.toml", MANY), "--fleet", where)
        runs.append(
            (own, subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=own.environment))
        )
    for own, run in runs:
        _, words = run.communicate(timeout=240)
        assert run.returncode in (0, 1), words
        assert len(own.measured().trials.records) == 8
    assert ground.is_clean()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"container": {"image": "localhost/none:1", "imagePullPolicy": "Never"}},
            'Pending (Container image "localhost/none:1" is not present with pull policy of Never',
        ),
        ({"pod": {"nodeSelector": {"no": "such"}}}, "didn't match Pod's node affinity/selector"),
        ({"container": {"command": ["nope"]}}, '"nope": executable file not found in $PATH'),
    ],
)
def test_pods_that_do_not_start_are_named(
    ground: OnKubernetes, options: dict[str, Any], said: str
) -> None:
    done = ground.run(*ground.many(f"wait_s = 12\n{ground.options(**options)}"))
    assert done.returncode == 2
    assert "no worker of dask has the resource pair after 12 s: 2 workers " in done.stderr
    assert said in done.stderr and "wait_s" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "nodrop:" in line]) == 1
    assert ground.is_clean()


def test_a_scheduler_that_does_not_start_is_named(ground: OnKubernetes) -> None:
    done = ground.run(*ground.many('wait_s = 5\noptions = { image = "localhost/none:1" }'))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "no scheduler in Kubernetes after 5 s: scheduler Pending (" in done.stderr
    assert "localhost/none:1" in done.stderr
    assert ground.is_clean()
