"""The fitted loss curve, against known SUTs."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

import pytest

from nodrop.stats.interval import HostCluster
from nodrop.stats.loss_curve import LossCurve, NoCurve, Offer, loss_curve


def offers(capacity: float, loads: list[float], *, start: int = 0) -> list[Offer]:
    """Exactly what a SUT of this capacity loses."""
    return [
        Offer(pps=x, loss_ratio=max(0.0, 1 - capacity / x), packets=100_000, start=start)
        for x in loads
    ]


def curve(found: LossCurve | NoCurve) -> LossCurve:
    assert isinstance(found, LossCurve), found
    return found


def refused(found: LossCurve | NoCurve) -> str:
    assert isinstance(found, NoCurve), found
    return found.why


@pytest.mark.parametrize("hosts", [False, True])
def test_a_curve_rests_on_starts_or_on_hosts(hosts: bool) -> None:
    def of(number: int) -> Hashable:
        return HostCluster(0, f"{number}") if hosts else number

    seen = [
        replace(one, start=of(number))
        for number, capacity in enumerate((100.0, 110.0))
        for one in offers(capacity, [80, 90, 150, 160, 170])
    ]
    found = curve(loss_curve(seen))
    assert (found.starts, found.counted) == (2, "hosts" if hosts else "starts of the SUT")
    more = [replace(one, start=of(2)) for one in offers(1000, [80.0, 90.0])]
    what = "host" if hosts else "start of the SUT"
    assert refused(loss_curve([*seen, *more])).startswith(f"a {what} lost nothing in any trial")


@pytest.mark.parametrize("capacity", [5_000.0, 20_000.0, 50_000.0, 1_234_567.0])
def test_without_noise_the_capacity_is_exact(capacity: float) -> None:
    loads = [capacity * x for x in (0.3, 0.9, 0.999, 1.001, 1.05, 1.4, 3.0)]
    found = curve(loss_curve(offers(capacity, loads)))
    assert found.capacity_pps == pytest.approx(capacity, rel=1e-5)
    assert found.low_pps <= capacity <= found.high_pps
    assert found.high_pps / found.low_pps - 1 < 2e-4, "one packet in 100,000"
    assert (found.n, found.lossy, found.starts) == (7, 4, 1)
    assert found.loss_ratio(capacity * 2) == pytest.approx(0.5, abs=1e-4)
    assert found.loss_ratio(capacity / 2) == 0.0 and found.band(0) == (0.0, 0.0)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.4])
def test_a_constant_share_is_no_capacity(share: float) -> None:
    """In the lab some short trials at low loads may lose none of it."""
    loads = [1e3, 2e3, 4e3, 6e3, 8e3, 12e3]
    same = [Offer(pps=x, loss_ratio=share, packets=50_000) for x in loads]
    assert "every trial lost" in refused(loss_curve(same))
    lucky = [replace(same[0], loss_ratio=0.0), *same[1:]]
    assert "the same share" in refused(loss_curve(lucky))


@pytest.mark.parametrize("power", [-1.0, -0.3, 0.3, 0.6])
def test_a_sut_that_takes_more_or_less_of_a_higher_load_has_no_one_limit(power: float) -> None:
    loads = [8e3, 9e3, 10.5e3, 11e3, 12e3, 14e3, 16e3, 20e3]
    bent = [
        Offer(pps=x, loss_ratio=max(0.0, 1 - (1e4 / x) ** (1 - power)), packets=50_000)
        for x in loads
    ]
    why = refused(loss_curve(bent))
    assert ("less was taken" in why) == (power < 0), why


@pytest.mark.parametrize("lost", [0.2, 0.6, 0.95])
def test_one_wild_trial_is_scatter_and_no_slope(lost: float) -> None:
    usual = offers(1e4, [9e3, 9.5e3, 9.9e3, 1.02e4, 1.021e4, 1.022e4, 1.023e4])
    wild = Offer(pps=1.03e4, loss_ratio=lost, packets=50_000)
    found = curve(loss_curve([*usual, wild]))
    assert found.scatter > curve(loss_curve([*usual, replace(wild, loss_ratio=0.03)])).scatter


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ([0.2, 0.5, 0.9, 0.95, 0.99, 1.0], "no trial lost"),
        ([1.1, 1.2, 1.3, 1.4, 1.5], "every trial lost"),
        ([0.9, 1.1, 1.2, 1.3], "4 trials, and it takes 5"),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2], "2 of the trials lost"),
        ([], "no trial lost"),
    ],
)
def test_too_little_to_fit(loads: list[float], said: str) -> None:
    assert said in refused(loss_curve(offers(1e4, [x * 1e4 for x in loads])))


def test_all_of_a_load_lost_is_no_limit() -> None:
    trials = offers(1e4, [8e3, 9e3, 11e3, 12e3, 13e3])
    assert "all that it was" in refused(loss_curve([*trials, replace(trials[-1], loss_ratio=1.0)]))


@pytest.mark.parametrize("ratio", [1.02, 1.2, 3.0])
def test_starts_that_differ_widen_the_band_and_are_no_misfit(ratio: float) -> None:
    loads = [0.98, 1.02, 1.03, 1.04, 0.99]
    same = [o for s in range(3) for o in offers(1e4, [1e4 * x for x in loads], start=s)]
    differ = [
        o
        for start, capacity in enumerate((1e4 / ratio, 1e4, 1e4 * ratio))
        for o in offers(capacity, [capacity * x for x in loads], start=start)
    ]
    one, other = curve(loss_curve(same)), curve(loss_curve(differ))
    assert other.starts == one.starts == 3
    assert other.capacity_pps == pytest.approx(1e4, rel=1e-4)
    wide = 4.302653 * math.log(ratio) / math.sqrt(3)
    assert math.log(other.high_pps / 1e4) == pytest.approx(wide, rel=1e-2)
    assert one.high_pps / one.low_pps < 1.001


def test_a_start_that_lost_nothing_shows_no_limit() -> None:
    loads = [9e3, 9.9e3, 10.1e3, 10.3e3, 11e3]
    found = loss_curve([*offers(1e4, loads), *offers(1e4, [9e3, 9.5e3], start=1)])
    assert "a start of the SUT lost nothing" in refused(found)
