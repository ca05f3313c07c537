"""Threads that work for a SUT beside it are charged once, and an unknown is not called zero."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.measure.api import Servant, Servants, setup_cpu_s
from nodrop.measure.offering import Throttling
from nodrop.testbed.hosts.api import HostProcess
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.processes import allowed_cpus

WORK = """
import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print("worked", flush=True)
"""


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def host() -> Iterator[LocalHost]:
    with LocalHost(name="here", node=find_node_binary(), label="test") as host:
        yield host


def work(process: subprocess.Popen[str], cpu_s: float) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{cpu_s}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "worked\n"


def test_only_what_is_used_from_now_on_counts(
    worker: subprocess.Popen[str], host: LocalHost
) -> None:
    work(worker, 0.3)
    nobody = HostProcess(host, 2**22 + 1)  # beyond the largest PID
    servants = Servants([HostProcess(host, worker.pid), nobody])
    work(worker, 0.1)
    (used,) = servants.used()
    assert used.pid == worker.pid
    assert used.cpu_s is not None and 0.08 <= used.cpu_s < 0.3


def test_one_that_has_ended_is_not_known(worker: subprocess.Popen[str], host: LocalHost) -> None:
    servants = Servants([HostProcess(host, worker.pid)])
    worker.kill()
    worker.wait()
    assert [one.cpu_s for one in servants.used()] == [None]


def served(cpu_s: float | None) -> Servant:
    return Servant(pid=7, name="shim", cpu_s=cpu_s)


def test_the_sum_is_known_where_every_part_is() -> None:
    assert setup_cpu_s(1.5, []) == 1.5
    assert setup_cpu_s(1.5, [served(0.25), served(0.0)]) == 1.75
    assert setup_cpu_s(1.5, [served(0.25), served(None)]) is None
    assert setup_cpu_s(None, []) is None
    assert setup_cpu_s(1.5, None) is None


def test_processes_are_found_by_parent_and_by_name(
    worker: subprocess.Popen[str], host: LocalHost
) -> None:
    found = host.probe("processes")["processes"][str(worker.pid)]
    assert (found["parent"], found["arguments"][:2]) == (os.getpid(), [sys.executable, "-c"])
    assert found["name"] == Path(f"/proc/{worker.pid}/comm").read_text().strip()


@pytest.mark.parametrize("cpus", [1, 2, None])
def test_the_cpus_on_which_a_process_may_run(
    worker: subprocess.Popen[str], host: LocalHost, cpus: int | None
) -> None:
    mine = sorted(os.sched_getaffinity(0))[:cpus]
    os.sched_setaffinity(worker.pid, mine)
    assert allowed_cpus([HostProcess(host, worker.pid)]) == frozenset(mine)
    assert allowed_cpus([]) == frozenset()
    assert allowed_cpus([HostProcess(host, 2**22 + 1)]) == frozenset()


class SaidHost:
    """A Host whose node says what it is told, look by look."""

    def __init__(self, *looks: dict[str, dict[str, int]]) -> None:
        self.looks = list(looks)

    def probe(self, *what: str, **more: Any) -> dict[str, Any]:
        said = self.looks.pop(0)
        return {"usage": {pid: {"throttled_ns": groups} for pid, groups in said.items()}}


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([{"7": {"own": 5, "above": 1}}, {"7": {"own": 5_000_000_005, "above": 1}}], 5.0),
        ([{"7": {"own": 0, "above": 0}}, {"7": {"own": 10**9, "above": 2 * 10**9}}], 3.0),
        # Two processes of one group: the group once.
        ([{"7": {"g": 0}, "8": {"g": 0}}, {"7": {"g": 10**9}, "8": {"g": 10**9}}], 1.0),
        # A group that came later has no beginning.
        ([{"7": {"g": 0}}, {"7": {"g": 0, "late": 10**9}}], 0.0),
        ([{"7": {}}, {"7": {}}], None),  # no quota can be set
        ([{"7": {"g": 0}}, {}], None),  # gone
    ],
)
def test_throttled_since_the_beginning_in_each_group_once(
    looks: list[dict[str, dict[str, int]]], seconds: float | None
) -> None:
    host: Any = SaidHost(*looks)
    watched = Throttling([HostProcess(host, pid) for pid in (7, 8)])
    assert watched.look() == seconds
    assert [s for _, s in watched.readings] == ([] if seconds is None else [seconds])
