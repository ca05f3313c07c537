"""The answer of a run with several cells to its question. schema/direct.schema.json is made from
these models: `nodrop run --json` prints one as its last events, `nodrop report --json` has them as
the evidence of the first sentences."""

from __future__ import annotations

from typing import Any, Literal

from nodrop.results.model import Count, Model

Ratio = tuple[float | None, float | None]
"""From, to; null = open on that side."""


class Level(Model):
    """One value of the factor, against the base."""

    name: str
    verdict: Literal["more", "less", "same", "cannot tell"]
    """The level against the base. Losses are also `more` or `less` if the levels differ in how many
    trials lose, and not in their medians."""
    why: str
    """The reason for `cannot tell`: what is lacking. Empty otherwise."""
    ratio: Ratio | None
    """How many times as much as the base a search found it to carry, between rounds (95 % for all
    levels of the run together); null if the load was not searched, or from too few rounds."""
    seen_ratio: Ratio | None
    """The ratio by the bounds within the search of one round of each: seen, and no verdict."""
    difference: float | None
    """Difference of the medians, in the figure's unit; null if the load was searched."""
    interval: tuple[float, float] | None
    """Interval of the difference; null with too few runs."""
    more: Count | None
    """So many more rounds, or runs, of each would tell; null if it is told, or if no number can be
    named."""


class Direct(Model):
    """Cells that differ in one factor alone."""

    format: Literal[1] = 1
    question: str
    factor: list[str]
    """Keys of the experiment that differ together."""
    held: dict[str, Any]
    """Factors that vary in the run, and are the same in these cells."""
    figure: str
    """`capacity`, or a figure of the report (`loss_pct` …); `books`: no cells are compared."""
    at: str
    """The load at which the cells are compared; empty if it was searched."""
    base: str
    """The value of the factor that the others are held against."""
    disturbed: bool
    """Other programs had the SUT's CPUs in most trials, so nothing is ranked."""
    levels: list[Level]
    text: str
    """The answer in words."""
    to_do: str
    """A command to paste that helps if the run cannot tell; empty if none does."""
