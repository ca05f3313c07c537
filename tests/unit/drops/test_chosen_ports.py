"""`nodrop drops --port`: which captures are kept, and that their rings alone end an interval."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodrop.drops.chosen_ports import ChosenPorts
from nodrop.protocol import Captures, RingLevels

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


def _chosen(*names: str) -> ChosenPorts:
    seen = {
        "ports": PORTS,
        "sockets": SOCKETS,
        "programs": {str(pid): {} for pid in (812, 900, 901, 902)},
    }
    rings = {str(s["inode"]): {"full": 1, "of": 2} for s in SOCKETS}
    levels = cast(RingLevels, {"mono_ns": 5, "rings": rings})
    return ChosenPorts(names, lambda: cast(Captures, seen), lambda: levels)


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
    chosen = _chosen(*names)
    seen: Any = chosen()
    assert {s["inode"] for s in seen["sockets"]} == inodes
    pids = {s["pid"] for s in SOCKETS if s["inode"] in inodes and s["pid"]}
    assert {int(pid) for pid in seen["programs"]} == pids
    at = {(s["namespace"], s["ifindex"]) for s in seen["sockets"]}
    assert {(p["namespace"], p["index"]) for p in seen["ports"]} == {one for one in at if one[1]}
    assert {int(inode) for inode in chosen.levels()["rings"]} == inodes
