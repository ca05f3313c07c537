"""N replicas are N times the flows: counted by the IDS itself, not by us."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Run, only
from tests.real_inputs import REALMIX_PACKETS

pytestmark = pytest.mark.usefixtures("suricata")

SAME_IN_ALL = {"flow.tcp": 0, "flow.icmpv4": 0, "flow.udp": 8, "flow.icmpv6": 9}
"""Flows of realmix.pcap that no replica may have for itself: DHCP from 0.0.0.0, neighbour discovery
from ::, traffic of ::1 with itself. nodrop counts 15 of them as `same_flows`, for Suricata tells
ICMPv6 flows apart by their type, too."""


def flows(run: Run, multiplier: int, speed: int) -> dict[str, int]:
    # Without fanout defragmentation the threads see the trace as it is.
    settings = [f"load.multiplier={multiplier}", f"load.speed={speed}", "sut.defrag=no"]
    outcome = run(*settings)
    record = only(outcome)
    assert record.decoded_packets == multiplier * REALMIX_PACKETS, record.verdict
    [counters] = outcome.directory.glob("runs/*/counters.json")
    results = json.loads(counters.read_text())["results"]
    assert results.get("flow.memcap", 0) == results.get("flow.emerg_mode_entered", 0) == 0
    return {name: results[name] for name in SAME_IN_ALL}


def test_suricata_finds_the_flows_of_every_replica(run: Run) -> None:
    one = flows(run, 1, 20)
    assert one["flow.tcp"] > 4_000 and one["flow.udp"] > 3_000
    assert flows(run, 4, 10) == {
        name: 4 * found - 3 * SAME_IN_ALL[name] for name, found in one.items()
    }
