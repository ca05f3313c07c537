"""Clusters that only the user has: which class of dask is called, with what; what is missing."""

from __future__ import annotations

import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nodrop.errors import LabProblem, NotReady
from nodrop_fleet.file import load_fleet
from nodrop_fleet.run import connected
from nodrop_fleet.worker import in_a_line, started

ASKED = {
    "kubernetes": 'options = { image = "ours" }',
    "ssh": 'hosts = ["control", "gen1"]\noptions = { connect_options = { username = "me" } }',
}
CALLED: dict[str, tuple[str, str, dict[str, Any], int | None]] = {
    "ssh": (
        "distributed",
        "SSHCluster",
        {
            "hosts": ["control", "gen1"],
            "connect_options": {"username": "me"},
            "silence_logs": "error",
            "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            "worker_options": {
                "nthreads": 1,
                "memory_limit": 0,
                "dashboard": False,
                "resources": {"pair": 1},
            },
        },
        None,
    ),
}


class Called:
    """Stands in for a class of dask's."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.scaled: int | None = None

    def scale(self, jobs: int) -> None:
        self.scaled = jobs

    def __enter__(self) -> Called:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    (tmp_path / "a.toml").write_text('name = "a"\nkind = "netns"\n')

    def made(cluster: str, text: str) -> Any:
        path = tmp_path / "fleet.toml"
        path.write_text(f'name = "f"\ncluster = "{cluster}"\npairs = ["a.toml"]\n{text}\n')
        return load_fleet(path)

    return made


@pytest.mark.parametrize("cluster", CALLED)
def test_dasks_own_class_is_called(
    fleet: Any, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, made, arguments, jobs = CALLED[cluster]
    for module in (name.partition(".")[0], name, "asyncssh"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    setattr(sys.modules[name], made, Called)
    with started(fleet(cluster, ASKED[cluster]).file) as found:
        assert (found.cluster.arguments, found.cluster.scaled) == (arguments, jobs)


@pytest.mark.parametrize(
    ("cluster", "package"),
    [("ssh", "asyncssh"), ("slurm", "dask-jobqueue"), ("kubernetes", "dask-kubernetes")],
)
def test_a_package_that_is_missing_is_named(
    fleet: Any, cluster: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with (
        pytest.raises(NotReady, match=f"package {package} is missing.*pip install {package}"),
        connected(fleet(cluster, ASKED.get(cluster, ""))),
    ):
        pass


def test_what_the_users_cluster_says_is_passed_on(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(**_: Any) -> None:
        raise RuntimeError("Exit code: 1\nstderr:\nsbatch: error: no partition\nsbatch: failed\n")

    module = ModuleType("dask_jobqueue")
    module.SLURMCluster = refuses  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)
    said = "SLURMCluster of dask-jobqueue cannot start: sbatch: error: no partition; sbatch: failed"
    with pytest.raises(LabProblem, match=said), started(fleet("slurm", "").file):
        pass


def test_an_error_without_words_is_called_by_its_kind() -> None:
    assert in_a_line(TimeoutError()) == "TimeoutError"


def test_dask_itself_may_be_missing(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with (
        pytest.raises(NotReady, match=r"package distributed is missing, which --fleet needs"),
        connected(fleet("local", "")),
    ):
        pass


def test_a_fleet_takes_no_port_that_another_has(fleet: Any) -> None:
    with socket.socket() as other, warnings.catch_warnings():
        with suppress(OSError):  # one has it
            other.bind(("127.0.0.1", 8787))
            other.listen()
        warnings.simplefilter("error")
        with connected(fleet("local", "")) as (client, _):
            assert client.cluster.scheduler.services["dashboard"].port != 8787
            assert client.cluster.scheduler.services["dashboard"].address == "127.0.0.1"
