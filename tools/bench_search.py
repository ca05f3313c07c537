"""Searches over simulated SUTs: bias, spread, coverage and cost of each method.

python tools/bench_search.py [SEEDS]. Each trial serves
capacity x (1 - noise x |N(0, 1)|); a stalled one a tenth less. The truth is the load at which half
of the trials lose packets (exceed_ratio 0.5). One round per search: goal 0, width 0.5 %, 21
trials, as CSIT asks MLRsearch, but of 1.1 s: less than a second shows no pace.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import Any

from scipy.special import ndtri

sys.path.insert(0, str(Path(__file__).parents[1]))

from nodrop.capacity.answering import answers
from nodrop.config.search import Search
from tests.simulated_sut import SimulatedSut, controller, run

CAPACITY = 10.0
CSIT: dict[str, Any] = {
    "goals": (0.0,),
    "min": 0.5,
    "max": 40.0,
    "relative_width": 0.005,
    "initial_trial_s": 1.1,
    "final_trial_s": 1.1,
    "duration_sum_s": 23.1,
    "rounds": 1,
}
NOISES = [(0.0, 0.0), (0.005, 0.0), (0.02, 0.0), (0.02, 0.05)]
METHODS: dict[str, dict[str, Any]] = {
    "nodrop, 9 trials": {"method": "nodrop", "duration_sum_s": 9.9},
    "nodrop, 12 trials": {"method": "nodrop", "duration_sum_s": 13.2},
    "nodrop, 21 trials": {"method": "nodrop"},
    "nodrop, 80 trials": {"method": "nodrop", "duration_sum_s": 88.0},
    "MLRsearch, 21 trials": {"method": "mlrsearch"},
    "MLRsearch, 21 trials, width 1.5 %": {"method": "mlrsearch", "relative_width": 0.015},
    "MLRsearch, 21 trials, width 2.25 %": {"method": "mlrsearch", "relative_width": 0.0225},
    "bisection": {"method": "bisection"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    low: float
    high: float
    value: float
    """What the method gives as the one figure: an estimate, or the bound from below."""
    seconds: float


def truth(noise: float, stalls: float) -> float:
    """At which half of the trials are bad."""
    rest = (0.5 - stalls) / (1 - stalls)
    return CAPACITY * (1 - noise * float(ndtri(1 - rest / 2)))


def search(noise: float, stalls: float, settings: dict[str, Any], seed: int) -> Found | None:
    asked = Search(**{**CSIT, **settings})
    sut = SimulatedSut(
        capacity=CAPACITY, noise=noise, stall_ratio=stalls, random=Random(f"{seed} {noise}")
    )
    (answer,) = answers(run(controller(asked, seed=seed), sut.measure), asked)
    if answer.lower is None or answer.upper is None:
        return None
    low, high, fit = answer.lower.value, answer.upper.value, answer.fit
    value = low if fit is None else fit.estimate
    return Found(low=low, high=high, value=value, seconds=answer.trial_seconds)


def row(name: str, noise: float, stalls: float, seeds: Sequence[int]) -> str:
    tried = [search(noise, stalls, METHODS[name], seed) for seed in seeds]
    found = [one for one in tried if one is not None]
    at = truth(noise, stalls)
    errors = [one.value / at - 1 for one in found]
    slack = 1e-4  # loads are rounded
    covered = fmean(one.low <= at * (1 + slack) and one.high >= at * (1 - slack) for one in found)
    width = fmean((one.high - one.low) / one.high for one in found)
    seconds = fmean(one.seconds for one in found)
    rms = sqrt(fmean(e * e for e in errors))
    label = f"{noise:.1%}" + (f", {stalls:.0%} stalls" if stalls else "")
    return (
        f"| {label} | {name} | {fmean(errors):+.2%} | {pstdev(errors):.2%} | {rms:.2%} "
        f"| {width:.2%} | {covered:.0%} | {seconds:.0f} | {len(tried) - len(found)} |"
    )


def table(seeds: Sequence[int]) -> str:
    head = (
        "| noise | method | bias | spread | error (RMS) | width | covers | trial-seconds | no end |"
    )
    rows = [row(name, *noise, seeds) for noise in NOISES for name in METHODS]
    return "\n".join([head, "|---" * 9 + "|", *rows])


if __name__ == "__main__":
    print(table(range(int(sys.argv[1]) if sys.argv[1:] else 200)))
