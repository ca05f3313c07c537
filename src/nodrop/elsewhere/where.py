"""Where a run is measured: here, or on the receiver of its lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, LabProblem
from nodrop.hosts.seam import Json
from nodrop.labs.seam import Checkable, Distant
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Plan
from nodrop.measure.progress import Progress

if TYPE_CHECKING:
    from nodrop.fleet.worker import Sits


class Measuring(Protocol):
    def __call__(
        self,
        experiment: Experiment,
        lab: LabSource,
        *,
        out: Path,
        resume: bool,
        progress: Progress,
        yes: bool = False,
        plan: Plan | None = None,
    ) -> RunOutcome: ...


def receiver_elsewhere(lab: LabSource) -> bool:
    """True if the receiver is another machine. False for a bad lab file: its fault is reported
    where the lab is built."""
    try:
        made = plugins.build_lab(lab)
    except BadInput:
        return False
    return isinstance(made, Distant) and made.receiver_elsewhere


def measuring(lab: LabSource) -> Measuring:
    """The function that measures with this lab. To measure here needs rights, which this process
    then has."""
    if receiver_elsewhere(lab):
        from nodrop.elsewhere.front import run_elsewhere

        return run_elsewhere
    from nodrop.hosts.rights import ensure_privileges
    from nodrop.measure import manager

    ensure_privileges()
    return manager.run_experiment


def sits(lab: LabSource) -> Sits:
    """How a worker of a fleet measures with this lab."""
    if receiver_elsewhere(lab):
        from nodrop.elsewhere.pair import there

        return there
    from nodrop.fleet.worker import here

    return here


def looked_at(
    lab: LabSource, experiment: Experiment | None, plan: Plan | None
) -> tuple[list[str], list[str], list[Json]]:
    """For `nodrop doctor`: every problem, what a user should know, and what certificates a run
    would stand on."""
    if receiver_elsewhere(lab):
        return _looked_at_elsewhere(lab, experiment, plan)
    from nodrop.hosts.rights import ensure_privileges
    from nodrop.measure import busy, calibrated, preflight

    problems: list[str] = []
    notes: list[str] = []
    try:
        ensure_privileges()
    except LabProblem as problem:
        problems.append(str(problem))
    if experiment and plan:
        found, notes = preflight.doctor(experiment, lab, plan)
        problems += found
    else:
        problems += plugins.build_lab(lab).problems()
        notes = busy.host_notes()
    setups = {cell.setup["kind"] for cell in plan.cells} if plan else {"bare"}
    return problems, notes, [] if problems else calibrated.standing_here(lab, setups)


def in_the_way(lab: LabSource, experiment: Experiment, plan: Plan) -> list[str]:
    """For `nodrop plan`: the problems that a run would refuse to begin with."""
    if receiver_elsewhere(lab):
        return _looked_at_elsewhere(lab, experiment, plan)[0]
    from nodrop.measure import preflight

    return preflight.in_the_way(experiment, lab, plan)


def _looked_at_elsewhere(
    lab: LabSource, experiment: Experiment | None, plan: Plan | None
) -> tuple[list[str], list[str], list[Json]]:
    from nodrop.elsewhere.front import doctor_elsewhere

    if experiment and plan:
        return doctor_elsewhere(experiment, lab, plan)
    made = plugins.build_lab(lab)
    assert isinstance(made, Checkable)
    return [words for one in made.check() for words in one.problems], [], []
