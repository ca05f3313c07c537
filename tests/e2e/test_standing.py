"""A SUT that stays up between trials: the books of each trial close by themselves."""

from __future__ import annotations

import pytest

from tests.depth import depth
from tests.e2e.conftest import Run, closes
from tests.e2e.one_world import STANDING, loads_of_one_world

SINK = """
name = "standing"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "{trace}"
pps = 20000
duration_s = 0.4
[measure]
sut = "standing"
repetitions = 7
late_p99_us = 60e6
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
WORLDS = [1, 1, 3, 3, 5, 5, 5]


@pytest.mark.parametrize(
    "settings",
    [
        ("setup.instances=2", "load.pps=5000", "load.multiplier=3"),
        ("load.top_speed=true", "load.loops=1", "sut.threads=2", "sut.ring_frames=110000"),
    ],
    ids=["instances and replicas", "threads at top speed"],
)
def test_every_trial_of_a_standing_sink_has_books_of_its_own(
    run: Run, settings: tuple[str, ...]
) -> None:
    """Each decodes what it was offered: nothing from the trial before, nothing twice."""
    if "load.top_speed=true" in settings:
        text = SINK.replace("pps = 20000\nduration_s = 0.4\n", "")
        outcome = run(*settings, text=text)
    else:
        outcome = run(*settings, text=SINK)
    assert [record.world for record in outcome.records] == WORLDS
    for record in outcome.records:
        assert record.valid, record.verdict
        assert closes(record) and record.packets.residual_bytes in (0, None)
        assert record.packets.decoded_packets == record.offered.sent > 0
        assert (record.activation_s is not None) == (record.index == record.world)


@pytest.mark.parametrize(("rate_pps", "slots"), [(5000, 100), depth(2000, 64), depth(8000, 1000)])
def test_a_slow_sink_that_stands_loses_the_same_in_every_trial(
    run: Run, rate_pps: int, slots: int
) -> None:
    """No more comes through than it serves meanwhile and its ring holds, and the rest is lost: in
    the seventh trial as in the first."""
    outcome = run(f"sut.service_rate_pps={rate_pps}", f"sut.ring_frames={slots}", text=SINK)
    for record in outcome.records:
        assert record.valid, record.verdict
        assert closes(record)
        most = rate_pps * record.offered.duration_s + slots
        assert 0 < record.packets.decoded_packets <= most * 1.1
        assert record.packets.lost_packets == record.offered.sent - record.packets.decoded_packets
        assert record.packets.loss_place == "socket ring"


@pytest.mark.parametrize("threads", [2, depth(1)])
def test_fragments_that_the_kernel_still_holds_change_no_books(run: Run, threads: int) -> None:
    """The other pieces of 153 fragments are not in the real trace: the kernel keeps these for 30 s,
    while the next trial brings the same ones again."""
    text = SINK.replace("pps = 20000\nduration_s = 0.4\n", "speed = 50\n")
    outcome = run("sut.defrag=true", f"sut.threads={threads}", "load.flows=same", text=text)
    assert [record.world for record in outcome.records] == WORLDS
    for record in outcome.records:
        assert record.valid, record.verdict
        assert closes(record)
    assert {record.packets.merged_packets for record in outcome.records} == {1423}


def test_a_standing_suricata(run: Run, suricata: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and the third trial of one start, each with the real trace, as the first."""
    loads_of_one_world(monkeypatch, {}, {}, {})
    outcome = run(STANDING, "sut.threads=2", "sut.ring_size=60000", "load.speed=60")
    assert [record.world for record in outcome.records] == [1, 1, 1]
    for record in outcome.records:
        assert record.valid, record.verdict
        assert closes(record)
    assert len({record.packets.decoded_packets for record in outcome.records}) == 1
    assert {record.packets.merged_packets for record in outcome.records} == {1423}


@pytest.mark.parametrize(
    "setting", ["stream.reassembly.memcap", depth("stream.memcap"), depth("flow.memcap")]
)
def test_a_suricata_whose_memory_was_full_stands_for_no_other_trial(
    run: Run, suricata: None, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    loads_of_one_world(monkeypatch, {}, {})
    override = f'sut.overrides={{"{setting}"="256kb"}}'
    outcome = run(STANDING, override, "sut.ring_size=60000", "load.speed=60")
    assert [record.world for record in outcome.records] == [1, 2]
    assert all(record.packets.analysis_lost for record in outcome.records)
