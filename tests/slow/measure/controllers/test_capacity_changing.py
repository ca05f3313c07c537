"""SUTs that change, lose now and then, or are disturbed: no sentence stronger than its evidence.

tools/bench_answers.py has the same worlds, and many more searches of each.
"""

from __future__ import annotations

from random import Random

import pytest

from nodrop.capacity.answering import answers
from nodrop.config.search import Search
from tests.depth import depth
from tests.simulated_sut import SimulatedSut, controller, run, searched, texts
from tests.simulated_worlds import WORLDS, searched_world


@pytest.mark.parametrize("seeds", [range(1, 3), range(101, 103), depth(range(103, 107))], ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_no_answer_without_loss_is_false_and_none_is_above_the_partial_drop_rate(
    world: str, seeds: range
) -> None:
    """Before: 30 to 60 of 60 false in worlds that slow or step, 7 of 60 inverted under thefts."""
    found = [searched_world(WORLDS[world], seed) for seed in seeds]
    assert [one.seed for one in found if one.inverted] == []
    assert sum(one.is_false for one in found) <= (world == "two modes of its starts")


@pytest.mark.parametrize(("after", "left"), [(3, 0.5), (5, 0.7), (4, 0.4)])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_step_within_a_round_is_said_and_the_last_trials_count(
    after: int, left: float, rounds: int
) -> None:
    """Seen: half its speed after trial 8, 21 trials that lost 51 %, "carries 9.836X"."""
    sut = SimulatedSut(capacity=10.0, drift=lambda index: left if index > after else 1.0)
    for found in searched(sut, rounds=rounds).values():
        assert found.lower and found.upper, texts(found)
        assert 10 * left * 0.93 <= found.lower.value <= 10 * left < found.upper.value
        rules = {statement.code for statement in found.findings}
        said = {"capacity-changed", "capacity-rounds-differ", "capacity-contradicted"}
        assert rules & said, texts(found)


@pytest.mark.parametrize("slower", [0.03, 0.01, 0.02])
@pytest.mark.parametrize("capacity", [9.0, 31.0])
def test_a_sut_that_slows_all_the_time_is_not_said_to_carry_what_it_did(
    slower: float, capacity: float
) -> None:
    """Seen: 3 % slower per trial, "3 rounds carried 8.32X to 8.32X", each ended serving 4.3X."""
    sut = SimulatedSut(capacity=capacity, drift=lambda index: (1 - slower) ** index)
    for found in searched(sut).values():
        last = capacity * (1 - slower) ** found.trials
        assert found.lower is None or found.lower.value <= last * (1 + 2 * slower), texts(found)


@pytest.mark.parametrize("capacity", [3.0, 12.0, 40.0])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_steady_sut_is_not_said_to_change_and_costs_few_trials_more(
    capacity: float, noise: float
) -> None:
    """A method of rounds took 23 trials in the mean of 60 quiet SUTs."""
    found = searched(SimulatedSut(capacity=capacity, noise=noise))[0.0]
    rules = {statement.code for statement in found.findings}
    assert not rules & {"capacity-changed", "capacity-set-aside"}, texts(found)
    assert found.trials <= (10 if noise == 0 else 16)


@pytest.mark.parametrize(("share", "loses"), [(0.2, 0.4), depth(0.3, 0.1)])
def test_how_often_the_load_loses_is_part_of_the_answer(share: float, loses: float) -> None:
    """Seen: it loses 40 % in one run of five, and no hint in 19 of 60 searches."""
    bounds = []
    for capacity in (5.0, 9.0, 14.0, 23.0, 36.0, 50.0):
        found = searched(SimulatedSut(capacity=capacity, drops=(share, loses)))[0.0]
        if found.missed is None:
            continue
        assert f"{found.missed.missed} of {found.missed.trials} trial" in texts(found)
        bounds.append(found.missed.share_at_most)
    assert len(bounds) >= 5 and sum(bound >= share for bound in bounds) >= len(bounds) - 1


@pytest.mark.parametrize("steals", [0.3, 0.6])
def test_a_loss_that_the_hypervisor_explains_is_named_with_its_rule(steals: float) -> None:
    """Seen: a measured loss at 8.8X was missing from "the lowest at 12.42X"."""
    sut = SimulatedSut(capacity=12.0, noise=0.01, thefts_per_s=steals)
    search = Search(goals=(0.0,))
    done = run(controller(search, sut="standing"), sut.measure)
    (found,) = answers(done, search)
    lossy = [(r.searched.value, r.run) for r in done if r.searched and r.packets.lost_packets]
    said = next(s for s in found.findings if s.code == "capacity-set-aside")
    assert "while the hypervisor had the CPU" in said.text
    named = {run for s in found.findings if "the lowest" in s.text for run in s.trials}
    assert min(lossy)[1] in named


@pytest.mark.parametrize("seeds", [range(2), depth(range(2, 12))], ids=str)
@pytest.mark.parametrize(("budget_s", "rounds"), [(None, 3), (90.0, 3), (None, 1)])
@pytest.mark.parametrize("goals", [(0.0, 0.005), (0.02, 0.0, 0.001)])
def test_what_loses_nothing_loses_at_most_what_is_tolerated(
    budget_s: float | None, rounds: int, goals: tuple[float, ...], seeds: range
) -> None:
    """Seen: "9.012X without loss", "8.534X with at most 0.50 % lost", in 5 of 40 under thefts."""
    for seed in seeds:
        sut = SimulatedSut(
            capacity=9.0 + seed,
            noise=0.02,
            thefts_per_s=0.3,
            random=Random(seed),
            drops=(0.1, 0.003),
        )
        found = searched(sut, goals=goals, rounds=rounds, budget_s=budget_s)
        assert [*found] == [*goals]
        carried = [found[goal].lower for goal in sorted(goals)]
        values = [0.0 if bound is None else bound.value for bound in carried]
        assert values == sorted(values), (seed, values)
