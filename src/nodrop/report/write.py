"""Writing a report: its page, tables and figures; and the page of a folder of runs, a line each."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodrop.capacity.answer_cards import cards, given_cards
from nodrop.capacity.card import card_lines, lost_words
from nodrop.capacity.section import capacity_pictures, capacity_tables
from nodrop.errors import REMEDIES, BadInput
from nodrop.report import escape, figures
from nodrop.report.answer import answer
from nodrop.report.charts import flow, loss_plot, runs_plot, time_chart
from nodrop.report.comparison import comparison_table
from nodrop.report.escape import markdown
from nodrop.report.page import page
from nodrop.report.repeats import outliers_table, outlying, repeats, repeats_table
from nodrop.report.sections import (
    Picture,
    framed,
    objects,
    resource,
    sections,
    sections_of_others,
    verdicts,
)
from nodrop.report.sentences import Sentence
from nodrop.report.setups import conditions
from nodrop.report.story import Story, read_story
from nodrop.report.tables import Table, to_latex, to_markdown, without, write_csv
from nodrop.report.timeline import numbers_of, timeline
from nodrop.report.trials import Trial
from nodrop.report.trust import findings
from nodrop.results.layout import PAGE
from nodrop.untrusted.folder import Folder

MOST_CELLS = 60
"""Largest number of cells whose typical trial is drawn."""


def figure_files(story: Story) -> Iterator[Picture]:
    """Loss, every run, setups; flow and time chart of each cell's typical trial."""
    for pictures in (_own_pictures, *(section.pictures for section in sections())):
        yield from (one for one in pictures(story) if one.chart)


def _own_pictures(story: Story) -> Iterator[Picture]:
    planned = [cell for cell in story.cells if not cell.searched]
    yield Picture("loss", loss_plot(planned), figures.trials_table(story))
    yield from capacity_pictures(story)
    repeated = repeats(story)
    yield Picture("repeats", runs_plot(repeated), repeats_table(repeated))
    for cell in story.cells[:MOST_CELLS]:
        yield from _of_typical(story, cell.typical)


def _of_typical(story: Story, trial: Trial) -> Iterator[Picture]:
    # Run names are safe as file names: the trial record allows no other.
    name = f"{trial.source}-{trial.name}" if story.several else trial.name
    if ledger := trial.ledger:
        books = figures.ledger_table(replace(story, trials=(trial,)))
        table = without(books, ("run_directory", "run"))
        yield Picture(f"flow-{name}", flow(ledger, f"Packet flow of {trial.name}"), table)
    if found := timeline(story.sources[trial.source], trial):
        drawn = time_chart([found], f"{trial.name} over time")
        yield Picture(f"time-{name}", drawn, numbers_of({trial.name: found}))


class Part(StrEnum):
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"
    FIGURES = "figures"


EVERYTHING = frozenset(Part)


def write_report(
    story: Story, out: Path | None = None, *, only: Collection[Part] = EVERYTHING
) -> Path:
    """Writes the report into the folder `out` (none: `report` in the first run directory) and
    returns the path of its page, or of the folder if `only` leaves the page out.

    The same run directories give the same bytes.
    """
    folder = _made(story.sources[0].run.path, out)
    cells = figures.cells_table(story)
    if Part.CSV in only:
        whole = figures.trials_table(story), figures.ledger_table(story)
        for table in (cells, *whole, *_own_tables(story)):
            _write_csv(folder, table.name, table)
    if Part.LATEX in only:
        for table in (figures.cells_page_table(story), figures.trials_page_table(story)):
            _write(folder, f"{table.name}.tex", to_latex(table))
    if Part.MARKDOWN in only:
        _write(folder, "report.md", markdown_report(story))
    if Part.FIGURES in only:
        drawn, style = folder.folder("figures"), resource("chart.css")
        with _into(drawn):
            drawn.make(exist_ok=True)
        for picture in figure_files(story):
            _write(drawn, f"{picture.name}.svg", picture.chart.saved(style))
            _write_csv(drawn, picture.name, picture.table)
    if Part.HTML not in only:
        return folder.path
    _write(folder, PAGE, page(story))
    return folder.path / PAGE


def _made(run_dir: Path, out: Path | None) -> Folder:
    """A run directory may be anybody's: no link in it leads a report out of it."""
    if out is None:
        folder = Folder(run_dir).folder("report")
        make = partial(folder.make, exist_ok=True)
    else:
        folder = Folder(out)
        make = partial(out.mkdir, parents=True, exist_ok=True)
    try:
        make()
    except OSError as error:
        is_link = folder.path.is_symlink() and out is None
        why = "is a link, which is not followed" if is_link else error.strerror or str(error)
        hint = "give --out" if out is None else "give another --out"
        raise BadInput(f"{folder.path}: {why}", hint=hint) from None
    return folder


@contextmanager
def _into(folder: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = REMEDIES.get(error.errno or 0, "give another --out")
        raise BadInput(f"{folder.path}: {error.strerror or error}", hint=hint) from None


def _write(folder: Folder, name: str, text: str) -> None:
    with _into(folder):
        folder.write(name, text.encode(), durable=False)


def _write_csv(folder: Folder, name: str, table: Table) -> None:
    with _into(folder), folder.writing(f"{name}.csv", durable=False) as file:
        write_csv(table, file)


def markdown_report(story: Story) -> str:
    """The answer and the tables, for a wiki or a pull request."""

    def listed(sentences: Sequence[Sentence]) -> str:
        return "\n".join(f"- {markdown(sentence.text)}" for sentence in sentences)

    found = answer(story)
    drawn = []
    for card in (*cards(story), *given_cards(story)):
        head = f"| {markdown(card.subject)} | |", "| :-- | :-- |"
        lines = ((markdown(key), markdown(said, longest=1000)) for key, said in card_lines(card))
        drawn.append("\n".join((*head, *(f"| {key} | {said} |" for key, said in lines))))
    told = []
    for one in found.sentences:
        told += [one.text, f"What to do: {one.to_do}."] if one.to_do else [one.text]
    told = [markdown(said, longest=2000) for said in told]
    # Several cells are compared first.
    parts = ["# Answer", *(drawn + told if len(drawn) == 1 else told + drawn)]
    if found.rests_on:
        parts += ["It rests on:", listed(found.rests_on)]
    if found.cannot_say:
        parts += ["It cannot say:", listed(found.cannot_say)]
    parts += ["## Cells", to_markdown(figures.cells_page_table(story))]
    for table in _own_tables(story):
        parts += [f"## {markdown(table.title)}", to_markdown(table)]
    parts += ["## Trials", to_markdown(figures.trials_page_table(story))]
    return "\n\n".join(parts)


def _own_tables(story: Story) -> Sequence[Table]:
    """Tables of sections that not every report has."""
    apart = outlying(story)
    return (
        *capacity_tables(story),
        *figures.detection_tables(story),
        *([outliers_table(apart)] if apart else []),
        *(table for section in sections() for table in section.tables(story)),
    )


def report_json(story: Story) -> dict[str, Any]:
    """The answer, cells and findings, for a machine: each sentence with its rule, its evidence and
    its trials. Numbers are raw, None = not measured."""
    found = answer(story)

    def told(sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
        return [sentence.as_json(story) for sentence in sentences]

    rows = zip(story.cells, objects(figures.cells_table(story)), strict=True)
    return {
        "answer": {
            part: told(getattr(found, part)) for part in ("sentences", "rests_on", "cannot_say")
        },
        "cells": [
            {"run_directory": story.sources[c.source].name, "factors": dict(c.factors), **row}
            for c, row in rows
        ],
        "cards": [card.model_dump(mode="json") for card in (*cards(story), *given_cards(story))],
        "setups": objects(comparison_table(conditions(story))),
        "findings": told(findings(story)),
        **{one.id: one.as_json(story) for one in sections_of_others()},
    }


MOST_RUNS = 500
WIDTH = 150
"""px, a line's picture."""


def write_folder_page(folder: Path, runs: Sequence[Path], out: Path | None) -> Path:
    """Writes the page into `out` (none: the folder itself) and returns its path."""
    where = out or folder
    lines = [_run_line(run, where) for run in runs[-MOST_RUNS:]]
    ends = [pps for line in lines for pps in (line["carried_pps"], line["too_much_pps"]) if pps]
    low, high = (min(ends), max(ends)) if ends else (1.0, 10.0)
    for line in lines:
        for end in ("carried", "too_much"):
            # Place on a tenfold axis from the least to the most of all runs.
            pps = line[f"{end}_pps"]
            part = 0.5 if high <= low or not pps else math.log(pps / low) / math.log(high / low)
            line[f"{end}_px"] = round(8 + part * (WIDTH - 16), 1) if pps else None
    html = framed(
        "folder.html.j2", skip=("runs", "To the runs"),
        title=escape.plain(folder.resolve().name, longest=120),
        lines=lines, left_out=len(runs) - len(lines), width=WIDTH, low=low, high=high,
    )  # fmt: skip
    _write(_made(folder, where), PAGE, html)
    return where / PAGE


def _run_line(run: Path, where: Path) -> dict[str, Any]:
    """`link`: to its report; empty if there is none yet. `card`: None if it has several cells, or
    none that says anything."""
    story = read_story([run])
    (source,) = story.sources
    found = (*cards(story), *given_cards(story))
    told = verdicts(story)
    card = found[0] if len(found) == 1 else None
    answer = told[0].headline if told else f"{len(found)} cells" if found else "No trial."
    report = os.path.relpath(run.resolve() / "report" / PAGE, where.resolve())
    begun = escape.plain(source.run.manifest.get("started_utc") or "")[:16]
    return {
        "name": source.name,
        "link": quote(report) if Folder(run).folder("report").is_there(PAGE) else "",
        "begun": begun.replace("T", escape.THIN),
        "sut": escape.plain(", ".join(source.sut_names), longest=60),
        "trials": len(story.trials),
        "card": card,
        "answer": card.breaks.verdict if card else answer,
        "lost": lost_words(card) if card else "",
        "carried_pps": card.carried.pps if card and card.carried else None,
        "too_much_pps": card.too_much.pps if card and card.too_much else None,
    }
