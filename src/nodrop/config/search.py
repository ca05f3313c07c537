"""How much is measured: the [search] table, and `measure.repetitions` as a table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from nodrop.config.options import Options, shown, unknown_key

Scale = Literal["multiplier", "speed", "pps", "rate"]
Of = Literal["packets", "detections"]
LossRatio = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
LONGEST_S = 86_400.0
RANGE = 16.0
"""How far below its beginning a search without a minimum looks."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]
MOST_ROUNDS = 100
DETECTION_GOALS = (0.01,)
"""Ratios of missed detections that are tolerated if the file names none."""
MOST_COPIES = 1 << 16
"""Passes of all replicas that have addresses of their own unless more are asked for: each takes 80
bytes of the sender."""
SHORTEST_S = 1.1
"""From less than a second nothing is said per second (ledger/over_time.py), and a trial is a little
shorter than it was asked to be: from its first packet to its last."""


class Need(NamedTuple):
    """A load that somebody has to carry."""

    number: float
    unit: Literal["X", "packets/s", "bit/s"]
    """X: as many times the trace's own traffic."""

    def of(self, scale: Scale, *, pps: float | None, bps: float | None) -> float | None:
        """The load on a search's scale; `pps`, `bps`: of the cell's own traffic."""
        own = {"X": 1.0, "packets/s": pps, "bit/s": bps}[self.unit]
        whole = pps if scale == "pps" else 1.0
        return None if own is None or whole is None else self.number / own * whole


_TIMES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_UNITS: Mapping[str, Literal["X", "packets/s", "bit/s"]] = {
    "x": "X",
    "pps": "packets/s",
    "packets/s": "packets/s",
    "bps": "bit/s",
    "bit/s": "bit/s",
}


def parse_need(text: str) -> Need:
    """ValueError in words for people."""
    number = r"\d[\d,]{0,14}(?:\.\d{1,9})?"
    form = rf"({number})\s?(x|([kmg]?)(pps|packets/s|bps|bit/s))"
    match = re.fullmatch(form, text.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError('must be a load, such as "1Gbit/s", "20000pps" or "1X"')
    found = float(match[1].replace(",", "")) * _TIMES[match[3] or ""]
    if not found:
        raise ValueError("must be more than nothing")
    return Need(found, _UNITS[match[4] or "x"])


def _readable_need(text: str) -> str:
    parse_need(text)
    return text


class Search(Options):
    """The words are those of MLRsearch (RFC 9971)."""

    by: Scale = "multiplier"
    """The key of [load] that is varied: replicas of the trace at once, its speed, packets/s,
    or, of transactions, their rate."""
    min: Positive | None = None
    """The least that is tried; without it, a sixteenth of where the search begins."""
    max: Positive | None = None
    """The most that is tried; without it, whatever the sender can do."""
    need: Annotated[str, AfterValidator(_readable_need)] | None = None
    """`"1Gbit/s"`, `"20000pps"` or `"1X"`: a load that has to be carried. The search tries it
    first, and says whether it is carried for the first goal, and with what headroom."""
    predicted: Positive | None = None
    """Load, on the scale of `by`, that another run predicts to be the most that is carried. The
    answer shows it beside the limit that was measured."""
    goals: Annotated[tuple[LossRatio, ...], Field(min_length=1)] = (0.0, 0.005)
    """Loss ratios that are tolerated: 0 is the no-drop rate (NDR), others partial-drop rates."""
    goals_of: Of = "packets"
    """The goals are ratios of lost packets or, with "detections", of the expected detections that
    are missed (docs/methodology.md): then each trial sends the trace's window once, in several
    replicas, faster or slower, to a SUT of its own, and `goals` is [0.01] and `load.window_s`
    is 60 unless the file says otherwise."""
    exceed_ratio: LossRatio = 0.5
    """A load is carried if no more than this part of its trials lose more than the goal."""
    duration_sum_s: Seconds = 45.0
    """Longest time of a round, over all trials that decide: with "mlrsearch" at each load before it
    is said to be carried or not, with "nodrop" near the limit. Nine trials are the
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
        if self.by_detections and "goals" not in self.model_fields_set:
            self.__dict__["goals"] = DETECTION_GOALS  # not before: a list would be no tuple then
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


FEWEST = 6
"""Runs, or starts of a SUT that stays up, from which on a median has a 95 % interval."""
MOST = 1000
OF_MEDIAN = "%"
"""A share of the median."""
UNITS: Mapping[str, Mapping[str, float]] = {
    "loss_ratio": {"points": 0.01},
    "detection_loss_ratio": {"points": 0.01},
    "cpu_per_packet": {"us": 1e-6, OF_MEDIAN: 0.01},
    "sut_cpu_s": {"s": 1.0, OF_MEDIAN: 0.01},
    "sut_rss_peak_bytes": {"MiB": float(2**20), OF_MEDIAN: 0.01},
    "host_cpu_ratio": {"points": 0.01},
    "activation_s": {"s": 1.0, OF_MEDIAN: 0.01},
}
"""Figure that a rule may be about → units that it may be in."""
READS = (
    'must read "METRIC half-width <= NUMBER UNIT", such as "loss_ratio half-width <= 0.1 points"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Half of the width of the interval of a metric's median is at most so much."""

    metric: str
    number: float
    unit: str

    @property
    def factor(self) -> float:
        """Makes of the number what the metric's own unit has, or a share of the median."""
        return UNITS[self.metric][self.unit]

    @property
    def relative(self) -> bool:
        return self.unit == OF_MEDIAN

    def __str__(self) -> str:
        return f"{self.metric} half-width <= {self.number:g} {self.unit}"


def parse_until(text: str) -> Until:
    """ValueError in words for people."""
    number = r"[-+]?[0-9.]+(?:[eE][-+]?\d+)?"
    match = re.fullmatch(rf"\s*(\S+)\s+half-width\s*<=\s*({number})\s*(\S+)\s*", text, re.ASCII)
    if match is None:
        raise ValueError(READS)
    metric, unit = match[1], match[3]
    if metric not in UNITS:
        raise ValueError(f"no such metric{unknown_key(metric, list(UNITS))}")
    try:
        found = float(match[2])
    except ValueError:
        raise ValueError(READS) from None
    if not 0 < found < math.inf:
        raise ValueError(f"half-width = {match[2]} must be > 0 and finite")
    if unit not in UNITS[metric]:
        allowed = ", ".join(UNITS[metric])
        raise ValueError(f"{shown(unit)} is no unit of {metric}; allowed are {allowed}")
    return Until(metric=metric, number=found, unit=unit)


def _one_or_several(given: object) -> object:
    if isinstance(given, str):
        return (given,)
    if given == []:
        raise ValueError("must have at least one rule")
    return tuple(given) if isinstance(given, list) else given


def _readable(text: str) -> str:
    return str(parse_until(text))


class Repetitions(Options):
    """Each cell is repeated until its figures are known closely."""

    min: Annotated[int, Field(ge=FEWEST)] = FEWEST
    """Trials of each cell at least; with fewer there is no interval."""
    max: Annotated[int, Field(le=MOST)]
    """Trials of each cell at most, whatever is known by then."""
    until: Annotated[
        tuple[Annotated[str, AfterValidator(_readable)], ...],
        BeforeValidator(_one_or_several),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ]
            }
        ),
    ]
    """`"METRIC half-width <= NUMBER UNIT"`, or a list of which all must hold."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} must be <= max = {self.max}")
        return self

    @property
    def rules(self) -> tuple[Until, ...]:
        return tuple(map(parse_until, self.until))

    def __str__(self) -> str:
        return f"{self.min:,} to {self.max:,}"

    def each_start(self, sut: Literal["fresh", "standing"]) -> int:
        """Trials of one start of the SUT: of one that stays up so many that the least trials are
        just enough starts for an interval."""
        return 1 if sut == "fresh" else self.min // FEWEST

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """The repetitions that a run's manifest keeps (`measure.repetitions`)."""
        return cls.model_validate_json(json.dumps(said))


def _form(given: object) -> str:
    return "table" if isinstance(given, dict | Repetitions) else "number"


NumberOrRule = Annotated[
    Annotated[int, Field(ge=1), Tag("number")] | Annotated[Repetitions, Tag("table")],
    Discriminator(_form),
]
