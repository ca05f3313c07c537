"""The searches of a report: of each cell whose load was searched, its trials and its answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.capacity.answering import answers, search_of
from nodrop.capacity.search_answer import Answer
from nodrop.config.search import Search
from nodrop.findings.observations import RATES
from nodrop.report import escape
from nodrop.report.story import RunCell, Story, StorySource, by_key, factor_label, once
from nodrop.report.trials import StoredTrial
from nodrop.results.capacity import Forecast
from nodrop.results.load_window import LoadWindow
from nodrop.results.rundir import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCell:
    """One cell of one run directory, all loads that were tried of it together."""

    source: int
    subject: str
    """Words that sentences about the cell begin with."""
    label: str
    """Words that distinguish it from the other cells; empty if nothing does."""
    cells: tuple[RunCell, ...]
    """Cells, one per load."""
    trials: tuple[StoredTrial, ...]
    """Trials in the order in which they were measured, without the ramps."""
    ramps: tuple[StoredTrial, ...]
    """Trials under a growing load, which decide nothing."""
    soaks: tuple[StoredTrial, ...]
    """Long trials at the load that was carried, after the search."""
    answers: tuple[Answer, ...]
    """Answers, one per goal."""
    forecast: Forecast | None
    """Forecast of what the budget was likely to buy; None without one."""

    @property
    def by_detections(self) -> bool:
        return any(answer.goals_of == "detections" for answer in self.answers)

    @property
    def window(self) -> LoadWindow | None:
        """Window that all trials sent; None of another generator than nodrop's."""
        every = (t.record.window for t in (*self.trials, *self.ramps))
        return next((window for window in every if window is not None), None)

    @property
    def round_trials(self) -> tuple[int, ...]:
        """Trials of each round, without ramps: 0 for one that had none before the last."""
        rounds = Counter(t.record.searched.round for t in self.trials if t.record.searched)
        return tuple(rounds[number + 1] for number in range(max(rounds, default=0)))


@once
def given_cells(story: Story) -> tuple[RunCell, ...]:
    """Cells whose load no search chose: a search says what its loads mean."""
    of_searches = {cell for search in searches(story) for cell in search.cells}
    return tuple(cell for cell in story.cells if cell not in of_searches)


@once
def searches(story: Story) -> tuple[SearchedCell, ...]:
    """Searched cells in the order of the cells. A run whose manifest does not say what was searched
    for has none: its loads are reported like those of any other run."""
    found: list[SearchedCell] = []
    for number, source in enumerate(story.sources):
        search = search_of(source.run.manifest)
        if search is None:
            continue
        own = (cell for cell in story.cells if cell.source == number and cell.searched)
        gathered = by_key((repr(sorted(c.trials[0].record.cell.items())), c) for c in own)
        found += [_searched(story, number, cells, search) for cells in gathered.values()]
    return tuple(found)


def _forecast(source: StorySource) -> Forecast | None:
    try:
        return Forecast.model_validate_json(json.dumps(source.run.manifest.get("forecast")))
    except (TypeError, ValueError):
        return None


def _searched(story: Story, source: int, cells: Sequence[RunCell], search: Search) -> SearchedCell:
    trials = sorted((t for cell in cells for t in cell.trials), key=lambda t: t.record.index)
    asked = [(trial, trial.record.searched) for trial in trials]
    ramps = tuple(trial for trial, how in asked if how is not None and how.ramp is not None)
    soaks = tuple(trial for trial, how in asked if how is not None and how.soak is not None)
    aside = {*ramps, *soaks}
    label = _label(story, cells[0])
    return SearchedCell(
        source=source,
        subject=label or subject(story, cells[0]),
        label=label,
        cells=tuple(cells),
        trials=tuple(trial for trial in trials if trial not in aside),
        ramps=ramps,
        soaks=soaks,
        answers=answers(Records(t.packed for t in trials), search),
        forecast=_forecast(story.sources[source]),
    )


def _label(story: Story, cell: RunCell) -> str:
    """Group of a cell, and the factors of its load that were not searched."""
    own = cell.trials[0].record.cell
    rates = [factor_label(f, own[f]) for f in story.factors if f in RATES and f in own]
    return " · ".join(filter(None, [cell.group, *rates]))


def subject(story: Story, cell: RunCell) -> str:
    """Words that a sentence about a cell begins with."""
    if cell.group:
        return cell.group
    names = story.sources[cell.source].run.sut_names
    return escape.plain(names[0]).capitalize() if len(names) == 1 else "The SUT"
