"""A load near the limit of the first of two builds, at which they are measured in turns.

An idle SUT hides what a build costs: at the trace's own rate neither loses a packet, and a packet
costs up to twice as much as under load.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.answer.finding import worded
from nodrop.capacity.answering import answers
from nodrop.capacity.tried import never_ready
from nodrop.config.asked import CapacityQuestion
from nodrop.config.experiment import Experiment, asked_experiment
from nodrop.config.options import setting_text
from nodrop.config.search import Search, parse_need
from nodrop.errors import BadInput
from nodrop.results.trial import TrialRecord

NEAR = 0.95
"""Part of the limit that the search found: both builds lose little, unless one is worse."""
SEARCH_S = 70.0
LEAST_SEARCH_S = 40.0
"""A search of less time finds no limit."""
PART = 0.25
"""Most of the budget that the search takes."""
LOADS = ("multiplier", "speed", "pps", "top_speed")
MADE_OF = Path("nodrop ab")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearLimit:
    """Load of both builds, and why."""

    load: Mapping[str, Any]
    words: str
    took_s: float = 0.0


def given_load(text: str) -> Mapping[str, Any]:
    """Keys of [load]. BadInput if it is none."""
    try:
        need = parse_need(text)
    except ValueError as error:
        raise BadInput(f"--load {text}: {error}") from None
    if need.unit == "bit/s":
        raise BadInput(f"--load {text}: must be 4X or 20000pps: one load is sent, none is searched")
    number = int(need.number) if need.number.is_integer() else need.number
    return {"multiplier" if need.unit == "X" else "pps": number}


def names_its_load(asked: Experiment, cells: Mapping[str, Mapping[str, Any]]) -> bool:
    """Somebody said at which load, or the load has no replicas to search with."""
    keys = {key for cell in cells.values() for key in cell}
    said = any(name in asked.load or f"load.{name}" in keys for name in LOADS)
    return said or asked.load.get("kind") != "replay"


def kept_load(run: Path) -> Mapping[str, Any]:
    """The load that an interrupted run began with. Empty if it says none."""
    try:
        load = tomllib.loads((run / "experiment.toml").read_text("utf-8")).get("load")
    except (OSError, ValueError):  # whoever resumes it says what is wrong with it
        return {}
    kept = load if isinstance(load, dict) else {}
    return {name: kept[name] for name in LOADS if name in kept}


def searched(
    question: CapacityQuestion,
    settings: Sequence[str],
    first: Mapping[str, Any],
    budget_s: float | None,
    measure: Callable[[Experiment], Sequence[TrialRecord]],
) -> NearLimit:
    """`first`: keys of the first build; `measure`: runs the search. At 1X if the budget is too
    short for a search, or it found no limit. BadInput if that build never gets ready."""
    seconds = SEARCH_S if budget_s is None else min(SEARCH_S, PART * budget_s)
    if seconds < LEAST_SEARCH_S:
        return NearLimit(load={}, words=worded("near_limit.short", budget_s=budget_s))
    table = question.table(Path.cwd())
    table["search"] |= {"budget_s": seconds, "rounds": 1, "goals": [0.0]}
    own = [setting_text(*one) for one in first.items()]
    experiment = asked_experiment(table, [*settings, *own], path=MADE_OF)
    records = measure(experiment)
    if records and all(map(never_ready, records)):
        raise BadInput(f"--a: the SUT did not get ready: {records[-1].verdict}")
    took_s = sum(record.took_s or 0.0 for record in records)
    assert experiment.search is not None
    value = _limit(records, experiment.search)
    if value is None:
        return NearLimit(load={}, words=worded("near_limit.none"), took_s=took_s)
    load = {"multiplier": float(f"{value:.3g}")}
    words = worded("near_limit.found", load=load["multiplier"], took_s=took_s)
    return NearLimit(load=load, words=words, took_s=took_s)


def _limit(records: Sequence[TrialRecord], search: Search) -> float | None:
    found = answers(records, search)
    if not found:
        return None
    answer = found[0]
    if answer.fit is not None and answer.upper is not None:
        return NEAR * answer.fit.estimate
    return None if answer.lower is None else answer.lower.value
