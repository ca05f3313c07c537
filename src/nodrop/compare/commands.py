"""Commands that lay runs against each other: compare, and baseline, which stores a side."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.config.units import count_of, time_s
from nodrop.errors import BadInput
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN, NO_ANSWER
from nodrop.results.store import MARK
from nodrop.terminal.arguments import (
    AsJson,
    ImageName,
    LabName,
    OutFolder,
    OwnBinary,
    OwnConfig,
    Resume,
    Rules,
    RunDirectories,
    RunDirectory,
    Settings,
    SetupKind,
    SutKind,
    Threads,
    TraceName,
    Window,
    blaming_options,
    complain,
    reporting,
    run_directory,
    say,
    say_json,
    writable,
    write_anew,
    written_anew,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from nodrop.compare.near_limit import NearLimit
    from nodrop.compare.records import History, Line, MetricRow, Versus
    from nodrop.config.asked import AbQuestion
    from nodrop.config.experiment import Experiment
    from nodrop.config.lab_file import LabSource
    from nodrop.measure.plan import Plan
    from nodrop.remote.dispatch import Measuring
    from nodrop.results.trial import TrialRecord

Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Compare only this metric. Repeatable."),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request.")]
Junit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Also write JUnit XML.",
        callback=written_anew("JUnit XML of nodrop's", b'<testsuite name="nodrop'),
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--page",
        metavar="FILE",
        help="Write the answer as a page.",
        callback=written_anew("page of nodrop compare", b"<title>nodrop compare"),
    ),
]
SIDE = "Run directory, DIR::key=value,… for cells inside it, or a baseline file."


def _side(text: str) -> str:
    """A side as it was asked for; a run directory in a store is replaced by its copy."""
    if MARK not in text:
        return text
    from nodrop.compare.sides import INSIDE

    place, inside, cells = text.partition(INSIDE)
    return f"{run_directory(place)}{inside}{cells}"


def add_to(app: typer.Typer) -> None:
    app.command("compare")(compare)
    app.command("baseline")(baseline)
    app.command("ab")(ab)
    app.command("history")(history)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", parser=_side, help=SIDE, show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", parser=_side, help=SIDE, show_default=False)],
    differs: Annotated[
        list[str] | None,
        typer.Option(
            "--differs", metavar="KEY", help="A fact in which A and B may differ. Repeatable."
        ),
    ] = None,
    metrics: Metrics = None,
    markdown: Markdown = False,
    junit: Junit = None,
    page: Page = None,
    as_json: AsJson = False,
) -> int:
    """Compare B with A, per metric: different, the same within a margin, or cannot tell yet.

    \b
    nodrop compare before/my-* after/my-* --differs sut --page compare.html
    nodrop compare base.json results/capacity-my-20261126T101500Z

    Exit code 0: same or better; 5: worse in some metric; 6: cannot tell yet, or only one side has
    a cell; 2: the sides may not be compared, or bad input.
    """
    from nodrop.compare.sides import must_be_facts, read_side
    from nodrop.compare.versus import versus

    one_way(as_json=as_json, markdown=markdown)
    sides = read_side(a), read_side(b)
    must_be_facts(differs or (), sides)
    found = versus(*sides, differs=differs or (), metrics=metrics or ())
    return answered(found, markdown=markdown, junit=junit, page=page, as_json=as_json)


def one_way(*, as_json: bool, markdown: bool) -> None:
    if as_json and markdown:
        raise BadInput("--json and --markdown: only one of them can be printed")


def answered(
    found: Versus, *, markdown: bool, junit: Path | None, page: Path | None, as_json: bool
) -> int:
    """Prints it in the way that is asked for, and returns its exit code."""
    from nodrop.compare.page import versus_page
    from nodrop.compare.versus import notes_words, to_junit, to_markdown
    from nodrop.terminal.console import console, print_keyed

    if junit is not None:
        write_anew(junit, to_junit(found))
    if page is not None:
        write_anew(page, versus_page(found).encode())
    if as_json:
        say_json(found.model_dump())
    elif markdown:
        for line in to_markdown(found).splitlines():
            say(line)
    else:
        print_keyed(console(), found.card.lines)
        say()
        out, notes = console(), notes_words(found)
        if out.is_terminal:
            print_rows(found, out)
            print_keyed(out, (("notes", words) for words in notes))
        else:
            out.print(_table(found))
            for words in notes:
                say(words)
        if page is not None:
            say(f"page: {page}")
        say(f"{found.b} against {found.a}: {found.verdict}")
    return found.exit_code


def baseline(
    run: RunDirectory,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File to write; an existing file is replaced.",
            callback=writable,
        ),
    ],
) -> None:
    """Store what a run measured in one small file, for `nodrop compare FILE B`.

    \b
    nodrop baseline results/capacity-my-20261126T101500Z base.json
    nodrop baseline s3://lab/runs/capacity-my-20261126T101500Z base.json
    """
    from nodrop.compare.sides import read_side
    from nodrop.results.layout import is_written

    if run.is_file():
        raise BadInput(f"{run}: is a file, and no run directory")
    _must_be_a_baseline(file)
    side = read_side(str(run))
    write_anew(file, side.to_text().encode())
    for words in side.unread:
        complain(f"left out: {words}")
    if is_written(run):
        complain(f"{run}: is still being written, and the baseline has what was there now")
    say(file)


def _must_be_a_baseline(file: Path) -> None:
    """Refuses to write over a file that is no baseline: a trace or an experiment there is a
    slip."""
    from nodrop.compare.records import Side

    if not file.exists() or not file.stat().st_size:
        return
    try:
        Side.from_file(file)
    except BadInput:
        raise BadInput(
            f"{file}: is there, and no baseline that could be written anew", hint="give a new path"
        ) from None


def _table(found: Versus) -> Table:
    from rich.table import Table

    from nodrop.compare.versus import shown

    table = Table(box=None, pad_edge=False)
    for name in ("cell", "metric", "A, median", "B, median", "verdict", "n"):
        table.add_column(name, overflow="fold")
    for row in found.rows:
        medians = shown(row, row.a_median), shown(row, row.b_median)
        table.add_row(row.cell, row.metric, *medians, row.words, f"{row.a_n} and {row.b_n}")
    return table


REACH, STEPS = 3, 4
"""Margins that a row's picture reaches to each side, and its characters for one of them."""
ROOM_FOR_DIFFERENCE, ROOM_FOR_PICTURE = 70, 108
"""Columns of a terminal from which a row has them."""
STYLES = {"different": "bold", "same": "dim", "cannot tell": ""}


def print_rows(found: Versus, out: Console) -> None:
    """A line for each metric below its cell: the medians, the difference, the verdict as a sign."""
    from rich.text import Text

    from nodrop.compare.versus import figure_named, shown

    def parts(row: MetricRow) -> list[str]:
        figure = figure_named(row.metric)
        by = "" if row.difference is None else figure.signed(row.difference)
        if row.interval:
            by += " [{}, {}]".format(*map(figure.signed, row.interval))
        medians = [shown(row, value) for value in (row.a_median, row.b_median)]
        return [figure.title, *medians, by, in_a_row(row)]

    columns = 5 if out.width >= ROOM_FOR_PICTURE else 4 if out.width >= ROOM_FOR_DIFFERENCE else 3
    picture = f"{'in margins':^{2 * REACH * STEPS + 1}}"
    each = [("", "A", "B", "B − A", picture), *map(parts, found.rows)]
    widths = [max(map(len, column)) for column in zip(*each, strict=True)][:columns]
    sides = "<>><<"  # the medians stand to the right
    lines = [
        "  ".join(f"{part:{side}{w}}" for part, side, w in zip(one, sides, widths, strict=False))
        for one in each
    ]
    out.print(Text(f"    {lines[0]}", style="dim"), soft_wrap=True)
    for cell in dict.fromkeys(row.cell for row in found.rows):
        told = [one for one in zip(found.rows, lines[1:], strict=True) if one[0].cell == cell]
        a_n, b_n = max(row.a_n for row, _ in told), max(row.b_n for row, _ in told)
        runs = (f"  {a_n} and {b_n} runs", "dim")
        out.print(Text.assemble("  ", (cell, "bold"), runs), soft_wrap=True)
        for row, line in told:
            verdict = (sign_words(row), STYLES[row.answer])
            out.print(Text.assemble(f"    {line}  ", verdict), no_wrap=True, overflow="ellipsis")


def sign_words(row: MetricRow) -> str:
    """`≠ worse`, `= same` or `? 11 more runs`."""
    from nodrop.results.trial import SIGNS

    if row.answer == "different":
        return f"{SIGNS['different'][0]} {'worse' if row.worse else 'better'}"
    if row.answer == "same":
        return SIGNS["same"]
    why = "one side has none" if None in (row.a_median, row.b_median) else "too spread"
    why = count_of(row.more_runs, "more run") if row.more_runs else why
    return f"{SIGNS['unknown'][0]} {why}"


def in_a_row(row: MetricRow) -> str:
    """The difference in margins, from -3 to 3: `        ::::::-?--       `."""
    from nodrop.compare.versus import in_margins

    at = in_margins(row)
    if at is None or not row.margin_size:
        return ""
    half = REACH * STEPS
    signs = [":" if abs(n - half) <= STEPS else " " for n in range(2 * half + 1)]

    def place(margins: float) -> int:
        return max(0, min(2 * half, round(half + margins * STEPS)))

    if row.interval:
        low, high = (place(end / row.margin_size) for end in row.interval)
        signs[low : high + 1] = "-" * (high + 1 - low)
    mark = {"same": "=", "cannot tell": "?"}.get(row.answer, "v" if row.worse else "^")
    signs[place(at)] = mark if abs(at) <= REACH else "<" if at < 0 else ">"
    return "".join(signs)


AB_MADE_OF = Path("nodrop ab")
"""Name that errors blame: there is no file."""
BUILD = "Binary, image, or key=value of the experiment such as sut.threads=2. Repeatable."
LEAST_PAIRS, MOST_PAIRS = 12, 10_000
Build = Annotated[list[str], typer.Option(metavar="BUILD", help=BUILD, show_default=False)]


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
    load: Annotated[
        str | None,
        typer.Option(
            "--load",
            metavar="LOAD",
            help="Load of both, such as 4X or 20000pps; without it a short search finds one near "
            "where A begins to lose.",
        ),
    ] = None,
    window: Window = None,
    metrics: Metrics = None,
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Most trials of each build.")
    ] = 80,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="Time after which no trial begins, such as 90s or 10m."
        ),
    ] = None,
    markdown: Markdown = False,
    junit: Junit = None,
    page: Page = None,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> int:
    """Measure two builds in turns until each metric is different or the same, or one is worse.

    \b
    nodrop ab my.pcap --a ./old/suricata --b ./new/suricata --budget 20m
    nodrop ab my.pcap --a sut.threads=1 --b sut.threads=2 --metric loss_pct
    nodrop ab my.pcap --a suricata:7 --b suricata:8 --load 4X --window busiest

    Exit code 0: B is the same or better; 5: worse in some metric; 6: cannot tell within --most or
    --budget; 1: a build has no trial that is not void; 2: bad input; 3: the lab failed.
    """
    from nodrop.compare.near_limit import given_load, kept_load, names_its_load
    from nodrop.config.asked import AbQuestion, UserSensor
    from nodrop.config.lab_file import load_lab
    from nodrop.config.replay import BUSIEST
    from nodrop.measure.busy import budget_words
    from nodrop.measure.controllers.blocks import UntilTold
    from nodrop.measure.plan import make_plan
    from nodrop.remote.dispatch import measuring
    from nodrop.report.story import read_story
    from nodrop.report.trust import decoder_words, sensor_words
    from nodrop.report.write import write_report
    from nodrop.terminal.progress import shown

    _must_be_pairs(most)
    one_way(as_json=as_json, markdown=markdown)
    _must_be_metrics(metrics or [])
    sensor = UserSensor(config=config, binary=binary, image=image, threads=threads)
    question = AbQuestion(
        a=a, b=b, trace=trace, rules=rules or (), setup=setup, sut=sut, sensor=sensor, most=most,
        window=window or BUSIEST, load={} if load is None else given_load(load),
    )  # fmt: skip
    if resume:
        question = replace(question, load=kept_load(out) or question.load)
    asked = _experiment(question, settings or [])
    where = load_lab(lab)
    plan = blaming_options(asked, lambda: make_plan(asked))
    seconds = None if budget is None else time_s("--budget", budget)
    _must_hold_a_pair(seconds, plan)
    cells = question.cells(Path.cwd()).named
    measured = measuring(where)  # a normal user's process begins anew here: nothing is said before
    if not resume and not names_its_load(asked, cells):
        near = _near_limit(
            question,
            settings or [],
            cells["a"],
            seconds,
            measured,
            where,
            out,
            quiet=as_json or markdown,
        )
        question = replace(question, load=near.load)
        asked = _experiment(question, settings or [])
        plan = blaming_options(asked, lambda: make_plan(asked))
        seconds = None if seconds is None else seconds - near.took_s
        _must_hold_a_pair(seconds, plan)
    _say_if_too_few(seconds, plan)
    until = UntilTold(
        plan.controller,
        most=most,
        told=lambda done, look: _laid(done, metrics or (), look).verdict != "cannot tell",
        budget_s=seconds,
    )
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
        story = read_story([outcome.directory])
        report = write_report(story)
        if code := _not_judged(outcome.records, budget, report):
            return code
        look = until.look_at_the_end(outcome.records)
        found = _laid(outcome.records, metrics or (), look)
        disturbed = filter(None, [budget_words(outcome.records, None)])
        beside = [*decoder_words(story), *sensor_words(story), *disturbed]
        notes = [*found.notes, *beside, f"report: {report}"]
        found = found.model_copy(update={"notes": notes})
        if seconds and found.verdict == "cannot tell" and len(outcome.records) < 2 * most:
            found.card.to_do.append(going_on(sys.argv[1:], outcome.directory, seconds))
        return answered(found, markdown=markdown, junit=junit, page=page, as_json=as_json)


def _near_limit(
    question: AbQuestion, settings: Sequence[str], first: Mapping[str, Any], budget_s: float | None,
    measured: Measuring, where: LabSource, out: Path, *, quiet: bool,
) -> NearLimit:  # fmt: skip
    from nodrop.compare.near_limit import searched
    from nodrop.measure.plan import make_plan
    from nodrop.terminal.progress import shown

    def measure(experiment: Experiment) -> Sequence[TrialRecord]:
        plan = blaming_options(experiment, lambda: make_plan(experiment))
        with shown(quiet=quiet, as_json=False) as progress:
            outcome = measured(
                experiment, where, out=out, resume=False, progress=progress, plan=plan
            )
        return outcome.records

    near = searched(question.search, settings, first, budget_s, measure)
    complain(near.words)
    return near


def _say_if_too_few(budget_s: float | None, plan: Plan) -> None:
    from nodrop.answer.finding import worded
    from nodrop.measure.controllers.blocks import LOOKS

    if budget_s is None or plan.load_s is None:
        return
    pair_s = (plan.load_s + plan.around_s) / plan.repetitions
    fits = int(budget_s / pair_s)
    if fits < LOOKS[0]:
        values = {"fits": fits, "needed": LOOKS[0], "enough_s": 1.2 * LOOKS[0] * pair_s}
        complain(worded("ab_budget.few", budget_s=budget_s, **values))


def going_on(argv: Sequence[str], run: Path, budget_s: float) -> str:
    """The command that goes on with it for as long again."""
    from nodrop.config.asked import resumed_command

    given = [
        word
        for before, word in pairwise(["", *resumed_command(argv, run)])
        if "--budget" not in (before, word) and not word.startswith("--budget=")
    ]
    return f"Go on: {shlex.join(['nodrop', *given, '--budget', f'{2 * budget_s:g}s'])}"


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
    from nodrop.compare.sides import FAILED, metrics_known

    known = [*(figure.name for figure in metrics_known()), FAILED]
    for name in names:
        if name not in known:
            raise BadInput(f"--metric {name}: allowed are {', '.join(known)}")


def _experiment(question: AbQuestion, settings: Sequence[str]) -> Experiment:
    from nodrop.config.experiment import asked_experiment
    from nodrop.config.options import to_toml

    here = Path.cwd()
    table, cells = question.table(here), question.cells(here)
    asked = asked_experiment(table, settings, path=AB_MADE_OF)
    if asked.matrix or asked.measure.mode != "blocks" or asked.measure.repetitions != question.most:
        raise BadInput("nodrop ab: its two builds, order and repetitions are its own; see --most")
    # Put in here: a matrix may not name one cell twice, and A against A is a fair question.
    text = to_toml({**table, "matrix": {"cells": cells.named}})
    return replace(asked, matrix=cells, text=text)


def _not_judged(records: Sequence[TrialRecord], budget: str | None, page: Path) -> int:
    """The exit code if a build has no trial that is not void, which is then said; 0 if both do."""
    judged = {record.cell["cell"] for record in records if record.outcome != "void"}
    lacking = [name for name in "ab" if name not in judged]
    if not lacking:
        return ANSWERED
    if not {record.cell["cell"] for record in records}.issuperset(lacking):
        short = f"--budget {budget} ended before both builds were tried"
        say(f"cannot tell: {short}: see {page}")
        return NO_ANSWER
    say(f"every trial of {' and '.join(lacking)} is void: see {page}")
    return FAULTS_SEEN


def _laid(records: Sequence[TrialRecord], metrics: Sequence[str], look: int) -> Versus:
    from nodrop.compare.sides import side_of_records
    from nodrop.compare.versus import versus

    a, b = (side_of_records(n, [r for r in records if r.cell["cell"] == n]) for n in "ab")
    return versus(
        a,
        b,
        differs=["cell", "setup", "sut", "load", "limits", "measure"],
        metrics=metrics,
        look=look,
    )


BLOCKS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"
"""Digits in the place of blocks, for pipes and for terminals that say they have no UTF-8."""


def history(
    runs: RunDirectories,
    differs: Annotated[
        list[str] | None,
        typer.Option(
            "--differs", metavar="KEY", help="A fact in which runs may differ. Repeatable."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Look only at this metric. Repeatable."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            help="Write a page with pictures.",
            callback=written_anew("page of nodrop history", b"<title>nodrop history</title>"),
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Follow a metric over many runs: where it changed, what changed with it, whether it got worse.

    \b
    nodrop history results/nightly-*
    nodrop history results/nightly-* --metric loss_pct --page history.html

    A folder stands for all runs in it.

    Exit code 0: in no metric are the newest runs worse than the best stretch; 5: in some metric
    they are; 6: cannot tell, because of too few runs or too wide a spread; 2: the runs are of
    different kinds, or bad input.
    """
    from nodrop.compare.history import change_words, read_run
    from nodrop.compare.history import history as laid_out
    from nodrop.compare.page import history_page
    from nodrop.results.rundir import run_directories

    found = laid_out(
        [read_run(path) for path in run_directories(runs)],
        differs=differs or (),
        metrics=metrics or (),
    )
    if page is not None:
        write_anew(page, history_page(found).encode())
    if as_json:
        say_json(found.model_dump())
        return found.exit_code
    for words in _runs(found):
        say(words)
    for line in found.lines:
        say()
        say(f"{line.cell} · {line.metric}: {line.words}")
        say(f"  {drawn(line)}")
        for words in change_words(found, line):
            say(f"  {words}")
    say()
    for words in found.notes:
        say(words)
    if page is not None:
        say(f"page: {page}")
    return found.exit_code


def _runs(found: History) -> Iterator[str]:
    first, last = found.runs[0], found.runs[-1]
    yield (
        f"{count_of(len(found.runs), 'run')}: {found.verdict}; {first.name} ({first.started_utc}) "
        f"to {last.name} ({last.started_utc})"
    )
    for run in found.runs:
        if run.changed:
            yield f"  {run.name}: {', '.join(run.changed)}"


def drawn(line: Line) -> str:
    """A sign per run: the higher, the more; × has no value; | is a change."""
    from nodrop.compare.versus import figure_named
    from nodrop.terminal.console import console, speaks_unicode

    unicode = speaks_unicode(console())
    signs, nothing = (BLOCKS, "×") if unicode else (DIGITS, "x")
    values = [point.median for point in line.points if point.median is not None]
    if not values:
        return f"{nothing * len(line.points)}  no run has a value"
    low, high = min(values), max(values)
    places = {change.run for change in line.changes}
    said = ""
    for place, point in enumerate(line.points):
        said += "|" if place in places else ""
        if point.median is None:
            said += nothing
        else:
            part = (point.median - low) / (high - low) if high > low else 0.0
            said += signs[round(part * (len(signs) - 1))]
    figure = figure_named(line.metric)
    return f"{said}  lowest {figure.shown(low)}, highest {figure.shown(high)} {line.unit}".rstrip()
