"""WHAT NEXT: a controller reads the finished trials and names the next one (RFC 9971).

A controller is pure and seeded. It does no I/O and knows no lab, setup, SUT or generator, so it is
tested without one, and a run is resumed by feeding the finished records back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nodrop.config.search import Repetitions, Search
from nodrop.results.trial import Searched, TrialRecord
from nodrop.stats.eta import Remaining

LONGEST_SLUG = 48

Factors = Mapping[str, Any]
"""The factors that make a cell: dotted matrix key → the value of this cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCell:
    """A cell as a controller sees it."""

    factors: Factors
    load: Mapping[str, Any]
    """The [load] table as this cell has it."""
    trace_packets: int | None = None
    """Packets of one pass over the trace; None without a search, or if it could not be read."""
    trace_s: float | None = None
    """The trace's own duration; None as for `trace_packets`."""
    first_pps: float | None = None
    """Packets/s of the deciding trial where a search begins; None as for `trace_packets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All that a controller is built from."""

    cells: Sequence[AskedCell]
    repetitions: int
    """At most, if there is a rule."""
    seed: int
    sut: Literal["fresh", "standing"]
    guess_s: float
    """Seconds that a trial may take: a guess until one has ended."""
    around_s: float = 0.0
    """Seconds of `guess_s` that a trial takes beside its load."""
    rule: Repetitions | None = None
    """When a cell has been repeated often enough; None if so many as above are."""
    search: Search | None = None
    """The search for capacity; None if the experiment asks for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInput:
    """One trial to be measured."""

    index: int
    """1-based place in the order of the run; a repeated trial keeps it."""
    cell: Factors
    repetition: int
    """1-based, within its cell."""
    load: Mapping[str, Any]
    """The [load] table to be offered: the cell's own, or what a search makes of it."""
    new_world: bool = True
    """Its SUT and its ports are new, even if those of its cell stand."""
    searched: Searched | None = None
    """The trial's part in a search; its record is known again by it."""
    reset_s: float | None = None
    """The receiver has booted for it, which took so long (elsewhere/front.py)."""

    @property
    def run_name(self) -> str:
        """`0007-docker-4x-r03`: names the folder of the trial."""
        slug = cell_slug({**self.cell, **self._load_factor})
        return f"{self.index:04d}-{slug + '-' if slug else ''}r{self.repetition:02d}"

    @property
    def _load_factor(self) -> Factors:
        found = self.searched
        if found is None:
            return {}
        value = f"{found.value:.4g}" if found.value < 1000 else f"{found.value:.0f}"
        ramp = {} if found.ramp is None else {"load.ramp": "to"}
        return {**ramp, f"load.{found.by}": value}


May = Callable[[TrialInput], bool]
"""Whether this trial may begin now, here: it may be under way already, or be another pair's."""


def any_trial(_trial: TrialInput) -> bool:
    """Where trials are measured one by one, in one place."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Time that is still to come, as far as the controller can say."""

    at_least: Remaining
    at_most: Remaining | None
    """None = no bound is known."""
    next_s: float = 0.0
    """Seconds of the remaining time that the next trial takes."""


class Controller(Protocol):
    """Built from `Asked` by its entry point (`nodrop.controllers`)."""

    heeds_void: bool
    """Void trials are records like others to it. Otherwise they are left out of a resumed run, and
    measured again."""

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        """The next trial, of those that may begin, after these have been measured; None when there
        is nothing to add."""
        ...

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook: ...

    def beforehand(self) -> Sequence[TrialInput]:
        """The trials that are certain before any was measured, in their order; it may be ()."""
        ...


def cell_slug(factors: Factors) -> str:
    """`docker-4x` for setup.kind = "docker", load.multiplier = 4: safe in file names. A named cell
    is its name and what it is combined with, as far as there is room."""
    words = [_word(key, value) for key, value in factors.items()]
    text = "-".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words)
    return text[:LONGEST_SLUG].strip("-.")


def _word(key: str, value: object) -> str:
    name = key.rsplit(".", 1)[-1].strip('"')
    if name in ("kind", "cell"):
        return str(value)
    if name == "multiplier":
        return f"{value:g}x" if isinstance(value, float) else f"{value}x"
    if isinstance(value, list):
        value = "-".join(_stem(v) if isinstance(v, str) else str(v) for v in value)
    if isinstance(value, str) and "/" in value:
        value = _stem(value)
    return f"{name}-{value}"


def _stem(path: str) -> str:
    """The file's name without its last suffix."""
    name = path.rstrip("/").rpartition("/")[2]
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name
