"""Looks at real ports and sockets in a foreign namespace: what audit and drops see, and that they
change nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.audit.audit_answer import findings
from nodrop.audit.reading import here, judged, look, peer_of
from nodrop.audit.real_flows import watched
from nodrop.audit.world import JudgedSnapshot
from nodrop.protocol import FlowsMet
from nodrop.sensor.snapshot import HASH, QUEUE
from nodrop.testbed.hosts.control_groups import SocketLooks
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from tests.netns.made_sensor import made_sensor

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root and unshare")


@contextmanager
def captured_port() -> Iterator[tuple[int, Callable[[str], str]]]:
    script = Path(__file__).with_name("captured_port.py")
    command = ["unshare", "--net", "--mount", sys.executable, str(script)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as there:
        assert there.stdin and there.stdout
        to, answers = there.stdin, there.stdout

        def asked(line: str) -> str:
            to.write(f"{line}\n")
            to.flush()
            return answers.readline()

        asked("")
        yield there.pid, asked
        to.close()


def read_world() -> JudgedSnapshot:
    with here() as host:
        return judged(look(host))


def test_an_audit_sees_a_port_in_a_foreign_namespace_and_changes_nothing() -> None:
    with captured_port() as (pid, asked):
        before = asked("")
        world = read_world()
        after = asked("")
    assert before == after and len(before) == 65

    port = next(p for p in world.ports for s in world.listening(p) if s.pid == pid)
    assert (port.name, port.mtu, port.driver) == ("drx", 9000, "veth")
    assert port.features["rx-gro"] == {"on": True, "fixed": False}
    rings = [one for one in world.listening(port) if one.pid == pid]
    assert [(s.version, s.blocks, s.retire_ms, s.fanout_id, s.fanout_type, s.filtered)
            for s in rings] == 2 * [(3, 13, 10, 7, HASH, False)]  # fmt: skip
    said = {one.id: one for one in findings(world) if "drx" in one.where}
    assert said["ring-tolerance"].says.startswith("its ring holds 130 ms")
    enter = f"nsenter -t {pid} -n "
    assert said["merged-frames"].change == f"{enter}ethtool -K drx gro off"
    assert said["second-listener"].says.startswith("sniffer (pid ")


@pytest.mark.parametrize("beside", [False, True])
def test_the_peer_of_a_veth_is_in_the_namespace_that_the_kernel_names(beside: bool) -> None:
    """Both ends have one index, each in its namespace, as those of `ip link add … netns` do."""
    with made_sensor() as one, made_sensor() as two, here() as host:
        other = one if beside else two
        one.run("ip", "link", "add", "s1", "mtu", 1400, "type", "veth", "peer", "name", "s0",
                "mtu", 8000, "netns", other.pid)  # fmt: skip
        indexes = [
            int(made.run("ip", "-o", "link", "show", name).partition(":")[0])
            for made, name in ((one, "s1"), (other, "s0"))
        ]
        assert (len(set(indexes)) == 1) is not beside
        reader = int(one.ask("open reader s1 plain"))
        end = peer_of(host, reader, indexes[0], "s1")
        assert end is not None and end["mtu"] == 8000
        assert peer_of(host, reader, indexes[0], "s0") is None
        if not beside:
            reader = int(two.ask("open reader s0 plain"))
            end = peer_of(host, reader, indexes[1], "s0")
            assert end is not None and end["mtu"] == 1400


SENDER = """
import select, socket, sys
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
one.bind(("f1", 0))
ends = [(bytes([10, 0, 0, 1]), 1000), (bytes([10, 0, 0, 2]), 80)]
head = bytes.fromhex("ffffffffffff0200000000010800450000280000400040060000")
frames = []
for n in range(40):
    client, server = (ends[0][0], (1000 + n).to_bytes(2, "big")), (ends[1][0], b"\\0\\x50")
    for source, target in [(client, server), (server, client)][: 1 + (n < 30)]:
        ports = source[1] + target[1]
        frames.append((head + source[0] + target[0] + ports).ljust(60, b"\\0"))
while not select.select([sys.stdin], [], [], 0.1)[0]:
    for frame in frames:
        one.send(frame)
"""
"""40 flows, of 30 of which both directions come; again and again until stdin ends."""


def test_the_node_sees_which_flows_meet_and_which_come_one_way() -> None:
    with made_sensor() as made, here() as host:
        made.link("f0", "f1")
        made.ask("open reader f0 plain")
        world = judged(look(host))
        world = replace(world, ports=tuple(one for one in world.ports if one.name == "f0"))
        argv = ["nsenter", "-t", str(made.pid), "-n", sys.executable, "-c", SENDER]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as sender:
            found = watched(host, world, 1.0)
            assert sender.stdin
            sender.stdin.close()
    ((dealt,),) = found.dealt.values()
    assert (dealt.kind, dealt.members) == (QUEUE, 4)
    assert dealt.met == {"tcp4": FlowsMet(seen=40, flows=30, together=30)}


@pytest.mark.usefixtures("real_root")
@pytest.mark.parametrize("packets", [900, 40_000])
def test_whoever_looks_on_the_owner_of_a_socket_counts_every_packet(packets: int) -> None:
    """The onlooker comes at rest and while packets come: with few the rings have room, with many
    they overflow."""
    over = threading.Event()
    seen = []

    def look_on() -> None:
        while not over.is_set():
            seen.append((looks(), looks.levels()))
            read_world()

    with (
        captured_port() as (pid, asked),
        closing(LocalHost(name="here", node=find_node_binary(), label="looks")) as host,
        closing(SocketLooks(host)) as looks,
    ):
        looks()
        watching = threading.Thread(target=look_on)
        watching.start()
        try:
            asked(str(packets))
        finally:
            over.set()
            watching.join()
        before = looks(), looks.levels()
        own = json.loads(asked("counted"))
        after = json.loads(asked("counted"))
    assert sum(arrived for arrived, _ in own) == packets
    assert after == [[0, 0], [0, 0]] and len(seen) > 0
    rings = [one for one in before[0]["sockets"] if one["pid"] == pid and one["ring"]]
    counted = sorted([one["counted"]["tp_packets"] + one["counted"]["tp_drops"],
                      one["counted"]["tp_drops"]] for one in rings if one["counted"])  # fmt: skip
    assert counted == sorted(own)
    assert packets == 900 or sum(drops for _, drops in own) > 0
    for one in rings:
        assert one["waiting"] is not None
        full, level = one["waiting"][1], before[1]["rings"][str(one["inode"])]
        assert (level["full"], level["of"]) == (full["full"], full["of"])


@pytest.mark.usefixtures("real_root")
def test_a_spell_looks_at_every_ring_and_resets_no_counter() -> None:
    with (
        captured_port() as (pid, asked),
        closing(LocalHost(name="here", node=find_node_binary(), label="spells")) as host,
        closing(SocketLooks(host)) as looks,
    ):
        looks()
        assert looks.spells()["spells"] == []
        asked("900")
        until = time.monotonic() + 60.0
        while not (found := looks.spells()["spells"]):
            assert time.monotonic() < until
            looks()
        own = json.loads(asked("counted"))
    assert sum(arrived for arrived, _ in own) == 900
    spell = found[0]
    mine = [n for n, one in enumerate(spell["rings"]) if one["pid"] == pid]
    last = {look[1]: look for look in spell["looks"] if look[1] in mine}
    assert len(last) == 2
    assert sum(packets for _, _, packets, *_ in last.values()) == 900, "nobody reads these rings"
    assert all(dropped == 0 for *_, dropped in last.values())
    assert spell["cpu_ns"] > 0 and len(spell["looks"]) > 2 * len(spell["rings"])
