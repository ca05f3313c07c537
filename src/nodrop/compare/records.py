"""One side of a comparison: what a run measured, and on what. A baseline file is a stored one.

schema/baseline.schema.json is made from these models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue, ValidationError

from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.ledger.quantities import Count
from nodrop.results.model import Model
from nodrop.results.trial import SIGNS
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.json_text import NotJson, decode_object


class Repeats(Model):
    """One figure of one cell."""

    values: list[float]
    """Values, one per measured trial or, of a capacity, per round."""
    starts: list[Count]
    """Numbers the start of the SUT that each value is of: values of one start count once."""
    hosts: bool = False
    """The numbers are of hosts of a fleet and not of starts: several hosts measured the cell."""


class SideCell(Model):
    factors: dict[str, JsonValue]
    label: str
    figures: dict[str, Repeats]
    """Name → what was measured; what was not measured is missing."""
    failed: Count
    """Trials in which the SUT failed: they are in no figure but `failed_pct`."""
    void: Count
    behind: Count = 0
    """Measured trials without loss whose SUT did not keep the pace of the load."""
    crowded: Count = 0
    """Measured trials in which other programs had much of the SUT's CPUs."""
    watched: Count = 0
    """Measured trials of which that is known."""
    unfound: dict[str, str] = Field(default_factory=dict)
    """Capacity that was searched for → its bounds so far, and why they are no figure."""

    def crowded_words(self) -> str:
        """Why its figures show nothing, if other programs disturbed most trials; empty if they
        show what the SUT does. The rule of a report's verdicts (report/direct.py)."""
        if 2 * self.crowded <= self.watched:
            return ""
        return (
            f"other programs had more than 25 % of the SUT's CPUs in {self.crowded} of "
            f"{count_of(self.watched, 'trial')}"
        )

    def behind_words(self, loss_figure: str) -> str:
        """Why its loss shows nothing, if most trials lost nothing as the rings held what the SUT
        did not serve; empty if it does."""
        loss = self.figures.get(loss_figure)
        if loss is None or 2 * self.behind <= len(loss.values):
            return ""
        return (
            f"did not keep the pace of its load in {self.behind} of "
            f"{count_of(len(loss.values), 'trial')}, and lost nothing as its rings held the rest: "
            "a longer load (load.duration_s) shows what it loses"
        )

    facts: dict[str, list[str]] = Field(default_factory=dict)
    """Facts of what this cell was measured on, beside those of the whole side; for a fleet
    alone."""


class Side(Model):
    format: Literal[1] = 1
    name: str
    identity: str
    """A name that all copies of one run share."""
    facts: dict[str, list[str]]
    """Facts of what the run was measured on: name → all values of the run, sorted."""
    cells: list[SideCell]
    unread: list[str] = Field(default_factory=list)
    """Parts of its run that could not be read, and are in no figure."""
    weak: list[str] = Field(default_factory=list)
    """Reasons to believe its figures less: the run is unfinished, other programs had the CPU, a
    carried load of low confidence."""

    def to_text(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """BadInput, naming the first field at fault, if it is no baseline."""
        try:
            text = read_file(path)
            decode_object(text, most_bytes=len(text))
            found = cls.model_validate_json(text)
        except FileNotFoundError as error:
            raise BadInput(f"{path}: no such run directory or baseline file") from error
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}") from error
        except NotJson as error:
            raise BadInput(f"{path}: no baseline file: {error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "file"
            raise BadInput(f"{path}: no baseline file: {where}: {first['msg']}") from error
        for cell in found.cells:
            for name, figure in cell.figures.items():
                if not figure.values or len(figure.values) != len(figure.starts):
                    raise BadInput(f"{path}: no baseline file: {name}: each value has a start")
        return found


class MetricRow(Model):
    """One metric of one cell, B against A."""

    cell: str
    metric: str
    unit: str
    a_n: Count
    b_n: Count
    a_median: float | None
    """Median of A; for `failed_pct`, the share of trials."""
    b_median: float | None
    answer: Literal["different", "same", "cannot tell"]
    """The last also if only one side has it."""
    worse: bool | None
    """Null unless it is different."""
    difference: float | None
    """Median of B less median of A, or share less share."""
    interval: tuple[float, float] | None
    """Interval of the difference; null with too few runs, and for a share."""
    margin: str
    """Differences up to this count as the same."""
    more_runs: Count | None
    """Further runs that each side needs, about; null if it can tell, or no number can be named."""
    unusual_a: list[float]
    """Values far outside the others of their side (Tukey's outer fences). They are in all figures:
    nothing is dropped."""
    unusual_b: list[float]
    words: str
    margin_size: float | None = None
    """Margin in the unit of the difference; null without a median of A, and for a share."""
    a_values: list[float] = Field(default_factory=list)
    """Values of every run of A that has the figure."""
    b_values: list[float] = Field(default_factory=list)


class VersusCard(Model):
    """The answer of a comparison: the largest sure difference, one that is worse before others."""

    headline: str
    where: str
    """The cell of the difference, and what is sure of it; empty without a sure difference."""
    different: Count
    same: Count
    cannot_tell: Count
    """Numbers of metrics with each verdict."""
    to_do: list[str]
    """Ways to tell more, the cheapest first."""

    @property
    def tally(self) -> str:
        numbers = (self.different, self.same, self.cannot_tell)
        return ", ".join(
            f"{n} {said}" for said, n in zip(SIGNS.values(), numbers, strict=True) if n
        )

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """Key and value of each line, for a terminal and for markdown."""
        yield "answer", self.headline
        yield from ((("", self.where),) if self.where else ())
        yield "verdicts", self.tally
        yield from (("" if n else "do", words) for n, words in enumerate(self.to_do))


class Versus(Model):
    format: Literal[1] = 1
    a: str
    b: str
    verdict: Literal["no worse", "worse", "cannot tell"]
    exit_code: Count
    card: VersusCard
    differs: list[str]
    """Facts that differ, as the user allowed, in words."""
    missing: list[str]
    """Cells of which nothing is compared, in words: one side lacks them, or neither has a figure.
    They forbid "no worse"."""
    rows: list[MetricRow]
    notes: list[str]


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
    """The runs are worse than those since the change before: the verdict of a line is against its
    best stretch."""
    words: str
    beside: list[str]
    """Facts that changed with it, in words: since the run before that has a value."""


class Stretch(Model):
    """Runs of one level."""

    first: Count
    """Place among the runs, from 0."""
    last: Count
    runs: Count
    """Number of runs with a value."""
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
    """Points, one for each run."""
    changes: list[Change]
    more_runs: Count | None
    """Further runs that are needed, at least; null if no number is needed, or would help."""


class History(Model):
    format: Literal[1] = 1
    verdict: Literal["no worse", "worse", "cannot tell"]
    """Worse if a line is; no worse if all lines are."""
    exit_code: Count
    runs: list[HistoryRun]
    lines: list[Line]
    notes: list[str]
