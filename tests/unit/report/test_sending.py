"""Offered rate, lateness and counters over time, and what damaged files leave of them."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.report.timeline import counted_over_time, sent_over_time, thinned

START_NS = 10**12


def offered(**changed: Any) -> dict[str, Any]:
    achieved = {
        "interval_ns": 100_000_000,
        "packets": [100, 120, 60],
        "bytes": [1, 1, 1],
        "largest_error_ns": [5_000, 2_000_000, 40_000],
    }
    first = START_NS + 1_000_000
    found = {
        "achieved": achieved,
        "first_sent_mono_ns": first,
        "last_sent_mono_ns": first + 250_000_000,
    }
    return found | changed


def test_rates_are_of_whole_intervals_and_of_what_the_last_one_lasted() -> None:
    rate, error = sent_over_time(offered(), START_NS)
    assert [s.name for s in rate.series] == ["offered"]
    assert rate.series[0].points == (
        (pytest.approx(0.101), pytest.approx(1000)),
        (pytest.approx(0.201), pytest.approx(1200)),
        (pytest.approx(0.251), pytest.approx(1200)),
    )
    assert [value for _, value in error.series[0].points] == [0.005, 2.0, 0.04]


def test_a_last_interval_too_short_for_a_rate_is_left_out() -> None:
    last = START_NS + 1_000_000 + 201_000_000
    rate, error = sent_over_time(offered(last_sent_mono_ns=last), START_NS)
    assert [len(panel.series[0].points) for panel in (rate, error)] == [2, 2]


def test_long_replays_are_drawn_in_fewer_points_with_the_same_packets() -> None:
    many = {"interval_ns": 10**8, "packets": [10] * 1000, "largest_error_ns": [1] * 999 + [7]}
    first = START_NS
    found = offered(achieved=many, first_sent_mono_ns=first, last_sent_mono_ns=first + 1000 * 10**8)
    rate, error = sent_over_time(found, START_NS)
    points = rate.series[0].points
    assert len(points) <= 120
    assert {round(value) for _, value in points} == {100}
    assert max(value for _, value in error.series[0].points) == 7e-6


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        {},
        {"achieved": None},
        offered(achieved={"interval_ns": 0, "packets": [1, 2]}),
        offered(achieved={"interval_ns": 10, "packets": ["x"]}),
        offered(achieved={"interval_ns": 10, "packets": [float("nan"), 1.0]}),
        offered(achieved={"interval_ns": 10, "packets": [1e308, 1.0]}),
        offered(achieved={"interval_ns": 10, "packets": [10**400, 1.0]}),
        offered(first_sent_mono_ns=None),
        offered(first_sent_mono_ns=10**400),
    ],
)
def test_what_cannot_be_read_is_not_drawn(damaged: Any) -> None:
    rate, error = sent_over_time(damaged, START_NS)
    assert (rate.series, error.series) == ((), ())


def test_counters_are_drawn_in_steps() -> None:
    def reading(at_s: float, decoded: int | None) -> dict[str, Any]:
        counts = {"decoded_packets": decoded, "captured_packets": "no number"}
        return {"mono_ns": START_NS + int(at_s * 1e9), "intended_packets": 9} | counts

    rows = [
        {"mono_ns": START_NS, "phase": "offer"},
        reading(0, None),
        reading(1, 0),
        reading(2, 0),
        reading(3, 9),
    ]
    (panel,) = counted_over_time(rows, START_NS)
    assert [(s.name, s.points) for s in panel.series] == [
        ("decoded", ((1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (3.0, 9.0)))
    ]
    assert list(counted_over_time([{"phase": "offer"}], START_NS)) == []


def test_a_row_of_slow_sources_alone_is_not_drawn() -> None:
    rows: list[dict[str, Any]] = [{"mono_ns": n, "cpus": []} for n in range(4)]
    assert thinned([rows[0], {"mono_ns": 99, "swap": {}}, *rows[1:]]) == rows
