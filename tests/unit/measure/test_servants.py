"""What works for a SUT beside it is charged once, and what is not known is not called zero."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.hosts.processes import named, parent
from nodrop.measure.servants import Servants, setup_cpu_s

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


def work(process: subprocess.Popen[str], cpu_s: float) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{cpu_s}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "worked\n"


def test_only_what_is_used_from_now_on_counts(worker: subprocess.Popen[str]) -> None:
    work(worker, 0.3)
    servants = Servants([worker.pid, 2**22 + 1])  # beyond the largest PID: nobody
    work(worker, 0.1)
    (used,) = servants.used()
    assert used["pid"] == worker.pid
    assert 0.08 <= used["cpu_s"] < 0.3


def test_one_that_has_ended_is_not_known(worker: subprocess.Popen[str]) -> None:
    servants = Servants([worker.pid])
    worker.kill()
    worker.wait()
    assert [one["cpu_s"] for one in servants.used()] == [None]


def test_the_sum_is_known_where_every_part_is() -> None:
    assert setup_cpu_s(1.5, []) == 1.5
    assert setup_cpu_s(1.5, [{"cpu_s": 0.25}, {"cpu_s": 0.0}]) == 1.75
    assert setup_cpu_s(1.5, [{"cpu_s": 0.25}, {"cpu_s": None}]) is None
    assert setup_cpu_s(None, []) is None
    assert setup_cpu_s(1.5, None) is None


def test_processes_are_found_by_parent_and_by_name(worker: subprocess.Popen[str]) -> None:
    assert parent(worker.pid) == os.getpid()
    assert worker.pid in named(Path(f"/proc/{worker.pid}/comm").read_text().strip())
