"""`nodrop run --fleet`: the run of a plan that many pairs share."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.fleet_file import FleetSource
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput
from nodrop.hosts.interrupts import interrupts
from nodrop.labs.seam import OnHosts
from nodrop.labs.storage import Storage
from nodrop.measure.crew import Crew
from nodrop.measure.fleet.cluster import connected
from nodrop.measure.fleet.members import Members
from nodrop.measure.fleet.pairs import Pairs
from nodrop.measure.fleet.parallel import in_parallel
from nodrop.measure.fleet.worker import Job, Sits
from nodrop.measure.manager import (
    RunOutcome,
    keep_raw_files,
    keep_run,
    must_be_meant,
    run_plain,
    run_writer,
)
from nodrop.measure.plan import make_plan
from nodrop.measure.progress import Progress
from nodrop.results.writer import plan_sha256


def run_fleet(
    experiment: Experiment,
    fleet: FleetSource,
    sits: Callable[[LabSource], Sits],
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
) -> RunOutcome:
    """As `run_experiment`; every pair looks for problems of its own before a trial begins. `sits`:
    where the receiver of a lab is."""
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
            sits=sits(lab),
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
    for host, port in made.ends() if isinstance(made, OnHosts) else ():
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
