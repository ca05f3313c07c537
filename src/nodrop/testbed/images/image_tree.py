"""Is a cached image still what its hash says: its tar is hashed, its tree compared with the tar.

Reading both takes about a second for 200 MB. After that only what stat() says of each file is
looked at, which takes hundredths of a second: nothing is written without a new change time.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from filecmp import cmp
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """The bits of a program that run: from an image (root filesystem) or a binary of the host."""

    kind: str
    """`image` or `binary`."""
    path: Path
    """Unpacked root filesystem folder, or the binary."""
    sha256: str
    """Hash of the image tar, or of the binary."""
    version: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)


PIECE_BYTES = 1 << 20
NOT_UNPACKED = "dev"
"""Folder of device nodes, which are the host's (images/image_cache.py)."""

Tree = Mapping[str, os.stat_result]

_found_right: dict[tuple[Path, str], Mapping[str, tuple[int, ...]]] = {}
"""Image → what stat() said of its files just before they were compared."""


def image_tar(rootfs: Path) -> Path:
    """The tar that an unpacked image of the cache came from (images/image_cache.py)."""
    return rootfs.with_name("rootfs.tar")


def first_difference(bits: Bits | None) -> str | None:
    """The first difference of an image from what its sha256 stands for, in words. None: nothing, or
    no image.

    Names, kinds, contents and targets of links are compared. Owners and modes are not: those of an
    image that a normal user unpacked are that user's; nor are folders that were added.
    """
    if bits is None or bits.kind != "image":
        return None
    tar, image = image_tar(bits.path), (bits.path, bits.sha256)
    try:
        tree, closed = _walk(bits.path)
        stamps = {name: _stamp(said) for name, said in {**tree, ".": tar.stat()}.items()}
        if _found_right.get(image) == stamps:
            return None
        found = _compared(tar, bits, tree, closed)
    except OSError as error:
        return f"{error.filename or tar}: {error.strerror}"
    if found is None:
        _found_right[image] = stamps
    return found


def _stamp(said: os.stat_result) -> tuple[int, ...]:
    return (said.st_dev, said.st_ino, said.st_size, said.st_mtime_ns, said.st_ctime_ns)


def _compared(tar: Path, bits: Bits, tree: Tree, closed: frozenset[str]) -> str | None:
    with _Hashing(tar) as hashing:
        try:
            with tarfile.open(fileobj=hashing, mode="r|", bufsize=PIECE_BYTES) as members:
                other = _first_other(members, bits.path, tree, closed)
        except tarfile.TarError:
            other = "."  # its hash is another, too: said below
        while hashing.read(PIECE_BYTES):
            pass
    if hashing.sha256.hexdigest() != bits.sha256:
        return f"{tar} has another sha256 than the image's name says"
    return None if other is None else f"{bits.path / other} is not what {tar} holds"


class _Hashing(io.FileIO):
    """Read once, from the beginning; what was read is hashed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sha256 = hashlib.sha256()

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size) or b""
        self.sha256.update(piece)
        return piece


def _first_other(
    members: tarfile.TarFile, root: Path, tree: Tree, closed: frozenset[str]
) -> str | None:
    left = {name for name, said in tree.items() if not stat.S_ISDIR(said.st_mode)}
    for member in members:
        name = member.name.removeprefix("./")
        if name in (".", NOT_UNPACKED) or name.startswith((f"{NOT_UNPACKED}/", *closed)):
            continue
        left.discard(name)
        if name not in tree or not _same(members, member, root, tree[name].st_mode):
            return name
    return min(left, default=None)


def _same(members: tarfile.TarFile, member: tarfile.TarInfo, root: Path, mode: int) -> bool:
    path = root / member.name
    if member.issym():
        return stat.S_ISLNK(mode) and str(path.readlink()) == member.linkname
    if member.isdir():
        return stat.S_ISDIR(mode)
    if not stat.S_ISREG(mode):
        return False
    # What this user may not read, no SUT of this user can.
    with suppress(*([] if os.geteuid() == 0 else [PermissionError])):
        if member.islnk():  # to one that came before
            return cmp(path, root / member.linkname, shallow=False)
        packed = members.extractfile(member)
        return packed is not None and _same_content(packed, path)
    return True


def _same_content(packed: IO[bytes], path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        while piece := packed.read(PIECE_BYTES):
            if file.read(len(piece)) != piece:
                return False
        return not file.read(1)


def _walk(root: Path) -> tuple[Tree, frozenset[str]]:
    """Everything below, no link followed; and the folders that this user may not look into."""
    tree: dict[str, os.stat_result] = {}
    closed: set[str] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(root / folder))
        except PermissionError:
            if os.geteuid() == 0:
                raise
            closed.add(f"{folder}/")
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}".lstrip("/")
            if name == NOT_UNPACKED:
                continue
            tree[name] = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
    return tree, frozenset(closed)
