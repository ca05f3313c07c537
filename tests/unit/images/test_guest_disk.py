"""The disk of a guest is kept by what it holds: one that changed is made anew."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.images import guest_assets
from nodrop.testbed.images.image_tree import Bits

CONTENT = bytes(range(256)) * 64


def said(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Stands in for du and mkfs.ext4."""
    if argv[0] == "mkfs.ext4":
        Path(argv[-2]).write_bytes(CONTENT)
    return subprocess.CompletedProcess(argv, 0, "4096 x", "")


@pytest.mark.parametrize("at", [0, 7777, len(CONTENT) - 1, len(CONTENT)])
def test_a_disk_that_changed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(guest_assets, "run_command", said)
    bits = Bits(kind="image", path=tmp_path / "rootfs", sha256="0")
    made = guest_assets._make_disk(bits)
    monkeypatch.setattr(guest_assets, "run_command", None)
    assert guest_assets._make_disk(bits) == made, "kept"
    before = made.stat()
    with made.open("r+b") as file:
        file.seek(at)
        file.write(b"?")
    os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert guest_assets._disk(bits) is None
    monkeypatch.setattr(guest_assets, "run_command", said)
    assert guest_assets._make_disk(bits).read_bytes() == CONTENT
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_of_an_older_nodrop_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_assets, "run_command", said)
    (tmp_path / "guest-disk.ext4").write_bytes(b"whatever")
    made = guest_assets._make_disk(Bits(kind="image", path=tmp_path / "rootfs", sha256="0"))
    assert made.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [made]
