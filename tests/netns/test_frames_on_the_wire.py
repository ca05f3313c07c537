"""Each backend sends the trace byte for byte and in its order, and changes no port."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ETH_P_LOCAL_2 = b"\x88\xb6"
"""Local experimental EtherType: no kernel and no rewriter knows what is in it."""
MTU_FRAME_BYTES = 1514
PASSES = 3
MAC = "02:6e:64:00:00:07"


def write_trace(path: Path) -> list[bytes]:
    """More frames than any ring or batch holds, of all lengths, in no multiple of a batch."""
    random_bytes = random.Random(7).randbytes
    lengths = [14, 15, MTU_FRAME_BYTES, *(14 + 37 * number % 1500 for number in range(700))]
    frames = [random_bytes(12) + ETH_P_LOCAL_2 + random_bytes(length - 14) for length in lengths]
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    return frames


@pytest.mark.parametrize("backend", ["af_packet", "af_xdp"])
@pytest.mark.parametrize("flows", ["same", "distinct"])
def test_frames_are_those_of_the_trace(
    node: Path, tmp_path: Path, backend: str, flows: str
) -> None:
    """Distinct flows are sent from a copy, and these frames have nothing to rewrite."""
    frames = write_trace(tmp_path / "t.pcap")
    sent = [frame.hex() for frame in frames for _ in range(2)]
    assert received(node, tmp_path, backend, "--multiplier", "2", "--flows", flows) == sent * PASSES


@pytest.mark.parametrize("backend", ["af_packet", "af_xdp"])
def test_a_destination_is_written_over_the_frames_own(
    node: Path, tmp_path: Path, backend: str
) -> None:
    frames = write_trace(tmp_path / "t.pcap")
    sent = [MAC.replace(":", "") + frame[6:].hex() for frame in frames]
    assert received(node, tmp_path, backend, "--dst-macs", MAC) == sent * PASSES


def received(node: Path, folder: Path, backend: str, *options: str) -> list[str]:
    """Frames that arrive of the trace in this folder, sent at top speed, as hexadecimal digits."""
    argv = [node, "replay", "--interface", "dtx", "--trace", folder / "t.pcap", "--top-speed"]
    argv += ["--loops", str(PASSES), "--backend", backend, *options]
    script = Path(__file__).with_name("received_frames.py")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(script), *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
