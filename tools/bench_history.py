"""Histories by simulation: how often `nodrop history` is wrong, and what it finds in time.

python tools/bench_history.py [SERIES]: each case so many times. The margin is 5 % of a level of
100; levels, spreads and steps are in margins. Cases and figures: docs/methodology.md, Many runs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nodrop.stats.regression import RegressionVerdict, judge

LEVEL, MARGIN = 100.0, 0.05
ERROR = 0.05
Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]
NOISES: Mapping[str, Noise] = {
    "none": lambda _, n: np.zeros(n),
    "normal": lambda rng, n: rng.normal(0, 1, n),
    "skewed": lambda rng, n: rng.lognormal(0, 0.7, n) - 1,
    "heavy": lambda rng, n: rng.standard_t(3, n) / 3**0.5,
    "two humps": lambda rng, n: np.where(rng.random(n) < 0.5, -1, 1) + rng.normal(0, 0.2, n),
    "few values": lambda rng, n: np.rint(rng.normal(0, 1, n) * 2) / 2,
}
"""Standard deviation of about 1."""
CREEP = tuple(3.0 * i / 29 for i in range(30))
"""Three margins in thirty runs: no step is larger than a tenth of one."""


def stretches(*parts: tuple[int, float]) -> tuple[float, ...]:
    """A level for each run."""
    return tuple(level for n, level in parts for _ in range(n))


def series(
    rng: np.random.Generator, noise: str, spread: float, levels: Sequence[float]
) -> list[float]:
    apart = np.asarray(levels) + NOISES[noise](rng, len(levels)) * spread
    found: list[float] = (LEVEL * (1 + MARGIN * apart)).tolist()
    return found


def verdict(values: Sequence[float], *, lines: int = 1) -> RegressionVerdict:
    return judge(values, lambda level: MARGIN * abs(level), error=ERROR / lines).verdict


def verdicts(
    noise: str, spread: float, levels: Sequence[float], times: int, *, lines: int = 1
) -> Mapping[RegressionVerdict, float]:
    rng = np.random.default_rng([*noise.encode(), round(spread * 100), len(levels)])
    found = Counter(verdict(series(rng, noise, spread, levels), lines=lines) for _ in range(times))
    return {one: found[one] / times for one in RegressionVerdict}


def regressions(
    noise: str, spread: float, before: int, times: int, *, lines: int = 1, size: float = 2.0
) -> Mapping[str, float]:
    """A step of `size` margins after so many runs. `known`: no worse was said before it; of these,
    `found`: worse is said within three runs; `still 1`: no worse is said after one."""
    rng = np.random.default_rng([7, *noise.encode(), round(spread * 100), before])
    found = Counter[str]()
    for _ in range(times):
        values = series(rng, noise, spread, stretches((before, 0), (3, size)))
        if verdict(values[:before], lines=lines) is not RegressionVerdict.NO_WORSE:
            continue
        told = [verdict(values[: before + n], lines=lines) for n in (1, 2, 3)]
        found.update(["known", *(["found"] if RegressionVerdict.WORSE in told else [])])
        no_worse = [n for n, one in enumerate(told, 1) if one is RegressionVerdict.NO_WORSE]
        found.update(f"still {n}" for n in no_worse)
    known = max(found["known"], 1)
    shares = {name: found[name] / known for name in ("found", "still 1", "still 2", "still 3")}
    return {"known": found["known"] / times, **shares}


def placings(noise: str, spread: float, runs: int, last: int, times: int) -> Mapping[str, float]:
    """A step of two margins, the last so many runs. `shown`: a change is; `placed`: within one run
    of where it was. `false`: a change is shown in the same runs without the step."""
    rng = np.random.default_rng([11, *noise.encode(), round(spread * 100), runs, last])
    found = Counter[str]()
    for _ in range(times):
        levels = stretches((runs - last, 0), (last, 2))
        places = judge(series(rng, noise, spread, levels), margin, error=ERROR).places
        found["shown"] += bool(places)
        found["placed"] += bool(places) and abs(places[-1] - (runs - last)) <= 1
        still = judge(series(rng, noise, spread, stretches((runs, 0))), margin, error=ERROR)
        found["false"] += bool(still.places)
    return {name: found[name] / times for name in ("shown", "placed", "false")}


def margin(level: float) -> float:
    return MARGIN * abs(level)


def said(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def main() -> int:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    worst = 0.0
    for title, levels in (
        *((f"nothing changed, {n} runs", stretches((n, 0))) for n in (8, 10, 13, 20, 40)),
        ("12 runs, 12 higher by two margins, 12 as before", stretches((12, 0), (12, 2), (12, 0))),
        ("12 runs, 12 lower by two margins", stretches((12, 0), (12, -2))),
    ):
        for noise in NOISES:
            for spread in (0.05, 0.2, 0.5, 1.0, 3.0):
                shares = verdicts(noise, spread, levels, times)
                worst = max(worst, shares[RegressionVerdict.WORSE])
                print(f"{title}: {noise} {spread}: {said(shares)}")
    missed = 0.0
    for noise in NOISES:
        for spread in (0.05, 0.2, 0.35, 0.5, 0.7, 1.0):
            for before in (10, 12, 20, 40):
                found = regressions(noise, spread, before, times)
                missed = max(missed, found["known"] * (1 - found["found"]))
                print(f"two margins after {before} runs: {noise} {spread}: {said(found)}")
    for noise in NOISES:
        for spread in (0.05, 0.2, 0.5):
            print(f"a creep: {noise} {spread}: {said(verdicts(noise, spread, CREEP, times))}")
    for noise in NOISES:
        for spread in (0.05, 0.2, 0.35):
            for runs in (8, 10, 12, 20, 30):
                for last in (1, 2, 3):
                    placed = placings(noise, spread, runs, last, times)
                    print(f"the last {last} of {runs} runs: {noise} {spread}: {said(placed)}")
    print(f"most false alarms {worst:.1%}; most that was no worse and then missed {missed:.1%}")
    # One in twenty is allowed; the largest of 210 such shares has luck beside it.
    return int(max(worst, missed) > 0.05 + 3.5 * (0.05 * 0.95 / times) ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
