"""`nodrop run --fleet`: the run of a plan that many pairs share."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nodrop.config.experiment import Experiment
from nodrop.config.fleet_file import FleetSource
from nodrop.hosts.interrupts import interrupts
from nodrop.measure.crew import Crew
from nodrop.measure.fleet.cluster import connected
from nodrop.measure.fleet.members import Members
from nodrop.measure.fleet.pairs import Pairs
from nodrop.measure.fleet.parallel import in_parallel
from nodrop.measure.fleet.worker import Job
from nodrop.measure.manager import RunOutcome, keep_run, must_be_meant, run_plain, run_writer
from nodrop.measure.plan import make_plan
from nodrop.measure.progress import Progress
from nodrop.results.writer import plan_sha256


def run_fleet(
    experiment: Experiment,
    fleet: FleetSource,
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
) -> RunOutcome:
    """As `run_experiment`; every pair looks for problems of its own before a trial begins."""
    # Each pair parts its own CPUs: none of this host are shared by anything.
    plan = make_plan(experiment, sender_elsewhere=True)
    must_be_meant(plan, yes=yes)
    file, run = fleet.file, secrets.token_hex(8)
    local = file.cluster == "local"
    jobs = {
        name: Job(run=run, pair=name, experiment=experiment, lab=lab, own_process_group=local)
        for name, lab in fleet.pairs.items()
    }
    with interrupts() as gate, connected(fleet) as client:
        members = Members(client, file, jobs)
        try:
            members.begin()
            # Pairs may come and go between sittings; a pair that stays has the same lab (Pairs).
            plain = run_plain(experiment, plan, lab={"fleet": file.name}, inputs=members.inputs)
            sha256 = plan_sha256(plain)
            plan = in_parallel(plan, len(members.standing))
            with run_writer(experiment, fleet.text, out, sha256, resume=resume) as writer:
                invariant = file.host_invariant
                begin = partial(Pairs, members, plan, writer, progress, host_invariant=invariant)
                return keep_run(plan, _at_work(begin), writer, gate, progress)
        finally:
            members.leave()


@contextmanager
def _at_work(begin: Callable[[], Pairs]) -> Iterator[Crew]:
    pairs = begin()
    try:
        yield pairs
    finally:
        pairs.leave()
