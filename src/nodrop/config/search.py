"""The [search] table: which capacity is looked for, how closely, and what it may cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from nodrop.config.options import Options

Scale = Literal["multiplier", "speed", "pps"]
Of = Literal["packets", "detections"]
LossRatio = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
LONGEST_S = 86_400.0
RANGE = 16.0
"""How far below its beginning a search without a minimum looks."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]
MOST_ROUNDS = 100
BY_DETECTIONS: Mapping[str, Any] = {"goals": (0.01,), "by": "speed"}
"""Defaults of a search by detections that are others."""
SHORTEST_S = 1.1
"""From less than a second nothing is said per second (ledger/sustained.py), and a trial is a little
shorter than it was asked to be: from its first packet to its last."""


class Search(Options):
    """The words are those of MLRsearch (RFC 9971)."""

    by: Scale = "multiplier"
    """The key of [load] that is varied: replicas of the trace at once, its speed, or packets/s."""
    min: Positive | None = None
    """The least that is tried; without it, a sixteenth of where the search begins."""
    max: Positive | None = None
    """The most that is tried; without it, whatever the sender can do."""
    goals: Annotated[tuple[LossRatio, ...], Field(min_length=1)] = (0.0, 0.005)
    """Loss ratios that are tolerated: 0 is the no-drop rate (NDR), others partial-drop rates."""
    goals_of: Of = "packets"
    """The goals are ratios of lost packets or, with "detections", of the expected detections that
    are missed (docs/methodology.md): then each trial sends the trace's window once, faster or
    slower, to a SUT of its own, and `goals` is [0.01], `by` is "speed" and `load.window` is "whole"
    unless the file says otherwise."""
    exceed_ratio: LossRatio = 0.5
    """A load is carried if no more than this part of its trials lose more than the goal."""
    duration_sum_s: Seconds = 45.0
    """So long, all trials that decide together, a round goes on at most: with "mlrsearch" at each
    load before it is said to be carried or not, with "nodrop" near the limit. Nine trials are the
    fewest of which the least and the greatest limit are left out of a 95 % interval."""
    relative_width: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The search ends when the loads that are and are not carried are no further apart. A short
    trial shows the pace of a SUT no closer than this (docs/methodology.md)."""
    initial_trial_s: Seconds = 3.0
    """Trials that look for where to look."""
    final_trial_s: Seconds = 5.0
    """Trials that decide."""
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] = 3
    """Whole searches of each cell, each with a new start of the SUT."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """All trials of the run together take no longer; what was reached by then is said."""
    soak_s: Seconds | None = None
    """After the search, so long at the load that each cell carries for the first goal: its window
    again and again, with flows of its own in each pass. Beside the budget, and no part of the
    bounds."""
    method: Literal["nodrop", "mlrsearch", "bisection"] = "nodrop"
    """How the next load is chosen."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.by_detections:  # not before: lists would be no tuples then
            left_out = BY_DETECTIONS.keys() - self.model_fields_set
            self.__dict__.update({key: BY_DETECTIONS[key] for key in left_out})
        if self.by_detections and self.by == "multiplier":
            raise ValueError(
                'by = "multiplier": other replicas are to bring other detections; with '
                'goals_of = "detections" it is "speed" or "pps"'
            )
        if self.by_detections and self.soak_s is not None:
            raise ValueError(
                'soak_s: sends the window again and again; with goals_of = "detections" nothing '
                "says which detections that should bring: leave it out"
            )
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min = {self.min:g} must be below max = {self.max:g}")
        if len(set(self.goals)) < len(self.goals):
            raise ValueError("goals: one is given twice")
        if self.initial_trial_s < SHORTEST_S:
            raise ValueError(
                f"initial_trial_s = {self.initial_trial_s:g} must be at least {SHORTEST_S:g}: a "
                "shorter trial shows no pace"
            )
        if self.final_trial_s < self.initial_trial_s:
            raise ValueError(
                f"final_trial_s = {self.final_trial_s:g} must be at least "
                f"initial_trial_s = {self.initial_trial_s:g}"
            )
        if self.duration_sum_s < self.final_trial_s:
            raise ValueError(
                f"duration_sum_s = {self.duration_sum_s:g} must be at least "
                f"final_trial_s = {self.final_trial_s:g}"
            )
        if self.method != "nodrop" and (self.min is None or self.max is None):
            raise ValueError(f'method = "{self.method}" needs min and max')
        return self

    @property
    def by_detections(self) -> bool:
        return self.goals_of == "detections"

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """The search that a run's manifest keeps (`search`)."""
        return cls.model_validate_json(json.dumps(said))
