"""Writing a report: the page; its tables as csv, markdown and LaTeX; its figures as SVG and csv."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from nodrop.report.answer import answer
from nodrop.report.comparison import comparison_table
from nodrop.report.escape import markdown
from nodrop.report.figure_files import figure_files
from nodrop.report.figures import cells_table, ledger_table, trials_table
from nodrop.report.page import page
from nodrop.report.published import published_files
from nodrop.report.setups import conditions
from nodrop.report.setups_section import SetupsSection, setups_section, setups_tables
from nodrop.report.story import Story, read_story
from nodrop.report.tables import Table, to_csv, to_latex, to_markdown
from nodrop.report.trust import findings


class Part(StrEnum):
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"
    FIGURES = "figures"


EVERYTHING = frozenset(Part)


def write_report(
    run_dirs: Sequence[Path], out: Path, *, only: Collection[Part] = EVERYTHING
) -> Path:
    """Writes the report into the folder `out` and returns the path of its page, or of the folder
    where `only` leaves the page out.

    The same run directories give the same bytes. BadInput where one is no run directory.
    """
    story = read_story(run_dirs)
    out.mkdir(parents=True, exist_ok=True)
    cells, trials = cells_table(story), trials_table(story)
    setups = setups_section(story)
    if Part.CSV in only:
        others = (*setups_tables(setups), *published_files(story))
        for table in (cells, trials, ledger_table(story), *others):
            _write_csv(out, table.name, table)
    if Part.LATEX in only:
        for table in (cells, trials):
            (out / f"{table.name}.tex").write_text(to_latex(table), encoding="utf-8")
    if Part.MARKDOWN in only:
        (out / "report.md").write_text(markdown_report(story, setups), encoding="utf-8")
    if Part.FIGURES in only:
        _write_figures(out / "figures", story, setups)
    if Part.HTML not in only:
        return out
    index = out / "index.html"
    index.write_text(page(story, setups), encoding="utf-8")
    return index


def _write_csv(folder: Path, name: str, table: Table) -> None:
    # newline="": RFC 4180 lines end as the writer ended them
    (folder / f"{name}.csv").write_text(to_csv(table), encoding="utf-8", newline="")


def _write_figures(folder: Path, story: Story, setups: SetupsSection | None) -> None:
    folder.mkdir(exist_ok=True)
    for figure in figure_files(story, setups):
        (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        _write_csv(folder, figure.name, figure.table)


def markdown_report(story: Story, setups: SetupsSection | None) -> str:
    """The answer and the tables, for a wiki or a pull request."""
    found = answer(story)
    parts = ["# Answer", *(markdown(s.text, longest=2000) for s in found.sentences)]
    if found.rests_on:
        parts += ["It rests on:", _list(found.rests_on)]
    if found.cannot_say:
        parts += ["It cannot say:", _list(found.cannot_say)]
    parts += ["## Cells", to_markdown(cells_table(story))]
    for table in (*setups_tables(setups), *published_files(story)):
        parts += [f"## {markdown(table.title)}", to_markdown(table)]
    parts += ["## Trials", to_markdown(trials_table(story))]
    return "\n\n".join(parts)


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {markdown(item)}" for item in items)


def report_json(run_dirs: Sequence[Path]) -> dict[str, Any]:
    """The answer, cells and findings, for a machine. Numbers are raw, None = not measured."""
    story = read_story(run_dirs)
    cells = _objects(cells_table(story))
    return {
        "answer": asdict(answer(story)),
        "cells": [
            {
                "run_directory": story.sources[cell.source].name,
                "factors": dict(cell.factors),
                **figures,
            }
            for cell, figures in zip(story.cells, cells, strict=True)
        ],
        "setups": _objects(comparison_table(conditions(story))),
        "findings": [
            {"good": f.good, "words": f.words, "runs": [t.record.run for t in f.trials]}
            for f in findings(story)
        ],
    }


def _objects(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, (v.raw for v in row.values), strict=True)) for row in table.rows]
