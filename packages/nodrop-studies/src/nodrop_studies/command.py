"""`nodrop import`: published data sets as run directories, tables and checks."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.terminal.arguments import AsJson, say, say_json
from nodrop.untrusted.json_text import one_line

if TYPE_CHECKING:
    from nodrop_studies.samples import Skip


class Mode(StrEnum):
    PAPER = "paper"
    SOUND = "sound"


class TableName(StrEnum):
    II = "II"
    III = "III"
    IV = "IV"
    V = "V"
    VI = "VI"
    FIG7 = "fig7"
    FIG8 = "fig8"
    SNORTLOG = "snortlog"


Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Folder of the published data.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="RUNDIR", help="Write a run directory (must not exist)."),
]
Check = Annotated[
    Path | None,
    typer.Option("--check", metavar="FILE", help="Evaluate every recipe of an expected.json."),
]
Table = Annotated[
    TableName | None,
    typer.Option("--table", help="Print one table or figure of the studies.", case_sensitive=False),
]
ModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        help="paper: the authors' arithmetic. sound: one figure per run while its traffic flowed, "
        "then the median over runs.",
    ),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="LO:HI",
        help="Uptimes in seconds, ends included, instead of the default window.",
    ),
]


def add_to(app: typer.Typer) -> None:
    imports = typer.Typer(
        name="import",
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Import published data sets.",
    )
    imports.command("cs590")(cs590)
    # A group of its own even with one command: `nodrop import cs590 DIR`.
    imports.callback()(lambda: None)
    app.add_typer(imports)


def cs590(
    folder: Folder,
    out: Out = None,
    table: Table = None,
    check: Check = None,
    mode: ModeOption = Mode.SOUND,
    window: WindowOption = None,
    as_json: AsJson = False,
) -> None:
    """Import the 2016 studies' data (workbooks or raw logs), print its tables, check its figures.

    Give exactly one of --out, --table and --check.

    \b
    nodrop import cs590 cs590-nfv --out results/published
    nodrop import cs590 cs590-nfv --table IV --mode paper
    """
    if sum(choice is not None for choice in (out, table, check)) != 1:
        raise BadInput(
            "import cs590: exactly one of --out, --table and --check is needed",
            hint="--out RUNDIR imports, --table III prints, --check expected.json checks",
        )
    span = None if window is None else _window(window)
    if check is not None:
        _check(folder, check, as_json)
    elif table is not None:
        _table(folder, table, mode, span, as_json)
    elif out is not None:
        _import(folder, out, mode, span, as_json)


def _window(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        span = float(low), float(high)
    except ValueError:
        span = (1.0, 0.0)
    if not colon or not span[0] <= span[1]:
        raise BadInput(
            f"--window {text}: not two uptimes in seconds, the smaller first", hint="like 16:308"
        )
    return span


def _check(folder: Path, file: Path, as_json: bool) -> None:
    from nodrop.terminal.console import console, print_table
    from nodrop_studies.check import check, check_json, check_table, check_words, read_entries
    from nodrop_studies.importer import skipped_json

    if not folder.is_dir():
        raise BadInput(f"{folder}: not a folder", hint="give the folder of the published data set")
    beside = folder / file
    checked = check(read_entries(file if file.exists() or not beside.exists() else beside), folder)
    if as_json:
        say_json({**check_json(checked), "skipped": skipped_json(checked.skips)})
    else:
        out = console()
        print_table(out, check_table(checked.outcomes), names=1)
        for line in check_words(checked.outcomes):
            out.print(line, markup=False, soft_wrap=True)
        _say_skips(checked.skips)
    if not all(outcome.hit for outcome in checked.outcomes):
        raise typer.Exit(1)


def _table(
    folder: Path, name: TableName, mode: Mode, window: tuple[float, float] | None, as_json: bool
) -> None:
    from nodrop.terminal.console import console, print_table
    from nodrop_studies.check import figure_table
    from nodrop_studies.dataset import discover
    from nodrop_studies.importer import skipped_json
    from nodrop_studies.paper_tables import TABLES, make_table

    dataset = discover(folder)
    spec = TABLES[name]
    cells, results = make_table(spec, dataset.cells, mode=mode.value, window=window)
    skips = [*dataset.skips, *(skip for result in results for skip in result.skips)]
    if as_json:
        content = {
            "table": spec.name,
            "title": spec.title,
            "mode": mode.value,
            "cells": [cell.as_json() for cell in cells],
            "skipped": skipped_json(skips),
        }
        say_json(content)
    elif cells:
        print_table(console(), *figure_table(spec, cells))
        _say_skips(skips)
    if not cells:
        raise BadInput(
            f"{folder}: no workbook of table {spec.name} ({spec.title})",
            hint="the folder holds another part of the data set",
        )


def _import(
    folder: Path, out: Path, mode: Mode, window: tuple[float, float] | None, as_json: bool
) -> None:
    from nodrop.answer.finding import render
    from nodrop.findings.observations import suspicion_json
    from nodrop_studies.importer import import_dataset, skipped_json

    done = import_dataset(folder, out, mode=mode.value, window=window)
    if as_json:
        content = {
            "run_directory": str(done.path),
            "cells": done.cells,
            "runs": done.runs,
            "findings": [suspicion_json(finding) for finding in done.findings],
            "skipped": skipped_json(done.skips),
        }
        say_json(content)
        return
    say(f"{count_of(done.runs, 'run')} in {count_of(done.cells, 'cell')}")
    for finding in done.findings:
        say(f"{finding.values['severity']}: {render(finding, 'title')} [{finding.code}]")
    _say_skips(done.skips)
    say(done.path)


def _say_skips(skips: Iterable[Skip]) -> None:
    """One line per reason on stderr, with the first place where it was met."""
    from nodrop_studies.importer import skipped_json

    for entry in skipped_json(skips):
        first = one_line(entry["first"])
        typer.echo(f"skipped: {entry['count']} x {entry['reason']} (first: {first})", err=True)
