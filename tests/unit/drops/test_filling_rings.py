"""A ring that fills: announced before its first loss, or said to be beyond notice."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.drops.watching import Watch, intervals
from nodrop.results.watched import WatchedInterval
from tests.unit.drops.test_capture_books import fill, look, port, program, ring, sock, watched


def overflow_ms(*looks: Any) -> int | None:
    (capture,) = watched(*looks).answer.captures
    return capture.overflow_ms


@pytest.mark.parametrize(("full", "left_ms"), [(6, None), (7, 60), (12, 10), (13, 0)])
def test_a_ring_that_fills_is_announced_before_it_loses(full: int, left_ms: int | None) -> None:
    looks = [
        look(
            n,
            sockets=[sock(41, 0, 0, waiting=[fill(0, 0, 13), fill(20 * full, full, 13)])],
            ports=[port((0, 0))],
            programs={"7": program("snort")},
        )
        for n in (0, 1)
    ]
    assert overflow_ms(*looks) == left_ms


@pytest.mark.parametrize(
    ("version", "before", "now", "of", "left_ms"),
    [
        (2, 0, 1000, 4000, 3000),  # 1,000 frames a second
        (2, 0, 900, 4000, None),  # not soon
        (2, 2600, 2600, 4000, None),  # it stands
        (3, 0, 200, 500, 1500),  # its blocks are full before their time
        (3, 300, 301, 500, 1990),  # by their time
    ],
)
def test_the_time_to_a_full_ring_by_its_pace(
    version: int, before: int, now: int, of: int, left_ms: int | None
) -> None:
    shape = {**ring(of, 10 if version == 3 else 0), "version": version}
    looks = [
        look(
            n,
            sockets=[sock(41, 0, 0, ring=shape, waiting=[fill(9, full, of)] * 2)],
            ports=[port((0, 0))],
            programs={"7": program("snort")},
        )
        for n, full in enumerate((before, now))
    ]
    assert overflow_ms(*looks) == left_ms


class Stalled:
    """A clock, and a ring whose reader stands still from 2 s on: it is full `fills_s` later."""

    def __init__(self, fills_s: float, shape: dict[str, Any], begins_s: float) -> None:
        self.now, self.fills_s, self.shape, self.begins_s = 0.0, fills_s, shape, begins_s
        self.of = shape["blocks"] if shape["version"] == 3 else shape["frames"]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def full(self) -> int:
        return round(self.of * min(1.0, max(0.0, self.now - self.begins_s) / self.fills_s))

    def levels(self) -> Any:
        sampled = min(self.of, 256)
        one = {"full": self.full() * sampled // self.of, "of": sampled}
        return {"mono_ns": round(self.now * 1e9), "rings": {"41": one}}

    def look(self) -> Any:
        self.now += 0.004
        lost = round(20_000 * max(0.0, self.now - self.begins_s - self.fills_s))
        came = round(20_000 * self.now)
        waits = [fill(self.full(), self.full(), self.of)] * 2
        held = sock(41, came - lost, lost, ring=self.shape, waiting=waits)
        stopped = self.now > self.begins_s
        return look(
            self.now,
            sockets=[held],
            ports=[port((came, came))],
            programs={"7": program("snort", stopped=stopped)},
        )

    def intervals(self) -> list[tuple[float, WatchedInterval]]:
        """Time of each interval, and its answer."""
        found = intervals(
            self.look,
            interval_s=1.0,
            for_s=6.0,
            levels=self.levels,
            sleep=self.sleep,
            clock=lambda: self.now,
        )
        return [(self.now, one.answer) for one in found]


@pytest.mark.parametrize("begins_s", [2.0, 2.051, 2.099, 2.95])
@pytest.mark.parametrize(
    ("fills_s", "shape"),
    [
        (0.3, {**ring(0, 0), "version": 2, "frames": 6000}),
        (0.32, ring(32)),
        (0.9, {**ring(0, 0), "version": 2, "frames": 300}),
        (2.5, ring(5000, 100)),
    ],
)
def test_a_ring_that_needs_three_looks_at_it_to_fill_is_announced_before_its_first_loss(
    fills_s: float, shape: dict[str, Any], begins_s: float
) -> None:
    stalled = Stalled(fills_s, shape, begins_s)
    found = stalled.intervals()
    announced_s, first = next(one for one in found if one[1].captures[0].overflow_ms is not None)
    assert announced_s < begins_s + fills_s
    left_ms = first.captures[0].overflow_ms
    truly_ms = 1000 * (begins_s + fills_s - announced_s)
    # Its reader may have stood still for a part of the time that the pace is taken from.
    assert left_ms is not None and 0.8 * truly_ms - 60 < left_ms < 2.2 * truly_ms + 60
    (note,) = (note for _, one in found for note in one.notes if note.startswith("▲"))
    assert "ring of snort 7 on eth1 fills, it is full in" in note and "kill -CONT 7" in note
    assert first.captures[0].dropped_packets == 0
    # One interval more than there are seconds at most, and the loss that follows is no surprise.
    assert len(found) in (6, 7)
    assert all("not announced" not in place.why for _, one in found for place in one.places)


@pytest.mark.parametrize(("fills_s", "begins_s"), [(0.05, 2.02), (0.003, 2.93)])
def test_a_loss_that_nothing_could_announce_says_so(fills_s: float, begins_s: float) -> None:
    found = Stalled(fills_s, ring(256), begins_s).intervals()
    (place,) = next(one.places for _, one in found if one.places)
    assert "; not announced: its ring filled between two looks, 10" in place.why
    assert " ms apart" in place.why


def test_a_loss_that_its_owner_says_late_was_announced_when_its_ring_was_full() -> None:
    """A Suricata that goes on after a stop has read its counters, and says them seconds later."""
    watch = Watch()
    whys = []
    for n, (full, drops) in enumerate([(0, 0), (13, 0), (0, 0), (0, 700), (0, 700), (0, 990)]):
        held = sock(41, 9, drops, waiting=[fill(full, full, 13)] * 2)
        seen = watch.look(
            look(n, sockets=[held], ports=[port((0, 0))], programs={"7": program("snort")})
        )
        if seen and seen.answer.places and seen.answer.places[-1].rate_pps:
            whys.append("not announced" in seen.answer.places[-1].why)
    assert whys == [False, True]


def test_a_loss_of_a_ring_that_is_not_visible_is_not_announced() -> None:
    hidden = Watch()
    looks = [
        look(
            n,
            sockets=[sock(41, 9, 70 * n, waiting=None)],
            ports=[port((0, 0))],
            programs={"7": program("snort")},
        )
        for n in (0, 1)
    ]
    hidden.look(looks[0])
    (row,) = hidden.look(looks[1]).answer.places  # type: ignore[union-attr]
    assert "not announced: what waits in its rings is not visible" in row.why
