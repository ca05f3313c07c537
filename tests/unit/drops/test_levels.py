"""Levels of a capture's rings, the forecast from spells of looks, and what was lost before."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.cli.drops import HighestLevel, share
from nodrop.drops.headroom_words import before_words, headroom_words
from nodrop.drops.outlets import ending, lines
from nodrop.drops.watching import DropsInterval, Watch
from nodrop.errors import BadInput
from nodrop.ledger.level import RingLook
from nodrop.ledger.twin import Queue
from tests.made import queues
from tests.unit.drops.test_capture_books import fill, look, port, program, ring, sock

SLOTS = 256
SHAPE = {**ring(0, 0), "version": 2, "frames": SLOTS}


def costly(at: float) -> float:
    return 400e-6 if 0.8 <= at < 0.82 else 30e-6


def spell_of(queue: Queue, *, begin_s: float = 0.5) -> Any:
    """A node's answer; the queue's reader is the one thread that ran."""
    began = round(begin_s * 1e9)
    ran, times = 0.0, [[began, 0, 0]]
    for one in queue.reader:
        ran += one.ran_ns
        times.append([began + one.end_ns, round(ran), 0])

    def row(one: RingLook) -> list[int]:
        return [began + one.at_ns, 0, one.packets, one.full, one.arrived, one.dropped]

    spell = {
        "mono_ns": began,
        "real_ns": 10**18 + began,
        "rings": [{"inode": 41, "pid": 7, "fd": 4, "version": 2, "slots": SLOTS, "blocks": 16,
                   "block_bytes": 32768}],
        "looks": [row(one) for one in queue.looks],
        "threads": [{"pid": 7, "tid": 7, "name": "snort", "times": times}],
        "cpu_ns": 5,
        "longest_gap_ns": 4_000_000,
    }  # fmt: skip
    return {"spells": [spell], "unread": None}


def made(times: int) -> Queue:
    packets = [n * 1e-3 for n in range(1000)]
    return queues.queue(queues.arrivals(packets, costly, times), SLOTS, every_ms=4.0)


def seen(at_s: float, full: int = 0, packets: int = 0, lost: int = 0) -> Any:
    held = sock(41, packets, lost, ring=SHAPE, waiting=[fill(full, full, SLOTS)] * 2)
    return look(
        at_s,
        sockets=[held],
        ports=[port((packets + lost, packets + lost))],
        programs={"7": program("snort")},
    )


def words(found: DropsInterval) -> str:
    [one] = found.balances
    return "".join(headroom_words(one))


def test_the_highest_level_of_an_interval_and_of_the_watch_from_every_look() -> None:
    watch = Watch()
    watch.look(seen(0, full=64))
    watch.fills({"mono_ns": 500_000_000, "rings": {"41": {"full": 200, "of": 256}}})
    first, last = watch.look(seen(1, full=32)), watch.look(seen(2, full=16))
    assert first and last
    [one], [other] = first.answer.captures, last.answer.captures
    assert one.level and other.level
    assert (one.level.ratio, one.level.real_ns) == (200 / 256, 10**18 + 500_000_000)
    assert (other.level.ratio, other.level.highest_ratio) == (16 / 256, 200 / 256)
    assert "level 6 % (highest 78 % at " in "".join(lines(last))
    assert "no forecast yet" in words(last)


def test_a_spell_well_below_the_limit_forecasts_it() -> None:
    packets, times = [n * 1e-3 for n in range(1000)], 4
    limit = next(n for n in range(1, 99) if queues.highest(packets, costly, n + 1) > SLOTS)
    watch, queue = Watch(), made(times)
    watch.look(seen(0))
    watch.spells(spell_of(queue))
    found = watch.look(seen(3))
    assert found is not None
    [one] = found.answer.captures
    assert one.level and one.level.forecast and one.level.forecast.bound == "about"
    assert one.level.ratio == queue.highest / SLOTS, "the spell's highest is the interval's"
    assert one.level.forecast.times * times == pytest.approx(limit + 1, rel=0.12)
    assert f"forecast: about {one.level.forecast.times:.1f} times this traffic fits" in words(found)
    assert f"forecast: about {one.level.forecast.times:.1f} times" in "\n".join(ending(found, 0))


def test_a_level_far_above_all_spells_makes_the_forecast_an_upper_bound() -> None:
    watch = Watch()
    watch.look(seen(0))
    watch.spells(spell_of(made(4)))
    watch.fills({"mono_ns": 2_000_000_000, "rings": {"41": {"full": 250, "of": 256}}})
    found = watch.look(seen(3))
    assert found is not None
    [one] = found.answer.captures
    assert one.level and one.level.forecast and one.level.forecast.bound == "at_most"
    assert "forecast: at most" in words(found) and "between two spells" in words(found)


@pytest.mark.parametrize("begin_s", [0.5, 0.9])
def test_a_spell_in_which_the_reader_was_stopped_forecasts_nothing(begin_s: float) -> None:
    """Seen of a Suricata stopped for half a second: "about 0.1 times this traffic fits"."""
    watch = Watch()
    watch.look(seen(0))
    stopped = seen(1)
    stopped["programs"]["7"]["stopped"] = True
    watch.look(stopped)
    watch.spells(spell_of(made(4), begin_s=begin_s))
    found = watch.look(seen(4))
    assert found is not None and "no forecast yet" in words(found)
    watch.spells(spell_of(made(4), begin_s=4.5))
    found = watch.look(seen(8))
    assert found is not None and "forecast: about" in words(found)


def test_losses_that_no_spell_shows_leave_no_forecast() -> None:
    watch = Watch()
    watch.look(seen(0))
    watch.spells(spell_of(made(4)))
    found = watch.look(seen(3, packets=900, lost=50))
    assert found is not None
    [one] = found.answer.captures
    assert one.level and one.level.forecast is None and one.level.withheld == "lost"
    assert "no forecast: 50 packets were lost" in words(found)


def test_the_fullest_ring_of_a_watch_is_that_of_a_capture_that_ended_too() -> None:
    watch, highest = Watch(), HighestLevel()
    assert highest.ratio is None
    for one in (seen(0), seen(1, full=240), look(2), seen(3), seen(4, full=8)):
        if (found := watch.look(one)) is not None:
            highest.add(found.answer)
    assert highest.ratio == 240 / 256


def test_a_capture_that_is_gone_keeps_no_level() -> None:
    watch = Watch()
    watch.look(seen(0, full=64))
    watch.look(seen(1, full=64))
    watch.look(look(2))
    watch.look(seen(3))
    found = watch.look(seen(4))
    assert found is not None
    assert [one.level.highest_ratio for one in found.answer.captures if one.level] == [0.0]


def test_a_loss_before_the_watch_is_said_beside_its_own() -> None:
    watch = Watch()
    watch.look(seen(0, packets=26_990, lost=5_010))
    found = watch.look(seen(1, packets=27_090, lost=5_010))
    assert found is not None
    [one] = found.balances
    assert one.dropped == 0
    text = "".join(before_words(one))
    assert "5,010 of 32,000 packets were lost there before its books began" in text
    assert text in "\n".join(ending(found, 0))
    [as_json] = found.answer.captures
    assert as_json.since_start_dropped_packets == 5_010
    assert as_json.since_start_arrived_packets == (32_100, 32_100)


@pytest.mark.parametrize(("text", "value"), [("80%", 0.8), ("0%", 0.0), ("12.5%", 0.125)])
def test_a_share(text: str, value: float) -> None:
    assert share("--x", text) == value


@pytest.mark.parametrize("text", ["80", "101%", "-1%", "x%", "nan%", ""])
def test_no_share(text: str) -> None:
    with pytest.raises(BadInput, match="--x"):
        share("--x", text)


@pytest.mark.parametrize("lost", [1, 345, 796])
def test_a_ring_that_lost_packets_was_full_whatever_the_looks_saw(lost: int) -> None:
    """Seen: tcpdump -B 64 lost 345 to 796 packets a second at "level 0 %", so that
    --fail-above-level never failed."""
    watch = Watch()
    watch.look(seen(0))
    lossy, after = (
        watch.look(seen(1, packets=9_000, lost=lost)),
        watch.look(seen(2, packets=9_900, lost=lost)),
    )
    assert lossy and after
    [one], [other] = lossy.answer.captures, after.answer.captures
    assert one.level and other.level
    assert (one.level.ratio, other.level.ratio, other.level.highest_ratio) == (1.0, 0.0, 1.0)
