"""A search by detections ends with the load that the goal allows, whatever packets it loses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.controller import load_of
from nodrop.capacity.next_load import Ask
from nodrop.capacity.search_answer import Answer
from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.measure.controllers.blocks import AskedCell
from tests.simulated_sut import METHODS, SimulatedSut, cell, controller, run, texts

ASKED: dict[str, Any] = {"goals_of": "detections", "rounds": 1}


def found(sut: SimulatedSut, **settings: Any) -> Answer:
    search = Search(**{**ASKED, **settings})
    asked = controller(search, cell(trace_s=60.0))
    return answers(run(asked, sut.measure), search)[0]


KNOWN: dict[str, tuple[Callable[[float, float], float], float]] = {
    "packets cost more": (lambda load, loss: min(1.0, 3 * loss), 1 / (1 - 0.01 / 3)),
    "packets cost nothing at first": (lambda load, loss: max(0.0, loss - 0.1), 1 / (1 - 0.11)),
    "no packet is lost": (lambda load, loss: 0.05 if load > 4.0 else 0.0, 4.0 / 7.0),
}
"""Cost of packets; load at which 1 % of detections are missed, as parts of the capacity."""


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m["method"])
@pytest.mark.parametrize("by", ["multiplier", "speed"])
@pytest.mark.parametrize("kind", KNOWN)
def test_finds_the_load_at_which_the_goal_is_missed(
    kind: str, by: str, method: dict[str, Any]
) -> None:
    if method["method"] == "mlrsearch":
        pytest.importorskip("MLRsearch")
    misses, part = KNOWN[kind]
    sut = SimulatedSut(capacity=7.0, misses=misses)
    short = {} if method["method"] == "nodrop" else {"duration_sum_s": 5.0}
    one = found(sut, by=by, relative_width=0.02, **short, **method)
    assert one.lower and one.upper and one.goals_of == "detections"
    assert one.lower.value <= 7.0 * part * 1.0001 and one.upper.value >= 7.0 * part * 0.9999
    assert one.reached_width is not None and one.reached_width <= 0.05
    assert "with at most 1.00 % of detections missed" in one.findings[0].text


@pytest.mark.parametrize(("noise", "seed"), [(0.02, 1), (0.1, 2)])
def test_noise_widens_the_answer_and_never_turns_it(noise: float, seed: int) -> None:
    misses, part = KNOWN["packets cost nothing at first"]
    one = found(SimulatedSut(capacity=7.0, noise=noise, misses=misses), rounds=3)
    assert one.lower and 7.0 * part * (1 - 3 * noise) <= one.lower.value <= 7.0 * part * 1.0001


@pytest.mark.parametrize(
    "given", [{}, {"by": "speed"}, {"by": "speed", "load": {"speed": 2.0}}, {"by": "pps"}]
)
def test_each_trial_sends_the_window_once_to_a_sut_of_its_own(given: dict[str, Any]) -> None:
    search = Search(**ASKED, by=given.get("by", "multiplier"))
    asked = controller(search, cell(trace_s=60.0, load=given.get("load", {})))
    done = run(asked, SimulatedSut(capacity=9000.0 if search.by == "pps" else 7.0).measure)
    first = asked.next(())
    assert first and first.searched and first.searched.ramp is None
    begins = {"speed": given.get("load", {}).get("speed", 3.0), "multiplier": 1.0, "pps": 5000.0}
    assert first.searched.value == begins[search.by]
    sent = load_of(asked._asked.cells[0], search, Ask(value=7.0, seconds=5.0))
    assert not {"loops", "duration_s", "loop_flows"} & {*sent} and sent[search.by] == 7.0
    assert {r.searched.duration_s for r in done if r.searched} == {search.final_trial_s}


def test_too_few_detections_end_it_with_the_reason() -> None:
    search = Search(**ASKED)
    done = run(
        controller(search, cell(trace_s=60.0)),
        SimulatedSut(capacity=7.0, misses=lambda load, loss: None).measure,
    )
    (one,) = answers(done, search)
    assert len(done) == 1 and one.lower is None and one.limited_by == "not_judged"
    assert "5 expected units are fewer than 20" in texts(one)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"soak_s": 60.0}, "soak_s: sends the window again and again"),
    ],
)
def test_what_nothing_is_expected_of_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Search(**ASKED, **settings)


def test_a_load_without_a_trace_is_refused() -> None:
    iperf3 = AskedCell(factors={}, load={"kind": "iperf3"})
    with pytest.raises(BadInput, match="replays no trace"):
        controller(Search(**ASKED), iperf3)
