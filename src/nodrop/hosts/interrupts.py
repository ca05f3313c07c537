"""Signals that end a run become one exception, so everything that was begun is undone."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from nodrop.errors import advice

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the run to end; not an Exception: no broad `except` may eat it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.hint: str | None = None
        self.ended_run: str | None = None
        """Its directory, if a run had begun."""
        self.left = ""
        """Why it is not certain that what was begun is undone."""
        self.exit_code = 128 + number

    @property
    def advice(self) -> str:
        return advice(self.hint, self.ended_run)


class Gate:
    """Raises `Interrupted` once; later signals cannot break the unwinding."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._raised = False

    def check(self) -> None:
        """Raises what was lost in a destructor; does nothing if no signal came."""
        if self._number is not None and not self._raised:
            self._raised = True
            raise Interrupted(self._number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._number is None:
            self._number = number
        self.check()

    def _on_unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        # Python drops what a handler raises inside a destructor: arm the gate again.
        if isinstance(lost.exc_value, Interrupted):
            self._raised = False
        else:
            sys.__unraisablehook__(lost)


@contextmanager
def signals_held() -> Iterator[None]:
    """Signals wait until the block is done: for an undo that must not be left half-way."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def interrupts() -> Iterator[Gate]:
    """Main thread only. Restores the former handlers on exit."""
    gate = Gate()
    former_hook, sys.unraisablehook = sys.unraisablehook, gate._on_unraisable
    try:
        with _handled_by(gate._on_signal):
            yield gate
    finally:
        sys.unraisablehook = former_hook


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread, which this block does not run in
        return
    former = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, earlier in former.items():
            signal.signal(number, earlier)
