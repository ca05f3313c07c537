"""tcpreplay's words, its failures and the files it can read."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from nodrop.errors import BadInput, LoadFailed, TrialFailed
from nodrop.load.tcpreplay import Tcpreplay, parse_summary
from nodrop.load.trace import plain_trace
from nodrop.measure.runner import _failure
from nodrop.measure.trial import Measured

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
        assert load.argv("ndtx0")[-1] == str(load.plain_trace)
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
