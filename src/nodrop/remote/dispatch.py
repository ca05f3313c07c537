"""Dispatch of a run to the host that measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.installation import sibling
from nodrop.measure import baselines
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Plan, Progress

if TYPE_CHECKING:
    from nodrop.remote.messages import DoctorAnswer


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


class Fleet(Protocol):
    """Pairs that share a plan, made from the file of `--fleet`."""

    def shared(self, plan: Plan) -> Plan:
        """The plan, with the time that the pairs take together."""
        ...

    def measuring(self, experiment: Experiment) -> Callable[..., RunOutcome]:
        """`Measuring` with experiment and pairs bound. To measure here needs rights, which this
        process then has."""
        ...


def fleet_of(path: Path) -> Fleet:
    """NotReady if no package brings fleets."""
    plugin = next(iter(plugins.of_table("fleet")), None)
    if plugin is None:
        raise NotReady(
            "--fleet comes with the package nodrop-fleet, which is not installed",
            hint=sibling("nodrop-fleet"),
        )
    return cast("Fleet", plugin.load()(path))


def receiver_elsewhere(lab: LabSource) -> bool:
    """True if the receiver is another machine. False for a bad lab file: its fault is reported
    where the lab is built."""
    try:
        made = plugins.build_lab(lab)
    except BadInput:
        return False
    return made.receiver_elsewhere


def measuring(lab: LabSource) -> Measuring:
    """The function that measures with this lab. To measure here needs rights, which this process
    then has."""
    if receiver_elsewhere(lab):
        from nodrop.remote.client import run_elsewhere

        return run_elsewhere
    from nodrop.measure import manager
    from nodrop.testbed.hosts.rights import ensure_privileges

    ensure_privileges()
    return manager.run_experiment


def looked_at(lab: LabSource, experiment: Experiment | None, plan: Plan | None) -> DoctorAnswer:
    """Every problem at once, as `nodrop doctor` lists them."""
    if receiver_elsewhere(lab):
        return _looked_at_elsewhere(lab, experiment, plan)
    from nodrop.measure import busy, preflight
    from nodrop.remote.messages import DoctorAnswer
    from nodrop.testbed.hosts.rights import ensure_privileges

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
    setups = {cell.setup["kind"] for cell in plan.cells} if plan else {"bare"}
    # The SUT's own look at this host may say once more what the rights lack.
    return DoctorAnswer(
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes),
        disturbing=tuple(busy.host_notes()),
        calibration=() if problems else tuple(baselines.standing_here(lab, setups)),
    )


def install_line(lab: LabSource, experiment: Experiment | None, plan: Plan | None) -> str | None:
    """Command that installs the programs which a run on this host lacks; None: it lacks none, or
    the run is elsewhere."""
    from nodrop.measure import preflight
    from nodrop.testbed.hosts.packages import installing

    if experiment is None or plan is None or receiver_elsewhere(lab):
        return None
    return installing(preflight.programs(experiment, lab, plan))


def in_the_way(lab: LabSource, experiment: Experiment, plan: Plan) -> Sequence[str]:
    """For `nodrop plan`: the problems that a run would refuse to begin with."""
    if receiver_elsewhere(lab):
        return _looked_at_elsewhere(lab, experiment, plan).problems
    from nodrop.measure import preflight

    return preflight.in_the_way(experiment, lab, plan)


def _looked_at_elsewhere(
    lab: LabSource, experiment: Experiment | None, plan: Plan | None
) -> DoctorAnswer:
    from nodrop.remote.client import doctor_elsewhere
    from nodrop.remote.messages import DoctorAnswer

    if experiment and plan:
        return doctor_elsewhere(experiment, lab, plan)
    made = plugins.build_lab(lab)
    return DoctorAnswer(problems=tuple(words for one in made.check() for words in one.problems))
