"""Packets that a busy core carries, one value for each start of the SUT."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.capacity.pictures import efficiency, efficiency_table, efficiency_words
from nodrop.results.trial import TrialRecord
from tests.made import outcome_runs


def trial(index: int, pps: float, cpu_s: float | None = 1.0, **figures: Any) -> TrialRecord:
    told = {
        "cell": {},
        "repetition": 1,
        "index": index,
        "run": f"{index:04}-r01",
        "valid": True,
        "verdict": "no loss",
        "offered_packets": round(pps * 2),
        "offered_pps": pps,
        "offered_bps": pps * 1000,
        "duration_s": 2.0,
        "loss_ratio": 0.0,
        "lost_packets": 0,
        "sut_cpu_s": cpu_s,
    }
    return outcome_runs.trial(**told | figures)


@pytest.mark.parametrize(("pps", "cpu_s", "each"), [(1000, 0.5, 4000), (30_000, 1.5, 40_000)])
def test_packets_and_bits_for_a_busy_second(pps: float, cpu_s: float, each: float) -> None:
    found = efficiency([trial(1, pps, cpu_s)])
    assert found is not None and found.bits is not None
    assert found.packets.median == pytest.approx(each)
    assert found.bits.median == pytest.approx(each * 1000)
    assert found.packets.interval is None, "one start of the SUT has no interval"


def test_trials_of_one_start_are_one_value() -> None:
    same = [trial(i, 1000, 0.5, world=1) for i in range(1, 7)]
    found = efficiency([*same, trial(7, 1000, 1.0, world=7)])
    assert found is not None
    assert (found.packets.n, found.packets.low, found.packets.high) == (2, 2000, 4000)


def test_six_starts_have_an_interval() -> None:
    found = efficiency([trial(i, 1000, 0.5 + i / 100, world=i) for i in range(1, 7)])
    assert found is not None and found.packets.interval is not None


@pytest.mark.parametrize(
    "other",
    [
        trial(2, 400),
        trial(2, 9000, loss_ratio=0.1, lost_packets=1800),
        trial(2, 1000, None),
        trial(2, 1000, outcome="void", valid=False, invalid_reasons=["sender_late"]),
    ],
)
def test_idle_lossy_void_and_unmeasured_trials_say_nothing(other: TrialRecord) -> None:
    found = efficiency([trial(1, 1000, 0.5), other])
    assert found is not None and found.packets.n == 1


def test_without_a_trial_nothing_is_known() -> None:
    assert efficiency([]) is None
    assert efficiency([trial(1, 1000, None)]) is None


def test_what_works_for_the_sut_counts() -> None:
    found = efficiency([trial(1, 1000, 0.5, setup_cpu_s=2.0)])
    assert found is not None and found.packets.median == pytest.approx(1000)


def busy(index: int, pps: float, cpu_s: float, ratio: float | None, **figures: Any) -> TrialRecord:
    thread = None if ratio is None else {"name": "W#01", "cpu_ratio": ratio}
    return trial(index, pps, cpu_s, busiest_thread=thread, **figures)


@pytest.mark.parametrize(
    ("pps", "cpu_s", "ratios", "core"),
    [
        # A sink of 13,777/s: "a busy core carries 91,465 packets".
        (13_700, 0.3, (0.15, 0.16), False),
        (5_000, 0.02, (0.01, 0.89), False),
        (5_000, 0.02, (None, None), False),
        (30_000, 1.9, (0.93, 0.99), True),
        # It had time left at what it carries, and none just above.
        (30_000, 1.7, (0.85, 1.0), True),
    ],
)
def test_a_busy_core_is_spoken_of_only_if_there_was_one(
    pps: float, cpu_s: float, ratios: tuple[float | None, float | None], core: bool
) -> None:
    carried, above = ratios
    lossy = busy(2, pps * 1.1, cpu_s, above, loss_ratio=0.1, lost_packets=round(pps * 0.22))
    found = efficiency([busy(1, pps, cpu_s, carried), lossy])
    assert found is not None and found.core_is_full == core
    words = efficiency_words("Suricata", found)
    assert f"Suricata: CPU time of a packet {cpu_s / pps / 2 * 1e6:.1f} µs (one start" in words
    assert ("A busy core carries" in words) == core
    names = [column.name for column in efficiency_table([("x", found)]).columns]
    (row,) = efficiency_table([("x", found)]).rows
    shown = dict(zip(names, (value.raw for value in row.values), strict=True))
    assert (shown["packets_per_cpu_s"] is not None) == (shown["bits_per_cpu_s"] is not None) == core
    assert shown["cpu_us_per_packet"] == pytest.approx(found.packet_us.median)
