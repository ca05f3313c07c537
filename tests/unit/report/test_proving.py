"""Effects of knobs in simulated worlds: where they are put in, they are found; nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

from nodrop.compare.proving import BASE, effects, helping, lines, proved, together, told
from nodrop.compare.records import Repeats, SideCell
from nodrop.measure.controllers.blocks import LOOKS
from nodrop.report import comparison
from nodrop.results.proved import Effect
from nodrop.stats.comparison import Advice
from tests.depth import depth

METRIC = "cpu_us_per_packet"
MOST = 50
PUT_IN = {"nothing": 0.0, "little": 0.05, "much": -0.2}
"""Knob → what it does to the cost of a packet."""
TOGETHER_PUT_IN = -0.05
"""Two knobs of −20 % each, at once: they get into each other's way."""
LEVEL = 10.0
WORLDS: dict[str, Callable[[random.Random], float]] = {
    "narrow": lambda some: some.gauss(1, 0.02),
    "wide": lambda some: some.gauss(1, 0.08),
    "bursts of a neighbour": lambda some: some.gauss(1, 0.02) + 0.3 * (some.random() < 0.15),
    "drift": lambda some: some.gauss(1, 0.02) + some.uniform(0, 0.1),
}


def cell(values: list[float], *, void: int = 0) -> SideCell:
    figures = {METRIC: Repeats(values=values, starts=[*range(len(values))])} if values else {}
    return SideCell(factors={}, label="", figures=figures, failed=0, void=void)


def measured(
    some: random.Random, world: Callable[[random.Random], float], put_in: dict[str, float]
) -> list[Effect]:
    """Looks as the command does, until it can tell of each knob."""
    drawn = {name: [LEVEL * (1 + by) * world(some) for _ in range(MOST)]
             for name, by in {BASE: 0.0, **put_in}.items()}  # fmt: skip
    found: list[Effect] = []
    for look, n in enumerate((*LOOKS[:3], MOST)):
        found = effects({name: cell(values[:n]) for name, values in drawn.items()}, METRIC, look)
        if told(found):
            break
    return found


@cache
def true_median(world: str) -> float:
    some = random.Random(7)
    return sorted(WORLDS[world](some) for _ in range(20_001))[10_000]


def true_shift(world: str, by: float) -> float:
    """Difference of the true medians."""
    return LEVEL * by * true_median(world)


@pytest.mark.parametrize("world", ["narrow", *map(depth, [w for w in WORLDS if w != "narrow"])])
def test_effects_are_inside_their_intervals_and_false_alarms_are_few(
    world: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(comparison, "more_runs", lambda *_: Advice(more_runs=None))
    runs = 200 if request.node.get_closest_marker("depth") else 40
    some, draw = random.Random(world), WORLDS[world]
    inside = alarms = said = 0
    for _ in range(runs):
        for one in measured(some, draw, PUT_IN):
            assert one.interval is not None
            low, high = one.interval
            said += 1
            inside += low <= true_shift(world, PUT_IN[one.knob]) <= high
            alarms += one.knob == "nothing" and one.state in ("helps", "makes it worse")
    assert inside >= 0.94 * said
    assert alarms <= 0.05 * runs


@pytest.mark.parametrize("world", ["narrow", depth("bursts of a neighbour")])
def test_an_interaction_is_inside_its_interval_and_none_is_made_up(
    world: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(comparison, "more_runs", lambda *_: Advice(more_runs=None))
    runs = 200 if request.node.get_closest_marker("depth") else 20
    some, draw = random.Random(world), WORLDS[world]
    found = {"interaction": 0, "sum": 0}
    inside = helped = 0
    for _ in range(runs):
        alone = measured(some, draw, {"one": -0.2, "other": -0.2})
        helped += helping(alone) == ["one", "other"]
        for kind, by in (("interaction", TOGETHER_PUT_IN), ("sum", -0.4)):
            (effect,) = measured(some, draw, {"one + other": by})
            both = together(alone, effect)
            assert both.beyond is not None
            low, high = both.beyond
            inside += low <= true_shift(world, by) - true_shift(world, -0.4) <= high
            found[kind] += not low <= 0 <= high
    assert inside >= 0.94 * 2 * runs
    assert found["sum"] <= 0.05 * runs
    assert helped >= 0.9 * runs
    assert world != "narrow" or found["interaction"] >= 0.9 * runs


def test_the_larger_effect_is_found_with_its_sign() -> None:
    found = {one.knob: one for one in measured(random.Random(3), WORLDS["narrow"], PUT_IN)}
    assert found["much"].state == "helps"
    assert found["little"].state == "makes it worse"
    low, high = found["much"].relative or (0, 0)
    assert low <= -0.2 <= high < 0


def test_trials_that_are_all_void_say_nothing_and_are_named() -> None:
    cells = {BASE: cell([10.0] * 12), "gro=on": cell([], void=12), "rps=1": cell([8.0] * 12)}
    found = effects(cells, METRIC, 0)
    assert [(one.knob, one.state) for one in found] == [
        ("gro=on", "cannot tell yet"),
        ("rps=1", "helps"),
    ]
    answer = proved(found, None, ["report: here"])
    assert answer.exit_code == 6
    assert [*lines(answer)] == [
        "gro=on: cannot tell yet: all of its trials are void; `nodrop report` says why",
        "rps=1: helps: cpu_us_per_packet -2 [-2, -2] µs, -20 to -20 % of 10 (n = 12 and 12)",
        "report: here",
    ]


def test_less_cpu_by_losing_packets_is_no_help() -> None:
    def losing(cpu: float, loss: float) -> SideCell:
        figures = {name: Repeats(values=[value] * 12, starts=[*range(12)])
                   for name, value in ((METRIC, cpu), ("loss_pct", loss))}  # fmt: skip
        return SideCell(factors={}, label="", figures=figures, failed=0, void=0)

    (found,) = effects({BASE: losing(10.0, 0.0), "rps=1": losing(8.0, 2.5)}, METRIC, 0)
    assert found.state == "makes it worse"
    assert found.words.startswith("it loses packets: loss different by [+2.5")
    (found,) = effects({BASE: losing(10.0, 0.0), "rps=1": losing(8.0, 0.0)}, METRIC, 0)
    assert found.state == "helps"


def test_a_loss_in_more_trials_is_said_by_their_number() -> None:
    def losing(many: int) -> SideCell:
        values = [2.0 * (n < many) for n in range(24)]
        figures = {"loss_pct": Repeats(values=values, starts=[*range(24)])}
        return SideCell(factors={}, label="", figures=figures, failed=0, void=0)

    (found,) = effects({BASE: losing(1), "rps=1": losing(13)}, "loss_pct", 0)
    assert [*lines(proved([found], None, []))] == [
        "rps=1: makes it worse: loss_pct different: 13 of 24 runs lose, in the base 1 of 24"
    ]


def test_a_knob_with_which_the_sut_fails_does_not_help() -> None:
    def failing(share: float) -> SideCell:
        values = [100.0 * (n < share * 40) for n in range(40)]
        figures = {
            METRIC: Repeats(values=[8.0 if share else 10.0] * 40, starts=[*range(40)]),
            "failed_pct": Repeats(values=values, starts=[*range(40)]),
        }
        return SideCell(factors={}, label="", figures=figures, failed=0, void=0)

    (found,) = effects({BASE: failing(0), "mpm=new": failing(0.9)}, METRIC, None)
    assert (found.state, found.words) == ("makes it worse", "the SUT fails with it")


@pytest.mark.parametrize("trials", [3, 4])
def test_what_cannot_be_told_is_said_once(trials: int) -> None:
    cells = {BASE: cell([10.0] * trials), "rps=1": cell([8.0] * trials)}
    (found,) = effects(cells, METRIC, 0)
    (said,) = lines(proved([found], None, []))
    assert said.startswith("rps=1: cannot tell yet (") and said.count("cannot tell") == 1
