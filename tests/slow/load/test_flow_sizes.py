"""Packets of each flow, as the node reads them from a trace."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.replay import ReplayOptions
from nodrop.testbed.load.trace import read_trace
from tests.known_answers.frames import ip, write


def trace(path: Path, sizes: Sequence[int], *, others: int = 0) -> Path:
    """Flows of so many packets, and frames that belong to none (ARP)."""
    udp = struct.pack("!HHHH", 1000, 7, 8, 0)
    flows = [frame for n, size in enumerate(sizes) for frame in [ip(udp, source=n)] * size]
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    return write(path / "trace.pcap", flows + [arp] * others)


def read(path: Path, **options: Any) -> Any:
    given = {"trace": str(path), "pps": 1000, **options}
    return read_trace(path, ReplayOptions.model_validate(given)).flow_sizes


@pytest.mark.parametrize(
    ("sizes", "largest", "effective"),
    [
        ([5], 1.0, 1.0),
        ([10, 10, 10, 10], 0.25, 4.0),
        ([60, 20, 20], 0.6, 100**2 / 4400),
        ([1000, *[1] * 100], 1000 / 1100, 1100**2 / 1_000_100),
    ],
)
@pytest.mark.parametrize("others", [0, 50])
def test_sizes_are_those_of_the_trace(
    tmp_path: Path, sizes: Sequence[int], largest: float, effective: float, others: int
) -> None:
    found = read(trace(tmp_path, sizes, others=others))
    assert (found.flows, found.same_copies) == (len(sizes), 1)
    assert found.largest_ratio == pytest.approx(largest)
    assert found.effective_flows == pytest.approx(effective)


@pytest.mark.parametrize("copies", [2, 3, 2.5])
def test_copies_are_the_same_flows_or_flows_of_their_own(tmp_path: Path, copies: float) -> None:
    path = trace(tmp_path, [60, 20, 20])
    one = read(path)
    same, distinct = (read(path, multiplier=copies, flows=f) for f in ("same", "distinct"))
    assert (same.effective_flows, same.largest_ratio) == (one.effective_flows, one.largest_ratio)
    assert (same.flows, same.same_copies) == (3, copies)
    assert distinct.effective_flows == pytest.approx(copies * one.effective_flows)
    assert distinct.largest_ratio == pytest.approx(one.largest_ratio / copies)
    assert (distinct.flows, distinct.same_copies) == (round(3 * copies), 1)


def test_of_a_part_of_the_flows_the_sizes_are_not_known(tmp_path: Path) -> None:
    path = trace(tmp_path, [60, 20, 20])
    assert read(path, multiplier=0.5) is None
    assert read(path, duration_s=0.05) is None
    assert read(path, duration_s=1.0, loops=10).flows == 3
    assert read(trace(tmp_path, [], others=9)) is None
