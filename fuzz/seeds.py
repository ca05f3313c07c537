"""Writes the seed corpus of the fuzz targets: the frames of tests/torture.py, few and short."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

from scapy.utils import PcapNgWriter, PcapWriter

from tests import torture

CORPUS = Path(__file__).parent / "corpus"
LONGEST_BYTES = 400
TARGETS = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_targets/*.rs"))
COOKED, RAW, PPP = 113, 101, 9


def main() -> None:
    frames = [bytes(packet) for packet in torture.whole()]
    frames = [frame for frame in frames if len(frame) <= LONGEST_BYTES]
    for target in TARGETS:
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for number in range(0, len(frames), 5):
        some = frames[number : number + 5]
        framed = b"".join(struct.pack("!H", len(frame)) + frame for frame in some)
        (CORPUS / "rewrite" / f"seed{number:02}").write_bytes(framed)
    for name, endianness, nano in (("little", "<", False), ("big", ">", True)):
        with PcapWriter(str(CORPUS / "pcap" / name), endianness=endianness, nano=nano) as writer:
            writer.write_header(None)
            for frame in frames[:3]:
                writer.write_packet(frame, sec=1, usec=2)
    with PcapWriter(str(CORPUS / "trace" / "all"), linktype=1) as writer:
        writer.write_header(None)
        for number, frame in enumerate(frames):
            writer.write_packet(frame, sec=number // 7, usec=number)
    others(frames)
    ng = CORPUS / "pcapng" / "three"
    with PcapNgWriter(str(ng)) as writer:
        for packet in torture.whole()[:3]:
            writer.write(packet)
    (CORPUS / "trace" / "three").write_bytes(ng.read_bytes())
    ng.write_bytes(ng.read_bytes()[4:])  # the target puts the magic before its input


def others(frames: list[bytes]) -> None:
    """Seeds for the decoders of packed files, other links, joined frames and tunnels."""
    for number, frame in enumerate(frames[::3]):
        (CORPUS / "tunnel" / f"frame{number:02}").write_bytes(frame)
        (CORPUS / "segment" / f"frame{number:02}").write_bytes(struct.pack("!H", 120) + frame)
    network = next(frame[14:] for frame in frames if frame[12:14] == b"\x08\x00")
    heads = {COOKED: bytes(14) + b"\x08\x00", RAW: b"", PPP: b"\xff\x03\x00\x21"}
    for linktype, head in heads.items():
        name = f"link{linktype}"
        (CORPUS / "ethernet" / name).write_bytes(struct.pack("!H", linktype) + head + network)
        with PcapWriter(str(CORPUS / "prepare" / name), linktype=linktype) as writer:
            writer.write_header(None)
            writer.write_packet(head + network, sec=1, usec=2, wirelen=len(head + network) + 99)
        file = CORPUS / "prepare" / name
        file.write_bytes(b"\0" + file.read_bytes())  # the options
    whole = (CORPUS / "trace" / "all").read_bytes()
    (CORPUS / "prepare" / "all").write_bytes(b"\0" + whole)
    joined = frames[0][:12] + b"\x08\x00" + tcp_of(bytes(3_000))
    for number in (0, 1):
        (CORPUS / "segment" / f"joined{number}").write_bytes(
            struct.pack("!H", 1_500 - 900 * number) + joined
        )
    record = struct.pack("!6I", 60, 60, 84, 0, 7, 9) + frames[0][:60].ljust(60, b"\0")
    (CORPUS / "snoop" / "two").write_bytes(struct.pack("!2I", 2, 4) + record * 2)
    short = whole[:1_200]
    for kind, packed in enumerate((gzip.compress(short), None, lzma.compress(short))):
        if packed is not None:
            magic = 2 if kind == 0 else 6
            (CORPUS / "packed" / f"format{kind}").write_bytes(bytes([kind]) + packed[magic:])
    # Blocks that are stored: zstd and lz4.
    block = struct.pack("<I", len(short) << 3 | 1)[:3] + short
    (CORPUS / "packed" / "format1").write_bytes(b"\x01\x00\x58" + block)
    block = struct.pack("<I", len(short) | 1 << 31) + short
    (CORPUS / "packed" / "format3").write_bytes(b"\x03\x60\x40\x82" + block + bytes(4))


def tcp_of(payload: bytes) -> bytes:
    """A datagram as TSO hands it on: longer than the wire's."""
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 7, 0, 64, 6, 0, b"\x0a" * 4, b"\x0b" * 4
    )
    return ip + struct.pack("!HHIIBBHHH", 1_024, 80, 9, 9, 0x50, 0x18, 99, 0, 0) + payload


if __name__ == "__main__":
    main()
