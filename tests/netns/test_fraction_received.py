"""Arrivals of a load that is no whole number of replicas: `trace info` of them says what was
planned, and each flow came whole."""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.netns.test_frames_on_the_wire import received

PACKETS = 1_500


def info(node: Path, trace: Path, *options: str) -> dict[str, Any]:
    argv = [str(node), "trace", "info", str(trace), "--json", *options]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def flow_of(frame: bytes) -> tuple[bytes, ...] | None:
    """Flow of whole IPv4 TCP or UDP without VLAN, one for both directions; None: another frame."""
    ip = frame[14:]
    if frame[12:14] != b"\x08\x00" or ip[9] not in {6, 17} or ip[6] & 0x3F or ip[7]:
        return None
    ports = 4 * (ip[0] & 15)
    ends = sorted((ip[12 + 4 * n :][:4] + ip[ports + 2 * n :][:2]) for n in range(2))
    return (ip[9:10], *ends)


def write(trace: Path, frames: list[bytes]) -> Path:
    with trace.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    return trace


@pytest.mark.parametrize("multiplier", [0.1, 0.4, 0.75, 2.4])
@pytest.mark.parametrize("seed", [1, 7])
def test_what_arrives_is_the_part_that_was_planned(
    node: Path, tmp_path: Path, multiplier: float, seed: int
) -> None:
    trace = tmp_path / "t.pcap"
    make = [str(node), "trace", "make", "demo", str(trace), "--packets", str(PACKETS)]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    part = ["--multiplier", str(multiplier), "--flow-seed", str(seed), "--flows", "same"]
    whole, planned = info(node, trace), info(node, trace, *part, "--loops", "3")["planned"]
    came = [bytes.fromhex(line) for line in received(node, tmp_path, "af_packet", *part)]
    got = info(node, write(tmp_path / "came.pcap", came))
    assert (got["packets"], got["frame_bytes"]) == (planned["packets"], planned["frame_bytes"])
    assert got["flows"] == planned["flows"]
    if multiplier < 1:
        assert got["flows"] == pytest.approx(multiplier * whole["flows"], abs=1)

    packets: dict[tuple[bytes, ...], Counter[bytes]] = defaultdict(Counter)
    for frame in came:
        if flow := flow_of(frame):
            packets[flow][frame] += 1
    times = {flow: set(frames.values()) for flow, frames in packets.items()}
    assert len(times) >= 3 and all(len(n) == 1 for n in times.values())
    replicas = int(multiplier)
    assert set().union(*times.values()) <= {3 * replicas, 3 * (replicas + 1)} - {0}
