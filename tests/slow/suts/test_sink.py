"""The sink as SUT, over a node job that is played."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput, LabProblem, NodeDied, NodeRefused, TrialFailed
from nodrop.testbed.suts.sink import Sink

RESULT = {
    "packets": 70, "bytes": 7000, "tp_packets": 100, "tp_drops": 30, "tp_freeze_q_count": 1,
    "per_thread": [{"packets": 70, "bytes": 7000, "tp_packets": 100, "tp_drops": 30}],
}  # fmt: skip


class Job:
    """A NodeJob whose samples come one per look."""

    def __init__(self, samples: Sequence[dict[str, Any]], result: Any) -> None:
        self.child = subprocess.Popen(["sleep", "60"])
        self.pid = self.child.pid
        self.ready = {"ring_bytes": 1 << 20, "ring_frames": None, "threads": 1}
        self.said: list[str] = []
        self._samples, self._shown, self._result = samples, 0, result

    def start(self, *, at_mono_ns: int | None = None) -> None:
        self.said.append("start")

    def stop(self) -> None:
        self.said.append("stop")

    def samples(self) -> Sequence[Any]:
        shown = self._samples[: self._shown]
        self._shown += 1
        return shown

    def result(self, *, timeout_s: float) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def ended(self) -> bool:
        return self.child.poll() is not None

    def close(self) -> None:
        self.said.append("close")
        self.child.kill()
        self.child.wait()


class Env:
    capture_interfaces = ("ndrx0",)
    clock_offset_ns = 0

    @property
    def host(self) -> Env:
        return self

    @property
    def near(self) -> Env:
        return self

    def __init__(self, job: Job) -> None:
        self._job = job
        self.spec: Any = None

    def job(self, spec: Any) -> Job:
        self.spec = spec
        return self._job


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.close()


def launch(jobs: list[Job], samples: Sequence[dict[str, Any]] = (), result: Any = RESULT) -> Any:
    jobs.append(Job(samples, result))
    env: Any = Env(jobs[0])
    running = Sink({"service_rate_pps": 5000.0, "defrag": "yes"}, base=Path()).launch(env)
    assert env.spec == {
        "job": "sink", "interface": "ndrx0", "service_rate_pps": 5000.0,
        "ring_bytes": 64 << 20, "ring_frames": None, "defrag": True, "threads": 1,
        "receive_ns": 0, "costly_port": None, "costly_times": None,
        "workers": 0, "worker_ns": 0, "lock_ns": 0,
    }  # fmt: skip
    return running


def sample(
    packets: int, tp_packets: int, tp_drops: int, *, read_ns: int = 1, served_ns: int | None = 1
) -> dict[str, Any]:
    counts = {"packets": packets, "bytes": 0, "tp_packets": tp_packets, "tp_drops": tp_drops}
    thread = {**counts, "mono_ns": read_ns, "served_mono_ns": served_ns}
    return {**counts, "mono_ns": read_ns, "per_thread": [thread]}


LATER_NS = 1 << 62
"""A time after whatever the clock says."""


def test_from_launch_to_last_word(jobs: list[Job]) -> None:
    running = launch(jobs)
    running.wait_ready(timeout_s=1)
    final = running.finish(timeout_s=1)
    assert jobs[0].said == ["start", "stop", "close"]
    assert (final.captured_packets, final.dropped_ring_full_packets) == (100, 30)
    assert (final.decoded_packets, final.decoded_bytes) == (70, 7000)
    assert final.per_thread["sink-0"]["decoded_packets"] == 70
    assert running.process.poll() == 0


def test_drained_at_the_expected_count(jobs: list[Job]) -> None:
    busy = [sample(0, 0, 0), sample(10, 60, 10), sample(10, 90, 20)]
    running = launch(jobs, [*busy, sample(70, 100, 30)])
    running.drain(expected_packets=100, timeout_s=5)
    assert len(jobs[0].samples()) == 4


def test_drained_when_samples_agree_for_half_a_second(jobs: list[Job]) -> None:
    running = launch(jobs, [sample(0, 0, 0), *[sample(60, 90, 30)] * 6])
    running.drain(expected_packets=100, timeout_s=5)
    assert len(jobs[0].samples()) == 7


def test_samples_that_agree_on_a_full_ring_are_not_at_rest(jobs: list[Job]) -> None:
    running = launch(jobs, [sample(0, 0, 0), *[sample(10, 90, 30)] * 9])
    words = "do not come to rest within 0.5 s: it has read 10 of 60 packets; a slow sink"
    with pytest.raises(TrialFailed, match=words):
        running.drain(expected_packets=None, timeout_s=0.5)


@pytest.mark.parametrize("missing", ["packets", "tp_packets", "tp_drops"])
def test_a_sample_that_makes_no_sense_is_said(jobs: list[Job], missing: str) -> None:
    spoilt = sample(70, 100, 30)
    del spoilt[missing]
    running = launch(jobs, [sample(0, 0, 0), spoilt])
    with pytest.raises(LabProblem, match=f"a sample of node job 'sink' makes no sense.*{missing}"):
        running.drain(expected_packets=None, timeout_s=5)


def test_a_sink_that_says_nothing_hangs(jobs: list[Job]) -> None:
    running = launch(jobs)
    with pytest.raises(TrialFailed, match=r"^the sink says nothing for 0.3 s: it hangs"):
        running.drain(expected_packets=100, timeout_s=0.3)


@pytest.mark.parametrize(
    ("slots", "busy_ns"), [(None, LATER_NS + 1), (256, LATER_NS + 7_000_000 - 200_000)]
)
def test_a_drain_ends_when_the_last_packet_was_done(
    jobs: list[Job], slots: int | None, busy_ns: int
) -> None:
    """5,000 packets/s: a queue was at work until the last one's 200 us began."""
    stale = sample(10, 60, 10)
    waits = sample(10, 100, 30, read_ns=LATER_NS + 1)
    done = sample(70, 100, 30, read_ns=LATER_NS + 9_000_000, served_ns=LATER_NS + 7_000_000)
    running = launch(jobs, [stale, stale, waits, done])
    jobs[0].ready["ring_frames"] = slots
    found = running.drain(expected_packets=100, timeout_s=5)
    assert found.rested_mono_ns == LATER_NS + 7_000_000
    assert (found.busy_mono_ns, found.left_packets) == (busy_ns, 60)


@pytest.mark.parametrize(
    ("ready", "holds"),
    [
        ({"ring_bytes": 1 << 20, "ring_frames": 256, "threads": 2}, 512),
        ({"ring_bytes": 1 << 20, "ring_frames": None, "threads": 2}, 16_384),
    ],
)
def test_what_its_rings_hold(jobs: list[Job], ready: dict[str, Any], holds: int) -> None:
    running = launch(jobs)
    jobs[0].ready = ready
    assert running.facts()["holds_packets"] == holds


def test_live_says_how_old_its_counters_are(jobs: list[Job]) -> None:
    now_ns = time.monotonic_ns()
    running = launch(jobs, [sample(10, 60, 10, read_ns=now_ns - 2_000_000_000)])
    jobs[0].samples()
    live = running.live()
    assert live.lag_s >= 2.0 and live.per_thread_lag_s == live.lag_s
    assert live.per_thread["sink-0"]["dropped_ring_full_packets"] == 10


def test_a_sink_that_died(jobs: list[Job]) -> None:
    running = launch(jobs, result=NodeDied("gone"))
    running.process.signal(9)
    jobs[0].child.wait(5)
    with pytest.raises(TrialFailed, match="ended before it was stopped"):
        running.drain(expected_packets=None, timeout_s=5)
    with pytest.raises(TrialFailed, match="without its counters: gone"):
        running.finish(timeout_s=1)


@pytest.mark.parametrize(
    ("kind", "raised"), [("protocol", NodeRefused), ("other", TrialFailed), ("io", TrialFailed)]
)
def test_a_sink_ended_for_nonsense_it_said_did_not_fail_at_the_load(
    jobs: list[Job], kind: str, raised: type[Exception]
) -> None:
    misfit = NodeRefused("sink: tp_drops: -1", kind=kind, said="tp_drops: -1", hint=None)
    running = launch(jobs, result=misfit)
    running.process.signal(9)
    jobs[0].child.wait(5)
    with pytest.raises(raised, match="tp_drops: -1" if kind == "protocol" else "ended before"):
        running.drain(expected_packets=None, timeout_s=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"service_rate_pps": 0}, "sut.service_rate_pps = 0: must be >= 0.001"),
        ({"service_rate_pps": 1e-300}, "sut.service_rate_pps = 1e-300: must be >= 0.001"),
        ({"threads": 1025}, "sut.threads = 1025: must be <= 1024"),
        ({"threads": 100_000}, "sut.threads = 100000: must be <= 1024"),
        ({"threads": 2**63 - 1}, "sut.threads = 9223372036854775807: must be <= 1024"),
        ({"ring_bytes": 1}, "sut.ring_bytes = 1: must be >= 4096"),
        ({"ring_bytes": 4095}, "sut.ring_bytes = 4095: must be >= 4096"),
        ({"ring_bytes": "2GiB"}, 'sut.ring_bytes = "2GiB": must be <= 1073741824'),
        ({"ring": 5}, "sut.ring: no such key; did you mean sut.ring_bytes?"),
        (
            {"ring_frames": 5, "ring_bytes": "1MiB"},
            "sut: ring_frames and ring_bytes contradict each other: give one of them",
        ),
        ({"worker_ns": 5}, "sut: worker_ns and lock_ns are of workers: set workers"),
        ({"lock_ns": 5}, "sut: worker_ns and lock_ns are of workers: set workers"),
        (
            {"service_rate_pps": 5, "workers": 2},
            "sut: service_rate_pps sleeps between packets: leave out receive_ns, workers",
        ),
        ({"costly_port": 80}, "sut: costly_port and costly_times belong together: give both"),
        (
            {"costly_port": 80, "costly_times": 3},
            "sut: costly_port needs service_rate_pps or receive_ns",
        ),
        ({"receive_ns": 2_000_000_000}, "sut.receive_ns = 2000000000: must be <= 1000000000"),
        ({"threads": "two"}, 'sut.threads = "two": must be a whole number'),
    ],
)
def test_bad_options_are_one_clear_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Sink(given, base=Path())
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ({}, {"sink-0": "worker", "sink-3": "worker"}),
        ({"receive_ns": 5}, {"sink-0": "worker"}),
        ({"workers": 1}, {"sink-0": "receive", "sink-w0": "worker", "nodrop-node": None}),
        ({"workers": 12}, {"sink-2": "receive", "sink-w11": "worker", "tokio": None}),
    ],
)
def test_a_thread_with_workers_behind_it_receives(
    given: dict[str, Any], roles: dict[str, str | None]
) -> None:
    sut = Sink(given, base=Path())
    assert {name: sut.role(name) for name in roles} == roles


@pytest.mark.parametrize(("frames", "workers", "holds"), [(256, 2, 458), (1, 1, 102), (9, 0, 9)])
def test_packets_wait_before_workers_as_well(frames: int, workers: int, holds: int) -> None:
    assert Sink({"ring_frames": frames, "workers": workers}, base=Path()).holds_packets == holds
