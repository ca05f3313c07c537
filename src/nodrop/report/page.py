"""The HTML page: one file that needs nothing else."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from nodrop.capacity.page import WORDS, capacity_page, card_views, who
from nodrop.capacity.section import capacity_section
from nodrop.config.units import noun
from nodrop.ledger.hops import Account, Class
from nodrop.report import bounded, escape, figures
from nodrop.report.answer import answer
from nodrop.report.chart import OUTCOMES, Chart, sign
from nodrop.report.charts import flow, loss_plot, runs_plot, time_chart
from nodrop.report.comparison import MOST_BASES, compared, family_words
from nodrop.report.costs import DIFFERENCES
from nodrop.report.repeats import outliers_table, outlying, repeats, repeats_words
from nodrop.report.sections import common, framed, sections, verdicts
from nodrop.report.sentences import phrase
from nodrop.report.setups import compared_at_once, conditions
from nodrop.report.story import Cell, Source, Story
from nodrop.report.timeline import timeline
from nodrop.report.trials import Trial
from nodrop.report.trust import findings, self_test_words, undone
from nodrop.results.trial import MARKS

MOST_CARDS = 40
"""Cells that the answer lays side by side."""
MOST_OPEN = 8
"""Up to so many cells the typical trial of each stands open."""
MOST_CHARTS, MOST_CHARTS_OF_LONG = 60, 12
"""Trials over time, 17 kB each."""
MOST_OPEN_CHARTS = 3
MOST_FIGURES, MOST_FIGURES_OF_LONG = 100, 20
"""Trials drawn: of each cell the typical one first, then in order. The others have their tables."""

BADGES = {mark: f"{sign} {'no loss' if mark == 'good' else mark}" for mark, sign in MARKS.items()}

SECTIONS = (
    ("answer", "Answer"),
    ("cells", "Cells"),
    ("ledger", "Where packets die"),
    ("time", "Over time"),
    ("trials", "Trials"),
    ("trust", "Trust"),
    ("manifest", "Appendix"),
    ("words", "Words"),
)

View = Mapping[str, Any]
"""Values that a template shows; it asks for no other (`StrictUndefined`)."""


def page(story: Story) -> str:
    repeated, apart = repeats(story), outlying(story)
    capacity, found = capacity_section(story), capacity_page(story)
    most_figures, most_charts = MOST_FIGURES, MOST_CHARTS
    if bounded.is_long(story):
        most_figures, most_charts = MOST_FIGURES_OF_LONG, MOST_CHARTS_OF_LONG
    setups = bool(conditions(story))
    only_watched = not story.trials and answer(story).sentences[0].rule != "no-trial"
    chosen = [one for one in sections() if found is None or one.with_search]
    own = [(one, html) for one in chosen if (html := one.html(story))]
    # Sections of questions stand between the cells and the ledger.
    of_questions = [(one.id, one.title) for one, _ in own]
    first = [("capacity", "Capacity")] if capacity else []
    navigation = [SECTIONS[0], *first, SECTIONS[1], *of_questions, *SECTIONS[2:]]
    if found is not None:
        navigation = [SECTIONS[0], ("knee", "The knee"), *SECTIONS[2:], *of_questions]
    elif only_watched:
        navigation = [SECTIONS[0], *of_questions, SECTIONS[-2]]
    names = [str(s.run.manifest.get("name") or s.name) for s in story.sources]
    return framed(
        "index.html.j2",
        **common(story),
        skip=("answer", "To the answer"),
        made_from=f" from {', '.join(source.name for source in story.sources)}",
        setups=setups,
        own_sections=[html for _, html in own],
        title=escape.plain(" and ".join(dict.fromkeys(names)), longest=120),
        sections=navigation,
        only_watched=only_watched,
        found=found,
        view=capacity.views[0] if capacity else None,
        who=who(story),
        answer=answer(story),
        badges=BADGES,
        views=[*card_views(story)],
        words=WORDS,
        verdicts=verdicts(story),
        most_cards=MOST_CARDS,
        signs={mark: sign(shape, style) for mark, (shape, style, _) in OUTCOMES.items()},
        capacity=capacity,
        loss_plot=loss_plot([cell for cell in story.cells if not cell.searched]),
        cells_table=figures.cells_page_table(story),
        detection_tables=[bounded.shortened(one) for one in figures.detection_tables(story)],
        differences=_differences(story),
        cell_views=_cell_views(story, 0 if found else most_figures),
        over_time=_over_time(story, 5 if found else most_charts),
        trials_table=figures.trials_page_table(story),
        findings=findings(story),
        apart=apart,
        outliers_table=bounded.shortened(outliers_table(apart)),
        runs=runs_plot(repeated),
        runs_words=repeats_words(repeated),
        undone=undone,
        commands=commands,
        self_test_words=self_test_words,
    )


def commands(source: Source) -> str:
    """The command line that made the run, and the one that writes this report; empty if it is
    not recorded."""
    if not source.command:
        return ""
    return f"{shlex.join(source.command)}\nnodrop report {shlex.quote(source.name)}"


def _differences(story: Story) -> View | None:
    cells = [cell for cell in story.cells if not cell.searched][: bounded.MOST_ROWS]
    if len(cells) < 2:
        return None
    family = compared_at_once(story)
    bases = range(len(cells)) if len(cells) <= MOST_BASES else range(1)
    return {
        "figures": DIFFERENCES,
        "cells": cells,
        "more": bounded.more_words(len(story.cells) - bounded.MOST_ROWS, "cells.csv"),
        # Base → cell → figure → words.
        "bases": [
            [[compared(cells[base], c, f, family).cell_words for f in DIFFERENCES] for c in cells]
            for base in bases
        ],
        "family": family_words(family, story.cells),
    }


def _over_time(story: Story, most: int) -> View:
    """`left_out`: trials that have samples but no room on the page."""
    chosen = bounded.leading(story)[:most]
    typical: list[View] = []
    others: list[View] = []
    for cell, trial in chosen:
        found, is_typical = timeline(story.sources[trial.source], trial), trial is cell.typical
        if found and (chart := time_chart([found], f"{trial.name} over time")):
            opened = is_typical and len(story.cells) <= MOST_OPEN_CHARTS
            view = {"cell": cell, "trial": trial, "chart": chart, "open": opened}
            (typical if is_typical else others).append(view)
    fetch = (story.sources[t.source].run.elsewhere(t.name) for _, t in chosen)
    command = next(filter(None, fetch), "")
    return {
        "typical": typical,
        "others": others,
        "left_out": len(story.trials) - len(chosen) if typical or others else 0,
        "elsewhere": command and escape.plain(phrase("elsewhere", command=command), longest=1000),
    }


def _cell_views(story: Story, most: int) -> list[View]:
    """`most`: so many trials are drawn."""
    told = bounded.told(story)
    cells = story.cells[: bounded.most_told(story)]
    typical = dict.fromkeys(cell.typical.anchor for cell in cells)
    rest = [a for t in story.trials if (a := t.anchor) in told and a not in typical]
    drawn = {*list(typical)[:most], *rest[: max(most - len(typical), 0)]}
    found: list[View] = []
    for cell in cells:
        others = tuple(t for t in cell.trials if t is not cell.typical)
        outcomes = Counter(t.outcome for t in others)
        not_measured = [f"{n} {one}" for one in ("failed", "void") if (n := outcomes[one])]
        opened = len(story.cells) <= MOST_OPEN
        found.append(
            {
                "label": cell.label,
                "typical": _view(cell, cell.typical, drawn, opened=opened),
                "others": [_view(cell, t, drawn) for t in others if t.anchor in told],
                # Beside the typical one, those included that the page does not show.
                "repetitions": len(others),
                "more": bounded.more_words(sum(t.anchor not in told for t in others), "ledger.csv"),
                "not_measured": ", ".join(not_measured),
            }
        )
    return found


def _view(cell: Cell, trial: Trial, drawn: AbstractSet[str], *, opened: bool = False) -> View:
    ledger = trial.ledger
    accounts, is_drawn = ledger.accounts if ledger else (), trial.anchor in drawn
    return {
        "trial": trial,
        "cell": cell,
        "open": opened,
        "merged": _merged_words(trial, accounts),
        "flow": flow(ledger, f"Packet flow of {trial.name}") if ledger and is_drawn else Chart(),
        "lines": figures.ledger_lines(ledger),
        "not_for_us": [a for a in accounts if a.kind is Class.NOT_FOR_US and a.packets],
    }


def _merged_words(trial: Trial, accounts: Sequence[Account]) -> str:
    """Every packet that defragmentation took out: 4,269 = 4,116 absorbed into 384 + 153 held."""
    books = trial.record.packets
    detail = books.merged_detail
    if detail is None or not books.merged_packets:
        return ""
    numbered = {name: n for a in accounts if a.kind is Class.MERGED for name, n in a.details}
    into = phrase("became", **numbered) if {"datagrams", "fragments"} <= numbered.keys() else ""
    n = books.merged_packets
    return phrase("merged", n=n, packets=noun(n, "packet"), detail=detail, into=into)
