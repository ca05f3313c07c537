"""Windows of loss: never too narrow, and as narrow as two readings and their lag allow."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodrop.ledger.over_time import DropReading, Losses, losses

S = 10**9


def reading(
    at_s: float,
    dropped: int | None,
    by_thread: Mapping[str, int] = {},
    *,
    lag_s: float = 0,
    threads_lag_s: float = 0,
) -> DropReading:
    return DropReading(
        mono_ns=round(at_s * S),
        dropped=dropped,
        lag_ns=round(lag_s * S),
        by_thread=by_thread,
        by_thread_lag_ns=round(threads_lag_s * S),
    )


def window(thread: str, begin_s: float, end_s: float, packets: int) -> Losses:
    return Losses(
        thread=thread,
        begin_mono_ns=round(begin_s * S),
        end_mono_ns=round(end_s * S),
        packets=packets,
    )


def windows(*readings: DropReading, begin_s: float = 10, end_s: float = 20) -> object:
    return losses(readings, begin_ns=round(begin_s * S), end_ns=round(end_s * S))


@pytest.mark.parametrize("lag_s", [0, 0.7, 1.0, 3.5])
def test_the_lag_is_taken_off_the_beginning(lag_s: float) -> None:
    readings = [reading(t, n, lag_s=lag_s) for t, n in [(14, 0), (14.5, 0), (15, 8), (15.5, 8)]]
    found = windows(*readings, reading(22, 8))
    assert found == (window("", 14.5 - lag_s, 15, 8),)


def test_nothing_is_lost_before_the_first_packet_or_after_the_last() -> None:
    assert windows(reading(10.2, 3, lag_s=1), reading(25, 7)) == (
        window("", 10, 10.2, 3),
        window("", 10, 20, 4),
    )
    assert windows(reading(25, 7)) == (window("", 10, 20, 7),)
    assert windows(reading(25, 0)) == ()


def test_one_thread_that_lost_has_all_windows_however_late_its_own_counter_is() -> None:
    found = windows(
        reading(12, 0, lag_s=1),
        reading(12.5, 9, lag_s=1, threads_lag_s=4),
        reading(25, 9, {"W#01": 0, "W#02": 9}),
    )
    assert found == (window("W#02", 11, 12.5, 9),)


def test_several_threads_are_told_apart_within_the_windows_of_their_sum() -> None:
    found = windows(
        reading(12, 0, {"a": 0, "b": 0}, lag_s=1, threads_lag_s=4),
        reading(13, 5, {"a": 0, "b": 0}, lag_s=1, threads_lag_s=4),
        reading(16, 5, {"a": 5, "b": 0}, lag_s=1, threads_lag_s=4),
        reading(18, 7, {"a": 5, "b": 0}, lag_s=1, threads_lag_s=4),
        reading(25, 7, {"a": 5, "b": 2}),
    )
    assert found == (window("a", 11, 16, 5), window("b", 15, 18, 2))


def test_counters_that_nobody_read_are_no_zero() -> None:
    assert windows() is None
    assert windows(reading(12, 5), reading(25, None)) is None
