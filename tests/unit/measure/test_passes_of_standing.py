"""Passes of a load that a standing SUT is offered: flows of their own, where that is possible."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.config.search import MOST_COPIES
from nodrop.measure.cells import of_standing


@pytest.mark.parametrize(
    ("load", "flows"),
    [
        ({"kind": "replay", "loops": 3}, "distinct"),
        ({"kind": "replay", "loops": 3, "loop_flows": "same"}, "same"),
        ({"kind": "replay", "loops": 3, "flows": "same"}, None),
        ({"kind": "replay", "multiplier": 4}, None),
        ({"kind": "replay", "multiplier": 4, "loops": MOST_COPIES // 4}, "distinct"),
        ({"kind": "replay", "multiplier": 4, "loops": MOST_COPIES // 4 + 1}, None),
        ({"kind": "tcpreplay", "loops": 3}, None),
    ],
)
def test_passes_have_flows_of_their_own_where_they_can(load: Any, flows: str | None) -> None:
    assert of_standing(load).get("loop_flows") == flows
