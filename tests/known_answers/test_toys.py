"""Toy SUTs that burn a known time per packet in a known thread: that thread is blamed, and what
makes it full."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.disturbed import Disturbed
from tests.e2e.conftest import Run, closes
from tests.known_answers.frames import ip, write

pytestmark = pytest.mark.alone

TOY = """
name = "toys"
[sut]
kind = "sink"
ring_frames = 256
[load]
kind = "replay"
trace = "TRACE"
pps = 24000
loops = 100
duration_s = 1.5
[measure]
repetitions = 1
late_p99_us = 60e6 # a machine that tests is late; the cause is the question
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
RECEIVE = """
[matrix.cells.receive-125us]
sut.receive_ns = 125_000
sut.workers = 1
"""
RECEIVE_TOO = """
[matrix.cells.receive-and-little-work]
sut.receive_ns = 300_000
sut.workers = 3
sut.worker_ns = 10_000
[matrix.cells.receive-200us]
sut.receive_ns = 200_000
sut.workers = 2
"""
WORKER = """
[matrix.cells.worker-150us]
sut.workers = 1
sut.worker_ns = 150_000
"""
WORKER_TOO = """
[matrix.cells.worker-and-little-receiving]
sut.workers = 1
sut.worker_ns = 400_000
sut.receive_ns = 20_000
[matrix.cells.worker-250us]
sut.workers = 1
sut.worker_ns = 250_000
"""
ELEPHANT = """
[matrix.cells.two]
sut.workers = 2
sut.worker_ns = 200_000
"""
ELEPHANT_TOO = """
[matrix.cells.four]
sut.workers = 4
sut.worker_ns = 150_000
[matrix.cells.three]
sut.workers = 3
sut.worker_ns = 300_000
"""
ONE_CPU = """
[matrix]
load.cpu = ["any"] # on one CPU that nodrop parts off for the SUT, all threads take turns
load.duration_s = [3] # for looks enough at threads that sleep
load.loops = [200]
"""
# On one CPU, two workers are hardly ever found asleep, and one of them is nearly always full.
LOCK = """
[matrix.cells.lock-150us]
sut.workers = 4
sut.lock_ns = 150_000
"""
LOCK_TOO = """
[matrix.cells.lock-and-little-alone]
sut.workers = 4
sut.lock_ns = 400_000
sut.worker_ns = 4_000
[matrix.cells.lock-250us]
sut.workers = 5
sut.lock_ns = 250_000
"""
ELEPHANT_SHARE = 0.9


def frames(flows: int, each: int) -> list[bytes]:
    """Frames of all flows, in turns."""
    udp = struct.pack("!HHHH", 1000, 7, 8, 0)
    return [ip(udp, source=10 + n) for _ in range(each) for n in range(flows)]


def even(tmp_path: Path) -> Path:
    return write(tmp_path / "even.pcap", frames(64, 40))


def elephant(tmp_path: Path) -> Path:
    mice = frames(32, 8)
    one = round(len(mice) * ELEPHANT_SHARE / (1 - ELEPHANT_SHARE))
    found = mice + frames(1, one)
    random.Random(1).shuffle(found)
    return write(tmp_path / "elephant.pcap", found)


def ran(run: Run, trace: Path, cells: str) -> list[TrialRecord]:
    records = run(text=TOY.replace("TRACE", str(trace)) + cells).records
    assert len(records) == cells.count("[matrix.cells.")
    for record in records:
        assert record.valid and closes(record), record.verdict
        assert record.threads_unexplained_packets == 0
        assert record.packets.lost_packets > 1000
    return records


DISTURBED = ("hypervisor", "other programs", "the sender had")


def quiet(records: Sequence[TrialRecord], *others: str) -> Iterator[TrialRecord]:
    """Records whose verdict does not say that something else had the CPUs: of them alone the toy is
    the whole truth. test_cause_by_role.py has the same cases without a machine."""
    for record in records:
        if not any(words in record.verdict for words in (*DISTURBED, *others)):
            yield record


BURNS_LEAST = 0.92
"""Least share of the time that a thread which burns CPU ran, or waited to run."""


def says(record: TrialRecord, *words: str) -> None:
    """The verdict has these words. If not, and no thread burnt CPU as a toy does, the host had
    halted without a word (a thread slept for 10 to 20 %): the test is tried again."""
    lacking = [one for one in words if one not in record.verdict]
    burnt = max((t.cpu_ratio or 0) + (t.wait_ratio or 0) for t in record.threads)
    if lacking and burnt < BURNS_LEAST:
        raise Disturbed(f"no thread wanted a CPU for more than {burnt:.0%}: {record.verdict}")
    assert not lacking, record.verdict


@pytest.mark.parametrize("cells", [RECEIVE, depth(RECEIVE_TOO)])
def test_a_full_receive_thread(run: Run, tmp_path: Path, cells: str) -> None:
    for record in quiet(ran(run, even(tmp_path), cells)):
        says(record, "receive thread sink-0 used", "its workers had at most")
        says(record, "a larger ring only moves the burst")


@pytest.mark.parametrize("cells", [WORKER, depth(WORKER_TOO)])
def test_a_full_worker(run: Run, tmp_path: Path, cells: str) -> None:
    for record in quiet(ran(run, even(tmp_path), cells)):
        says(record, "worker sink-w0 used", "it waits until workers give packets back")
        says(record, "sut.workers")


@pytest.mark.parametrize("cells", [ELEPHANT, depth(ELEPHANT_TOO)])
def test_one_elephant_flow(run: Run, tmp_path: Path, cells: str) -> None:
    for record in quiet(ran(run, elephant(tmp_path), cells)):
        sizes = record.flow_sizes
        assert sizes is not None and sizes.largest_ratio == pytest.approx(ELEPHANT_SHARE, abs=0.01)
        says(record, "one flow has 90 % of the packets and stays on one thread")
        assert "nor do more workers" in record.verdict


@pytest.mark.parametrize("cells", [LOCK, depth(LOCK_TOO)])
def test_a_lock(run: Run, tmp_path: Path, cells: str) -> None:
    for record in quiet(ran(run, even(tmp_path), ONE_CPU + cells), "while receive thread"):
        assert "thread sink-0 slept" in record.verdict
        assert "slept in a futex as well, though they had packets: a lock" in record.verdict
        held_s = float(record.cell["sut.lock_ns"]) / 1e9  # type: ignore[arg-type]
        took_s = (record.offered.duration_s or 0.0) + (record.drain_s or 0.0)
        assert (record.packets.decoded_packets or 0) * held_s <= took_s + held_s
