"""The command that lays many runs in a row: history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.cli.arguments import AsJson, RunDirectories, write_anew, written_anew
from nodrop.cli.saying import say, say_json
from nodrop.config.units import count_of

if TYPE_CHECKING:
    from nodrop.results.history import History, Line

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "0123456789"
"""For pipes, and for terminals that say they have no UTF-8."""


def add_to(app: typer.Typer) -> None:
    app.command("history")(history)


def history(
    runs: RunDirectories,
    differs: Annotated[
        list[str] | None,
        typer.Option("--differs", metavar="KEY", help="This may differ as well. Repeatable."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Look at this alone. Repeatable."),
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
    """A metric over many runs: where it changed, what else did, and whether it is worse now.

    \b
    nodrop history results/nightly-*
    nodrop history results/nightly-* --metric loss_pct --page history.html

    Exit code 0: the newest runs of no metric are worse than its best stretch; 5: those of some
    metric are; 6: cannot tell, for too few runs or too wide a spread; 2: the runs cannot stand in
    one line, or bad input.
    """
    from nodrop.report.history import change_words, history_page, read_run
    from nodrop.report.history import history as laid_out

    found = laid_out(
        [read_run(path) for path in runs], differs=differs or (), metrics=metrics or ()
    )
    if page is not None:
        write_anew(page, history_page(found, title="nodrop history").encode())
    if as_json:
        say_json(found.model_dump())
        return found.exit_code
    for words in _runs(found):
        say(words)
    for line in found.lines:
        say()
        say(f"{line.cell} · {line.metric}: {line.words}")
        say(f"  {_drawn(line)}")
        for words in change_words(found, line):
            say(f"  {words}")
    say()
    for words in found.notes:
        say(words)
    if page is not None:
        say(f"page: {page}")
    say(f"{count_of(len(found.runs), 'run')}: {found.verdict}")
    return found.exit_code


def _runs(found: History) -> Iterator[str]:
    first, last = found.runs[0], found.runs[-1]
    yield (
        f"{count_of(len(found.runs), 'run')}, {first.name} ({first.started_utc}) to {last.name} "
        f"({last.started_utc})"
    )
    for run in found.runs:
        if run.changed:
            yield f"  {run.name}: {', '.join(run.changed)}"


def _drawn(line: Line) -> str:
    """A sign per run: the higher, the more; × has no value; | is a change."""
    from nodrop.cli.answer import speaks_unicode
    from nodrop.cli.terminal import console
    from nodrop.report.versus import figure_named

    unicode = speaks_unicode(console())
    signs, nothing = (BLOCKS, "×") if unicode else (ASCII, "x")
    values = [point.median for point in line.points if point.median is not None]
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
