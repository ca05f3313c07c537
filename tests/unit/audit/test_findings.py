"""Each finding has a host that has it, and the nearest one that has not. A good one has none."""

from __future__ import annotations

import gc
import json
import socket
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.audit import capture_kinds, machine, reading
from nodrop.audit.audit_answer import KINDS
from nodrop.audit.kernel import Live
from nodrop.audit.world import Role
from nodrop.errors import BadInput, TrialFailed
from tests.unit.audit.made_changes import (
    Change,
    after,
    all_of,
    balancer,
    counter,
    driver,
    feature,
    file,
    flows,
    interface,
    lines,
    listener,
    listener_lost,
    process,
    quota,
    rings,
    said,
    statistic,
    threads,
)
from tests.unit.audit.made_host import (
    LISTENER,
    NO_CAPS,
    RANDOM,
    ROOT_CAPS,
    SURICATA,
    YAML,
    MadeHost,
    state,
)
from tools import audit_findings


@pytest.fixture
def host(tmp_path: Path) -> MadeHost:
    return MadeHost(tmp_path)


VETH = driver(driver="veth")
SLOT = "sys/class/net/eth1/device"
REFUSED = f"1 00000002 {'0 ' * 11}\n"
TWO_PORTS = YAML + "  - interface: eth2\n    cluster-id: {}\n"
CASES: list[tuple[str, Change, Change]] = [
    (
        "fanout-clash",
        listener("Suricata-Main", fanout_id=99, fanout_type=5),
        listener("Suricata-Main", fanout_id=98, fanout_type=5),
    ),
    ("fanout-clash", rings(fanout_id=None), rings(fanout_id=7)),
    (
        "fanout-clash",
        file("etc/suricata/suricata.yaml", TWO_PORTS.format(99)),
        file("etc/suricata/suricata.yaml", TWO_PORTS.format(98)),
    ),
    ("cpu-quota", quota("20000 100000"), quota("200000 100000")),
    ("cpu-quota", quota("400000 100000", throttled=1), quota("400000 100000")),
    ("crowded-workers", threads("0", "0"), threads("0", "1")),
    ("crowded-workers", threads("3", "3"), threads("3", "3-4")),
    ("ring-tolerance", rings(blocks=13), rings(blocks=20)),
    ("ring-tolerance", rings(blocks=2), rings(blocks=2, retire_ms=100)),
    ("ring-tolerance", rings(blocks=13), rings(blocks=13, version=2)),
    ("merged-frames", feature("rx-gro", "on"), feature("rx-gro", "off")),
    ("merged-frames", feature("rx-gro-hw", "on"), feature("tx-tcp-segmentation", "on")),
    ("asymmetric-hash", driver(key=RANDOM), driver(key=RANDOM, xfrm=1)),
    ("asymmetric-hash", driver(key=RANDOM), driver(key=RANDOM, table_queues=1)),
    (
        "readers-and-queues",
        driver(channels=[0, 0, 1, 8, 0, 0, 1, 3]),
        driver(channels=[0, 0, 1, 8, 0, 0, 1, 4]),
    ),
    ("readers-and-queues", driver(channels=[0, 0, 1, 8, 0, 0, 1, 1]), rings(fanout_type=0)),
    ("irq-one-cpu", lines(2, 2), lines(2, 3)),
    (
        "irq-one-cpu",
        lines(0, 0),
        all_of(lines(0, 0), file("sys/class/net/eth1/queues/rx-0/rps_cpus", "0c\n")),
    ),
    ("nic-drops", statistic("rx_missed_errors", 7), statistic("rx_missed_errors", 0)),
    ("nic-drops", after(7_000_000, "rx_missed_errors", 7), after(7_000_001, "rx_missed_errors", 7)),
    ("nic-drops", counter("rx_queue_0_drops", 80), counter("rx_no_buffer_count", 80)),
    ("socket-drops", interface(drop=5, pkts=5_000_000), interface(drop=4, pkts=5_000_000)),
    ("socket-drops", interface(drop=1), interface(drop=0)),
    ("socket-drops", listener_lost(9_000, 1_000), listener_lost(0, 10_000)),
    ("socket-drops", listener_lost(5, 4_999_995, 0), listener_lost(4, 4_999_996, 0)),
    ("frames-cut", rings(version=2, frame_bytes=1500), rings(version=2, frame_bytes=1616)),
    (
        "softnet-drops",
        all_of(file("proc/net/softnet_stat", REFUSED), driver(driver="veth")),
        file("proc/net/softnet_stat", REFUSED),
    ),
    ("frame-length", after(9, "rx_length_errors", 1), after(1 << 40, "rx_length_errors", 9)),
    ("frame-length", statistic("rx_length_errors", 3), statistic("rx_length_errors", 0)),
    ("cable-errors", after(9, "rx_frame_errors", 1), after(1 << 40, "rx_frame_errors", 9)),
    ("cable-errors", statistic("rx_crc_errors", 3), statistic("rx_crc_errors", 0)),
    (
        "link-slow",
        file("sys/class/net/eth1/speed", "100\n"),
        file("sys/class/net/eth1/speed", "1000\n"),
    ),
    (
        "link-slow",
        file("sys/class/net/eth1/duplex", "half\n"),
        file("sys/class/net/eth1/speed", "-1\n"),
    ),
    (
        "link-narrow",
        file(f"{SLOT}/current_link_width", "4\n"),
        all_of(
            file(f"{SLOT}/current_link_width", "4\n"),
            file("proc/cpuinfo", "flags : fpu hypervisor\n"),
        ),
    ),
    (
        "link-narrow",
        file(f"{SLOT}/current_link_speed", "2.5 GT/s PCIe\n"),
        file(f"{SLOT}/current_link_speed", "8.0 GT/s\n"),
    ),
    (
        "not-promiscuous",
        file("sys/class/net/eth1/flags", "0x1003\n"),
        file("sys/class/net/eth1/flags", "0x1103\n"),
    ),
    ("memcap-reached", said("tcp", ssn_memcap_drop=1), said("tcp", sessions=1)),
    (
        "memcap-reached",
        said("defrag", max_trackers_reached=4),
        said("defrag", max_trackers_reached=0),
    ),
    ("limit-reached", said("detect", alert_queue_overflow=3), said("detect", alert=3)),
    ("emergency-mode", said("flow", emerg_mode_entered=1), said("flow", emerg_mode_over=0)),
    (
        "wrong-checksums",
        interface(**{"invalid-checksums": 90}),
        interface(**{"invalid-checksums": 10}),
    ),
    ("pause-frames", counter("tx_flow_control_xoff", 1), counter("rx_flow_control_xoff", 1)),
    ("second-listener", listener(), listener(filtered=True)),
    ("second-listener", listener(index=0), listener(protocol=0x800)),
    (
        "second-listener",
        all_of(listener(), lambda host: host.kernel.takes_all.add(9100)),
        listener(filtered=True),
    ),
    ("isolated-unused", threads("0", "1"), threads("0", "2")),
    ("ring-memory", rings(blocks=20_000), rings(blocks=8_000)),
    ("memory-limit", quota("max 100000", full=1), quota("max 100000", full=0)),
    ("numa-remote", lines(4, 5), all_of(lines(4, 5), file(f"{SLOT}/numa_node", "1\n"))),
    ("numa-unknown", file(f"{SLOT}/numa_node", "-1\n"), file(f"{SLOT}/numa_node", "1\n")),
    ("irqbalance", process("irqbalance"), process("irqtop")),
    ("irqbalance", balancer("--banirq=30"), balancer("--banirq=30", "-i", "31")),
    ("irqbalance", balancer("--foreground"), balancer("--policyscript=/etc/irq.sh")),
    ("counts-stolen", said("decoder", pkts=2000), said("decoder", pkts=1090)),
    (
        "config-not-running",
        file("proc/stat", "btime 1000000000\n"),
        file("proc/stat", "btime 2000000000\n"),
    ),
    (
        "rx-dropped",
        statistic("rx_dropped", 340),
        all_of(statistic("rx_dropped", 340), driver(driver="vmxnet3")),
    ),
    ("rx-dropped", statistic("rx_dropped", 12), all_of(statistic("rx_dropped", 12), VETH)),
    (
        "frames-refused",
        all_of(VETH, after(7, "rx_dropped", 3000)),
        all_of(VETH, after(3000, "rx_dropped", 7)),
    ),
    ("frames-refused", after(90, "rx_dropped", 500), after(500, "rx_dropped", 90)),
    ("driver-counters", driver(driver="i40e"), driver(driver="e1000e")),
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
def test_a_finding_is_there_and_next_to_it_is_not(
    tmp_path: Path, kind: str, has: Change, has_not: Change
) -> None:
    with_it, without = MadeHost(tmp_path / "with"), MadeHost(tmp_path / "without")
    has(with_it)
    has_not(without)
    assert kind in with_it.ids()
    assert kind not in without.ids()


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
    host.veth("s1", index=9, mtu=mtu, tx_dropped=refused)
    after(arrived, "rx_dropped", dropped)(host)
    found = host.answer()
    one, *notes = found.findings
    assert one.id == "frames-refused" and says in one.says
    assert f"its MTU is 1500, and its peer s1 sends up to {mtu}" in one.says
    assert one.change.startswith(f"ip link set eth1 mtu {mtu};")
    rest = [note.says for note in notes]
    assert rest == [] if dropped == refused else rest[0].startswith("rx_dropped 340 is no loss")
    assert found.missing == [] and found.exit_code == 1


@pytest.mark.parametrize(("of", "found"), [(2, 9000), (3, None)])
def test_the_mtu_of_a_peer_is_found_by_both_indexes(
    host: MadeHost, of: int, found: int | None
) -> None:
    host.veth("s1", index=9, mtu=9000, tx_dropped=0, of=of)
    asked = reading.peer_mtu(SURICATA, 2, "eth1", root=host.root, kernel=host.kernel)
    assert asked == found


@pytest.mark.parametrize("dropped", [340, 41])
def test_a_peer_that_refused_nothing_proves_that_nothing_is_lost(
    host: MadeHost, dropped: int
) -> None:
    host.veth("s1", index=9, mtu=9000, tx_dropped=0)
    statistic("rx_dropped", dropped)(host)
    found = host.answer()
    assert [one.id for one in found.findings] == ["rx-dropped"] and found.exit_code == 0


@pytest.mark.parametrize(
    "change",
    [
        VETH,
        lambda host: host.veth("s1", index=9, mtu=9000, tx_dropped=5, of=3),
        driver(driver="macvlan"),
        driver(driver="ena"),
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


@pytest.mark.parametrize("seer", [None, "1", "700"])
def test_a_quota_is_found_without_a_mount_of_control_groups_or_listed(
    host: MadeHost, seer: str | None
) -> None:
    """`ip netns exec` mounts a /sys without them."""
    mounts = (host.root / "proc/self/mountinfo").read_text()
    host.write("proc/self/mountinfo", "30 1 0:30 / /sys rw - sysfs ns rw\n")
    if seer:
        host.write(f"proc/{seer}/mountinfo", mounts)
        (host.root / f"proc/{seer}/root").symlink_to(host.root)
    quota("20000 100000", throttled=5)(host)
    found = host.answer()
    assert [one.id for one in found.findings] == (["cpu-quota"] if seer else [])
    assert [one.what for one in found.missing] == (
        [] if seer else ["CPU quotas and memory limits of capture programs"]
    )
    assert found.exit_code == (1 if seer else 6)


@pytest.mark.parametrize("name", ["tcpdump", "snort"])
def test_losses_that_cannot_be_read_are_listed(host: MadeHost, name: str) -> None:
    listener(name)(host)
    host.kernel.counts = {}
    found = host.answer()
    assert [one.what for one in found.missing] == [f"losses of {name} (pid {LISTENER})"]
    assert "socket-drops" not in [one.id for one in found.findings]


def elsewhere(host: MadeHost) -> None:
    """A second capture on another port, whose ring is short and whose reader has a quota."""
    host.kernel.ports = {**host.kernel.ports, 3: "eth2"}
    listener(index=3, blocks=2, retire_ms=10)(host)
    host.write("sys/class/net/eth2/ifindex", "3\n")
    host.write(f"proc/{LISTENER}/cgroup", "0::/other\n")
    host.write("sys/fs/cgroup/other/cpu.max", "20000 100000\n")
    host.write("sys/fs/cgroup/other/cpu.stat", "nr_periods 9\nnr_throttled 9\n")


def another_namespace(host: MadeHost) -> None:
    """A Suricata in another namespace, with the same name of a port and full memcaps."""
    host.process(LISTENER, "Suricata-Main", {"W#01-eth1": "0", "W#02-eth1": "0"})
    (host.root / f"proc/{LISTENER}/ns/net").unlink()
    (host.root / f"proc/{LISTENER}/ns/net").symlink_to("net:[2]")
    row = "0000000000000000 3 3 0003 2 1 0 0 9500"
    host.write(f"proc/{LISTENER}/net/packet", f"sk RefCnt Type\n{row}\n")
    host.hold(LISTENER, 9500)


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
    file("sys/class/net/eth1/flags", "0x1003\n")(host)
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
        (all_of(driver(key=RANDOM), flows(204, 773)), "the hash of the NIC", "hkey 6d:5a"),
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


@pytest.mark.parametrize(
    ("table", "needs"),
    [
        ("  eth1: 900 5\n", "root, or CAP_NET_RAW"),
        ("  eth2: 900 5\n", "its row in /proc/PID/net/dev"),
        ("", "its row in /proc/PID/net/dev"),
    ],
)
def test_flows_that_may_not_be_watched_are_missing(host: MadeHost, table: str, needs: str) -> None:
    """Without the rate of a port nobody knows which part of its flows to look at."""
    host.write("proc/self/net/dev", table)
    found = host.answer(watch_s=0.01)
    assert [(one.what, one.needs) for one in found.missing] == [("real flows at eth1", needs)]


def test_a_port_on_which_nothing_splits_a_flow_is_said_so(host: MadeHost) -> None:
    host.sockets[:] = [replace(host.sockets[0], fanout_type=None, fanout_id=None)]
    host.kernel.port["channels"] = [0, 0, 1, 8, 0, 0, 1, 1]
    host.write("proc/self/net/dev", "  eth1: 900 5\n")
    found = host.answer(watch_s=3.0)
    (said,) = [one.value for one in found.values if one.what == "flows at eth1"]
    assert said.startswith("not watched: one queue, and no program") and found.missing == []


def test_every_kind_for_a_sensor_has_a_case() -> None:
    for_a_sensor = {kind.id for kind in KINDS if Role.SENSOR in kind.roles}
    assert {kind for kind, _, _ in CASES} == for_a_sensor


def test_ids_are_unique_and_each_kind_says_all(host: MadeHost) -> None:
    ids = [kind.id for kind in KINDS]
    assert len(set(ids)) == len(ids)
    for kind in KINDS:
        assert kind.title and kind.why and kind.source and kind.not_when and kind.change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (statistic("tx_dropped", 4), "tx-drops"),
        (counter("rx_flow_control_xoff", 1), "pause-frames"),
        (listener(), "second-listener"),
        (file("sys/class/net/eth1/duplex", "half\n"), "link-slow"),
    ],
)
def test_a_generator_has_findings_of_its_own(host: MadeHost, change: Change, kind: str) -> None:
    host.sockets.clear()
    host.listen()
    assert host.ids(Role.GENERATOR) == []
    change(host)
    assert kind in host.ids(Role.GENERATOR)


# --- ten mistakes of public threads (reference/tuning.md, section 8) ----------------------------

MISTAKES: dict[str, tuple[Change, dict[str, str]]] = {
    "1 many queues, asymmetric hash, one reader too few": (
        all_of(driver(key=RANDOM, table_queues=3, channels=[0, 0, 1, 8, 0, 0, 1, 3])),
        {"asymmetric-hash": "1 of 3 flows", "readers-and-queues": "3 queues for 2 readers"},
    ),
    "2 default capture ring": (rings(blocks=13), {"ring-tolerance": "130 ms"}),
    "3 ring bigger than useful": (rings(blocks=20_000), {"ring-memory": "40,000 MiB"}),
    "4 loss looked for in the wrong place": (
        all_of(statistic("rx_missed_errors", 22), driver(rings=[4096, 0, 0, 0, 80, 0, 0, 0])),
        {"nic-drops": "22 packets died in the NIC"},
    ),
    "5 rx_dropped read as loss": (statistic("rx_dropped", 340), {"rx-dropped": "is no loss"}),
    "6 drops and packets added up": (
        interface(drop=500),
        {"socket-drops": "500 of 1,000 packets that came to its rings were lost there in 100 s "
         "(50.00 % ="},
    ),
    "7 offloads on, and one that Suricata leaves": (
        all_of(feature("rx-gro", "on"), feature("rx-gro-hw", "on")),
        {"merged-frames": "gro is on: Suricata switches it off when it starts; rx-gro-hw is on: "
         "Suricata leaves it as it is"},
    ),
    "8 memcaps, emergency mode, checksums": (
        all_of(
            said("flow", memcap=5, emerg_mode_entered=2), interface(**{"invalid-checksums": 330})
        ),
        {"memcap-reached": "(flow.memcap): 5 times", "emergency-mode": "2 times",
         "wrong-checksums": "33.00 %"},
    ),
    "9 affinity undone, one CPU does all": (
        all_of(lines(0, 0), process("irqbalance")),
        {"irq-one-cpu": "CPU 0 receives all 2 queues", "irqbalance": "irqbalance (pid 700)"},
    ),
    "10 second listener, fanout id clash, container limit": (
        all_of(
            listener("Suricata-Main", fanout_id=99, fanout_type=5),
            quota("20000 100000", throttled=50),
        ),
        {"second-listener": "Suricata-Main (pid 512) takes each packet",
         "fanout-clash": "share one fanout group", "cpu-quota": "0.2 CPUs"},
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
    driver(rings=[4096, 0, 0, 0, 80, 0, 0, 0])(host)
    nic, second = host.answer().findings
    assert second.says == "tcpdump (pid 512) takes each packet as well"
    assert second.change == "end it (kill 512), or give it a filter"
    assert [read.at for read in nic.read] == [
        "/sys/class/net/eth1/statistics/rx_missed_errors", "ethtool -g eth1"
    ]  # fmt: skip
    assert nic.read[1].value == "ring 80 of 4096" and nic.change.startswith(
        "ethtool -G eth1 rx 4096"
    )


def test_a_normal_user_is_told_what_is_missing_and_why(host: MadeHost) -> None:
    """Without CAP_NET_ADMIN the kernel shows the filter of no socket."""
    host.write("proc/self/status", f"CapEff:\t{NO_CAPS}\n")
    host.kernel.filters = False
    listener()(host)
    found = host.answer()
    assert [one.id for one in found.findings] == []
    assert [(one.what, one.needs) for one in found.missing] == [
        ("filters of packet sockets", "root, or CAP_NET_ADMIN")
    ]
    assert found.exit_code == 6


def test_no_module_is_loaded_for_packet_diag(host: MadeHost) -> None:
    host.write("proc/modules", "igb 1 0 - Live 0x0\n")
    found = host.answer()
    assert "packet_diag" not in host.kernel.asked and found.exit_code == 6
    assert "modprobe af_packet_diag" in found.missing[0].needs
    host.write("proc/modules", "af_packet_diag 1 0 - Live 0x0\n")
    assert host.answer().exit_code == 0
    host.write("proc/modules", "igb 1 0 - Live 0x0\n")
    host.write("lib/modules/6.12.0/modules.builtin", "kernel/net/packet/af_packet_diag.ko\n")
    assert host.answer().exit_code == 0


def test_a_suricata_that_does_not_answer_is_missing_not_well(host: MadeHost) -> None:
    host.kernel.suricata_said = {}
    found = host.answer()
    assert found.missing[0].what == "counters of Suricata-Main (pid 500)" and found.exit_code == 6


def test_only_commands_that_read_are_sent_to_a_suricata() -> None:
    with pytest.raises(TrialFailed, match="no other command"):
        Live().suricata(Path("/nowhere"), [("shutdown", {})])


def test_nothing_is_written(host: MadeHost) -> None:
    before = state(host.root)
    host.answer()
    host.answer(role=Role.GENERATOR)
    assert state(host.root) == before


@pytest.mark.parametrize(
    ("capabilities", "needs"),
    [
        (ROOT_CAPS, machine.BEYOND_ROOT),
        ("0000000000280000", machine.BEYOND_ROOT),
        ("0000000000200000", machine.TRACE),
        (NO_CAPS, machine.TRACE),
    ],
)
def test_root_is_not_told_to_be_root(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch, capabilities: str, needs: str
) -> None:
    def refused(self: object, process: str) -> str:
        if process == "self":
            return "net:[1]"
        raise PermissionError

    monkeypatch.setattr(reading._Reader, "_space", refused)
    host.write("proc/self/status", f"CapEff:\t{capabilities}\n")
    missing = [one for one in host.answer().missing if "namespace of Suricata" in one.what]
    assert [one.needs for one in missing] == [needs]


def test_who_holds_a_socket_may_not_be_seen(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: object, pid: int) -> set[str]:
        raise PermissionError

    monkeypatch.setattr(reading._Reader, "open_files", refused)
    found = host.answer()
    whats = [one.what for one in found.missing]
    assert "who holds which packet socket (/proc/PID/fd)" in whats and found.exit_code == 6
    listener()(host)
    assert host.ids() == []  # whose it is decides whether it is a second one
    rings(blocks=13)(host)
    only = host.answer().findings[0]
    assert (only.id, only.where) == ("ring-tolerance", "a program of user 0, eth1")


def test_a_client_that_filters_and_has_no_ring_captures_nothing(host: MadeHost) -> None:
    """DHCP and LLDP clients listen to all protocols of a port, and take a few packets."""
    host.sockets.clear()
    listener("dhclient", filtered=True, blocks=None)(host)
    feature("rx-gro", "on")(host)
    assert host.ids() == [] and host.answer().ports == []
    host.rings(blocks=16)
    assert host.ids() == ["merged-frames"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a table"),
        ("%YAML 1.1\n---\n- [", "while parsing"),
        ("%YAML 1.1\n---\n- a\n", "must be a table"),
    ],
)
def test_a_config_that_is_none_is_one_line(
    host: MadeHost, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=f"^--config: .*{words}"):
        host.world(config=path)
    with pytest.raises(BadInput, match=r"^--config: .*nope: No such file"):
        host.world(config=tmp_path / "nope")


def test_a_config_is_judged_without_a_suricata(host: MadeHost, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TWO_PORTS.format(99))
    found = host.answer(config=path).findings
    assert [(one.id, one.where) for one in found] == [("fanout-clash", str(path))]


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


@pytest.mark.parametrize("folder", ["short", "long" * 40])
@pytest.mark.parametrize("left", [False, True])
def test_a_suricata_that_has_gone_leaves_no_open_socket(
    tmp_path: Path, folder: str, left: bool
) -> None:
    """Seen: an audit beside a Suricata that ended warned of a socket that nobody had closed."""
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "suricata.socket"
    if left:
        with socket.socket(socket.AF_UNIX) as stream, chdir(path.parent):
            stream.bind(path.name)
    with pytest.raises(TrialFailed, match="refused" if left else "No such file"):
        Live().suricata(path, [("uptime", {})])
    gc.collect()  # a socket that is still open warns, and a warning fails the test
