"""`measure.repetitions` as a table: each cell is repeated until its figures are known closely."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

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
