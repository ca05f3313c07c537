"""Each finding has a host that has it, and the nearest one that has not. A good one has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.audit import capture_kinds
from nodrop.audit.audit_answer import LOOKS, answer
from nodrop.audit.host_role import HostRole
from nodrop.audit.kinds import KINDS
from nodrop.audit.real_flows import watched
from nodrop.audit.symmetry import Dealt
from nodrop.errors import BadInput
from nodrop.protocol import FlowsMet
from nodrop.sensor.snapshot import QUEUE
from tests.unit.audit.made_changes import (
    Change,
    after,
    all_of,
    balancer,
    counter,
    counters,
    feature,
    flows,
    interface,
    lines,
    listener,
    listener_lost,
    machine,
    newer,
    nothing,
    port,
    quota,
    rings,
    slot,
    spread,
    statistic,
    threads,
    yaml,
)
from tests.unit.audit.made_host import ETH1, LISTENER, PATH, RANDOM, WORKER, YAML, MadeHost, program
from tools import audit_findings


@pytest.fixture
def host() -> MadeHost:
    return MadeHost()


VETH = port(driver="veth")
REFUSED = machine(softnet_dropped={"0": 2})
TWO_PORTS = YAML + "  - interface: eth2\n    cluster-id: {}\n"


def twice(name: str, second: int | None) -> Change:
    """A program with two sockets in no fanout group, or with two in one."""

    def change(host: MadeHost) -> None:
        listener(name, **({} if second else {"fanout_id": 5, "fanout_type": 0}))(host)
        host.listen(LISTENER, name, replace(host.sockets[-1], inode=9200))

    return change


def no_sockets(host: MadeHost) -> None:
    host.sockets.clear()


def suricata(**more: Any) -> Change:
    return lambda host: host.suricata.update(more)


CASES: list[tuple[str, Change, Change]] = [
    ("blind-sensor", suricata(stopped=True), suricata(stopped=False)),
    ("blind-sensor", port(flags=0x1102), interface(drops=9)),
    (
        "blind-sensor",
        port(carrier=False),
        port(carrier=True),
    ),
    ("blind-sensor", no_sockets, rings(fanout_type=0)),
    (
        "fanout-clash",
        listener("Suricata-Main", fanout_id=99, fanout_type=5),
        listener("Suricata-Main", fanout_id=98, fanout_type=5),
    ),
    ("fanout-clash", rings(fanout_id=None), rings(fanout_id=7)),
    ("fanout-clash", twice("snort", 9200), listener("snort")),
    ("fanout-clash", twice("reader", 9200), twice("reader", None)),
    (
        "fanout-clash",
        yaml(TWO_PORTS.format(99)),
        yaml(TWO_PORTS.format(98)),
    ),
    ("cpu-quota", quota(0.2), quota(2.0)),
    ("cpu-quota", quota(4.0, throttled=1), quota(4.0)),
    ("crowded-workers", threads([0], [0]), threads([0], [1])),
    ("crowded-workers", threads([3], [3]), threads([3], [3, 4])),
    ("ring-tolerance", rings(blocks=13), rings(blocks=20)),
    ("ring-tolerance", rings(blocks=2), rings(blocks=2, retire_ms=100)),
    ("ring-tolerance", rings(blocks=13), rings(blocks=13, version=2)),
    ("merged-frames", feature("rx-gro", True), feature("rx-gro", False)),
    ("merged-frames", feature("rx-gro-hw", True), feature("tx-tcp-segmentation", True)),
    ("asymmetric-hash", spread(key=RANDOM), spread(key=RANDOM, transformed=True)),
    ("asymmetric-hash", spread(key=RANDOM), spread(key=RANDOM, queues=[0])),
    (
        "readers-and-queues",
        port(queues=3),
        port(queues=4),
    ),
    ("readers-and-queues", port(queues=1), rings(fanout_type=0)),
    ("irq-one-cpu", lines(2, 2), lines(2, 3)),
    (
        "irq-one-cpu",
        lines(0, 0),
        all_of(lines(0, 0), port(rps={"0": [2, 3]})),
    ),
    ("nic-drops", statistic("rx_missed_errors", 7), statistic("rx_missed_errors", 0)),
    ("nic-drops", after(7_000_000, "rx_missed_errors", 7), after(7_000_001, "rx_missed_errors", 7)),
    ("nic-drops", counter("rx_queue_0_drops", 80), counter("rx_no_buffer_count", 80)),
    ("socket-drops", interface(drops=5, packets=5_000_000), interface(drops=4, packets=5_000_000)),
    ("socket-drops", interface(drops=1), interface(drops=0)),
    ("socket-drops", listener_lost(9_000, 1_000), listener_lost(0, 10_000)),
    ("socket-drops", listener_lost(5, 4_999_995, 0), listener_lost(4, 4_999_996, 0)),
    ("frames-cut", rings(version=2, frame_bytes=1500), rings(version=2, frame_bytes=1616)),
    (
        "frames-cut",
        all_of(port(mtu=9000), listener("snort3", version=2, frame_bytes=2048)),
        all_of(port(mtu=9000), listener("snort3", version=2, frame_bytes=9088)),
    ),
    (
        "frames-cut",
        listener(version=2, frame_bytes=1024),
        listener(version=2, frame_bytes=192),
    ),
    (
        "softnet-drops",
        all_of(REFUSED, VETH),
        REFUSED,
    ),
    ("frame-length", after(9, "rx_length_errors", 1), after(1 << 40, "rx_length_errors", 9)),
    ("frame-length", statistic("rx_length_errors", 3), statistic("rx_length_errors", 0)),
    ("cable-errors", after(9, "rx_frame_errors", 1), after(1 << 40, "rx_frame_errors", 9)),
    ("cable-errors", statistic("rx_crc_errors", 3), statistic("rx_crc_errors", 0)),
    (
        "link-slow",
        port(speed_mbit=100),
        port(speed_mbit=1000),
    ),
    (
        "link-slow",
        port(duplex="half"),
        port(speed_mbit=None),
    ),
    (
        "link-narrow",
        slot(current_link_width="4"),
        all_of(
            slot(current_link_width="4"),
            machine(hypervisor=True),
        ),
    ),
    (
        "link-narrow",
        slot(current_link_speed="2.5 GT/s PCIe"),
        slot(current_link_speed="8.0 GT/s"),
    ),
    (
        "not-promiscuous",
        port(flags=0x1003),
        port(flags=0x1103),
    ),
    ("memcap-reached", counters(tcp__ssn_memcap_drop=1), counters(tcp__sessions=1)),
    (
        "memcap-reached",
        counters(defrag__max_trackers_reached=4),
        counters(defrag__max_trackers_reached=0),
    ),
    ("limit-reached", counters(detect__alert_queue_overflow=3), counters(detect__alert=3)),
    ("emergency-mode", counters(flow__emerg_mode_entered=1), counters(flow__emerg_mode_over=0)),
    (
        "wrong-checksums",
        interface(invalid_checksums=90),
        interface(invalid_checksums=10),
    ),
    ("pause-frames", counter("tx_flow_control_xoff", 1), counter("rx_flow_control_xoff", 1)),
    ("second-listener", listener(), listener(filtered=True)),
    ("second-listener", listener(index=0), listener(protocol=0x800)),
    ("isolated-unused", threads([0], [1]), threads([0], [2])),
    ("ring-memory", rings(blocks=20_000), rings(blocks=8_000)),
    ("memory-limit", quota(None, full=1), quota(None, full=0)),
    ("numa-remote", lines(4, 5), all_of(lines(4, 5), port(node=1))),
    ("numa-unknown", port(node=-1), port(node=1)),
    ("irqbalance", balancer(), nothing),
    ("irqbalance", balancer("--banirq=30"), balancer("--banirq=30", "-i", "31")),
    ("irqbalance", balancer("--foreground"), balancer("--policyscript=/etc/irq.sh")),
    ("counts-stolen", counters(decoder__pkts=2000), counters(decoder__pkts=1090)),
    (
        "config-not-running",
        newer(True),
        newer(False),
    ),
    (
        "rx-dropped",
        statistic("rx_dropped", 340),
        all_of(statistic("rx_dropped", 340), port(driver="vmxnet3")),
    ),
    ("rx-dropped", statistic("rx_dropped", 12), all_of(statistic("rx_dropped", 12), VETH)),
    (
        "frames-refused",
        all_of(VETH, after(7, "rx_dropped", 3000)),
        all_of(VETH, after(3000, "rx_dropped", 7)),
    ),
    ("frames-refused", after(90, "rx_dropped", 500), after(500, "rx_dropped", 90)),
    ("driver-counters", port(driver="i40e"), port(driver="e1000e")),
    ("split-flows", flows(204, 773), flows(428, 428)),
    ("split-flows", flows(7, 20), flows(0, 19)),
    ("split-flows", flows(94, 100, kind=2), flows(95, 100, kind=2)),
    ("one-way-traffic", flows(0, 0), flows(30, 30)),
    ("one-way-traffic", flows(3, 3, seen=150), flows(0, 0, seen=19)),
]


def test_a_well_set_host_has_no_finding(host: MadeHost) -> None:
    found = host.answer()
    assert found.findings == [] and found.missing == [] and found.exit_code == 0
    assert found.ports == ["eth1"]


@pytest.mark.parametrize(("kind", "has", "has_not"), CASES)
def test_a_finding_is_there_and_next_to_it_is_not(kind: str, has: Change, has_not: Change) -> None:
    with_it, without = MadeHost(), MadeHost()
    has(with_it)
    has_not(without)
    assert kind in with_it.ids()
    assert kind not in without.ids()


@pytest.mark.parametrize(
    ("change", "ports", "says"),
    [
        (no_sockets, ["eth1"], "no program captures there"),
        (no_sockets, [], "no program captures packets on any port"),
        (port(flags=0x1102), ["eth1"], "it is down"),
    ],
)
def test_a_sensor_that_sees_nothing_is_the_first_finding(
    host: MadeHost, change: Change, ports: list[str], says: str
) -> None:
    change(host)
    found = host.answer(ports=ports)
    assert found.findings[0].id == "blind-sensor" and says in found.findings[0].says
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("mtu", "refused", "arrived", "dropped", "says"),
    [
        (9000, 3000, 7, 3000, "refused 3,000 packets"),
        (4000, 60, 5000, 400, "refused 60 packets"),
    ],
)
def test_a_veth_whose_peer_sends_longer_frames_names_both_mtus(
    host: MadeHost, mtu: int, refused: int, arrived: int, dropped: int, says: str
) -> None:
    host.veth("s1", mtu=mtu, tx_dropped=refused)
    after(arrived, "rx_dropped", dropped)(host)
    found = host.answer()
    one, *notes = found.findings
    assert one.id == "frames-refused" and says in one.says
    assert f"its MTU is 1500, and its peer s1 sends up to {mtu}" in one.says
    assert one.change.startswith(f"ip link set eth1 mtu {mtu};")
    rest = [note.says for note in notes]
    assert rest == [] if dropped == refused else rest[0].startswith("rx_dropped 340 is no loss")
    assert found.missing == [] and found.exit_code == 1


@pytest.mark.parametrize(
    ("changes", "mtu", "sent", "unknown", "says"),
    [
        (2, 1500, 400, 0, "it refused 300 packets"),
        (4, 1500, 400, 300, ""),
        (5, 1500, 120, 120, ""),
        (4, 9000, 400, 300, "it refused at most 300 packets"),
        (4, 1500, 0, 0, ""),
    ],
)
def test_a_link_that_was_down_leaves_open_what_its_peer_did_not_get_rid_of(
    host: MadeHost, changes: int, mtu: int, sent: int, unknown: int, says: str
) -> None:
    """A veth counts what it sent without a carrier in tx_dropped, too. Seen: after a flap, frames
    that every tap had were said to be refused."""
    host.veth("s1", mtu=mtu, tx_dropped=sent)
    all_of(statistic("carrier_changes", changes), statistic("rx_dropped", 300))(host)
    found = host.answer()
    refused = [one.says for one in found.findings if one.id == "frames-refused"]
    assert [one.startswith(says) for one in refused] == [True] * bool(says)
    lacks = [f"how many of {unknown} packets in rx_dropped of eth1 were lost"] * bool(unknown)
    assert [one.what for one in found.missing] == lacks
    assert found.exit_code == (1 if says else 6 if unknown else 0)


@pytest.mark.parametrize(("packets", "drops", "lacks"), [(0, 0, 1), (1, 0, 0), (0, 1, 0)])
def test_counters_at_zero_on_a_port_with_packets_prove_nothing(
    host: MadeHost, packets: int, drops: int, lacks: int
) -> None:
    """A Snort whose perf_monitor reads them each second has lost what it has lost."""
    host.sockets.clear()
    listener_lost(drops, packets)(host)
    found = host.answer()
    assert len(found.missing) == lacks
    assert all("5,000 packets" in one.needs for one in found.missing)
    if lacks and not [one for one in found.findings if not one.note]:
        assert found.exit_code == 6


@pytest.mark.parametrize("dropped", [340, 41])
def test_a_peer_that_refused_nothing_proves_that_nothing_is_lost(
    host: MadeHost, dropped: int
) -> None:
    host.veth("s1", mtu=9000, tx_dropped=0)
    statistic("rx_dropped", dropped)(host)
    found = host.answer()
    assert [one.id for one in found.findings] == ["rx-dropped"] and found.exit_code == 0


@pytest.mark.parametrize(
    "change",
    [
        VETH,
        port(driver="macvlan"),
        port(driver="ena"),
    ],
)
def test_rx_dropped_that_may_be_a_loss_is_listed_as_not_read(
    host: MadeHost, change: Change
) -> None:
    change(host)
    statistic("rx_dropped", 340)(host)
    found = host.answer()
    assert not any(one.id in ("rx-dropped", "frames-refused") for one in found.findings)
    (missing,) = found.missing
    assert missing.what == "how many of 340 packets in rx_dropped of eth1 were lost"
    assert found.exit_code == 6


def elsewhere(host: MadeHost) -> None:
    """A second capture on another port, whose ring is short."""
    host.other_ports.append({**ETH1, "name": "eth2", "index": 3, "missing": [LACK]})
    listener(index=3, port="eth2", blocks=2, retire_ms=10)(host)


def another_namespace(host: MadeHost) -> None:
    """A Suricata in another namespace, with the same name of a port."""
    host.other_ports.append({**ETH1, "space": 1, "pid": LISTENER, "missing": [LACK]})
    there = program(LISTENER, "Suricata-Main", [0], [0])
    host.programs[LISTENER] = {**there, "space": 1, "missing": [LACK]}
    host.listen(LISTENER, "Suricata-Main", replace(WORKER, inode=9500, space=1))


LACK = {"what": "something of it", "needs": "root"}


@pytest.mark.parametrize(
    ("change", "other"), [(elsewhere, "ring-tolerance"), (another_namespace, "crowded-workers")]
)
def test_an_audit_of_one_port_judges_nothing_else(
    host: MadeHost, change: Change, other: str
) -> None:
    assert host.answer(ports=["eth1"]).exit_code == 0
    change(host)
    assert other in host.ids()
    found = host.answer(ports=["eth1"])
    assert found.findings == [] and found.missing == [] and found.exit_code == 0


def test_only_an_ids_wants_the_frames_of_others(host: MadeHost) -> None:
    host.sockets.clear()
    listener()(host)
    port(flags=0x1003)(host)
    assert host.ids() == []


@pytest.mark.parametrize(
    ("group", "command"),
    [
        ("/sys/fs/cgroup/system.slice/ids.service", "systemctl set-property ids.service CPUQuota="),
        (
            f"/sys/fs/cgroup/docker-{'0123456789ab' + 'c' * 52}.scope",
            "docker update --cpus 0 0123456789ab",
        ),
        (
            f"/sys/fs/cgroup/cpu/docker/{'0123456789ab' + 'c' * 52}",
            "docker update --cpus 0 0123456789ab",
        ),
        ("/sys/fs/cgroup/cpu/mine", "echo -1 > /sys/fs/cgroup/cpu/mine/cpu.cfs_quota_us"),
        ("/sys/fs/cgroup/mine", "echo max > /sys/fs/cgroup/mine/cpu.max"),
    ],
)
def test_a_quota_is_lifted_by_whoever_set_it(group: str, command: str) -> None:
    assert capture_kinds._lifted(group) == command


@pytest.mark.parametrize(
    ("change", "words", "command"),
    [
        (all_of(spread(key=RANDOM), flows(204, 773)), "the hash of the NIC", "hkey 6d:5a"),
        (all_of(flows(90, 90), flows(20, 90, kind=2)), "RPS part them", "cluster_flow"),
        (flows(20, 90), "a switch, a TAP", "combined 1"),
    ],
)
def test_what_parts_the_directions_of_flows_is_named(
    host: MadeHost, change: Change, words: str, command: str
) -> None:
    change(host)
    (one,) = (one for one in host.answer().findings if one.id == "split-flows")
    assert words in one.says and command in one.change


class Listening:
    """A host whose node listens to flows, and what it answers for each group."""

    def __init__(self, met: dict[str, dict[str, int]] | None) -> None:
        self.asked: list[dict[str, object]] = []
        self.met = met

    def job(self, spec: dict[str, Any]) -> Listening:
        assert (spec["what"], spec["listen_ms"]) == (["flows"], 1500)
        self.asked = spec["groups"]
        return self

    def result(self, *, timeout_s: float) -> Any:
        assert timeout_s > 1.5
        return {"flows": {"groups": [self.met for _ in self.asked]}}

    def close(self) -> None:
        return


def test_flows_that_may_not_be_watched_are_missing(host: MadeHost) -> None:
    found = watched(Listening(None), host.world(), 1.5)
    lacks = [("real flows at eth1", "root, or CAP_NET_RAW")]
    assert [(one.what, one.needs) for one in found.missing] == lacks


def test_flows_are_watched_as_the_programs_of_a_port_are_dealt_packets(host: MadeHost) -> None:
    node = Listening({"tcp4": {"seen": 9, "flows": 5, "together": 4}})
    found = watched(node, host.world(), 1.5)
    assert node.asked == [{"port": "eth1", "pid": None, "kind": QUEUE, "members": 2}]
    met = FlowsMet(seen=9, flows=5, together=4)
    assert found.dealt == {"eth1": (Dealt(kind=QUEUE, members=2, met={"tcp4": met}),)}
    assert found.values[-1].value == "4 of 5 (tcp4: 4 of 5); 9 flows seen"


@pytest.mark.parametrize(("seen", "both", "ways"), [(40, 0, True), (40, 30, False)])
def test_one_way_mirrors_are_found_where_nothing_splits_a_flow(
    host: MadeHost, seen: int, both: int, ways: bool
) -> None:
    """One listener sees all of a port with one queue, on which no program deals packets."""
    host.sockets[:] = [replace(host.sockets[0], fanout_type=None, fanout_id=None)]
    port(queues=1)(host)
    node = Listening({})
    found = watched(node, host.world(), 1.5)
    assert node.asked == [{"port": "eth1", "pid": None, "kind": QUEUE, "members": 1}]
    assert found.missing == ()
    (said,) = [one.value for one in found.values if one.what == "flows at eth1"]
    assert "one queue, and no program there deals packets" in said
    met = {"tcp4": FlowsMet(seen=seen, flows=both, together=both)}
    host.dealt = [Dealt(kind=QUEUE, members=1, met=met)]
    assert ("one-way-traffic" in host.ids()) is ways
    assert "split-flows" not in host.ids()


def any_port(host: MadeHost) -> None:
    """tcpdump -i any alone, with a small ring."""
    host.sockets.clear()
    listener("tcpdump", index=0, port=None, blocks=2, retire_ms=10)(host)


def test_a_program_on_every_port_captures_on_each_that_is_up(host: MadeHost) -> None:
    any_port(host)
    host.other_ports.append({**ETH1, "name": "eth2", "index": 3, "flags": 0x1102})
    found = host.answer()
    assert found.ports == ["eth1"]
    assert [one.where for one in found.findings if one.id == "ring-tolerance"] == [
        f"tcpdump (pid {LISTENER}), eth1"
    ]


def test_a_program_on_every_port_is_a_second_listener_where_another_captures(
    host: MadeHost,
) -> None:
    listener("tcpdump", index=0, port=None, blocks=2, retire_ms=10)(host)
    assert host.ids() == ["second-listener"]


SECTION = "%YAML 1.1\n---\n{}:\n  - interface: {}\n  - interface: default\n"


OF_DPDK = """%YAML 1.1
---
dpdk:
  eal-params: {proc-type: primary}
  interfaces:
  - {interface: '0000:3b:00.0', threads: 4}
"""


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (SECTION.format("af-packet", "eth1"), []),
        (SECTION.format("af-packet", "ens5"), ["ens5, which"]),
        (SECTION.format("netmap", "eth1"), ["a section netmap"]),
        (SECTION.format("pcap", "enp9s0"), ["a section pcap", "enp9s0, which"]),
        (SECTION.format("af-packet", "default"), ["a port that"]),
        (OF_DPDK, ["a section dpdk", "0000:3b:00.0, which"]),
        ("%YAML 1.1\n---\nvars: 1\n", ["a port that"]),
    ],
)
def test_what_a_given_file_leaves_unjudged_is_said(
    host: MadeHost, text: str, lacks: list[str]
) -> None:
    found = answer(host.configured(Path("/x.yaml"), text), took_s=0.1)
    assert len(found.missing) == len(lacks)
    assert all(part in one.what for part, one in zip(lacks, found.missing, strict=True))
    assert found.exit_code == (6 if lacks else 0)


def test_every_kind_for_a_sensor_has_a_case() -> None:
    for_a_sensor = {kind.id for kind in KINDS if HostRole.SENSOR in kind.roles}
    assert {kind for kind, _, _ in CASES} == for_a_sensor


def test_ids_are_unique_and_each_kind_says_all(host: MadeHost) -> None:
    ids = [kind.id for kind in KINDS]
    assert len(set(ids)) == len(ids) and LOOKS.keys() == set(ids)
    for kind in KINDS:
        assert kind.title and kind.why and kind.source and kind.not_when and kind.change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (statistic("tx_dropped", 4), "tx-drops"),
        (counter("rx_flow_control_xoff", 1), "pause-frames"),
        (listener(), "second-listener"),
        (port(duplex="half"), "link-slow"),
    ],
)
def test_a_generator_has_findings_of_its_own(host: MadeHost, change: Change, kind: str) -> None:
    host.sockets.clear()
    assert host.ids(HostRole.GENERATOR) == []
    change(host)
    assert kind in host.ids(HostRole.GENERATOR)


# --- ten mistakes of public threads (reference/tuning.md, section 8) ----------------------------

MISTAKES: dict[str, tuple[Change, dict[str, str]]] = {
    "1 many queues, asymmetric hash, one reader too few": (
        all_of(spread(key=RANDOM, queues=[0, 1, 2]), port(queues=3)),
        {"asymmetric-hash": "1 of 3 flows", "readers-and-queues": "3 queues for 2 readers"},
    ),
    "2 default capture ring": (rings(blocks=13), {"ring-tolerance": "130 ms"}),
    "3 ring bigger than useful": (rings(blocks=20_000), {"ring-memory": "40,000 MiB"}),
    "4 loss looked for in the wrong place": (
        all_of(statistic("rx_missed_errors", 22), port(ring=[80, 4096])),
        {"nic-drops": "22 packets died in the NIC"},
    ),
    "5 rx_dropped read as loss": (statistic("rx_dropped", 340), {"rx-dropped": "is no loss"}),
    "6 drops and packets added up": (
        interface(drops=500),
        {"socket-drops": "500 of 1,000 packets that came to its rings were lost there in 100 s "
         "(50.00 % ="},
    ),
    "7 offloads on, and one that Suricata leaves": (
        all_of(feature("rx-gro", True), feature("rx-gro-hw", True)),
        {"merged-frames": "gro is on: Suricata switches it off when it starts; rx-gro-hw is on: "
         "Suricata leaves it as it is"},
    ),
    "8 memcaps, emergency mode, checksums": (
        all_of(
            counters(flow__memcap=5, flow__emerg_mode_entered=2), interface(invalid_checksums=330)
        ),
        {"memcap-reached": "(flow.memcap): 5 times", "emergency-mode": "2 times",
         "wrong-checksums": "33.00 %"},
    ),
    "9 affinity undone, one CPU does all": (
        all_of(lines(0, 0), balancer()),
        {"irq-one-cpu": "CPU 0 receives all 2 queues", "irqbalance": "irqbalance (pid 700)"},
    ),
    "10 second listener, fanout id clash, container limit": (
        all_of(
            listener("Suricata-Main", fanout_id=99, fanout_type=5),
            quota(0.2, throttled=50),
        ),
        {"fanout-clash": "share one fanout group", "cpu-quota": "0.2 CPUs"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistakes_of_public_threads_are_named(host: MadeHost, mistake: str) -> None:
    change, expected = MISTAKES[mistake]
    change(host)
    found = {one.id: one.says for one in host.answer().findings}
    assert set(found) == set(expected)
    for kind, words in expected.items():
        assert words in found[kind]


# --- order, evidence, rights ----------------------------------------------------------------------


def test_findings_come_by_likely_effect_and_notes_set_no_exit_code(host: MadeHost) -> None:
    statistic("rx_dropped", 340)(host)
    noted = host.answer()
    assert [one.id for one in noted.findings] == ["rx-dropped"] and noted.exit_code == 0
    listener()(host)
    rings(blocks=13)(host)
    found = host.answer()
    assert [one.id for one in found.findings] == [
        "ring-tolerance", "second-listener", "rx-dropped"
    ]  # fmt: skip
    assert found.exit_code == 1


def test_a_finding_names_value_place_owner_and_command(host: MadeHost) -> None:
    listener()(host)
    statistic("rx_missed_errors", 22)(host)
    port(ring=[80, 4096])(host)
    nic, second = host.answer().findings
    assert second.says == "tcpdump (pid 512) takes each packet as well"
    assert second.change == "end it (kill 512), or give it a filter"
    assert [read.at for read in nic.read] == [
        "/sys/class/net/eth1/statistics/rx_missed_errors", "ethtool -g eth1"
    ]  # fmt: skip
    assert nic.read[1].value == "ring 80 of 4096" and nic.change.startswith(
        "ethtool -G eth1 rx 4096"
    )


def test_who_holds_a_socket_may_not_be_seen(host: MadeHost) -> None:
    host.sockets[:] = [replace(one, pid=None, program=None) for one in host.sockets]
    host.lacks("who holds which packet socket (/proc/PID/fd)", "root, or CAP_SYS_PTRACE")
    assert host.answer().exit_code == 6
    host.sockets.append(replace(host.sockets[0], inode=9100, fanout_id=None, fanout_type=None))
    assert host.ids() == []  # whose it is decides whether it is a second one
    rings(blocks=13)(host)
    only = host.answer().findings[0]
    assert (only.id, only.where) == ("ring-tolerance", "a program of user 0, eth1")


def test_a_socket_whose_filter_a_user_may_not_see_is_no_second_listener(host: MadeHost) -> None:
    listener(filtered=None)(host)
    assert host.ids() == []


@pytest.mark.parametrize("name", ["tcpdump", "snort"])
def test_losses_that_cannot_be_read_are_none(host: MadeHost, name: str) -> None:
    listener(name, drops=None, packets=None)(host)
    assert "socket-drops" not in host.ids()


def test_a_client_that_filters_and_has_no_ring_captures_nothing(host: MadeHost) -> None:
    """DHCP and LLDP clients listen to all protocols of a port, and take a few packets."""
    host.sockets.clear()
    listener("dhclient", filtered=True, blocks=None)(host)
    feature("rx-gro", True)(host)
    assert host.ids() == ["blind-sensor"] and host.answer().ports == []
    host.rings(blocks=16)
    assert host.ids() == ["merged-frames"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a table"),
        ("%YAML 1.1\n---\n- [", "while parsing"),
        ("%YAML 1.1\n---\n- a\n", "must be a table"),
        ("\ufffd\ufffd%\0Y\0A\0", "is UTF-16, which Suricata does not read"),
    ],
)
def test_a_config_that_is_none_is_one_line(host: MadeHost, text: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"^--config: .*{words}"):
        host.configured(Path("/x.yaml"), text)
    with pytest.raises(BadInput, match=r"^--config: .*nope: No such file"):
        host.configured(Path("/nope"), None)


@pytest.mark.parametrize("text", [None, "alert ip any any -> any any (sid:1;)\n"])
def test_a_file_of_rules_is_no_config(host: MadeHost, text: str | None) -> None:
    with pytest.raises(BadInput, match=r"^--config: .*my\.rules: is a file of rules by its name"):
        host.configured(Path("/my.rules"), text)


def test_a_config_is_judged_without_a_suricata(host: MadeHost) -> None:
    world = host.configured(Path("mine.yaml"), TWO_PORTS.format(99))
    found = answer(world, took_s=0.1).findings
    assert [(one.id, one.where) for one in found] == [("fanout-clash", "mine.yaml")]


def test_settings_are_those_of_an_included_file(host: MadeHost) -> None:
    more = f"{Path(PATH).parent}/more.yaml"
    first = "%YAML 1.1\n---\ninclude: more.yaml\n"
    two = TWO_PORTS.format(99)
    host.suricata["yaml"]["text"] = {"path": PATH, "texts": {PATH: first, more: two}, "errors": {}}
    assert host.ids() == ["fanout-clash"]
    host.suricata["yaml"]["text"]["texts"].pop(more)
    assert host.ids() == []


def test_an_unknown_port_names_those_that_are_there(host: MadeHost) -> None:
    with pytest.raises(BadInput, match="--port: eth7: no such port here; there are: eth1, lo"):
        host.world(ports=["eth7"])


def test_the_page_of_findings_is_that_of_the_data() -> None:
    page = Path(__file__).parents[3] / "docs/reference/audit.md"
    assert page.read_text() == audit_findings.page()


def test_sarif_has_each_finding_with_its_rule(host: MadeHost) -> None:
    from nodrop.audit.audit_answer import sarif

    listener()(host)
    statistic("rx_dropped", 340)(host)
    run = json.loads(sarif(host.answer()))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [one["id"] for one in rules] == [kind.id for kind in KINDS]
    said = [(one["ruleId"], one["level"], rules[one["ruleIndex"]]["id"]) for one in run["results"]]
    assert said == [
        ("second-listener", "warning", "second-listener"), ("rx-dropped", "note", "rx-dropped")
    ]  # fmt: skip
    assert all(each["message"]["text"] for one in run["results"] for each in one["locations"])
