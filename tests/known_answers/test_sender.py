"""The sender is a suspect: what it lets arrive at once is never blamed on the SUT, and what a trace
asks for at once is never blamed on the sender."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.hosts.rights import in_user_namespace
from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import Inject, labelled

pytestmark = pytest.mark.alone

SINK = """
name = "sender"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "of-each-test.pcap"
[measure]
repetitions = 1
late_p99_us = 1000000 # what p99 forgives in a long trial; these are short
"""
FRAME_BYTES = 500
RING = f"sut.ring_bytes={2 << 20}"
"""Holds some 3,500 of these frames."""


def trace(path: Path, times_ns: Iterable[int]) -> str:
    """UDP frames of one flow at these times; the setting that sends them."""
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, FRAME_BYTES - 14, 0, 0, 64, 17, 0,
        bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]),
    )  # fmt: skip
    udp = struct.pack(">HHHH", 1000, 2000, FRAME_BYTES - 34, 0)
    frame = (bytes.fromhex("020000000002020000000001" + "0800") + ip + udp).ljust(FRAME_BYTES)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for at_ns in times_ns:
            seconds, ns = divmod(at_ns, 10**9)
            file.write(struct.pack("<IIII", seconds, ns, FRAME_BYTES, FRAME_BYTES) + frame)
    return f'load.trace="{path}"'


def even(pps: int, seconds: float, begin_s: float = 0.0) -> list[int]:
    return [int(begin_s * 1e9) + n * 10**9 // pps for n in range(round(pps * seconds))]


def sender() -> int:
    [pid] = [p for p in labelled("nodrop-node") if b"replay" in _argv(p)]
    return pid


def _argv(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def stopped(for_s: float, after_s: float = 0.7) -> Inject:
    def begin() -> None:
        pid = sender()

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(for_s, os.kill, (pid, signal.SIGCONT)).start()

        threading.Timer(after_s, stop).start()

    return Inject("offer", begin)


def says_the_burst(record: Any, stall_ms: float) -> None:
    """Void for the sender's burst, with the stall, its time and the burst in words."""
    assert record.outcome == "void", record.verdict
    assert record.invalid_reasons == ["sender_burst"], record.verdict
    assert closes(record)
    burst = record.offered.largest_late_burst
    assert burst.late_us >= stall_ms * 0.9e3
    assert f"fell {burst.late_us / 1e3:.0f} ms behind" in record.verdict
    assert f"{burst.sent:,} packets at once, {burst.at_s:.1f} s into it" in record.verdict
    assert f"{record.packets.lost_packets:,} packets were lost" in record.verdict


@pytest.mark.parametrize(
    ("stall_ms", "pps"), [(130, 40_000), depth(300, 20_000), depth(60, 90_000)]
)
def test_losses_in_the_burst_of_a_stopped_sender(
    run: Run, tmp_path: Path, stall_ms: int, pps: int
) -> None:
    """The SUT serves twice the load, and its ring holds 3,500 packets; 5,200 to 6,000 come at
    once."""
    record = only(
        run(
            trace(tmp_path / "even.pcap", even(1000, 1)),
            f"load.pps={pps}", f"load.loops={pps * 3 // 2 // 1000}",
            f"sut.service_rate_pps={2 * pps}", RING,
            text=SINK, progress=stopped(stall_ms / 1000),
        )
    )  # fmt: skip
    says_the_burst(record, stall_ms)
    if not in_user_namespace():  # else without real-time priority, and broken off
        assert record.offered.largest_late_burst.sent >= 0.9 * pps * stall_ms / 1000


HOG = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
time.sleep(float(sys.argv[2]))
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    pass
"""


def test_losses_behind_a_real_time_hog_on_the_senders_cpu(run: Run, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the hog would take the SUT's only CPU as well")
    hogs = []

    def begin() -> None:
        argv = [sys.executable, "-c", HOG, str(cpu), "0.7", "0.25"]
        hogs.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL))

    record = only(
        run(
            trace(tmp_path / "even.pcap", even(1000, 1)),
            "load.pps=40000", "load.loops=60", f"load.cpu={cpu}",
            "sut.service_rate_pps=80000", RING,
            text=SINK, progress=Inject("offer", begin),
        )
    )  # fmt: skip
    if hogs[0].wait(timeout=10):
        pytest.skip("no real-time scheduling here")
    says_the_burst(record, 200)


def test_genuine_overload_stays_a_result(run: Run, tmp_path: Path) -> None:
    """A fifth of the load is served; the lateness of a busy machine does not explain that."""
    record = only(
        run(
            trace(tmp_path / "even.pcap", even(1000, 1)),
            "load.pps=50000", "load.loops=75", "sut.service_rate_pps=10000",
            f"sut.ring_bytes={8 << 20}", text=SINK,
        )
    )  # fmt: skip
    assert record.outcome == "measured", record.verdict
    assert record.packets.loss_ratio > 0.3
    assert record.offered.sent_late is not None
    assert closes(record)


def test_a_stall_far_from_the_losses_leaves_them_to_the_sut(run: Run, tmp_path: Path) -> None:
    """0.5 s at three times what is served, then 3 s at a quarter of it, in which the sender stops;
    its burst finds room in the ring."""
    times = even(120_000, 0.5) + even(10_000, 3, begin_s=0.5)
    record = only(
        run(
            trace(tmp_path / "two.pcap", times), "load.speed=1",
            "sut.service_rate_pps=40000", RING, text=SINK, progress=stopped(0.13, after_s=2.9),
        )
    )  # fmt: skip
    assert record.outcome == "measured", record.verdict
    assert record.packets.loss_ratio > 0.2
    assert record.offered.largest_late_burst.sent >= 1_100, (
        "which is more than a quarter of the ring"
    )


@pytest.mark.parametrize("at_once", [20_000, depth(500), depth(2_000)])
def test_what_a_trace_asks_for_at_once_is_no_lateness(
    run: Run, tmp_path: Path, at_once: int
) -> None:
    """In the middle of the packets of one time the sender is late for the trace, not for itself."""
    times = [k * 100_000_000 for k in range(10) for _ in range(at_once)]
    record = only(run(trace(tmp_path / "at-once.pcap", times), "load.speed=1", text=SINK))
    assert record.valid, record.verdict
    queue_us = at_once / record.offered.shaped_per_s * 1e6
    assert record.offered.asked_schedule_error_us.p50 > 0.4 * queue_us
    assert (
        record.offered.asked_schedule_error_us.p50
        > record.offered.schedule_error_us.p50 + 0.3 * queue_us
    )
    assert record.offered.asked_schedule_error_us.max > 0.9 * queue_us


def test_a_sender_that_stops_within_such_a_trace_is_late_all_the_same(
    run: Run, tmp_path: Path
) -> None:
    times = [k * 50_000_000 for k in range(30) for _ in range(2_000)]
    record = only(
        run(
            trace(tmp_path / "at-once.pcap", times), "load.speed=1", "measure.late_p99_us=5000",
            text=SINK, progress=stopped(0.3),
        )
    )  # fmt: skip
    assert record.invalid_reasons == ["sender_late"], record.verdict
    assert record.offered.schedule_error_us.max >= 200_000
