"""The command that measures: run, and doctor, which asks beforehand whether it can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.config.units import count_of
from nodrop.errors import BadInput, LabProblem
from nodrop.exit_codes import LAB_FAILED, NO_ANSWER
from nodrop.terminal.arguments import (
    AsJson,
    ExperimentFile,
    FleetFile,
    ImageName,
    LabName,
    OutFolder,
    OwnBinary,
    OwnConfig,
    Resume,
    Settings,
    Threads,
    TolerateTruncated,
    Yes,
    all_settings,
    complain,
    reporting,
    say,
    say_in_a_pipe,
    say_json,
)

if TYPE_CHECKING:
    from nodrop.config.experiment import Experiment
    from nodrop.measure.manager import RunOutcome
    from nodrop.remote.messages import DoctorAnswer


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo)
    app.command("run")(run)
    app.command("profile")(profile)
    app.command("doctor")(doctor)


def demo(
    sink: Annotated[
        bool, typer.Option("--sink", help="Measure nodrop's own sink, not a Suricata.")
    ] = False,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    resume: Resume = False,
) -> int:
    """Search how much of a synthetic trace a Suricata carries here: no file is needed.

    A Suricata of this host is measured, or an image of one that is made for it. Where neither can
    be had, the SUT is nodrop's own sink, which needs no packages and no root.

    \b
    nodrop demo
    nodrop demo --sink --out /tmp/results
    """
    from nodrop.installation import shipped

    name = "demo-sink" if sink or not _suricata_is_there() else "demo"
    path = shipped("experiments") / f"{name}.toml"
    return run(path, lab=lab, out=out, settings=settings, resume=resume)


def _suricata_is_there() -> bool:
    """Makes an image if this host has no Suricata; if that fails, says why."""
    from nodrop.testbed.hosts.packages import installing
    from nodrop.testbed.hosts.rights import in_user_namespace
    from nodrop.testbed.images.bootstrap import can_build, image_programs
    from nodrop.testbed.images.recipe import default_release
    from nodrop.testbed.images.sut_bits import ensure_bits, find_bits
    from nodrop.testbed.labs.netns import PROGRAMS

    if find_bits("suricata"):
        return True
    if in_user_namespace():
        return False  # there it begins again: it has tried, and said so
    if not can_build("suricata"):
        suricata = image_programs() if default_release() else {"suricata"}
        line = installing({*PROGRAMS, *suricata})
        install = f"; {line}, then `nodrop demo`, measures one" if line else ""
        say(f"no Suricata is here, so the demo measures nodrop's own sink{install}")
        return False
    say("no Suricata is here: an image of one is made (1 to 2 minutes)")
    try:
        ensure_bits("suricata")
    except LabProblem as problem:
        complain(f"no image was made: {problem.message}; the demo measures nodrop's own sink")
        return False
    return True


def run(
    experiment: ExperimentFile,
    lab: LabName = None,
    fleet: FleetFile = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    tolerate_truncated: TolerateTruncated = False,
    resume: Resume = False,
    yes: Yes = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only the run directory.")
    ] = False,
    timings: Annotated[
        bool,
        typer.Option("--timings", help="Show how long each step of a trial took nodrop itself."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Run every trial of the plan and write a run directory. The last line is its path.

    \b
    nodrop run my.toml
    nodrop run my.toml --lab my-lab.toml --set measure.repetitions=20

    Exit code 0: all trials are measured; 1: some failed or are void; 2: bad input, or something is
    missing here, and nothing was touched; 3: the lab failed; 6: a search has no load that is shown
    to be carried, or other programs had the SUT's CPUs in most trials, so the cells are not
    compared.
    """
    from nodrop.config.experiment import MOST_TRIALS, load_experiment
    from nodrop.terminal.progress import shown

    asked = load_experiment(
        experiment,
        all_settings(settings, tolerate_truncated=tolerate_truncated),
        most_trials=None if yes else MOST_TRIALS,
    )
    measure = _measuring(asked, lab, fleet)
    with shown(quiet=quiet, as_json=as_json) as progress:
        outcome = measure(out=out, resume=resume, progress=progress, yes=yes)

    with reporting(outcome.directory):
        return _report(asked, outcome, quiet=quiet, as_json=as_json, timings=timings)


def _report(
    asked: Experiment, outcome: RunOutcome, *, quiet: bool, as_json: bool, timings: bool
) -> int:
    """Prints the report; returns the exit code."""
    # Seconds of imports, which bad input and what is killed before need not wait for.
    from nodrop.capacity.answer_cards import given_cards
    from nodrop.capacity.searched_cells import searches
    from nodrop.capacity.terminal import ends_with, print_answers, print_in_short, print_sensor
    from nodrop.report.direct import direct_answers, disturbed
    from nodrop.report.sections import sections
    from nodrop.report.story import read_story
    from nodrop.report.write import write_report
    from nodrop.results.summary import looks
    from nodrop.terminal.progress import (
        print_cells,
        print_direct,
        print_questions,
        print_stopped,
        print_timings,
        print_timings_json,
    )

    story = read_story([outcome.directory])
    page, code = write_report(story), outcome.exit_code
    found = () if asked.search is None else searches(story)
    if asked.search is not None:
        code = ends_with(found)
    if disturbed(story):
        code = NO_ANSWER
    if as_json:
        for direct, _ in direct_answers(story):
            say_json({"event": "answer", **direct.model_dump()})
        for section in sections():
            if [*section.lines(story)]:
                say_json({"event": "section", "id": section.id, **section.as_json(story)})
        if timings:
            print_timings_json(outcome.directory)
        return code
    if not quiet:
        if len(found) != 1:  # one search answers with its number first
            print_questions(story)
            print_direct(story)
        if found:
            print_answers(story, page)
        else:
            print_in_short(given_cards(story))
            for words in (words for one in sections() for words in one.lines(story)):
                say(words)
            rule = asked.measure.rule
            print_cells(outcome.records, looks(rule, asked.measure.sut) if rule else None)
            if rule:
                print_stopped(story)
            print_sensor(story)
            say(f"report: {page}")
        if timings:
            print_timings(outcome.directory)
    if quiet or len(found) != 1:
        say(outcome.directory)
    else:
        say_in_a_pipe(outcome.directory)
    return code


def _measuring(asked: Experiment, lab: str | None, fleet: Path | None) -> Callable[..., RunOutcome]:
    """The function that runs the experiment, bound to where and how."""
    if fleet is None:
        from nodrop.config.lab_file import load_lab
        from nodrop.remote.dispatch import measuring

        where = load_lab(lab)
        return partial(measuring(where), asked, where)
    if lab is not None:
        raise BadInput("--lab: not with --fleet, whose file names its labs; leave one of them out")
    from nodrop.remote.dispatch import fleet_of

    return fleet_of(fleet).measuring(asked)


def profile(
    experiment: ExperimentFile,
    config: OwnConfig = None,
    binary: OwnBinary = None,
    image: ImageName = None,
    threads: Threads = None,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    resume: Resume = False,
    settings: Settings = None,
    yes: Yes = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only the run directory.")
    ] = False,
) -> int:
    """Measure like `run`, and show where the time goes: functions, waits, threads at once.

    Equal to `run --set measure.profile=true`. The report gets the section "Where the time goes".

    \b
    nodrop profile my.toml
    nodrop profile experiments/thread-models.toml --cell cell=autofp-1x1
    """
    from nodrop.config.asked import UserSensor

    sensor = UserSensor(config=config, binary=binary, image=image, threads=threads)
    asked = [*(settings or ()), *sensor.settings(Path.cwd()), "measure.profile=true"]
    return run(experiment, lab=lab, out=out, resume=resume, settings=asked, yes=yes, quiet=quiet)


def _first_question(settings: Sequence[str]) -> Experiment:
    """The command that most begin with."""
    from nodrop.capacity.command import MADE_OF
    from nodrop.config.asked import CapacityQuestion
    from nodrop.config.experiment import asked_experiment

    table = CapacityQuestion(trace="make:demo").table(Path.cwd())
    return asked_experiment(table, settings, path=MADE_OF)


def _standing_words(found: DoctorAnswer) -> str:
    if found.problems:
        return f"{count_of(len(found.problems), 'problem')} to fix."
    if not found.disturbing:
        return "Ready."
    return f"Ready. {len(found.disturbing)} of the notes above will disturb a run."


def doctor(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="EXPERIMENT", help="Experiment file to check. Default: only the lab."
        ),
    ] = None,
    lab: LabName = None,
    settings: Settings = None,
    tolerate_truncated: TolerateTruncated = False,
    as_json: AsJson = False,
) -> int:
    """Check whether this host can measure, and list every problem. Exit code 3 if there is one.

    Without an experiment it checks for `nodrop capacity` with its defaults (Suricata, setup bare;
    --set changes them). For a lab over ssh it then checks only the hosts. A missing certificate of
    `nodrop calibrate` is reported, but is not a problem.

    \b
    nodrop doctor my.toml
    nodrop doctor --lab my-lab.toml --json
    """
    from nodrop.config.experiment import load_experiment
    from nodrop.config.lab_file import load_lab
    from nodrop.measure import baselines
    from nodrop.measure.plan import make_plan
    from nodrop.remote.dispatch import install_line, looked_at, receiver_elsewhere

    where = load_lab(lab)
    changes = all_settings(settings, tolerate_truncated=tolerate_truncated)
    asked: Experiment | None
    if experiment:
        asked = load_experiment(experiment, changes)
    else:
        asked = None if receiver_elsewhere(where) else _first_question(changes)
    plan = make_plan(asked) if asked else None
    found = looked_at(where, asked, plan)
    install = install_line(where, asked, plan) if found.problems else None
    # Without an experiment, what it plans is no matter yet.
    notes = [*(() if asked and not experiment else found.notes), *found.disturbing]
    if as_json:
        said = {
            "problems": found.problems,
            "notes": notes,
            "calibration": found.calibration,
            "install": install,
        }
        say_json(said)
    else:
        for words in found.problems:
            say(f"- {words}")
        if install:
            say(f"What programs are missing, this installs: {install}")
        for words in notes:
            say(words)
        for one in found.calibration:
            say(baselines.standing_words(one))
        say(_standing_words(found))
    return LAB_FAILED if found.problems else 0
