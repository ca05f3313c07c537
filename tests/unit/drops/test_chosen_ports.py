"""`nodrop drops --port`: which captures are kept, and that their rings alone end an interval."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodrop.drops.chosen_ports import at_ports
from nodrop.drops.watching import Watch
from nodrop.protocol import Captures
from tests.unit.drops.test_capture_books import look, port, program, sock

PORTS = [
    {"namespace": 1, "index": 2, "name": "eth1"},
    {"namespace": 1, "index": 3, "name": "eth2"},
    {"namespace": 9, "index": 2, "name": "eth3"},
]
SOCKETS = [
    {"inode": 20, "pid": 812, "namespace": 1, "ifindex": 2},
    {"inode": 21, "pid": 812, "namespace": 1, "ifindex": 3},
    {"inode": 30, "pid": 900, "namespace": 1, "ifindex": 3},
    {"inode": 40, "pid": 901, "namespace": 9, "ifindex": 2},
    {"inode": 50, "pid": None, "namespace": 1, "ifindex": 2},
    {"inode": 60, "pid": 902, "namespace": 1, "ifindex": 0},
    {"inode": 70, "pid": None, "namespace": 9, "ifindex": 2},
]


@pytest.mark.parametrize(
    ("names", "inodes"),
    [
        (("eth1",), {20, 50, 60}),
        (("eth3",), {40, 60, 70}),
        (("eth1", "eth3"), {20, 40, 50, 60, 70}),
        (("eth9",), {60}),
    ],
    ids=["one port of two of a program", "another namespace", "two", "every port alone"],
)
def test_captures_of_a_port_and_of_every_port_are_kept(
    names: tuple[str, ...], inodes: set[int]
) -> None:
    programs = {str(pid): {} for pid in (812, 900, 901, 902)}
    every = cast(Captures, {"ports": PORTS, "sockets": SOCKETS, "programs": programs})
    seen: Any = at_ports(every, names)
    assert {s["inode"] for s in seen["sockets"]} == inodes
    pids = {s["pid"] for s in SOCKETS if s["inode"] in inodes and s["pid"]}
    assert {int(pid) for pid in seen["programs"]} == pids
    at = {(s["namespace"], s["ifindex"]) for s in seen["sockets"]}
    assert {(p["namespace"], p["index"]) for p in seen["ports"]} == {one for one in at if one[1]}


@pytest.mark.parametrize(("chosen", "ends"), [(["eth1"], False), (["eth2"], True), ([], True)])
def test_a_ring_at_another_port_ends_no_interval(chosen: list[str], ends: bool) -> None:
    watch = Watch(chosen=chosen)
    sockets = [sock(41, 0, 0), sock(42, 0, 0, ifindex=3)]
    ports = [port((0, 0)), port((0, 0)) | {"index": 3, "name": "eth2"}]
    watch.look(look(0, sockets=sockets, ports=ports, programs={"7": program("snort")}))
    one, other = {"full": 0, "of": 13}, {"full": 13, "of": 13}
    levels: Any = {"mono_ns": 10**8, "rings": {"41": one, "42": other}}
    assert watch.fills(levels) is ends
