"""A trace for each port of a SUT: one capture is made of them, whose frames know their ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.hosts.api import LabPort, Link
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.labs.split import addresses
from nodrop.testbed.load.api import LoadGenerator
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.tcpreplay import Tcpreplay


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def capture(path: Path, *, begins_s: float, sizes: list[int]) -> Path:
    from scapy.layers.inet import IP, UDP  # here, because each worker collects this file
    from scapy.layers.l2 import Ether
    from scapy.utils import wrpcap

    packets = []
    for i, size in enumerate(sizes):
        packet = Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:09") / IP(dst="10.0.0.2")
        packet = packet / UDP() / bytes(size)
        packet.time = begins_s + i / 8
        packets.append(packet)
    wrpcap(str(path), packets)
    return path


@pytest.mark.parametrize("kind", [Replay, Tcpreplay])
def test_each_frame_knows_its_port(tmp_path: Path, kind: Any) -> None:
    """However far apart they were captured, they begin together; the first port is first."""
    from scapy.layers.inet import UDP
    from scapy.utils import rdpcap

    north = capture(tmp_path / "north.pcap", begins_s=1e9, sizes=[10, 11, 12])
    south = capture(tmp_path / "south 1.pcap", begins_s=2e9, sizes=[20, 21])
    load: LoadGenerator = kind({"trace": [str(north), str(south)]}, base=tmp_path)
    facts = load.trace_facts()
    first, second = addresses(2)
    found = [(p.dst, len(p[UDP].payload), float(p.time) - 1e9) for p in rdpcap(str(facts.path))]
    assert found == [
        (first, 10, 0.0), (second, 20, 0.0), (first, 11, 0.125), (second, 21, 0.125),
        (first, 12, 0.25),
    ]  # fmt: skip
    assert facts.path.name.startswith("north+south-1-")
    assert [one.packets for one in facts.parts] == [3, 2]
    said = load.facts()["ports"]
    assert [one["trace"] for one in said] == [str(north), str(south)]
    alone = [kind({"trace": str(path)}, base=tmp_path).trace_facts() for path in (north, south)]
    assert [one["trace_sha256"] for one in said] == [one.sha256 for one in alone]
    assert all(not one.parts for one in alone)


def test_the_order_is_that_of_the_ports(tmp_path: Path) -> None:
    north = capture(tmp_path / "a.pcap", begins_s=1, sizes=[10])
    south = capture(tmp_path / "b.pcap", begins_s=1, sizes=[20])
    orders = ([north, south], [south, north], [north, north])
    loads = [Replay({"trace": [str(one) for one in each]}, base=tmp_path) for each in orders]
    assert len({load.trace_facts().sha256 for load in loads}) == 3


def test_another_file_of_that_name_is_another_trace(tmp_path: Path) -> None:
    north = capture(tmp_path / "a.pcap", begins_s=1, sizes=[10])
    table = {"trace": [str(north), "make:demo"]}
    before = Replay(table, base=tmp_path).trace_facts()
    capture(north, begins_s=1, sizes=[10, 10])
    after = Replay(table, base=tmp_path).trace_facts()
    assert before.sha256 != after.sha256
    assert before.packets + 1 == after.packets


def test_the_sender_writes_no_addresses_over_those(tmp_path: Path) -> None:
    north = capture(tmp_path / "a.pcap", begins_s=1, sizes=[10])
    host = LocalHost(name="here", node=find_node_binary(), label="t")
    port = LabPort(host=host, name="lo")
    link = Link(tx=port, rx=port, dst_macs=addresses(2))
    for trace, written in ((str(north), addresses(2)), ([str(north), str(north)], [])):
        assert Replay({"trace": trace}, base=tmp_path).spec(link)["dst_macs"] == list(written)


def test_what_is_wrong_with_one_is_said_of_it(tmp_path: Path) -> None:
    north = capture(tmp_path / "a.pcap", begins_s=1, sizes=[10])
    broken = tmp_path / "broken.pcap"
    broken.write_bytes(north.read_bytes()[:-3])
    table = {"trace": [str(north), str(broken)]}
    with pytest.raises(BadInput, match=r"load\.trace: .*broken\.pcap: .*cut") as refused:
        Replay(table, base=tmp_path).trace_facts()
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="the trace holds no packets"):
        Replay({**table, "tolerate_truncated": True}, base=tmp_path).trace_facts()
    assert not list((tmp_path / "cache").rglob("*.pcap"))
