"""Captures of many kinds, made here: usable, and then with the same packets in each, or refused
with the reason that holds."""

from __future__ import annotations

import gzip
import json
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


def two_orders(plain: Frames) -> bytes:
    """Two sections: one of each byte order, and of another resolution."""
    frames = ethernet(plain)
    first = pcapng(frames[:3])
    turned = (enhanced(n, frames[n], 0, 1 << 20, ">") for n in range(3, len(frames)))
    return first + section(">") + interface(1, 0x94, ">") + b"".join(turned)


def obsolete(plain: Frames) -> bytes:
    """Packet blocks as Wireshark wrote them before 2009."""
    content = section() + interface()
    for n, one in enumerate(ethernet(plain)):
        ticks = BEGAN_S * 10**6 + n * STEP_US
        head = (0, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(one), len(one))
        content += block(2, struct.pack("<HH4I", *head) + one)
    return content


def described(plain: Frames) -> bytes:
    """Names, statistics, a comment, and an option that is longer than its block."""
    broken = block(1, struct.pack("<HHI", 1, 0, 0) + struct.pack("<HH", 2, 400) + b"eth0")
    names = block(4, struct.pack("<HH", 1, 9) + b"\x0a\0\0\1host" + bytes(7))
    packets = pcapng(ethernet(plain))[len(section() + interface(1, 6)) :]
    return section() + broken + names + packets + block(5, bytes(12))


def in_halves(plain: Frames) -> bytes:
    """Two members of gzip in one file, as `cat a.gz b.gz` and parallel packers leave them."""
    content = pcap(ethernet(plain))
    return gzip.compress(content[:200]) + gzip.compress(content[200:])


def behind(head: bytes) -> Callable[[Frames], list[bytes]]:
    """Ethernet frames, each behind a header of its capturing program."""
    return lambda plain: [head + one for one in ethernet(plain)]


def logged(plain: Frames) -> list[bytes]:
    """Packets of nflog, behind a prefix of iptables."""
    head = struct.pack("<BBH", 2, 0, 0) + struct.pack("<HH4s", 6, 10, b"a")
    return [head + struct.pack("<HH", 4 + len(one), 9) + one for one in plain]


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
    "PPI of Ethernet": lambda p: pcap(behind(struct.pack("<BBHI", 0, 0, 8, 1))(p), 192),
    "PPI of raw IP": lambda p: pcap(
        headed(struct.pack("<BBHI4s", 0, 0, 12, 101, b"\x32\x75\0\0"))(p), 192
    ),
    "netfilter log": lambda p: pcap(logged(p), 239),
    "InfiniBand": lambda p: pcap(headed(bytes(40) + b"\x08\0\0\0")(p), 242),
    "Marvell's tag": lambda p: pcap(
        [one[:12] + b"\xda\xda\0\0\x40\0\0\0" + one[12:] for one in ethernet(p)], 285
    ),
    "check sequences": lambda p: pcap([one + b"\1\2\3\4" for one in ethernet(p)], 0x24000001),
    "pcapng of two orders": two_orders,
    "pcapng of 2008": obsolete,
    "pcapng with names": described,
    "gzip of two members": in_halves,
    "gzip of pcapng": lambda p: gzip.compress(pcapng(ethernet(p))),
    "gzip": lambda p: gzip.compress(pcap(ethernet(p))),
}
"""Kind → a file of it with these packets: whoever prepares it sends the same ones."""


V6 = bytes.fromhex("20010db8000000000000000000000001 20010db8000000000000000000000002")


def in_v6(protocol: int, payload: bytes) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64)
    return MAC + b"\x86\xdd" + head + V6 + payload


def in_udp(port: int, payload: bytes) -> bytes:
    return in_v6(17, struct.pack("!HHHH", 40_000, port, 8 + len(payload), 1) + payload)


EXTENSIONS = (
    b"\x3c\0\1\4\0\0\0\0" + b"\x2b\0\1\4\0\0\0\0" + b"\x33\0\0\0\0\0\0\0\x11\4\0\0" + bytes(20)
)
AS_THEY_ARE: dict[str, Callable[[bytes], bytes]] = {
    "three tags": lambda p: MAC + bytes.fromhex("88a8 0009 8100 0008 8100 0007 0800") + p,
    "labels": lambda p: MAC + bytes.fromhex("8847 00014040 00015140") + p,
    "PPPoE": lambda p: MAC + b"\x88\x64\x11\0\0\5" + struct.pack("!HH", len(p) + 2, 0x21) + p,
    "PPPoE discovery": lambda p: MAC + b"\x88\x63\x11\x09\0\0\0\4\1\1\0\0" + p[:10],
    "MACsec": lambda p: MAC + bytes.fromhex("88e5 2c00 00000001") + p,
    "PTP": lambda p: MAC + b"\x88\xf7\0\2\0\x2c" + p[:40],
    "LLDP": lambda p: MAC + bytes.fromhex("88cc 0207040200000000010403074142") + p[:9],
    "spanning tree": lambda p: MAC + b"\0\x26\x42\x42\3" + p[:35],
    "ARP": lambda p: MAC + b"\x08\x06\0\1\x08\0\6\4\0\1" + p[:20],
    "extensions": lambda p: in_v6(0, EXTENSIONS + p[20:]),
    "GRE in IPv6": lambda p: in_v6(47, b"\0\0\x08\0" + p),
    "ERSPAN in IPv6": lambda p: in_v6(47, b"\x10\0\x88\xbe" + bytes(12) + ethernet([p])[0]),
    "VXLAN in IPv6": lambda p: in_udp(4789, b"\x08" + bytes(7) + ethernet([p])[0]),
    "GENEVE in IPv6": lambda p: in_udp(6081, b"\0\0\x65\x58" + bytes(4) + ethernet([p])[0]),
    "GTP": lambda p: in_udp(2152, struct.pack("!BBHI", 0x30, 255, len(p), 7) + p),
    "65,535 bytes": lambda p: MAC + b"\x88\xb5" + p + bytes(65_521 - len(p)),
    "a header alone": lambda p: MAC + b"\x88\xb5",
}
"""Kind → a frame of it around a packet: sent as it was captured."""


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
    "PPI of USB": (
        lambda p: pcap([struct.pack("<BBHI", 0, 0, 8, 220) + bytes(40)] * len(p), 192),
        "{n} packets of link type 192 (per-packet information)",
    ),
    "exported PDUs": (
        lambda p: pcap([b"\0\x0c\0\4http\0\0\0\0GET /"] * len(p), 252),
        "{n} packets of link type 252 (exported PDUs of Wireshark)",
    ),
    "Bluetooth": (lambda p: pcap([bytes(14)] * len(p), 201), "{n} packets of link type 201"),
    "CAN of `any`": (
        lambda p: pcap([struct.pack("!HHH8sH", 1, 280, 0, bytes(8), 12) + bytes(16)] * len(p), 113),
        "no packet of {n} can be sent: Linux cooked without a network packet",
    ),
    "pcapng without a packet": (lambda p: section() + interface(), "the trace holds no packets"),
    "zeros in pcapng": (
        lambda p: pcapng(ethernet(p)) + bytes(512),
        "corrupt at packet {next}, ",
    ),
    "a header of a record": (
        lambda p: pcap(ethernet(p)) + b"\1" * 9,
        "cut at packet {next}, ",
    ),
    "gzip in gzip": (
        lambda p: gzip.compress(gzip.compress(pcap(ethernet(p)))),
        "it begins with the bytes of gzip",
    ),
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


def test_frames_of_every_kind_are_sent_as_they_are(tmp_path: Path) -> None:
    for kind, made in AS_THEY_ARE.items():
        path, out = tmp_path / "made", tmp_path / "out.pcap"
        frames = [made(one) for one in packets(7)]
        path.write_bytes(pcap(frames))
        done = asked("prepare", path, out)
        assert done.returncode == 0, (kind, done.stderr)
        assert json.loads(done.stdout)["changed"] is False, (kind, done.stdout)
        content, at = out.read_bytes(), 24
        for one in frames:
            assert content[at + 16 : at + 16 + len(one)] == one, kind
            at += 16 + len(one)
        assert at == len(content), kind
        assert asked("info", path).stdout.split()[:3] == ["packets", "7", "in"], kind


@pytest.mark.parametrize("number", [7, 50])
def test_zeros_between_packets_are_none(tmp_path: Path, number: int) -> None:
    """A disk that lost a block."""
    plain = packets(number)
    path, out = tmp_path / "made", tmp_path / "out.pcap"
    content = pcap(ethernet(plain))
    path.write_bytes(content + bytes(4096) + content[24:])
    assert asked("prepare", path, out).returncode == 0
    sent, _ = prepared(out)
    assert sorted(sent) == sorted(2 * plain)
    said = " ".join(asked("info", path).stdout.split())
    assert said.startswith(f"packets {2 * number} in 0.0")
    assert "256 packets not counted here: shorter than an Ethernet header" in said
    assert "to be sent" not in said, "anything else than that"


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
