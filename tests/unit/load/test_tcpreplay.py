"""tcpreplay's words, its failures and the files it can read."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

import pytest

from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput, LoadFailed, TrialFailed
from nodrop.load.tcpreplay import Tcpreplay, parse_summary
from nodrop.load.trace import facts_of, plain_trace
from nodrop.measure.pair import _failure
from nodrop.measure.seam import Measured

CONTENT = b"\xd4\xc3\xb2\xa1" + bytes(20)


def test_a_packed_trace_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = tmp_path / "t.pcap"
    plain.write_bytes(CONTENT)
    assert plain_trace(plain) == plain
    for name, pack in (("t.pcap.gz", gzip.compress), ("t.pcap.xz", lzma.compress)):
        packed = tmp_path / name
        packed.write_bytes(pack(CONTENT))
        load = Tcpreplay({"trace": str(packed)}, base=tmp_path)
        assert load.argv("ndtx0", str(load.plain_trace))[-1] == str(load.plain_trace)
        assert load.plain_trace.read_bytes() == CONTENT
        load.plain_trace.write_bytes(b"as it was")
        assert plain_trace(packed).read_bytes() == b"as it was"
    zstd = tmp_path / "t.zst"
    zstd.write_bytes(b"\x28\xb5\x2f\xfd....")
    with pytest.raises(BadInput, match="tcpreplay reads no zstd; unpack it"):
        plain_trace(zstd)


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
def test_a_pcapng_whose_interfaces_differ_is_refused_before_a_trial(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tcpreplay, "trace_facts", lambda _: None)

    def problems(content: bytes) -> list[str]:
        path = tmp_path / "t.pcapng"
        path.write_bytes(content)
        return list(Tcpreplay({"trace": str(path)}, base=tmp_path).problems())

    assert problems(CONTENT) == problems(pcapng((1, 65535), (1, 65535), order=order)) == []
    assert problems(pcapng((1, 0), (1, 1 << 20), order=order)) == []
    whole = pcapng((1, 65535), order=order)
    # Cut anywhere: another's business.
    assert [cut for cut in range(len(whole)) if problems(whole[:cut])] == []
    for other in (101, 65535), (1, 96):
        with pytest.raises(BadInput, match=r"interfaces differ .*1 \(65535 bytes\)"):
            problems(pcapng((1, 65535), other, order=order))


@pytest.mark.parametrize("length", [0, 13, 14])
def test_a_packet_that_no_port_sends_is_told_before_a_trial(length: int, tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = (struct.pack("<IIII", 1, 0, n, n) + bytes(n) for n in (60, length, 60))
    path.write_bytes(header + b"".join(records))
    options = ReplayOptions(trace=str(path))
    if length < 14:
        with pytest.raises(BadInput, match=f"has a packet of {length} bytes, and no port sends"):
            facts_of(options)
    else:
        assert facts_of(options).packets == 3


@pytest.mark.parametrize("multiplier", [0.4, 1.5, 3.4])
def test_tcpreplay_sends_whole_copies_only(multiplier: float, tmp_path: Path) -> None:
    trace = tmp_path / "x.pcap"
    trace.touch()
    with pytest.raises(BadInput, match=f"load.multiplier = {multiplier}: tcpreplay sends whole"):
        Tcpreplay({"trace": str(trace), "multiplier": multiplier}, base=tmp_path)
    assert Tcpreplay({"trace": str(trace), "multiplier": 3.0}, base=tmp_path).senders == 3
