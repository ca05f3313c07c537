"""A growing load's findings on a SUT whose truth is known."""

from __future__ import annotations

import pytest

from nodrop.ledger.over_time import Busy, WatchedRamp, shown

INTERVAL_NS = 100_000_000
SECONDS = 6.0


def rates(start: float, end: float) -> list[float]:
    many = round(SECONDS * 1e9 / INTERVAL_NS)
    return [start * (end / start) ** ((n + 0.5) / many) for n in range(many)]


def watched(
    capacity: float,
    *,
    start: float = 1_000,
    end: float = 64_000,
    ring: int = 0,
    most: float = 1e9,
    read: bool = True,
    cpu_at: float | None = None,
) -> WatchedRamp:
    """Readings of its counters every half second; `cpu_at`: the load that fills its busiest
    thread."""
    asked = rates(start, end)
    sent = [round(min(pps, most) * INTERVAL_NS / 1e9) for pps in asked]
    beyond = [max(0.0, n - capacity * INTERVAL_NS / 1e9) for n in sent]
    lost = max(0, round(sum(beyond)) - ring)
    first = next((n for n, much in enumerate(beyond) if much), 0) // 5 * 5
    return WatchedRamp(
        first_ns=7,
        interval_ns=INTERVAL_NS,
        sent=sent,
        lost=lost if read else None,
        end_pps=end,
        lossy_ns=(7 + first * INTERVAL_NS, 7 + (first + 5) * INTERVAL_NS)
        if read and lost
        else None,
        busy=[
            Busy(mono_ns=7 + round((n + 0.5) * INTERVAL_NS), cpu_ratio=min(1.0, asked[n] / cpu_at))
            for n in range(2, len(asked), 5)
        ]
        if cpu_at
        else (),
    )


@pytest.mark.parametrize("capacity", [1_300, 5_000, 23_000, 50_000])
@pytest.mark.parametrize("cpu_at", [None, 4_000.0])
def test_what_was_served_says_what_is_carried(capacity: float, cpu_at: float | None) -> None:
    found = shown(watched(capacity, cpu_at=cpu_at))
    assert found.by == "served" and found.expects_pps == pytest.approx(capacity, rel=0.02)
    assert found.lossy_pps and found.lossy_pps >= capacity * 0.9
    assert (found.clean_pps or 0.0) <= capacity
    assert found.sender_pps is None


@pytest.mark.parametrize("ring", [500, 4_000, 16_384])
@pytest.mark.parametrize("capacity", [5_000, 20_000])
def test_what_rings_hold_makes_it_too_high_never_too_low(ring: int, capacity: float) -> None:
    found = shown(watched(capacity, ring=ring))
    assert found.expects_pps and capacity * 0.98 <= found.expects_pps <= 64_000


@pytest.mark.parametrize("capacity", [70_000, 130_000, 250_000])
def test_without_loss_cpu_per_packet_says_it(capacity: float) -> None:
    found = shown(watched(1e9, cpu_at=capacity))
    assert found.by == "cpu" and found.expects_pps == pytest.approx(capacity, rel=0.1)
    assert found.lossy_pps is None and found.clean_pps == pytest.approx(64_000, rel=0.15)


@pytest.mark.parametrize("cpu_at", [2_000, 9_000, 30_000])
def test_a_full_thread_ends_what_is_clean(cpu_at: float) -> None:
    found = shown(watched(1e9, cpu_at=cpu_at))
    assert found.full_pps and found.full_pps == pytest.approx(cpu_at, rel=0.5)
    assert found.clean_pps == found.full_pps
    assert found.by == "cpu" and found.expects_pps == pytest.approx(cpu_at, rel=0.2)


@pytest.mark.parametrize("most", [3_000, 12_000, 40_000])
def test_a_sender_that_falls_short_is_seen(most: float) -> None:
    found = shown(watched(1e9, most=most))
    assert found.sender_pps == pytest.approx(most, rel=0.02)
    assert found.expects_pps is None and found.clean_pps == pytest.approx(most, rel=0.02)


@pytest.mark.parametrize("capacity", [2_000, 20_000, 1e9])
def test_nothing_read_says_nothing(capacity: float) -> None:
    found = shown(watched(capacity, read=False))
    assert (found.clean_pps, found.lossy_pps, found.full_pps) == (None, None, None)
    assert (found.expects_pps, found.by) == (None, None)


def test_no_packet_shows_nothing() -> None:
    nothing = WatchedRamp(
        first_ns=0, interval_ns=1, sent=(), lost=3, end_pps=9.0, lossy_ns=(1, 2), busy=()
    )
    assert shown(nothing).expects_pps is None and shown(nothing).clean_pps is None
