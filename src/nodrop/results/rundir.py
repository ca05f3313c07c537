"""The run directory on disk: names, durability, resuming. No other module knows a file name.

<name>-<utc>/
    manifest.json  experiment.toml  lab.toml  trials.jsonl  lock  [findings.json  imported.json]
    runs/<run>/    trial.json ledger.json offered.json counters.json samples-<host>.jsonl live.jsonl
                   sut/
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodrop.errors import BadInput
from nodrop.results.trial import RecordError, TrialRecord
from nodrop.untrusted.bounds import SMALL_FILE_BYTES
from nodrop.untrusted.folder import Folder, append_whole
from nodrop.untrusted.json_text import NotJson, decode_object

Json = dict[str, Any]

MANIFEST = "manifest.json"
EXPERIMENT = "experiment.toml"
LAB = "lab.toml"
TRIALS = "trials.jsonl"
RUNS = "runs"
LOCK = "lock"
TRIAL = "trial.json"
SAMPLES = "samples-"
LIVE = "live.jsonl"
RUN_FORMAT = 1


def plan_sha256(plan: Any) -> str:
    """The fingerprint by which a resumed plan is known to be the same. `plan` is plain JSON."""
    text = json.dumps(plan, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFolder:
    """Where one trial puts its files while it runs."""

    run: str
    path: Path

    @property
    def sut(self) -> Path:
        return self.path / "sut"

    def samples(self, host: str) -> Path:
        """Rows of that host's sampler."""
        return self.path / f"{SAMPLES}{_safe_name(host)}.jsonl"

    def append_live(self, row: Mapping[str, Any]) -> None:
        """A reading of the trial under way; for watching, so nothing waits for the disk."""
        with Folder(self.path).open_to_change(LIVE, append=True) as file:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of this trial: `ledger`, `offered`, `counters` …; not `trial`."""
        if f"{name}.json" == TRIAL:
            raise ValueError(
                "trial.json is what marks a trial as whole: RunWriter.finish writes it"
            )
        _write_json(Folder(self.path), f"{_safe_name(name)}.json", content)


class RunWriter:
    """The one writer of a run directory. Use as a context manager: it holds the lock."""

    def __init__(self, path: Path, lock: FileIO, manifest: Json) -> None:
        self.path = path
        self.manifest = manifest
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
        path = _new_folder(out, f"{_safe_name(name)}-{started:%Y%m%dT%H%M%SZ}")
        return cls._begin(
            path,
            name,
            experiment=experiment,
            lab=lab,
            plan_sha256=plan_sha256,
            manifest=manifest,
            started=started,
        )

    @classmethod
    def create_at(
        cls, path: Path, name: str, *, experiment: str, manifest: Mapping[str, Any]
    ) -> RunWriter:
        """Makes a run directory of exactly this path, for runs that were measured elsewhere."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f"{path}: exists and is not an empty folder", hint="give a new path")
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
        lock = _locked(path)
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
            **manifest,
        }
        # Last: a directory with a manifest is a run directory.
        _write_json(folder, MANIFEST, found)
        return cls(path, lock, found)

    @classmethod
    def resume(cls, path: Path, *, plan_sha256: str) -> RunWriter:
        """Opens a run directory to go on with it; removes what was half-written."""
        # What is half-written is deleted and the rest added to, with our rights.
        Folder(path).must_be_ours("a run directory")
        manifest = _read_manifest(path)
        if manifest.get("plan_sha256") != plan_sha256:
            raise BadInput(
                f"{path}: the experiment, the lab or the plan changed since this run was started",
                hint="resume with the same files and --set values, or start a new run",
            )
        writer = cls(path, _locked(path), manifest)
        try:
            _cut_half_line(Folder(path))
            writer._remove_half_written_runs()
        except BaseException:
            writer.close()
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

    def trial(self, run: str) -> TrialFolder:
        """A fresh folder for one trial."""
        folder = self._runs.folder(_safe_name(run))
        if self._runs.is_there(_safe_name(run)):
            self._runs.remove(_safe_name(run))
        folder.make()
        folder.folder("sut").make()
        return TrialFolder(run=run, path=folder.path)

    def finish(self, record: TrialRecord, details: Mapping[str, Any] | None = None) -> None:
        """Makes a trial count: its trial.json, then its line; both are on disk on return."""
        line = record.to_line()
        TrialRecord.from_line(line)
        folder = self._runs.folder(record.run)
        folder.make(exist_ok=True)
        _write_json(folder, TRIAL, {**record.model_dump(), "details": dict(details or {})})
        self._append([line])

    def finish_all(self, finished: Iterable[tuple[TrialRecord, Mapping[str, Any]]]) -> None:
        """Many trials at once, waiting for the disk once: for runs that can be imported again."""
        lines: list[str] = []
        for record, details in finished:
            lines.append(record.to_line())
            folder = self._runs.folder(record.run)
            folder.make(exist_ok=True)
            text = _json_text({**record.model_dump(), "details": dict(details)})
            folder.write(TRIAL, text, durable=False)
        self._append(lines)

    def _append(self, lines: Iterable[str]) -> None:
        """Whole or not at all: after a full disk the next line must not stand behind half a one."""
        with self._folder.open_to_change(TRIALS, append=True) as file:
            append_whole(file, "".join(line + "\n" for line in lines).encode())

    def write_beside(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file beside the manifest, about the run as a whole: `findings`, `imported`."""
        if f"{name}.json" == MANIFEST:
            raise ValueError("the manifest is written by update_manifest")
        _write_json(self._folder, f"{_safe_name(name)}.json", content)

    def update_manifest(self, changes: Mapping[str, Any]) -> None:
        """Adds what is known only later (end of the run, what was put back)."""
        self.manifest = {**self.manifest, **changes}
        _write_json(self._folder, MANIFEST, self.manifest)

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _remove_half_written_runs(self) -> None:
        good = self.completed()
        for name in self._runs.folders():
            if name not in good:
                self._runs.remove(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something in a run directory that could not be read; the rest still is."""

    where: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    records: tuple[TrialRecord, ...]
    """In the order in which they were measured; of a repeated run the last."""
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDir:
    """A run directory opened for reading, whatever state it is in."""

    path: Path
    manifest: Json
    experiment: str
    lab: str
    trials: Trials
    damage: tuple[Damage, ...]
    """Of the files beside the trials; each trial's own files are read when asked for."""

    def beside(self, name: str) -> Json | Damage | None:
        """A file of `write_beside`; None where there is no such file."""
        return _read_object(Folder(self.path), f"{_safe_name(name)}.json", f"{name}.json")

    def detail(self, run: str, name: str) -> Json | Damage | None:
        """`ledger`, `offered`, `counters`, `trial` of a run; None where there is no such file."""
        file = f"{_safe_name(name)}.json"
        return _read_object(self._of(run), file, f"{RUNS}/{run}/{file}")

    def sampled_hosts(self, run: str) -> tuple[str, ...]:
        """Hosts that left samples of this run."""
        found = filter(_is_samples, self._of(run).names())
        return tuple(n.removeprefix(SAMPLES).removesuffix(".jsonl") for n in found)

    def samples(self, run: str, host: str) -> Iterator[Json]:
        """Rows of one host's sampler, one at a time; what cannot be read is left out."""
        yield from _rows(self._of(run), f"{SAMPLES}{_safe_name(host)}.jsonl")

    def live(self, run: str) -> Iterator[Json]:
        """What was read of a trial while it ran, phases included; nothing where nobody read."""
        yield from _rows(self._of(run), LIVE)

    def damaged_rows(self, run: str) -> Iterator[Damage]:
        """Files of rows that nothing can be read from: what they would show is left out."""
        folder = self._of(run)
        with suppress(OSError):
            for name in folder.names():
                if not (_is_samples(name) or name == LIVE):
                    continue
                try:
                    with folder.open(name) as file:
                        file.read(1)
                except OSError as failed:
                    words = f"{_why(failed)}; its series are left out"
                    yield Damage(where=f"{RUNS}/{run}/{name}", words=words)

    def unlisted(self) -> Iterator[Damage]:
        """Trials that have ended by their folder, and of which no line tells."""
        with suppress(OSError):
            known = {record.run for record in self.trials.records}
            for run in Folder(self.path).folder(RUNS).names():
                if run not in known and self._of(run).is_there("trial.json"):
                    words = f"no line of {TRIALS} tells of this trial, so it is in no figure: the "
                    words += "run was interrupted there, or the line is gone"
                    yield Damage(where=f"{RUNS}/{run}", words=words)

    def _of(self, run: str) -> Folder:
        return Folder(self.path).folder(RUNS, _safe_name(run))


def _is_samples(name: str) -> bool:
    return name.startswith(SAMPLES) and name.endswith(".jsonl")


def _rows(folder: Folder, name: str) -> Iterator[Json]:
    with suppress(OSError):
        for line in folder.lines(name):
            with suppress(NotJson):
                yield decode_object(line)


def find_run(path: Path, name: str) -> Path:
    """The run directory to go on with: `path` itself, or the newest one of this name below it."""
    if Folder(path).is_file(MANIFEST):
        return path
    # What follows the name is a time, so that `snk` does not find a run of `snk-large`.
    wanted = re.compile(re.escape(_safe_name(name)) + r"-\d{8}T\d{6}Z(-\d+)?")
    below = Folder(path).folders() if path.is_dir() else []
    found = [
        path / run
        for run in below
        if wanted.fullmatch(run) and Folder(path, (run,)).is_file(MANIFEST)
    ]
    if not found:
        raise BadInput(
            f"{path}: no run of {name} to resume",
            hint="give the run directory with --out, or start without --resume",
        )
    return max(found, key=_when_and_which)


def _when_and_which(run: Path) -> tuple[str, int]:
    """`…Z-10` of one second comes after `…Z-9`."""
    when, _, which = run.name.rpartition("Z")
    return when, int(which.lstrip("-") or 1)


def open_run(path: Path) -> RunDir:
    """Opens for reading. BadInput only where this is no run directory at all."""
    folder = Folder(path)
    if not folder.is_there(TRIALS) and not folder.is_there(MANIFEST):
        raise BadInput(
            f"{path}: not a run directory (neither {MANIFEST} nor {TRIALS})",
            hint="give the directory that `nodrop run` printed as its last line",
        )
    damage: list[Damage] = []
    manifest: Json = {}
    with _noting(MANIFEST, damage):
        manifest = _object_of(folder, MANIFEST)
    texts = {EXPERIMENT: "", LAB: ""}
    for name in texts:
        with _noting(name, damage):
            texts[name] = folder.read(name).decode(errors="replace")
    return RunDir(
        path=path,
        manifest=manifest,
        experiment=texts[EXPERIMENT],
        lab=texts[LAB],
        trials=read_trials(path),
        damage=tuple(damage),
    )


def read_trials(path: Path) -> Trials:
    """Every line that can be read, and why the others cannot."""
    damage: list[Damage] = []
    records: dict[str, TrialRecord] = {}
    with _noting(TRIALS, damage):
        for number, line in enumerate(Folder(path).lines(TRIALS), 1):
            where = f"{TRIALS}:{number}"
            if not line.endswith(b"\n"):
                words = "half-written last line: the run was interrupted while it wrote; "
                damage.append(Damage(where=where, words=f"{words}it is ignored"))
                break
            try:
                record = TrialRecord.from_line(line)
            except RecordError as failed:
                damage.append(Damage(where=where, words=_why(failed)))
                continue
            records.pop(record.run, None)
            records[record.run] = record
    return Trials(records=tuple(records.values()), damage=tuple(damage))


@contextmanager
def _noting(where: str, damage: list[Damage]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as failed:
        damage.append(Damage(where=where, words=_why(failed)))


def _why(failed: Exception) -> str:
    if isinstance(failed, OSError):
        return failed.strerror or str(failed)
    return str(failed)


def _object_of(folder: Folder, name: str) -> Json:
    return decode_object(folder.read(name), most_bytes=SMALL_FILE_BYTES)


def _read_object(folder: Folder, name: str, where: str) -> Json | Damage | None:
    try:
        return _object_of(folder, name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as failed:
        return Damage(where=where, words=_why(failed))


def _read_manifest(path: Path) -> Json:
    try:
        return _object_of(Folder(path), MANIFEST)
    except (OSError, ValueError) as failed:
        raise BadInput(
            f"{path / MANIFEST}: {_why(failed)}",
            hint="give the directory that `nodrop run` printed as its last line",
        ) from failed


def _cut_half_line(folder: Folder) -> None:
    """The next line must not be glued to what an interrupted writer left."""
    whole_bytes = 0
    if folder.is_there(TRIALS):
        lines = filter(lambda line: line.endswith(b"\n"), folder.lines(TRIALS))
        whole_bytes = sum(map(len, lines))
    with folder.open_to_change(TRIALS) as file:
        file.truncate(whole_bytes)
        os.fsync(file.fileno())


def _locked(path: Path) -> FileIO:
    """flock(2): the kernel lets go of it when the holder dies, however it dies."""
    file = Folder(path).changing(LOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failed:
        holder = file.read(20).decode(errors="replace").strip()
        file.close()
        raise BadInput(
            f"{path}: another nodrop (pid {holder if holder.isdecimal() else 'unknown'}) "
            "is writing to this run directory",
            hint="wait for it, or watch it with `nodrop watch`",
        ) from failed
    file.truncate()
    file.write(f"{os.getpid()}\n".encode())
    return file


def _new_folder(out: Path, name: str) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            path = out / (name if attempt == 1 else f"{name}-{attempt}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise BadInput(
            f"{out}: no run directory can be made in it: {error.strerror}",
            hint="choose another folder with --out",
        ) from None
    raise BadInput(f"{out / name}: a thousand runs with this name and second exist already")


def _safe_name(name: str) -> str:
    """A name from an experiment or lab file as one path component that cannot leave its folder."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    return safe.lstrip(".")[:100] or "_"


def _write_json(folder: Folder, name: str, content: Mapping[str, Any]) -> None:
    folder.write(name, _json_text(content))


def _json_text(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    return text.encode() + b"\n"
