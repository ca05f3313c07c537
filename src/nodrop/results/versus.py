"""The answer of `nodrop compare --json`. schema/compare.schema.json is made from these models."""

from __future__ import annotations

from typing import Literal

from nodrop.results.model import Count, Model


class Row(Model):
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
    """Per side, about; null if it can tell, or no number can be named."""
    unusual_a: list[float]
    """Values far outside the others of their side (Tukey's outer fences). They are in all figures:
    nothing is dropped."""
    unusual_b: list[float]
    words: str


class Versus(Model):
    format: Literal[1] = 1
    a: str
    b: str
    verdict: Literal["no worse", "worse", "cannot tell"]
    exit_code: Count
    differs: list[str]
    """Facts that differ, as the user allowed, in words."""
    missing: list[str]
    """Cells of which nothing is compared, in words: one side lacks them, or neither has a figure.
    They forbid "no worse"."""
    rows: list[Row]
    notes: list[str]
