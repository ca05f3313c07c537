"""Several instances of Suricata share the packets: none lost, none twice, books for each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet
from scapy.utils import rdpcap, wrpcap

from nodrop.errors import BadInput, NotReady
from nodrop.ledger.hops import Hop
from nodrop.measure.packets import instances as shared
from nodrop.measure.packets.reassembly import STACK_COUNTERS
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.labs.split import Split, SplitCounters
from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import Inject, namespace, xdp_drops

pytestmark = pytest.mark.usefixtures("suricata")

TAGGED = """
name = "tagged"
[setup]
kind = "bare"
instances = 2
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "{trace}"
pps = 1000
cpu = "any"
[measure]
repetitions = 1
late_p99_us = 60e6
steal_max_ratio = 1
"""


def details(outcome: Any) -> Any:
    (found,) = of_each_trial(outcome)
    return found


def of_each_trial(outcome: Any) -> list[Any]:
    files = sorted(outcome.directory.glob("runs/*/trial.json"))
    return [json.loads(file.read_text())["details"] for file in files]


@pytest.mark.parametrize(
    ("instances", "defrag"),
    [(2, "yes"), depth(3, "yes"), depth(4, "no"), depth(4, "yes"), depth(2, "no")],
)
def test_the_split_loses_nothing_each_thread_has_flows_and_the_same_every_time(
    run: Run, instances: int, defrag: str
) -> None:
    """Seen: of two instances with two threads each, one thread had 17 of 6,816 packets, as the
    split and the fanout went by the same bits of the same hash."""
    outcome = run(f"setup.instances={instances}", f"sut.defrag={defrag}", "sut.threads=2",
                  "load.speed=40", "measure.repetitions=2")  # fmt: skip
    shares = []
    for record, found in zip(outcome.records, of_each_trial(outcome), strict=True):
        assert record.valid, record.verdict
        assert closes(record) and record.packets.residual_bytes == 0
        parts = found["instances"]
        assert len(parts) == instances
        assert all(part["closed"] and part["residual_packets"] == 0 for part in parts)
        share = [part["received_packets"] for part in parts]
        assert sum(share) == record.offered.sent
        assert sum(part["decoded_packets"] for part in parts) == record.packets.decoded_packets
        assert record.packets.merged_packets == (0 if defrag == "no" else 1423)
        captured = [t.captured_packets or 0 for t in record.threads if t.role == "worker"]
        assert len(captured) == 2 * instances
        assert min(captured) > 0.3 * sum(captured) / len(captured), captured
        assert found["imbalance_ratio"] == pytest.approx(instances * max(share) / sum(share) - 1)
        shares.append(share)
    once, again = shares
    assert once == again


def broadcast_fragments() -> Iterator[Packet]:
    """Fragments from 0.0.0.0 to all: the one thing that a receiver without an address takes for its
    own. Every fifth datagram never becomes whole, and whole packets come between."""
    for n in range(1, 101):
        way = Ether(dst="ff:ff:ff:ff:ff:ff") / IP(src="0.0.0.0", dst="255.255.255.255", id=n)
        pieces = fragment(way / UDP(sport=n) / bytes(3000), 1400)
        yield from pieces[:-1] if n % 5 == 0 else pieces
        yield way / UDP(sport=n)


@pytest.mark.parametrize(
    ("instances", "generator", "defrag"),
    [(2, "tcpreplay", "yes"), depth(2, "replay", "no"), depth(1, "tcpreplay", "yes")],
)
def test_what_a_receivers_own_stack_reassembles_is_told_apart(
    run: Run, tmp_path: Path, real_trace: Path, instances: int, generator: str, defrag: str
) -> None:
    trace = tmp_path / "broadcast.pcap"
    mixed = zip(broadcast_fragments(), rdpcap(str(real_trace), 1000), strict=False)
    wrpcap(str(trace), [packet for pair in mixed for packet in pair])
    outcome = run(f"load.trace={trace}", f"load.kind={generator}", "load.multiplier=3",
                  "load.flows=same", "load.speed=", "load.pps=2000", f"sut.defrag={defrag}",
                  f"setup.instances={instances}", "sut.threads=2")  # fmt: skip
    record = only(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    assert all(part["residual_packets"] == 0 for part in details(outcome)["instances"])
    merged = [a["counter"] for a in ledger(outcome)["accounts"] if a["kind"] == "merged"]
    assert all(counter.endswith(STACK_COUNTERS) for counter in merged)
    assert len(merged) == (defrag == "yes")


@pytest.mark.parametrize(
    "filters",
    [
        "type filter hook input priority 0; drop;",
        "type filter hook prerouting priority 0; ct state new counter;",
    ],
    ids=["firewall", "conntrack"],
)
def test_a_receiver_that_filters_its_own_packets_closes_too(
    run: Run, tmp_path: Path, filters: str
) -> None:
    """Hosts that were not made for measuring do: then their stack's part cannot be read."""
    trace = tmp_path / "broadcast.pcap"
    wrpcap(str(trace), list(broadcast_fragments()))

    def filtered() -> None:
        table = f"table ip filtered {{ chain taken {{ {filters} }}; }}"
        subprocess.run(["ip", "netns", "exec", namespace("rcv"), "nft", table], check=True)

    outcome = run(f"load.trace={trace}", "load.speed=", "load.pps=2000", "sut.defrag=yes",
                  "sut.threads=2", progress=Inject("read counters", filtered))  # fmt: skip
    record = only(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    merged = [a["counter"] for a in ledger(outcome)["accounts"] if a["kind"] == "merged"]
    assert [counter.partition(",")[0] for counter in merged] == ["of the trace"]


def ledger(outcome: Any) -> Any:
    (file,) = outcome.directory.glob("runs/*/ledger.json")
    return json.loads(file.read_text())


def lost(outcome: Any) -> dict[str, int]:
    return {a["name"]: a["packets"] for a in ledger(outcome)["accounts"] if a["kind"] == "lost"}


@pytest.mark.parametrize(
    ("instances", "defrag", "netfilter", "replicas"),
    [(2, "yes", "yes", 2), depth(2, "no", "no", 1), depth(4, "no", "yes", 1)],
)
def test_a_bridge_loses_what_its_ledger_says(
    run: Run, instances: int, defrag: str, netfilter: str, replicas: int
) -> None:
    outcome = run("setup.splitter=bridge", f"setup.bridge_netfilter={netfilter}",
                  f"setup.instances={instances}", f"sut.defrag={defrag}", "sut.threads=2",
                  f"load.multiplier={replicas}", "load.speed=40")  # fmt: skip
    record = only(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    # Of the trace: so many frames come from a group address, so many have an IP header that
    # br_netfilter refuses (Ip InHdrErrors says the same).
    refused = {} if netfilter == "no" else {"bridge_dropped_netfilter": replicas * 8184}
    assert {k: n for k, n in lost(outcome).items() if n} == {
        "bridge_dropped_source_mac": replicas * 1687,
        **refused,
    }
    parts = details(outcome)["instances"]
    assert len(parts) == instances
    assert all(part["closed"] and part["received_packets"] for part in parts)
    received = sum(part["received_packets"] for part in parts)
    assert received == record.offered.sent - sum(lost(outcome).values())
    assert details(outcome)["imbalance_ratio"] < 1
    assert record.packets.lost_by_place == {"Linux bridge": sum(lost(outcome).values())}


def test_a_sender_that_writes_no_addresses_cannot_feed_a_bridge(run: Run) -> None:
    with pytest.raises(NotReady, match=r'tcpreplay.* set load.kind = "replay"'):
        run("setup.splitter=bridge", "setup.instances=2", "load.kind=tcpreplay")


@contextmanager
def one_nic_for_all(link: Link, instances: int, *_: Any) -> Iterator[Split]:
    class Same(Split):
        words = "none: each captures on the same NIC"

        def connect(self) -> None: ...

        def hop(self, before: SplitCounters, after: SplitCounters) -> Hop:
            return Hop(name="split", packets=self._rise(before, after, "rx_packets"), counter="rx")

    yield Same(link.rx, [link.rx.name], [link.rx] * instances)


def test_two_suricatas_that_share_a_nic_and_no_fanout_group_are_caught(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finds the group taken falls back to a thread without: each captures everything."""
    monkeypatch.setattr(shared, "split", one_nic_for_all)
    outcome = run("setup.instances=2", "sut.threads=1", "load.speed=40", "sut.defrag=no")
    record = only(outcome)
    assert record.packets.captured_packets == 2 * record.offered.sent
    assert not record.valid
    assert "received_more_than_sent" in record.invalid_reasons


def test_frames_cut_in_their_vlan_tag_are_named_ahead_of_the_split(
    run: Run, real_trace: Path, tmp_path: Path
) -> None:
    whole: list[Packet] = [
        Ether(src="02:00:00:00:00:01") / Dot1Q(vlan=5) / IP(src=f"10.0.0.{n}") / UDP(sport=n)
        for n in range(1, 101)
    ]
    cut = [Ether(bytes(frame)[:15]) for frame in whole[:7]]
    wrpcap(str(tmp_path / "cut.pcap"), [*rdpcap(str(real_trace), 100), *whole, *cut])
    outcome = run(f"load.trace={tmp_path / 'cut.pcap'}", "setup.instances=2", "load.speed=",
                  "load.pps=2000", "sut.defrag=no")  # fmt: skip
    record = only(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    assert lost(outcome) == {"rx_dropped_vlan_cut": 7}
    (account,) = (a for a in ledger(outcome)["accounts"] if a["kind"] == "lost")
    assert account["into"] == "split"


def test_the_books_of_each_instance_close_over_tagged_frames(run: Run, tmp_path: Path) -> None:
    """The NIC of an instance counts a frame without its tag, the sink with it."""
    tagged = [
        Ether(src="02:00:00:00:00:01") / Dot1Q(vlan=5) / IP(src=f"10.0.0.{n}") / UDP(sport=n)
        for n in range(1, 101)
    ]
    wrpcap(str(tmp_path / "tagged.pcap"), tagged)
    text = TAGGED.format(trace=tmp_path / "tagged.pcap")
    parts = details(run(text=text))["instances"]
    assert all(part["received_packets"] and part["closed"] for part in parts), parts


@pytest.mark.usefixtures("real_root")  # an XDP program
@pytest.mark.parametrize(("where", "splitter"), [("rcv", "nft"), ("rx-0", "bridge")])
def test_generic_xdp_is_a_residual_ahead_of_the_split_and_behind_it(
    run: Run, where: str, splitter: str
) -> None:
    """Behind nft's fwd the kernel runs no generic program: such a frame counts as redirected."""
    with xdp_drops(20, "skb", where=where) as attach:
        outcome = run(f"setup.splitter={splitter}", "setup.instances=2", "load.speed=40",
                      "sut.defrag=no",
                      progress=Inject("read counters", attach))  # fmt: skip
    record = only(outcome)
    assert record.invalid_reasons == ["residual"], record.verdict
    (step,) = (s for s in ledger(outcome)["steps"] if s["residual_packets"])
    assert step["into"] == ("split" if where == "rcv" else "socket")
    assert 0.01 < step["residual_packets"] / record.offered.sent < 0.1
    if where == "rcv":
        assert "is attached to ndrx0 in generic mode" in record.verdict


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("0", "must be >= 1"),
        ('"two"', "must be a whole number"),
        ("true", "must be a whole number"),
        ("65", "must be <= 64"),
    ],
)
def test_a_number_of_instances_that_makes_no_sense(run: Run, number: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"setup.instances = {number}: {words}"):
        run(f"setup.instances={number}")
