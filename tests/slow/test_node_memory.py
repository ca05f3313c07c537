"""The node's use of memory: little for a bomb and for a trace that it makes."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.testbed.hosts.node import find_node_binary

MIB = 1 << 20
BOMB_BYTES = 160 * MIB
RUN = """
import json, os, subprocess, sys
null, pipe = subprocess.DEVNULL, subprocess.PIPE
child = subprocess.Popen(sys.argv[1:], stdin=null, stdout=null, stderr=pipe)
said = child.stderr.read().decode()
_, status, used = os.wait4(child.pid, 0)
child.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([child.returncode, said, used.ru_maxrss * 1024]))
"""
"""A small parent: what a process had before its exec is in its maximum, too."""


def node(*argv: str | Path, **environment: str) -> tuple[int, str, int]:
    """Exit code, words, and the most memory that it had, in bytes."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(find_node_binary()), *map(str, argv)],
        capture_output=True,
        env={**os.environ, **environment},
        check=True,
    )
    code, said, most = json.loads(done.stdout)
    return code, said, most


def zstd(content: bytes) -> bytes:
    """Frame header, and blocks of one byte that is repeated 128 KiB times (RFC 8878)."""
    blocks, size = len(content) >> 17, 1 << 17
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + content[:1]
    last = (1).to_bytes(3, "little")  # empty
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * blocks + last


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("gz", lambda content: gzip.compress(content, 1)),
        ("xz", lambda content: lzma.compress(content, preset=0)),
        ("zst", zstd),
    ],
)
def test_a_bomb_without_a_capture_costs_nothing(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    bomb = tmp_path / f"bomb.pcap.{name}"
    bomb.write_bytes(pack(bytes(BOMB_BYTES)))
    assert bomb.stat().st_size < 2 * MIB
    for job in (("info", bomb), ("cut", bomb, tmp_path / "out")):
        code, said, most = node("trace", *job)
        assert (code, said.count("\n")) == (2, 1) and "not a capture file" in said
        assert most < 64 * MIB


def test_what_was_packed_to_look_back_far_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "t.pcap"
    assert node("trace", "make", "demo", trace, "--packets", "100")[0] == 0
    for mib in (256, 512, 1024):
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": mib * MIB}]
        packed = tmp_path / f"{mib}.xz"
        packed.write_bytes(lzma.compress(trace.read_bytes(), filters=filters))
        code, said, most = node("trace", "info", packed)
        assert code == 2 and "further than 128 MiB" in said
        assert most < 64 * MIB


@pytest.mark.parametrize("times", ["0", "x", "1e9"])
def test_the_key_that_raises_bounds_is_the_nodes_too(times: str, tmp_path: Path) -> None:
    trace, packed = tmp_path / "t.pcap", tmp_path / "t.pcap.gz"
    assert node("trace", "make", "demo", trace, "--packets", "100")[0] == 0
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    for more in ("1", "2", "40.5"):
        assert node("trace", "info", packed, NODROP_BOUNDS_TIMES=more)[0] == 0
    code, said, _ = node("trace", "info", packed, NODROP_BOUNDS_TIMES=times)
    assert code == 2 and "NODROP_BOUNDS_TIMES" in said


@pytest.mark.parametrize(
    ("profile", "packets"), [("demo", 300_000), ("ists-like", 130_000), ("bigflows-like", 320_000)]
)
def test_a_trace_is_not_held_in_memory_while_it_is_made(profile: str, packets: int) -> None:
    # Some 150 MB of frames each.
    argv = ["trace", "make", profile, "/dev/null", "--packets", str(packets)]
    code, said, most = node(*argv)
    assert code == 0 and "contents: not written" in said
    assert most < 16 * MIB + 80 * packets


@pytest.mark.parametrize("out", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_nothing_is_written_beside_a_device(out: str, tmp_path: Path) -> None:
    argv = [str(find_node_binary()), "trace", "make", "demo", out, "--packets", "100"]
    plain = tmp_path / "plain.pcap"
    assert node("trace", "make", "demo", plain, "--packets", "100")[0] == 0
    assert plain.with_name("plain.pcap.json").is_file()
    piped = subprocess.run(argv, capture_output=True, check=True)
    assert piped.stdout == plain.read_bytes() and b"contents: not written" in piped.stderr
    redirected = tmp_path / "redirected.pcap"
    with redirected.open("wb") as file:
        subprocess.run(argv, stdout=file, stderr=subprocess.DEVNULL, check=True)
    assert redirected.read_bytes() == plain.read_bytes()
    assert not Path(f"{out}.json").exists()
