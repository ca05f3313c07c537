"""N replicas are N times the flows: counted by the IDS itself, not by us."""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scapy")

from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from scapy.utils import RawPcapReader, wrpcap

from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images.sut_bits import resolve_bits
from tests.real_inputs import REALMIX_PACKETS
from tests.scapy_view import view

SAME_IN_ALL = {"tcp": 0, "icmpv4": 0, "udp": 7, "icmpv6": 7}
"""Flows of realmix.pcap that no replica may have for itself: DHCP from 0.0.0.0, neighbour discovery
from ::, traffic of ::1 with itself. nodrop counts 15 of them as `same_flows`, because
Suricata also distinguishes ICMPv6 flows by their type."""
CONFIG = """%YAML 1.1
---
flow: {memcap: 1gb, hash-size: 262144, prealloc: 10000}
stream: {memcap: 1gb}
flow-timeouts:
  default: {new: 9999, established: 9999, closed: 9999, bypassed: 9999}
  tcp: {new: 9999, established: 9999, closed: 9999, bypassed: 9999}
  udp: {new: 9999, established: 9999, bypassed: 9999}
  icmp: {new: 9999, established: 9999, bypassed: 9999}
decoder:
  teredo: {enabled: true, ports: 3544}
  vxlan: {enabled: true, ports: 4789}
  geneve: {enabled: true, ports: 6081}
  erspan: {typeI: {enabled: true}}
stats: {enabled: yes, interval: 8}
outputs:
  - eve-log: {enabled: yes, filename: eve.json, types: [flow, stats]}
"""


def suricata_events(trace: Path, out: Path) -> list[dict[str, Any]]:
    """All that Suricata says of a file: nothing can be lost on the way."""
    node, bits = find_node_binary(), resolve_bits({}, "suricata", base=Path())
    is_image = bits.kind == "image"
    (out / "s.yaml").write_text(CONFIG)
    inside = "/mnt" if is_image else str(out)
    enter = ["--root", bits.path, "--bind", f"{out}:/mnt"] if is_image else []
    program = "/usr/bin/suricata" if is_image else bits.path
    argv = [program, "-c", f"{inside}/s.yaml", "-r", f"{inside}/{trace.name}", "-l", inside]
    done = subprocess.run(
        [node, "enter", *enter, "--", *argv, "--runmode", "single"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (out / "eve.json").read_text().splitlines()]


def suricata_counts(trace: Path, out: Path) -> dict[str, int]:
    """Flows by protocol."""
    events = suricata_events(trace, out)
    last = [event for event in events if event["event_type"] == "stats"][-1]["stats"]
    flow = last["flow"]
    assert flow["memcap"] == flow["emerg_mode_entered"] == 0
    # Whether a second connection of the same ports is a flow of its own hangs on when Suricata's
    # manager looks (6 or 12 of them in one replica); as none times out here, the rest is 5-tuples.
    tcp = flow["tcp"] - flow["tcp_reuse"]
    return {name: flow[name] for name in SAME_IN_ALL} | {
        "tcp": tcp,
        "packets": last["decoder"]["pkts"],
    }


@pytest.mark.usefixtures("suricata")
def test_suricata_finds_the_flows_of_every_replica(tmp_path: Path, real_trace: Path) -> None:
    counts = {}
    for replicas in (1, 8):
        out = tmp_path / f"{replicas}X"
        out.mkdir()
        argv = [find_node_binary(), "trace", "replicate", real_trace, out / "trace.pcap"]
        argv += ["--multiplier", str(replicas)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        counts[replicas] = suricata_counts(out / "trace.pcap", out)
    assert counts[1]["packets"] == REALMIX_PACKETS
    assert counts[1]["tcp"] > 4_000 and counts[1]["udp"] > 3_000
    expected = {name: 8 * counts[1][name] - 7 * same for name, same in SAME_IN_ALL.items()}
    assert counts[8] == expected | {"packets": 8 * REALMIX_PACKETS}


REPLICAS = 3
FLOWS = 5
FIRST_PORT = 8_000
CARRIED_BYTES = 96
"""Length of each packet inside a tunnel, which ends its frame."""
FRAME = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NUMBERED = {"seqnum_present": 1, "sequence_number": 1}


def ends(of: int) -> Packet:
    return IP(src=f"10.9.{of}.1", dst=f"10.9.{of}.2")


def label(kind: int, header: str) -> Packet:
    """An Ethernet header and what stands between it and the packet."""
    return Raw(bytes(FRAME)[:12] + kind.to_bytes(2) + bytes.fromhex(header))


def gre(kind: int, header: str = "", **fields: int) -> Packet:
    return GRE(proto=kind, **fields) / Raw(bytes.fromhex(header))


def udp(port: int, header: str = "") -> Packet:
    return UDP(sport=port, dport=port) / Raw(bytes.fromhex(header))


VXLAN_FRAME = UDP(sport=50_000, dport=4789) / VXLAN(vni=5, flags="Instance") / FRAME
GENEVE_FRAME = UDP(sport=50_001, dport=6081) / GENEVE(vni=5, proto=0x6558) / FRAME
TUNNELS: dict[str, tuple[type[Packet], Packet]] = {
    "vxlan": (IP, FRAME / ends(1) / VXLAN_FRAME),
    "gre": (IP, FRAME / ends(2) / gre(0x800)),
    "gre-checksum": (IP, FRAME / ends(3) / GRE(chksum_present=1, proto=0x800)),
    "erspan-1": (IP, FRAME / ends(4) / gre(0x88BE) / FRAME),
    "erspan-2": (IP, FRAME / ends(5) / gre(0x88BE, "1001000500000000", **NUMBERED) / FRAME),
    "erspan-3": (IP, FRAME / ends(6) / gre(0x22EB, "20010005" + 16 * "0", **NUMBERED) / FRAME),
    "geneve": (IP, FRAME / ends(7) / GENEVE_FRAME),
    "gtp-u": (IP, FRAME / ends(8) / udp(2152, f"30ff{CARRIED_BYTES:04x}00000007")),
    "mpls": (IP, label(0x8847, "0006404000064140")),
    "pppoe": (IP, label(0x8864, f"11000001{CARRIED_BYTES + 2:04x}0021")),
    "vn-tag": (IP, label(0x8926, "000000050800")),
    "teredo": (IPv6, FRAME / ends(9) / udp(3544)),
    "6in4": (IPv6, FRAME / ends(10)),
    "ip-in-ip": (IP, FRAME / ends(11)),
    "vxlan-in-vxlan": (IP, FRAME / ends(12) / VXLAN_FRAME / ends(13) / VXLAN_FRAME),
    "gre-in-vxlan": (IP, FRAME / ends(14) / VXLAN_FRAME / ends(15) / gre(0x800)),
    "vxlan-in-gre": (IP, FRAME / ends(16) / gre(0x6558) / FRAME / ends(17) / VXLAN_FRAME),
}
"""Tunnel → the kind of IP inside, and the headers around it."""
NOT_DECODED = {"erspan-3", "gtp-u", "ip-in-ip"}
"""Suricata 7 looks into none of these."""
OUTER_FLOWS = {4789: 5, 6081: 1, 2152: 1, 3544: 1, None: 1}
"""Port → flows outside: tunnels over UDP are flows of their own, and 6in4, which has no port."""


def datagrams(kind: type[Packet], port: int) -> Iterator[bytes]:
    """Flows with checksums that are right, wrong and absent, a packet each way."""
    ends = ("192.168.7.9", "172.16.0.9") if kind is IP else ("2001:db8::9", "2001:db8:1::9")
    for flow in range(FLOWS):
        for way in (1, -1):
            ports = dict(zip(("sport", "dport"), (40_000 + flow, port)[::way], strict=True))
            layer = (
                UDP(**ports),
                UDP(**ports, chksum=0xBEEF),
                UDP(**ports, chksum=0),
                TCP(**ports, flags="S" if way > 0 else "SA"),
                TCP(**ports, flags="S" if way > 0 else "SA", chksum=0x1234),
            )[flow]
            packet = kind(**dict(zip(("src", "dst"), ends[::way], strict=True))) / layer
            yield bytes(packet / bytes(CARRIED_BYTES - len(packet)))


def carried(frame: bytes) -> Packet:
    """The packet inside as a frame of its own: scapy does not find it in every tunnel."""
    return Ether(bytes(FRAME / (IP, IPv6)[frame[-CARRIED_BYTES] >> 4 == 6](frame[-CARRIED_BYTES:])))


@pytest.mark.usefixtures("suricata")
def test_suricata_finds_the_flows_of_every_replica_in_every_tunnel(tmp_path: Path) -> None:
    frames = [
        bytes(around / kind(datagram))
        for port, (kind, around) in enumerate(TUNNELS.values(), FIRST_PORT)
        for datagram in datagrams(kind, port)
    ]
    wrpcap(str(tmp_path / "one.pcap"), frames, linktype=1)
    argv = [find_node_binary(), "trace", "replicate", tmp_path / "one.pcap", tmp_path / "all.pcap"]
    done = subprocess.run(
        [*argv, "--multiplier", str(REPLICAS)], check=True, capture_output=True, timeout=60
    )
    said = json.loads(done.stdout)
    assert (said["not_rewritten_packets"], said["same_flows"]) == (0, 0)

    flows: dict[tuple[int, int], set[frozenset[str]]] = defaultdict(set)
    states: dict[tuple[int, int], set[Any]] = defaultdict(set)
    with RawPcapReader(str(tmp_path / "all.pcap")) as reader:
        for frame, _ in reader:
            inside = carried(frame)
            ports = (inside.sport, inside.dport)
            flows[min(ports), max(ports)].add(frozenset({inside[1].src, inside[1].dst}))
            states[ports].add(repr((view(frame).errors, view(bytes(inside)).errors)))
    assert Counter(map(len, flows.values())) == {REPLICAS: FLOWS * len(TUNNELS)}
    assert Counter(map(len, states.values())) == {1: len(frames)}

    counts = Counter(
        event.get("dest_port")
        for event in suricata_events(tmp_path / "all.pcap", tmp_path)
        if event["event_type"] == "flow"
    )
    expected = {
        port: REPLICAS * FLOWS
        for port, name in enumerate(TUNNELS, FIRST_PORT)
        if name not in NOT_DECODED
    }
    assert counts == expected | {port: REPLICAS * of for port, of in OUTER_FLOWS.items()}


@pytest.mark.usefixtures("suricata")
@pytest.mark.parametrize("link", ["raw IP, time steps back", "joined by an offload"])
def test_suricata_finds_the_same_flows_in_what_prepare_writes(tmp_path: Path, link: str) -> None:
    whole = [IP(datagram) for datagram in datagrams(IP, FIRST_PORT)]
    if link.startswith("raw"):
        half, linktype = len(whole) // 2, 101
        packets = whole[half:] + whole[:half]
        for at, packet in enumerate(whole):
            packet.time = 1_700_000_000 + at
    else:
        linktype = 1
        packets = [
            FRAME / packet / bytes(3_000) if TCP in packet else FRAME / packet for packet in whole
        ]
        for packet in packets:
            del packet[IP].len
    seen = {}
    wrpcap(str(tmp_path / "original.pcap"), packets, linktype=linktype)
    argv = [find_node_binary(), "trace", "prepare", tmp_path / "original.pcap"]
    done = subprocess.run([*argv, tmp_path / "prepared.pcap"], check=True, capture_output=True)
    said = json.loads(done.stdout)
    assert said["changed"] and said["reordered_packets"] + said["split_packets"] > 0
    for name in ("original", "prepared"):
        out = tmp_path / name
        out.mkdir()
        (tmp_path / f"{name}.pcap").rename(out / "x.pcap")
        seen[name] = Counter(
            (event["proto"], *sorted((event["src_port"], event["dest_port"])))
            for event in suricata_events(out / "x.pcap", out)
            if event["event_type"] == "flow"
        )
    assert seen["prepared"] == seen["original"] and seen["original"].total() == FLOWS
