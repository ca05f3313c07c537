"""Kendall's test of rounds: the fewest that can show a drift."""

from __future__ import annotations

from itertools import product

import pytest
from scipy.stats import kendalltau

from nodrop.capacity.statements import FEWEST_OF_DRIFT
from nodrop.stats.interval import CONFIDENCE


@pytest.mark.parametrize("rounds", [2, 3, 4, 5])
def test_fewer_rounds_show_no_drift_in_any_order(rounds: int) -> None:
    """All orders, ties included. Rounds that are all alike have no order."""
    orders = (one for one in product(range(rounds), repeat=rounds) if len(set(one)) > 1)
    least = min(float(kendalltau(range(rounds), one).pvalue) for one in orders)
    assert (least <= 1 - CONFIDENCE) is (rounds >= FEWEST_OF_DRIFT)
