"""Reads a run directory, whatever state it is in: what cannot be read is reported as damage."""

from __future__ import annotations

import re
import shlex
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, overload

from nodrop.errors import BadInput
from nodrop.results.layout import (
    DROPS,
    ELSEWHERE,
    EXPERIMENT,
    LAB,
    LIVE,
    MANIFEST,
    PAGE,
    RUNS,
    TRIAL,
    TRIALS,
    levels_of,
    safe_name,
    sampled_host,
    samples_of,
)
from nodrop.results.model import RUN_FORMAT
from nodrop.results.store import Copy, before_anything, brought
from nodrop.results.trial import RecordError, TrialRecord
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import (
    SMALL_FILE_BYTES,
    NotJson,
    decode_object,
    list_in,
    plain,
    table_in,
    tables_in,
)

ROOM = 40_000
"""Records that stay as they were made, 240 MB: a run of no more trials makes each once."""
made: dict[bytes, TrialRecord] = {}
"""Records that stay as they were made, by their packed bytes."""


def pack(record: TrialRecord) -> bytes:
    """Packs a record with every figure as it is: JSON gives back each number to its last digit."""
    packer = zlib.compressobj(level=1, wbits=-zlib.MAX_WBITS, zdict=_names())
    return packer.compress(record.model_dump_json().encode()) + packer.flush()


def unpack(packed: bytes) -> TrialRecord:
    """Unpacks a record, and keeps it if there is room. Whoever reads a run goes from its first
    record to its last, again and again. If the latest stayed, none would be there when it is next
    asked for; so the first do."""
    found = made.get(packed)
    if found is None:
        found = _unpacked(packed)
        if len(made) < ROOM:
            made[packed] = found
    return found


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> TrialRecord:
    unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS, zdict=_names())
    return TrialRecord.model_validate_json(unpacker.decompress(packed))


@lru_cache
def _names() -> bytes:
    """The names of fields, which every record has, so that no packed one has to."""
    record = TrialRecord(
        cell={}, repetition=1, index=0, run="r", outcome="measured", valid=True, verdict=""
    )
    return record.model_dump_json().encode()


class Records(Sequence[TrialRecord]):
    """Records in the order in which they were measured."""

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        self.packed = tuple(packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[TrialRecord]:
        return map(unpack, self.packed)

    @overload
    def __getitem__(self, index: int) -> TrialRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> TrialRecord | Records:
        found = self.packed[index]
        return unpack(found) if isinstance(found, bytes) else Records(found)


Json = dict[str, Any]
PLACE = r"[A-Za-z0-9_][\w.@-]*:/[\w./+@-]*"
"""host:folder, as ssh knows the host."""
HALF_LINE = "half-written last line: the run was interrupted while it wrote; it is ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something in a run directory that could not be read; the rest still is."""

    where: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    records: Records
    """Records in the order in which they were measured; of a repeated run the last."""
    damage: tuple[Damage, ...]


@dataclass(frozen=True, kw_only=True)
class RunDir:
    """A run directory opened for reading, whatever state it is in."""

    path: Path
    manifest: Json
    experiment: str
    lab: str
    trials: Trials
    damage: tuple[Damage, ...]
    """Damage to the files beside the trials; each trial's own files are read when asked for."""

    @property
    def sut_names(self) -> tuple[str, ...]:
        """Names of the SUTs by the manifest, or by the experiment file of an older run."""
        named = [table_in(self.manifest, "sut"), *tables_in(self.manifest, "suts")]
        names = [str(sut["name"]) for sut in named if sut.get("name")]
        if not names:
            with suppress(tomllib.TOMLDecodeError, AttributeError):
                kind = tomllib.loads(self.experiment).get("sut", {}).get("kind")
                names = [str(kind)] if kind else []
        return tuple(dict.fromkeys(names))

    @cached_property
    def all_damage(self) -> tuple[Damage, ...]:
        """Damage to the trials' own files as well."""
        rows = (
            damaged_row
            for record in self.trials.records
            for damaged_row in self.damaged_rows(record.run)
        )
        return (*self.damage, *self.trials.damage, *self.unlisted(), *rows)

    def beside(self, name: str) -> Json | Damage | None:
        """A file of `write_beside`; None if there is no such file."""
        return _read_object(Folder(self.path), f"{safe_name(name)}.json", f"{name}.json")

    def detail(self, run: str, name: str) -> Json | Damage | None:
        """`ledger`, `offered`, `counters`, `trial` of a run; None if there is no such file."""
        file = f"{safe_name(name)}.json"
        return _read_object(self._of(run), file, f"{RUNS}/{run}/{file}")

    def sampled_hosts(self, run: str) -> tuple[str, ...]:
        """Hosts that left samples of this run; `damaged_rows` says if its folder cannot be read."""
        try:
            hosts = [*map(sampled_host, self._of(run).names())]
        except OSError:
            return ()
        return tuple(host for host in hosts if host is not None)

    def samples(self, run: str, host: str) -> Iterator[Json]:
        """Rows of one host's sampler, one at a time; what cannot be read is left out."""
        yield from _rows(self._of(run), samples_of(host))

    def levels(self, run: str, host: str) -> Iterator[tuple[int, int, float]]:
        """Looks at the SUT's capture rings on one host: CLOCK_MONOTONIC in ns, number of the ring,
        part of its frames or blocks in use. What cannot be read is left out."""
        places: list[int] = []
        with suppress(OSError):
            for line in self._of(run).lines(levels_of(host)):
                with suppress(NotJson, LookupError, TypeError, ValueError, ArithmeticError):
                    if not places:
                        rings = decode_object(line)["rings"]
                        places = [ring["slots"] or ring["blocks"] for ring in rings]
                        continue
                    # What the socket counted comes after, and is null where it may not be read.
                    mono_ns, ring, _, full = map(int, line.strip(b"[]\n ").split(b",")[:4])
                    if ring >= 0:
                        yield mono_ns, ring, full / places[ring]

    def elsewhere(self, run: str) -> str | None:
        """The command that brings the raw files of the run here, if they lie on the storage of a
        lab."""
        found = _read_object(self._of(run), ELSEWHERE, ELSEWHERE)
        if self.sampled_hosts(run) or not isinstance(found, dict) or not found.get("files"):
            return None
        place = f"{found.get('host')}:{found.get('folder')}".rpartition("/")[0]
        # Whoever wrote it may be a stranger.
        if not re.fullmatch(PLACE, place, re.ASCII):
            return None
        return f"scp -rp '{place}/*' {shlex.quote(f'{self.path}/{RUNS}/')}"

    def live(self, run: str) -> Iterator[Json]:
        """Readings of a trial while it ran, phases included; none if nothing was read."""
        yield from _rows(self._of(run), LIVE)

    def watched(self) -> Iterator[bytes]:
        """Lines of a recorded watch; none if this is a run. Half a line at the end is left out."""
        with suppress(OSError):
            yield from (line for line in Folder(self.path).lines(DROPS) if line.endswith(b"\n"))

    def damaged_rows(self, run: str) -> Iterator[Damage]:
        """Files of rows that nothing can be read from: what they would show is left out."""
        folder, lost = self._of(run), "its series are left out"
        try:
            names = folder.names()
        except OSError as failed:
            if not isinstance(failed, FileNotFoundError):
                yield Damage(where=f"{RUNS}/{run}", words=f"{_why(failed)}; {lost}")
            return
        for name in names:
            if not (sampled_host(name) or name == LIVE):
                continue
            try:
                with folder.open(name) as file:
                    file.read(1)
            except OSError as failed:
                yield Damage(where=f"{RUNS}/{run}/{name}", words=f"{_why(failed)}; {lost}")

    def unlisted(self) -> Iterator[Damage]:
        """Trials whose folder says that they ended, but which have no line."""
        with suppress(OSError):
            known = {record.run for record in self.trials.records}
            for run in Folder(self.path).folder(RUNS).names():
                if run not in known and self._of(run).is_there(TRIAL):
                    words = f"{TRIALS} has no line for this trial, so it is in no figure: the "
                    words += "run was interrupted there, or the line is gone"
                    yield Damage(where=f"{RUNS}/{run}", words=words)

    def _of(self, run: str) -> Folder:
        return Folder(self.path).folder(RUNS, safe_name(run))


def must_be_each_once(runs: Iterable[RunDir]) -> None:
    """A run that counts twice makes two of each of its trials; a copy of it is the same run.
    BadInput if one is there twice."""
    seen: dict[str, Path] = {}
    for run in runs:
        keys = {f"folder {run.path.resolve()}", identity(run)}
        for key in keys & seen.keys():
            raise BadInput(f"{seen[key]} and {run.path} are one run: give it once")
        seen |= dict.fromkeys(keys, run.path)


def identity(run: RunDir) -> str:
    """A name that all copies of a run share. Older manifests have no `run_id`, and may lack the
    rest."""
    if isinstance(run_id := run.manifest.get("run_id"), str):
        return f"run {run_id}"
    marks = [run.manifest.get(name) for name in ("name", "started_utc", "plan_sha256")]
    known = all(isinstance(mark, str) and mark for mark in marks)
    return f"run {marks}" if known else f"folder {run.path.resolve()}"


def _rows(folder: Folder, name: str) -> Iterator[Json]:
    with suppress(OSError):
        for line in folder.lines(name):
            with suppress(NotJson):
                yield decode_object(line)


def find_run(path: Path, name: str) -> Path:
    """The run directory to go on with: `path` itself, or the newest one of this name below it, or
    in the store that it is the copy of."""
    if Folder(path).is_file(MANIFEST):
        return path
    copy = Copy.of(path)
    # What follows the name is a time: `snk` must not find a run of `snk-large`.
    wanted = re.compile(re.escape(safe_name(name)) + r"-\d{8}T\d{6}Z(-\d+)?")
    below = Folder(path).folders() if path.is_dir() else []
    found = [
        path / run
        for run in below
        if wanted.fullmatch(run) and Folder(path, (run,)).is_file(MANIFEST)
    ]
    if copy:
        with before_anything():
            found += [path / run for run in copy.store.folders() if wanted.fullmatch(run)]
    if not found:
        raise BadInput(
            f"{copy.store.url if copy else path}: no run of {name} to resume",
            hint="give the run directory with --out, or start without --resume",
        )
    newest = max(found, key=_when_and_which)
    if copy:
        with before_anything():
            brought(f"{copy.store.url}/{newest.name}", newest)
    return newest


def _when_and_which(run: Path) -> tuple[str, int]:
    """`…Z-10` of one second comes after `…Z-9`."""
    when, _, which = run.name.rpartition("Z")
    return when, int(which.lstrip("-") or 1)


def runs_in(folder: Path) -> list[Path]:
    """Run directories in the folder; none if it is one itself."""
    if _is_run(Folder(folder)) or not folder.is_dir():
        return []
    found = Folder(folder)
    try:
        return [folder / name for name in sorted(found.folders()) if _is_run(found.folder(name))]
    except OSError:
        return []


def run_directories(given: Sequence[Path]) -> list[Path]:
    """Run directories as a shell names them: a folder of them stands for all in it, and the page
    that `nodrop report FOLDER` wrote there (results/* has it) for none."""
    runs = [path for path in given if not (path.name == PAGE and path.is_file())] or given
    return [run for path in runs for run in runs_in(path) or [path]]


def _is_run(folder: Folder) -> bool:
    return folder.is_there(MANIFEST) or folder.is_there(TRIALS)


def open_run(path: Path) -> RunDir:
    """Opens for reading. BadInput only if this is no run directory at all."""
    folder = Folder(path)
    if not folder.is_there(TRIALS) and not folder.is_there(MANIFEST):
        newest = max(runs_in(path), key=_when_and_which, default=None)
        raise BadInput(
            f"{path}: not a run directory (neither {MANIFEST} nor {TRIALS})",
            hint=f"the newest in it: {newest}"
            if newest
            else "give the directory that `nodrop run` printed as its last line",
        )
    damage: list[Damage] = []
    manifest: Json = {}
    with _noting(MANIFEST, damage):
        manifest = _manifest_of(folder)
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
    records: dict[str, bytes] = {}
    with _noting(TRIALS, damage):
        for number, line in enumerate(Folder(path).lines(TRIALS), 1):
            where = f"{TRIALS}:{number}"
            if not line.endswith(b"\n"):
                damage.append(Damage(where=where, words=HALF_LINE))
                break
            try:
                record = TrialRecord.from_line(line)
            except RecordError as failed:
                damage.append(Damage(where=where, words=_why(failed)))
                continue
            records.pop(record.run, None)
            records[record.run] = pack(record)
    return Trials(records=Records(records.values()), damage=tuple(damage))


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


def _manifest_of(folder: Folder) -> Json:
    """ValueError, too, if its keys may mean something else than here."""
    found = _object_of(folder, MANIFEST)
    kept = found.get("format", RUN_FORMAT)
    if kept != RUN_FORMAT:
        raise ValueError(
            f"format {kept} is of a newer nodrop; this one reads up to {RUN_FORMAT}"
            if isinstance(kept, int) and kept > RUN_FORMAT
            else f"format is no number of a manifest's format ({RUN_FORMAT})"
        )
    return found


def _read_object(folder: Folder, name: str, where: str) -> Json | Damage | None:
    try:
        return _object_of(folder, name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as failed:
        return Damage(where=where, words=_why(failed))


def command_in(manifest: Json) -> tuple[str, ...]:
    """The words that made the run, safe to show; empty if they are not recorded."""
    argv = list_in(manifest, "command") or list_in(manifest, "nodrop", "argv")
    return ("nodrop", *(plain(word, longest=200) for word in argv[1:])) if argv else ()


def read_manifest(path: Path) -> Json:
    try:
        return _manifest_of(Folder(path))
    except (OSError, ValueError) as failed:
        there = (path / MANIFEST).is_file()
        raise BadInput(
            f"{path / MANIFEST}: {_why(failed)}",
            hint="if there is a copy of this file, put it back"
            if there
            else "give the directory that `nodrop run` printed as its last line",
        ) from failed


def unread(run: RunDir) -> list[str]:
    """Parts of a run directory that are damaged, so that they are in no figure, and why."""
    found = (*run.damage, *run.trials.damage)
    return [plain(f"{one.where}: {one.words}", longest=200) for one in found]
