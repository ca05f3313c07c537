"""Places where packets die, why, and the command: each cause put in, and seen to be named."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nodrop.answer.finding import WORDS
from nodrop.cli import main
from nodrop.config.units import time_s
from nodrop.drops import watching
from nodrop.drops.outlets import ending, lines, sparkline, view
from nodrop.drops.places import DropCause, doubled, losses, thread_shares
from nodrop.drops.watching import DropsInterval, Watch
from nodrop.errors import BadInput
from nodrop.protocol import SensorPeer
from nodrop.report.story import read_story
from nodrop.report.write import report_json
from nodrop.testbed.hosts import control_groups
from nodrop.testbed.hosts import node as find_node
from nodrop.testbed.hosts.control_groups import QUOTAS_HIDDEN, SocketLooks
from tests.unit.drops.test_capture_books import (
    NS,
    fill,
    look,
    port,
    program,
    ring,
    said,
    sock,
    thread,
)
from tests.unit.drops.test_outlets import recorded
from tests.unit.hosts.test_own_quotas import NO_GROUPS, V2, host


def interval(before: dict[str, Any], after: dict[str, Any]) -> DropsInterval:
    watch = Watch()
    watch.look(look(0, **before))
    found = watch.look(look(1, **after))
    assert found is not None
    return found


def cause_of(why: str) -> str:
    """Code of a cause, by its words."""
    for code, words in WORDS["drop_causes"].items():
        if re.match(re.sub(r"\\\{.*?\\\}", ".*", re.escape(words["why"])), why):
            return str(code)
    return DropCause.PLACE


class OneLook:
    """A host whose node has seen this."""

    def __init__(self, seen: Any) -> None:
        self.seen = seen

    def job(self, spec: dict[str, Any], *, timeout_s: float = 30) -> Any:
        return self

    def result(self, *, timeout_s: float) -> Any:
        return {"captures": self.seen}


def ring_loss(
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    missing: Sequence[Any] = (),
    took_ns: int = 0,
    dropped: int = 70,
    **socket: Any,
) -> Any:
    """A second in which so many packets found the ring full."""
    found = interval(
        {
            "sockets": [sock(41, 0, 0, **socket)],
            "ports": [port((0, 0))],
            "programs": {"7": program(**before)},
            "missing": [*missing],
            "took_ns": 0,
        },
        {
            "sockets": [sock(41, 30, dropped, **socket)],
            "ports": [port((30 + dropped, 30 + dropped))],
            "programs": {"7": program(**after)},
            "missing": [*missing],
            "took_ns": took_ns,
        },
    )
    (row,) = found.answer.places
    assert (row.total, row.rate_pps, row.bursts) == (dropped, dropped, 1)
    return row


@pytest.mark.parametrize(
    ("before", "after", "cause", "why", "do"),
    [
        ({}, {"stopped": True}, DropCause.STOPPED, "", "kill -CONT 7"),
        (
            {"usage": {"start_ticks": 5, "throttled_ns": {"/sys/fs/cgroup/a/cpu.stat": 0}}},
            {"usage": {"start_ticks": 5, "throttled_ns": {"/sys/fs/cgroup/a/cpu.stat": 4 * 10**8}}},
            DropCause.QUOTA,
            "40 %",
            "echo max > /sys/fs/cgroup/a/cpu.max",
        ),
        (
            {"usage": {"start_ticks": 5, "throttled_ns": {"/sys/fs/cgroup/cpu/a/cpu.stat": 0}}},
            {"usage": {"start_ticks": 5, "throttled_ns": {"/sys/fs/cgroup/cpu/a/cpu.stat": 10**8}}},
            DropCause.QUOTA,
            "10 %",
            "echo -1 > /sys/fs/cgroup/cpu/a/cpu.cfs_quota_us",
        ),
        (
            {},
            {"threads": [thread("W#01", 0.3, 0.5)]},
            DropCause.WAITED_FOR_CPU,
            "50 %",
            "who has CPU 1",
        ),
        (
            {},
            {"threads": [thread("W#01", 0.97, 0.01)]},
            DropCause.NO_TIME_LEFT,
            "97 %",
            "threads=2",
        ),
        (
            {},
            {"threads": [thread("W#01", 0.2, 0.0)]},
            DropCause.FEW_BLOCKS,
            "130 ms",
            "block-timeout=100",
        ),
    ],
)
def test_why_a_ring_was_full(
    before: dict[str, Any], after: dict[str, Any], cause: DropCause, why: str, do: str
) -> None:
    loss = ring_loss(before, after)
    assert loss.place == "socket ring" and loss.where == "Suricata-Main 7 on eth1"
    assert cause_of(loss.why) == cause and why in loss.why and do in loss.do


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"threads": [thread("W#01", 0.3, 0.5)]}, "W#01"),
        ({"threads": [thread("W#01", 0.2, 0.1)]}, "130 ms"),
    ],
)
def test_a_quota_that_is_not_visible_leaves_the_cause_open(
    after: dict[str, Any], words: str
) -> None:
    loss = ring_loss({}, after, missing=[QUOTAS_HIDDEN])
    assert cause_of(loss.why) == DropCause.NOT_KNOWN and words in loss.why
    assert "nsenter --net" in loss.do


@pytest.mark.parametrize(("root", "missing"), [("77", []), ("", [QUOTAS_HIDDEN])])
def test_a_look_within_a_namespace_finds_control_groups_elsewhere(
    tmp_path: Path, root: str, missing: list[Any]
) -> None:
    host(
        tmp_path,
        NO_GROUPS,
        "0::/ids\n",
        {
            "proc/7/cgroup": "0::/ids\n",
            f"proc/{root or 'x'}/mountinfo": V2,
            f"proc/{root or 'x'}/root/sys/fs/cgroup/ids/cpu.stat": "throttled_usec 9\n",
        },
    )
    found = SocketLooks(OneLook(look(0, programs={"7": program()})), root=tmp_path)()
    assert found["missing"] == missing


@pytest.mark.parametrize(
    ("took_s", "waited_s", "ran_s", "shares"),
    [(0.5, 1.2, 0.3, (0.2, 0.8)), (0.0, 1.51, 0.1, (0.1, 0.9)), (1.0, 0.5, 2.5, (1.0, 0.0))],
)
def test_no_thread_has_more_than_the_time_between_its_two_readings(
    took_s: float, waited_s: float, ran_s: float, shares: tuple[float, float]
) -> None:
    """A look reads threads behind all counters, and a wait counts when it ends."""

    def at(second: int, threads: list[Any], took_s: float) -> Any:
        return look(
            second,
            sockets=[sock(41, 0, 0)],
            ports=[port((0, 0))],
            programs={"7": program(threads=threads)},
            took_ns=round(took_s * 1e9),
        )

    watch = Watch()
    watch.look(at(0, [thread("W#01", 0.0, 0.0)], 0.0))
    found = watch.look(at(1, [thread("W#01", ran_s, waited_s)], took_s))
    assert found is not None
    (share,) = thread_shares(found.balances[0])
    assert (share.ran, share.waited) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("took_s", "words"), [(0.0, "1.46 s within 1.00 s, summed"), (1.0, "73 % of the time")]
)
def test_a_quota_counts_on_each_cpu_and_over_the_time_between_its_readings(
    took_s: float, words: str
) -> None:
    then, now = (
        {"usage": {"start_ticks": 5, "throttled_ns": {"/sys/fs/cgroup/a/cpu.stat": at}}}
        for at in (0, 1_460_000_000)
    )
    loss = ring_loss(then, now, took_ns=round(took_s * 1e9))
    assert cause_of(loss.why) == DropCause.QUOTA and words in loss.why


@pytest.mark.parametrize(
    ("name", "shape", "do"),
    [
        ("tcpdump", ring(64, 1000), "tcpdump -B 4096"),
        ("dumpcap", ring(64, 1000), "dumpcap -B 4"),
        ("snort", ring(64, 1000), "a larger capture ring"),
        (
            "Suricata-Main",
            ring(64, 100),
            "interface eth1: ring-size: 10000; ",
        ),
        ("Suricata-Main", ring(5000, 100), "af-packet.N.ring-size=200000"),
    ],
)
def test_the_larger_ring_of_each_program(name: str, shape: dict[str, Any], do: str) -> None:
    assert do in ring_loss({"name": name}, {"name": name}, ring=shape).do


@pytest.mark.parametrize(
    ("name", "lost", "do"),
    [
        ("tcpdump", 11_023, "tcpdump -B 32768"),
        ("dumpcap", 233, "dumpcap -B 4 "),
        ("dumpcap", 90_000, "dumpcap -B 256 "),
        ("Suricata-Main", 40_500, "ring-size: 42000;"),
        ("Suricata-Main", 9_000_000, "ring-size: 400000;"),
    ],
)
def test_a_larger_ring_would_have_held_what_was_lost(name: str, lost: int, do: str) -> None:
    """Seen: tcpdump lost 11,023 of 40,000 with -B 256, and was to take -B 512."""
    one = {"name": name}
    assert do in ring_loss(one, one, ring=ring(64, 1000), dropped=lost).do


@pytest.mark.parametrize(
    "stats",
    [{"rx_missed_errors": 9}, {"rx_crc_errors": 8}, {"rx_fifo_errors": 7}, {"rx_dropped": 9}],
)
@pytest.mark.parametrize(
    ("own", "enter"), [(NS, ""), (NS - 1, "nsenter -t 7 -n "), (None, "nsenter")]
)
def test_a_command_on_a_port_enters_its_namespace(
    stats: dict[str, int], own: int | None, enter: str
) -> None:
    sockets, programs = [sock(41, 0, 0)], {"7": program("snort")}
    looks = [
        look(n, sockets=sockets, programs=programs, namespace=own, ports=[port((0, 0), **counted)])
        for n, counted in enumerate((dict.fromkeys(stats, 0), stats))
    ]
    watch = Watch()
    watch.look(looks[0])
    found = watch.look(looks[1])
    assert found is not None
    (row,) = (row for row in found.answer.places if row.where == "eth1")
    assert row.do.startswith(enter) and ("nsenter" in row.do) is bool(enter)


def test_a_socket_without_a_ring_loses_in_its_buffer() -> None:
    assert ring_loss({"name": "x"}, {"name": "x"}, ring=None).place == "socket buffer"


@pytest.mark.parametrize(
    ("stats", "driver", "place", "packets"),
    [
        ({"rx_missed_errors": 9}, {}, "receiving NIC", 9),
        ({"rx_missed_errors": 9}, {"rx_queue_0_drops": 4}, "receiving NIC", 13),
        ({"rx_crc_errors": 3, "rx_errors": 3}, {}, "bad frames", 3),
        ({"rx_fifo_errors": 5, "rx_errors": 5}, {}, "NIC FIFO", 5),
    ],
)
def test_the_nics_own_losses(
    stats: dict[str, int], driver: dict[str, int], place: str, packets: int
) -> None:
    then, now = port((0, 0)), port((50, 50), **stats)
    then["ethtool"], now["ethtool"] = dict.fromkeys(driver, 0), driver
    one = {"sockets": [sock(41, 0, 0)], "programs": {"7": program("snort")}}
    found = interval({**one, "ports": [then]}, {**one, "ports": [now]})
    assert [(row.place, row.total) for row in found.answer.places] == [(place, packets)]


def dropped_by_port(
    came: int, dropped: int, *, kind: str | None = None, backlog: int = 0, **more: Any
) -> DropsInterval:
    """Counters of a port whose capture has all that came, with rx_dropped beside it."""
    one = {"programs": {"7": program("snort")}}
    arrived = more.pop("arrived", came)
    ports = [port((0, 0), kind=kind), port((came, came), kind=kind, rx_dropped=dropped)]
    for at in ports:
        at["ethtool"] = more.get("ethtool", {})
    return interval(
        {**one, "sockets": [sock(41, 0, 0)], "ports": ports[:1]},
        {
            **one,
            "sockets": [sock(41, arrived, 0)],
            "ports": ports[1:],
            "softnet": [{"cpu": 0, "dropped": backlog}],
        },
    )


@pytest.mark.parametrize(("came", "dropped"), [(500, 340), (12, 12)])
def test_what_no_protocol_wanted_is_no_loss_of_a_nic_whose_books_close(
    came: int, dropped: int
) -> None:
    found = dropped_by_port(came, dropped)
    assert found.answer.places == [] and found.answer.not_for_us_packets == dropped
    assert not any("rx_dropped" in one.what for one in found.answer.not_visible)


@pytest.mark.parametrize(
    ("came", "dropped", "backlog", "lost"), [(7, 3000, 0, 2993), (90, 500, 0, 410), (7, 60, 50, 3)]
)
def test_frames_that_a_port_refuses_are_lost(
    came: int, dropped: int, backlog: int, lost: int
) -> None:
    """A veth counts them in rx_dropped in place of rx_packets; the backlog has a row of its own."""
    found = dropped_by_port(came, dropped, kind="veth", backlog=backlog)
    row = next(row for row in found.answer.places if row.place == "receiving port")
    assert (row.total, row.where, found.answer.not_for_us_packets) == (lost, "eth1", 0)
    assert "MTU of 1500" in row.why and "ip link set eth1 mtu N" in row.do
    assert not any("no loss" in line for line in ending(found, found.answer.real_ns))


@pytest.mark.parametrize(
    ("mtu", "cause", "do"),
    [
        (9000, DropCause.MTU, "ip link set eth1 mtu 9000"),
        (4000, DropCause.MTU, "ip link set eth1 mtu 4000"),
        (1500, DropCause.PLACE, "ip -d link show eth1"),
        (None, DropCause.PLACE, "ip -d link show eth1"),
    ],
)
def test_the_peer_of_a_port_that_refuses_frames_is_named_by_its_mtu(
    mtu: int | None, cause: DropCause, do: str
) -> None:
    asked = []

    def peer_of(*port: object) -> SensorPeer | None:
        asked.append(port)
        return None if mtu is None else SensorPeer(name="s0", pid=None, mtu=mtu, tx_dropped=0)

    def at(n: int, lost: int) -> Any:
        ports = [port((n, n), kind="veth", rx_dropped=lost)]
        return look(n, sockets=[sock(41, n, 0)], ports=ports, programs={"7": program("snort")})

    watch = Watch(peer_of=peer_of)
    watch.look(at(0, 0))
    before = len(asked)
    if mtu is not None:
        watch.look(at(1, 0))
        assert len(asked) == before == 1, "a port whose rx_dropped stands still is not asked again"
    found = watch.look(at(2, 300))
    assert found is not None and {*asked} == {(7, 2, "eth1")}
    (row,) = found.answer.places
    assert cause_of(row.why) == cause and do in row.do


def test_the_peer_parts_what_a_port_refused_from_what_nobody_wanted() -> None:
    """Far more came in than was refused: rx_packets alone would not show it."""
    sent = iter([50, 250, 260, 260])

    def peer_of(*port: object) -> SensorPeer:
        return SensorPeer(name="s0", pid=None, mtu=1500, tx_dropped=next(sent))

    def at(n: int, dropped: int, backlog: int) -> Any:
        ports = [port((9000 * n, 9000 * n), kind="veth", rx_dropped=dropped)]
        softnet = [{"cpu": 0, "dropped": backlog}]
        sockets = [sock(41, 9000 * n, 0)]
        programs = {"7": program("snort")}
        return look(n, sockets=sockets, ports=ports, programs=programs, softnet=softnet)

    watch = Watch(peer_of=peer_of)
    watch.look(at(0, 80, 0))
    found = watch.look(at(1, 580, 0))
    assert found is not None and found.answer.not_for_us_packets == 300
    (row,) = found.answer.places
    assert (row.place, row.total) == ("receiving port", 200)
    found = watch.look(at(2, 600, 10))
    assert found is not None and found.answer.not_for_us_packets == 0, (
        "a backlog's are not told from the others"
    )
    totals = {one.place: one.total for one in found.answer.places}
    assert totals == {"receiving port": 200, "softnet backlog": 10}


@pytest.mark.parametrize(("sent", "unwanted"), [(400, 300), (51, 7)])
def test_what_was_sent_to_a_link_that_was_down_is_told_from_what_nobody_wanted(
    sent: int, unwanted: int
) -> None:
    """A veth's tx_dropped has both what its peer refused and what had no carrier. Seen: packets
    that every tap had were called refused once a link had flapped."""
    refused = iter([50, 50 + sent, 50 + sent])

    def peer_of(*port: object) -> SensorPeer:
        return SensorPeer(name="s0", pid=None, mtu=1500, tx_dropped=next(refused))

    def at(n: int, dropped: int, carrier_changes: int) -> Any:
        here = port((9000 * n, 9000 * n), kind="veth", rx_dropped=dropped)
        here["link"]["carrier_changes"] = carrier_changes
        sockets, programs = [sock(41, 9000 * n, 0)], {"7": program("snort")}
        return look(n, sockets=sockets, ports=[here], programs=programs)

    watch = Watch(peer_of=peer_of)
    watch.look(at(0, 80, 2))
    found = watch.look(at(1, 80, 4))
    assert found is not None
    (row,) = found.answer.places
    assert (row.total, "its link was down" in row.why) == (sent, True)
    assert [(one.why, one.until_real_ns) for one in found.answer.blind] == [
        ("no_carrier", found.answer.real_ns)
    ]
    found = watch.look(at(2, 80 + unwanted, 4))
    assert found is not None and found.answer.not_for_us_packets == unwanted
    assert [row.total for row in found.answer.places] == [sent]


@pytest.mark.parametrize(
    ("came", "dropped", "more", "needs"),
    [
        (5000, 3000, {"kind": "veth"}, "tx_dropped of its peer"),
        (40, 40, {"kind": "macvlan"}, "a counter"),
        (5000, 300, {"arrived": 4000}, "a counter"),
        (5000, 300, {"ethtool": {"ena_admin_q_aborted_cmd": 0}}, "a counter"),
    ],
)
def test_what_may_be_lost_is_never_called_no_loss(
    came: int, dropped: int, more: dict[str, Any], needs: str
) -> None:
    found = dropped_by_port(came, dropped, **more)
    (hidden,) = (one for one in found.answer.not_visible if "rx_dropped" in one.what)
    assert f"how many of {dropped:,} packets" in hidden.what and needs in hidden.needs
    assert found.answer.places == [] and found.answer.not_for_us_packets == 0
    assert not any("no loss" in line for line in ending(found, found.answer.real_ns))


def test_a_full_backlog_by_its_cpu() -> None:
    found = interval(
        {"softnet": [{"cpu": 0, "dropped": 5}, {"cpu": 3, "dropped": 7}]},
        {"softnet": [{"cpu": 0, "dropped": 5}, {"cpu": 3, "dropped": 27}]},
    )
    (row,) = found.answer.places
    assert (row.place, row.where, row.total) == ("softnet backlog", "CPU 3", 20)
    assert "netdev_max_backlog" in row.do


@pytest.mark.parametrize(
    ("counter", "memcap", "limit", "do"),
    [
        ("flow.memcap", "flow", "128mb", "memcap-set flow 256mb"),
        ("tcp.ssn_memcap_drop", "stream", "64mb", "memcap-set stream 128mb"),
        ("flow.emerg_mode_entered", "flow", "1gb", "memcap-set flow 2gb"),
    ],
)
def test_analysis_that_is_lost_without_a_packet(
    counter: str, memcap: str, limit: str, do: str
) -> None:
    def at(value: int) -> dict[str, Any]:
        told = said(0, 0, counters={counter: value}, memcaps={memcap: limit})
        return {
            "sockets": [sock(41, 0, 0)],
            "ports": [port((0, 0))],
            "programs": {"7": program(suricata=told)},
        }

    (row,) = interval(at(1), at(6)).answer.places
    assert (row.place, row.counter, row.total) == ("analysis", counter, 5)
    assert do in row.do and "/run/s.socket" in row.do


def test_the_worst_now_is_on_top_and_totals_stay() -> None:
    watch = Watch()
    for n, (first, second) in enumerate([(0, 0), (50, 0), (50, 20), (50, 20), (60, 20)]):
        found = watch.look(
            look(n, softnet=[{"cpu": 0, "dropped": first}, {"cpu": 1, "dropped": second}])
        )
        if found:
            seen = [(row.where, row.total, row.bursts) for row in found.answer.places]
    assert seen == [("CPU 0", 60, 2), ("CPU 1", 20, 1)]
    assert found is not None
    assert found.answer.places[0].worst_pps == 50.0 and found.answer.places[1].rate_pps == 0.0
    assert len([line for line in lines(found) if "▼" in line]) == 1


@pytest.mark.parametrize(
    ("states", "why", "do"),
    [
        ([(12842, "stopped"), (3, "")], "it is stopped", "kill -CONT 7"),
        ([(30, 0.3), (30, 0.4), (40, "stopped")], "W#01 waited for a CPU", "who has CPU"),
    ],
)
def test_the_end_and_the_page_have_the_cause_of_most_packets(
    states: list[tuple[int, str | float]], why: str, do: str, tmp_path: Path
) -> None:
    """Causes are added up over intervals, whatever numbers they hold."""
    watch, lost, waited, kept = Watch(), 0, 0.0, []
    for n, (more, how) in enumerate([(0, ""), *states]):
        lost += more
        waited += how if isinstance(how, float) else 0.0
        threads = [thread("W#01", 0.0, waited)]
        there = program(threads=threads, stopped=how == "stopped")
        sockets, ports = [sock(41, 0, lost)], [port((lost, lost))]
        found = watch.look(look(n, sockets=sockets, ports=ports, programs={"7": there}))
        kept += [found.answer] if found else []
    assert found is not None
    said = "\n".join(ending(found, found.answer.real_ns))
    assert said.splitlines()[1].startswith(f"  most die in the socket ring: {why}")
    assert do in said.partition("  do: ")[2]
    answer = report_json(read_story([recorded(tmp_path / "x", iter(kept))]))["answer"]["sentences"][
        0
    ]
    assert why in answer["text"] and do in answer["to_do"]
    (place,) = kept[-1].places
    assert place.most_why.startswith(why)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_that_is_ended_says_its_totals(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = interval(
        {"sockets": [sock(41, 0, 0)], "ports": [port((0, 0))], "programs": {"7": program()}},
        {"sockets": [sock(41, 30, 70)], "ports": [port((100, 104))], "programs": {"7": program()}},
    )

    def watched(*_: object, **__: object) -> Iterator[DropsInterval]:
        yield found
        os.kill(os.getpid(), number)

    monkeypatch.setattr(watching, "intervals", watched)
    monkeypatch.setattr(find_node, "find_node_binary", lambda: Path("/bin/true"))
    monkeypatch.setattr(control_groups, "SocketLooks", lambda *_, **__: Mock())
    assert main.exit_code(["drops"]) == 128 + number
    said = capsys.readouterr()
    assert "die in the socket ring" in said.out and number.name in said.err


def test_a_nic_that_a_program_drives_itself_has_no_port_to_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "its own counters: suricatasc -c 'iface-stat 0000:3b:00.0'"
    driven = {"what": "packets of 0000:3b:00.0, which Suricata (pid 7) drives itself", "needs": own}
    found = interval({}, {"driven": [driven]})
    hidden = {one.what: one for one in found.answer.not_visible}[driven["what"]]
    assert hidden.needs == own and hidden.why.startswith("no port of the kernel has that device")
    monkeypatch.setattr(watching, "intervals", lambda *_, **__: iter([found]))
    monkeypatch.setattr(find_node, "find_node_binary", lambda: Path("/bin/true"))
    monkeypatch.setattr(control_groups, "SocketLooks", lambda *_, **__: Mock())
    assert main.exit_code(["drops", "--once"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"no program captures packets on this host; {driven['what']}: {own}" in said


def test_words_for_a_terminal_hold_everything() -> None:
    from rich.console import Console

    found = interval(
        {"sockets": [sock(41, 0, 0)], "ports": [port((0, 0))], "programs": {"7": program()}},
        {"sockets": [sock(41, 30, 70)], "ports": [port((100, 104))], "programs": {"7": program()}},
    )
    out = Console(width=80, record=True, file=None, quiet=False, force_terminal=False)
    with out.capture() as text:
        out.print(view(found, found.answer.real_ns, {}))
    shown = text.get()
    assert "socket ring, Suricata-Main 7 on eth1" in " ".join(shown.split())
    assert "closed (0…4)" in shown and max(map(len, shown.splitlines())) <= 80


def test_sparks_and_doubled_limits() -> None:
    assert sparkline([0, 1, 8]) == " ▂█" and sparkline([0.0]) == ""
    assert [doubled(one) for one in ("128mb", "", "x")] == ["256mb", "…", "…"]


@pytest.mark.parametrize("text", ["", "0", "1x", "-1s", "2 h s", "99h", "1e3"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="--interval"):
        time_s("--interval", text, least=0.1, most=3600)
    assert time_s("--for", "1.5m", least=1) == 90.0


@pytest.mark.parametrize(
    ("names", "inodes", "taken"),
    [
        (("Suricata-Main", "python3"), (41, 42), 40),
        (("Suricata-Main", "Suricata-Main"), (41, 42), 40),
        (("zeek", "zeek"), (41, 42), None),  # its workers
        (("snort", "sh"), (41, 41), None),  # a child that has inherited the socket
    ],
)
def test_a_stranger_in_a_fanout_group_is_named_with_what_it_takes(
    names: tuple[str, str], inodes: tuple[int, int], taken: int | None
) -> None:
    def at(n: int) -> Any:
        sockets = [
            sock(inode, 30 * n, 10 * n, pid=pid) for inode, pid in zip(inodes, (7, 9), strict=True)
        ]
        programs = {
            str(pid): program(name, usage={"start_ticks": pid, "throttled_ns": {}})
            for name, pid in zip(names, (7, 9), strict=True)
        }
        return look(n, sockets=sockets, ports=[port((80 * n, 80 * n))], programs=programs)

    found = [
        one
        for one in losses(at(1), at(2), [], dropped=None, peers={})
        if one.place == "fanout group"
    ]
    if taken is None:
        assert found == []
    else:
        (one,) = found
        assert one.packets == taken and one.where == f"{names[0]} 7 on eth1"
        assert f"{names[1]} 9 " in one.why and "99" in one.why


SLOTS = ring(blocks=8) | {"version": 2, "frame_bytes": 2048, "retire_ms": None}


def on_two_ports(**second: Any) -> dict[str, Any]:
    """eth1 and eth2, each with a socket of its own."""
    other = port((0, 0)) | {"index": 3, "name": "eth2"}
    other["link"] = other["link"] | second.pop("link", {})
    sockets = [sock(41, 0, 0), sock(42, 0, 0, ifindex=3) | second]
    return {"sockets": sockets, "ports": [port((0, 0)), other], "programs": {"7": program("snort")}}


def without_the_second() -> dict[str, Any]:
    both = on_two_ports()
    return both | {"sockets": both["sockets"][:1], "ports": both["ports"][:1]}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (without_the_second(), "no_program"),
        (on_two_ports(link={"up": False, "carrier": False}), "down"),
        (on_two_ports(link={"carrier": False}), "no_carrier"),
        (on_two_ports(counted=None), "ring_not_visible"),
        (on_two_ports(ring=SLOTS | {"frame_bytes": 1024}), "frames_cut"),
        (on_two_ports(ring=SLOTS, link={"mtu": 3000}), "frames_cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_said_to_be_lost_nowhere_but_where_somebody_looks(
    after: dict[str, Any], why: str
) -> None:
    found = interval(on_two_ports(), after)
    (blind,) = found.answer.blind
    assert (blind.port, blind.why) == ("eth2", why) and found.cannot_tell
    said = "\n".join(ending(found, 1))
    assert "nothing lost on eth1 at any place" in said and "blind at eth2 since " in said
    clear = interval(on_two_ports(), on_two_ports(ring=SLOTS))
    assert not clear.cannot_tell and "lost on eth1, eth2 at any" in "\n".join(ending(clear, 1))


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (without_the_second(), "no_program"),
        (on_two_ports(link={"up": False, "carrier": False}), "down"),
        (on_two_ports(link={"carrier": False}), "no_carrier"),
    ],
)
def test_a_port_that_was_blind_for_a_time_has_no_all_clear(
    meanwhile: dict[str, Any], why: str
) -> None:
    """Seen: 5,038 of 20,000 packets met a port that was down for a second, and no word of it."""
    watch = Watch()
    seen = [watch.look(look(n, **one)) for n, one in enumerate([on_two_ports(), meanwhile])]
    found = watch.look(look(2, **on_two_ports()))
    assert seen[1] is not None and found is not None and found.cannot_tell
    (blind,) = found.answer.blind
    assert (blind.port, blind.why) == ("eth2", why)
    assert (blind.since_real_ns, blind.until_real_ns) == (
        seen[1].answer.real_ns,
        found.answer.real_ns,
    )
    said = "\n".join(ending(found, 1))
    assert "nothing lost on eth1 at any place" in said and "was blind at eth2 from " in said


def test_a_suricata_that_is_stopped_and_unheard_gives_no_all_clear() -> None:
    """Seen: 20,006 packets lost while it was stopped were said to be lost before the watch."""
    stopped = program("Suricata-Main", suricata=said(0, 0, "timed out", ports={}), stopped=True)
    before = {"sockets": [sock(41, 0, 0)], "ports": [port((0, 0))], "programs": {"7": stopped}}
    heard = program("Suricata-Main", suricata=said(900, 800))
    watch = Watch()
    for n in (0, 1):
        watch.look(look(n, **before))
    after = [watch.look(look(n, **before | {"programs": {"7": heard}})) for n in (2, 3)]
    assert after[0] is not None and after[1] is not None and after[1].cannot_tell
    assert [(one.why, one.until_real_ns) for one in after[1].answer.blind] == [
        ("stopped", after[0].answer.real_ns)
    ]


def test_a_chosen_port_is_blind_while_nobody_captures_there() -> None:
    watch = Watch(chosen=["eth1", "eth9"])
    watch.look(look(0, **without_the_second()))
    found = watch.look(look(1, **without_the_second()))
    assert found is not None and found.cannot_tell
    assert [(one.port, one.why) for one in found.answer.blind] == [("eth9", "no_program")]
    every = {"sockets": [sock(41, 0, 0, ifindex=0)], "programs": {"7": program("tcpdump")}}
    watch = Watch(chosen=["eth9"])
    watch.look(look(0, **every))
    found = watch.look(look(1, **every))
    assert found is not None and found.answer.blind == []


@pytest.mark.parametrize("dropped", [914, 7])
def test_a_loss_of_a_program_that_reads_its_counters_is_at_least_that(
    tmp_path: Path, dropped: int
) -> None:
    """Also if it reads them only after the loss was seen."""

    def at(n: int, *counted: int) -> Any:
        sockets, programs = [sock(41, *counted)], {"7": program("snort")}
        return look(n, sockets=sockets, ports=[port((1000 * n, 1000 * n))], programs=programs)

    watch = Watch()
    watch.look(at(0, 0, 0))
    exact = watch.look(at(1, 1000 - dropped, dropped))
    assert exact is not None and not exact.answer.places[0].at_least
    found = watch.look(at(2, 5, 0))
    assert found is not None and found.answer.places[0].at_least
    words = f"at least {dropped} packets"
    assert f"{words} lost from" in "\n".join(ending(found, 1))
    page = report_json(read_story([recorded(tmp_path / "watch", iter([found.answer]))]))
    assert words in page["answer"]["sentences"][0]["text"]


@pytest.mark.parametrize("left", [0, 3])
def test_a_program_that_reads_its_own_counters_gives_no_all_clear(left: int) -> None:
    """Its counters fell: what it read, and so set to zero, may have had losses among it."""
    before, after = (
        {"tp_packets": packets, "tp_drops": 0, "tp_freezes": 0} for packets in (900, left)
    )
    found = interval(on_two_ports(counted=before), on_two_ports(counted=after))
    (blind,) = found.answer.blind
    assert (blind.port, blind.why) == ("eth2", "counters_read") and found.cannot_tell
    assert "nothing lost on eth1 at" in "\n".join(ending(found, 1))


@pytest.mark.parametrize(("stopped", "lost"), [(7, (40, 0)), (9, (5, 70))])
def test_each_process_of_a_shared_group_has_its_own_line_and_cause(
    stopped: int, lost: tuple[int, int]
) -> None:
    """Zeek's workers: the books are the group's, and who is slow is named by its own process."""

    def at(second: int) -> dict[str, Any]:
        drops = [second * each for each in lost]
        programs = {str(pid): program("zeek", stopped=pid == stopped) for pid in (7, 9)}
        came = 200 * second
        return {
            "sockets": [
                sock(41, came // 2 - drops[0], drops[0]),
                sock(42, came // 2 - drops[1], drops[1], pid=9),
            ],
            "ports": [port((came, came))],
            "programs": programs,
        }

    found = interval(at(0), at(1))
    (books,) = found.balances
    assert books.closed and books.dropped == sum(lost) and books.reading.name == "zeek 7 and 1 more"
    rows = {
        row.where: (row.total, cause_of(row.why) == DropCause.STOPPED)
        for row in found.answer.places
    }
    assert rows == {
        f"zeek {pid} on eth1": (each, pid == stopped)
        for pid, each in zip((7, 9), lost, strict=True)
        if each
    }
    said = "\n".join(lines(found))
    for pid, each in zip((7, 9), lost, strict=True):
        assert f"  zeek {pid}: 100 arrived, {each} dropped" in said


def test_the_end_of_a_generator_leaves_nobody_blind() -> None:
    """It has a packet socket on the port by which it sends."""
    before, after = on_two_ports(), without_the_second()
    before["ports"][1] |= {"tx_packets": [900, 900]}
    assert interval(before, after).answer.blind == []


def test_a_watch_without_any_program_says_no_all_clear() -> None:
    found = interval({}, {})
    said = "\n".join(ending(found, 1))
    assert "nothing lost" not in said and "no program captures packets" in said
    assert found.cannot_tell


@pytest.mark.parametrize(
    ("levels", "accepted", "dropped", "cause", "why"),
    [
        ((1.0, 0.9, 1.0), 3470, 5530, DropCause.TOO_SLOW, "3,470 of 9,000"),
        ((1.0, 1.0, 1.0), 0, 6000, DropCause.NOT_READING, "1.0 s"),
        ((1.0, 0.2, 1.0), 3470, 5530, DropCause.BURST, ""),
    ],
)
def test_an_overload_that_lasts_is_told_from_a_burst_by_the_level_over_time(
    levels: tuple[float, ...], accepted: int, dropped: int, cause: DropCause, why: str
) -> None:
    first, *between, last = (round(one * 1000) for one in levels)
    shape, watch = ring(1000, 100), Watch()

    def at(second: int, full: int, accepted: int, dropped: int) -> Any:
        waits = [fill(full, full, 1000)] * 2
        one = sock(41, accepted, dropped, ring=shape, waiting=waits)
        came = accepted + dropped
        return look(
            second,
            sockets=[one],
            ports=[port((came, came))],
            programs={"7": program("snort", threads=[thread("snort", 0.3 * second, 0.0)])},
        )

    watch.look(at(0, first, 0, 0))
    for number, full in enumerate(between, 1):
        watch.fills({"mono_ns": number * 10**8, "rings": {"41": {"full": full, "of": 1000}}})
    found = watch.look(at(1, last, accepted, dropped))
    assert found is not None
    (row,) = found.answer.places
    assert cause_of(row.why) == cause and why in row.why and row.total == dropped
    assert ("only delays" in row.do) is (cause is DropCause.TOO_SLOW)


@pytest.mark.parametrize(("intervals", "cause"), [(2, DropCause.BURST), (3, DropCause.TOO_SLOW)])
def test_a_socket_without_a_ring_is_too_slow_after_losses_in_a_row(
    intervals: int, cause: DropCause
) -> None:
    """Its content is not visible."""
    watch, found = Watch(), None
    for n in range(intervals + 1):
        one = sock(41, 400 * n, 600 * n, ring=None, waiting=None)
        came = (1000 * n, 1000 * n)
        programs = {"7": program("reader", threads=[thread("reader", 0.1 * n, 0.0)])}
        found = watch.look(look(n, sockets=[one], ports=[port(came)], programs=programs))
    assert found is not None and cause_of(found.answer.places[0].why) == cause


def of_snort(*at: tuple[int, int], waits: int = 0, **more: Any) -> list[Any]:
    """Looks at a snort whose socket has taken and dropped so many."""
    return [
        look(
            n,
            sockets=[sock(41, *counts, fanout=None, waiting=[fill(waits, waits, 13)] * 2)],
            ports=[port((2000 * n, 2000 * n))],
            programs={"7": program("snort")},
            **more,
        )
        for n, counts in enumerate(at)
    ]


def test_a_program_that_reads_its_own_counters_never_lost_0() -> None:
    """Snort's perf_monitor does so each second, here just before each look."""
    watch = Watch()
    found = [watch.look(one) for one in of_snort((900, 0), (40, 0), (30, 0), (20, 0))][-1]
    assert found is not None
    (one,) = found.answer.captures
    assert one.at_least and one.dropped_packets is None
    assert "not visible dropped" in "\n".join(lines(found))
    watch = Watch()
    found = [watch.look(one) for one in of_snort((900, 0), (40, 7), (30, 2), (20, 0))][-1]
    assert found is not None and found.answer.captures[0].dropped_packets == 9
    assert "at least 9 dropped" in "\n".join(lines(found))


def test_a_program_that_ended_between_two_looks_had_at_least_what_was_seen() -> None:
    watch = Watch()
    for one in of_snort((0, 0), (1500, 500)):
        watch.look(one)
    found = watch.look(look(2))
    assert found is not None
    (one,) = found.answer.ended
    assert (one.at_least, one.closed, one.dropped_packets) == (True, None, 500)
    assert "at least 500 dropped" in "\n".join(ending(found, 1))


@pytest.mark.parametrize(
    ("second", "copies"), [(None, 2), ({"id": 9, "kind": 0, "defrag": False}, 1)]
)
def test_a_program_that_has_each_packet_twice_is_said_to(second: Any, copies: int) -> None:
    """`snort -z 2` without fanout_type is one."""

    def at(n: int) -> dict[str, Any]:
        group = second and {"fanout": second}
        both = [sock(inode, 3000 * n, 0, **(group or {"fanout": None})) for inode in (41, 42)]
        came = 3000 * n * (1 if copies == 2 else 2)
        return {"sockets": both, "ports": [port((came, came))], "programs": {"7": program("snort")}}

    found = interval(at(0), at(1))
    said = [one.what for one in found.answer.not_visible if "each one 2 times" in one.what]
    assert len(said) == copies - 1 and found.balances[0].closed
