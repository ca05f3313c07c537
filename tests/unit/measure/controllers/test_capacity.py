"""A search over simulated SUTs ends and finds what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.controller import load_of
from nodrop.capacity.next_load import Ask
from nodrop.capacity.tried import tried
from nodrop.config.search import Search
from nodrop.errors import BadInput
from tests.depth import depth
from tests.simulated_queue import SimulatedQueue
from tests.simulated_sut import (
    METHODS,
    SimulatedSut,
    asked_for,
    cell,
    controller,
    run,
    searched,
    texts,
)


@pytest.mark.parametrize("ring_packets", [5_000, 8_000, 10_000])
def test_the_place_is_that_of_the_next_load_that_lost(ring_packets: int) -> None:
    """A ring holds what is too much of a short trial just above the limit: it loses nothing."""
    found = searched(SimulatedSut(capacity=3.4, ring_packets=ring_packets), relative_width=0.02)
    assert "no loss" in found[0.0].broke
    assert (found[0.0].place, found[0.0].knob) == ("socket ring", "more threads")


@pytest.mark.parametrize("capacity", [1.2, 3.4, 9.0, 25.0])
@pytest.mark.parametrize("ring_packets", [0, 200, 1_000, 4_000, 16_384, 100_000])
def test_a_ring_of_any_size_widens_the_bounds_little(capacity: float, ring_packets: int) -> None:
    """A ring hides an overload until the SUT is seen to be behind, which 1 % never is."""
    sut = SimulatedSut(capacity=capacity, ring_packets=ring_packets, cpu_ratio=1.0)
    trials = {"initial_trial_s": 1.2, "final_trial_s": 1.5, "duration_sum_s": 12.0, "rounds": 1}
    found = searched(sut, relative_width=0.01, goals=(0.0,), **trials)[0.0]
    assert found.lower and 0.995 * capacity <= found.lower.value <= capacity
    assert found.upper and capacity < found.upper.value <= 1.016 * capacity


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget_s": 3.0}, "search.budget_s = 3: one trial alone takes about 7 s"),
        ({"by": "multiplier"}, ""),
    ],
)
def test_what_cannot_be_searched_is_said_in_a_line(settings: dict[str, Any], words: str) -> None:
    if not words:
        controller(Search(**settings))
        return
    with pytest.raises(BadInput, match=words):
        controller(Search(**settings))


@pytest.mark.parametrize("packets", [1, 50])
def test_a_trace_without_a_time_has_no_speed(packets: int) -> None:
    still = replace(cell(), trace_s=0.0, trace_packets=packets)
    with pytest.raises(BadInput, match=r"have one time, so .* no NX"):
        controller(Search(by="speed"), still)
    controller(Search(by="pps"), still)


@pytest.mark.parametrize(
    ("by", "start"),
    [("multiplier", 4.0), ("speed", 0.1), ("speed", 1.0), ("speed", 30.0), ("pps", 40_000.0)],
)
@pytest.mark.parametrize("seconds", [3.0, 5.0])
def test_all_trials_of_a_search_send_the_same_window(by: Any, start: float, seconds: float) -> None:
    """Trials of 3 s and of 5 s sent different parts: 13.04X was fewer packets/s than 12.42X."""
    search = Search(by=by, min=start / 4, max=start * 4)
    made = replace(cell(), trace_s=5.0, trace_packets=8_333)
    for value in (start / 3, start, start * 2.7):
        load = load_of(made, search, Ask(value=value, seconds=seconds))
        once_s = {"pps": made.trace_packets / value, "speed": 5.0 / value}.get(by, 5.0)
        assert "duration_s" not in load and load["loops"] * once_s >= seconds - 0.1 * once_s
        assert load["loops"] == 1 or (load["loops"] - 1) * once_s < seconds


@pytest.mark.parametrize(("trace_s", "loops"), [(5.0, 1), (4.7, 1), (2.0, 3), (1.3, 4), (60.0, 1)])
def test_a_window_is_sent_as_often_as_a_trial_holds_it(trace_s: float, loops: int) -> None:
    made = replace(cell(), trace_s=trace_s)
    for sut in (SimulatedSut(capacity=3.4), SimulatedSut(capacity=30.0)):
        done = run(controller(Search(rounds=1), made, sut="standing"), sut.measure)
        values = {(r.searched.value, r.searched.duration_s) for r in done if not r.searched.ramp}
        loads = [load_of(made, Search(), Ask(value=v, seconds=s)) for v, s in values]
        assert {load["loops"] for load in loads} == {loops}
        flows = {load.get("loop_flows") for load in loads if load["kind"] == "replay"}
        assert flows <= ({"distinct"} if loops > 1 else {None})


@pytest.mark.parametrize("method", METHODS[:2], ids=lambda m: m["method"])
@pytest.mark.parametrize(
    ("by", "least", "most"),
    [("pps", 149.033, 8765.4321), ("speed", 1 / 3, 17.77777), ("multiplier", 0.0123456, 9.87654)],
)
def test_limits_of_many_digits_are_reached_and_kept(
    method: dict[str, Any], by: Any, least: float, most: float
) -> None:
    """Rounded to four digits they lay outside or were never reached: 120 trials of each round."""
    search = Search(by=by, goals=(0.0,), rounds=2, **{**method, "min": least, "max": most})
    for capacity, limit in ((least / 3, "min"), (most * 3, "max")):
        asks = controller(search, cell(load={by: least * 4}), sut="standing")
        done = run(asks, SimulatedSut(capacity=capacity).measure)
        tried = [r.searched.value for r in done if r.searched]
        (found,) = answers(done, search)
        assert found.limited_by == limit and len(done) <= 14, texts(found)
        assert least <= min(tried) and max(tried) <= most


@pytest.mark.parametrize("capacity", [9.0, 14.0, 31.0])
@pytest.mark.parametrize("bursts", [0.3, 0.6, 0.9])
def test_bursts_lose_first_and_mislead_no_search(capacity: float, bursts: float) -> None:
    """The packets served of a high load say too much of the limit: the way down took ten trials."""
    sut = SimulatedSut(capacity=capacity, bursts=bursts)
    search = Search(goals=(0.0,), rounds=1)
    done = run(controller(search, sut="standing"), sut.measure)
    (answer,) = answers(done, search)
    limit = capacity / (1 + bursts)
    assert answer.lower and answer.upper and answer.reached_width
    assert answer.lower.value <= limit * 1.0001 and answer.upper.value >= limit * 0.9999
    assert answer.reached_width <= 0.2 and len(done) <= 18


@pytest.mark.parametrize("most", [0.9, 4.0, 37.5])
def test_what_was_not_to_be_tried_is_not_known(most: float) -> None:
    for answer in searched(SimulatedSut(capacity=300), max=most, rounds=2).values():
        assert (answer.limited_by, answer.upper) == ("max", None)
        assert answer.lower and answer.lower.value == pytest.approx(most)


@pytest.mark.parametrize("share", [0.0002, 0.001, 0.004])
def test_a_constant_share_is_no_capacity_but_a_pdr_above_it_answers(share: float) -> None:
    found = searched(SimulatedSut(capacity=3.4, path_loss=share), rounds=2)
    none, pdr = found[0.0], found[0.005]
    assert (none.limited_by, none.lower, none.place) == ("loss_at_every_load", None, "path")
    assert "is not known: loss at every load, at place path, before it" in texts(none)
    assert pdr.limited_by == "sut" and pdr.place == "socket ring"
    assert pdr.lower and pdr.upper and pdr.lower.value <= 3.42 <= pdr.upper.value * 1.001


@pytest.mark.parametrize("share", [0.001, 0.033])
@pytest.mark.parametrize("duration_sum_s", [2.0, 3.0, 4.5])
def test_goals_that_take_long_leave_time_for_those_behind(
    share: float, duration_sum_s: float
) -> None:
    """Seen in the lab: below a constant loss a search goes down to the least load, and the last
    goal ended where it stood then."""
    trials = {"initial_trial_s": 1.2, "final_trial_s": 1.5, "rounds": 1, "relative_width": 0.1}
    goals = (0.0, 0.001, 0.01, 0.05)
    sut = SimulatedSut(capacity=3.4, path_loss=share)
    found = searched(sut, goals=goals, duration_sum_s=duration_sum_s, **trials)
    ends = {"sut", "min", "loss_at_every_load", "before_sut"}
    assert {answer.limited_by for answer in found.values()} <= ends
    assert found[0.05].lower and found[0.05].upper and found[0.05].upper.value < 3.9


@pytest.mark.parametrize("capacity", [0.002, 0.01, depth(0.05)])
def test_loss_at_the_lowest_load(capacity: float) -> None:
    for answer in searched(SimulatedSut(capacity=capacity), rounds=2).values():
        assert (answer.limited_by, answer.lower, answer.place) == ("min", None, "socket ring")
        assert answer.upper and answer.upper.value == pytest.approx(1 / 16)
        assert "(0.0625X) with" in texts(answer)


@pytest.mark.parametrize("crash", [0.7, 5.0, 20.0])
def test_a_crash_bounds_the_load_in_the_suts_own_words(crash: float) -> None:
    for answer in searched(SimulatedSut(capacity=300, crashes_above=crash)).values():
        assert answer.limited_by == "sut_failed" and "killed by SIGSEGV" in answer.broke
        assert answer.lower and answer.upper
        assert answer.lower.value <= crash <= answer.upper.value <= answer.lower.value * 1.06


@pytest.mark.parametrize("stops", [0.5, 3.0, 20.0])
def test_counters_that_stop_are_no_loss(stops: float) -> None:
    for answer in searched(SimulatedSut(capacity=300, counters_stop_above=stops)).values():
        assert (answer.limited_by, answer.upper) == ("void_above", None)
        assert answer.lower and answer.lower.value <= stops
        assert "every trial above it was void" in texts(answer)


def test_nothing_measured_is_said_so() -> None:
    for answer in searched(SimulatedSut(capacity=3, counters_stop_above=0), rounds=1).values():
        assert (answer.limited_by, answer.lower, answer.upper) == ("nothing_measured", None, None)
        assert "is not known" in texts(answer)


@pytest.mark.parametrize("ring", [256, 4096, 16_384])
def test_a_ring_that_holds_a_trial_carries_nothing(ring: int) -> None:
    found = searched(SimulatedSut(capacity=3.4, ring_packets=ring), relative_width=0.02)[0.0]
    assert found.lower and found.lower.value <= 3.4 * 1.0101
    assert found.upper and found.upper.value >= 3.4


@pytest.mark.parametrize(("fits_times", "good"), [(0.97, False), (1.02, None), (None, None)])
def test_the_hypervisor_excuses_no_ring_that_overflows_without_it(
    fits_times: float | None, good: bool | None
) -> None:
    """Seen: two of five trials lost at a load "that 3 of 3 trials carried"."""
    lossy = SimulatedQueue(rate=5.0, slots=2058).measure(asked_for(1, 5.1, 5.0))
    level = lossy.packets.queue
    assert level and level.lost_packets
    stolen = lossy.model_copy(
        update={
            "steal_ratio": 0.01,
            "lost_beyond_steal_packets": 0,
            "body": lossy.packets.model_copy(
                update={"queue": replace(level, fits_times=fits_times)}
            ),
        }
    )
    assert tried(stolen).good(0.0) is good
