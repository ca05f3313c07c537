"""Captures of many kinds, made here: usable, and then with the same packets in each, or refused
with the reason that holds."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nodrop.testbed.hosts.node import find_node_binary
from tests.known_answers.frames import ip

MAC = bytes.fromhex("020000000001 020000000002")
BEGAN_S, STEP_US = 1_600_000_000, 1000
SNAP = b"\xaa\xaa\x03\x00\x00\x00\x08\x00"
Frames = Sequence[bytes]


def packets(number: int) -> list[bytes]:
    """IPv4 packets of a flow each, without a link header."""
    return [
        ip(struct.pack("!HHHH", 1000 + n, 53, 48, 0) + bytes(40), source=n % 50)[14:]
        for n in range(number)
    ]


def ethernet(frames: Frames, kind: int = 0x0800) -> list[bytes]:
    return [MAC + struct.pack("!H", kind) + one for one in frames]


def pcap(
    frames: Frames,
    link: int = 1,
    *,
    order: str = "<",
    magic: int = 0xA1B2C3D4,
    version: tuple[int, int] = (2, 4),
    snap: int = 262_144,
    began_s: int = BEGAN_S,
) -> bytes:
    content = struct.pack(f"{order}IHHiIII", magic, *version, 0, 0, snap, link)
    unit = 1000 if magic == 0xA1B23C4D else 1
    for n, one in enumerate(frames):
        at = (began_s, n * STEP_US * unit)
        content += struct.pack(f"{order}IIII", *at, len(one), len(one)) + one
    return content


def patched(frames: Frames) -> bytes:
    """Alexey Kuznetsov's pcap of Red Hat 6: eight bytes more in each record."""
    content = struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1)
    for n, one in enumerate(frames):
        size = (len(one), len(one))
        content += struct.pack("<IIIIIHBB", BEGAN_S, n * STEP_US, *size, 2, 0x800, 0, 0) + one
    return content


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", kind) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int = 1, resolution: int | None = None, order: str = "<") -> bytes:
    option = b""
    if resolution is not None:
        option = struct.pack(f"{order}HHB3xHH", 9, 1, resolution, 0, 0)
    return block(1, struct.pack(f"{order}HHI", link, 0, 0) + option, order)


def enhanced(
    n: int, frame: bytes, at: int = 0, ticks_per_s: int = 10**6, order: str = "<"
) -> bytes:
    ticks = BEGAN_S * ticks_per_s + n * ticks_per_s // 1000
    head = (at, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, struct.pack(f"{order}5I", *head) + frame, order)


def pcapng(
    frames: Frames, order: str = "<", *, ticks_per_s: int = 10**6, resolution: int = 6
) -> bytes:
    blocks = (enhanced(n, one, 0, ticks_per_s, order) for n, one in enumerate(frames))
    return section(order) + interface(1, resolution, order) + b"".join(blocks)


def snoop(frames: Frames) -> bytes:
    content = b"snoop\0\0\0" + struct.pack("!II", 2, 4)
    for n, one in enumerate(frames):
        sizes = (len(one), len(one), 24 + len(one), 0)
        content += struct.pack("!IIIIII", *sizes, BEGAN_S, n * STEP_US) + one
    return content


def two_links(plain: Frames) -> bytes:
    """Turns of an Ethernet port and a tun."""
    turns = zip(ethernet(plain), plain, strict=True)
    blocks = (enhanced(n, pair[n % 2], n % 2) for n, pair in enumerate(turns))
    return section() + interface(1) + interface(101) + b"".join(blocks)


def headed(head: bytes) -> Callable[[Frames], list[bytes]]:
    return lambda plain: [head + one for one in plain]


COOKED = struct.pack("!HHH8sH", 0, 1, 6, MAC[:6] + bytes(2), 0x0800)
COOKED_2 = struct.pack("!HHIHBB8s", 0x0800, 0, 2, 1, 0, 6, MAC[:6] + bytes(2))
USABLE: dict[str, Callable[[Frames], bytes]] = {
    "microseconds": lambda p: pcap(ethernet(p)),
    "big-endian": lambda p: pcap(ethernet(p), order=">"),
    "nanoseconds": lambda p: pcap(ethernet(p), magic=0xA1B23C4D),
    "nanoseconds, big-endian": lambda p: pcap(ethernet(p), magic=0xA1B23C4D, order=">"),
    "version 2.3": lambda p: pcap(ethernet(p), version=(2, 3)),
    "no snapshot length": lambda p: pcap(ethernet(p), snap=0),
    "Kuznetsov's": lambda p: patched(ethernet(p)),
    "after 2106": lambda p: pcap(ethernet(p), began_s=0xFFFFFFF0),
    "in 1970": lambda p: pcap(ethernet(p), began_s=0),
    "raw": lambda p: pcap(p, 101),
    "raw of OpenBSD": lambda p: pcap(p, 12),
    "raw IPv4": lambda p: pcap(p, 228),
    "null": lambda p: pcap(headed(struct.pack("<I", 2))(p), 0),
    "null, big-endian": lambda p: pcap(headed(struct.pack(">I", 2))(p), 0, order=">"),
    "loop": lambda p: pcap(headed(struct.pack(">I", 2))(p), 108),
    "cooked": lambda p: pcap(headed(COOKED)(p), 113),
    "cooked 2": lambda p: pcap(headed(COOKED_2)(p), 276),
    "PPP": lambda p: pcap(headed(b"\xff\x03\x00\x21")(p), 9),
    "PPP of a line": lambda p: pcap(headed(b"\xff\x03\x00\x21")(p), 50),
    "frame relay": lambda p: pcap(headed(b"\x18\x41\x03\xcc")(p), 107),
    "Cisco HDLC": lambda p: pcap(headed(b"\x0f\x00\x08\x00")(p), 104),
    "pcapng": lambda p: pcapng(ethernet(p)),
    "pcapng, big-endian": lambda p: pcapng(ethernet(p), ">"),
    "pcapng, nanoseconds": lambda p: pcapng(ethernet(p), ticks_per_s=10**9, resolution=9),
    "pcapng, powers of two": lambda p: pcapng(ethernet(p), ticks_per_s=1 << 20, resolution=0x94),
    "pcapng of two links": two_links,
    "pcapng with secrets": lambda p: (
        section() + block(10, b"TLSK" + bytes(4)) + pcapng(ethernet(p))[len(section()) :]
    ),
    "pcapng, unknown block": lambda p: pcapng(ethernet(p)) + block(0xBAD, b"abcd"),
    "snoop": lambda p: snoop(ethernet(p)),
    "gzip": lambda p: gzip.compress(pcap(ethernet(p))),
}
"""Kind → a file of it with these packets: whoever prepares it sends the same ones."""


def oversized(plain: Frames) -> bytes:
    return pcap(ethernet(plain)) + struct.pack("<IIII", BEGAN_S, 9, 0x7FFFFFFF, 0x7FFFFFFF)


REFUSED: dict[str, tuple[Callable[[Frames], bytes], str]] = {
    "nothing": (lambda p: b"", "the file is empty"),
    "a cut header": (lambda p: pcap(ethernet(p))[:20], "the file header is cut: 20 of 24 bytes"),
    "no packet": (lambda p: pcap([]), "the trace holds no packets"),
    "noise": (lambda p: random.Random(len(p)).randbytes(4000), "not a capture file that can be"),
    "a cut record": (lambda p: pcap(ethernet(p))[:-7], "cut at packet {n}, "),
    "a cut gzip": (lambda p: gzip.compress(pcap(ethernet(p)))[:-20], "gzip file is cut or corrupt"),
    "noise in the middle": (
        lambda p: pcap(ethernet(p)) + b"\xf2" * 300,
        "corrupt at packet {next}, ",
    ),
    "a huge record": (oversized, "corrupt at packet {next}, "),
    "no interface": (lambda p: section() + enhanced(0, ethernet(p)[0]), "interface 0 of 0"),
    "another interface": (
        lambda p: section() + interface() + enhanced(0, ethernet(p)[0], 7),
        "interface 7 of 1",
    ),
    "a short block": (
        lambda p: pcapng(ethernet(p)) + struct.pack("<II", 6, 7) + bytes(50),
        "corrupt at packet {next}, ",
    ),
    "CAN": (lambda p: pcap([bytes(16)] * len(p), 227), "{n} packets of link type 227 (CAN)"),
    "USB": (lambda p: pcap([bytes(64)] * len(p), 220), "{n} packets of link type 220 (USB)"),
    "an unknown link": (lambda p: pcap(p, 9999), "{n} packets of link type 9999"),
    "beacons": (
        lambda p: pcap([b"\x80\x00" + bytes(22) + b"beacon" * 5] * len(p), 105),
        "no packet of {n} can be sent: 802.11 without a network packet",
    ),
    "beacons with radiotap": (
        lambda p: pcap([b"\x00\x00\x08\x00\x00\x00\x00\x00\x80\x00" + bytes(40)] * len(p), 127),
        "no packet of {n} can be sent: 802.11 with radiotap",
    ),
    "negotiations": (
        lambda p: pcap([b"\xff\x03\xc0\x21\x01\x01\x00\x04"] * len(p), 9),
        "no packet of {n} can be sent: PPP without a network packet",
    ),
    "five bytes": (
        lambda p: pcap([b"12345"] * len(p)),
        "no packet of {n} can be sent: shorter than an Ethernet header",
    ),
    "no bytes": (
        lambda p: pcap([b""] * len(p)),
        "no packet of {n} can be sent: shorter than an Ethernet header",
    ),
}


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [find_node_binary(), "trace", *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


def prepared(path: Path) -> tuple[list[bytes], list[int]]:
    """Packets of a pcap of Ethernet frames, without their link header and padding; their times
    since the first, in ns."""
    content, at, found, times = path.read_bytes(), 24, [], []
    while at < len(content):
        seconds, ns, size, _ = struct.unpack_from("<4I", content, at)
        frame = content[at + 16 : at + 16 + size]
        assert frame[12:14] == b"\x08\x00"
        found.append(frame[14 : 14 + int.from_bytes(frame[16:18], "big")])
        times.append(seconds * 10**9 + ns)
        at += 16 + size
    return found, [time - times[0] for time in times]


@pytest.mark.parametrize("number", [7, 50])
def test_the_same_packets_are_sent_of_every_kind(tmp_path: Path, number: int) -> None:
    plain = packets(number)
    for kind, made in USABLE.items():
        path, out = tmp_path / "made", tmp_path / "out.pcap"
        path.write_bytes(made(plain))
        out.unlink(missing_ok=True)
        done = asked("prepare", path, out)
        assert done.returncode == 0, (kind, done.stderr)
        sent, times = prepared(out)
        assert sent == plain, kind
        assert times == pytest.approx([n * STEP_US * 1000 for n in range(number)], abs=1000), kind
        said = asked("info", path).stdout.split()
        assert said[:3] == ["packets", str(number), "in"], kind


@pytest.mark.parametrize("number", [7, 50])
def test_every_other_kind_is_refused_with_the_reason_that_holds(
    tmp_path: Path, number: int
) -> None:
    plain = packets(number)
    for kind, (made, reason) in REFUSED.items():
        path = tmp_path / "made"
        path.write_bytes(made(plain))
        words = reason.format(n=number, next=number + 1)
        for done in (asked("info", path), asked("prepare", path, tmp_path / "out.pcap")):
            assert done.returncode == 2 and words in done.stderr, (kind, done.stderr)
            assert "panicked" not in done.stderr and done.stderr.count("\n") <= 2
        assert not (tmp_path / "out.pcap").exists()
