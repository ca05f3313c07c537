"""A search over simulated SUTs ends, finds what is there, and is a function of its records."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.findings.capacity import Answer, answers
from nodrop.testing.contracts import check_controller
from tests.simulated_sut import SimulatedSut, cell, controller, run


def searched(sut: SimulatedSut, **settings: Any) -> dict[float, Answer]:
    search = Search(**settings)
    found = answers(run(controller(search), sut.measure), search)
    return {answer.goal: answer for answer in found}


METHODS: list[dict[str, Any]] = [
    {"method": "nodrop"},
    {"method": "bisection", "min": 0.25, "max": 64.0},
    {"method": "mlrsearch", "min": 0.25, "max": 64.0},
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m["method"])
@pytest.mark.parametrize("capacity", [0.3, 1.0, 3.4, 11.0])
def test_finds_what_a_quiet_sut_carries(method: dict[str, Any], capacity: float) -> None:
    if method["method"] == "mlrsearch":
        pytest.importorskip("MLRsearch")
    found = searched(
        SimulatedSut(capacity=capacity), relative_width=0.02, duration_sum_s=5.0, **method
    )[0.0]
    assert found.limited_by == "sut" and found.lower and found.upper
    assert found.lower.value <= capacity * 1.0001 and found.upper.value >= capacity * 0.9999
    assert found.reached_width is not None and found.reached_width <= 0.0201
    assert (found.place, found.knob) == ("socket ring", "more threads")


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m["method"])
@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("cells", [1, 3])
def test_it_is_a_function_of_its_records(method: dict[str, Any], noise: float, cells: int) -> None:
    if method["method"] == "mlrsearch":
        pytest.importorskip("MLRsearch")
    search = Search(rounds=2, **method)
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    asked = controller(search, *made)._asked
    sut = SimulatedSut(capacity=3.4, noise=noise, sender_most=20)
    check_controller(type(controller(search)), asked, sut.measure)


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
