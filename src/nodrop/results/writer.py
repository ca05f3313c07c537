"""Writes a run directory: one writer at a time, durable, and resumable after a crash."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, Self

from nodrop.config.options import printable
from nodrop.errors import BadInput, LabProblem
from nodrop.results.layout import (
    EXPERIMENT,
    LAB,
    MANIFEST,
    RUNS,
    SUT,
    TRIAL,
    TRIALS,
    Follower,
    TrialFolder,
    cut_half_line,
    json_text,
    locked,
    safe_name,
    write_json,
)
from nodrop.results.model import RUN_FORMAT
from nodrop.results.rundir import HALF_LINE, Json, RunDir, open_run, read_manifest, read_trials
from nodrop.results.store import Copy, before_anything
from nodrop.results.trial import TrialRecord
from nodrop.untrusted.folder import Folder, append_whole
from nodrop.untrusted.json_text import is_utf8


@dataclass(frozen=True, slots=True)
class Question:
    """An experiment as it was asked: the text of its file, and each `--set`."""

    text: str
    settings: Sequence[str]
    fleet: str | None = None
    """Name of the fleet; None: one lab measures."""
    nodrop: str = ""
    """Version and commit of nodrop; empty: not known."""

    def changes_since(self, begun: Question) -> Sequence[str]:
        """`search.budget_s = 30.0, was 60.0`; without such a key `nodrop = …`; empty if only
        something else differs."""
        if self.fleet != begun.fleet:
            both = (
                "" if None in (self.fleet, begun.fleet) else " (other pairs may go on by that name)"
            )
            return [f"{_lab(self.fleet)}, was {_lab(begun.fleet)}{both}"]
        now, then = self._keys(), begun._keys()
        if now == then and "" not in (self.nodrop, begun.nodrop):
            now, then = {"nodrop": self.nodrop}, {"nodrop": begun.nodrop}
        return [
            f"{key} = {now.get(key, 'not set')}, was {then.get(key, 'not set')}"
            for key in {**then, **now}
            if now.get(key) != then.get(key)
        ]

    def _keys(self) -> dict[str, str]:
        try:
            found = dict(_flat("", tomllib.loads(self.text)))
        except tomllib.TOMLDecodeError:
            return {}
        for setting in self.settings:
            key, _, value = setting.partition("=")
            found[key.strip()] = value.strip()
        return found


def _lab(fleet: str | None) -> str:
    return "one lab" if fleet is None else f"fleet {json.dumps(fleet)}"


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", json.dumps(value, default=str)


def nodrop_words(facts: object) -> str:
    """`0.2.0 (a70b7449)`, of `nodrop` in a manifest; empty if it is not there."""
    if not isinstance(facts, dict):
        return ""
    return f"{facts.get('version')} ({facts.get('revision') or 'commit not known'})"


def plan_sha256(plan: Any) -> str:
    """The fingerprint by which a resumed plan is known to be the same. `plan` is plain JSON."""
    text = json.dumps(plan, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def must_be_new(path: Path) -> None:
    """BadInput if something is there that is no empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path}: exists and is not an empty folder", hint="give a new path")


class RunWriter:
    """The one writer of a run directory. Use as a context manager: it holds the lock."""

    def __init__(self, path: Path, lock: FileIO, manifest: Json) -> None:
        self.path = path
        self.manifest = manifest
        self._copy: Copy | None = None
        """Copy of a run that lies in a store."""
        self._storage: Follower | None = None
        """Storage of a lab that has one."""
        self._folder = Folder(path)
        self._runs = self._folder.folder(RUNS)
        self._lock = lock

    @classmethod
    def create(
        cls,
        out: Path,
        name: str,
        *,
        experiment: str,
        lab: str,
        plan_sha256: str,
        manifest: Mapping[str, Any],
        started: datetime | None = None,
    ) -> RunWriter:
        """Makes out/name-utc. `experiment` and `lab` are the files' texts, kept verbatim."""
        started = started or datetime.now(UTC)
        above = Copy.of(out)
        with before_anything():
            taken = above.store.folders() if above else []
        path = _new_folder(out, f"{safe_name(name)}-{started:%Y%m%dT%H%M%SZ}", taken)
        writer = cls._begin(
            path,
            name,
            experiment=experiment,
            lab=lab,
            plan_sha256=plan_sha256,
            manifest=manifest,
            started=started,
        )
        if above:
            writer._begin_in(f"{above.store.url}/{path.name}")
        return writer

    @classmethod
    def create_at(
        cls, path: Path, name: str, *, experiment: str, manifest: Mapping[str, Any]
    ) -> RunWriter:
        """Makes a run directory of exactly this path, for runs that were measured elsewhere."""
        must_be_new(path)
        path.mkdir(parents=True, exist_ok=True)
        return cls._begin(
            path,
            name,
            experiment=experiment,
            lab="",
            plan_sha256="",
            manifest=manifest,
            started=datetime.now(UTC),
        )

    @classmethod
    def _begin(
        cls,
        path: Path,
        name: str,
        *,
        experiment: str,
        lab: str,
        plan_sha256: str,
        manifest: Mapping[str, Any],
        started: datetime,
    ) -> RunWriter:
        lock = locked(path)
        folder = Folder(path)
        folder.folder(RUNS).make()
        folder.write(EXPERIMENT, experiment.encode())
        folder.write(LAB, lab.encode())
        folder.write(TRIALS, b"")
        found: Json = {
            "format": RUN_FORMAT,
            "name": name,
            "started_utc": started.isoformat(timespec="seconds"),
            "plan_sha256": plan_sha256,
            "run_id": secrets.token_hex(8),
            **manifest,
        }
        # Last: a directory with a manifest is a run directory.
        write_json(folder, MANIFEST, found)
        return cls(path, lock, found)

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        plan_sha256: str,
        asked: Question | None = None,
        half_written_stays: bool = False,
    ) -> RunWriter:
        """Opens a run directory to go on with it; removes what was half-written, unless the rest of
        it may come. BadInput if the plan is another; `asked` says which key made it so."""
        # What is half-written is deleted and the rest added to, with our rights.
        Folder(path).must_be_ours("a run directory")
        manifest = read_manifest(path)
        if manifest.get("plan_sha256") != plan_sha256:
            changes = [] if asked is None else _changes(open_run(path), asked)
            raise BadInput(
                f"{path}: the experiment, the lab or the plan changed since this run was started"
                + (f": {printable('; '.join(changes[:3]))}" if changes else ""),
                hint="resume with the same nodrop, files and --set values, or start a new run",
            )
        writer = cls(path, locked(path), manifest)
        try:
            copy = Copy.of(path)
            with copy.taken_up() if copy else nullcontext():
                writer._must_lose_nothing()
                cut_half_line(Folder(path))
                if not half_written_stays:
                    writer.remove_half_written()
            writer._copy = copy
        except BaseException:
            writer._lock.close()
            raise
        return writer

    def records(self) -> tuple[TrialRecord, ...]:
        """The trials measured so far whose folder is whole."""
        good = self.completed()
        return tuple(r for r in read_trials(self.path).records if r.run in good)

    def completed(self) -> frozenset[str]:
        """Runs whose line is whole and whose folder has its trial.json."""
        records = read_trials(self.path).records
        return frozenset(r.run for r in records if self._runs.folder(r.run).is_file(TRIAL))

    def trial(self, run: str, *, goes_on: bool = False) -> TrialFolder:
        """A folder for one trial: a fresh one, unless it `goes_on` with what came of it."""
        folder = self._runs.folder(safe_name(run))
        if not goes_on and self._runs.is_there(safe_name(run)):
            self._runs.remove(safe_name(run))
        folder.folder(SUT).make_all()
        return TrialFolder(run=run, path=folder.path)

    def finish(self, record: TrialRecord, details: Mapping[str, Any] | None = None) -> None:
        """Makes a trial count: its trial.json, then its line; both are on disk on return."""
        line = record.to_line()
        TrialRecord.from_line(line)
        folder = self._runs.folder(record.run)
        folder.make(exist_ok=True)
        write_json(folder, TRIAL, {**record.model_dump(), "details": dict(details or {})})
        self._append([line])
        self._follow(record.run)

    def finish_all(self, finished: Iterable[tuple[TrialRecord, Mapping[str, Any]]]) -> None:
        """Many trials at once, waiting for the disk once: for runs that can be imported again."""
        lines: list[str] = []
        for record, details in finished:
            lines.append(record.to_line())
            folder = self._runs.folder(record.run)
            folder.make(exist_ok=True)
            text = json_text({**record.model_dump(), "details": dict(details)})
            folder.write(TRIAL, text, durable=False)
        self._append(lines)

    def finish_elsewhere(self, record: TrialRecord) -> None:
        """Makes a trial count that was measured on another machine: its files are here."""
        self._append([record.to_line()])
        self._follow(record.run)

    def followed_by(self, storage: Follower) -> None:
        """Hands some files of each trial to a follower from now on: they lie here no more."""
        self._storage = storage

    def _followers(self) -> list[Follower]:
        """Followers of this run: the lab's storage and the copy in a store. Files that go to the
        storage do not go into the store."""
        return [one for one in (self._storage, self._copy) if one is not None]

    def _follow(self, run: str) -> None:
        for follower in self._followers():
            follower.ended(run)

    def notes(self) -> list[str]:
        """News of the places that files follow to, each told once."""
        return [words for follower in self._followers() for words in follower.way.said()]

    def _begin_in(self, url: str) -> None:
        """The run directory is the copy of this place. If it cannot be, there is none."""
        copy = Copy.begin(self.path, url)
        try:
            with before_anything():
                copy.begin_there([EXPERIMENT, LAB, MANIFEST])
        except BaseException:
            self._lock.close()
            shutil.rmtree(self.path)
            raise
        copy.way.notes.append(f"the run is kept in {url}")
        self._copy = copy

    def take(
        self, path: Sequence[str], chunks: Iterable[bytes], *, sha256: str, begun: int = 0
    ) -> None:
        """A file of a trial that was measured on another machine; it has its name once it is
        whole. Its first `begun` bytes came before. BadInput if it is not what it should be."""
        *above, name = path
        if len(above) < 2 or above[0] != RUNS:
            raise BadInput(f"{'/'.join(path)}: is no file of a trial")
        folder = self._folder.folder(*above)
        folder.make_all()
        digest, partial = hashlib.sha256(), f"{name}.part"
        with folder.open_to_change(partial) as file:
            if not 0 <= begun <= os.fstat(file.fileno()).st_size:
                raise BadInput(f"{'/'.join(path)}: goes on after {begun} bytes, which are not here")
            file.truncate(begun)
            while content := file.read(1 << 20):
                digest.update(content)
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != sha256:
                raise BadInput(f"{'/'.join(path)}: did not arrive as it was sent")
            os.fsync(file.fileno())
        folder.rename(partial, name)

    def _append(self, lines: Iterable[str]) -> None:
        """Whole or not at all: after a full disk the next line must not follow half a line."""
        with self._folder.open_to_change(TRIALS, append=True) as file:
            append_whole(file, "".join(line + "\n" for line in lines).encode())

    def write_beside(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file beside the manifest, about the run as a whole: `findings`, `imported`."""
        if f"{name}.json" == MANIFEST:
            raise ValueError("the manifest is written by update_manifest")
        write_json(self._folder, f"{safe_name(name)}.json", content)

    def update_manifest(self, changes: Mapping[str, Any]) -> None:
        """Adds what is known only later (end of the run, what was put back)."""
        self.manifest = {**self.manifest, **changes}
        write_json(self._folder, MANIFEST, self.manifest)
        if self._copy:
            self._copy.changed(MANIFEST)

    def close(self, *, failed: bool = False) -> None:
        """Ends the run. With `failed`, the error that ended the run is reported; the loss of a
        store is not."""
        lost: list[LabProblem] = []
        try:
            for follower in self._followers():
                try:
                    follower.rest()
                except LabProblem as problem:
                    lost.append(problem)
        finally:
            self._lock.close()
        if lost and not failed:
            raise LabProblem("; ".join(map(str, lost))) if lost[1:] else lost[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def _must_lose_nothing(self) -> None:
        """BadInput if going on would remove finished trials: one whose line cannot be read is not
        half-written. A killed run leaves at most half a line, and one trial that is whole but for
        its line: that one alone is measured again."""
        trials = read_trials(self.path)
        known = {record.run for record in trials.records}
        unlisted = [
            run
            for run in self._runs.folders()
            if run not in known and self._runs.folder(run).is_file(TRIAL)
        ]
        unread = [f"{one.where}: {one.words}" for one in trials.damage if one.words != HALF_LINE]
        if not unlisted or not (unread or len(unlisted) > 1):
            return
        why = unread[0] if unread else f"{TRIALS} has no line for {len(unlisted)} whole trials"
        raise BadInput(
            f"{self.path}: {why}; to go on would remove {', '.join(unlisted[:3])}"
            f"{', …' if len(unlisted) > 3 else ''}, which the run has finished",
            hint="go on with the nodrop that wrote it or put the line back; a trial is measured "
            f"again once its folder is out of {RUNS}/",
        )

    def remove_half_written(self) -> None:
        """Removes trials that do not count."""
        good = self.completed()
        for name in self._runs.folders():
            if name not in good:
                self._runs.remove(name)


def _new_folder(out: Path, name: str, taken: Sequence[str]) -> Path:
    """Makes a new folder. `taken`: names that it must not have."""
    if not is_utf8(out.absolute()):
        raise BadInput(f"{out}: its name is not UTF-8", hint="choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            path = out / (name if attempt == 1 else f"{name}-{attempt}")
            if path.name in taken:
                continue
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise BadInput(
            f"{out}: no run directory can be made in it: {error.strerror}",
            hint="choose another folder with --out",
        ) from None
    raise BadInput(f"{out / name}: a thousand runs with this name and second exist already")


def _changes(begun: RunDir, asked: Question) -> Sequence[str]:
    settings = begun.manifest.get("settings")
    given = [str(setting) for setting in settings] if isinstance(settings, list) else []
    fleet = begun.manifest.get("fleet")
    name = str(fleet.get("name")) if isinstance(fleet, dict) else None
    nodrop = nodrop_words(begun.manifest.get("nodrop"))
    return asked.changes_since(Question(begun.experiment, given, name, nodrop))
