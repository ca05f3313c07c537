"""Writes the seed corpus of the fuzz targets: the frames of tests/torture.py, few and short."""

from __future__ import annotations

import struct
from pathlib import Path

from scapy.utils import PcapNgWriter, PcapWriter

from tests import torture

CORPUS = Path(__file__).parent / "corpus"
LONGEST_BYTES = 400


def main() -> None:
    frames = [bytes(packet) for packet in torture.whole()]
    frames = [frame for frame in frames if len(frame) <= LONGEST_BYTES]
    for target in ("pcap", "pcapng", "rewrite", "trace"):
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
    ng = CORPUS / "pcapng" / "three"
    with PcapNgWriter(str(ng)) as writer:
        for packet in torture.whole()[:3]:
            writer.write(packet)
    (CORPUS / "trace" / "three").write_bytes(ng.read_bytes())
    ng.write_bytes(ng.read_bytes()[4:])  # the target puts the magic before its input


if __name__ == "__main__":
    main()
