"""Arithmetic of a queue holds for any looks at a ring: it comes after a trial, and may end none."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodrop.ledger.filling import filling
from nodrop.ledger.level import RingLook
from nodrop.ledger.twin import Queue, Reader, RingObservation, Sends, limit_times, reproduced

COUNTS = st.integers(0, 5000)


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """Looks at moments that may fall together, at counters that may stand still or fall, with a
    reader that was seen all the time, a part of it or never."""
    at_ns, arrived, dropped, looks = 0, 0, 0, []
    for _ in range(draw(st.integers(0, 25))):
        at_ns += draw(st.sampled_from([0, 1, 1_000, 1_000_000, 4_000_000, 300_000_000]))
        arrived += draw(st.sampled_from([0, 0, 1, 3, 40, 4_000]))
        dropped = min(arrived, dropped + draw(st.sampled_from([0, 0, 0, 2, 700])))
        looks.append(RingLook(at_ns, draw(COUNTS), draw(st.integers(0, 200)), arrived, dropped))
    step_ns = max(1, at_ns // 3)
    times = st.integers(0, step_ns)
    readers = [
        Reader(
            begin_ns=n * step_ns,
            end_ns=(n + 1) * step_ns,
            ran_ns=draw(times),
            kept_off_ns=draw(times),
        )
        for n in range(draw(st.integers(0, 3)))
    ]
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        sent = draw(st.lists(COUNTS, max_size=30))
        more["sends"] = Sends(first_ns=draw(st.integers(-9, 9)), bin_ns=1_000_000, packets=sent)
    if draw(st.booleans()):
        more["most_slots"] = draw(st.integers(1, 4000))
    return Queue(
        slots=draw(st.integers(1, 3000)), looks=looks, reader=readers, lost=draw(COUNTS), **more
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(queues(), min_size=1, max_size=3), st.booleans())
def test_any_looks_have_an_answer(several: list[Queue], faster: bool) -> None:
    one = RingObservation(load=1.0, queues=several, faster=faster)
    found = reproduced(one)
    assert found is None or found.twin >= 0
    times = limit_times(one)
    assert times is None or times > 0
    for queue in several:
        told = filling(queue)
        assert told is None or abs(sum(told.parts.values()) - 1) < 1e-6
