"""Replay into the sink over a veth pair: what is sent arrives, the rest is booked by reason."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.node import find_node_binary
from tests.depth import depth
from tests.netns.replays import (
    DEADLINE_S,
    FLOWS,
    MERGED,
    TOP_SPEED,
    UNMAPPED_FLOWS,
    assert_all_sent,
    down_under_way,
    picked,
    replayed,
    small_trace,
)
from tests.real_inputs import REALMIX_PACKETS


@pytest.mark.parametrize("load", [{"speed": 20}, *TOP_SPEED], ids=["20x", "send", "xdp"])
@pytest.mark.parametrize("threads", [2, depth(1)])
@pytest.mark.parametrize("defrag", [False, True], ids=["whole", "defrag"])
def test_what_is_sent_arrives(
    link: Link, trace: Path, load: dict[str, Any], threads: int, defrag: bool
) -> None:
    sent, got = replayed(
        link,
        {"threads": threads, "defrag": defrag},
        {"trace": str(trace), **load},
    )
    assert_all_sent(sent, REALMIX_PACKETS)
    arrived = REALMIX_PACKETS - MERGED * defrag
    expected = {"packets": arrived, "tp_packets": arrived, "tp_drops": 0}
    assert picked(got, expected) == expected
    if not defrag:
        assert got["bytes"] == sent["sent_bytes"]
    assert sum(thread["packets"] for thread in got["per_thread"]) == arrived
    assert (sent["schedule_error_us"] is None) == ("top_speed" in load)


@pytest.mark.alone
def test_replicas_are_distinct_flows(link: Link, trace: Path) -> None:
    replay = {"trace": str(trace), "speed": 20, "multiplier": 4, "seed": 1}
    sent, got = replayed(link, {"count_flows": True, "threads": 2}, replay)
    assert_all_sent(sent, 4 * REALMIX_PACKETS)
    assert got["packets"] == 4 * REALMIX_PACKETS
    assert got["flows"] == 4 * FLOWS - 3 * UNMAPPED_FLOWS
    assert sent["not_rewritten_packets"] % 3 == 0
    assert sent["same_flows"] == UNMAPPED_FLOWS

    same = replay | {"flows": "same"}
    sent, got = replayed(link, {"count_flows": True}, same)
    assert (got["packets"], got["flows"]) == (4 * REALMIX_PACKETS, FLOWS)
    assert sent["not_rewritten_packets"] == sent["same_flows"] == 0


@pytest.mark.alone
@pytest.mark.depth  # as four are
def test_sixty_four_replicas_are_distinct_flows(link: Link, trace: Path, tmp_path: Path) -> None:
    """A sixth of the trace: 1.1 million packets."""
    cut, packets = tmp_path / "cut.pcap", 17_000
    argv = [find_node_binary(), "trace", "cut", trace, cut, "--packets", str(packets)]
    subprocess.run(argv, check=True, capture_output=True, timeout=DEADLINE_S)
    replay = {"trace": str(cut), "pps": 3e5}
    _, got = replayed(link, {"count_flows": True}, replay)
    one = got["flows"]
    assert one > 1_000 and got["packets"] == packets

    # A sender with real-time priority would take the CPU of a sink that must keep up.
    many = replay | {"multiplier": 64, "realtime": False}
    sent, got = replayed(link, {"count_flows": True, "threads": 2}, many)
    assert_all_sent(sent, 64 * packets)
    assert got["packets"] == 64 * packets
    assert 0 < sent["same_flows"] <= UNMAPPED_FLOWS
    assert got["flows"] == 64 * one - 63 * sent["same_flows"]


def test_fragments_of_replicas_find_their_own(link: Link, trace: Path) -> None:
    replay = {"trace": str(trace), "top_speed": True, "multiplier": 3}
    _, got = replayed(link, {"defrag": True}, replay)
    assert got["packets"] == 3 * (REALMIX_PACKETS - MERGED)


@pytest.mark.parametrize("load", [{"pps": 1000}, *TOP_SPEED], ids=["paced", "send", "xdp"])
def test_a_frame_longer_than_the_mtu_is_refused(
    link: Link, tmp_path: Path, load: dict[str, Any]
) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60, 4000, 3014, 3015, 60])
    sent, got = replayed(link, {}, {"trace": str(trace), **load})
    expected = {
        "intended_packets": 5,
        "sent_packets": 3,
        "sent_bytes": 60 + 3014 + 60,
        "refused_packets": {"emsgsize": 2},
        "unsent_packets": 2,
    }
    assert picked(sent, expected) == expected
    assert (got["packets"], got["bytes"]) == (3, 60 + 3014 + 60)


@pytest.mark.parametrize("load", [{"pps": 1000}, *TOP_SPEED], ids=["paced", "send", "xdp"])
def test_an_interface_that_goes_down_is_an_error(
    link: Link, tmp_path: Path, load: dict[str, Any]
) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60] * 1000)
    replay = {"trace": str(trace), "duration_s": 50, "loops": 1_000_000}
    down_under_way(link, link.tx.name, replay | load)


def test_a_stop_ends_a_replay_with_its_result(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60, 60])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "pps": 1000}
    sender = link.tx.host.job(spec | {"loops": 0, "duration_s": 50})
    try:
        assert sender.ready["intended_packets"] == 50_000
        sender.start()
        sender.stop()
        sent = sender.result(timeout_s=DEADLINE_S)
    finally:
        sender.close()
    assert sent["sent_packets"] + sent["unsent_packets"] == sent["intended_packets"] == 50_000


@pytest.mark.alone
@pytest.mark.depth  # known_answers/test_yardstick.py has it in a whole run
def test_a_slow_sink_serves_at_its_rate_and_drops_by_its_ring(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [1000] * 100)
    replay = {"trace": str(trace), "pps": 20_000, "loops": 0, "duration_s": 2}
    sink = {"service_rate_pps": 5_000, "ring_frames": 1000}
    sent, got = replayed(link, sink, replay)
    assert_all_sent(sent, 40_000)
    assert got["tp_packets"] == 40_000
    assert got["packets"] + got["tp_drops"] == 40_000
    took_s = (sent["last_sent_mono_ns"] - sent["first_sent_mono_ns"]) / 1e9
    assert got["packets"] == pytest.approx(took_s * 5_000 + 1_000, rel=0.01)
    assert got["tp_freeze_q_count"] is None, "a ring of slots does not count them"


@pytest.mark.alone
@pytest.mark.depth  # known_answers/test_yardstick.py has it in a whole run
def test_below_its_rate_a_slow_sink_loses_nothing(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [1000] * 100)
    replay = {"trace": str(trace), "pps": 4_000, "loops": 0, "duration_s": 2}
    _, got = replayed(link, {"service_rate_pps": 5_000}, replay)
    assert (got["packets"], got["tp_drops"]) == (8_000, 0)


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "xz": lzma.compress}


@pytest.mark.parametrize("packer", PACKERS)
def test_a_packed_trace_is_unpacked(link: Link, tmp_path: Path, packer: str) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60, 70])
    trace.write_bytes(PACKERS[packer](trace.read_bytes()))
    sent, got = replayed(link, {}, {"trace": str(trace), "pps": 1000})
    assert_all_sent(sent, 2)
    assert (got["packets"], got["bytes"]) == (2, 130)


def test_traces_are_merged(link: Link, tmp_path: Path) -> None:
    first, second = (small_trace(tmp_path / f"{n}.pcap", [60 + n] * 10) for n in (1, 2))
    sent, got = replayed(link, {}, {"trace": str(first), "merge": [str(second)], "speed": 1})
    assert_all_sent(sent, 20)
    assert (got["packets"], got["bytes"]) == (20, 61 * 10 + 62 * 10)


@pytest.mark.parametrize(
    ("load", "packets", "lasts_ns"),
    [
        ({"bps": 8e6}, 1000, 99_900_000),
        ({"pps": 10_000, "burst": 100}, 1000, 90_000_000),
        ({"profile": "0,1000\n0.1,5000\n0.2,0\n"}, 600, 199_800_000),
        ({"profile": "0,0\n0.2,2000\n", "ramp": True}, 200, 199_500_000),
    ],
    ids=["bits", "bursts", "steps", "ramp"],
)
def test_a_load_is_sent_as_it_is_scheduled(
    link: Link, tmp_path: Path, load: dict[str, Any], packets: int, lasts_ns: int
) -> None:
    trace = small_trace(tmp_path / "t.pcap", [100] * 1000)
    if "profile" in load:
        profile = tmp_path / "profile.csv"
        profile.write_text(load["profile"])
        load = load | {"profile": str(profile)}
    sent, got = replayed(link, {}, {"trace": str(trace), **load})
    assert_all_sent(sent, packets)
    assert got["packets"] == packets
    assert sent["intended_duration_ns"] == pytest.approx(lasts_ns, abs=200_000)
    assert sum(sent["achieved"]["packets"]) == packets
    left = sent["sent_profile"]
    assert sum(left["packets"]) == packets and left["packets"][-1]
    last_bin_ns = left["first_mono_ns"] + (len(left["packets"]) - 1) * left["bin_ns"]
    assert 0 <= sent["last_sent_mono_ns"] - last_bin_ns < left["bin_ns"]
    assert sum(sent["achieved"]["bytes"]) == sent["sent_bytes"] == 100 * packets


def test_a_corrupt_trace_is_refused_with_its_place(link: Link, tmp_path: Path) -> None:
    whole = small_trace(tmp_path / "t.pcap", [60, 60, 60])
    whole.write_bytes(whole.read_bytes()[:-10])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(whole), "pps": 1000}
    with pytest.raises(NodeRefused, match="packet 3, byte 192: 50 of 60 bytes"):
        link.tx.host.job(spec)
    sent, got = replayed(link, {}, {"trace": str(whole), "pps": 1000, "tolerate_truncated": True})
    assert_all_sent(sent, 2)
    assert got["packets"] == 2


def test_exact_times_keep_the_cpus_awake_at_hand(link: Link, tmp_path: Path) -> None:
    wake_up_latency = Path("/dev/cpu_dma_latency")
    try:
        wake_up_latency.open("r+b", buffering=0).close()
    except OSError as refused:
        pytest.skip(f"needs /dev/cpu_dma_latency: {refused}")
    trace = small_trace(tmp_path / "t.pcap", [60] * 20)
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "pps": 1000}

    def asked(**more: Any) -> tuple[bool, int]:
        """Whether the sender says so, and the latency that the whole host keeps to meanwhile."""
        sender = link.tx.host.job(spec | more)
        try:
            [latency_us] = struct.unpack("i", wake_up_latency.read_bytes()[:4])
            sender.start()
            return sender.result(timeout_s=DEADLINE_S)["shallow_idle"], latency_us
        finally:
            sender.close()

    assert asked() == (True, 0)
    assert not asked(shallow_idle=False)[0]
    assert not asked(multiplier=2)[0]


def test_a_sender_says_when_it_waited_by_spinning(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60] * 20)
    cpu = max(os.sched_getaffinity(0))

    def spun_share(**spec: Any) -> float | None:
        sent, got = replayed(link, {}, {"trace": str(trace), **spec})
        assert_all_sent(sent, 20)
        assert got["packets"] == 20
        share: float | None = sent["spun_share"]
        return share

    # On a CPU of its own it may: another program that wants that CPU ends it.
    for pace in ({"pps": 500}, {"pps": 20_000}, {"speed": 1.0}):
        share = spun_share(cpus=[cpu], **pace)
        assert share is not None and 0 <= share <= 1
        assert spun_share(cpus=[cpu], spin=False, **pace) == 0
        assert spun_share(**pace) == 0
    assert spun_share(cpus=[cpu], top_speed=True) is None
