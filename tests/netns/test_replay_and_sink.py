"""Replay into the sink over a veth pair: what is sent arrives, the rest is booked by reason."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.lab.binary import find_node_binary
from nodrop.lab.journal import DiskJournal
from nodrop.lab.netns import NetnsLab
from nodrop.lab.seam import Json, Link, Port
from tests.real_inputs import REALMIX_PACKETS, realmix

DEADLINE_S = 60.0
FLOWS = 8_561
"""Of realmix.pcap, 5-tuples without VLAN tags."""
UNMAPPED_FLOWS = 15
"""Of those, without an address that may be mapped: 0.0.0.0 and :: to all, ::1 to itself."""
MERGED = 1_423
"""Packets fewer where the kernel puts the IPv4 fragments of realmix.pcap together."""


@pytest.fixture
def link(label: str) -> Iterator[Link]:
    with DiskJournal.create(label) as journal, NetnsLab(mtu=3000).up(journal) as link:
        yield link


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return realmix(tmp_path_factory.mktemp("trace"))


def small_trace(path: Path, lengths: list[int]) -> Path:
    """UDP from 10.0.0.1 to 10.0.0.2, one packet per length, 1 ms apart."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    with path.open("wb") as file:
        file.write(head)
        for number, length in enumerate(lengths):
            ip = struct.pack(
                "!BBHHHBBH4s4s", 0x45, 0, length - 14, 0, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\0\2"
            )
            udp = struct.pack("!HHHH", 1000 + number, 53, length - 34, 0)
            frame = b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + udp
            file.write(struct.pack("<IIII", 0, number * 1000, length, length))
            file.write(frame.ljust(length, b"\0"))
    return path


def replayed(link: Link, sink: Json, replay: Json) -> tuple[Json, Json]:
    """Result of the sender, result of the sink."""
    receiver = link.rx.host.job({"job": "sink", "interface": link.rx.name, **sink})
    try:
        receiver.start()
        sender = link.tx.host.job({"job": "replay", "interface": link.tx.name, **replay})
        try:
            sender.start()
            sent = sender.result(timeout_s=DEADLINE_S)
        finally:
            sender.close()
        receiver.stop()
        return sent, receiver.result(timeout_s=DEADLINE_S)
    finally:
        receiver.close()


def picked(result: Json, like: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in like}


def assert_all_sent(sent: Json, packets: int) -> None:
    expected = {
        "intended_packets": packets,
        "sent_packets": packets,
        "unsent_packets": 0,
        "refused_packets": {},
    }
    assert picked(sent, expected) == expected


TOP_SPEED = [{"top_speed": True, "backend": backend} for backend in ("af_packet", "af_xdp")]


@pytest.mark.parametrize("load", [{"speed": 20}, *TOP_SPEED], ids=["20x", "send", "xdp"])
@pytest.mark.parametrize("threads", [1, 2])
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
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "duration_s": 50}
    sender = link.tx.host.job(spec | {"loops": 1_000_000} | load)
    try:
        sender.start()
        link.tx.host.run(["ip", "link", "set", link.tx.name, "down"])
        with pytest.raises(NodeRefused, match="Network is down"):
            sender.result(timeout_s=DEADLINE_S)
    finally:
        sender.close()


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


def test_a_slow_sink_serves_at_its_rate_and_drops_by_its_ring(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [1000] * 100)
    replay = {"trace": str(trace), "pps": 20_000, "loops": 0, "duration_s": 2}
    sink = {"service_rate_pps": 5_000, "ring_bytes": 1 << 20, "block_bytes": 1 << 16}
    sent, got = replayed(link, sink, replay)
    assert_all_sent(sent, 40_000)
    assert got["tp_packets"] == 40_000
    assert got["packets"] + got["tp_drops"] == 40_000
    # 2 s at 5,000 and a ring of some 950 packets; the credit of 5 ms is 25 more.
    assert 9_000 < got["packets"] < 12_000
    assert got["tp_freeze_q_count"] > 0


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


SECOND = ("ndtx1", "ndrx1")


@pytest.fixture
def second(link: Link, label: str) -> Link:
    """A second pair of ports between the same hosts."""
    tx, rx = SECOND
    pair = ["mtu", "3000", "type", "veth", "peer", "name", rx, "mtu", "3000"]
    argv = ["ip", "link", "add", tx, *pair, "netns", f"nodrop-{label}-rcv"]
    link.tx.host.run(argv)
    for port in (Port(host=link.tx.host, name=tx), Port(host=link.rx.host, name=rx)):
        port.host.run(["ethtool", "-K", port.name, "gro", "off", "gso", "off", "tso", "off"])
        port.host.run(["ip", "link", "set", port.name, "arp", "off", "up"])
    return Link(tx=Port(host=link.tx.host, name=tx), rx=Port(host=link.rx.host, name=rx))


def over_both(first: Link, second: Link, replay: Json) -> tuple[Json, list[Json]]:
    """Result of the sender on both ports, results of the two sinks."""
    sink = {"job": "sink", "count_flows": True}
    sinks = [link.rx.host.job(sink | {"interface": link.rx.name}) for link in (first, second)]
    ports = [first.tx.name, second.tx.name]
    try:
        for each in sinks:
            each.start()
        sender = first.tx.host.job({"job": "replay", "interface": ports, **replay})
        try:
            sender.start()
            sent = sender.result(timeout_s=DEADLINE_S)
        finally:
            sender.close()
        for each in sinks:
            each.stop()
        return sent, [each.result(timeout_s=DEADLINE_S) for each in sinks]
    finally:
        for each in sinks:
            each.close()


def assert_ports_are_the_sum(sent: Json, got: list[Json]) -> None:
    assert [port["interface"] for port in sent["ports"]] == ["ndtx0", SECOND[0]]
    for name in ("intended_packets", "sent_packets", "sent_bytes", "unsent_packets"):
        assert sent[name] == sum(port[name] for port in sent["ports"])
    assert [port["sent_packets"] for port in sent["ports"]] == [sink["packets"] for sink in got]
    assert [port["sent_bytes"] for port in sent["ports"]] == [sink["bytes"] for sink in got]
    assert sum(sent["achieved"]["packets"]) == sent["sent_packets"]


PACED_OR_NOT = pytest.mark.parametrize(
    "load", [{"speed": 20}, *TOP_SPEED], ids=["20x", "send", "xdp"]
)


@PACED_OR_NOT
def test_each_flow_leaves_by_one_port(
    link: Link, second: Link, trace: Path, load: dict[str, Any]
) -> None:
    usable = sorted(os.sched_getaffinity(0))
    cpus = [usable[0], usable[-1]]
    sent, got = over_both(link, second, {"trace": str(trace), "cpus": cpus, **load})
    assert_all_sent(sent, REALMIX_PACKETS)
    assert_ports_are_the_sum(sent, got)
    assert [port["cpu"] for port in sent["ports"]] == cpus
    # A flow seen on both ports would be counted twice.
    assert sum(sink["flows"] for sink in got) == FLOWS
    assert min(sink["flows"] for sink in got) > FLOWS // 3


def test_replicas_leave_by_one_port_each_flow(link: Link, second: Link, trace: Path) -> None:
    replay = {"trace": str(trace), "top_speed": True, "multiplier": 3}
    sent, got = over_both(link, second, replay)
    assert_all_sent(sent, 3 * REALMIX_PACKETS)
    assert_ports_are_the_sum(sent, got)
    assert sum(sink["flows"] for sink in got) == 3 * FLOWS - 2 * UNMAPPED_FLOWS


@PACED_OR_NOT
def test_copied_each_port_gets_all(
    link: Link, second: Link, trace: Path, load: dict[str, Any]
) -> None:
    sent, got = over_both(link, second, {"trace": str(trace), "spread": "copy", **load})
    assert_all_sent(sent, 2 * REALMIX_PACKETS)
    assert_ports_are_the_sum(sent, got)
    assert [(sink["packets"], sink["flows"]) for sink in got] == [(REALMIX_PACKETS, FLOWS)] * 2


def test_a_port_named_twice_has_two_threads(link: Link, trace: Path) -> None:
    """A veth has one queue, which one AF_XDP socket takes; send(2) needs none of its own."""
    ports = [link.tx.name, link.tx.name]
    sent, got = replayed(
        link, {"count_flows": True}, {"trace": str(trace), "interface": ports, **TOP_SPEED[0]}
    )
    assert_all_sent(sent, REALMIX_PACKETS)
    assert [port["interface"] for port in sent["ports"]] == ports
    assert min(port["sent_packets"] for port in sent["ports"]) > REALMIX_PACKETS // 4
    assert (got["packets"], got["flows"]) == (REALMIX_PACKETS, FLOWS)
    spec = {"job": "replay", "interface": ports, "trace": str(trace), **TOP_SPEED[1]}
    with pytest.raises(NodeRefused, match="bind"):
        link.tx.host.job(spec)


def test_a_port_that_goes_down_ends_all(link: Link, second: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60] * 1000)
    ports = [link.tx.name, second.tx.name]
    spec = {"job": "replay", "interface": ports, "trace": str(trace), "pps": 1000}
    sender = link.tx.host.job(spec | {"loops": 0, "duration_s": 50, "spread": "copy"})
    try:
        assert sender.ready["intended_packets"] == 100_000
        sender.start()
        link.tx.host.run(["ip", "link", "set", second.tx.name, "down"])
        with pytest.raises(NodeRefused, match="Network is down"):
            sender.result(timeout_s=DEADLINE_S)
    finally:
        sender.close()


def test_a_cpu_for_each_port_or_for_none(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "pps": 1000}
    with pytest.raises(NodeRefused, match="cpus: 2 for 1 ports"):
        link.tx.host.job(spec | {"cpus": [0, 1]})
    with pytest.raises(NodeRefused, match="cpu 1000: cannot pin to it"):
        link.tx.host.job(spec | {"cpus": 1000})


def test_frames_written_to_a_tap_are_received_on_it(link: Link, trace: Path) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("needs /dev/net/tun")
    tap = Port(host=link.rx.host, name="ndtap0")
    tap.host.run(["ip", "tuntap", "add", tap.name, "mode", "tap"])
    tap.host.run(["ip", "link", "set", tap.name, "mtu", "3000", "arp", "off", "up"])
    for load in ({"speed": 20}, {"top_speed": True}):
        replay = {"trace": str(trace), "backend": "tap", **load}
        sent, got = replayed(Link(tx=tap, rx=tap), {"count_flows": True}, replay)
        assert_all_sent(sent, REALMIX_PACKETS)
        assert sent["backend"] == "tap_write"
        assert (got["packets"], got["flows"]) == (REALMIX_PACKETS, FLOWS)
        assert got["bytes"] == sent["sent_bytes"]


def test_only_a_tap_is_written_to(link: Link, tmp_path: Path) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("needs /dev/net/tun")
    trace = small_trace(tmp_path / "t.pcap", [60])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "pps": 1}
    with pytest.raises(NodeRefused, match="TUNSETIFF"):
        link.tx.host.job(spec | {"backend": "tap"})


COPIES = 20_000


@pytest.fixture
def _bpf() -> None:
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        pytest.skip("needs root outside of any user namespace: bpf(2)")


@pytest.mark.usefixtures("_bpf")
def test_a_flood_is_counted_by_the_port(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60, 4000, 1000])
    replay = {"trace": str(trace), "top_speed": True, "loops": COPIES, "backend": "flood"}
    with pytest.raises(NodeRefused, match="counted none"):
        replayed(link, {}, replay)  # a veth whose other end does no NAPI loses all of them
    link.rx.host.run(["ethtool", "-K", link.rx.name, "gro", "on"])
    sent, got = replayed(link, {}, replay)
    assert sent["backend"] == "flood_live_frames" and sent["schedule_error_us"] is None
    assert sent["intended_packets"] == 3 * COPIES
    assert sent["refused_packets"].pop("emsgsize") == COPIES, "longer than the MTU"
    full = sent["refused_packets"].pop("enobufs", 0)
    assert sent["sent_packets"] + full == 2 * COPIES and sent["refused_packets"] == {}
    assert got["tp_packets"] == sent["sent_packets"] > 0
    assert sum(sent["achieved"]["packets"]) == sent["sent_packets"]


@pytest.mark.usefixtures("_bpf")
def test_a_flood_into_the_host_is_received_by_the_port(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60, 1000])
    replay = {"trace": str(trace), "top_speed": True, "loops": COPIES, "backend": "flood_in"}
    sent, got = replayed(Link(tx=link.rx, rx=link.rx), {}, replay)
    assert_all_sent(sent, 2 * COPIES)
    assert sent["backend"] == "flood_in_live_frames"
    assert got["tp_packets"] == 2 * COPIES
    assert got["packets"] + got["tp_drops"] == 2 * COPIES


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"pps": 1000}, "no pacing"),
        ({"top_speed": True, "multiplier": 2}, "identical frames"),
        ({"top_speed": True, "loops": 10}, "loops must be at least 20000"),
    ],
    ids=str,
)
def test_what_a_flood_cannot_promise_is_refused(
    link: Link, tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "loops": COPIES}
    with pytest.raises(NodeRefused, match=words):
        link.tx.host.job(spec | {"backend": "flood"} | wrong)
