"""iperf3 as a load: what both stacks count, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.load.iperf3 import Iperf3, rates, sent_by_stack


def counters(**snmp: int) -> Any:
    return {"snmp": {name.replace("_", "."): n for name, n in snmp.items()}}


@pytest.mark.parametrize(
    ("joined", "rises", "sent"),
    [
        # Seen on a veth with segmentation in software: 354,295 frames, 54,991 packets of IP.
        (
            False,
            {"Tcp_OutSegs": 354_101, "Tcp_RetransSegs": 194, "Ip_OutRequests": 54_991},
            354_295,
        ),
        (
            False,
            {"Tcp_OutSegs": 14, "Udp_OutDatagrams": 117_117, "Ip_OutRequests": 117_131},
            117_131,
        ),
        # With segmentation offload a frame of many segments crosses as one.
        (
            True,
            {"Tcp_OutSegs": 3_930_619, "Tcp_RetransSegs": 7, "Ip_OutRequests": 197_660},
            197_660,
        ),
    ],
)
def test_each_frame_is_counted_once(joined: bool, rises: dict[str, int], sent: int) -> None:
    names = ("Tcp_OutSegs", "Tcp_RetransSegs", "Udp_OutDatagrams", "Ip_OutRequests")
    before = {name: 1000 + n for n, name in enumerate(names)}
    after = {name: before[name] + rises.get(name, 0) for name in names}
    assert sent_by_stack(counters(**before), counters(**after), joined=joined) == sent


@pytest.mark.parametrize(
    ("packets", "low", "high"), [([5, 10, 30, 20, 5], 100, 300), ([], None, None)]
)
def test_rates_leave_out_the_windows_at_both_ends(
    packets: list[int], low: float | None, high: float | None
) -> None:
    """Also those in which nothing was sent: the program connects first."""
    total, rows = 0, []
    for n, more in enumerate([0, 0, *packets, 0]):
        total += more
        rows.append({"mono_ns": n * 100_000_000, "links": {"p": {"tx_packets": total}}})
    found = rates(rows, "p")
    assert (found["least_pps"], found["most_pps"]) == (low, high)
    assert (found["spread_ratio"] is None) == (low is None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"duration_s": 2.5}, "whole seconds"),
        ({"duration_s": 0}, "load.duration_s"),
        ({"multiplier": 4}, "load.multiplier: no such key"),
        ({"udp": "perhaps"}, "load.udp"),
    ],
)
def test_options_that_it_has_not_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Iperf3({"kind": "iperf3", **options}, base=Path())


@pytest.mark.parametrize(
    ("options", "place", "words"),
    [
        ({}, {"setup": "oci", "mtu": 1500, "alone": True}, "setup.kind"),
        ({}, {"setup": "bare", "mtu": 1500, "alone": False}, "one instance and one port"),
        ({}, {"setup": "bare", "mtu": None, "alone": True}, "lab netns"),
        (
            {"udp": True, "length_bytes": 1473},
            {"setup": "bare", "mtu": 1500, "alone": True},
            "1,472",
        ),
        ({"udp": True, "length_bytes": 8972}, {"setup": "bare", "mtu": 9000, "alone": True}, ""),
        ({"length_bytes": 65_000}, {"setup": "bare", "mtu": 9000, "alone": True}, ""),
    ],
)
def test_where_it_cannot_send(options: dict[str, Any], place: dict[str, Any], words: str) -> None:
    found = Iperf3({"kind": "iperf3", **options}, base=Path()).misplaced(**place)
    assert bool(found) == bool(words) and words in found and "\n" not in found


def test_what_is_run() -> None:
    asked = {"udp": True, "bitrate_bps": 0, "length_bytes": 64, "parallel": 4, "bidir": True}
    words = " ".join(Iperf3({"kind": "iperf3", **asked, "duration_s": 3}, base=Path()).argv())
    assert words.endswith("-t 3 -u -b 0 -l 64 -P 4 --bidir")
