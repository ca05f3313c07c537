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
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodrop.errors import BadInput
from nodrop.results.trial import RecordError, TrialRecord

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
        with (self.path / LIVE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of this trial: `ledger`, `offered`, `counters` …; not `trial`."""
        if f"{name}.json" == TRIAL:
            raise ValueError(
                "trial.json is what marks a trial as whole: RunWriter.finish writes it"
            )
        _write_json(self.path / f"{_safe_name(name)}.json", content)


class RunWriter:
    """The one writer of a run directory. Use as a context manager: it holds the lock."""

    def __init__(self, path: Path, lock: BufferedRandom, manifest: Json) -> None:
        self.path = path
        self.manifest = manifest
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
        (path / RUNS).mkdir()
        _write_atomically(path / EXPERIMENT, experiment.encode())
        _write_atomically(path / LAB, lab.encode())
        _write_atomically(path / TRIALS, b"")
        found: Json = {
            "format": RUN_FORMAT,
            "name": name,
            "started_utc": started.isoformat(timespec="seconds"),
            "plan_sha256": plan_sha256,
            **manifest,
        }
        # Last: a directory with a manifest is a run directory.
        _write_json(path / MANIFEST, found)
        return cls(path, lock, found)

    @classmethod
    def resume(cls, path: Path, *, plan_sha256: str) -> RunWriter:
        """Opens a run directory to go on with it; removes what was half-written."""
        manifest = _read_manifest(path)
        if manifest.get("plan_sha256") != plan_sha256:
            raise BadInput(
                f"{path}: the experiment, the lab or the plan changed since this run was started",
                hint="resume with the same files and --set values, or start a new run",
            )
        lock = _locked(path)
        _cut_half_line(path / TRIALS)
        writer = cls(path, lock, manifest)
        writer._remove_half_written_runs()
        return writer

    def records(self) -> tuple[TrialRecord, ...]:
        """The trials measured so far whose folder is whole."""
        good = self.completed()
        return tuple(r for r in read_trials(self.path).records if r.run in good)

    def completed(self) -> frozenset[str]:
        """Runs whose line is whole and whose folder has its trial.json."""
        records = read_trials(self.path).records
        return frozenset(r.run for r in records if (self.path / RUNS / r.run / TRIAL).is_file())

    def trial(self, run: str) -> TrialFolder:
        """A fresh folder for one trial."""
        folder = self.path / RUNS / _safe_name(run)
        if folder.exists():
            shutil.rmtree(folder)
        (folder / "sut").mkdir(parents=True)
        return TrialFolder(run=run, path=folder)

    def finish(self, record: TrialRecord, details: Mapping[str, Any] | None = None) -> None:
        """Makes a trial count: its trial.json, then its line; both are on disk on return."""
        line = record.to_line()
        TrialRecord.from_line(line)
        folder = self.path / RUNS / record.run
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / TRIAL, {**record.model_dump(), "details": dict(details or {})})
        with (self.path / TRIALS).open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def finish_all(self, finished: Iterable[tuple[TrialRecord, Mapping[str, Any]]]) -> None:
        """Many trials at once, waiting for the disk once: for runs that can be imported again."""
        lines: list[str] = []
        for record, details in finished:
            lines.append(record.to_line())
            folder = self.path / RUNS / record.run
            folder.mkdir(parents=True, exist_ok=True)
            text = _json_text({**record.model_dump(), "details": dict(details)})
            (folder / TRIAL).write_bytes(text)
        with (self.path / TRIALS).open("ab") as file:
            file.write("".join(line + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def write_beside(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file beside the manifest, about the run as a whole: `findings`, `imported`."""
        if f"{name}.json" == MANIFEST:
            raise ValueError("the manifest is written by update_manifest")
        _write_json(self.path / f"{_safe_name(name)}.json", content)

    def update_manifest(self, changes: Mapping[str, Any]) -> None:
        """Adds what is known only later (end of the run, what was put back)."""
        self.manifest = {**self.manifest, **changes}
        _write_json(self.path / MANIFEST, self.manifest)

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
        for folder in _run_folders(self.path):
            if folder.name not in good:
                shutil.rmtree(folder)


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
        return _read_object(self.path / f"{_safe_name(name)}.json", f"{name}.json")

    def detail(self, run: str, name: str) -> Json | Damage | None:
        """`ledger`, `offered`, `counters`, `trial` of a run; None where there is no such file."""
        path = self.path / RUNS / _safe_name(run) / f"{_safe_name(name)}.json"
        return _read_object(path, f"{RUNS}/{run}/{path.name}")

    def sampled_hosts(self, run: str) -> tuple[str, ...]:
        """Hosts that left samples of this run."""
        found = (self.path / RUNS / _safe_name(run)).glob(f"{SAMPLES}*.jsonl")
        return tuple(sorted(p.name.removeprefix(SAMPLES).removesuffix(".jsonl") for p in found))

    def samples(self, run: str, host: str) -> Iterator[Json]:
        """Rows of one host's sampler, one at a time; what cannot be read is left out."""
        yield from _rows(self.path / RUNS / _safe_name(run) / f"{SAMPLES}{_safe_name(host)}.jsonl")

    def live(self, run: str) -> Iterator[Json]:
        """What was read of a trial while it ran, phases included; nothing where nobody read."""
        yield from _rows(self.path / RUNS / _safe_name(run) / LIVE)

    def damaged_rows(self, run: str) -> Iterator[Damage]:
        """Files of rows that nothing can be read from: what they would show is left out."""
        folder = self.path / RUNS / _safe_name(run)
        for path in sorted([*folder.glob(f"{SAMPLES}*.jsonl"), *folder.glob(LIVE)]):
            try:
                with path.open("rb") as file:
                    file.read(1)
            except OSError as failed:
                words = f"{_why(failed)}; its series are left out"
                yield Damage(where=f"{RUNS}/{run}/{path.name}", words=words)


def _rows(path: Path) -> Iterator[Json]:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def find_run(path: Path, name: str) -> Path:
    """The run directory to go on with: `path` itself, or the newest one of this name below it."""
    if (path / MANIFEST).is_file():
        return path
    found = sorted(p for p in path.glob(f"{_safe_name(name)}-*") if (p / MANIFEST).is_file())
    if not found:
        raise BadInput(
            f"{path}: no run of {name} to resume",
            hint="give the run directory with --out, or start without --resume",
        )
    return found[-1]


def open_run(path: Path) -> RunDir:
    """Opens for reading. BadInput only where this is no run directory at all."""
    if not (path / TRIALS).is_file() and not (path / MANIFEST).is_file():
        raise BadInput(
            f"{path}: not a run directory (neither {MANIFEST} nor {TRIALS})",
            hint="give the directory that `nodrop run` printed as its last line",
        )
    damage: list[Damage] = []
    manifest: Json = {}
    with _noting(MANIFEST, damage):
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("is not an object")
        manifest = found
    texts = {EXPERIMENT: "", LAB: ""}
    for name in texts:
        with _noting(name, damage):
            texts[name] = (path / name).read_text(encoding="utf-8", errors="replace")
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
    content = b""
    with _noting(TRIALS, damage):
        content = (path / TRIALS).read_bytes()
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            record = TrialRecord.from_line(line.decode())
        except (RecordError, UnicodeDecodeError) as failed:
            damage.append(Damage(where=f"{TRIALS}:{number}", words=_why(failed)))
            continue
        records.pop(record.run, None)
        records[record.run] = record
    if rest:
        words = "half-written last line: the run was interrupted while it wrote; it is ignored"
        damage.append(Damage(where=f"{TRIALS}:{len(lines) + 1}", words=words))
    return Trials(records=tuple(records.values()), damage=tuple(damage))


@contextmanager
def _noting(where: str, damage: list[Damage]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as failed:
        damage.append(Damage(where=where, words=_why(failed)))


def _why(failed: Exception) -> str:
    if isinstance(failed, OSError):
        return failed.strerror or str(failed)
    return str(failed)


def _read_object(path: Path, where: str) -> Json | Damage | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as failed:
        return Damage(where=where, words=_why(failed))
    return found if isinstance(found, dict) else Damage(where=where, words="is not an object")


def _run_folders(path: Path) -> list[Path]:
    runs = path / RUNS
    return sorted(p for p in runs.iterdir() if p.is_dir()) if runs.is_dir() else []


def _read_manifest(path: Path) -> Json:
    try:
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as failed:
        raise BadInput(
            f"{path / MANIFEST}: {_why(failed)}",
            hint="give the directory that `nodrop run` printed as its last line",
        ) from failed
    if not isinstance(found, dict):
        raise BadInput(f"{path / MANIFEST}: is not an object")
    return found


def _cut_half_line(path: Path) -> None:
    """The next line must not be glued to what an interrupted writer left."""
    if not path.exists():
        _write_atomically(path, b"")
        return
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
        os.fsync(file.fileno())


def _locked(path: Path) -> BufferedRandom:
    """flock(2): the kernel lets go of it when the holder dies, however it dies."""
    (path / LOCK).touch()
    file = (path / LOCK).open("rb+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failed:
        holder = file.read().decode(errors="replace").strip() or "unknown"
        file.close()
        raise BadInput(
            f"{path}: another nodrop (pid {holder}) is writing to this run directory",
            hint="wait for it, or watch it with `nodrop watch`",
        ) from failed
    file.truncate()
    file.write(f"{os.getpid()}\n".encode())
    file.flush()
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


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    _write_atomically(path, _json_text(content))


def _json_text(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    return text.encode() + b"\n"


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
