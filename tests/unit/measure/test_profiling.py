"""The profile beside a trial: on which kernel, from when to when by which clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from nodrop.errors import NodeRefused
from nodrop.ledger.imbalance import ThreadRole
from nodrop.measure.standing import Profiling, Unseen
from nodrop.testbed.hosts.api import Host, HostProcess, Json

AHEAD_NS = 1_000


class Job:
    """A NodeJob that has seen two threads."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def start(self) -> None:
        self._words.append("start")

    def stop(self) -> None:
        self._words.append("stop")

    def result(self, *, timeout_s: float) -> Json:
        self._words.append("result")
        threads = [{"name": "W#01"}, {"name": "CW"}]
        return {"type": "result", "began_mono_ns": 5, "ended_mono_ns": 7, "threads": threads}

    def close(self) -> None:
        self._words.append("close")


class Machine:
    """A Host; `here` or a guest."""

    def __init__(self, *, here: bool, refuses: str = "") -> None:
        self.here, self.clock_offset_ns = here, 0 if here else AHEAD_NS
        self.words: list[str] = []
        self.asked: Json = {}
        self._refuses = refuses

    def job(self, spec: Mapping[str, Any], *, timeout_s: float) -> Job:
        if self._refuses:
            raise NodeRefused("node job", kind=self._refuses, said="no perf events", hint=None)
        self.asked = dict(spec)
        return Job(self.words)


def of(*machines: Machine) -> list[HostProcess]:
    return [HostProcess(cast(Host, machine), 40 + n) for n, machine in enumerate(machines)]


def test_a_guest_is_seen_by_its_own_node_and_told_by_our_clock() -> None:
    guest = Machine(here=False)
    with Profiling(of(guest), hardware=True) as profiling:
        profiling.begin()
        profiling.stop()
        assert guest.words == ["start", "stop"], "the result waits until it is asked for"
        found = profiling.found(lambda name: ThreadRole.WORKER if name.startswith("W#") else None)
    assert guest.words == ["start", "stop", "result", "close"]
    assert guest.asked["pids"] == [40] and guest.asked["hardware"]
    assert (found["began_mono_ns"], found["ended_mono_ns"]) == (5 + AHEAD_NS, 7 + AHEAD_NS)
    assert [thread["role"] for thread in found["threads"]] == ["worker", None]


def test_instances_on_one_kernel_are_seen_together() -> None:
    first = Machine(here=True)
    Profiling(of(first, Machine(here=True)), hardware=False)
    assert first.asked == {"job": "profile", "pids": [40, 41], "hardware": False}


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ([], "the SUT has ended"),
        (of(Machine(here=False), Machine(here=False)), "each with a kernel of its own"),
        (of(Machine(here=False, refuses="unsupported")), "no perf events"),
        (of(Machine(here=True, refuses="permission")), "no perf events"),
    ],
)
def test_what_cannot_be_seen_is_told(programs: list[HostProcess], why: str) -> None:
    with pytest.raises(Unseen, match=why):
        Profiling(programs, hardware=False)


def test_a_defect_is_no_lack() -> None:
    with pytest.raises(NodeRefused):
        Profiling(of(Machine(here=True, refuses="bug")), hardware=False)
