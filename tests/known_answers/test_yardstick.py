"""The sink with a service rate is a queue: its slots and its rate, no more and no less.

What it must lose follows from D/D/1/K (a constant rate), from a burst into an idle queue, and for
random arrivals (M/D/1/K) from an event simulation of the very trace that is replayed. What a busy
machine adds is allowed for by what the sender itself says of its lateness.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.measure.manager import RunOutcome
from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.e2e.conftest import Run, closes, only

pytestmark = pytest.mark.alone

SINK = """
name = "yardstick"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "{path}"
loops = 100000
[measure]
repetitions = 1
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
steal_max_ratio = 1
late_burst_max_ratio = 1
"""
FRAME = bytes(12) + b"\x88\xb5" + bytes(50)
"""A frame of an experimental protocol: one flow."""


@pytest.fixture
def real_trace() -> Path:
    """None is needed."""
    return Path()


@pytest.fixture
def sink(run: Run, tmp_path: Path) -> Run:
    """Runs the sink on a trace of packets that are due at `times_s`."""

    def go(*settings: str, times_s: Sequence[float] = (0.0, 0.001)) -> RunOutcome:
        trace = tmp_path / "trace.pcap"
        head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        records = (
            struct.pack("<IIII", int(s), int(s % 1 * 1e9), len(FRAME), len(FRAME)) + FRAME
            for s in times_s
        )
        trace.write_bytes(head + b"".join(records))
        return run(*settings, text=SINK.replace("{path}", str(trace)))

    return go


def slots_of(outcome: RunOutcome) -> Any:
    trial = outcome.directory / "runs" / only(outcome).run / "trial.json"
    return json.loads(trial.read_text())["details"]["facts"]["sut"]["ring_frames"]


def late_packets(record: TrialRecord, pps: float) -> float:
    """Packets that the sender may have sent at once because it was late."""
    assert record.offered.schedule_error_us is not None
    return pps * record.offered.schedule_error_us.max / 1e6


@pytest.mark.parametrize(
    ("pps", "rate", "ring"),
    [
        (8_000, 9_000, 'ring_bytes="1MiB"'),  # as it was found: lost 37 % by blocks
        depth(2_000, 2_100, "ring_frames=200"),
        depth(20_000, 25_000, "ring_frames=4096"),
        depth(500, 501, "ring_frames=40"),
    ],
)
def test_a_rate_below_its_own_loses_nothing(sink: Run, pps: int, rate: int, ring: str) -> None:
    outcome = sink(
        f"sut.service_rate_pps={rate}", f"sut.{ring}", f"load.pps={pps}", "load.duration_s=1.5"
    )
    record = only(outcome)
    assert record.valid and closes(record), record.verdict
    assert record.packets.lost_packets <= max(0, late_packets(record, pps) - slots_of(outcome))
    assert record.packets.sustained is not False, record.packets.sustained_evidence


@pytest.mark.parametrize(
    ("pps", "rate", "slots"),
    [
        (10_000, 5_000, 256),
        depth(20_000, 9_000, 4_096),
        depth(4_000, 500, 16),
        depth(30_000, 3_000, 1_000),
    ],
)
def test_a_rate_beyond_its_own_loses_the_rest(sink: Run, pps: int, rate: int, slots: int) -> None:
    outcome = sink(
        f"sut.service_rate_pps={rate}", f"sut.ring_frames={slots}", f"load.pps={pps}",
        "load.duration_s=1.5",
    )  # fmt: skip
    record = only(outcome)
    assert record.valid and closes(record), record.verdict
    assert record.packets.loss_place == "socket ring"
    assert slots_of(outcome) == slots
    served = rate * record.offered.duration_s + slots
    assert record.packets.decoded_packets == pytest.approx(served, rel=0.01, abs=2)


@pytest.mark.parametrize(
    ("burst", "rate", "slots"),
    [(5_000, 500, 256), depth(3_000, 10, 1), depth(2_000, 100, 33), depth(900, 50, 16)],
)
def test_a_burst_into_an_idle_queue_keeps_its_slots(
    sink: Run, burst: int, rate: int, slots: int
) -> None:
    record = only(
        sink(
            f"sut.service_rate_pps={rate}", f"sut.ring_frames={slots}", "load.top_speed=true",
            "load.loops=1", times_s=[n * 1e-6 for n in range(burst)],
        )
    )  # fmt: skip
    assert record.valid and closes(record), record.verdict
    meanwhile = math.ceil(rate * record.offered.duration_s)
    assert slots <= record.packets.decoded_packets <= slots + meanwhile + 1


def simulated(times_s: Sequence[float], rate: float, slots: int) -> int:
    """Packets that find all slots taken, the one in service included."""
    done: list[float] = []
    lost = 0
    for now in times_s:
        in_system = sum(1 for end in done[-slots:] if end > now)
        if in_system == slots:
            lost += 1
        else:
            done.append(max(now, done[-1] if done else 0.0) + 1 / rate)
    return lost


@pytest.mark.parametrize(
    ("pps", "rate", "slots"),
    [(200, 180, 8), depth(1_000, 800, 64), depth(100, 60, 4), depth(800, 780, 32)],
)
def test_random_arrivals_lose_what_a_simulation_of_them_does(
    sink: Run, pps: int, rate: int, slots: int
) -> None:
    """Slots that last for 40 ms and longer: a busy machine lets the sink wait for a CPU."""
    rng = random.Random(pps)
    times_s = [0.0]
    while times_s[-1] < 2.5:
        times_s.append(times_s[-1] + rng.expovariate(pps))
    record = only(
        sink(
            f"sut.service_rate_pps={rate}", f"sut.ring_frames={slots}", "load.speed=1",
            "load.loops=1", times_s=times_s,
        )
    )  # fmt: skip
    assert record.valid and closes(record), record.verdict
    expected = simulated(times_s, rate, slots)
    slack = 4 + 0.1 * expected + late_packets(record, pps)
    assert abs(record.packets.lost_packets - expected) <= slack, (
        record.packets.lost_packets,
        expected,
    )
