"""A search before its first trial: the window that it sends, and what its budget is likely to buy.

The forecast is a guess from the table alone: nothing of the SUT is known yet. What was reached
stands beside it in the report, so that the guess can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodrop.answer.finding import worded
from nodrop.capacity.bounds import PROOFS
from nodrop.config.replay import BUSIEST, FOUND_BY_LENGTH, MOST_DURATION_S, REPLAYING
from nodrop.config.search import Search
from nodrop.config.units import format_seconds
from nodrop.ledger.over_time import duration
from nodrop.results.capacity import Forecast

RAMP_TRIALS = 2.0
"""A ramp lasts so many initial trials."""
BESIDE_RAMP = 4
"""A budget has a ramp if it has room for so many trials that decide beside it: of real traffic a
ramp expects too much, for it has no bursts, and with two of them no load that is carried was
found."""
LEAST_TRIALS = 6
"""Trials beside the ramp that come to bounds in simulation."""
LIKELY_TRIALS = 3
"""Trials before the proofs: the ramp, one well below the limit, and one that it proposes."""
OF_ANOTHER_GOAL = 6
DETECTIONS_WINDOW_S = 60.0
"""Seconds of trace that each trial of a search by detections sends once."""
DIFFER = 0.01
"""A guess at how much trials of one load differ, one standard deviation."""


def deciding_s(search: Search, first_s: float | None) -> float:
    """Seconds of load of a trial that decides; `first_s`: of the first load's. More replicas take
    as long as one for a pass over the window; a faster pass takes less, as little as is asked."""
    if search.by != "multiplier" or first_s is None:
        return search.final_trial_s
    return max(first_s, search.final_trial_s)


def ramp_s(search: Search, *, cells: int, around_s: float, decides_s: float) -> float:
    """Seconds that the ramp of a cell takes; 0 if nodrop's method is not used, or the budget has no
    room for it. `decides_s`: seconds of load of a trial that decides."""
    whole_s = RAMP_TRIALS * search.initial_trial_s + around_s
    if search.method != "nodrop":
        return 0.0
    if search.budget_s is None:
        return whole_s
    rest_s = search.budget_s / cells - whole_s
    return whole_s if rest_s >= BESIDE_RAMP * (decides_s + around_s) else 0.0


def forecast(search: Search, *, cells: int, around_s: float, decides_s: float) -> Forecast | None:
    """Forecast for each cell; None without a budget. `around_s`: seconds that a trial takes beside
    its load; `decides_s`: seconds of load of one that decides."""
    if search.budget_s is None:
        return None
    trial_s, share_s = around_s + decides_s, search.budget_s / cells
    ramped_s = ramp_s(search, cells=cells, around_s=around_s, decides_s=decides_s)
    trials = max(1, int((share_s - ramped_s) / trial_s))
    if search.method == "nodrop":
        trials = min(trials, likely_trials(search))
    width = search.relative_width if trials >= LEAST_TRIALS else None
    return Forecast(budget_s=search.budget_s, trials=trials, relative_width=width)


def likely_trials(search: Search) -> int:
    """Trials of a cell by nodrop's method, the ramp among them, if nothing ends it early."""
    proofs = 2 * max(PROOFS, search.rounds)
    return LIKELY_TRIALS + proofs + OF_ANOTHER_GOAL * (len(search.goals) - 1)


def likely(
    search: Search, *, cells: int, around_s: float, load_s: float | None
) -> tuple[int, float] | None:
    """Trials and seconds that all cells are likely to take; None with a budget, which says it, or
    by another method."""
    if search.budget_s is not None or search.method != "nodrop":
        return None
    decides_s, trials = deciding_s(search, load_s), likely_trials(search)
    ramped_s = ramp_s(search, cells=cells, around_s=around_s, decides_s=decides_s)
    return cells * trials, cells * (ramped_s + (trials - 1) * (around_s + decides_s))


def budgeted(
    search: Search, *, cells: int, around_s: float, load_s: float | None
) -> tuple[Forecast | None, str]:
    """The forecast, and the words on it and on the soaks that precede the first trial."""
    decides_s = deciding_s(search, load_s)
    found = forecast(search, cells=cells, around_s=around_s, decides_s=decides_s)
    return found, forecast_words(found, search, decides_s=decides_s) + soak_words(search, cells)


def soak_words(search: Search, cells: int) -> str:
    """Before the search; empty if there is no soak."""
    if search.soak_s is None:
        return ""
    code = "soak" if cells == 1 else "soaks"
    said = worded(f"forecast.{code}", soak_s=search.soak_s, cells=cells)
    return f"; {said}" if search.budget_s else said


def forecast_words(found: Forecast | None, search: Search, *, decides_s: float) -> str:
    """Before the search; empty if there is no budget."""
    if found is None:
        return ""
    far = "far" if found.relative_width is None else "likely"
    return worded(
        f"forecast.{'long_pass' if decides_s > 2 * search.final_trial_s else far}",
        budget_s=found.budget_s,
        trials=found.trials,
        takes=format_seconds(decides_s),
        rounds=search.rounds,
        width_pct=100 * (found.relative_width or 0.0),
        differ_pct=100 * DIFFER,
        asked_pct=100 * search.relative_width,
    )


def windowed(load: Mapping[str, Any], search: Search) -> Mapping[str, Any]:
    """The [load] table of a search: all its trials send one window of the trace, as long as a trial
    that decides if nothing else was asked for; of detections a minute, which holds more of them."""
    if load.get("kind") not in REPLAYING:
        return load
    window = load.get("window", BUSIEST)
    if window not in FOUND_BY_LENGTH or "window_s" in load:
        return {**load, "window": window}
    seconds = DETECTIONS_WINDOW_S if search.by_detections else search.final_trial_s
    window_s = seconds * (load.get("speed") or 1.0)
    return {**load, "window": window, "window_s": min(window_s, MOST_DURATION_S)}


def loop_words(search: Search, first_loads: Iterable[Mapping[str, Any]]) -> str:
    """Before the search, from the [load] table of each cell's first trial that decides; empty if
    none sends its window several times."""
    several = [load for load in first_loads if load.get("loops", 1) > 1]
    if not several:
        return ""
    loops = [load["loops"] for load in several]
    often = " to ".join(f"{number:,}" for number in sorted({min(loops), max(loops)}))
    alone = [load for load in several if load.get("loop_flows") != "distinct"]
    code = "same" if alone else "distinct"
    return worded(f"loop.{code}", trial=duration(search.final_trial_s), often=often)
