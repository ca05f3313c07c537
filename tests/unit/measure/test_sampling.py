"""Use of CPU and memory between the marks of a trial, by the sampler's rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from nodrop.measure.sampling import Sampler, usage, usage_inside
from nodrop.protocol import SampleRow
from nodrop.testbed.hosts.api import Host, HostProcess, LabPort
from nodrop.testing.fakes import FakeJob, FakeWorld, whole

SECOND_NS = 1_000_000_000
MARKS = {"offer": 2 * SECOND_NS, "offered": 4 * SECOND_NS, "drained": 6 * SECOND_NS}


def row(second: int, *, busy_s: float, threads: dict[str, float], rss: int = 100) -> SampleRow:
    """Cumulative seconds of one CPU that was busy, and of the SUT's threads."""
    cpu = dict.fromkeys(("user_ns", "idle_ns", "iowait_ns", "steal_ns", "guest_ns"), 0)
    cpu |= {"cpu": 0, "user_ns": int(busy_s * SECOND_NS)}
    cpu["idle_ns"] = int((second - busy_s) * SECOND_NS)
    return whole(
        SampleRow,
        {
            "mono_ns": second * SECOND_NS,
            "cpus": [cpu],
            "tree": {"cpu_ns": int(sum(threads.values()) * SECOND_NS)},
            "processes": [
                {
                    "pid": 7,
                    "cpu_ns": int(sum(threads.values()) * SECOND_NS),
                    "rss_bytes": rss,
                    "rss_peak_bytes": rss + 5,
                    "threads": [
                        {"tid": n, "name": name, "cpu_ns": int(used * SECOND_NS)}
                        for n, (name, used) in enumerate(threads.items())
                    ],
                }
            ],
        },
    )


ROWS = [
    row(1, busy_s=1.0, threads={"main": 0.5, "W#01": 0.0}),
    row(2, busy_s=1.0, threads={"main": 0.5, "W#01": 0.0}),
    row(3, busy_s=1.5, threads={"main": 0.5, "W#01": 0.5}, rss=300),
    row(4, busy_s=2.5, threads={"main": 0.6, "W#01": 1.4}),
    row(5, busy_s=2.5, threads={"main": 0.6, "W#01": 1.4}),
    row(6, busy_s=2.6, threads={"main": 0.6, "W#01": 1.5}),
    row(7, busy_s=3.6, threads={"main": 0.6, "W#01": 2.5}),
]


def test_each_figure_counts_its_own_part_of_the_trial() -> None:
    found = usage(ROWS, MARKS, {"rows": 7})
    # The rows nearest outside the marks come along: nothing may be missed.
    assert found.sut_cpu_s == pytest.approx(2.6)
    assert found.host_cpu_ratio == pytest.approx(1.5 / 4)
    assert found.sut_rss_peak_bytes == 305
    assert found.busiest is not None
    assert (found.busiest.name, found.busiest.cpu_ratio) == ("W#01", pytest.approx(1.4 / 4))


def test_time_of_a_guest_is_busy_time_once() -> None:
    """The kernel counts it in user as well; the node's rows have it in `guest_ns` alone."""
    rows = [row(n, busy_s=0.1 * n, threads={"CPU 0/KVM": 0.6 * n}) for n in range(1, 8)]
    for n, each in enumerate(rows, 1):
        cpu = each["cpus"][0]
        cpu["guest_ns"] = int(0.5 * n * SECOND_NS)
        cpu["idle_ns"] -= cpu["guest_ns"]
    found = usage(rows, MARKS, {})
    assert found.host_cpu_ratio == pytest.approx(0.6)


def test_a_sut_that_does_not_run_while_packets_arrive_is_seen() -> None:
    still = [row(n, busy_s=1.0, threads={"W#01": 0.5}) for n in (1, 2, 3, 4)]
    moving = row(5, busy_s=1.2, threads={"W#01": 0.7})
    assert usage([*still, moving], MARKS, {}).idle_s == pytest.approx(3.0)


def test_too_few_rows_measure_nothing() -> None:
    found = usage(ROWS[:1], MARKS, {})
    assert (found.sut_cpu_s, found.host_cpu_ratio, found.busiest) == (None, None, None)


class Inside:
    """A SamplesInside whose clock began a second after ours."""

    clock_offset_ns = SECOND_NS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def finish(self) -> tuple[dict[str, Any], bytes]:
        rows = [{**row, "mono_ns": row["mono_ns"] - self.clock_offset_ns} for row in ROWS]
        slow = whole(SampleRow, {"mono_ns": 99})
        return {"rows": 7}, "".join(json.dumps(row) + "\n" for row in [*rows, slow]).encode()


def test_rows_of_another_clock_are_cut_at_the_same_marks(tmp_path: Path) -> None:
    path = tmp_path / "samples-guest.jsonl"
    assert usage_inside(Inside(), path, MARKS) == usage(ROWS, MARKS, {"rows": 7})
    assert json.loads(path.read_text().splitlines()[0])["mono_ns"] == 0


def test_a_row_of_slow_sources_alone_is_passed_over(tmp_path: Path) -> None:
    """Seen on a starved host: the sampler wakes late and takes what is read once a second alone."""
    job = FakeJob(FakeWorld(), {"job": "sample"})
    host = cast(Host, SimpleNamespace(here=False, job=lambda _spec: job))
    path = tmp_path / "samples.jsonl"
    slow = whole(SampleRow, {"mono_ns": 99, "swap": {}, "disks": {}})
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[:3], slow, *ROWS[3:], slow]))
    port = LabPort(host=host, name="rx0")
    roots = [HostProcess(host, 1)]
    sampler = Sampler(host, [port], roots, own_cgroup=False, path=path, interval_ms=100)
    for name, at in MARKS.items():
        sampler._marks[name] = at
    assert sampler.newest() == ROWS[-1]
    assert sampler.finish().sut_cpu_s == usage(ROWS, MARKS, {}).sut_cpu_s
