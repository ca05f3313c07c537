"""Work per packet by the CPU's counters, and the profiler's own share."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.ledger.imbalance import SutThread
from nodrop.profile.functions import Profiled, trial_profile
from nodrop.profile.section import NOT_HERE, cost_table, packets_table, per_packet
from nodrop.report.tables import Table
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import trial

NOT_ASKED = "counters of the CPU were not asked for"
WORKERS = {"W#01": (540_000, 900), "W#02": (200_000, 100), "FM#01": (40_000, 0)}


def profile(
    counts: dict[str, tuple[int | None, int | None]], *, own_ns: int = 20, why: str = ""
) -> Any:
    threads = [
        {
            "name": name, "role": "worker" if name.startswith("W") else None, "lost": 0,
            "seen_ns": 1000, "cpu_ns": 600, "queued_ns": 100, "blocked_ns": 300, "waiting": [],
            "running": [{"stack": 0, "samples": 5}] if name.startswith("W") else [],
            "instructions": instructions, "cache_misses": misses, "cycles": None,
        }
        for name, (instructions, misses) in counts.items()
    ]  # fmt: skip
    return trial_profile(
        {
            "began_mono_ns": 0, "ended_mono_ns": 1000, "own_cpu_ns": own_ns,
            "missing": [{"what": "hardware", "why": why}] if why else [],
            "functions": [{"module": "s", "name": "Decode", "begins": None}], "stacks": [[0]],
            "threads": threads, "concurrency": None,
        }
    )  # fmt: skip


def record(decoded: int | None, **threads: SutThread) -> TrialRecord:
    return trial(
        run="0001-r01",
        cell={},
        repetition=1,
        index=1,
        outcome="measured",
        valid=True,
        verdict="clean",
        decoded_packets=decoded,
        threads=[*threads.values()],
    )


BOOKS = record(
    1000,
    one=SutThread(name="W#01", decoded_packets=600),
    two=SutThread(name="W#02", captured_packets=500, dropped_packets=100),
    manager=SutThread(name="FM#01"),
)


def cell(*trials: Any, books: TrialRecord = BOOKS) -> Profiled:
    seen = tuple(enumerate(trials))
    return Profiled(label="a", trials=seen, records=(books,) * len(trials))


def shown(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[value.shown for value in row.values] for row in table.rows]


def test_each_thread_is_held_against_its_own_packets_and_the_sum_against_the_suts() -> None:
    rows = shown(packets_table([cell(profile(WORKERS))]))
    assert [[*row[1:5], row[7]] for row in rows] == [
        ["all of the SUT", "–", "the SUT", "780", "1.00"],
        ["W#01", "worker", "the thread", "900", "1.50"],
        ["W#02", "worker", "the thread", "500", "0.25"],
        ["FM#01", "other", "the SUT", "40.00", "0.00"],
    ]


def test_the_median_of_trials_has_an_interval_from_six_on() -> None:
    trials = [profile({"W#01": (600_000 + 600 * n, 600)}) for n in range(7)]
    (whole, _) = shown(packets_table([cell(*trials)]))
    assert (whole[4], whole[7]) == ("602", "0.60")
    assert whole[5] != "–" and whole[6] != "–"


def test_a_counter_that_one_thread_lacks_has_no_sum() -> None:
    found = per_packet(profile({"W#01": (600, 60), "W#02": (400, None)}), BOOKS)
    assert found["all of the SUT", "–", "the SUT"] == {"instructions": 1.0}
    assert found["W#02", "worker", "the thread"] == {"instructions": 1.0}


def test_threads_of_one_name_cannot_be_told_apart() -> None:
    twice = profile({"W#01": (600, 60)})
    two = type(twice)(
        roles=twice.roles, threads=twice.threads * 2, own_cpu_ratio=0.0, lost=0, missing={},
        concurrency=(), concurrency_error=0.0,
    )  # fmt: skip
    assert [*per_packet(two, BOOKS)] == [("all of the SUT", "–", "the SUT")]


def test_what_is_not_on_this_host_is_told_and_what_was_not_asked_for_is_not() -> None:
    none: dict[str, tuple[int | None, int | None]] = {"W#01": (None, None)}
    for why, says in [("a: not on this host: ENOENT", NOT_HERE), ("b: EACCES", "not seen")]:
        (row,) = shown(packets_table([cell(profile(none, why=why))]))
        assert (row[1], row[4], row[7]) == ("all of the SUT", says, says)
    assert packets_table([cell(profile(none, why=NOT_ASKED))]) is None
    assert (
        per_packet(profile(WORKERS), record(0)) == {} == per_packet(profile(WORKERS), record(None))
    )


def test_the_profilers_own_cpu_is_shared_among_the_threads_with_samples() -> None:
    (row,) = shown(cost_table([cell(profile(WORKERS), profile(WORKERS, own_ns=40))]))
    assert row == ["a", "3.00", "4.00", "2", "1.50"]
    assert cost_table([cell(profile({"FM#01": (1, 1)}))]) is None


def test_a_count_of_nothing_is_no_row() -> None:
    assert packets_table([cell(profile({"FM#01": (0, 0)}))]) is None
    rates = per_packet(profile({"W#01": (600, 60), "FM#01": (0, 0)}), BOOKS)
    assert ("FM#01", "other", "the SUT") not in rates
    assert rates["W#01", "worker", "the thread"] == pytest.approx(
        {"instructions": 1.0, "cache_misses": 0.1}
    )
