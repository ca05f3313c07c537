"""Output of real Suricata 7.0.10 and 8.0.8 in one trial of realmix, read back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.suts.api import less
from nodrop.testbed.suts.suricata import counters, log
from nodrop.testbed.suts.suricata.capture import SocketRing, capture_threads, frame_room, parse_ss

FIXTURES = Path(__file__).parents[2] / "fixtures" / "suricata"
VERSIONS = {"7": "7.0.10", "8": "8.0.8"}

both = pytest.mark.parametrize("major", VERSIONS)


def engine_log(major: str) -> log.EngineLog:
    return log.EngineLog(FIXTURES / f"engine-{major}.json")


@both
def test_the_engine_log(major: str) -> None:
    lines = engine_log(major).lines()
    assert log.version(lines) == VERSIONS[major]
    assert log.rules_loaded(lines) == log.Rules(loaded=2, failed=3, skipped=0)
    started, rules_end = log.started(lines), log.rules_end(lines)
    assert started is not None and rules_end is not None
    assert log.exit_counts(lines) == {
        "ndsurr0": {"captured_packets": 99_748, "dropped_ring_full_packets": 0}
    }
    assert log.errors(lines) == [], "all are reasons of rules"


@both
def test_rules_that_do_not_load_are_named_with_their_reason(major: str) -> None:
    assert [str(rule) for rule in log.bad_rules(engine_log(major).lines())] == [
        "rules-0-four.rules line 2 (sid 9000002: "
        'multiple "threshold" options are not allowed in the same rule)',
        "rules-0-four.rules line 4 (sid 9000004: unknown rule keyword 'no_such_keyword'.)",
        'rules-0-four.rules line 5 (without sid: Signature missing required value "sid".)',
    ]


NOT_UTF8 = b'alert ip any any -> any any (msg:"\xe9"; sid:%d;)\n'


@pytest.mark.parametrize("bad", [1, 3])
def test_rules_that_are_not_utf8_are_named_though_the_log_cannot(bad: int, tmp_path: Path) -> None:
    """Suricata 7.0.10 writes a second line that is no JSON and has no message."""
    content = b"# caf\xe9\n" + b"".join(NOT_UTF8 % (70 + n) for n in range(bad))
    entry = '{{"log_level":"Error","engine":{{{}"module":"detect"}}}}{}\n'
    said = entry.format('"message":"rule is not valid UTF-8",', "") + entry.format("", " line 2")
    (tmp_path / "engine.json").write_text(said * bad)
    lines = log.EngineLog(tmp_path / "engine.json").lines()
    known = log.not_utf8("my.rules", content)
    assert [str(one) for one in log.bad_rules(lines, {}, known)] == [
        f"my.rules line {n + 2} (sid {70 + n}: rule is not valid UTF-8)" for n in range(bad)
    ]
    nameless = log.bad_rules(lines, {}, known[1:])
    assert [str(one) for one in nameless] == [
        "a rule file (without sid: rule is not valid UTF-8)"
    ] * bad, "others than Suricata refuses are not named"
    assert log.not_utf8("my.rules", "caf\u00e9\n".encode()) == [] == log.errors(lines)


def test_a_log_that_is_still_being_written(tmp_path: Path) -> None:
    whole = (FIXTURES / "engine-7.json").read_bytes()
    path = tmp_path / "engine.json"
    reader = log.EngineLog(path)
    assert list(reader.lines()) == []
    for size in range(0, len(whole), 997):
        path.write_bytes(whole[:size])
        reader.lines()
    path.write_bytes(whole)
    read, whole_log = reader.lines(), engine_log("7").lines()
    assert [line.message for line in read] == [line.message for line in whole_log]
    seen = [line.seen_mono_ns for line in read]
    assert seen == sorted(seen) and seen[0] < seen[-1]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"engine": 1}', b"\xff\xfe", b"null"])
def test_what_is_no_log_line_is_passed_over(text: bytes) -> None:
    assert log.parse_line(text, seen_mono_ns=1) is None


@both
def test_final_counters(major: str) -> None:
    stats = counters.last_stats(FIXTURES / f"stats-{major}.json")
    assert stats is not None
    final = counters.from_stats(stats, source="stats.json")
    assert final.captured_packets == final.decoded_packets == 99_748
    assert final.dropped_ring_full_packets == 0
    assert final.decoded_bytes == 30_050_312
    assert (final.cut_packets, final.invalid_packets) == (None, {"7": 209, "8": 216}[major])
    assert "afpacket.trunc_pkt" not in final.invalid_by
    assert final.results["detect.alert"] == 1504
    assert final.results["decoder.arp"] == 557
    assert not [key for key in final.results if "memuse" in key]
    assert final.sources["decoded_packets"] == "stats.json decoder.pkts"
    assert set(final.per_thread) == {"W#01-ndsurr0", "W#02-ndsurr0"}
    for field in ("captured_packets", "decoded_packets", "decoded_bytes"):
        total = sum(thread[field] for thread in final.per_thread.values())
        assert total == getattr(final, field)


def test_no_record_is_none_and_an_empty_one_measures_nothing(tmp_path: Path) -> None:
    assert counters.last_stats(tmp_path / "none.json") is None
    nothing = counters.from_stats({}, source="")
    assert nothing.captured_packets is nothing.decoded_packets is None


def test_the_last_whole_record_counts(tmp_path: Path) -> None:
    def record(packets: int) -> str:
        return json.dumps({"stats": {"decoder": {"pkts": packets}}}) + "\n"

    path = tmp_path / "stats.json"
    path.write_text(record(1) + record(2) + record(3)[:20])
    assert counters.last_stats(path) == {"decoder": {"pkts": 2}}


def test_cut_and_broken_packets_are_counted() -> None:
    events = {
        "afpacket": {"trunc_pkt": 5},
        "ipv4": {"trunc_pkt": 6, "opt_pad_required": 0},
    }
    stats = {
        "decoder": {"pkts": 9, "invalid": 7, "event": events},
        "tcp": {"invalid_checksum": 3},
    }
    found = counters.from_stats(stats, source="s")
    assert (found.cut_packets, found.invalid_packets) == (5, 7)
    assert found.invalid_by == {"afpacket.trunc_pkt": 5, "ipv4.trunc_pkt": 6}
    assert found.checksum_packets == 3
    assert found.sources["cut_packets"] == "s decoder.event.afpacket.trunc_pkt"
    later = counters.from_stats(
        {
            "decoder": {"pkts": 19, "invalid": 8, "event": {"afpacket": {"trunc_pkt": 6}}},
            "tcp": {"invalid_checksum": 5},
        },
        source="s",
    )
    since = less(later, found)
    assert (since.cut_packets, since.invalid_packets, since.checksum_packets) == (1, 1, 2)
    assert since.invalid_by == {"afpacket.trunc_pkt": 1}


@pytest.mark.parametrize(
    ("version", "block_bytes", "frame_bytes", "room"),
    [(2, 131_072, 1_600, 1_530), (2, 65_536, 16_464, 16_394), (3, 32_768, 1_600, 32_634)],
)
def test_the_least_room_of_all_rings_counts(
    version: int, block_bytes: int, frame_bytes: int, room: int
) -> None:
    ring = SocketRing(
        tpacket_version=version,
        block_bytes=block_bytes,
        blocks=4,
        frame_bytes=frame_bytes,
        frames=16,
        fanout_id=None,
        fanout_type=None,
    )
    larger = dataclasses.replace(ring, block_bytes=1 << 20, frame_bytes=1 << 17)
    for rings in ((ring, larger), (larger, ring)):
        found = frame_room(rings)
        assert found is not None and found["bytes"] == room
    assert frame_room((ring, dataclasses.replace(ring, tpacket_version=None))) is None
    assert frame_room(()) is None


@both
def test_the_ring_that_ss_shows(major: str) -> None:
    text = (FIXTURES / f"ss-{major}.txt").read_text()
    table = (FIXTURES / f"packet-{major}.txt").read_text()
    inodes = [int(row.split()[8]) for row in table.splitlines()[1:]]
    frame_bytes = {"7": 9296, "8": 9120}[major]
    ring = SocketRing(
        tpacket_version={"7": 2, "8": 3}[major],
        block_bytes=131_072,
        blocks=74,
        frame_bytes=frame_bytes,
        frames=1036,
        fanout_id=99,
        fanout_type="hash",
    )
    assert parse_ss(text, inodes) == (ring, ring)
    room = frame_room((ring, ring))
    assert room is not None and room["bytes"] == {"7": 9226, "8": 130_938}[major]
    assert parse_ss(text, []) == ()


@pytest.mark.parametrize(
    ("names", "capture"),
    [
        (("Suricata-Main", "W#01-ndrx0", "W#02-ndrx0", "FM#01"), ("W#01-ndrx0", "W#02-ndrx0")),
        (("RX#01-ndrx0", "W#01", "W#02", "FR#01"), ("RX#01-ndrx0",)),
        (("Suricata-Main", "FM#01", "FR#01", "CW", "CS", "US"), ()),
    ],
)
def test_threads_that_capture(names: tuple[str, ...], capture: tuple[str, ...]) -> None:
    assert capture_threads(names) == capture


@pytest.mark.parametrize(
    ("capture", "said", "captured", "dropped"),
    [
        # Suricata 7.0.10 of one port to which 202,342 came; of af-packet `packets` has the drops.
        (
            "af-packet",
            "vb: packets: 202342, drops: 99113 (48.98%), invalid chksum: 0",
            202_342,
            99_113,
        ),
        ("pcap", "vb: packets: 105888, drops: 96454 (91.09%), invalid chksum: 0", 202_342, 96_454),
        (
            "af-xdp",
            "vb: packets: 103219, drops: 99123 (96.03%), invalid chksum: 2",
            202_342,
            99_123,
        ),
        ("af-xdp", "ndrx0: packets: 43500, drops: 57671 (132.58%)", 101_171, 57_671),
    ],
)
def test_drops_stand_beside_the_packets_or_among_them(
    capture: Any, said: str, captured: int, dropped: int
) -> None:
    line = log.LogLine(seen_mono_ns=0, level="Notice", module="device", thread="", message=said)
    assert log.exit_counts([line], capture) == {
        said.partition(":")[0]: {
            "captured_packets": captured,
            "dropped_ring_full_packets": dropped,
        }
    }


@pytest.mark.parametrize(("decoded", "stale", "dropped"), [(71_790, 73, 29_381), (66_201, 0, 5)])
def test_drops_of_pcap_are_those_its_thread_reads_as_it_ends(
    decoded: int, stale: int, dropped: int
) -> None:
    """Suricata 7.0.10 on realmix in 0.2 s: of 29,381 drops, the device's line has 73."""
    said = {
        "pcap": f"ndrx0: pcap total:{decoded + dropped} recv:{decoded} drop:{dropped} (29.0%)",
        "device": f"ndrx0: packets: {decoded}, drops: {stale} (0.10%), invalid chksum: 6380",
    }
    lines = [
        log.LogLine(
            seen_mono_ns=0, level="Info", module=module, thread="W#01-ndrx0", message=message
        )
        for module, message in said.items()
    ]
    (counted,) = log.exit_counts(lines, "pcap").values()
    assert counted == {
        "captured_packets": decoded + dropped,
        "dropped_ring_full_packets": dropped,
    }
