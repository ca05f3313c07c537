"""A replay job's result that cannot be is refused with what is wrong in it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodrop.protocol import ReplayResult
from nodrop.testbed.load.replay import must_be_possible

S = 1_000_000_000
LATE = {"p50": 1.0, "p99": 4.0, "p999": 5.0, "max": 9.5}
RESULT = {
    "sent_packets": 4000,
    "first_sent_mono_ns": 100 * S,
    "last_sent_mono_ns": 101 * S,
    "schedule_error_us": LATE,
    "asked_schedule_error_us": None,
    "achieved": {"interval_ns": S},
    "sent_profile": {"first_mono_ns": 100 * S, "bin_ns": S, "packets": [3999, 1]},
}


def look(**changed: Any) -> None:
    said = cast(ReplayResult, RESULT | changed)
    must_be_possible(said, began_ns=100 * S, ended_ns=101 * S)


@pytest.mark.parametrize(
    "possible",
    [
        {},
        {"first_sent_mono_ns": 101 * S},
        {
            "sent_packets": 0,
            "first_sent_mono_ns": None,
            "last_sent_mono_ns": None,
            "sent_profile": {"bin_ns": S, "packets": []},
        },
        {"schedule_error_us": None},
        {"schedule_error_us": {"p50": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0}},
    ],
)
def test_what_can_be_is_taken(possible: dict[str, Any]) -> None:
    look(**possible)


@pytest.mark.parametrize(
    ("impossible", "words"),
    [
        ({"first_sent_mono_ns": 0, "last_sent_mono_ns": 0}, "first at 0, last at 0"),
        ({"first_sent_mono_ns": 101 * S, "last_sent_mono_ns": 100 * S}, "offered from"),
        ({"last_sent_mono_ns": 2**64 - 1}, "offered from"),
        ({"first_sent_mono_ns": 97 * S}, "offered from"),
        ({"last_sent_mono_ns": None}, "4000 packets sent"),
        ({"first_sent_mono_ns": None, "last_sent_mono_ns": None}, "4000 packets sent"),
        ({"schedule_error_us": LATE | {"p50": -1.0}}, "schedule_error_us"),
        ({"schedule_error_us": LATE | {"max": 3.0}}, "schedule_error_us"),
        ({"asked_schedule_error_us": LATE | {"p99": 0.5}}, "asked_schedule_error_us"),
        ({"achieved": {"interval_ns": 0}}, "interval_ns"),
        ({"sent_profile": {"bin_ns": 0, "packets": [4000]}}, "sent_profile"),
        ({"sent_profile": {"bin_ns": S, "packets": [3999]}}, "sent_profile"),
    ],
)
def test_what_cannot_be_is_refused(impossible: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        look(**impossible)
