"""A run directory in a store of objects, as fsspec knows it (S3, or another), and its copy here.

A store is asked for no append, no rename and no lock, for it has none.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.installation import adding
from nodrop.results.layout import (
    LOCK,
    MANIFEST,
    RUNS,
    STORED,
    SUT,
    TRIAL,
    TRIALS,
    WRITING,
    Way,
    cut_half_line,
    is_written,
    locked,
)
from nodrop.untrusted.folder import Folder, append_whole
from nodrop.untrusted.json_text import NotJson, decode_object, member, one_line

MARK = "://"
"""The mark of a path in a store: `s3://bucket/folder`."""
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
"""Time for an answer: one read_timeout, one more try, and some."""
PART_BYTES = 1 << 24
STAMPS = ("ETag", "etag", "md5Hash", "generation")
"""Fields that a store shows of an object and that change with its content; without them its size
and time do."""


class StoreLost(LabProblem):
    """A store does not answer, or not as it should. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, as a store lists it."""

    size: int
    stamp: str
    """Mark of the content: another content has another."""


@dataclass(frozen=True, slots=True)
class Store:
    url: str
    """Address with its scheme, without a slash at its end."""
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
            raise NotReady(
                f"{url}: {one_line(missing)}",
                hint=f"{adding('s3fs')}, or the package that it names",
            ) from None
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

    def files(self, below: str = "") -> dict[str, StoredObject]:
        with self._asking():
            root = f"{self._root}/{below}".rstrip("/")
            found = _within(ANSWERS_S, lambda: self._system.find(root, detail=True))
        return {name.removeprefix(f"{self._root}/"): _entry(of) for name, of in found.items()}

    def has(self, name: str) -> bool:
        with self._asking():
            path = f"{self._root}/{name}"
            return bool(_within(ANSWERS_S, lambda: self._system.isfile(path)))

    def file(self, name: str) -> StoredObject:
        with self._asking():
            return _entry(self._system.info(f"{self._root}/{name}"))

    def put(self, files: Mapping[str, bytes]) -> None:
        with self._asking():
            self._system.pipe({f"{self._root}/{name}": content for name, content in files.items()})

    def put_file(self, name: str, file: IO[bytes]) -> None:
        """Puts a file that has no room in memory."""
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
        """Gets a file that has no room in memory."""
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


def _entry(of: Mapping[str, Any]) -> StoredObject:
    size = int(of.get("size") or 0)
    when = of.get("mtime") or of.get("LastModified") or of.get("created")
    stamp = next((str(of[name]) for name in STAMPS if of.get(name)), f"{size} {when}")
    return StoredObject(size, stamp)


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


# The copy here of a run directory that lies in a store.
#
# A run is measured into its copy, as safely as into any directory. When a trial has ended, its
# files
# follow into the store, trial.json last: there it counts from then on. Whatever becomes of the
# store,
# the run goes on: what could not follow stays here, and follows when the store is reached again. A
# reader brings here what is newer there.

BATCH_BYTES = 64 << 20
BATCH_FILES = 200
"""Files that are on their way at once."""
OURS = (LOCK, STORED, WRITING, "report")
"""Names of files and folders that belong to this machine alone."""


@dataclass(frozen=True, slots=True)
class Same:
    """A file here that has the content of the object with this stamp."""

    stamp: str
    size: int
    mtime_ns: int


class Copy:
    """The copy of one run directory, or of the folder in which run directories lie."""

    def __init__(self, path: Path, store: Store, same: dict[str, Same]) -> None:
        self.path = path
        self.store = store
        self.way = Way(store.url, path)
        self._folder = Folder(path)
        self._same = same

    @classmethod
    def begin(cls, path: Path, url: str) -> Copy:
        """`path` is there; from now on it is the copy of this place."""
        store = Store.of(url)
        with Folder(path).open_to_change(STORED) as file:
            file.truncate()
            file.write(json.dumps({"url": store.url}).encode() + b"\n")
        return cls(path, store, {})

    @classmethod
    def of(cls, path: Path) -> Copy | None:
        """The copy at a path; None if it is the copy of nothing."""
        folder = Folder(path)
        if not folder.is_file(STORED):
            return None
        folder.must_be_ours("the copy of a run directory in a store")
        same: dict[str, Same] = {}
        lines = folder.lines(STORED)
        url = ""
        with suppress(NotJson, StopIteration):
            url = member(decode_object(next(lines)), "url", str)
        if not url:
            raise BadInput(f"{path / STORED}: does not say of which store this is the copy")
        for line in lines:
            with suppress(NotJson):  # the last may be cut: its file is brought, or put, once more
                row = decode_object(line)
                same[member(row, "name", str)] = Same(
                    member(row, "stamp", str),
                    member(row, "size", int),
                    member(row, "mtime_ns", int),
                )
        return cls(path, Store.of(url), same)

    # --- here → store ----------------------------------------------------------------------------

    def claim(self) -> None:
        """Claims the place in the store: this machine alone writes there. BadInput if another one
        does."""
        # What a run that was killed here left is ours still.
        if self._folder.is_file(WRITING):
            ours = self._folder.read(WRITING)
        else:
            since = datetime.now(UTC).isoformat(timespec="seconds")
            who = {"host": socket.gethostname(), "pid": os.getpid(), "since_utc": since}
            ours = json.dumps({**who, "token": secrets.token_hex(8)}).encode()
            self._folder.write(WRITING, ours)
        found = self.store.claim(WRITING, ours)
        if found != ours:
            self._folder.remove(WRITING)
            raise BadInput(
                f"{self.store.url}: {_writer(found)}",
                hint="wait for it; if it was killed, go on there, or, if that host is lost, "
                f"remove {self.store.url}/{WRITING}",
            )

    @contextmanager
    def taken_up(self) -> Iterator[None]:
        """Claimed, and what is newer there is here. Whoever finds within that he cannot go on
        leaves it free, if it was so."""
        was_ours = self._folder.is_file(WRITING)
        with before_anything():
            self.claim()
        try:
            with before_anything():
                self.bring()
            yield
        except BaseException:
            if not was_ours:
                with suppress(StoreLost):
                    self._let_go()
            raise

    def _let_go(self) -> None:
        """Gives the place free: others may write there."""
        self.store.remove([WRITING])
        self._folder.remove(WRITING)

    def begin_there(self, names: Sequence[str]) -> None:
        """Claims the place and puts files there, before anything is measured. StoreLost if it
        cannot."""
        self.claim()
        try:
            self._put(names)
        except StoreLost:
            with suppress(StoreLost):
                self._let_go()
            raise

    def changed(self, name: str) -> None:
        """A file beside the manifest, or the manifest."""
        self.way.put(lambda: self._put([name]))

    def ended(self, run: str) -> None:
        """A trial: its files follow, if the store is not lost."""
        self.way.put(lambda: self._follow(run), rest=self._follow_all)

    def rest(self) -> None:
        """Brings all that did not follow yet; then others may write there. StoreLost, with what to
        do about it, if it cannot."""
        try:
            self._follow_all()
            self._let_go()
        except StoreLost as lost:
            left = len(self._waiting())
            words = f"; files of {left} of its trials lie in {self.path} alone" if left else ""
            above = self.store.url.rpartition("/")[0]
            raise StoreLost(
                f"{lost.message}{words}",
                hint=f"nothing is lost: put it there with `nodrop put {self.path} {above}`",
            ) from lost

    def rest_of_all(self) -> None:
        """Puts there what did not follow yet, and what the store had and lost."""
        there = self.store.files()
        self._same = {name: of for name, of in self._same.items() if name in there}
        self.rest()

    def _waiting(self) -> list[str]:
        """Trials that have ended, and whose files did not follow yet."""
        runs = self._folder.folder(RUNS)
        ended = (run for run in runs.folders() if runs.folder(run).is_file(TRIAL))
        return [run for run in ended if self._is_changed(f"{RUNS}/{run}/{TRIAL}")]

    def _follow_all(self) -> None:
        for run in self._waiting():
            self._follow(run)
        beside = [n for n in self._folder.names() if self._folder.is_file(n) and n not in OURS]
        # A run that lies there has its manifest.
        self._put(sorted(filter(self._is_changed, beside), key=lambda name: name == MANIFEST))

    def _follow(self, run: str) -> None:
        below = f"{RUNS}/{run}"
        last = f"{below}/{TRIAL}"
        names = [name for name in _names(self._folder.folder(RUNS, run)) if name != last]
        self.store.remove([last])  # if it was measured before, it does not count there any more
        self._put(names, below)
        self._put([last], below)
        if stale := self.store.files(below).keys() - {*names, last}:
            self.store.remove(sorted(stale))

    def _put(self, names: Sequence[str], below: str = "") -> None:
        states = {name: self._state(name) for name in names}
        for batch in _batches({name: size for name, (size, _) in states.items()}):
            if states[batch[0]][0] > BATCH_BYTES:
                folder, file = self._at(batch[0])
                with folder.open(file) as content:
                    self.store.put_file(batch[0], content)
            else:
                self.store.put({name: self._read(name) for name in batch})
            of = self.store.files(below) if below else {n: self.store.file(n) for n in batch}
            self._note({n: Same(of[n].stamp, *states[n]) for n in batch if n in of})

    # --- store → here ----------------------------------------------------------------------------

    def bring(self) -> str:
        """Brings what is newer there. What changed here stays: it is what was measured here. Says
        who writes there, if another machine does."""
        there = self.store.files()
        wanted = [n for n, of in there.items() if _is_read(n) and self._is_older(n, of.stamp)]
        # As a trial counts once its trial.json is there, and a run once its manifest is.
        wanted.sort(key=lambda name: (name == MANIFEST, name.endswith(f"/{TRIAL}")))
        for batch in _batches({name: there[name].size for name in wanted}):
            self._get(batch, large=there[batch[0]].size > BATCH_BYTES)
            self._note({name: Same(there[name].stamp, *self._state(name)) for name in batch})
        brought = {name.split("/")[1] for name in wanted if name.endswith(f"/{TRIAL}")}
        # What a trial that was measured again there has no more.
        for name in [n for n in self._same if n.startswith(f"{RUNS}/") and n not in there]:
            whole = f"{RUNS}/{name.split('/')[1]}/{TRIAL}" in there
            if whole and not self._is_changed(name):
                folder, file = self._at(name)
                folder.remove(file)
        self._complete_lines(brought)
        if WRITING not in there:
            return ""
        mark = self.store.get([WRITING])[WRITING]
        # Of a run that was killed here, and ours.
        if self._folder.is_file(WRITING) and self._folder.read(WRITING) == mark:
            return ""
        return _writer(mark)

    def _get(self, names: Sequence[str], *, large: bool) -> None:
        if large:
            folder, file = self._at(names[0])
            folder.make_all()
            with folder.writing(file, durable=False) as content:
                self.store.get_file(names[0], content)
            return
        for name, found in self.store.get(names).items():
            folder, file = self._at(name)
            folder.make_all()
            folder.write(file, found, durable=False)

    def _complete_lines(self, brought: set[str]) -> None:
        """trials.jsonl follows when a run ends: until then each trial's own file has its line."""
        from nodrop.results.trial import RecordError, TrialRecord  # `nodrop --help` is here too

        lines: dict[str, bytes] = {}
        with suppress(FileNotFoundError):
            for line in self._folder.lines(TRIALS):
                with suppress(NotJson):
                    lines[str(decode_object(line).get("run"))] = line
        runs = self._folder.folder(RUNS)
        new = []
        for run in runs.folders():
            if (run in lines and run not in brought) or not runs.folder(run).is_file(TRIAL):
                continue
            with suppress(RecordError):  # as whoever reads the run will say
                record = TrialRecord.from_line(runs.folder(run).read(TRIAL))
                if run not in lines or TrialRecord.from_line(lines[run]) != record:
                    new.append(record)
        if new:
            new.sort(key=lambda record: record.index)
            cut_half_line(self._folder)
            with self._folder.open_to_change(TRIALS, append=True) as file:
                append_whole(file, "".join(f"{r.to_line()}\n" for r in new).encode())

    def _is_older(self, name: str, stamp: str) -> bool:
        folder, file = self._at(name)
        if not folder.is_file(file):
            return True
        return not self._is_changed(name) and self._same[name].stamp != stamp

    # --- both ------------------------------------------------------------------------------------

    def _is_changed(self, name: str) -> bool:
        """The file is another one now, or has not come from there."""
        same = self._same.get(name)
        return same is None or (same.size, same.mtime_ns) != self._state(name)

    def _state(self, name: str) -> tuple[int, int]:
        folder, file = self._at(name)
        try:
            with folder.open(file) as opened:
                found = os.fstat(opened.fileno())
        except FileNotFoundError:
            return -1, -1
        return found.st_size, found.st_mtime_ns

    def _read(self, name: str) -> bytes:
        folder, file = self._at(name)
        return folder.read(file, most_bytes=2 * BATCH_BYTES)

    def _at(self, name: str) -> tuple[Folder, str]:
        *above, file = name.split("/")
        return self._folder.folder(*above), file

    def _note(self, same: dict[str, Same]) -> None:
        rows = [
            {"name": name, "stamp": of.stamp, "size": of.size, "mtime_ns": of.mtime_ns}
            for name, of in same.items()
        ]
        with self._folder.open_to_change(STORED, append=True) as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        self._same.update(same)


def copy_of(url: str, path: Path) -> Copy:
    """The copy of this place at `path`, which is made if it is missing."""
    path.mkdir(parents=True, exist_ok=True)
    found = Copy.of(path) or Copy.begin(path, url)
    if found.store.url != url.rstrip("/"):
        raise BadInput(f"{path}: is the copy of {found.store.url}, not of {url}")
    return found


def brought(url: str, path: Path) -> str:
    """Brings what lies in this place into its copy. BadInput if it is no run directory. Says who
    writes there, if someone does."""
    if not path.is_dir():
        (store := Store.of(url)).must_answer()
        if not store.has(MANIFEST):
            raise BadInput(f"{url}: not a run directory (no {MANIFEST})")
    if is_written(path):
        return "a run on this host writes there"  # nothing there is newer
    return copy_of(url, path).bring()


def put_run(path: Path, into: Store) -> str:
    """Puts all of a run directory into this folder; gives its place there."""
    if not Folder(path).is_file(MANIFEST):
        raise BadInput(f"{path}: not a run directory (no {MANIFEST})")
    store = into.below(path.resolve().name)
    with locked(path):
        copy = Copy.of(path)
        if copy is None or copy.store.url != store.url:
            if store.has(MANIFEST):
                raise BadInput(f"{store.url}: another run of this name is there")
            copy = Copy.begin(path, store.url)
        with before_anything():
            copy.claim()
        copy.rest_of_all()
    return store.url


def _writer(mark: bytes) -> str:
    """The writer there, by its mark."""
    try:
        who = decode_object(mark)
        said = f"host {member(who, 'host', str)} (pid {member(who, 'pid', int)})"
        return one_line(f"{said} writes there since {member(who, 'since_utc', str)}")
    except NotJson:
        return "another host writes there"


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Names in batches that have room in memory; a file that has none comes alone."""
    batch: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if batch and (filled + size > BATCH_BYTES or len(batch) == BATCH_FILES):
            yield batch
            batch, filled = [], 0
        batch.append(name)
        filled += size
    if batch:
        yield batch


def _is_read(name: str) -> bool:
    """Readers of the copy need the file. They need none that the SUT wrote; a name that leads
    elsewhere is no file of a run."""
    top, *below = name.split("/")
    if {"", ".", ".."} & {top, *below}:
        return False
    return (len(below) > 1 and top == RUNS and below[1] != SUT) or (not below and top not in OURS)


def _names(folder: Folder) -> Iterator[str]:
    """Paths of all files in a folder, from the run directory on."""
    for name in folder.names():
        if folder.is_file(name):
            yield "/".join((*folder.below, name))
    for name in folder.folders():
        yield from _names(folder.folder(name))
