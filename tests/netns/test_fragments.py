"""The forecast of `nodrop-node trace info` against what this kernel's reassembly really does."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.node import find_node_binary
from tests.depth import depth

MORE = 0x2000
A, B = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)


@pytest.fixture(scope="module")
def node() -> Path:
    try:
        return find_node_binary()
    except LabProblem as problem:
        pytest.skip(str(problem))


def fragment(
    begin: int,
    length: int,
    *,
    more: bool,
    id: int = 1,
    source: bytes = A,
    tos: int = 0,
    options: bytes = b"",
    protocol: int = 17,
    tags: bytes = b"",
    payload_cut: int = 0,
) -> bytes:
    """A frame with the IPv4 fragment [begin, begin + length) of a datagram."""
    assert begin % 8 == 0
    field = begin // 8 | (MORE if more else 0)
    words = 5 + len(options) // 4
    total = 4 * words + length
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x40 | words, tos, total, id, field, 64, protocol, 0, source, B
    )
    frame = bytes(12) + tags + b"\x08\x00" + header + options + bytes(length)
    return frame[: len(frame) - payload_cut]


def datagram(id: int, lengths: Sequence[int], **given: object) -> list[bytes]:
    """All fragments of a datagram, in order."""
    begin, frames = 0, []
    for index, length in enumerate(lengths):
        more = index + 1 < len(lengths)
        frames.append(fragment(begin, length, more=more, id=id, **given))  # type: ignore[arg-type]
        begin += length
    return frames


def write_pcap(path: Path, frames: Iterable[bytes]) -> None:
    """All at one time: a replay at top speed, in which no timer ends."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for frame in frames:
            out.write(struct.pack("<IIII", 1_700_000_000, 0, len(frame), len(frame)) + frame)


def kernel(*what: str | Path) -> dict[str, int]:
    probe = Path(__file__).with_name("kernel_reassembly.py")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(probe), *map(str, what)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    counted: dict[str, int] = json.loads(done.stdout)
    return counted


def forecast(node: Path, trace: Path, *replay: str) -> dict[str, int]:
    argv = [str(node), "trace", "info", str(trace), "--json", *(replay or ["--top-speed"])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    counts = info["fragments_in_trial"]
    passes = 1
    for key, value in itertools.pairwise(replay):
        passes *= int(value) if key in ("--loops", "--multiplier") else 1
    return {
        "seen": passes * info["packets"] - counts["offered_packets"] + counts["datagrams"],
        "queues": counts["incomplete_datagrams"],
        "ReasmReqds": counts["offered_packets"],
        "ReasmOKs": counts["datagrams"],
        "ReasmFails": counts["reasm_fails"],
        "ReasmOverlaps": counts["reasm_overlaps"],
    }


def check(node: Path, folder: Path, frames: list[bytes]) -> dict[str, int]:
    trace = folder / "fragments.pcap"
    write_pcap(trace, frames)
    real = kernel(trace)
    memory = real.pop("memory")
    assert forecast(node, trace) == real
    return real | {"memory": memory}


def crossed(*datagrams: list[bytes]) -> list[bytes]:
    """Fragment by fragment in turn."""
    return [frame for group in zip(*datagrams, strict=True) for frame in group]


CVLAN = b"\x81\x00\x00\x05"
CRAFTED: dict[str, list[bytes]] = {
    "complete": datagram(1, [1480, 1480, 100]),
    "reversed": datagram(1, [1480, 1480, 100])[::-1],
    "incomplete": datagram(1, [1480, 1480, 100])[:2],
    "without the first": datagram(1, [1480, 1480, 100])[1:],
    "crossed": crossed(datagram(1, [800, 800, 8]), datagram(2, [800, 800, 8])),
    "two protocols, one id": crossed(datagram(1, [800, 8]), datagram(1, [800, 8], protocol=1)),
    "duplicate before the end": [*datagram(1, [8, 8, 8])[:2], *datagram(1, [8, 8, 8])],
    "duplicate after the end": [*datagram(1, [8, 8, 8]), *datagram(1, [8, 8, 8])[:1]],
    "two passes of an incomplete one": datagram(1, [8, 8, 8])[:2] * 2,
    "two passes that complete each other": [
        *datagram(1, [8, 8, 8])[:2],
        *datagram(1, [8, 8, 8])[1:],
    ],
    "overlap at the tail": [
        fragment(0, 16, more=True),
        fragment(8, 16, more=True),
        fragment(24, 8, more=False),
    ],
    "overlap of a gap": [
        fragment(0, 8, more=True),
        fragment(24, 8, more=True),
        fragment(0, 32, more=False),
    ],
    "a duplicate over two runs is an overlap": [
        fragment(8, 8, more=True),
        fragment(0, 8, more=True),
        fragment(0, 16, more=True),
        fragment(16, 8, more=False),
    ],
    "a duplicate in one run": [
        fragment(0, 8, more=True),
        fragment(8, 8, more=True),
        fragment(0, 16, more=True),
        fragment(16, 8, more=False),
    ],
    "two ends": [fragment(16, 8, more=False), fragment(24, 8, more=False)],
    "beyond the end": [fragment(8, 8, more=False), fragment(16, 8, more=True)],
    "an end before what is there": [fragment(16, 8, more=True), fragment(8, 8, more=False)],
    "empty": [fragment(0, 8, more=True), fragment(8, 0, more=True), fragment(8, 8, more=False)],
    "seven bytes": [fragment(0, 7, more=True), fragment(8, 8, more=False)],
    "cut to eight": [fragment(0, 15, more=True), fragment(8, 8, more=False)],
    "oversize": [
        *[fragment(begin, 8000, more=True) for begin in range(0, 64000, 8000)],
        fragment(64000, 1535, more=False),
    ],
    "just not oversize": [
        *[fragment(begin, 8000, more=True) for begin in range(0, 64000, 8000)],
        fragment(64000, 1515, more=False),
    ],
    "options of the first make it oversize": [
        fragment(0, 8000, more=True, options=b"\x01" * 4),
        *[fragment(begin, 8000, more=True) for begin in range(8000, 64000, 8000)],
        fragment(64000, 1515, more=False),
    ],
    "mixed ECN": [fragment(0, 8, more=True, tos=0), fragment(8, 8, more=False, tos=2)],
    "ECN and congestion": [fragment(0, 8, more=True, tos=2), fragment(8, 8, more=False, tos=3)],
    "too far": [
        fragment(0, 8, more=True),
        *[fragment(0, 8, more=True, id=id) for id in range(2, 67)],
        fragment(8, 8, more=False),
    ],
    "just not too far": [
        fragment(0, 8, more=True),
        *[fragment(0, 8, more=True, id=id) for id in range(2, 65)],
        fragment(8, 8, more=False),
    ],
    "far, but of another source": [
        fragment(0, 8, more=True),
        *[fragment(0, 8, more=True, id=id, source=B) for id in range(2, 67)],
        fragment(8, 8, more=False),
    ],
    "one tag": datagram(1, [800, 8], tags=CVLAN),
    "a tagged and an untagged half": [
        fragment(0, 8, more=True),
        fragment(8, 8, more=False, tags=CVLAN),
    ],
    "two tags": datagram(1, [800, 8], tags=CVLAN * 2),
    "cut by the capture": [fragment(0, 8, more=True), fragment(8, 8, more=False, payload_cut=1)],
    "padded": [frame + bytes(30) for frame in datagram(1, [8, 8])],
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted(node: Path, tmp_path: Path, name: str) -> None:
    check(node, tmp_path, CRAFTED[name])


def random_frames(seed: int) -> list[bytes]:
    """Small pieces of few datagrams: overlaps, duplicates and contradictions are the rule."""
    dice = random.Random(seed)
    span = dice.choice([3, 5, 12])
    ends = 0.05 + dice.random() * 0.3
    frames = []
    for _ in range(3000):
        more = dice.random() > ends
        length = dice.choice([8, 8, 8, 16, 24, 8 * dice.randint(1, span), dice.randint(0, 20)])
        frames.append(
            fragment(
                8 * dice.randrange(span),
                length,
                more=more,
                id=dice.randrange(dice.choice([2, 40, 200])),
                source=dice.choice([A, A, B]),
                tos=dice.choice([0] * 12 + [1, 2]),
                tags=dice.choice([b"", b"", b"", CVLAN, CVLAN * 2]),
                payload_cut=dice.choice([0] * 30 + [1]),
            )
        )
    return frames


@pytest.mark.parametrize("seed", [*range(4), *map(depth, range(4, 8))])
def test_random(node: Path, tmp_path: Path, seed: int) -> None:
    real = check(node, tmp_path, random_frames(seed))
    assert real["ReasmReqds"] > 1000 and real["ReasmFails"] > 0


REPLAYS = {
    "three passes": ["--loops", "3"],
    "three identical copies": ["--multiplier", "3", "--flows", "same"],
    "two passes of three replicas": ["--loops", "2", "--multiplier", "3"],
}


LOADS = ["--top-speed"], ["--speed", "20"], ["--pps", "60000"]


@pytest.mark.parametrize(
    ("name", "load"),
    [*zip(REPLAYS, LOADS, strict=True)]
    + [depth(name, load) for n, name in enumerate(REPLAYS) for load in LOADS if load != LOADS[n]],
)
def test_replay(node: Path, tmp_path: Path, name: str, load: list[str]) -> None:
    """The forecast follows the schedule: passes meet the leftovers of the pass before, identical
    copies leave back to back, replicas have queues of their own."""
    trace = tmp_path / "demo.pcap"
    subprocess.run([node, "trace", "make", "demo", trace], check=True, timeout=60)
    words = [*load, *REPLAYS[name]]
    replay = [node, "replay", "--trace", trace, "--interface", "dtx", *words]
    real = kernel("--replay", *replay)
    del real["memory"]
    assert forecast(node, trace, *words) == real


def test_memory_bound(node: Path, tmp_path: Path) -> None:
    """Above ipfrag_high_thresh the kernel refuses; how large its buffers are is an estimate."""
    trace = tmp_path / "fragments.pcap"
    frames = [fragment(0, 1480, more=True, id=id) for id in range(4000)]
    write_pcap(trace, frames)
    real, expected = kernel(trace), forecast(node, trace)
    assert real["ReasmFails"] > 1000
    assert expected["queues"] == pytest.approx(real["queues"], rel=0.02)
