"""The answer of `nodrop tune prove --json`, and proved.json in the run directory."""

from __future__ import annotations

from typing import Literal

from nodrop.results.model import Count, Model

NAME = "proved.json"


class Effect(Model):
    """A knob's effect on one metric, against the trials without it."""

    knob: str
    """`rps=1`; of several together `ring-size=20000 + mpm=hs`."""
    setting: str = ""
    """Key and value of an experiment: `sut.ring_size=20000`; empty of several together."""
    metric: str
    unit: str
    state: Literal["helps", "makes it worse", "does not", "cannot tell yet"]
    without: float | None
    """Median of the trials without it."""
    by: float | None
    """Median with it, less that without."""
    interval: tuple[float, float] | None
    """Interval of `by`; null with too few trials."""
    relative: tuple[float, float] | None
    """The interval as a share of the median without; null if that is 0."""
    trials: tuple[Count, Count]
    """Without and with it; void ones do not count."""
    void: Count
    """Trials with it whose books did not close."""
    words: str


class Together(Model):
    """Knobs that help, at once: do their effects add up?"""

    effect: Effect
    sum: tuple[float, float] | None
    """Interval of the sum of their effects, each alone."""
    beyond: tuple[float, float] | None
    """Interval of what they do together beyond that sum; without 0 in it, they interact."""


class Proved(Model):
    format: Literal[1] = 1
    effects: list[Effect]
    together: Together | None
    notes: list[str]
    exit_code: Count
