"""Replicas frame by frame against a second parser: addresses and checksums change, no more."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scapy")

from scapy.utils import RawPcapReader

from tests import torture
from tests.depth import depth
from tests.real_inputs import REALMIX_PACKETS
from tests.scapy_view import View, view

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
UNMAPPED = frozenset({"0.0.0.0", "255.255.255.255", "::", "::1"})


def replicated(node: Path, trace: Path, out: Path) -> dict[str, Any]:
    argv = [node, "trace", "replicate", trace, out, "--multiplier", "2"]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=120)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def pairs(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Each frame and its replica: without a seed the replicas are in step, so those of one time
    are the frames of the trace and then those of the replica."""
    with RawPcapReader(str(path)) as reader:
        for _, group in groupby(reader, key=lambda record: (record[1].sec, record[1].usec)):
            frames = [frame for frame, _ in group]
            half = len(frames) // 2
            yield from zip(frames[:half], frames[half:], strict=True)


class Mapping:
    """Mapping of addresses as the frames so far have shown it."""

    def __init__(self) -> None:
        self._new_of: dict[str, str] = {}

    def check(self, before: View, after: View, frame: bytes) -> None:
        for (layer, name, old), (*same, new) in zip(before.addresses, after.addresses, strict=True):
            assert [layer, name] == same
            if old == new:
                continue
            assert self._new_of.setdefault(old, new) == new, (old, frame.hex())
            assert kind(old) == kind(new) != "stays", (old, new, frame.hex())

    def check_distinct(self) -> None:
        new = set(self._new_of.values())
        assert len(new) == len(self._new_of)
        assert not new & self._new_of.keys()


def kind(text: str) -> str:
    address = ipaddress.ip_address(text)
    if address.is_multicast or text in UNMAPPED:
        return "stays"
    private = any(address in ipaddress.ip_network(network) for network in PRIVATE)
    return f"{address.version}{private}{address.is_link_local}{address.is_loopback}"


def compare(path: Path, every: int = 1) -> int:
    """Looks at every pair, or some; the number of frames whose replica is the same."""
    mapping, same = Mapping(), 0
    for number, (old, new) in enumerate(pairs(path)):
        if old == new:
            same += 1
            continue
        assert len(old) == len(new)
        if number % every:
            continue
        before, after = view(old), view(new)
        assert same_fields(old, new), (old.hex(), new.hex())
        assert before.errors == after.errors, (old.hex(), new.hex())
        mapping.check(before, after, old)
    mapping.check_distinct()
    return same


def same_fields(old: bytes, new: bytes) -> bool:
    """A header that is cut is bytes without meaning to scapy, until something stands behind it."""
    return any(view(old + more).fixed == view(new + more).fixed for more in (b"", bytes(64)))


def test_torture(node: Path, tmp_path: Path) -> None:
    frames = torture.write(tmp_path / "torture.pcap")
    result = replicated(node, tmp_path / "torture.pcap", tmp_path / "2x.pcap")
    assert result["packets"] == 2 * len(frames)
    assert [old for old, _ in pairs(tmp_path / "2x.pcap")] == frames
    assert compare(tmp_path / "2x.pcap") == result["not_rewritten_packets"]


def test_whole_frames_with_mappable_addresses_are_rewritten(node: Path, tmp_path: Path) -> None:
    torture.write(tmp_path / "torture.pcap")
    replicated(node, tmp_path / "torture.pcap", tmp_path / "2x.pcap")
    new_of = dict(pairs(tmp_path / "2x.pcap"))
    for packet in torture.whole():
        frame = bytes(packet)
        addresses = [address for *_, address in view(frame).addresses]
        routed = "LSRR" in repr(packet) or "Routing" in repr(packet)
        may = any(kind(address) != "stays" for address in addresses) and not routed
        assert (new_of[frame] != frame) == may, packet.summary()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [307, depth(53), depth(1)])
def test_realmix(node: Path, trace: Path, tmp_path: Path, every: int) -> None:
    """Every frame, byte by byte; one in `every`, at a millisecond each, with scapy."""
    result = replicated(node, trace, tmp_path / "2x.pcap")
    assert result["packets"] == 2 * REALMIX_PACKETS
    assert result["same_flows"] == 15
    assert compare(tmp_path / "2x.pcap", every) == result["not_rewritten_packets"]


def test_replicas_stay_in_order_of_time(node: Path, tmp_path: Path) -> None:
    torture.write(tmp_path / "torture.pcap")
    argv = [node, "trace", "replicate", tmp_path / "torture.pcap", tmp_path / "3x.pcap"]
    subprocess.run([*argv, "--multiplier", "3", "--seed", "5"], check=True, capture_output=True)
    with RawPcapReader(str(tmp_path / "3x.pcap")) as reader:
        times = [(meta.sec, meta.usec) for _, meta in reader]
    assert all(before <= after for before, after in pairwise(times))
