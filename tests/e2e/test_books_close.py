"""The packet books close to zero on real traffic, with real Suricata and both generators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodropError
from nodrop.report.story import read_story
from nodrop.report.trust import decoder_sentences
from nodrop.testbed.images.sut_bits import resolve_bits
from tests.depth import depth
from tests.e2e.conftest import SURICATA, WHOLE_TRACE, Run, closes, only
from tests.e2e.one_world import STANDING, loads_of_one_world
from tests.known_answers.frames import datagram, halves, write
from tests.real_inputs import REALMIX_PACKETS

pytestmark = pytest.mark.usefixtures("suricata")

MERGED = 1423
"""Per pass: 1,551 valid fragments enter fanout defragmentation, 128 datagrams come out."""
HELD = 51
ONCE = {"speed": 40}
SAME = {"multiplier": 2, "flows": "same", "speed": 40}
DISTINCT = {"multiplier": 2, "speed": 40}
SHORT = {
    "no": ["sut.overrides.default-packet-size=600"],
    "yes": [
        "sut.overrides.default-packet-size=600",
        "sut.tpacket_v3=yes",
        "sut.block_size=4096",
    ],
}
"""Rings without room for the longest frames, or datagrams: slots of TPACKET_V2, blocks of V3."""


@pytest.mark.parametrize(
    ("generator", "defrag", "loads"),
    [
        ("replay", "no", [ONCE]),
        ("replay", "yes", [DISTINCT, SAME]),
        ("tcpreplay", "yes", [ONCE]),
        depth("replay", "no", [DISTINCT]),
        depth("tcpreplay", "no", [ONCE, SAME]),
        depth("tcpreplay", "yes", [SAME]),
    ],
    ids=str,
)
def test_every_load_of_one_suricata(
    run: Run,
    generator: str,
    defrag: str,
    loads: Sequence[Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One start carries multiples of the original timing, two copies, two replicas of distinct
    flows."""
    loads_of_one_world(monkeypatch, *loads)
    by = [f"load.kind={generator}", f"sut.defrag={defrag}"]
    outcome = run(STANDING, WHOLE_TRACE, *by, *(SHORT[defrag] if generator == "replay" else ()))
    assert len(outcome.records) == len(loads)
    for record, load in zip(outcome.records, loads, strict=True):
        # tcpreplay 4.4.3 sleeps per packet and drifts: on a busy machine it is late, and void.
        assert record.valid or record.invalid_reasons == ["sender_late"], record.verdict
        assert closes(record)
        assert record.offered.sent == load.get("multiplier", 1) * REALMIX_PACKETS
        if load is not SAME:
            passes = load.get("multiplier", 1)
            assert record.packets.merged_packets == (passes * MERGED if defrag == "yes" else 0)
        if load is ONCE:
            assert record.packets.lost_packets == 0
        books = record.packets
        assert books.residual_bytes == 0
        if load is not SAME and not books.lost_packets:
            assert books.residual_bytes_slack == 0, "the trace says how long all of them are"
        (knob,) = [r.knob for r in books.remarks if r.about == "cut"] or [""]
        assert bool(books.cut_packets) is (generator == "replay")
        assert ("sut.block_size" in knob) is (generator == "replay" and defrag == "yes")


def test_three_passes_explain_every_packet(run: Run) -> None:
    outcome = run(WHOLE_TRACE, "load.loops=3", "load.speed=40")
    record = only(outcome)
    assert (record.offered.sent, record.packets.decoded_packets) == (303_513, 299_244)
    assert record.packets.merged_packets == 4_269
    assert record.packets.merged_detail.absorbed_packets == 4_500 - 384
    assert record.packets.merged_detail.held_packets == 3 * HELD
    assert closes(record)
    trial = json.loads((outcome.directory / "runs" / record.run / "trial.json").read_text())
    assert trial["details"]["servants"] == [], "nothing beside a SUT in `bare` is charged to it"


@pytest.mark.parametrize(
    ("defrag", "generator"),
    [("no", "replay"), ("yes", "tcpreplay"), depth("yes", "replay"), depth("no", "tcpreplay")],
)
def test_an_overload_that_drops(run: Run, generator: str, defrag: str) -> None:
    record = only(
        run(
            "sut.ring_size=64",
            f"sut.defrag={defrag}",
            "load.top_speed=true",
            f"load.kind={generator}",
            text=SURICATA.replace("speed = 40\n", ""),
        )
    )
    assert record.valid, record.verdict
    assert record.packets.lost_packets > 0
    assert record.packets.lost_by_place == {"socket ring": record.packets.lost_packets}
    assert closes(record)
    # Which frames were lost is not known: their bytes are bounded.
    assert record.packets.residual_bytes == 0 and record.packets.residual_bytes_slack


@pytest.mark.parametrize(
    ("capture", "ring"), [("pcap", ["sut.buffer_bytes=262144"]), ("af-xdp", [])]
)
def test_every_capture_of_suricata(
    run: Run, capture: str, ring: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever is lost in rings of 256 KiB and of 2,048 frames; no fan-out merges fragments."""
    if capture == "af-xdp":
        request.getfixturevalue("real_root")
    lab = tmp_path / "lab.toml"
    lab.write_text('name = "netns"\nkind = "netns"\nmtu = 3000\n')  # XDP on a veth takes no 9000
    text = SURICATA.replace("ring_size", "# ring_size")
    record = only(run(f"sut.capture={capture}", "load.speed=60", *ring, text=text, lab=str(lab)))
    assert record.valid, record.verdict
    assert closes(record) and record.effective["capture"] == capture
    assert record.packets.captured_packets == record.offered.sent == REALMIX_PACKETS
    assert not record.packets.merged_packets


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its socket
def test_a_ring_below_a_driver_that_polls(run: Run, tmp_path: Path) -> None:
    """Suricata by DPDK says "drops: 0" of a ring that it does not see. Fragments are put together
    ahead of it, and datagrams longer than its slots are cut. Its CPU time says nothing."""
    try:
        resolve_bits({}, "suricata-dpdk", base=Path())
    except NodropError as missing:
        pytest.skip(f"no image suricata-dpdk: {missing.hint}")
    merged, frames = 300, [datagram(60 + n % 1400) for n in range(40_000)]
    for number, both in enumerate(zip(*halves(merged), strict=True)):
        frames[100 * number : 100 * number] = both
    trace = write(tmp_path / "fragments.pcap", frames)
    by = ["sut.capture=dpdk", "sut.ring_size=64", "load.top_speed=true", f"load.trace={trace}"]
    outcome = run(*by, text=SURICATA.replace("speed = 40\n", "").replace("{trace}", "x"))
    record = only(outcome)
    assert record.valid, record.verdict
    books = record.packets
    assert closes(record) and books.residual_bytes == 0
    assert books.merged_packets == merged and books.queue is not None and books.queue.slots == 64
    assert books.captured_packets == len(frames) - merged
    assert books.lost_by_place == {"socket ring": books.lost_packets}
    assert books.lost_packets and books.own_dropped_packets == 0
    said = (outcome.directory / "runs" / record.run / "sut" / "engine.json").read_text()
    assert f"packets: {books.decoded_packets}, drops: 0 (0.00%)" in said
    told = {one.rule: one for one in decoder_sentences(read_story([outcome.directory]))}
    assert (
        f"say 0 dropped in the worst of 1 trial, and {books.lost_packets:,} packets were lost"
        in (told["drops-denied"].text)
    )
    assert record.effective == {
        "capture": "dpdk", "runmode": "workers", "threads": 1, "ring_size": 64, "defrag": True,
    }  # fmt: skip
    assert record.cpu_not_valid and record.sut_cpu_s and record.sut_cpu_s_per_packet is None
    assert record.busiest_thread is None
    (worker,) = [thread for thread in record.threads if thread.role == "worker"]
    assert worker.cpu_ratio is None and worker.dropped_packets == books.lost_packets
    assert record.threads_unexplained_packets == 0
