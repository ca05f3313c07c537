"""Clusters that only the user has: which class of dask is called, with what; what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nodrop.config.fleet_file import FleetFile, load_fleet
from nodrop.errors import LabProblem, NotReady
from nodrop.measure.fleet.cluster import _started, connected

ASKED = {
    "ssh": 'hosts = ["control", "gen1"]\noptions = { connect_options = { username = "me" } }',
    "slurm": 'options = { queue = "bench", worker_extra_args = ["--preload", "x"] }',
    "kubernetes": 'options = { image = "ours" }',
}
CALLED: dict[str, tuple[str, str, dict[str, Any], int | None]] = {
    "ssh": (
        "distributed",
        "SSHCluster",
        {
            "hosts": ["control", "gen1"],
            "connect_options": {"username": "me"},
            "worker_options": {"nthreads": 1, "resources": {"pair": 1}},
        },
        None,
    ),
    "slurm": (
        "dask_jobqueue",
        "SLURMCluster",
        {
            "cores": 1,
            "processes": 1,
            "queue": "bench",
            "worker_extra_args": ["--preload", "x", "--resources", "pair=1"],
        },
        1,
    ),
    "kubernetes": (
        "dask_kubernetes.operator",
        "KubeCluster",
        {
            "name": "nodrop",
            "image": "ours",
            "worker_command": ["dask", "worker", "--nthreads", "1", "--resources", "pair=1"],
        },
        1,
    ),
}


class Called:
    """Stands in for a class of dask's."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.scaled: int | None = None

    def scale(self, jobs: int) -> None:
        self.scaled = jobs


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    (tmp_path / "a.toml").write_text('name = "a"\nkind = "netns"\n')

    def made(cluster: str, text: str) -> Any:
        path = tmp_path / "fleet.toml"
        path.write_text(f'name = "f"\ncluster = "{cluster}"\npairs = ["a.toml"]\n{text}\n')
        return load_fleet(path)

    return made


@pytest.mark.parametrize("cluster", ASKED)
def test_dasks_own_class_is_called(
    fleet: Any, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, made, arguments, jobs = CALLED[cluster]
    for module in (name.partition(".")[0], name, "asyncssh"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    setattr(sys.modules[name], made, Called)
    found = _started(fleet(cluster, ASKED[cluster]).file)
    assert (found.arguments, found.scaled) == (arguments, jobs)


@pytest.mark.parametrize(
    ("cluster", "package"),
    [("ssh", "asyncssh"), ("slurm", "dask-jobqueue"), ("kubernetes", "dask-kubernetes")],
)
def test_a_package_that_is_missing_is_named(fleet: Any, cluster: str, package: str) -> None:
    with pytest.raises(NotReady, match=f"package {package} is missing.*pip install '{package}'"):
        _started(fleet(cluster, ASKED[cluster]).file)


def test_what_the_users_cluster_says_is_passed_on(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(**_: Any) -> None:
        raise RuntimeError("no partition called bench")

    module = ModuleType("dask_jobqueue")
    module.SLURMCluster = refuses  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)
    file: FleetFile = fleet("slurm", "").file
    with pytest.raises(LabProblem, match="SLURMCluster of dask-jobqueue cannot start: no partiti"):
        _started(file)


def test_dask_itself_may_be_missing(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with (
        pytest.raises(NotReady, match=r"package nodrop\[fleet\] is missing, which --fleet needs"),
        connected(fleet("local", "")),
    ):
        pass
