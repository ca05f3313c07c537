"""The command that measures two builds in turns until it can tell: ab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.cli.arguments import (
    AsJson,
    ImageName,
    LabName,
    OutFolder,
    OwnBinary,
    OwnConfig,
    Resume,
    Rules,
    Settings,
    SetupKind,
    SutKind,
    Threads,
    TraceName,
    blaming_options,
)
from nodrop.cli.compare import Junit, Markdown, Metrics, answered, one_way
from nodrop.cli.reporting import reporting
from nodrop.cli.saying import say
from nodrop.errors import BadInput

if TYPE_CHECKING:
    from nodrop.config.asked import AbQuestion
    from nodrop.config.experiment import Experiment
    from nodrop.measure.plan import Plan
    from nodrop.results.trial import TrialRecord
    from nodrop.results.versus import Versus

MADE_OF = Path("nodrop ab")
"""Name that errors blame: there is no file."""
BUILD = "Binary, image, or key=value of the experiment such as sut.threads=2. Repeatable."
LEAST_PAIRS, MOST_PAIRS = 12, 10_000
Build = Annotated[list[str], typer.Option(metavar="BUILD", help=BUILD, show_default=False)]


def add_to(app: typer.Typer) -> None:
    app.command("ab")(ab)


def ab(
    trace: TraceName,
    a: Build,
    b: Build,
    rules: Rules = None,
    config: OwnConfig = None,
    binary: OwnBinary = None,
    image: ImageName = None,
    threads: Threads = None,
    setup: SetupKind = "bare",
    sut: SutKind = "suricata",
    metrics: Metrics = None,
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Trials of each build, at most.")
    ] = 80,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="90s, 10m: no trial after it.")
    ] = None,
    markdown: Markdown = False,
    junit: Junit = None,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> int:
    """Two builds in turns, until each metric is different or the same, or one is worse.

    \b
    nodrop ab my.pcap --a ./old/suricata --b ./new/suricata --budget 20m
    nodrop ab my.pcap --a sut.threads=1 --b sut.threads=2 --metric loss_pct

    Exit code 0: B is the same or better; 5: worse in some metric; 6: cannot tell within --most or
    --budget; 1: a build has no trial that is not void; 2: bad input; 3: the lab failed.
    """
    from nodrop.cli.progress import shown
    from nodrop.config.asked import AbQuestion, Sensor, time_s
    from nodrop.config.lab_file import load_lab
    from nodrop.elsewhere.where import measuring
    from nodrop.measure.controllers.until_told import UntilTold
    from nodrop.measure.plan import make_plan
    from nodrop.report.decoder import decoder_words
    from nodrop.report.sensor import sensor_words
    from nodrop.report.story import read_story
    from nodrop.report.write import write_report

    _must_be_pairs(most)
    one_way(as_json=as_json, markdown=markdown)
    _must_be_metrics(metrics or [])
    sensor = Sensor(config=config, binary=binary, image=image, threads=threads)
    question = AbQuestion(
        a=a, b=b, trace=trace, rules=rules or (), setup=setup, sut=sut, sensor=sensor, most=most
    )
    asked = _experiment(question, settings or [])
    where = load_lab(lab)
    plan = blaming_options(asked, lambda: make_plan(asked))
    seconds = None if budget is None else time_s("--budget", budget)
    _must_hold_a_pair(seconds, plan)
    until = UntilTold(
        plan.controller,
        most=most,
        told=lambda done, look: _laid(done, metrics or (), look).verdict != "cannot tell",
        budget_s=seconds,
    )
    measured = measuring(where)
    with shown(quiet=as_json or markdown, as_json=False) as progress:
        outcome = measured(
            asked,
            where,
            out=out,
            resume=resume,
            progress=progress,
            plan=replace(plan, controller=until),
        )
    with reporting(outcome.directory):
        page = write_report([outcome.directory])
        if code := _not_judged(outcome.records, budget, page):
            return code
        look = until.look_at_the_end(outcome.records)
        found = _laid(outcome.records, metrics or (), look)
        story = read_story([outcome.directory])
        notes = [*found.notes, *decoder_words(story), *sensor_words(story), f"report: {page}"]
        found = found.model_copy(update={"notes": notes})
        return answered(found, markdown=markdown, junit=junit, as_json=as_json)


def _must_be_pairs(most: int) -> None:
    if most < LEAST_PAIRS:
        raise BadInput(f"--most {most}: fewer than {LEAST_PAIRS} trials of each tell nothing")
    if most > MOST_PAIRS:
        raise BadInput(f"--most {most}: more than {MOST_PAIRS:,} trials of each are never needed")


def _must_hold_a_pair(budget_s: float | None, plan: Plan) -> None:
    if budget_s is None or plan.load_s is None:
        return
    pair_s = (plan.load_s + plan.around_s) / plan.repetitions
    if budget_s < pair_s:
        raise BadInput(
            f"--budget: {budget_s:g} s are less than one trial of each build, about {pair_s:.0f} s"
        )


def _must_be_metrics(names: Sequence[str]) -> None:
    """A comparison says it as well, but only after the first trials."""
    from nodrop.report.sides import FAILED, METRICS

    known = [*(figure.name for figure in METRICS), FAILED]
    for name in names:
        if name not in known:
            raise BadInput(f"--metric {name}: allowed are {', '.join(known)}")


def _experiment(question: AbQuestion, settings: Sequence[str]) -> Experiment:
    from nodrop.config.experiment import asked_experiment
    from nodrop.config.toml_file import to_toml

    here = Path.cwd()
    table, cells = question.table(here), question.cells(here)
    asked = asked_experiment(table, settings, path=MADE_OF)
    if asked.matrix or asked.measure.mode != "blocks" or asked.measure.repetitions != question.most:
        raise BadInput("nodrop ab: its two builds, order and repetitions are its own; see --most")
    # Put in here: a matrix may not name one cell twice, and A against A is a fair question.
    text = to_toml({**table, "matrix": {"cells": cells.named}})
    return replace(asked, matrix=cells, text=text)


def _not_judged(records: Sequence[TrialRecord], budget: str | None, page: Path) -> int:
    """The exit code if a build has no trial that is not void, which is then said; 0 if both do."""
    from nodrop.report.versus import CANNOT_TELL

    judged = {record.cell["cell"] for record in records if record.outcome != "void"}
    lacking = [name for name in "ab" if name not in judged]
    if not lacking:
        return 0
    if not {record.cell["cell"] for record in records}.issuperset(lacking):
        short = f"--budget {budget} ended before both builds were tried"
        say(f"cannot tell: {short}: see {page}")
        return CANNOT_TELL
    say(f"every trial of {' and '.join(lacking)} is void: see {page}")
    return 1


def _laid(records: Sequence[TrialRecord], metrics: Sequence[str], look: int) -> Versus:
    from nodrop.report.sides import side_of_records
    from nodrop.report.versus import versus

    a, b = (side_of_records(n, [r for r in records if r.cell["cell"] == n]) for n in "ab")
    return versus(
        a,
        b,
        differs=["cell", "setup", "sut", "load", "limits", "measure"],
        metrics=metrics,
        look=look,
    )
