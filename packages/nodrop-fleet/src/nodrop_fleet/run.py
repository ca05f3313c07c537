"""Run of a plan that many pairs share: `nodrop run --fleet`."""

from __future__ import annotations

import logging
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, NotReady, interrupts
from nodrop.measure.manager import (
    Crew,
    RunOutcome,
    keep_raw_files,
    keep_run,
    must_be_meant,
    run_plain,
    run_writer,
)
from nodrop.measure.plan import Plan, Progress, make_plan
from nodrop.remote.dispatch import receiver_elsewhere
from nodrop.results.writer import plan_sha256
from nodrop.testbed.hosts.folders import scratch
from nodrop.testbed.hosts.rights import ensure_privileges, in_user_namespace
from nodrop.testbed.labs.api import Storage
from nodrop_fleet.far_pair import there
from nodrop_fleet.file import FleetSource, load_fleet
from nodrop_fleet.kubernetes import in_pods
from nodrop_fleet.members import Members, Pairs, in_parallel
from nodrop_fleet.worker import CONFIG, PAIR, QUIET, Job, Workers, imported, started

CONNECT_TIMEOUT_S = 20.0
UNDOES = "nodrop_fleet.ending"
"""Imports dask, which may be missing."""


@contextmanager
def connected(source: FleetSource) -> Iterator[tuple[Any, Workers]]:
    """A `distributed.Client`, and who starts workers. NotReady if no scheduler answers."""
    file = source.file
    dask, distributed = (
        imported("dask", "distributed"),
        imported("distributed", "distributed"),
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
            client.register_plugin(imported(UNDOES, "distributed").Undoes())
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


class FleetOfFile:
    """Pairs of a fleet file (nodrop/remote/dispatch.py)."""

    def __init__(self, path: Path) -> None:
        self._source = load_fleet(path)

    def shared(self, plan: Plan) -> Plan:
        source = self._source
        return in_parallel(plan, len(source.pairs), host_invariant=source.file.host_invariant)

    def measuring(self, experiment: Experiment) -> Callable[..., RunOutcome]:
        source = self._source
        here = source.file.cluster == "local"  # else workers measure, and this process only asks
        if here and not all(map(receiver_elsewhere, source.pairs.values())):
            ensure_privileges()
        return partial(run_fleet, experiment, source)


def run_fleet(
    experiment: Experiment,
    fleet: FleetSource,
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
) -> RunOutcome:
    """Runs an experiment as `run_experiment` does, on the pairs of a fleet. Every pair looks for
    problems of its own before a trial begins."""
    must_share_nothing(fleet)
    plan = make_plan(experiment)
    must_be_meant(plan, yes=yes)
    file, run = fleet.file, secrets.token_hex(8)
    local = file.cluster == "local"
    jobs = {
        name: Job(
            run=run,
            pair=name,
            experiment=experiment,
            lab=lab,
            own_process_group=local,
            sits=there if receiver_elsewhere(lab) else None,
        )
        for name, lab in fleet.pairs.items()
    }
    kept = file.storage
    storage = Storage(kept.host, kept.path, config=file.ssh_config) if kept else None
    with interrupts() as gate, storage or nullcontext(), connected(fleet) as found:
        client, workers = found
        members = Members(client, file, jobs, workers)
        try:
            members.begin(progress.note)
            # Pairs may come and go between sittings; a pair that stays has the same lab (Pairs).
            plain = run_plain(experiment, plan, lab={"fleet": file.name}, inputs=members.inputs)
            sha256 = plan_sha256(plain)
            invariant = file.host_invariant
            plan = in_parallel(plan, len(members.standing), host_invariant=invariant)
            with run_writer(
                experiment, fleet.text, out, sha256, resume=resume, fleet=file.name
            ) as writer:
                keep_raw_files(writer, storage)
                begin = partial(Pairs, members, plan, writer, progress, host_invariant=invariant)
                return keep_run(plan, _at_work(begin), writer, gate, progress, _notes(fleet))
        finally:
            members.leave()


def must_share_nothing(fleet: FleetSource) -> None:
    """BadInput if two pairs would lock each other out. To take turns would save no time."""
    taken: dict[str, LabSource] = {}
    for lab in fleet.pairs.values():
        for what in _alone_in(lab, here=fleet.file.cluster == "local"):
            if what in taken:
                raise BadInput(
                    f"{fleet.path}: {taken[what].path} and {lab.path} both measure with {what}, "
                    "which has one run at a time; a pair needs hosts of its own"
                )
        taken |= dict.fromkeys(_alone_in(lab, here=fleet.file.cluster == "local"), lab)


def _alone_in(lab: LabSource, *, here: bool) -> Iterator[str]:
    """`here`: all workers are on this machine."""
    try:
        made = plugins.build_lab(lab)
    except BadInput:  # said where it is used: files that it names may be on the worker's host alone
        return
    for host, port in made.ends():
        if host:
            yield f"host {host}"
        elif here:
            yield f"port {port} of this machine"


def _notes(fleet: FleetSource) -> list[str]:
    storing = [name for name, lab in fleet.pairs.items() if "storage" in lab.table]
    return [f"{name}: its [storage] is not used: name one in the fleet file" for name in storing]


@contextmanager
def _at_work(begin: Callable[[], Pairs]) -> Iterator[Crew]:
    pairs = begin()
    try:
        yield pairs
    finally:
        pairs.leave()
