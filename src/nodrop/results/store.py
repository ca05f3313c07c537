"""A store of objects, as fsspec knows it: S3, or another. It is asked for no append, no rename and
no lock, for it has none."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.untrusted.words import one_line

MARK = "://"
"""The mark of a path in a store: `s3://bucket/folder`."""
EXTRA = "pip install 'nodrop[s3]', or the package that it names"
PATIENT = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2}}
FRESH = {"use_listings_cache": False}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": PATIENT},
    "file": {"auto_mkdir": True},
}
UNFIT = {
    "memory": "is gone when this command ends",
    **dict.fromkeys(("http", "https"), "takes no files, being a web server"),
}
"""Schemes of fsspec that can hold no run."""
ANSWERS_S = 45.0
"""One read_timeout, one more try, and some."""
PART_BYTES = 1 << 24
STAMPS = ("ETag", "etag", "md5Hash", "generation")
"""Which of what a store says of an object changes with its content; else its size and time do."""


class StoreLost(LabProblem):
    """It does not answer, or not as it should. In one sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, as a store lists it."""

    size: int
    stamp: str
    """Another one, another content."""


@dataclass(frozen=True, slots=True)
class Store:
    url: str
    """With its scheme, without a slash at its end."""
    _system: Any
    _root: str

    @classmethod
    def of(cls, url: str) -> Store:
        """Asks nothing of it yet. BadInput or NotReady if there can be no such store."""
        scheme, _, rest = url.partition(MARK)
        if not rest.strip("/"):
            raise BadInput(f"{url}: names no place; s3{MARK}bucket/folder does")
        if scheme in UNFIT:
            raise BadInput(f"{url}: {UNFIT[scheme]}; s3{MARK}bucket/folder can keep a run")
        try:
            import fsspec

            options = {**FRESH, **OPTIONS.get(scheme, {})}
            system, root = fsspec.url_to_fs(url.rstrip("/"), **options)
        except ImportError as missing:
            raise NotReady(f"{url}: {one_line(missing)}", hint=EXTRA) from None
        except (ValueError, TypeError) as unknown:
            raise BadInput(
                f"{url}: is in no store that fsspec knows: {one_line(unknown)}"
            ) from None
        except OSError as refused:  # some connect at once
            raise NotReady(f"{url}: {one_line(refused)}") from None
        return cls(url.rstrip("/"), system, root.rstrip("/"))

    def below(self, name: str) -> Store:
        return Store(f"{self.url}/{name}", self._system, f"{self._root}/{name}")

    def must_answer(self) -> None:
        """StoreLost if there is no bucket, no credentials, no server."""
        with self._asking():
            _within(
                ANSWERS_S,
                lambda: self._system.ls(self._root.partition("/")[0] or "/", detail=False),
            )

    def folders(self) -> list[str]:
        """Names directly in it; none if it is not there yet."""
        try:
            with self._asking():
                found = _within(ANSWERS_S, lambda: self._system.ls(self._root, detail=True))
        except StoreLost as lost:
            if isinstance(lost.__cause__, FileNotFoundError):
                return []
            raise
        return sorted(_last(one["name"]) for one in found if one["type"] == "directory")

    def files(self, below: str = "") -> dict[str, Entry]:
        with self._asking():
            root = f"{self._root}/{below}".rstrip("/")
            found = _within(ANSWERS_S, lambda: self._system.find(root, detail=True))
        return {name.removeprefix(f"{self._root}/"): _entry(of) for name, of in found.items()}

    def has(self, name: str) -> bool:
        with self._asking():
            path = f"{self._root}/{name}"
            return bool(_within(ANSWERS_S, lambda: self._system.isfile(path)))

    def file(self, name: str) -> Entry:
        with self._asking():
            return _entry(self._system.info(f"{self._root}/{name}"))

    def put(self, files: Mapping[str, bytes]) -> None:
        with self._asking():
            self._system.pipe({f"{self._root}/{name}": content for name, content in files.items()})

    def put_file(self, name: str, file: IO[bytes]) -> None:
        """One that has no room in memory."""
        with self._asking(), self._system.open(f"{self._root}/{name}", "wb") as there:
            while part := file.read(PART_BYTES):
                there.write(part)

    def claim(self, name: str, content: bytes) -> bytes:
        """The content of the object: `content`, if there was none before."""
        path = f"{self._root}/{name}"
        with self._asking():
            if not self._system.exists(path):
                try:
                    self._system.pipe_file(path, content, mode="create")
                    return content
                except Exception:  # that there is one by now has no class in common, either
                    if not self._system.exists(path):
                        raise
            return bytes(self._system.cat_file(path))

    def get(self, names: Sequence[str]) -> dict[str, bytes]:
        with self._asking():
            found = self._system.cat([f"{self._root}/{name}" for name in names])
            return {name: found[f"{self._root}/{name}"] for name in names}

    def get_file(self, name: str, file: IO[bytes]) -> None:
        """One that has no room in memory."""
        with self._asking(), self._system.open(f"{self._root}/{name}", "rb") as there:
            while part := there.read(PART_BYTES):
                file.write(part)

    def remove(self, names: Sequence[str]) -> None:
        """Removes those of the files that are there."""
        with self._asking(), suppress(FileNotFoundError):
            self._system.rm([f"{self._root}/{name}" for name in names])

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as failed:  # what stores raise has no class in common
            said = one_line(failed, longest=300) or type(failed).__name__
            raise StoreLost(f"{self.url}: {said}") from failed


@contextmanager
def before_anything() -> Iterator[None]:
    """A store that does not answer is bad luck later; here it is a reason not to begin."""
    try:
        yield
    except StoreLost as lost:
        raise NotReady(lost.message, hint=lost.hint) from lost


def _within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The answer, or TimeoutError: a store that accepts and never answers is tried again and again
    below us, without a word. The thread that still waits ends with the process."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as failed:
            answers.put((None, failed))

    threading.Thread(target=run, daemon=True, name="asks a store").start()
    try:
        found, failed = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(
            f"it does not answer within {seconds:g} s (it may accept connections; is the endpoint "
            "right?)"
        ) from None
    if failed is not None:
        raise failed
    return found


def _entry(of: Mapping[str, Any]) -> Entry:
    size = int(of.get("size") or 0)
    when = of.get("mtime") or of.get("LastModified") or of.get("created")
    stamp = next((str(of[name]) for name in STAMPS if of.get(name)), f"{size} {when}")
    return Entry(size, stamp)


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
