"""Commands that lay runs against each other: compare, and baseline, which stores a side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.cli.arguments import AsJson, RunDirectory, writable, write_anew, written_anew
from nodrop.cli.saying import complain, say, say_json
from nodrop.cli.stores import MARK, run_directory
from nodrop.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from nodrop.results.versus import Versus

Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Compare this alone. Repeatable."),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print it for a pull request.")]
Junit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Write JUnit XML as well.",
        callback=written_anew("JUnit XML of nodrop's", b'<testsuite name="nodrop'),
    ),
]
SIDE = "Run directory, DIR::key=value,… for cells inside it, or a baseline file."


def _side(text: str) -> str:
    """A side as it was asked for; a run directory in a store is replaced by its copy."""
    if MARK not in text:
        return text
    from nodrop.report.sides import INSIDE

    place, inside, cells = text.partition(INSIDE)
    return f"{run_directory(place)}{inside}{cells}"


def add_to(app: typer.Typer) -> None:
    app.command("compare")(compare)
    app.command("baseline")(baseline)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", parser=_side, help=SIDE, show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", parser=_side, help=SIDE, show_default=False)],
    differs: Annotated[
        list[str] | None,
        typer.Option("--differs", metavar="KEY", help="This may differ: the point. Repeatable."),
    ] = None,
    metrics: Metrics = None,
    markdown: Markdown = False,
    junit: Junit = None,
    as_json: AsJson = False,
) -> int:
    """B against A, per metric: different, the same within a margin, or cannot tell yet.

    \b
    nodrop compare before/my-* after/my-* --differs sut
    nodrop compare base.json results/capacity-my-20261126T101500Z

    Exit code 0: same or better; 5: worse in some metric; 6: cannot tell yet, or a cell is on one
    side alone; 2: they may not be compared, or bad input.
    """
    from nodrop.report.facts import must_be_facts
    from nodrop.report.sides import read_side
    from nodrop.report.versus import versus

    one_way(as_json=as_json, markdown=markdown)
    sides = read_side(a), read_side(b)
    must_be_facts(differs or (), sides)
    found = versus(*sides, differs=differs or (), metrics=metrics or ())
    return answered(found, markdown=markdown, junit=junit, as_json=as_json)


def one_way(*, as_json: bool, markdown: bool) -> None:
    if as_json and markdown:
        raise BadInput("--json and --markdown: only one of them can be printed")


def answered(found: Versus, *, markdown: bool, junit: Path | None, as_json: bool) -> int:
    """Prints it in the way that is asked for, and returns its exit code."""
    from nodrop.cli.terminal import console
    from nodrop.report.versus_files import to_junit, to_markdown, unusual_words

    if junit is not None:
        write_anew(junit, to_junit(found))
    if as_json:
        say_json(found.model_dump())
    elif markdown:
        for line in to_markdown(found).splitlines():
            say(line)
    else:
        console().print(_table(found))
        for words in (*found.missing, *found.differs, *found.notes, *unusual_words(found)):
            say(words)
        say(f"{found.b} against {found.a}: {found.verdict}")
    return found.exit_code


def baseline(
    run: RunDirectory,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written anew.", callback=writable)],
) -> None:
    """Store what a run measured in one small file, for `nodrop compare FILE B`.

    \b
    nodrop baseline results/capacity-my-20261126T101500Z base.json
    """
    from nodrop.report.sides import read_side
    from nodrop.results.lock import is_written

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
    """If it is there: a trace or an experiment in this place is a slip, and would be lost."""
    from nodrop.results.side import Side

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

    from nodrop.report.versus import shown

    table = Table(box=None, pad_edge=False)
    for name in ("cell", "metric", "A, median", "B, median", "verdict", "n"):
        table.add_column(name, overflow="fold")
    for row in found.rows:
        medians = shown(row, row.a_median), shown(row, row.b_median)
        table.add_row(row.cell, row.metric, *medians, row.words, f"{row.a_n} and {row.b_n}")
    return table
