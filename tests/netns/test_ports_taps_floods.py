"""Several ports, taps and floods: other ways out than one socket on one port."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.api import Json, LabPort, Link
from tests.netns.replays import (
    DEADLINE_S,
    FLOWS,
    TOP_SPEED,
    UNMAPPED_FLOWS,
    assert_all_sent,
    down_under_way,
    replayed,
    small_trace,
)
from tests.real_inputs import REALMIX_PACKETS

SECOND = ("ndtx1", "ndrx1")


@pytest.fixture
def second(link: Link, label: str) -> Link:
    """A second pair of ports between the same hosts."""
    tx, rx = SECOND
    pair = ["mtu", "3000", "type", "veth", "peer", "name", rx, "mtu", "3000"]
    argv = ["ip", "link", "add", tx, *pair, "netns", f"nodrop-{label}-rcv"]
    link.tx.host.run(argv)
    for port in (LabPort(host=link.tx.host, name=tx), LabPort(host=link.rx.host, name=rx)):
        port.host.run(["ethtool", "-K", port.name, "gro", "off", "gso", "off", "tso", "off"])
        port.host.run(["ip", "link", "set", port.name, "arp", "off", "up"])
    return Link(tx=LabPort(host=link.tx.host, name=tx), rx=LabPort(host=link.rx.host, name=rx))


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
    assert sum(sent["sent_profile"]["packets"]) == sent["sent_packets"]


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
    replay = {"trace": str(trace), "pps": 1000, "loops": 0, "duration_s": 50, "spread": "copy"}
    ports = [link.tx.name, second.tx.name]
    ready = down_under_way(link, second.tx.name, replay | {"interface": ports})
    assert ready["intended_packets"] == 100_000


def test_a_cpu_for_each_port_or_for_none(link: Link, tmp_path: Path) -> None:
    trace = small_trace(tmp_path / "t.pcap", [60])
    spec = {"job": "replay", "interface": link.tx.name, "trace": str(trace), "pps": 1000}
    with pytest.raises(NodeRefused, match="cpus: 2, ports: 1; name a CPU"):
        link.tx.host.job(spec | {"cpus": [0, 1]})
    with pytest.raises(NodeRefused, match="cpu 1000: cannot pin to it"):
        link.tx.host.job(spec | {"cpus": 1000})


@pytest.fixture
def _tun() -> None:
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/net/tun, which this user may not open")


@pytest.mark.usefixtures("_tun")
def test_frames_written_to_a_tap_are_received_on_it(link: Link, trace: Path) -> None:
    tap = LabPort(host=link.rx.host, name="ndtap0")
    tap.host.run(["ip", "tuntap", "add", tap.name, "mode", "tap"])
    tap.host.run(["ip", "link", "set", tap.name, "mtu", "3000", "arp", "off", "up"])
    for load in ({"speed": 20}, {"top_speed": True}):
        replay = {"trace": str(trace), "backend": "tap", **load}
        sent, got = replayed(Link(tx=tap, rx=tap), {"count_flows": True}, replay)
        assert_all_sent(sent, REALMIX_PACKETS)
        assert sent["backend"] == "tap_write"
        assert (got["packets"], got["flows"]) == (REALMIX_PACKETS, FLOWS)
        assert got["bytes"] == sent["sent_bytes"]


@pytest.mark.usefixtures("_tun")
def test_only_a_tap_is_written_to(link: Link, tmp_path: Path) -> None:
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
    assert sum(sent["sent_profile"]["packets"]) == sent["sent_packets"]


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
