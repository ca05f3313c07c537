"""Sleeping threads mean empty rings under conditions, shown by looks that are played."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from nodrop.testbed.hosts.processes import Inside
from nodrop.testbed.setups.api import Process
from nodrop.testbed.suts.suricata.running import ThreadsAsleep

LOOK_S = 0.1
MS = 1_000_000


def look(cpu_ns: int | None, *, stopped: bool = False) -> Inside:
    """`cpu_ns` is None if a thread runs, or would run if it got a CPU."""
    return Inside(stopped=stopped, threads=("W#01",), packet_sockets=(), cpu_ns=cpu_ns)


class Looked:
    """A Process that shows one look after the other, and a clock that goes on between them."""

    def __init__(self, looks: Sequence[Inside | None]) -> None:
        self._looks = iter(looks)
        self.now_s = 100.0

    def look(self) -> Inside | None:
        return next(self._looks)


def said(
    monkeypatch: pytest.MonkeyPatch, *looks: Inside | None, at_least_s: float = 0.03
) -> list[bool]:
    process = Looked(looks)
    monkeypatch.setattr(time, "monotonic", lambda: process.now_s)
    asks = ThreadsAsleep(cast("Process", process), at_least_s=at_least_s)

    def answers() -> Iterator[bool]:
        for _ in looks:
            yield asks()
            process.now_s += LOOK_S

    return list(answers())


def test_it_takes_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, look(5 * MS), look(6 * MS)) == [False, True]


@pytest.mark.parametrize(
    "awake", [look(None), look(5 * MS, stopped=True), None], ids=["runs", "stopped", "gone"]
)
def test_a_thread_awake_begins_it_anew(
    monkeypatch: pytest.MonkeyPatch, awake: Inside | None
) -> None:
    rests: Any = look(5 * MS)
    assert said(monkeypatch, rests, awake, rests, rests) == [False, False, False, True]


def test_work_between_two_looks_begins_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 ms of 100: more than housekeeping takes."""
    looks = [look(ms * MS) for ms in (0, 20, 40, 41)]
    assert said(monkeypatch, *looks) == [False, False, False, True]


def test_it_must_outlast_the_timeout_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [look(0)] * 5
    assert said(monkeypatch, *looks, at_least_s=0.25) == [False, False, False, True, True]


def test_work_after_a_block_was_handed_over_begins_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [look(ms * MS) for ms in (0, 0, 50, 50, 50, 50)]
    answers = said(monkeypatch, *looks, at_least_s=0.25)
    assert answers == [False, False, False, False, False, True]
