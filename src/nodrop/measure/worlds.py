"""The world that stands between the trials of a sitting: at most one, left when another is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from nodrop.errors import LabProblem, TrialFailed
from nodrop.measure.api import Measurer, Standing, Trial
from nodrop.measure.cells import Cell, Table


class Worlds:
    """The one world that may stand. It is left before a trial that wants a new one, when it is
    worn, and when a trial fails."""

    def __init__(self, measurer: Measurer, note: Callable[[str], None]) -> None:
        self._measurer, self._note, self._stack = measurer, note, ExitStack()
        self._said: set[str] = set()
        self._cell: Cell | None = None
        self._standing: Standing | None = None

    @contextmanager
    def standing(self, cell: Cell, trial: Trial, *, load: Table, new: bool) -> Iterator[Standing]:
        self._leave_for(cell, new=new)
        try:
            if self._standing is not None and (spent := self._standing.spent(load, trial)):
                self._note(f"trial {trial.index} begins with a new start of the SUT: {spent}")
                self.leave()
            if self._standing is None:
                standing = self._stack.enter_context(self._measurer.stand(cell, trial))
                self._standing, self._cell = standing, cell
            yield self._standing
        except Exception as failed:
            self._standing = None
            # The standing place hears of it: it may know why (a port that went away).
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            raise
        if worn := self._standing.worn:
            if not new:
                self._say_worn(worn)
            self._leave()

    def _leave_for(self, cell: Cell, *, new: bool) -> None:
        """Leaves the standing SUT, if that is due. Its trials are in the books already: an error
        here is a part of none."""
        if self._standing is None:
            return
        worn = self._standing.worn
        if worn:
            self._say_worn(worn)
        if new or worn or self._cell != cell:
            self.leave()

    def _say_worn(self, worn: str) -> None:
        if worn not in self._said:
            self._said.add(worn)
            self._note(f"the SUT does not stand for another trial: {worn}")

    def leave(self) -> None:
        """Leaves what stands, whose trials are over."""
        try:
            self._leave()
        except (TrialFailed, LabProblem, OSError) as failed:
            self._note(f"after the last trial of a standing SUT: {failed}")

    def _leave(self) -> None:
        self._standing = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is None:
            self.leave()
        else:
            self._stack.__exit__(kind, *error)
