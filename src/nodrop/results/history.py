"""The answer of `nodrop history --json`. schema/history.schema.json is made from these models."""

from __future__ import annotations

from typing import Literal

from nodrop.results.model import Count, Model


class HistoryRun(Model):
    """One run directory, in the order of the runs' own time."""

    name: str
    started_utc: str
    changed: list[str]
    """What is not as it was in the run before, in words."""


class Point(Model):
    """One run in one line."""

    median: float | None
    """Null if the run has no measured trial of this figure."""
    lowest: float | None
    highest: float | None
    n: Count
    """Starts of the SUT that it rests on."""
    failed: Count
    void: Count
    """Trials that are in no figure."""


class Change(Model):
    run: Count
    """Place among the runs, from 0: the first after the change. It is the likeliest one."""
    before: float
    """Median of the runs since the change before."""
    after: float
    matters: bool
    """The medians are further apart than the margin."""
    worse: bool
    words: str
    beside: list[str]
    """What else is not as it was in the run before."""


class Line(Model):
    """One metric of one cell over all runs."""

    cell: str
    metric: str
    unit: str
    answer: Literal["changed", "no change seen", "cannot tell"]
    margin: str
    """Changes up to this do not matter."""
    points: list[Point]
    """One for each run."""
    changes: list[Change]
    more_runs: Count | None
    """At least; null if a change can be seen."""


class History(Model):
    format: Literal[1] = 1
    verdict: Literal["no worse", "worse", "cannot tell"]
    """Of the last change of each line."""
    exit_code: Count
    runs: list[HistoryRun]
    lines: list[Line]
    notes: list[str]
