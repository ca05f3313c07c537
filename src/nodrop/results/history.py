"""The answer of `nodrop history --json`. schema/history.schema.json is made from these models."""

from __future__ import annotations

from typing import Literal

from nodrop.results.model import Count, Model


class HistoryRun(Model):
    """One run directory, in the order of the runs' own time."""

    name: str
    started_utc: str
    changed: list[str]
    """Facts that differ from the run before, in words."""


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
    """Than the runs since the change before: the verdict of a line is against its best stretch."""
    words: str
    beside: list[str]
    """Facts that changed with it, in words: since the run before that has a value."""


class Stretch(Model):
    """Runs of one level."""

    first: Count
    """Place among the runs, from 0."""
    last: Count
    runs: Count
    """With a value."""
    level: float
    """Median of the runs."""


class Line(Model):
    """One metric of one cell over all runs."""

    cell: str
    metric: str
    unit: str
    verdict: Literal["no worse", "worse", "cannot tell"]
    """Verdict on the newest runs, against the best stretch."""
    words: str
    """The verdict, and why."""
    best: Stretch | None
    """The best stretch between two changes; null if there are too few runs."""
    newest: Stretch | None
    """The newest runs, as held against the best stretch."""
    found_ratio: float | None
    """How often a regression of twice the margin would be found within three further runs, by how
    widely these spread; null if it is not known. From 0.95 on "no worse" may be said."""
    answer: Literal["changed", "no change seen", "cannot tell"]
    margin: str
    """Changes up to this do not matter."""
    points: list[Point]
    """One for each run."""
    changes: list[Change]
    more_runs: Count | None
    """At least; null if no number is needed, or would help."""


class History(Model):
    format: Literal[1] = 1
    verdict: Literal["no worse", "worse", "cannot tell"]
    """Worse if a line is; no worse if all lines are."""
    exit_code: Count
    runs: list[HistoryRun]
    lines: list[Line]
    notes: list[str]
