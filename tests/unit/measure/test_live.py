"""Reports of a trial while its load is offered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from nodrop.ledger.imbalance import BusyThread
from nodrop.measure.busy import Feed
from nodrop.measure.sampling import Sampler
from nodrop.protocol import SampleRow
from nodrop.results.trial import Live, live_rows
from nodrop.testbed.hosts.api import HostProcess, LabPort
from nodrop.testbed.load.api import OfferedLoad
from nodrop.testbed.suts.api import SutCounters
from nodrop.testing.fakes import FakeHost, FakeWorld, whole


class Sut:
    """Answers what it is given, one reading after the other."""

    def __init__(self, *decoded: int) -> None:
        self._decoded = iter(decoded)

    def live(self) -> SutCounters:
        n = next(self._decoded)
        return SutCounters(captured_packets=n, dropped_ring_full_packets=0, decoded_packets=n)


class Offerer:
    intended_packets = 1000
    intended_duration_s = 2.0


def row(mono_s: float, rx_packets: int, cpu_s: float) -> str:
    thread = {"tid": 5, "name": "W#01", "cpu_ns": int(cpu_s * 1e9)}
    found = {
        "mono_ns": int(mono_s * 1e9),
        "links": {"ndrx0": {"rx_packets": rx_packets}},
        "processes": [{"pid": 4, "threads": [thread]}],
        "tree": {"cpu_ns": thread["cpu_ns"]},
    }
    return json.dumps(whole(SampleRow, found)) + "\n"


def feed(sut: Sut, rows: Path, told: list[Live]) -> Feed:
    host = FakeHost(FakeWorld(), "rx")
    sampler = Sampler(
        host,
        [LabPort(host=host, name="ndrx0")],
        [HostProcess(host, 4)],
        own_cgroup=False,
        path=rows,
        interval_ms=100,
    )
    rows.write_text("")
    return Feed(
        sut.live,
        sampler,
        cast(Any, Offerer()),
        nics=["ndrx0"],
        cpus=1,
        received_before=7,
        tell=told.append,
    )


def test_sender_sampler_and_sut_in_one_reading(tmp_path: Path) -> None:
    rows, told = tmp_path / "samples.jsonl", []
    feeding = feed(Sut(0, 480), rows, told)
    rows.write_text(row(1.0, 7, 0.1))
    feeding.begin()
    rows.write_text(row(1.0, 7, 0.1) + row(1.5, 507, 0.45) + '{"mono_ns":')
    feeding.tick(500)
    first, second = told
    assert (first.sent_packets, first.received_packets, first.busiest_thread) == (0, 0, None)
    assert (second.sent_packets, second.received_packets, second.decoded_packets) == (500, 500, 480)
    assert second.busiest_thread == BusyThread(name="W#01", cpu_ratio=0.7)
    assert second.decoded_pps is not None and second.decoded_pps > 0
    assert second.received_pps == 1000, "by the rows' own times, whenever they were read"
    assert (second.intended_packets, second.intended_s, second.phase) == (1000, 2.0, "offer")


def test_at_rest_has_the_final_counters_and_no_rates(tmp_path: Path) -> None:
    told: list[Live] = []
    feeding = feed(Sut(0), tmp_path / "samples.jsonl", told)
    feeding.begin()
    offered = OfferedLoad(
        intended_packets=1000,
        sent_packets=1000,
        sent_bytes=1,
        duration_s=2.0,
        intended_duration_s=2.0,
        schedule_error_us=None,
        cpu_s=None,
        first_sent_mono_ns=None,
        last_sent_mono_ns=None,
    )
    final = SutCounters(captured_packets=900, dropped_ring_full_packets=4, decoded_packets=896)
    feeding.at_rest(final, offered, 77)
    last = told[-1]
    assert (last.phase, last.mono_ns, last.sent_packets) == ("drained", 77, 1000)
    assert (last.captured_packets, last.dropped_packets, last.decoded_packets) == (900, 4, 896)
    assert {last.sent_pps, last.captured_pps, last.dropped_pps, last.decoded_pps} == {None}


def test_a_reading_survives_its_way_through_a_file(tmp_path: Path) -> None:
    from dataclasses import asdict

    thread = BusyThread(name="W#01", cpu_ratio=0.5)
    reading = Live(mono_ns=1, phase="offer", sent_packets=3, busiest_thread=thread)
    line = json.dumps({**asdict(reading), "of_a_later_version": 1})
    assert live_rows().validate_python(json.loads(line)) == reading
