"""The part of a long run that the page shows: a browser opens some megabytes and no more.

A run with fewer trials is shown whole. In a longer one nothing is lost: every figure is
computed from all of its trials, and the csv files have every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from nodrop.report.sentences import phrase
from nodrop.report.story import RunCell, Story, once
from nodrop.report.tables import ItemT, Table
from nodrop.report.trials import StoredTrial

MOST_ROWS = 500
"""Largest number of rows in a table. A run of so many trials has all of them on its page."""
MOST_TOLD = 60
"""Trials of a longer run with a row and a block of their own, 5 kB each: its page has at most
1.5 MB."""
MOST_MARKS = 1500
"""Largest number of marks in one drawing."""
FEWEST_MARKS = 15
"""Marks that one strip or cell has room for, however many strips or cells there are."""


def shortened(table: Table, file: str = "") -> Table:
    """The table with its first rows, and the file that has the others."""
    rows = tuple(table.rows)
    more = more_words(len(rows) - MOST_ROWS, f"{file or table.name}.csv")
    return replace(table, rows=rows[:MOST_ROWS], more=more)


def more_words(left_out: int, file: str) -> str:
    return phrase("more", n=left_out, file=file) if left_out > 0 else ""


@once
def leading(story: Story) -> list[tuple[RunCell, StoredTrial]]:
    """The typical trial of each cell, then failed and void ones, then the others."""
    typical = [(cell, cell.typical) for cell in story.cells]
    first = {t.anchor for _, t in typical}
    rest = ((c, t) for c in story.cells for t in c.trials if t.anchor not in first)
    return [*typical, *sorted(rest, key=lambda pair: pair[1].valid)]


def is_long(story: Story) -> bool:
    return len(story.trials) > MOST_ROWS


def most_told(story: Story) -> int:
    return MOST_TOLD if is_long(story) else MOST_ROWS


@once
def told(story: Story) -> frozenset[str]:
    """Anchors of the trials that have a row and a block on the page."""
    return frozenset(trial.anchor for _, trial in islice(leading(story), most_told(story)))


def marks(
    items: Sequence[ItemT], *, strips: int = 1, key: Callable[[ItemT], float] | None = None
) -> Sequence[ItemT]:
    """All, or as many as one of so many strips may have: evenly by rank of `key` (without one, as
    they come), the first and the last among them. A run whose trials all have room is drawn whole,
    whatever it is divided into."""
    most = max(FEWEST_MARKS, MOST_MARKS // max(strips, 1))
    if len(items) <= most:
        return items
    ranked = sorted(items, key=key) if key else items
    return [ranked[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
