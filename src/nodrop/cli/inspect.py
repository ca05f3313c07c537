"""Commands that look at files and touch no host: plan, report, export, plugins, watch."""

from __future__ import annotations

import os
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.exit_codes import LAB_FAILED
from nodrop.results.layout import WrittenPart
from nodrop.results.store import before_anything
from nodrop.terminal.arguments import (
    AsJson,
    ExperimentFile,
    FleetFile,
    LabName,
    RunDirectories,
    Settings,
    TolerateTruncated,
    Yes,
    all_settings,
    complain,
    run_directory,
    say,
    say_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from nodrop.compare.versus import Detectable
    from nodrop.watch.follow import RunFollower, View


LOOK_S = 0.5
MOST_PORT = 65535


def watch(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Run directories, or folders of them: the newest run is followed.",
        ),
    ],
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve a read-only page on loopback, and print its address."),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", help="Port of the page, up to 65535; 0 = any free one."
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Follow a run from another terminal until it is over. Ctrl-C does not touch the run.

    \b
    nodrop watch results/capacity-my-20261126T101500Z
    nodrop watch results --serve --port 8080
    """
    from nodrop.results.layout import MANIFEST
    from nodrop.results.rundir import run_directories
    from nodrop.terminal.console import console
    from nodrop.watch.follow import RunFollower
    from nodrop.watch.serve import serve_page

    if not 0 <= port <= MOST_PORT:
        raise BadInput(f"--port {port}: must be from 0 to {MOST_PORT}")
    runs = [run for run in run_directories(directories) if (run / MANIFEST).is_file()]
    newest = max(runs, key=lambda run: (run / MANIFEST).stat().st_mtime_ns, default=directories[0])
    if [newest] != directories:
        complain(f"the newest run there is {newest.name}")
    follower = RunFollower.of(newest)
    if serve:
        with serve_page(follower, port=port) as page:
            say_json({"address": page.address}) if as_json else say(page.address)
            page.until_over()
    elif as_json:
        _as_json(follower)
    elif console().is_terminal:
        _on_terminal(follower)
    else:
        _plainly(follower)


def _on_terminal(follower: RunFollower) -> None:
    from rich.console import Group
    from rich.live import Live as Display
    from rich.text import Text

    from nodrop.terminal.console import console
    from nodrop.terminal.progress import (
        WIDE,
        bar_line,
        phase_words,
        print_trial,
        reading_line,
        so_far_lines,
    )

    out, longest = console(), 0
    with Display(console=out, auto_refresh=False, transient=True) as display:
        while True:
            view = follower.look()
            longest = max(longest, *(len(trial.row.name) for trial in view.new), 0)
            for number, trial in enumerate(view.new, view.done - len(view.new) + 1):
                print_trial(out, number, trial.row, longest=longest)
            phase = phase_words(view.reading) if view.reading else ""
            if view.reading is None or view.reading.phase != view.phase:
                phase = view.phase or ""
            words = [view.progress, view.left, phase, view.trial or ""]
            line = bar_line(view.done_ratio or 0.0, words, narrow=out.width < WIDE)
            so_far = [*so_far_lines(view.so_far)]
            now = Group(*so_far, line, reading_line(view.reading) or Text(""))
            display.update(now, refresh=True)
            if view.over:
                break
            _pause(view)
    out.print(Group(*so_far))
    out.print(closing_words(view), markup=False)


def _plainly(follower: RunFollower) -> None:
    from nodrop.results.trial import MARKS

    while True:
        view = follower.look()
        for trial in view.new:
            say(f"{MARKS[trial.mark]} {trial.run}: {trial.words}")
        if view.over:
            for key, words in view.so_far.lines() if view.so_far is not None else ():
                say(f"{key}: {words}")
            say(closing_words(view))
            return
        _pause(view)


def _as_json(follower: RunFollower) -> None:
    before: dict[str, Any] = {}
    while True:
        view = follower.look()
        found = asdict(replace(view, ended=()))
        found["ended"] = found.pop("new")
        if found != before:
            say_json(found)
        if view.over:
            return
        before = found
        _pause(view)


def _pause(view: View) -> None:
    """Waits before the next look, unless the run is over and there is more to read. Catching up
    with a run that goes on must not disturb a measurement."""
    if view.goes_on or not view.is_behind:
        time.sleep(LOOK_S)


def closing_words(view: View) -> str:
    if view.finished:
        return f"finished: {view.progress}"
    over = f"no process is writing to this run directory; {view.progress} so far"
    if view.unread_lines:
        lines = f"{count_of(view.unread_lines, 'line')} of trials.jsonl cannot be read"
        return f"{over}, and {lines}: `nodrop report` says why"
    return f"{over}; go on: {view.next_step}"


PARTS = ", ".join(WrittenPart)


def add_to(app: typer.Typer) -> None:
    app.command("plan")(plan)
    app.command("report")(report)
    app.command("export")(export)
    app.command("plugins")(plugins)
    app.command("put")(put)
    app.command("watch")(watch)


def plan(
    experiment: ExperimentFile,
    lab: LabName = None,
    fleet: FleetFile = None,
    settings: Settings = None,
    tolerate_truncated: TolerateTruncated = False,
    yes: Yes = False,
    given: Annotated[
        Path | None,
        typer.Option(
            "--given",
            metavar="EARLIER_RUN",
            parser=run_directory,
            help="Say which differences this plan would likely show, if its cells spread like "
            "those of an earlier run.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what `run` would do, in which order and how long, and what it would refuse.

    \b
    nodrop plan my.toml
    nodrop plan my.toml --given results/my-20261126T101500Z

    Exit code 3: something stands in the way of that run here.
    """
    from nodrop.config.experiment import MOST_TRIALS, load_experiment
    from nodrop.config.lab_file import load_lab
    from nodrop.measure.busy import beside_words, quota_words
    from nodrop.measure.plan import independent_runs, make_plan
    from nodrop.remote.dispatch import in_the_way
    from nodrop.terminal.console import (
        cells_to_come,
        console,
        memory_words,
        peak_words,
        plan_table,
        plan_words,
        print_keyed,
        sent_words,
    )

    asked = load_experiment(
        experiment,
        all_settings(settings, tolerate_truncated=tolerate_truncated),
        most_trials=None if yes else MOST_TRIALS,
    )
    made = make_plan(asked)
    if lab is not None and fleet is not None:
        raise BadInput("--lab: not with --fleet, whose file names its labs; leave one of them out")
    here = [] if fleet else in_the_way(load_lab(lab), asked, made)
    made = made.on(os.sched_getaffinity(0))
    if fleet is not None:
        from nodrop.remote.dispatch import fleet_of

        made = fleet_of(fleet).shared(made)
    seen = None
    if given is not None:
        from nodrop.compare.versus import detectable_differences

        cells = [cell.factors for cell in made.cells]
        seen = detectable_differences(cells, independent_runs(asked), given)
    if as_json:
        said = [] if seen is None else [one.to_json() for one in seen]
        say_json(
            made.to_json()
            | {"problems_here": here}
            | ({} if seen is None else {"detectable": said})
        )
        return LAB_FAILED if here else 0
    out = console()
    if asked.question:
        out.print(asked.question, style="bold", markup=False)
    out.print(cells_to_come(made) if out.is_terminal else plan_table(made))
    notes = [*made.notes(), *quota_words(), *beside_words()]
    lines = [("trials", plan_words(made)), *(("sends", words) for words in sent_words(made)),
             ("bursts", peak_words(made)), ("memory", memory_words(made)),
             *(("doubtful", f"{w}; `nodrop run` wants --yes for it") for w in made.implausible),
             *(("problem", words) for words in here),
             *(("note", words) for words in notes)]  # fmt: skip
    if out.is_terminal:
        print_keyed(out, filter(itemgetter(1), lines))
    else:
        for key, words in filter(itemgetter(1), lines):
            begins = {"doubtful": "implausible: ", "problem": "stands in the way: "}.get(key, "")
            out.print(f"{begins}{words}", markup=False)
    if seen is not None:
        out.print(detectable_table(seen))
    return LAB_FAILED if here else 0


def report(
    directories: RunDirectories,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder to write to. Default: report/ in the first run directory.",
        ),
    ] = None,
    only: Annotated[
        list[WrittenPart] | None,
        typer.Option("--only", metavar="PART", help=f"Write this alone: {PARTS}. Repeatable."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="NAME,…",
            help="Columns of the LaTeX tables, by their names in csv. Default: the first 8.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of run directories. The last line is its page, or else its folder.

    \b
    nodrop report results/capacity-my-20261126T101500Z --open
    nodrop report results/nightly-* --only csv --out tables
    nodrop report results

    A folder of run directories gets a page with a line for each run. With other directories, or
    for parts other than the page, the folder stands for all its runs.
    """
    from nodrop.report.story import read_story
    from nodrop.report.write import EVERYTHING, report_json, write_folder_page, write_report
    from nodrop.results.rundir import run_directories, runs_in

    alone = len(directories) == 1 and {*(only or ()), WrittenPart.HTML} == {WrittenPart.HTML}
    if alone and (runs := runs_in(directories[0])):
        page = write_folder_page(directories[0], runs, out)
        say_json({"page": str(page)}) if as_json else say(page)
        if show:
            webbrowser.open(page.absolute().as_uri())
        return
    chosen = frozenset(only) if only else EVERYTHING
    runs = run_directories(directories)
    story = read_story(runs)
    named = [name.strip() for each in columns or () for name in each.split(",")]
    page = write_report(story, out, only=chosen, columns=named)
    if as_json:
        say_json({"page": str(page), **report_json(story)})
    else:
        say(page)
    if show:
        webbrowser.open(page.absolute().as_uri())


def export(
    directories: RunDirectories,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="New Parquet file; needs duckdb."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="New CSV file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write every trial as a row of a table for other programs, as Parquet or CSV.

    \b
    nodrop export results/capacity-* --csv trials.csv
    nodrop export results/capacity-my-20261126T101500Z --parquet my.parquet
    """
    from nodrop.results.export import Written, write_csv, write_parquet
    from nodrop.results.rundir import run_directories

    if parquet is None and csv is None:
        raise BadInput("export: --parquet FILE, --csv FILE or both are needed")
    written: dict[Path, Written] = {}
    runs = run_directories(directories)
    if parquet is not None:
        written[parquet] = write_parquet(runs, parquet)
    if csv is not None:
        written[csv] = write_csv(runs, csv)
    for words in next(iter(written.values())).unread:
        complain(f"left out: {words}")
    if as_json:
        say_json([{"file": str(file), **asdict(done)} for file, done in written.items()])
        return
    for file, done in written.items():
        rows = count_of(done.rows, "row")
        say(f"{file}: {rows}, {count_of(len(done.columns), 'column')}")


def plugins(as_json: AsJson = False) -> None:
    """List the setups, SUTs and load generators.

    \b
    nodrop plugins
    nodrop plugins --json
    """
    from nodrop.plugins import plugins as find
    from nodrop.terminal.console import console, plugins_table

    found = find()
    if as_json:
        rows = [
            {"table": p.table, "kind": p.kind, "origin": p.origin, "entry": p.entry.value}
            for p in found
        ]
        say_json(rows)
        return
    console().print(plugins_table(found))


def put(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory on this host.")],
    place: Annotated[
        str, typer.Argument(metavar="URL", help="Folder in a store: s3://bucket/folder.")
    ],
) -> None:
    """Put a run directory into a store. Sends only what the store lacks.

    \b
    nodrop put results/capacity-my-20261126T101500Z s3://lab/runs
    nodrop put results/capacity-my-20261126T101500Z file:///mnt/runs
    """
    from nodrop.results.store import Store, put_run

    store = Store.of(place)
    with before_anything():
        store.must_answer()
    say(put_run(directory, store))


def detectable_table(found: Sequence[Detectable]) -> Table:
    """Table of the smallest difference, roughly, that is shown with a probability of 80 %."""
    from nodrop.ledger.verdict import percent
    from nodrop.terminal.console import cell_words, new_table

    table = new_table("metric", "cell", "earlier runs", "planned", "a difference is likely shown")
    for one in found:
        from_about = f"from about {one.figure.at_least(one.least)}" if one.least else one.why_not
        unit = f" {one.figure.difference_unit}" if one.least else ""
        share = f" ({percent(one.of_median)} of the median)" if one.of_median else ""
        table.add_row(
            one.figure.title,
            cell_words(one.cell),
            str(one.earlier),
            str(one.planned),
            f"{from_about}{unit}{share}",
        )
    return table
