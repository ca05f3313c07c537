"""A load multiplier that is no whole number: what was planned is what arrives."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.hosts.api import Link, UndoJournal
from nodrop.testbed.load.replay import Replay
from tests.netns.replays import DEADLINE_S, small_trace

RATES: list[Mapping[str, Any]] = [
    {"speed": 10},
    {"pps": 20_000.0, "loops": 2},
    {"speed": 2.0, "duration_s": 0.2},
    {"pps": 10_000.0, "loops": 3, "duration_s": 0.1},
    {"top_speed": True},
]
LENGTHS = [60 + n * 37 % 900 for n in range(1_000)]


def offered(link: Link, trace: Path, tmp_path: Path, journal: UndoJournal, **table: Any) -> Any:
    """The load, what its sender said, and what a sink of flows has received."""
    load = Replay({"trace": str(trace), **table}, base=tmp_path)
    job = link.rx.host.job({"job": "sink", "interface": link.rx.name, "count_flows": True})
    try:
        job.start()
        with load.prepare(link, work=tmp_path, journal=journal) as offerer:
            sent = offerer.offer(timeout_s=DEADLINE_S, tick=lambda _sent: None)
        job.stop()
        return load, sent, job.result(timeout_s=DEADLINE_S)
    finally:
        job.close()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A flow of its own for each packet."""
    return small_trace(tmp_path / "small.pcap", LENGTHS)


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize(
    ("multiplier", "flows"),
    [(0.4, "distinct"), (1.5, "same"), (3.4, "distinct"), (3.4, "same")],
)
def test_what_is_planned_is_what_arrives(
    link: Link, trace: Path, tmp_path: Path, journal: UndoJournal,
    rate: Mapping[str, Any], multiplier: float, flows: str,
) -> None:  # fmt: skip
    table = {**rate, "multiplier": multiplier, "flows": flows}
    load, sent, got = offered(link, trace, tmp_path, journal, **table)
    planned = load.trace_facts().planned
    assert sent.intended_packets == planned.packets
    assert sent.unsent_packets == 0
    assert (sent.sent_packets, sent.sent_bytes) == (planned.packets, planned.frame_bytes)
    assert (got["packets"], got["bytes"]) == (planned.packets, planned.frame_bytes)
    assert got["flows"] == planned.flows


def test_the_scale_only_grows(trace: Path, tmp_path: Path) -> None:
    scale = [0.05, 0.4, 0.5, 0.9, 1, 1.063, 1.4, 1.99, 2, 3.4, 3.5, 4]
    planned = [
        Replay({"trace": str(trace), "multiplier": n}, base=tmp_path).trace_facts().planned
        for n in scale
    ]
    assert all(a.packets < b.packets for a, b in pairwise(planned))
    assert all(a.flows < b.flows for a, b in pairwise(planned))
    one = planned[scale.index(1)].flows
    for n, of in zip(scale, planned, strict=True):
        assert of.flows == round(n * one), n


@pytest.mark.parametrize("seed", [2, 3, 77])
def test_another_seed_chooses_other_flows(trace: Path, tmp_path: Path, seed: int) -> None:
    def sent_bytes(seed: int) -> int:
        table = {"trace": str(trace), "multiplier": 0.3, "flow_seed": seed}
        return Replay(table, base=tmp_path).trace_facts().planned.frame_bytes

    assert sent_bytes(1) != sent_bytes(seed)


@pytest.mark.parametrize("multiplier", [1e-9, 0.00001, 0.0004])
def test_a_part_that_holds_no_flow_is_refused(
    trace: Path, tmp_path: Path, multiplier: float
) -> None:
    with pytest.raises(BadInput, match="nothing would be sent"):
        Replay({"trace": str(trace), "multiplier": multiplier}, base=tmp_path).trace_facts()
