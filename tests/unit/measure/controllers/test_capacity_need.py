"""A load that has to be carried is tried first, and answered with yes or no."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.findings import needed_words
from nodrop.config.search import Search, parse_need
from nodrop.errors import BadInput
from nodrop.results.trial import TrialRecord
from tests.simulated_queue import SimulatedQueue
from tests.simulated_sut import SimulatedSut, cell, controller, run


def tried(sut: Any, need: str, **search: Any) -> tuple[list[TrialRecord], Search]:
    asked = Search(need=need, **search)
    return [*run(controller(asked, sut="standing"), sut.measure)], asked


@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize(
    ("limit", "need", "verdict"),
    [(8.0, "3X", "yes"), (8.0, "7X", "yes"), (5.0, "5.6X", "no"), (5.0, "40X", "no"),
     (0.4, "1X", "no"), (30.0, "1X", "yes")],
)  # fmt: skip
def test_it_is_tried_first_and_decided(limit: float, need: str, verdict: str, queue: bool) -> None:
    sut = SimulatedQueue(rate=limit, slots=2058) if queue else SimulatedSut(capacity=limit)
    done, search = tried(sut, need)
    value = float(need[:-1])
    assert done[0].searched is not None and done[0].searched.value == value
    found = answers(done, search)[0].needed
    assert found is not None and (found.verdict, found.value) == (verdict, value)
    words = needed_words(found, "multiplier")
    assert words.startswith("Yes: " if verdict == "yes" else "No: ") and need in words


@pytest.mark.parametrize("budget_s", [30.0, 45.0])
def test_a_short_budget_answers_it_all_the_same(budget_s: float) -> None:
    done, search = tried(SimulatedSut(capacity=50.0), "12X", budget_s=budget_s)
    found = answers(done, search)[0].needed
    assert found is not None and found.verdict == "yes"


@pytest.mark.parametrize("most", [2.0, 6.0])
def test_a_load_that_the_sender_cannot_send_is_not_shown(most: float) -> None:
    done, search = tried(SimulatedSut(capacity=500.0, sender_most=most), "9X", rounds=1)
    answer = answers(done, search)[0]
    assert answer.needed is not None and answer.needed.verdict == "not shown"
    assert answer.lower is not None and answer.lower.value > most / 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("1Gbit/s", 125.0), ("20,000 packets/s", 10.0), ("20kpps", 10.0), ("2.5x", 2.5),
     ("100 Mbps", 12.5)],
)  # fmt: skip
def test_a_rate_is_held_against_the_traces_own(text: str, value: float) -> None:
    assert parse_need(text).of("multiplier", pps=2000.0, bps=8e6) == pytest.approx(value)
    assert parse_need(text).of("pps", pps=2000.0, bps=8e6) == pytest.approx(value * 2000)


@pytest.mark.parametrize("text", ["1G", "0X", "-1X", "fast", "1e9 bit/s", "1 kX", "", "9" * 40])
def test_what_is_no_load_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_need(text)


def test_a_need_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(BadInput, match="outside"):
        controller(Search(need="9X", max=4.0), cell())
