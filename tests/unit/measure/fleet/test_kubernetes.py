"""Requests to dask's operator, and the words on pods that do not come."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodrop_fleet.file import FleetFile, load_fleet
from nodrop_fleet.kubernetes import ALONE, ROOT, Pods, cluster_spec


def make_cluster_spec(name: str, **given: Any) -> Any:
    """A short form of dask_kubernetes.operator's specification."""
    env = [{"name": key, "value": value} for key, value in given["env"].items()]
    first = {"image": given["image"], "env": env, "resources": given["resources"]}
    scheduler = {"containers": [{"name": "scheduler", "args": ["dask-scheduler"], **first}]}
    worker = {"containers": [{"name": "worker", "args": ["--dashboard"], **first}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "worker": {"replicas": given["n_workers"], "spec": worker},
            "scheduler": {"spec": scheduler},
        },
    }


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def made(options: str = "", name: str = "two") -> FleetFile:
        for lab in "ab":
            (tmp_path / f"{lab}.toml").write_text(f'name = "{lab}"\nkind = "netns"\n')
        path = tmp_path / "fleet.toml"
        path.write_text(
            f'name = "{name}"\npairs = ["a.toml", "b.toml"]\ncluster = "kubernetes"\n'
            f'[options]\nimage = "ours:1"\n{options}\n'
        )
        return load_fleet(path).file

    return made


def test_a_pod_for_each_pair_as_root_and_alone_on_its_node(file: Any) -> None:
    spec = cluster_spec(make_cluster_spec, file())["spec"]
    pod, scheduler = spec["worker"]["spec"], spec["scheduler"]["spec"]
    (container,) = pod["containers"]
    assert spec["worker"]["replicas"] == 2
    assert (pod["affinity"], container["securityContext"]) == (ALONE, ROOT)
    assert container["args"][:2] == ["dask", "worker"] and "pair=1" in container["args"]
    assert "--dashboard" not in container["args"]
    assert "securityContext" not in scheduler["containers"][0] and "affinity" not in scheduler


def test_all_talk_by_tls_with_keys_from_a_secret(file: Any) -> None:
    made = cluster_spec(make_cluster_spec, file())
    name = made["metadata"]["name"]
    for part in ("worker", "scheduler"):
        pod = made["spec"][part]["spec"]
        (container,) = pod["containers"]
        env = {one["name"]: one["value"] for one in container["env"]}
        assert env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
        assert env["DASK_SCHEDULER_ADDRESS"] == f"tls://{name}-scheduler:8786"
        assert env["DASK_TEMPORARY_DIRECTORY"] == "/var/lib/nodrop/dask"
        key = Path(env[f"DASK_DISTRIBUTED__COMM__TLS__{part.upper()}__KEY"])
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        assert str(key.parent) == mount["mountPath"] and mount["name"] == volume["name"]
        assert volume["secret"] == {"secretName": name, "defaultMode": 0o400}


def test_what_the_user_asks_for_stands(file: Any) -> None:
    spec = cluster_spec(
        make_cluster_spec,
        file(
            'env = { WHO = "me" }\n'
            'pod = { nodeSelector = { rack = "7" }, affinity = {}, volumes = [{ name = "v" }] }\n'
            'container = { securityContext = { runAsUser = 7 }, volumeMounts = [{ name = "v" }] }'
        ),
    )
    pod = spec["spec"]["worker"]["spec"]
    (container,) = pod["containers"]
    assert pod["nodeSelector"] == {"rack": "7"} and pod["affinity"] == {}
    assert [one["name"] for one in pod["volumes"]] == ["v", "nodrop-tls"]
    assert [one["name"] for one in container["volumeMounts"]] == ["v", "nodrop-tls"]
    assert container["securityContext"] == {"runAsUser": 7}
    assert container["env"][-1] == {"name": "WHO", "value": "me"}


def test_each_run_has_a_name_that_kubernetes_takes(file: Any) -> None:
    fleet = file(name="rack-7")
    one, other = (cluster_spec(make_cluster_spec, fleet)["metadata"]["name"] for _ in range(2))
    assert one != other and one.startswith("nodrop-rack-7-")
    long = cluster_spec(make_cluster_spec, file(name="x" * 60))["metadata"]["name"]
    assert len(f"{long}-scheduler") <= 63


class Kubernetes:
    """Has what it is given."""

    def __init__(self, pods: list[Any], deployments: list[Any]) -> None:
        self._has = {"pods": pods, "deployments": deployments}

    def get(self, kind: str, **_: str) -> list[Any]:
        return self._has[kind]


def made(part: str, status: dict[str, Any], words: str = "") -> Any:
    labels = {"dask.org/component": part}
    return SimpleNamespace(labels=labels, raw={"status": status}, logs=lambda **_: iter([words]))


def why(pods: list[Any], deployments: list[Any]) -> str:
    cluster = SimpleNamespace(name="nodrop-two-1a2b", namespace="default")
    return Pods(Kubernetes(pods, deployments), cluster).why_none()


FORBIDDEN = {
    "type": "ReplicaFailure",
    "status": "True",
    "message": 'pods "nodrop-two-1a2b-default-worker-77-x" is forbidden: no',
}
CRASHED = {"terminated": {"exitCode": 3, "reason": "Error"}}
RUNS = made("scheduler", {"phase": "Running"})
LIVES = made("scheduler", {})


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Pending"}, "Pending"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "x"}, {"reason": "Unschedulable", "message": "0/2 nodes"}],
            },
            "Pending (0/2 nodes)",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "Pull"}}}]},
            "Pending (Pull)",
        ),
        (
            {"phase": "Running", "containerStatuses": [{"state": CRASHED}]},
            "ended with exit code 3 (bad luck)",
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [{"state": {"waiting": {}}, "lastState": CRASHED}],
            },
            "ended with exit code 3 (bad luck)",
        ),
    ],
)
def test_why_a_pod_does_not_come(status: dict[str, Any], said: str) -> None:
    worker = made("worker", status, "bad luck")
    assert why([worker, RUNS], [LIVES]) == f"worker {said}"
    assert why([worker, worker, RUNS], [LIVES]) == f"2 workers {said}"


def test_pods_that_kubernetes_does_not_make_are_said_once() -> None:
    other = {**FORBIDDEN, "message": FORBIDDEN["message"].replace("77", "88")}
    refused = [made("worker", {"conditions": [one]}) for one in (FORBIDDEN, other)]
    assert why([RUNS], [LIVES, *refused]) == '2 workers without a pod (pods "…" is forbidden: no)'


def test_an_operator_that_does_nothing_is_named() -> None:
    said = "dask's operator makes nothing of DaskCluster nodrop-two-1a2b: does it run?"
    assert why([], []) == said
    assert why([RUNS], [LIVES]) == ""
