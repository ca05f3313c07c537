"""Books of threads that add up, or by how much they do not; how unevenly work falls on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.ledger.imbalance import (
    SutThread,
    ThreadRole,
    gini,
    over_mean,
    times,
    unexplained_packets,
)
from nodrop.ledger.thread_times import timeline
from tests.made.threads import BEGIN_NS, Made, World


def books(captured: int | None, dropped: int | None, decoded: int | None) -> SutThread:
    return SutThread(
        name="W#01",
        role=ThreadRole.WORKER,
        captured_packets=captured,
        dropped_packets=dropped,
        decoded_packets=decoded,
        flows=None,
        cpu_ratio=None,
        wait_ratio=None,
    )


def whole(captured: int | None, dropped: int | None, decoded: int | None) -> dict[str, Any]:
    return {
        "captured_packets": captured,
        "dropped_packets": dropped,
        "decoded_packets": decoded,
    }


@pytest.mark.parametrize(
    ("threads", "sut", "unexplained"),
    [
        ([books(100, 10, 90)], whole(100, 10, 90), 0),
        ([books(100, 10, 90), books(50, 0, 50)], whole(150, 10, 140), 0),
        # Of autofp: the receive thread captures and decodes, its workers have no socket.
        ([books(100, 10, 90), books(None, None, 0)], whole(100, 10, 90), 0),
        ([books(100, 10, 89)], whole(100, 10, 90), 2),
        ([books(100, 0, 100), books(50, 0, 50)], whole(151, 0, 150), 1),
        # Two errors that make up for each other in the sum.
        ([books(100, 0, 97), books(100, 0, 103)], whole(200, 0, 200), 6),
        ([books(None, 5, 90)], whole(95, 5, 90), 0),
        ([books(100, 5, 95)], whole(None, 5, 95), 0),
        ([books(100, 0, 100)], whole(100, 40, 60), 80),
    ],
)
def test_what_threads_do_not_add_up_to(
    threads: list[SutThread], sut: dict[str, Any], unexplained: int
) -> None:
    assert unexplained_packets(threads, sut) == unexplained


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1))
def test_books_that_close_leave_nothing(each: list[tuple[int, int]]) -> None:
    threads = [books(dropped + decoded, dropped, decoded) for dropped, decoded in each]
    dropped, decoded = sum(d for d, _ in each), sum(d for _, d in each)
    assert unexplained_packets(threads, whole(dropped + decoded, dropped, decoded)) == 0


@pytest.mark.parametrize(("ran", "waited"), [(0.99, 0.0), (0.3, 0.61), (0.0, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("span_s", [(0.0, 3.0), (0.5, 2.0), (1.25, 1.75)])
def test_where_the_time_of_a_thread_went(
    ran: float, waited: float, span_s: tuple[float, float]
) -> None:
    world = World(threads={"RX#01": [Made(ran=ran, waited=waited)], "W#01": [Made(ran=0.25)]})
    span = BEGIN_NS + round(span_s[0] * 1e9), BEGIN_NS + round(span_s[1] * 1e9)
    seen = timeline(world.rows())
    (receive, worker) = times(seen, span).values()
    assert receive == pytest.approx((ran, waited), abs=0.01)
    assert worker == pytest.approx((0.25, 0.0), abs=0.01)


def test_a_thread_that_came_late_has_its_part_of_the_whole_time() -> None:
    world = World(seconds=4, threads={"W#01": [Made(begin_s=3, ran=1.0)]})
    span = BEGIN_NS, BEGIN_NS + 4 * 10**9
    ((ran, _),) = times(timeline(world.rows()), span).values()
    assert ran == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("parts", "more", "uneven"),
    [
        ([5, 5, 5, 5], 0.0, 0.0),
        ([8, 0], 1.0, 0.5),
        ([0, 0, 0, 12], 3.0, 0.75),
        ([1, 2, 3], 0.5, 2 / 9),
        ([7], None, None),
        ([], None, None),
        ([0, 0], None, None),
    ],
)
def test_how_unevenly_work_fell(
    parts: list[float], more: float | None, uneven: float | None
) -> None:
    assert over_mean(parts) == (None if more is None else pytest.approx(more))
    assert gini(parts) == (None if uneven is None else pytest.approx(uneven))


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=12).filter(any))
def test_gini_lies_where_it_must(parts: list[int]) -> None:
    found = gini(parts)
    assert found is not None and 0 <= found <= (len(parts) - 1) / len(parts) + 1e-9
    assert gini([2 * p for p in parts]) == pytest.approx(found)
    assert gini(list(reversed(parts))) == pytest.approx(found)
