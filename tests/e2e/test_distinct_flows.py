"""N replicas are N times the flows: counted by the IDS itself, not by us."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nodrop.hosts.binary import find_node_binary
from nodrop.images.choice import resolve_bits
from tests.real_inputs import REALMIX_PACKETS

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
stats: {enabled: yes, interval: 8}
outputs:
  - eve-log: {enabled: yes, filename: eve.json, types: [stats]}
"""


def suricata_counts(trace: Path, out: Path) -> dict[str, int]:
    """Flows by protocol, read from the file: nothing can be lost on the way."""
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
    last = json.loads((out / "eve.json").read_text().splitlines()[-1])["stats"]
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
