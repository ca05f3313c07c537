"""A SUT that served less as it went on: figures that grew are none of its reasons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.capacity.findings import changed
from tests.simulated_sut import SimulatedSut, searched


def sight(index: int, at: float) -> Any:
    record = SimpleNamespace(index=index, run=f"{index:04}")
    return SimpleNamespace(at=at, good=False, trial=SimpleNamespace(record=record))


@pytest.mark.parametrize(
    ("first", "last", "codes"),
    [
        (9.5, 7.4, ["reason.served_since", "reason.last_count"]),
        (7.4, 9.5, ["reason.last_count"]),
    ],
)
def test_a_last_trial_that_was_served_more_is_no_reason(
    first: float, last: float, codes: list[str]
) -> None:
    """Seen: `served less as it went on: it served 7,400 at first and 9,500 at last`."""
    answer = searched(SimulatedSut(capacity=9.0))[0.0]
    found: Any = SimpleNamespace(changed=True, phases=[[sight(3, first)], [sight(9, last)]])
    (finding,) = changed(answer, found)
    assert [reason.code for reason in finding.because] == codes
    assert finding.text.startswith("the SUT served less as it went on")
