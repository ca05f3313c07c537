"""A search is a function of its records, over simulated SUTs."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.config.search import Search
from nodrop.testing.contracts import check_controller
from tests.depth import depth
from tests.simulated_sut import METHODS, SimulatedSut, cell, controller


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m["method"])
@pytest.mark.parametrize(
    ("cells", "noise"), [(3, 0.02), depth(1, 0.0), depth(1, 0.02), depth(3, 0.0)]
)
def test_it_is_a_function_of_its_records(method: dict[str, Any], noise: float, cells: int) -> None:
    if method["method"] == "mlrsearch":
        pytest.importorskip("MLRsearch")
    # MLRsearch is replayed from the first trial on for each next one: half as many are a quarter.
    short = {"duration_sum_s": 6.0, "rounds": 3 - min(cells, 2)}
    search = Search(**{"rounds": 2, **method, **(short if method["method"] == "mlrsearch" else {})})
    made = [cell(factors={"sut.threads": n + 1}) for n in range(cells)]
    asked = controller(search, *made)._asked
    sut = SimulatedSut(capacity=3.4, noise=noise, sender_most=20)
    check_controller(type(controller(search)), asked, sut.measure)
