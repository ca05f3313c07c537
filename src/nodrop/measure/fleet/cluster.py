"""The cluster of dask that a fleet file names, and a client of it."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from nodrop.config.fleet_file import FleetFile, FleetSource
from nodrop.errors import LabProblem, NotReady
from nodrop.hosts.privileges import in_user_namespace

CONNECT_TIMEOUT_S = 20.0
PAIR = "pair"
"""The resource that a trial needs, and a worker has once."""
CONFIG = {
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Ten looks a second at the thread that measures, and workers that are ended for their memory.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.terminate": False,
}
"""For what runs on this machine: nothing to see, and nothing beside what is measured."""
CLASSES: Mapping[str, tuple[str, str, str]] = {
    "ssh": ("distributed", "SSHCluster", "asyncssh"),
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
    "kubernetes": ("dask_kubernetes.operator", "KubeCluster", "dask-kubernetes"),
}
"""Cluster → module, class, and the package that has to be there."""


@contextmanager
def connected(source: FleetSource) -> Iterator[Any]:
    """A `distributed.Client`. LabProblem if there is no scheduler that answers."""
    file = source.file
    dask, distributed = (
        _imported("dask", "nodrop[fleet]"),
        _imported("distributed", "nodrop[fleet]"),
    )
    with ExitStack() as stack:
        if file.cluster == "local":
            stack.enter_context(dask.config.set(CONFIG))
            cluster = stack.enter_context(_local(source, distributed))
        elif file.cluster == "scheduler":
            cluster = file.address
        else:
            cluster = stack.enter_context(_started(file))
        try:
            client = distributed.Client(cluster, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError, distributed.comm.CommClosedError) as error:
            raise NotReady(
                f"{source.path}: no dask scheduler answers at {file.address}: {error}",
                hint="start it with `dask scheduler`, and see that this host may reach it",
            ) from None
        yield stack.enter_context(client)


def _local(source: FleetSource, distributed: Any) -> Any:
    """A process for each pair. Whoever may talk to a worker may run what he likes there, so the
    sockets, on loopback, want a certificate that only this run has."""
    if in_user_namespace():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
    return distributed.LocalCluster(
        n_workers=len(source.pairs),
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        security=True,
        resources={PAIR: 1},
        memory_limit=0,
        silence_logs=50,
    )


def _started(file: FleetFile) -> Any:
    """By dask's own class, with the user's settings of it."""
    module, name, package = CLASSES[file.cluster]
    if file.cluster == "ssh":
        _imported("asyncssh", package)
    make = getattr(_imported(module, package), name)
    options = dict(file.options or {})
    if file.cluster == "ssh":
        worker = {"nthreads": 1, "resources": {PAIR: 1}, **options.pop("worker_options", {})}
        options |= {"hosts": list(file.hosts or ()), "worker_options": worker}
    elif file.cluster == "slurm":
        extra = [*options.pop("worker_extra_args", ()), "--resources", f"{PAIR}=1"]
        options = {"cores": 1, "processes": 1, **options, "worker_extra_args": extra}
    else:
        command = ["dask", "worker", "--nthreads", "1", "--resources", f"{PAIR}=1"]
        options = {"name": "nodrop", "worker_command": command, **options}
    try:
        cluster = make(**options)
        if file.cluster != "ssh":
            cluster.scale(len(file.pairs))
    except Exception as error:  # whatever those classes raise, it is about the user's cluster
        raise LabProblem(f"{name} of {package} cannot start: {error}") from error
    return cluster


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotReady(
            f"package {package} is missing, which --fleet needs",
            hint=f"pip install '{package}'",
        ) from None
