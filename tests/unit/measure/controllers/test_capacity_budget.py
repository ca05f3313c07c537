"""A search keeps its budget, and says before and after what it buys."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.forecast import forecast, forecast_words, likely
from nodrop.config.search import Search
from nodrop.config.units import format_seconds
from nodrop.errors import BadInput
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.simulated_sut import SimulatedSut, cell, controller, run, searched, texts


@pytest.mark.parametrize(
    ("cells", "load", "settings", "least_s"),
    [
        (3, {}, {}, 21.0),
        (1, {"speed": 4.0}, {"by": "speed"}, 17.0),  # a pass over the window takes 15 s
        (2, {"multiplier": 3}, {}, 124.0),
        (2, {"pps": 5200.0}, {"by": "pps", "goals": (0.0,)}, 2 * (100_000 / 5200 + 2)),
        (2, {"pps": 1000.0}, {"by": "pps", "final_trial_s": 8.0}, 204.0),
    ],
)
def test_a_budget_that_has_no_trial_for_a_cell_is_refused(
    cells: int, load: dict[str, Any], settings: dict[str, Any], least_s: float
) -> None:
    """It was accepted, and nothing was measured."""
    trace_s = 60.0 if load else 5.0
    made = [cell(factors={"sut.threads": n + 1}, load=load, trace_s=trace_s) for n in range(cells)]
    with pytest.raises(BadInput, match="one trial alone takes about"):
        controller(Search(budget_s=least_s - 0.1, **settings), *made)
    asks = controller(Search(budget_s=least_s + 0.1, **settings), *made)
    done = run(asks, SimulatedSut(capacity=3.0).measure)
    assert {repr(record.cell) for record in done} == {repr(dict(one.factors)) for one in made}


@pytest.mark.parametrize("budget_s", [None, 300.0, depth(120.0), depth(900.0)])
@pytest.mark.parametrize(("rounds", "cells"), [(1, 1), (3, 1), (2, 3), depth(6, 2)])
def test_the_rest_of_a_search_takes_what_its_outlook_says(
    budget_s: float | None, rounds: int, cells: int
) -> None:
    search = Search(rounds=rounds, budget_s=budget_s, goals=(0.0,))
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    asked = controller(search, *made, sut="standing")
    sut = SimulatedSut(capacity=11.0, noise=0.01)
    done = run(asked, sut.measure)
    for n in range(len(done) + 1):
        seen, rest = asked.outlook(done[:n]), done[n:]
        rest_s = sum(record.took_s or 0.0 for record in rest)
        assert seen.at_least.trials <= len(rest) and seen.at_least.seconds <= rest_s + 0.01
        if seen.at_most is None:
            assert budget_s is None and rest
        else:
            assert len(rest) <= seen.at_most.trials and rest_s <= seen.at_most.seconds + 0.01
    if budget_s is None:
        assert asked.outlook([]).at_least.trials == rounds * cells + 1


@pytest.mark.parametrize(
    ("budget_s", "rounds", "cells", "width"),
    [
        (30.0, 3, 1, None), (60.0, 3, 2, None), (80.0, 1, 1, 0.05), (200.0, 3, 1, 0.05),
        (300.0, 3, 2, 0.05), depth(900.0, 6, 3, 0.05),
    ],
)  # fmt: skip
def test_a_budget_says_before_what_it_buys(
    budget_s: float, rounds: int, cells: int, width: float | None
) -> None:
    search = Search(budget_s=budget_s, rounds=rounds, goals=(0.0,))
    foreseen = forecast(search, cells=cells, around_s=2.0, decides_s=5.0)
    words = forecast_words(foreseen, search, decides_s=5.0)
    assert foreseen is not None and foreseen.relative_width == width
    assert ("far bounds" in words) == (width is None)
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    done = run(
        controller(search, *made, sut="standing"), SimulatedSut(capacity=11, noise=0.01).measure
    )
    bought = len(done) / cells
    assert 0.5 * foreseen.trials <= bought <= 2 * foreseen.trials + 1
    for found in answers(done, search):
        if width is not None:
            assert f"bounds about {100 * width:g} % apart" in words
            assert found.reached_width is not None and found.reached_width <= width * 1.4


@pytest.mark.parametrize(("capacity", "cells", "rounds"), [(11.0, 1, 3), (5.3, 2, 3), (29.0, 1, 1)])
def test_a_search_without_a_budget_says_how_long_it_is_likely_to_take(
    capacity: float, cells: int, rounds: int
) -> None:
    search = Search(rounds=rounds, goals=(0.0,))
    expected = likely(search, cells=cells, around_s=2.0, load_s=5.0)
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    sut = SimulatedSut(capacity=capacity, noise=0.01)
    done = run(controller(search, *made, sut="standing"), sut.measure)
    took_s = sum(record.took_s or 0.0 for record in done)
    assert expected is not None
    trials, seconds = expected
    assert 0.6 * trials <= len(done) <= 1.7 * trials
    assert 0.5 * seconds <= took_s <= 2 * seconds
    assert likely(Search(budget_s=90.0), cells=1, around_s=2.0, load_s=5.0) is None
    assert (
        likely(Search(method="bisection", min=1.0, max=9.0), cells=1, around_s=2.0, load_s=5.0)
        is None
    )


def test_without_a_budget_nothing_is_foreseen() -> None:
    assert forecast(Search(), cells=1, around_s=2.0, decides_s=5.0) is None
    assert forecast_words(None, Search(), decides_s=5.0) == ""


@pytest.mark.parametrize(
    ("budget_s", "window_s", "trials", "ramp"),
    [(90.0, 60.0, 1, False), (400.0, 60.0, 6, True), (95.0, 20.0, 4, False)],
)
def test_a_budget_has_room_for_whole_passes_only(
    budget_s: float, window_s: float, trials: int, *, ramp: bool
) -> None:
    """Seen: "about 8 trials" of a trace of 60 s in 90 s, where one trial took them."""
    search = Search(budget_s=budget_s)
    foreseen = forecast(search, cells=1, around_s=2.0, decides_s=window_s)
    assert foreseen is not None and foreseen.trials == trials
    words = forecast_words(foreseen, search, decides_s=window_s)
    assert f"one pass over the window takes {format_seconds(window_s)}: " in words
    first = controller(search, cell(trace_s=window_s), sut="standing").next(())
    assert first is not None and first.searched is not None
    assert (first.searched.ramp is not None) == ramp


@pytest.mark.parametrize("bursts", [0.4, 0.7, 0.9])
@pytest.mark.parametrize("budget_s", [90.0, 120.0, 150.0])
def test_a_round_that_the_budget_cut_is_no_spread_between_rounds(
    bursts: float, budget_s: float
) -> None:
    """Its lower bound was told as what that start of the SUT carries: "1X to 7.8X"."""
    sut = SimulatedSut(capacity=14.0, bursts=bursts)
    for answer in searched(sut, budget_s=budget_s).values():
        if answer.between is not None:
            assert answer.between.lowest >= 0.75 * 14 / (1 + bursts)
            assert answer.upper or answer.limited_by == "budget"
        if not answer.cut_rounds:
            assert answer.upper, texts(answer)
        assert answer.between or answer.cut_rounds or answer.limited_by == "budget", texts(answer)


@pytest.mark.parametrize("budget_s", [125.0, 250.0, depth(100.0), depth(150.0)])
@pytest.mark.parametrize(
    ("capacity", "spikes"),
    [(14.5, (0.01, 2.2)), (14.5, (0.02, 3.0)), (9.0, (0.005, 1.5)), (31.0, (0.05, 1.9))],
)
def test_rare_spikes_leave_an_answer_within_the_budget(
    capacity: float, spikes: tuple[float, float], budget_s: float
) -> None:
    """Seen: 4X carried, 7.9X lost 0.45 %, 14X 2.3 %, and "none found" after 150 s: each round went
    down a percent at a time from what 14X was served, and those trials outvoted the one at 7.9X."""
    sut = SimulatedSut(capacity=capacity, spikes=spikes, noise=0.01, cpu_ratio=0.9)
    search = Search(goals=(0.0, 0.005), rounds=3, budget_s=budget_s)
    done = run(controller(search, sut="standing"), sut.measure)
    answer = answers(done, search)[0]
    limit = capacity / spikes[1]
    assert answer.lower and answer.upper and answer.limited_by == "sut"
    assert answer.lower.value <= limit * 1.0001
    assert limit * 0.96 <= answer.upper.value <= limit * 1.3
    assert answer.lower.value >= limit * (0.8 if budget_s < 200 else 0.92)


@pytest.mark.parametrize("most", [5.0, 30.0, 90.0, 400.0])
@pytest.mark.parametrize("budget_s", [80.0, 100.0, 200.0])
def test_a_budget_that_ends_below_the_senders_limit_keeps_what_was_carried(
    most: float, budget_s: float
) -> None:
    """Loads that only looked carried were forgotten, and the next round began at the least."""
    sut = SimulatedSut(capacity=3000, sender_most=most)
    for answer in searched(sut, budget_s=budget_s, rounds=3).values():
        assert answer.lower and answer.lower.value >= most / 8, texts(answer)


@pytest.mark.parametrize(("most", "seldom"), [(12.0, 8.0), (30.0, 16.0), (150.0, 110.0)])
def test_a_sender_that_is_seldom_in_time_is_the_limit(most: float, seldom: float) -> None:
    """Seen on realmix: 17 of 19 trials void, one of six at 10X was in time, and the search ended
    with one trial of what was carried, and as if its budget were to blame."""
    names = list[str]()
    for seed in range(12):
        sut = SimulatedSut(
            capacity=3000, sender_most=most, sender_seldom=seldom, random=Random(seed)
        )
        answer = searched(sut, budget_s=200.0, rounds=3)[0.0]
        assert answer.lower is not None and answer.confidence is not None
        assert seldom / 2 < answer.lower.value <= most and answer.upper is None
        names.append(f"{answer.limited_by} {answer.confidence.level}")
    assert names.count("generator fair") >= 10, names


@pytest.mark.parametrize(("capacity", "start"), [(0.001, 8), (0.001, 20), (0.002, 64)])
def test_the_least_that_was_tried_is_that_of_all_rounds(capacity: float, start: int) -> None:
    """It was that of the first round, though a later one had lost packets of less."""
    search = Search(budget_s=18, rounds=3, max=start)
    asks = controller(search, cell(load={"multiplier": start}), sut="standing")
    done = run(asks, SimulatedSut(capacity=capacity).measure)
    least = min(r.searched.value for r in done if r.searched and r.searched.ramp is None)
    for answer in answers(done, search):
        assert "the least that was tried" in texts(answer)
        assert answer.lower is None and answer.upper and answer.upper.value == least


@pytest.mark.parametrize(
    ("start", "most", "budget_s"),
    [(64, 9.0, 70.0), (64, 6.0, 90.0), (100, 14.0, 90.0), (100, 20.0, 70.0)],
)
def test_a_round_after_void_ones_looks_far_below(start: int, most: float, budget_s: float) -> None:
    """It began at three quarters of a load of which nothing was measured, and the budget ended
    before one was."""
    search = Search(budget_s=budget_s, rounds=3, max=start)
    asks = controller(search, cell(load={"multiplier": start}), sut="standing")
    for answer in answers(run(asks, SimulatedSut(capacity=300, sender_most=most).measure), search):
        assert answer.lower and most / 3 < answer.lower.value <= most, texts(answer)


@pytest.mark.parametrize(("budget_s", "rounds"), [(18.0, 3), (21.0, 3), (21.5, 4)])
def test_a_later_round_goes_on_where_the_budget_ended_an_earlier_one(
    budget_s: float, rounds: int
) -> None:
    """It tried the same load again, three times in all."""
    search = Search(budget_s=budget_s, rounds=rounds)
    done = run(controller(search, sut="standing"), SimulatedSut(capacity=23.0).measure)
    tried = [r.searched.value for r in done if r.searched]
    assert tried == sorted(tried) and len({*tried}) >= 3


@pytest.mark.parametrize("capacity", [5.5, 14.0, 23.6])
@pytest.mark.parametrize("budget_s", [36.5, 39.0])
def test_two_thirds_of_a_minute_find_both_bounds(budget_s: float, capacity: float) -> None:
    """It doubled its load up to 8X: "at least", of a SUT that carried 23X."""
    for answer in searched(SimulatedSut(capacity=capacity), budget_s=budget_s).values():
        assert answer.upper and answer.lower and answer.lower.value > capacity / 2, texts(answer)


@pytest.mark.parametrize("budget_s", [8.0, 10.0, 11.5])
def test_a_budget_that_ends_on_the_way_down_is_not_the_least_load(budget_s: float) -> None:
    for answer in searched(SimulatedSut(capacity=0.1), rounds=1, budget_s=budget_s).values():
        assert answer.limited_by == "budget" and answer.lower is None
        assert answer.upper and answer.upper.value > 1 / 16
        words = f"({answer.upper.value:g}X) without loss, the least that was tried"
        assert answer.goal or f"{words}: the budget ended the search" in texts(answer)


@pytest.mark.parametrize("budget_s", [40.0, 100.0, 200.0])
def test_a_budget_is_kept_and_what_it_bought_is_said(budget_s: float) -> None:
    search = Search(budget_s=budget_s, rounds=5)
    done = run(controller(search), SimulatedSut(capacity=11.0).measure)
    assert sum(record.took_s or 0.0 for record in done) <= budget_s
    for answer in answers(done, search):
        assert "of 5 rounds complete" in texts(answer) or len(answer.rounds) == 5
        assert answer.lower is not None


@pytest.mark.parametrize(
    ("budget_s", "rounds", "cells", "start_s", "least"),
    [
        (150.0, 3, 1, 25.0, 6),
        (150.0, 6, 1, 25.0, 6),
        (330.0, 3, 2, 25.0, 10),
        (100.0, 6, 1, 8.0, 7),
    ],
)
def test_a_start_of_the_sut_is_not_expected_of_trials_that_need_none(
    budget_s: float, rounds: int, cells: int, start_s: float, least: int
) -> None:
    """The mean of both was: too long for most trials, and half of the budget was left."""
    search = Search(budget_s=budget_s, rounds=rounds, goals=(0.0,))
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    sut = SimulatedSut(capacity=11.0, noise=0.01)

    def measure(trial: TrialInput) -> TrialRecord:
        record = sut.measure(trial)
        waits_s = start_s * trial.cell.get("sut.threads", 1) if trial.new_world else 0.0
        return record.model_copy(update={"took_s": (record.took_s or 0.0) + waits_s})

    done = run(controller(search, *made, sut="standing"), measure)
    assert len(done) >= least
    assert sum(record.took_s or 0.0 for record in done) <= budget_s


@pytest.mark.parametrize(("budget_s", "capacity"), [(15.0, 90.0), (25.0, 300.0), (40.0, 300.0)])
def test_a_trial_that_lasts_as_long_as_one_that_decides_decides(
    budget_s: float, capacity: float
) -> None:
    """Seen of a window of 5 s: 6.3X and 7.2X lost nothing, and the answer was 1X: as trials of one
    second they decided nothing, though each had sent the whole window."""
    search = Search(budget_s=budget_s, goals=(0.0,))
    sut = SimulatedSut(capacity=capacity)
    done = run(controller(search, cell(trace_s=5.0), sut="standing"), sut.measure)
    clean = [r.searched.value for r in done if r.searched and r.packets.lost_packets == 0]
    (found,) = answers(done, search)
    assert found.lower is not None and found.lower.value == max(v for v in clean if v < capacity)
