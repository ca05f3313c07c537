"""Flows of what a replay sends, beside the frames that it sends."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nodrop.ledger.sent_flows import SentFlows
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.trace import sent_flows


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trace") / "made.pcap"
    make = [find_node_binary(), "trace", "make", "demo", out, "--packets", "2000"]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    return out


def replay(trace: Path, **keys: Any) -> Replay:
    return Replay({"trace": str(trace), **keys}, base=Path())


def told(trace: Path, **keys: Any) -> SentFlows:
    found = replay(trace, **keys).sent_flows()
    assert found is not None
    return found


def kinds(found: SentFlows) -> list[tuple[int, int] | None]:
    """Protocol and lower port of each packet; None of what is no IP."""
    every = [*((flow.protocol, flow.port) for flow in found.flows), None]
    return [every[n] for n in found.of_packet]


@pytest.mark.parametrize("multiplier", [1, 2.5])
def test_flows_stand_in_the_order_of_the_frames_that_are_sent(
    trace: Path, tmp_path: Path, multiplier: float
) -> None:
    """A replica has other addresses and the same ports."""
    out = tmp_path / "sent.pcap"
    words = ["replicate", trace, out, "--multiplier", str(multiplier), "--seed", "7"]
    subprocess.run(
        [find_node_binary(), "trace", *words], check=True, capture_output=True, timeout=60
    )
    found = told(trace, multiplier=multiplier, seed=7)
    assert kinds(found) == kinds(told(out))
    assert (
        len(found.of_packet) == replay(trace, multiplier=multiplier).trace_facts().planned.packets
    )
    assert set(found.copy_of_packet) == set(range(-(-int(multiplier * 2) // 2)))


def test_the_same_flows_are_one_copy(trace: Path) -> None:
    assert set(told(trace, multiplier=2, flows="same").copy_of_packet) == {0}


@pytest.mark.parametrize("keys", [{"pps": 3000.0, "loops": 2}, {"window": "0.0..0.5"}])
def test_all_that_is_sent_has_a_flow(trace: Path, keys: dict[str, Any]) -> None:
    found = told(trace, **keys)
    planned = replay(trace, **keys).trace_facts().planned.packets
    assert len(found.of_packet) == len(found.copy_of_packet) == planned


def test_a_flow_that_is_withheld_is_not_sent(trace: Path) -> None:
    found = told(trace)
    (largest, packets), *_ = Counter(found.of_packet).most_common(1)
    name = found.flows[largest].name
    rest = replay(trace, withhold={"flows": [name]}, multiplier=2)
    assert len(rest.trace_facts().withheld) == packets
    left = rest.sent_flows()
    assert left is not None and name not in {flow.name for flow in left.flows}
    assert len(left.of_packet) == 2 * (len(found.of_packet) - packets)


@pytest.mark.parametrize("keys", [{"top_speed": True}, {"multiplier": 1000}])
def test_what_is_not_told(trace: Path, keys: dict[str, Any]) -> None:
    """No order at top speed is that of the ring for certain, and two million packets are too
    many."""
    assert replay(trace, **keys).sent_flows() is None


def test_a_node_that_refuses_leaves_them_untold(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pcap"
    broken.write_bytes(b"no capture")
    assert sent_flows(broken, {"speed": 1.0}) is None
