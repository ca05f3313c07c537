"""A guest boots the bytes that were unpacked and made for it, or new ones."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest

from nodrop.testbed.images.guest_assets import (
    DRIVERS,
    GuestKernel,
    _initramfs,
    cached_kernel,
    guest_folder,
)
from nodrop.untrusted.folder import Folder

FILES = {"vmlinuz": b"kernel" * 999, "modules/a.ko": b"a" * 500, "modules/order": b"a.ko\n"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def unpacked() -> GuestKernel:
    folder = guest_folder() / "kernel-0"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    said = {"package": "linux", "version": "6.1", "sha256": "0", "drivers": DRIVERS}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    (folder / "manifest.json").write_text(json.dumps({**said, "files": hashes}))
    kernel = cached_kernel()
    assert kernel is not None
    return kernel


def change(path: Path, at: int) -> None:
    """Changes a byte of a file, and none of its times."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("at", [0, 77, 499])
@pytest.mark.parametrize("name", FILES)
def test_a_changed_kernel_is_not_booted(
    capsys: pytest.CaptureFixture[str], name: str, at: int
) -> None:
    kernel = unpacked()
    assert cached_kernel() == kernel
    change(kernel.image.parent / name, at)
    assert cached_kernel() is None
    assert f"{name} is not what was unpacked there" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["vmlinuz", "modules/a.ko", "modules/order"])
def test_a_missing_added_or_linked_file_is_seen(name: str, tmp_path: Path) -> None:
    folder = unpacked().image.parent
    (folder / "modules/new.ko").write_bytes(b"")
    assert cached_kernel() is None
    (folder / "modules/new.ko").unlink()
    assert cached_kernel() is not None
    (folder / name).rename(tmp_path / "elsewhere")
    assert cached_kernel() is None
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert cached_kernel() is None


@pytest.mark.parametrize("files", [None, [], {}, {"vmlinuz": 7}, {"../../x": "0"}])
def test_a_manifest_without_its_hashes_is_not_believed(files: object) -> None:
    folder = unpacked().image.parent
    said = {"package": "linux", "version": "6.1", "sha256": "0", "drivers": DRIVERS}
    said = {**said, "files": files}
    (folder / "manifest.json").write_text(json.dumps(said))
    assert cached_kernel() is None


def test_an_initramfs_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    kernel, node = unpacked(), tmp_path / "node"
    node.write_bytes(b"node")
    first = _initramfs(kernel, node)
    content = first.read_bytes()
    first.unlink()
    assert _initramfs(kernel, node) == first and first.read_bytes() == content
    node.write_bytes(b"another")
    assert _initramfs(kernel, node) != first


@pytest.mark.parametrize("at", [0, 33, 10_000])
def test_a_changed_initramfs_is_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    kernel, node = unpacked(), tmp_path / "node"
    node.write_bytes(b"node" * 100)
    made = _initramfs(kernel, node)
    content = made.read_bytes()
    change(made, at)
    assert _initramfs(kernel, node) == made and made.read_bytes() == content
    assert "made anew" in capsys.readouterr().err
    made.unlink()
    made.symlink_to("/etc/shadow")
    assert _initramfs(kernel, node) == made and not made.is_symlink()


def test_a_module_that_changed_makes_another_initramfs(tmp_path: Path) -> None:
    kernel, node = unpacked(), tmp_path / "node"
    node.write_bytes(b"node")
    first = _initramfs(kernel, node)
    other = dataclasses.replace(kernel, files={**kernel.files, "modules/a.ko": "1"})
    assert _initramfs(other, node) != first
    assert Folder(guest_folder()).is_file(first.name)
