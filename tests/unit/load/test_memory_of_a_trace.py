"""A trace is held in memory while it is sent: one that does not fit is refused beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput
from nodrop.testbed.load import trace
from nodrop.testbed.load.trace import memory_problem, read_trace


@pytest.mark.parametrize(
    ("available_kib", "needed_mib", "fits"),
    [(102_400, 100, True), (102_400, 101, False), (4_194_304, 4095, True), (1, 1, False)],
)
def test_what_fits(
    available_kib: int, needed_mib: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "meminfo"
    said.write_text(
        f"MemTotal: 99999999 kB\nMemAvailable:  {available_kib} kB\nHugePages_Total: 0\n"
    )
    monkeypatch.setattr(trace, "MEMINFO", said)
    problem = memory_problem(Path("big.pcap"), needed_mib * 2**20)
    assert (problem == "") == fits
    if not fits:
        assert f"takes about {needed_mib:,} MiB" in problem and "big.pcap" in problem


@pytest.mark.parametrize("said", ["", "MemTotal: 5 kB\n", "MemAvailable: much kB\n"])
def test_a_kernel_that_does_not_say_refuses_nothing(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    file.write_text(said)
    monkeypatch.setattr(trace, "MEMINFO", file)
    assert memory_problem(Path("big.pcap"), 2**60) == ""


def test_a_file_that_does_not_fit_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said = tmp_path / "big.pcap", tmp_path / "meminfo"
    with file.open("wb") as empty:
        empty.truncate(1 << 30)  # a hole: no capture, so reading it would say something else
    said.write_text("MemAvailable: 1024 kB\n")
    monkeypatch.setattr(trace, "MEMINFO", said)
    with pytest.raises(BadInput, match="takes about 1,024 MiB, and this host has 1 MiB"):
        read_trace(file, ReplayOptions.model_validate({"trace": str(file)}))
