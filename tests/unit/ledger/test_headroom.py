"""Forecast of what fits, from spells of looks at made queues."""

from __future__ import annotations

from random import Random

import pytest

from nodrop.ledger.headroom import ForecastSense, Headroom, headroom, spell_of
from nodrop.ledger.twin import Queue, Refusal, TwinRefusal
from tests.made import queues

SLOTS = 256


def costly(at: float) -> float:
    """30 µs; for 20 ms of the trace 400."""
    return 400e-6 if 0.8 <= at < 0.82 else 30e-6


def packets(pps: float, seconds: float = 1.0) -> list[float]:
    random = Random(7)
    found, at = [], 0.0
    while (at := at + random.expovariate(pps)) < seconds:
        found.append(at)
    return found


def made(times: int, slots: int = SLOTS, pps: float = 1000.0, cost: queues.Cost = costly) -> Queue:
    return queues.queue(queues.arrivals(packets(pps), cost, times), slots, every_ms=4.0)


def limit(slots: int) -> int:
    """Highest load that a queue packet by packet holds."""
    fits = (n for n in range(1, 64) if queues.highest(packets(1000.0), costly, n + 1) > slots)
    return next(fits)


def said(*spells: Queue) -> Headroom:
    found = headroom([spell_of(n, [queue]) for n, queue in enumerate(spells)])
    assert isinstance(found, Headroom), found
    return found


def test_half_of_the_limit_forecasts_it_and_a_larger_ring() -> None:
    true, times = limit(SLOTS), limit(SLOTS) // 2
    found = said(made(times))
    assert found.bound is ForecastSense.ABOUT
    assert found.times * times == pytest.approx(true, rel=0.1)
    assert found.larger_slots == 65_536 and found.larger_times is not None
    assert found.larger_times > found.times


def test_quiet_spells_do_not_raise_the_forecast_of_the_busiest() -> None:
    times = limit(SLOTS) // 2
    alone, beside = said(made(times)), said(*[made(times // 3)] * 4, made(times))
    assert beside.times == pytest.approx(alone.times, rel=0.01) and beside.spells == 1


def test_spells_nearly_as_busy_are_put_on_the_scale_of_the_busiest() -> None:
    true = limit(1024)
    times = true - 3
    found = said(made(times, 1024), *[made(times - 1, 1024)] * 2)
    assert found.spells == 3
    assert found.times * times == pytest.approx(true, rel=0.1)


def test_a_ring_that_lost_is_beyond_its_limit() -> None:
    true = limit(SLOTS)
    found = said(made(2 * true))
    assert found.times == pytest.approx(0.5, rel=0.15)


def test_where_nothing_waits_the_reader_bounds_it_from_below() -> None:
    idle = made(1, slots=1024, cost=lambda _: 30e-6)
    found = said(idle)
    assert found.bound is ForecastSense.AT_LEAST and found.larger_times is None
    busy = max(one.ran_ns / (one.end_ns - one.begin_ns) for one in idle.reader)
    assert 1 < found.times < 1 / busy
    half = said(made(1, slots=512, cost=lambda _: 30e-6))
    assert half.times == pytest.approx(found.times / 2), "all that comes in two readings fits"


def test_without_a_reader_and_a_queue_there_is_no_forecast() -> None:
    idle = made(1, cost=lambda _: 30e-6)
    alone = Queue(slots=SLOTS, looks=idle.looks)
    found = headroom([spell_of(0, [alone])])
    assert isinstance(found, Refusal) and found.reason is TwinRefusal.NO_QUEUE
