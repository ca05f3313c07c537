"""Another place that files of a run follow to when their trial has ended: a store, a host.

Whatever becomes of that place, the run goes on: what could not follow stays here, is said once, and
follows when the place is there again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nodrop.errors import LabProblem

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
