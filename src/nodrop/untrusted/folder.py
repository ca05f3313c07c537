"""A folder that others may have filled: run directories, journals, caches, data sets.

The folder's own path is the user's word and may lead through links. Below it no link is followed,
each name is opened relative to its open parent (nothing can be exchanged on the way), and
only regular files are opened: a FIFO or a device is refused and never waited for.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from nodrop.errors import BadInput
from nodrop.untrusted import json_text

_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = 0o022


class RefusedFile(OSError):
    """Something is there and is not used; `strerror` says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, str(path))


@dataclass(frozen=True, slots=True)
class Folder:
    """`root`, or the folder `below` it. Nothing is opened before it is asked for."""

    root: Path
    below: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Path for words and for programs; reading goes by the methods."""
        return self.root.joinpath(*self.below)

    def folder(self, *names: str) -> Folder:
        return Folder(self.root, (*self.below, *names))

    def names(self) -> list[str]:
        """Sorted; nothing if there is no such folder. Links, FIFOs and devices are among them."""
        most = json_text.raised(json_text.FOLDER_ENTRIES)
        found: list[str] = []
        try:
            with self._held() as handle, os.scandir(handle) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) > most:
                        raise RefusedFile(self.path, f"has more than {most:,} entries{_more()}")
        except FileNotFoundError:
            return []
        return sorted(found)

    def changed_ns(self) -> int:
        """Time at which a name in the folder last came or went."""
        with self._held() as handle:
            return os.fstat(handle).st_mtime_ns

    def folders(self) -> list[str]:
        """Names of real folders in it, sorted."""
        return [name for name in self.names() if stat.S_ISDIR(self._mode(name))]

    def is_file(self, name: str) -> bool:
        """A regular file, and no link to one."""
        return stat.S_ISREG(self._mode(name))

    def size(self, name: str) -> int:
        """Bytes of a file; 0 if there is no such file."""
        try:
            with self.open(name) as file:
                return os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return 0

    def is_there(self, name: str) -> bool:
        """Anything of this name, a dangling link too."""
        return self._mode(name) != 0

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A regular file for reading; who reads it bounds how much."""
        with self._held() as handle:
            descriptor = _opened(name, os.O_RDONLY, self.path / name, within=handle)
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def read(self, name: str, *, most_bytes: int = json_text.SMALL_FILE_BYTES) -> bytes:
        with self.open(name) as file:
            return _whole(file, self.path / name, most_bytes)

    def lines(self, name: str, *, begin: int = 0) -> Iterator[bytes]:
        """Line by line with their ends, from byte `begin`; a half-written last one has none."""
        with self.open(name) as file:
            file.seek(begin)
            yield from bounded_lines(file, self.path / name)

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        with self.writing(name, durable=durable) as file:
            file.write(content)

    @contextmanager
    def writing(self, name: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        """Writes a file as a whole or not at all: what a link of this name leads to stays as it
        is."""
        partial = f"{_component(name)}.part"
        with self._held() as handle:
            with suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=handle)
            descriptor = os.open(
                _component(partial),
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN,
                0o666,
                dir_fd=handle,
            )
            try:
                with os.fdopen(descriptor, "wb") as file:
                    yield file
                    file.flush()
                    if durable:
                        os.fsync(descriptor)
                os.rename(partial, _component(name), src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with suppress(OSError):
                    os.unlink(partial, dir_fd=handle)
                raise
            if durable:
                os.fsync(handle)

    @contextmanager
    def open_to_change(self, name: str, *, append: bool = False) -> Iterator[FileIO]:
        """A file of ours that is read and changed in place; made if it is not there. One
        with a second name (a hard link) or another owner is refused: it may be anything."""
        file = self.changing(name, append=append)
        try:
            yield file
        finally:
            file.close()

    def changing(self, name: str, *, append: bool = False, mode: int = 0o666) -> FileIO:
        """`open_to_change` for who closes it later."""
        flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if append else 0)
        with self._held() as handle:
            descriptor = _opened(name, flags, self.path / name, within=handle, mode=mode)
        found = os.fstat(descriptor)
        if found.st_nlink > 1 or found.st_uid != os.geteuid():
            os.close(descriptor)
            whose = "has a second name" if found.st_nlink > 1 else f"belongs to user {found.st_uid}"
            raise RefusedFile(self.path / name, f"{whose}: it is not written to")
        return os.fdopen(descriptor, "rb+", buffering=0)

    def rename(self, old: str, new: str) -> None:
        """Renames a file within this folder; it is on disk when this returns."""
        with self._held() as handle:
            os.rename(_component(old), _component(new), src_dir_fd=handle, dst_dir_fd=handle)
            os.fsync(handle)

    def make(self, *, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Makes this folder; those above it are there."""
        *above, name = self.below
        with Folder(self.root, tuple(above))._held() as handle:
            try:
                os.mkdir(_component(name), mode, dir_fd=handle)
            except FileExistsError:
                if not exist_ok or not stat.S_ISDIR(_mode_at(name, handle)):
                    raise

    def make_all(self) -> None:
        """Makes this folder and those between it and the root; what is there stays."""
        for depth in range(1, len(self.below) + 1):
            Folder(self.root, self.below[:depth]).make(exist_ok=True)

    def remove(self, name: str) -> None:
        """A file, a link itself, or a folder with what is in it; links in it are not followed."""
        with self._held() as handle:
            if stat.S_ISDIR(_mode_at(name, handle)):
                shutil.rmtree(_component(name), dir_fd=handle)
            else:
                os.unlink(_component(name), dir_fd=handle)

    def must_be_ours(self, what: str) -> None:
        """BadInput if another user owns the folder, or (as root) others may write to it: what is in
        it would be done with our rights."""
        with self._held() as handle:
            found = os.fstat(handle)
        us = os.geteuid()
        if found.st_uid != us:
            raise BadInput(
                f"{self.path}: {what} of user {found.st_uid}, and this is user {us}",
                hint="run as that user, or choose a folder of your own",
            )
        if us == 0 and stat.S_IMODE(found.st_mode) & _WRITABLE_BY_OTHERS:
            raise BadInput(
                f"{self.path}: {what}, and other users may write to it",
                hint=f"chmod go-w {self.path}",
            )

    def _mode(self, name: str) -> int:
        """Mode of a name; 0 if there is nothing."""
        try:
            with self._held() as handle:
                return _mode_at(name, handle)
        except OSError:
            return 0

    @contextmanager
    def _held(self) -> Iterator[int]:
        handle = os.open(self.root, _FOLDER)
        try:
            for depth, name in enumerate(self.below, 1):
                where = self.root.joinpath(*self.below[:depth])
                step = _component(name)
                try:
                    inner = os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if stat.S_ISLNK(_mode_at(name, handle)):
                        raise RefusedFile(where, "is a link, which is not followed") from None
                    raise OSError(error.errno, error.strerror, str(where)) from None
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def read_file(path: Path, *, most_bytes: int = json_text.SMALL_FILE_BYTES) -> bytes:
    """A file that the user named: links on the way are his; no FIFO, no device, not too large."""
    with open_file(path) as file:
        return _whole(file, path, most_bytes)


def read_from(path: Path, begin: int, *, most_bytes: int) -> bytes:
    """Content from byte `begin` to the end of a file that a SUT or a guest writes; the folder is
    ours."""
    with Folder(path.parent).open(path.name) as file:
        file.seek(begin)
        return _whole(file, path, most_bytes)


def read_end(path: Path, *, bytes_from_end: int) -> bytes:
    """The last bytes of such a file; nothing if it cannot be read."""
    try:
        with Folder(path.parent).open(path.name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - bytes_from_end))
            return file.read(bytes_from_end)
    except OSError:
        return b""


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """A file that the user named, for a reader that takes it in pieces: no FIFO, no device."""
    descriptor = os.open(path, (os.O_RDONLY | _PLAIN) & ~os.O_NOFOLLOW)
    _must_be_regular(descriptor, path)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def append_whole(file: FileIO, content: bytes) -> None:
    """Appends content that is on disk when this returns; if it cannot be (a full disk), nothing of
    it is."""
    before = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())
    except BaseException:
        file.truncate(before)
        raise


def bounded_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Lines with their ends; one that is too long ends it with Refused."""
    most, left = (
        json_text.raised(json_text.LINE_BYTES),
        json_text.raised(json_text.LINES_FILE_BYTES),
    )
    while line := file.readline(most + 1):
        left -= len(line)
        if len(line) > most:
            raise RefusedFile(path, f"has a line of more than {json_text.said(most)}{_more()}")
        if left < 0:
            raise RefusedFile(
                path, f"has more than {json_text.said(json_text.LINES_FILE_BYTES)}{_more()}"
            )
        yield line


def _opened(name: str, flags: int, path: Path, *, within: int, mode: int = 0o666) -> int:
    name = _component(name)
    try:
        descriptor = os.open(name, flags | _PLAIN, mode, dir_fd=within)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedFile(path, "is a link, which is not followed") from None
        if error.errno == errno.ENXIO:
            raise RefusedFile(path, "is no regular file") from None  # a FIFO or socket, for writing
        raise OSError(error.errno, error.strerror, str(path)) from None
    _must_be_regular(descriptor, path)
    return descriptor


def _must_be_regular(descriptor: int, path: Path) -> None:
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise RefusedFile(path, "is no regular file")


def _whole(file: BinaryIO, path: Path, most_bytes: int) -> bytes:
    most = json_text.raised(most_bytes)
    content: bytes | None = file.read(most + 1)
    if content is None:  # /proc/kmsg is a regular file, and nothing is waited for
        raise RefusedFile(path, "has nothing to read now")
    if len(content) > most:
        raise RefusedFile(path, f"is larger than {json_text.said(most)}{_more()}")
    return content


def _more() -> str:
    return f" ({json_text.KEY}=… in the environment allows more)"


def _mode_at(name: str, handle: int) -> int:
    try:
        return os.stat(_component(name), dir_fd=handle, follow_symlinks=False).st_mode
    except (FileNotFoundError, ValueError):
        return 0


def _component(name: str) -> str:
    """A name that is one step down and nothing else."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise RefusedFile(Path(name.replace("\0", "\\0")), "is no name of a file")
    return name
