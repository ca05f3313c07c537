"""The cluster of dask that a fleet file names, and a client of it."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from nodrop.config.fleet_file import FleetSource
from nodrop.errors import NotReady
from nodrop.hosts.privileges import in_user_namespace
from nodrop.measure.fleet.kubernetes import in_pods
from nodrop.measure.fleet.scratch import scratch
from nodrop.measure.fleet.started import CONFIG, PAIR, QUIET, Workers, imported, started

CONNECT_TIMEOUT_S = 20.0
UNDOES = "nodrop.measure.fleet.ending"
"""Imports dask, which may be missing."""


@contextmanager
def connected(source: FleetSource) -> Iterator[tuple[Any, Workers]]:
    """A `distributed.Client`, and who starts workers. NotReady if no scheduler answers."""
    file = source.file
    dask, distributed = (
        imported("dask", "nodrop[fleet]"),
        imported("distributed", "nodrop[fleet]"),
    )
    with ExitStack() as stack:
        workers = Workers()
        stack.enter_context(dask.config.set(CONFIG))
        # What its client logs is a traceback; what it means is said.
        stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
        if file.cluster == "local":
            private = stack.enter_context(scratch())
            stack.enter_context(dask.config.set({"temporary-directory": str(private)}))
            cluster = stack.enter_context(_local(source, distributed))
        elif file.cluster == "scheduler":
            cluster = file.address
        else:
            start = in_pods if file.cluster == "kubernetes" else started
            workers = stack.enter_context(start(file))
            cluster = workers.cluster
        asked = file.wait_s if "wait_s" in file.model_fields_set else CONNECT_TIMEOUT_S
        try:
            client = distributed.Client(
                cluster,
                security=workers.security,
                timeout=asked,
                set_as_default=False,
            )
        except (OSError, ValueError, distributed.comm.CommClosedError) as error:
            raise NotReady(
                f"{source.path}: no dask scheduler answers at {cluster}: {error}",
                hint="start it with `dask scheduler`, and see that this host may reach it",
            ) from None
        stack.enter_context(client)
        workers.serve(client)
        with suppress(Exception):  # of a worker with another nodrop, which is drained for that
            client.register_plugin(imported(UNDOES, "nodrop[fleet]").Undoes())
        yield client, workers


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
        scheduler_kwargs=dict(QUIET),  # else its HTTP port is 8787, which another fleet may have
        security=True,
        resources={PAIR: 1},
        memory_limit=0,
        silence_logs=50,
    )
