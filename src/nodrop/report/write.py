"""Writing a report: its page, tables and figures; and the page of a folder of runs, a line each."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodrop.answer.finding import Finding, render, sentence_case
from nodrop.capacity.answer_cards import cards, given_cards
from nodrop.capacity.card import card_lines
from nodrop.capacity.findings import rate_words
from nodrop.capacity.page import WORDS, capacity_page, card_views, who
from nodrop.capacity.section import capacity_pictures, capacity_section, capacity_tables
from nodrop.config.options import unknown_key
from nodrop.errors import REMEDIES, BadInput
from nodrop.report import bounded, escape, figures, trust
from nodrop.report.answer import answer
from nodrop.report.chart import OUTCOMES, sign
from nodrop.report.charts import flow, loss_plot, runs_plot, time_chart
from nodrop.report.comparison import (
    MOST_BASES,
    compared,
    comparison_table,
    family_words,
    verdicts_table,
)
from nodrop.report.costs import differences_of
from nodrop.report.escape import markdown, markdown_code
from nodrop.report.repeats import outliers_tables, repeats, repeats_table, repeats_words
from nodrop.report.sections import (
    Picture,
    common,
    environment,
    framed,
    objects,
    resource,
    sections,
    sections_of_others,
    verdicts,
)
from nodrop.report.sentences import Sentence, phrase
from nodrop.report.setups import compared_at_once, conditions
from nodrop.report.story import RunCell, Story, StorySource, read_story
from nodrop.report.tables import Table, on_paper, to_latex, to_markdown, without, write_csv
from nodrop.report.timeline import numbers_of, timeline
from nodrop.report.trials import StoredTrial
from nodrop.results.capacity import Card, CardLoad
from nodrop.results.layout import PAGE, WrittenPart
from nodrop.results.trial import MARKS
from nodrop.untrusted.folder import Folder

MOST_CHARTS, MOST_FIGURES = (60, 12), (100, 20)
"""Trials over time, 17 kB each, and trials drawn, the typical ones first; fewer of a long run."""
MOST_CELLS = 60
"""Largest number of cells whose typical trial is a figure."""


def page(story: Story) -> str:
    repeated = repeats(story)
    capacity, found = capacity_section(story), capacity_page(story)
    long = bounded.is_long(story)
    planned = [cell for cell in story.cells if not cell.searched]
    charts = bounded.leading(story)[: 5 if found else MOST_CHARTS[long]]
    chosen = [section for section in sections() if found is None or section.with_search]
    names = dict.fromkeys(str(s.run.manifest.get("name") or s.name) for s in story.sources)
    return framed(
        "index.html.j2",
        **common(story),
        skip=("answer", "To the answer"),
        setups=bool(conditions(story)),
        own_sections=[html for one in chosen if (html := one.html(story))],
        title=escape.plain(" and ".join(names), longest=120),
        only_watched=not story.trials and answer(story).sentences[0].rule != "no-trial",
        found=found,
        view=capacity.views[0] if capacity else None,
        who=who(story),
        answer=answer(story),
        marks=MARKS,
        views=[*card_views(story)],
        words=WORDS,
        verdicts=verdicts(story),
        signs={mark: sign(shape, style) for mark, (shape, style, _) in OUTCOMES.items()},
        capacity=capacity,
        loss_plot=loss_plot(planned),
        bounded=bounded,
        figures=figures,
        trust=trust,
        differences=_differences(story, planned[: bounded.MOST_ROWS]),
        planned=planned,
        figures_compared=differences_of(story.cells),
        family=family_words(compared_at_once(story), story.cells),
        drawn=_drawn(story, 0 if found else MOST_FIGURES[long]),
        flow=flow,
        phrase=phrase,
        charts=_over_time(story, charts),
        charts_left=len(story.trials) - len(charts),
        elsewhere=_elsewhere(story, charts),
        apart=next(outliers_tables(story), None),
        runs=runs_plot(repeated),
        runs_words=repeats_words(repeated),
        commands=commands,
    )


def commands(source: StorySource) -> str:
    """The command line that made the run, and the one that writes this report; empty if it is
    not recorded."""
    if not source.command:
        return ""
    given = {before: w for before, w in pairwise(source.command) if "://" not in w}
    out = Path(given.get("--record") or given.get("--out") or "results")
    run = out if "--record" in given or out.name == source.name else out / source.name
    return f"{shlex.join(source.command)}\nnodrop report {shlex.quote(str(run))}"


def _differences(story: Story, cells: Sequence[RunCell]) -> Sequence[Sequence[Sequence[str]]]:
    """Base → cell → figure → words. Empty if there is one cell alone."""
    family, figures = compared_at_once(story), differences_of(story.cells)
    bases = cells if len(cells) <= MOST_BASES else cells[:1]
    return [
        [[compared(base, c, f, family).cell_words for f in figures] for c in cells]
        for base in bases if len(cells) > 1
    ]  # fmt: skip


def _over_time(
    story: Story, chosen: Sequence[tuple[RunCell, StoredTrial]]
) -> list[Mapping[str, Any]]:
    found = ((c, t, timeline(story.sources[t.source], t)) for c, t in chosen)
    drawn = ((c, t, time_chart([line], f"{t.name} over time")) for c, t, line in found if line)
    return [
        {"cell": cell, "trial": trial, "chart": chart, "typical": trial is cell.typical}
        for cell, trial, chart in drawn
        if chart
    ]


def _elsewhere(story: Story, chosen: Sequence[tuple[RunCell, StoredTrial]]) -> str:
    """How to fetch samples that are not here."""
    for command in filter(None, (story.sources[t.source].run.elsewhere(t.name) for _, t in chosen)):
        return escape.plain(phrase("elsewhere", command=command), longest=1000)
    return ""


def _drawn(story: Story, most: int) -> frozenset[StoredTrial]:
    """The trials that are drawn, at most `most`: the typical ones first."""
    told = bounded.told(story)
    typical = dict.fromkeys(c.typical for c in story.cells[: bounded.most_told(story)])
    rest = [t for t in story.trials if t.anchor in told and t not in typical]
    return frozenset([*typical, *rest][:most])


def _own_pictures(story: Story) -> Iterator[Picture]:
    """Loss, every run; flow and time chart of each cell's typical trial."""
    planned = [cell for cell in story.cells if not cell.searched]
    yield Picture("loss", loss_plot(planned), figures.trials_table(story))
    yield from capacity_pictures(story)
    repeated = repeats(story)
    yield Picture("repeats", runs_plot(repeated), repeats_table(repeated))
    for cell in story.cells[:MOST_CELLS]:
        yield from _of_typical(story, cell.typical)


def _of_typical(story: Story, trial: StoredTrial) -> Iterator[Picture]:
    # Run names are safe as file names: the trial record allows no other.
    name = f"{trial.source}-{trial.name}" if story.several else trial.name
    if ledger := trial.ledger:
        books = figures.ledger_table(replace(story, trials=(trial,)))
        table = without(books, ("run_directory", "run"))
        yield Picture(f"flow-{name}", flow(ledger, f"Packet flow of {trial.name}"), table)
    if found := timeline(story.sources[trial.source], trial):
        drawn = time_chart([found], f"{trial.name} over time")
        yield Picture(f"time-{name}", drawn, numbers_of({trial.name: found}))


EVERYTHING = frozenset(WrittenPart)


def write_report(
    story: Story,
    out: Path | None = None,
    *,
    only: Collection[WrittenPart] = EVERYTHING,
    columns: Sequence[str] = (),
) -> Path:
    """Writes the report into the folder `out` (none: `report` in the first run directory) and
    returns the path of its page, or of the folder if `only` leaves the page out. `columns`: those
    of the LaTeX tables.

    The same run directories give the same bytes.
    """
    paper = _on_paper(story, columns) if WrittenPart.LATEX in only else ()
    folder = _made(story.sources[0].run.path, out)
    if WrittenPart.CSV in only:
        whole = (figures.cells_table, figures.trials_table, figures.ledger_table)
        for table in (*(made(story) for made in whole), *_own_tables(story)):
            _write_csv(folder, table.name, table)
    for table in paper:
        _write(folder, f"{table.name}.tex", to_latex(table))
    if WrittenPart.MARKDOWN in only:
        _write(folder, "report.md", markdown_report(story))
    if WrittenPart.FIGURES in only:
        drawn, style = folder.folder("figures"), resource("chart.css")
        with _into(drawn):
            drawn.make(exist_ok=True)
        for pictures in (_own_pictures, *(section.pictures for section in sections())):
            for picture in (one for one in pictures(story) if one.chart):
                _write(drawn, f"{picture.name}.svg", picture.chart.saved(style))
                _write_csv(drawn, picture.name, picture.table)
    if WrittenPart.HTML not in only:
        return folder.path
    _write(folder, PAGE, page(story))
    return folder.path / PAGE


TRIAL_ON_PAPER = (
    "run", "cell", "outcome", "offered_packets", "lost_packets", "loss_pct", "loss_place",
    "sut_cpu_s",
)  # fmt: skip


def _on_paper(story: Story, columns: Sequence[str]) -> Sequence[Table]:
    """LaTeX tables: cells, trials and, of several setups, their verdicts. BadInput if none has a
    column that was asked for."""
    setups = conditions(story)
    trials = figures.trials_page_table(story)
    if not {*columns} & {column.name for column in trials.columns}:
        trials = on_paper(trials, TRIAL_ON_PAPER)
    whole = [figures.cells_page_table(story), trials]
    if setups:
        family = family_words(compared_at_once(story), story.cells)
        whole.append(replace(verdicts_table(setups), words=(family,)))
    known = dict.fromkeys(column.name for table in whole for column in table.columns)
    for name in columns:
        if name not in known:
            near = unknown_key(name, list(known))
            raise BadInput(f"--columns: no column {escape.plain(name, longest=60)}{near}")
    return [on_paper(one, columns) for one in whole]


def _made(run_dir: Path, out: Path | None) -> Folder:
    """A run directory may be anybody's: no link in it leads a report out of it."""
    folder = Folder(run_dir).folder("report") if out is None else Folder(out)
    try:
        if out is None:
            folder.make(exist_ok=True)
        else:
            out.mkdir(parents=True, exist_ok=True)
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
    cells, trials = figures.cells_page_table(story), figures.trials_page_table(story)
    own = ((table.title, table) for table in _own_tables(story))
    text = environment("nodrop.report").overlay(autoescape=False).get_template("report.md.j2")
    return text.render(
        cards=(*cards(story), *given_cards(story)), card_lines=card_lines, answer=answer(story),
        md=markdown, md_code=markdown_code, table_of=to_markdown,
        tables=[("Cells", cells), *own, ("Trials", trials)],
    )  # fmt: skip


def _own_tables(story: Story) -> Sequence[Table]:
    """Tables of sections that not every report has."""
    return (
        *capacity_tables(story),
        *figures.detection_tables(story),
        *outliers_tables(story),
        *(table for section in sections() for table in section.tables(story)),
    )


def report_json(story: Story) -> dict[str, Any]:
    """The answer, cells and findings, for a machine: each sentence with its rule, its evidence and
    its trials. Numbers are raw, None = not measured."""
    found = answer(story)

    def told(sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
        return [sentence.as_json(story) for sentence in sentences]

    rows = zip(story.cells, objects(figures.cells_table(story)), strict=True)
    others = {section.id: section.as_json(story) for section in sections_of_others()}
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
        "findings": told(trust.findings(story)),
        **{name: said for name, said in others.items() if any(said.values())},
    }


MOST_RUNS = 500
WIDTH = 150
"""px, a line's picture."""


def write_folder_page(folder: Path, runs: Sequence[Path], out: Path | None) -> Path:
    """Writes the page into `out` (none: the folder itself) and returns its path."""
    where = out or folder
    lines = [_run_line(run, where) for run in runs[-MOST_RUNS:]]
    cards = [line["card"] for line in lines if line["card"]]
    ends = [one.pps for card in cards for one in (card.carried, card.too_much) if one and one.pps]
    low, high = (min(ends), max(ends)) if ends else (1.0, 10.0)

    def px(load: CardLoad | None) -> float | None:
        """Place on a tenfold axis from the least to the most of all runs."""
        if load is None or not load.pps:
            return None
        part = 0.5 if high <= low else math.log(load.pps / low) / math.log(high / low)
        return round(8 + part * (WIDTH - 16), 1)

    html = framed(
        "folder.html.j2", skip=("runs", "To the runs"),
        title=escape.plain(folder.resolve().name, longest=120), px=px,
        lines=lines, left_out=len(runs) - len(lines), width=WIDTH, low=low, high=high,
    )  # fmt: skip
    _write(_made(folder, where), PAGE, html)
    return where / PAGE


def _card_words(card: Card) -> str:
    """Words on what breaks; before them, of a search that was cut short, the load it knows."""
    cut = card.breaks.limited_by in ("budget", "unfinished", "lab")
    known = card.headline.rstrip(".")
    if card.carried is None and card.too_much is not None:
        values = {"rate": rate_words(card.too_much), "sure": ""}
        known = sentence_case(render(Finding(code="terminal.again", values=values), "less"))
    return f"{known}. {card.breaks.verdict}" if cut else card.breaks.verdict


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
        "sut": escape.plain(", ".join(source.run.sut_names), longest=60),
        "trials": len(story.trials),
        "card": card,
        "answer": _card_words(card) if card else answer,
    }
