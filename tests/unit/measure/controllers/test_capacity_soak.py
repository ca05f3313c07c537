"""After the search, a long trial at the load that is carried: it decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.controller import load_of
from nodrop.capacity.forecast import soak_words
from nodrop.capacity.next_load import Ask
from nodrop.config.search import Search
from tests.simulated_sut import SimulatedSut, cell, controller, run


@pytest.mark.parametrize(("capacity", "soak_s", "loops"), [(3.4, 300.0, 60), (11.0, 62.0, 13)])
@pytest.mark.parametrize("settings", [{"budget_s": 200.0}, {"rounds": 1}])
def test_each_cell_is_soaked_once_at_what_it_carries(
    capacity: float, soak_s: float, loops: int, settings: dict[str, Any]
) -> None:
    made = [cell(factors={"sut.threads": n + 1}, trace_s=5.0) for n in range(2)]
    sut = SimulatedSut(capacity=capacity)
    plain = run(controller(Search(**settings), *made, sut="standing"), sut.measure)
    search = Search(soak_s=soak_s, **settings)
    asks = controller(search, *made, sut="standing")
    done = run(asks, sut.measure)
    soaks = [r for r in done if r.searched and r.searched.soak]
    assert done[-2:] == soaks and len(done) == len(plain) + 2
    assert asks.next(done) is None and asks.outlook(done).at_least.trials == 0
    for one, same in zip(answers(done, search), answers(plain, Search(**settings)), strict=True):
        assert (one.lower, one.upper, one.trials) == (same.lower, same.upper, same.trials)
    for soak in soaks:
        (answer, *_) = answers([r for r in done if r.cell == soak.cell], search)
        assert soak.searched and answer.lower and soak.searched.value == answer.lower.value
        ask = Ask(value=soak.searched.value, seconds=soak_s, soak=True)
        load = load_of(made[0], search, ask)
        assert (load["loops"], load["loop_flows"]) == (loops, "distinct")
    # The next trial is this one, and known to be as long.
    assert asks.outlook(done[:-2]).next_s >= soak_s
    assert asks.next(done[:-2]).new_world


def test_what_carries_nothing_is_not_soaked() -> None:
    search = Search(soak_s=60.0, rounds=1, min=1.0)
    done = run(controller(search, sut="standing"), SimulatedSut(capacity=0.1).measure)
    assert done and not any(r.searched and r.searched.soak for r in done)


def test_a_plan_says_how_long_it_takes() -> None:
    assert soak_words(Search(), 1) == ""
    said = soak_words(Search(soak_s=300.0, budget_s=90.0), 3)
    assert "300 s more for each of 3 cells" in said and "beside its budget" in said
