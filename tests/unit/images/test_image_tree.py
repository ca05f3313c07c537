"""An unpacked image against the tar that names it: whatever differs is found, and named."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.testbed.images import image_tree
from nodrop.testbed.images.image_tree import Bits, first_difference

LIBRARY = "usr/lib/libhtp.so.2"
MEGABYTE = bytes(range(256)) * 4096


@pytest.fixture
def bits(tmp_path: Path) -> Bits:
    root, tar = tmp_path / "rootfs", tmp_path / "rootfs.tar"
    for name, content in {
        LIBRARY: MEGABYTE * 2 + b"end",
        "usr/bin/suricata": b"program",
        "etc/empty": b"",
        "etc/a very long name/" + "x" * 150: b"long",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "usr/lib/libhtp.so").symlink_to("libhtp.so.2")
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/bin/other-name").hardlink_to(root / "usr/bin/suricata")
    (root / "dev").mkdir()
    with tarfile.open(tar, "w") as packed:
        packed.add(root, ".")
        packed.addfile(tarfile.TarInfo("./dev/null"))  # left out when it is unpacked
    return Bits(kind="image", path=root, sha256=hashlib.sha256(tar.read_bytes()).hexdigest())


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def flip(path: Path, at: int) -> None:
    """One bit; size and modification time as before."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def relink(path: Path, to: str) -> None:
    path.unlink()
    path.symlink_to(to)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte appended": (lambda root: append(root / LIBRARY), LIBRARY),
    "a bit in the first piece": (lambda root: flip(root / LIBRARY, 0), LIBRARY),
    "a bit in the last piece": (lambda root: flip(root / LIBRARY, 2 * len(MEGABYTE)), LIBRARY),
    "cut short": (lambda root: os.truncate(root / LIBRARY, 4097), LIBRARY),
    "no longer empty": (lambda root: append(root / "etc/empty"), "etc/empty"),
    "removed": (lambda root: (root / "etc/empty").unlink(), "etc/empty"),
    "added": (lambda root: (root / "etc/ld.so.preload").touch(), "etc/ld.so.preload"),
    "a link elsewhere": (
        lambda root: relink(root / "usr/lib/libhtp.so", "/tmp/libhtp.so"),
        "usr/lib/libhtp.so",
    ),
    "a link instead of a file": (lambda root: relink(root / LIBRARY, "libhtp.so"), LIBRARY),
    "a folder instead of a link": (
        lambda root: ((root / "lib").unlink(), (root / "lib").mkdir()),
        "lib",
    ),
    "a file instead of a folder": (
        lambda root: (shutil.rmtree(root / "etc"), (root / "etc").touch()),
        "etc",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("asked_before", [False, True])
def test_what_differs_is_named(bits: Bits, change: str, asked_before: bool) -> None:
    if asked_before:
        assert first_difference(bits) is None
    make, named = CHANGES[change]
    make(bits.path)
    for _ in range(2):  # and it stays so
        found = first_difference(bits)
        assert found is not None
        assert found.startswith(f"{bits.path}/{named} is not what "), found


def test_a_tar_that_is_not_the_one_named(bits: Bits) -> None:
    tar = bits.path.with_name("rootfs.tar")
    flip(tar, tar.stat().st_size - 1)  # behind the last member, where no file is
    assert first_difference(bits) == f"{tar} has another sha256 than the image's name says"
    for content in (b"", b"no tar", tar.read_bytes()[:700]):
        tar.write_bytes(content)
        assert first_difference(bits) == f"{tar} has another sha256 than the image's name says"
    tar.unlink()
    assert first_difference(bits) == f"{tar}: No such file or directory"


def test_what_is_as_it_was_is_not_read_again(bits: Bits, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_difference(bits) is None
    (bits.path / "new-folder").mkdir()
    assert first_difference(bits) is None, "touched, compared anew, and the same"
    monkeypatch.setattr(image_tree, "_compared", lambda *_: "read again")
    assert first_difference(bits) is None
    (bits.path / LIBRARY).chmod(0o600)
    assert first_difference(bits) == "read again"


def test_a_program_of_the_host_has_no_tree(tmp_path: Path) -> None:
    assert first_difference(Bits(kind="binary", path=tmp_path / "suricata", sha256="0")) is None
    assert first_difference(None) is None
