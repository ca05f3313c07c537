"""Kinds of trouble, the exit code that each ends with, and signals that end a run.

NodropError
├── BadInput        2  the experiment, lab or command line asks for something impossible
│   └── BadKey         one of its keys does
├── LabProblem      3  the lab could not do what was asked (namespace, mount, node)
│   ├── NotReady    2  seen before anything is touched: a program is missing, a permission …
│   ├── SystemRefused  the operating system refused what always worked before (disk full …)
│   ├── NodeDied       a node job ended without its result
│   └── NodeRefused    a node job answered with its `error` event
└── TrialFailed     1  one trial could not be measured; the others go on
    └── LoadFailed     its generator could not send
"""

from __future__ import annotations

import copy
import errno
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Self

from nodrop.exit_codes import FAULTS_SEEN, LAB_FAILED, REFUSED


class NodropError(Exception):
    """Says what happened, where, and in `hint` what to do about it."""

    exit_code = FAULTS_SEEN
    ended_run: str | None = None
    """Directory of the run, if a run had begun."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        more = advice(self.hint, self.ended_run)
        return f"{self.message}; {more}" if more else self.message


def advice(hint: str | None, ended_run: str | None) -> str:
    go_on = f"go on with --resume --out {ended_run}" if ended_run else None
    return ", then ".join(words for words in (hint, go_on) if words)


class BadInput(NodropError):
    """Bad input is refused before anything is touched; the message names file, key, value and what
    is allowed."""

    exit_code = REFUSED

    def __init__(self, message: str, *, hint: str | None = None, keys: Sequence[str] = ()) -> None:
        """`keys`: dotted keys of the file that it is about."""
        super().__init__(message, hint=hint)
        self.keys = tuple(keys)

    def at(self, place: object) -> Self:
        """The error with the file or the option in front of its message."""
        found = copy.copy(self)
        found.message = f"{place}: {self.message}"
        return found


class BadKey(BadInput):
    """A key of a file asks for something impossible: the message begins with it."""

    def __init__(
        self,
        key: str,
        words: str,
        *,
        given: str = "",
        hint: str | None = None,
        keys: Sequence[str] | None = None,
        unknown: bool = False,
    ) -> None:
        """`given`: its value as TOML writes it. `keys`: of a table those that do not fit together.
        `unknown`: there is no such key."""
        value = f" = {given}" if given else ""
        super().__init__(f"{key}{value}: {words}", hint=hint, keys=[key] if keys is None else keys)
        self.args = (key, words)  # a copy is made of these
        self.key, self.words, self.given, self.unknown = key, words, given, unknown


class LabProblem(NodropError):
    """The host, not the question, is at fault."""

    exit_code = LAB_FAILED


class NotReady(LabProblem):
    """The host lacks something that the user can give it, and nothing was begun."""

    exit_code = REFUSED


class SystemRefused(LabProblem):
    """A call that no part of nodrop expected to fail: a full disk, no file descriptors left."""

    def __init__(self, error: OSError, *, during: str, host: str, files: str) -> None:
        """`files`: where those of that time go; a write does not say its file's name."""
        where = f": {error.filename}" if error.filename else ""
        at = f", files go to {files}" if error.errno in OF_A_DISK and not where else ""
        super().__init__(
            f"{error.strerror or error}{where} (on {host}, during: {during}{at})",
            hint=REMEDIES.get(error.errno or 0, "see what is wrong with this host (dmesg)"),
        )


OF_A_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
REMEDIES = {
    errno.ENOSPC: "make room on that disk (df -h)",
    errno.EDQUOT: "raise the quota of this user, or make room",
    errno.EROFS: "write to another disk (--out, TMPDIR): this one is mounted read-only",
    errno.EMFILE: "raise the number of files a process may open (ulimit -n)",
    errno.ENFILE: "raise the number of files this host may open (sysctl fs.file-max)",
    errno.EACCES: "let this user read and write there",
    errno.EPERM: "run as root, or as a user who may do that",
    errno.ENOMEM: "free some memory on this host",
    errno.EAGAIN: "let this user start more processes (ulimit -u)",
}


class NodeDied(LabProblem):
    """A node job ended without a result; carries the end of its stderr."""


class NodeRefused(LabProblem):
    """A node job said why it cannot, in its own words `said`; `kind` is the protocol's word."""

    def __init__(self, message: str, *, kind: str, said: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.said = said


class TrialFailed(NodropError):
    """A trial has no numbers: the reason is recorded and the plan goes on.

    `reason`: a code of ledger/outcome.py; empty if the step that failed says enough.
    """

    exit_code = FAULTS_SEEN

    def __init__(self, message: str, *, hint: str | None = None, reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class LoadFailed(TrialFailed):
    """The generator broke down: nothing is said of the SUT."""


# Signals that end a run become one exception, so everything that was begun is undone.

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the run to end; not an Exception: no broad `except` may eat it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.hint: str | None = None
        self.ended_run: str | None = None
        """Directory of the run, if a run had begun."""
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
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # whoever started it logs out
    numbers = [number for number in ENDING if not (nohup and number == signal.SIGHUP)]
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in former.items():
            signal.signal(number, earlier)
