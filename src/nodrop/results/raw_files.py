"""Raw files of a run, which follow to the storage of its lab when their trial has ended.

Raw are the rows of samplers and the large files of the SUT: most of what a run takes on disk, and
no figure is made of them. Each is there whole, by its hash, before it is removed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from nodrop.config.units import count_of
from nodrop.errors import LabProblem
from nodrop.results.names import ELSEWHERE, RUNS, SUT, TRIAL, sampled_host
from nodrop.results.trial_folder import files_of_trial, write_json
from nodrop.untrusted.folder import Folder

AGAIN_S = 60.0
"""A place that was lost is tried again after the first trial that ends so much later."""


class Follower(Protocol):
    """Brings files of a run to its place."""

    way: Way

    def ended(self, run: str) -> None:
        """This trial; its files are here."""
        ...

    def rest(self) -> None:
        """All that did not follow yet. LabProblem, with what to do about it, if it cannot."""
        ...


class Way:
    """To such a place, which may be lost for a while."""

    def __init__(self, place: str, path: Path) -> None:
        """`place`, in words; `path`: of the run here."""
        self._place, self._path = place, path
        self.notes: list[str] = []
        """For whoever shows the run: the place is lost, or found again."""
        self._lost_at: float | None = None

    def said(self) -> list[str]:
        """The notes, once."""
        found, self.notes = self.notes, []
        return found

    def put(self, some: Callable[[], None], *, rest: Callable[[], None] | None = None) -> None:
        """`some`, unless the place is lost; once it is tried again, the `rest` of all."""
        if self._lost_at is None:
            try:
                some()
            except LabProblem as lost:
                self._lost_at = time.monotonic()
                self.notes.append(f"{lost.message}; files stay in {self._path} until it answers")
        elif rest is not None and time.monotonic() - self._lost_at >= AGAIN_S:
            try:
                rest()
            except LabProblem:
                self._lost_at = time.monotonic()
            else:
                self._lost_at = None
                self.notes.append(f"{self._place}: is there again, and has what it lacked")


Json = dict[str, Any]
LARGE_BYTES = 1 << 18
"""Size from which on a file of the SUT is raw: a log that is read by eye is shorter, and stays."""


class Keeper(Protocol):
    """A host that keeps files."""

    host: str
    path: str
    """The folder there in which runs have theirs."""

    def keep(self, folder: Folder, name: str, sha256: str, *, there: str) -> None:
        """This file, in folder `there`; on disk when it returns. LabProblem, in one sentence, if
        it cannot."""
        ...


class RawFiles:
    """The raw files of a run: a `Follower`."""

    def __init__(self, path: Path, keeper: Keeper) -> None:
        self._keeper, self._run = keeper, Folder(path)
        self._there = f"{keeper.path}/{path.resolve().name}"
        self.way = Way(f"{keeper.host}:{self._there}", path)

    def facts(self) -> Json:
        """For the manifest."""
        return {"host": self._keeper.host, "folder": self._there}

    def ended(self, run: str) -> None:
        self.way.put(lambda: self._follow(run), rest=self._follow_all)

    def rest(self) -> None:
        try:
            self._follow_all()
        except LabProblem as lost:
            path, left = self._run.path, len([*self._waiting()])
            raise LabProblem(
                f"{lost.message}; raw files of {count_of(left, 'trial')} lie in {path} alone",
                hint=f"nothing is lost: --resume --out {path} puts them there",
            ) from lost

    def _follow_all(self) -> None:
        for run in self._waiting():
            self._follow(run)

    def _waiting(self) -> Iterator[str]:
        runs = self._run.folder(RUNS)
        for run in runs.folders():
            if runs.folder(run).is_file(TRIAL) and not runs.folder(run).is_file(ELSEWHERE):
                yield run

    def _follow(self, run: str) -> None:
        """Nothing is removed here before a file says where it is."""
        raw = [
            one
            for one in files_of_trial(self._run.path, run)
            if _is_raw(one[0].below[2:], name=one[1], size=one[2])
        ]
        for folder, name, _, sha256 in raw:
            self._keeper.keep(folder, name, sha256, there=self._folder(folder))
        files = [
            {"name": "/".join((*folder.below[2:], name)), "bytes": size, "sha256": sha256}
            for folder, name, size, sha256 in raw
        ]
        trial = self._run.folder(RUNS, run)
        place = {"host": self._keeper.host, "folder": self._folder(trial)}
        write_json(trial, ELSEWHERE, {**place, "files": files})
        for folder, name, _, _ in raw:
            folder.remove(name)

    def _folder(self, here: Folder) -> str:
        return "/".join((self._there, *here.below[1:]))


def _is_raw(below: tuple[str, ...], *, name: str, size: int) -> bool:
    """`below`: the folders between the trial's and the file."""
    if below[:1] == (SUT,):
        return size >= LARGE_BYTES
    return not below and sampled_host(name) is not None
