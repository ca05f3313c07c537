"""The fitted loss curve: scipy's censored fit, any unit and order, and how often its interval
holds."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import CensoredData, norm
from scipy.stats import t as student

from nodrop.stats.loss_curve import LossCurve, NoCurve, Offer, loss_curve
from tests.depth import depth
from tests.lossy_trials import LossySut
from tests.unit.stats.test_loss_curve import curve


@pytest.mark.parametrize(("scatter", "n"), [(0.01, 6), (0.02, 9), (0.1, 25)])
def test_if_all_but_one_far_below_lose_it_is_student_s_interval(scatter: float, n: int) -> None:
    """A trial without loss at a hundredth of the load says nothing."""
    random = Random(n)
    logs = [random.gauss(9, scatter) for _ in range(n)]
    seen = [Offer(pps=3 * math.e**9, loss_ratio=1 - math.exp(c - 9) / 3, packets=10**9)
            for c in logs]  # fmt: skip
    found = curve(loss_curve([*seen, Offer(pps=80.0, loss_ratio=0.0, packets=10**9)]))
    wide = student.ppf(0.975, n - 1) * np.std(logs, ddof=1) / math.sqrt(n)
    assert math.log(found.capacity_pps) == pytest.approx(np.mean(logs), abs=1e-6)
    assert math.log(found.low_pps) == pytest.approx(np.mean(logs) - wide, abs=1e-5)
    assert math.log(found.high_pps) == pytest.approx(np.mean(logs) + wide, abs=1e-5)


@pytest.mark.parametrize(("seed", "noise"), [(1, 0.005), (5, 0.02), (3, 0.05), (4, 0.3)])
def test_the_fit_is_scipy_s_of_a_censored_sample(seed: int, noise: float) -> None:
    trials = LossySut(noise=noise, packets=10**7).trials(20, Random(seed), wide=True)
    found = curve(loss_curve(trials))
    sample = CensoredData(
        uncensored=[math.log(t.pps * (1 - t.loss_ratio)) for t in trials if t.loss_ratio],
        right=[math.log(t.pps) for t in trials if not t.loss_ratio],
    )
    mean, scatter = norm.fit(sample)
    assert math.log(found.capacity_pps) == pytest.approx(mean, abs=0.01 * scatter)
    assert found.scatter == pytest.approx(scatter, rel=0.01)


@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.05]), st.floats(1e-3, 1e3), st.integers(0)
)
@settings(max_examples=30, deadline=None)
def test_units_and_order_do_not_matter(seed: int, noise: float, unit: float, order: int) -> None:
    trials = LossySut(noise=noise).trials(10, Random(seed))
    other = [replace(trial, pps=trial.pps * unit) for trial in trials]
    Random(order).shuffle(other)
    one, two = loss_curve(trials), loss_curve(other)
    if isinstance(one, NoCurve) or isinstance(two, NoCurve):
        assert one == two
        return
    for a, b in ((one.capacity_pps, two.capacity_pps), (one.low_pps, two.low_pps),
                 (one.high_pps, two.high_pps)):  # fmt: skip
        assert a * unit == pytest.approx(b, rel=1e-4)
    assert one.low_pps <= one.capacity_pps <= one.high_pps
    losses = [one.loss_ratio(x) for x in np.linspace(1, 40_000, 50)]
    assert losses == sorted(losses)
    assert all(a <= one.loss_ratio(x) <= b for x in (8e3, 1e4, 2e4) for a, b in [one.band(x)])


def coverage(sut: LossySut, n: int, *, seeds: int, truth: float = 1e4, **how: int) -> float:
    found = [loss_curve(sut.trials(n, Random(f"{seed} {n}"), **how)) for seed in range(seeds)]
    curves = [one for one in found if isinstance(one, LossCurve)]
    assert len(curves) > seeds / 3
    return sum(one.low_pps <= truth <= one.high_pps for one in curves) / len(curves)


@pytest.mark.parametrize("noise", [0.0, 0.02, depth(0.005), depth(0.05)])
@pytest.mark.parametrize("n", [5, depth(15), 30])
def test_the_interval_covers_as_often_as_it_says(noise: float, n: int) -> None:
    """tools/bench_loss_curve.py has the same with 1,000 of each: 93 to 100 %."""
    assert coverage(LossySut(noise=noise), n, seeds=50) >= 0.88


@pytest.mark.parametrize("between", [0.0, depth(0.02), 0.06])
@pytest.mark.parametrize("starts", [2, depth(3), 6])
def test_the_interval_holds_what_starts_differ_by(between: float, starts: int) -> None:
    sut = LossySut(noise=0.02, between_starts=between)
    assert coverage(sut, 5 * starts, seeds=50, starts=starts) >= 0.87


def test_a_fit_starts_no_thread() -> None:
    """A BLAS with a thread per CPU takes ten times as long for it, and CPUs of others."""
    code = """if True:
        import os, math
        from nodrop.stats.loss_curve import Offer, loss_curve
        loads = [(x, max(0.0, 1 - 1e4 / x)) for x in (9e3, 9.9e3, 1.01e4, 1.02e4, 1.03e4, 1.1e4)]
        print(loss_curve([Offer(pps=x, loss_ratio=y, packets=10**5) for x, y in loads]).n)
        print(len(os.listdir("/proc/self/task")))"""
    clean = {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == ["6", "1"]
