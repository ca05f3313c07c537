"""One sender, one offer after another: each is what it was aimed at, whatever was sent before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LoadFailed
from nodrop.testbed.hosts.api import Json, Link, UndoJournal
from nodrop.testbed.load.api import LoadGenerator, Offerer
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.tcpreplay import Tcpreplay
from tests.netns.replays import DEADLINE_S, small_trace

LENGTHS = [60, 900, 60, 300, 60]
OFFERS: list[Mapping[str, Any]] = [
    {"pps": 1000.0, "loops": 20},
    {"pps": 1000.0, "loops": 20},
    {"speed": 2.0, "multiplier": 3},
    {"top_speed": True, "multiplier": 5, "loops": 7},
    {"pps": 500.0, "multiplier": 3, "flows": "same"},
    {"speed": 1.0, "multiplier": 2, "loops": 4, "seed": 9},
    {"pps": 1000.0, "loops": 100, "duration_s": 0.05},
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return small_trace(tmp_path / "small.pcap", LENGTHS)


@pytest.fixture
def sink(link: Link) -> Iterator[Any]:
    job = link.rx.host.job({"job": "sink", "interface": link.rx.name, "count_flows": True})
    job.start()
    yield job
    job.close()


def result(job: Any) -> Json:
    job.stop()
    found: Json = job.result(timeout_s=DEADLINE_S)
    return found


def packets(load: LoadGenerator) -> int:
    options = load.options  # type: ignore[attr-defined]
    if options.duration_s is not None:
        return round(options.duration_s * options.pps)
    return len(LENGTHS) * options.loops * options.multiplier


@pytest.mark.parametrize("order", [1, -1])
def test_a_replay_offers_one_load_after_another(
    link: Link, sink: Any, trace: Path, tmp_path: Path, journal: UndoJournal, order: int
) -> None:
    loads = [Replay({"trace": str(trace), **table}, base=tmp_path) for table in OFFERS[::order]]
    sent, sent_bytes, first_copies = 0, 0, list[int]()
    flows: float = 0
    with loads[0].prepare(link, work=tmp_path, journal=journal) as offerer:
        processes = offerer.processes
        for load in loads:
            offerer.aim(load, work=tmp_path)
            assert offerer.processes == processes
            offered = offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)
            assert offered.intended_packets == offered.sent_packets == packets(load)
            assert offered.unsent_packets == 0
            assert offered.sent_bytes % sum(LENGTHS) == 0 or load.options.duration_s
            assert sum(offered.achieved["packets"]) == offered.sent_packets  # type: ignore[index]
            assert (offered.schedule_error_us is None) == load.options.top_speed
            assert offered.facts["load"] == {
                "trace_sha256": load.trace_facts().sha256,
                **load.words(),
            }
            sent += offered.sent_packets
            sent_bytes += offered.sent_bytes
            same = load.options.flows == "same"
            assert offerer.flows == ("repeated" if same and flows else "new")
            first_copies.append(offered.facts["first_copy"])  # type: ignore[arg-type]
            # Distinct replicas have flows of their own, in each offer; the first is the trace.
            flows += 0 if same and flows else 1 if same else load.options.multiplier
    got = result(sink)
    assert (got["packets"], got["bytes"], got["tp_drops"]) == (sent, sent_bytes, 0)
    assert got["flows"] == len(LENGTHS) * flows
    assert first_copies[0] == 0


def test_the_load_it_was_prepared_for_may_be_left_out(
    link: Link, sink: Any, trace: Path, tmp_path: Path, journal: UndoJournal
) -> None:
    first = Replay({"trace": str(trace), "pps": 10.0, "loops": 1000}, base=tmp_path)
    then = Replay({"trace": str(trace), "pps": 2000.0, "loops": 3}, base=tmp_path)
    with first.prepare(link, work=tmp_path, journal=journal) as offerer:
        assert offerer.intended_packets == 1000 * len(LENGTHS)
        offerer.aim(then, work=tmp_path)
        assert offerer.intended_packets == 3 * len(LENGTHS)
        offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)
    assert result(sink)["packets"] == 3 * len(LENGTHS)


def test_another_trace_may_follow(
    link: Link, sink: Any, trace: Path, tmp_path: Path, journal: UndoJournal
) -> None:
    other = small_trace(tmp_path / "other.pcap", [80] * 9)
    loads = [
        Replay({"trace": str(path), "pps": 2000.0}, base=tmp_path) for path in (trace, other, trace)
    ]
    with loads[0].prepare(link, work=tmp_path, journal=journal) as offerer:
        said = []
        for load in loads:
            offerer.aim(load, work=tmp_path)
            offered = offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)
            said.append((offered.sent_packets, offered.sent_bytes))
    assert said == [(5, sum(LENGTHS)), (9, 720), (5, sum(LENGTHS))]
    assert result(sink)["packets"] == 19


def test_tcpreplay_offers_one_load_after_another(
    link: Link, sink: Any, trace: Path, tmp_path: Path, journal: UndoJournal
) -> None:
    tables: list[dict[str, Any]] = [
        {"pps": 2000.0, "loops": 4},
        {"top_speed": True, "multiplier": 2},
        {"pps": 2000.0},
    ]
    loads = [Tcpreplay({"trace": str(trace), **table}, base=tmp_path) for table in tables]
    if problems := loads[0].problems():
        pytest.skip(problems[0])
    with loads[0].prepare(link, work=tmp_path, journal=journal) as offerer:
        for number, load in enumerate(loads):
            work = tmp_path / str(number)
            work.mkdir()
            offerer.aim(load, work=work)
            offered = offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)
            assert offered.sent_packets == packets(load)
    assert result(sink)["packets"] == sum(map(packets, loads))


def test_the_offers_end_with_the_first_that_fails(
    link: Link, trace: Path, tmp_path: Path, journal: UndoJournal
) -> None:
    def offer(offerer: Offerer, load: Tcpreplay) -> None:
        offerer.aim(load, work=tmp_path)
        offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)

    load = Tcpreplay({"trace": str(trace), "pps": 2000.0}, base=tmp_path)
    if problems := load.problems():
        pytest.skip(problems[0])
    with load.prepare(link, work=tmp_path, journal=journal) as offerer:
        offer(offerer, load)
        link.tx.host.run(["ip", "link", "set", link.tx.name, "down"])
        with pytest.raises(LoadFailed):
            offer(offerer, load)
