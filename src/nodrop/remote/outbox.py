"""On the receiver: the folder of a run, and a trial of it that the other half has not taken yet.

While its files go, a marker in the run's folder names that trial. If the run ends before it was
taken, however it ends, the trial outlives that folder, and the same run finds it when it goes on.
One lies there at most: the last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter, ValidationError

from nodrop.errors import LabProblem
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.remote.upload import placed
from nodrop.results.layout import RUNS, files_of_trial, safe_name, write_json
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import plan_sha256
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.journal import UndoReport, going_on, undo_abandoned
from nodrop.testbed.hosts.ssh import SshHost
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode, one_line

RUNS_FOLDER = Path("/var/lib/nodrop")
RUN = "run."
"""Begins the name of the folder that a run fills here, until the other half has its files."""
UNTAKEN = "untaken"
"""Name of a run directory of one trial with the marker, in that folder and, once the run has ended,
beside it. Root's alone."""
MARKER = "untaken"
FOUND_BAD = (OSError, ValueError, TypeError)
"""Exceptions that a folder raises if it was damaged or is of another nodrop."""

Begun = Mapping[str, tuple[int, str]]
"""Path of a file in the run directory → bytes and hash of what is there."""


def fingerprint(trial: TrialInput, plan: str) -> str:
    """Hash of what a trial was asked for; `plan` is the plan's hash. A host that has booted, or a
    SUT that stands, is left out: it is how the trial was measured."""
    searched = trial.searched and trial.searched.model_dump()
    said = {"cell": dict(trial.cell), "load": dict(trial.load), "searched": searched}
    return plan_sha256({"plan": plan, "run": trial.run_name, **said})


def begun_of(directory: Path, run: str) -> Begun:
    """The files that a trial has, in whichever state it is."""
    return {
        "/".join((*folder.below, name)): (size, sha256)
        for folder, name, size, sha256 in files_of_trial(directory, run)
    }


def arrived(file: BinaryIO, size: int, part: tuple[int, str] | None) -> int:
    """How many bytes of this file the other half has, as the hash of its part shows."""
    length, sha256 = part or (0, "")
    if not 0 < length <= size:
        return 0
    digest, left = hashlib.sha256(), length
    while left > 0 and (content := file.read(min(left, 1 << 20))):
        digest.update(content)
        left -= len(content)
    return length if digest.hexdigest() == sha256 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A trial that was measured whole."""

    run_id: str
    asked: str
    """Fingerprint of the order."""
    run: str
    line: str
    """The trial's record, as one line."""
    files: Begun
    """All of them."""
    below: str
    """The run directory that it lies in as long as its run goes on, in the folder of the run."""

    def whole(self, directory: Path) -> bool:
        return begun_of(directory, self.run) == self.files


KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


class Untaken:
    """Trials in the folder of one run that the other half has not taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.directory = folder / UNTAKEN
        self.kept: Kept | None = None
        """A trial of this run, from an earlier sitting."""

    def take_up(self, run_id: object, known: Sequence[str]) -> str | None:
        """Takes up what an earlier sitting of this run has left, unless the other half knows it.
        Returns a sentence if it was damaged; it is then gone."""
        outside = RUNS_FOLDER / UNTAKEN
        with suppress(*FOUND_BAD), _alone():
            if read(outside).run_id != run_id:
                return None
            outside.rename(self.directory)
        if not self.directory.is_dir():
            return None
        kept = read(self.directory)
        if kept.run in known:
            self.taken()
            return None
        with suppress(*FOUND_BAD):
            if kept.whole(self.directory):
                self.kept = kept
                return None
        self.taken()
        return f"{kept.run}: what was kept of it is damaged; it is measured again"

    def mark(
        self, directory: Path, manifest: Json, asked: TrialInput, record: TrialRecord, files: Begun
    ) -> None:
        """This trial is whole. If there is no room for a marker, it is not kept."""
        self.taken()
        kept = Kept(
            run_id=str(manifest["run_id"]),
            asked=fingerprint(asked, str(manifest["plan_sha256"])),
            run=record.run,
            line=record.to_line(),
            files=files,
            below=str(directory.relative_to(self._folder)),
        )
        with suppress(OSError):
            self.directory.mkdir(mode=0o700)
            write_json(Folder(self.directory), f"{MARKER}.json", asdict(kept))

    def taken(self) -> None:
        """The other half has it."""
        self.kept = None
        shutil.rmtree(self.directory, ignore_errors=True)


def read(directory: Path) -> Kept:
    """FOUND_BAD if it cannot be read."""
    found = KEPT.validate_json(Folder(directory).read(f"{MARKER}.json"))
    safe_name(found.run)
    return found


def keep(folder: Path) -> None:
    """Keeps what was not taken of a run that has ended: on return it is on disk, beside the run's
    folder."""
    inside, outside = folder / UNTAKEN, RUNS_FOLDER / UNTAKEN
    with suppress(*FOUND_BAD):
        kept = read(inside)
        if not (inside / RUNS / kept.run).is_dir():
            (inside / RUNS).mkdir(exist_ok=True)
            (folder / kept.below / RUNS / kept.run).rename(inside / RUNS / kept.run)
        _to_disk(inside)
        with _alone():
            shutil.rmtree(outside, ignore_errors=True)
            inside.rename(outside)
            _to_disk(RUNS_FOLDER, deep=False)


def forget() -> list[str]:
    """Removes it, whichever run's; in words."""
    outside = RUNS_FOLDER / UNTAKEN
    if not outside.is_dir():
        return []
    words = "a trial that was not fetched"
    with suppress(*FOUND_BAD):
        found = read(outside)
        words = f"trial {found.run} of run {found.run_id}, which was not fetched"
    with _alone():
        shutil.rmtree(outside, ignore_errors=True)
    return [words]


def sweep() -> list[str]:
    """Removes folders of runs that were killed, which no lock holds any more; returns them in
    words. What was not taken is kept."""
    swept = []
    for left in RUNS_FOLDER.glob(f"{RUN}*"):
        with suppress(OSError), _locked(left):
            keep(left)
            shutil.rmtree(left)
            swept.append(f"folder {left}")
    return swept


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder for this run alone."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=RUN, dir=RUNS_FOLDER))
    folder.chmod(0o711)  # a SUT that is no root finds its own files, and no others
    with _locked(folder):
        try:
            yield folder
        finally:
            keep(folder)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> Iterator[None]:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, how)
        yield
    finally:
        os.close(held)


@contextmanager
def _alone() -> Iterator[None]:
    """Two runs may be on one receiver."""
    with _locked(RUNS_FOLDER, fcntl.LOCK_EX):
        yield


def _to_disk(top: Path, *, deep: bool = True) -> None:
    """No link is followed, and nothing but files and folders is opened."""
    for path, _, names in os.walk(top):
        for name in (*(names if deep else ()), "."):
            with suppress(OSError):
                entry = os.open(f"{path}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    os.fsync(entry)
                finally:
                    os.close(entry)
        if not deep:
            return


UNDO_TIMEOUT_S = 300.0
UNDONE: TypeAdapter[list[UndoReport]] = TypeAdapter(list[UndoReport])
"""The answer of `main` on a host."""


def undone_on(host: SshHost, *, everything: bool) -> Sequence[UndoReport]:
    """Undoes abandoned runs there; with `everything`, also those that go on. LabProblem if the host
    cannot be asked."""
    argv = [*placed(host), __name__, *(["--all"] if everything else [])]
    done = host.run(argv, timeout_s=UNDO_TIMEOUT_S, check=False)
    try:
        return [
            UndoReport(
                label=one_line(report.label),
                done=[f"{host.name}: {one_line(words)}" for words in report.done],
                failed=[f"{host.name}: {one_line(words)}" for words in report.failed],
                goes_on=[f"{host.name}: {one_line(words)}" for words in report.goes_on],
            )
            for report in UNDONE.validate_python(decode(done.stdout))
        ]
    except (NotJson, ValidationError):
        words = one_line(done.stderr or done.stdout) or f"status {done.returncode}"
        raise LabProblem(f"{host.name}: cannot undo there: {words}") from None


def main() -> None:
    everything = "--all" in sys.argv[1:]
    reports = [*undo_abandoned(running=everything), *going_on()]
    further = [*sweep(), *(forget() if everything else ())]
    reports += [UndoReport(label="", done=further)] if further else []
    sys.stdout.write(json.dumps([asdict(report) for report in reports]))


if __name__ == "__main__":
    main()
