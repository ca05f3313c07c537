"""tcpreplay's words, its failures and the files it can read."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

import pytest

from nodrop.errors import BadInput, LoadFailed, TrialFailed
from nodrop.measure.api import Measured
from nodrop.measure.pair import _failure
from nodrop.testbed.load.tcpreplay import Tcpreplay, parse_summary

FRAME = bytes(range(60))
CONTENT = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
CONTENT += struct.pack("<IIII", 1, 0, 60, 60) + FRAME


def test_a_packed_trace_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = tmp_path / "t.pcap"
    plain.write_bytes(CONTENT)
    assert Tcpreplay({"trace": str(plain)}, base=tmp_path).plain_trace == plain
    for name, pack in (("t.pcap.gz", gzip.compress), ("t.pcap.xz", lzma.compress)):
        packed = tmp_path / name
        packed.write_bytes(pack(CONTENT))
        load = Tcpreplay({"trace": str(packed)}, base=tmp_path)
        assert load.argv("ndtx0", str(load.plain_trace))[-1] == str(load.plain_trace)
        assert load.plain_trace.read_bytes().endswith(FRAME)
        load.plain_trace.write_bytes(b"as it was")
        again = Tcpreplay({"trace": str(packed)}, base=tmp_path)
        assert again.plain_trace.read_bytes() == b"as it was"


def test_a_broken_generator_is_not_blamed_on_the_sut() -> None:
    with pytest.raises(LoadFailed, match="said nothing about what it sent") as caught:
        parse_summary("Fatal Error")
    assert _failure(caught.value, Measured()).code == "load_failed"
    assert _failure(TrialFailed("x"), Measured()).code == "sut_not_ready"


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def pcapng(*interfaces: tuple[int, int], order: str = "<") -> bytes:
    found = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    for linktype, snapshot in interfaces:
        found += block(1, struct.pack(f"{order}HHI", linktype, 0, snapshot), order)
        frame = bytes(60)
        head = struct.pack(f"{order}IIIII", 0, 0, 7, len(frame), len(frame))
        found += block(6, head + frame, order)
    return found


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("other", [(1, 96), (1, 0), (101, 65535)])
def test_a_pcapng_whose_interfaces_differ_is_sent_as_a_pcap(
    order: str, other: tuple[int, int], tmp_path: Path
) -> None:
    def sent(content: bytes) -> tuple[bool, bytes]:
        path = tmp_path / "t.pcapng"
        path.write_bytes(content)
        load = Tcpreplay({"trace": str(path)}, base=tmp_path)
        assert list(load.problems()) == []
        return load.plain_trace == path, load.plain_trace.read_bytes()

    assert sent(pcapng((1, 65535), (1, 65535), order=order))[0]
    assert sent(pcapng((1, 0), (1, 1 << 20), order=order))[0]
    as_it_is, content = sent(pcapng((1, 65535), other, order=order))
    assert not as_it_is
    assert content.startswith(b"\x4d\x3c\xb2\xa1")


@pytest.mark.parametrize("multiplier", [0.4, 1.5, 3.4])
def test_tcpreplay_sends_whole_copies_only(multiplier: float, tmp_path: Path) -> None:
    trace = tmp_path / "x.pcap"
    trace.touch()
    with pytest.raises(BadInput, match=f"load.multiplier = {multiplier}: tcpreplay sends whole"):
        Tcpreplay({"trace": str(trace), "multiplier": multiplier}, base=tmp_path)
    assert Tcpreplay({"trace": str(trace), "multiplier": 3.0}, base=tmp_path).senders == 3
