"""The far half of a run as a program that is spoken with, and the relay that goes by its pipes."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from nodrop.elsewhere.words import (
    ALIVE,
    ALIVE_INTERVAL_S,
    FILE,
    LAST,
    OURS,
    End,
    Heard,
    Order,
    command,
    word_of,
)
from nodrop.errors import LabProblem
from nodrop.hosts.frames import Frame, Frames
from nodrop.hosts.lease import HOLDER_VARIABLE, HOST_VARIABLE, holder
from nodrop.hosts.relay import Held, RelayEnd
from nodrop.hosts.seam import Json
from nodrop.hosts.ssh import SshHost
from nodrop.untrusted.json_text import NotJson, shown
from nodrop.untrusted.words import one_line

WAITING = 64
"""Frames that were received and not yet looked at, at most."""
SILENT_S = 60.0
"""It says every few seconds that it is there, also while it loads, undoes or waits; a slow line
needs seconds for a frame."""
UNDO_S = 180.0
"""From when it is to end: it undoes, and may be stuck in that."""
LOOK_S = 1.0
END_TIMEOUT_S = 10.0
STDERR_BYTES = 32 * 1024


class Far:
    """The other half, as a program that is spoken with. To be entered; after it, it has ended."""

    def __init__(self, host: SshHost, control: Sequence[str], sender: Held) -> None:
        self.name, self._host = host.name, host
        self._ended = threading.Event()
        address = host.address and f"SSH_CONNECTION=- - {host.address} -"
        ours = [f"{HOLDER_VARIABLE}={holder()}", f"{HOST_VARIABLE}={host.name}"]
        argv = ["env", *([address] if address else []), *ours, *control, "nodrop.elsewhere.far"]
        self._program = host.begin(argv)
        out, into = self._program.stdout, self._program.stdin
        assert out is not None and into is not None
        self._frames = Frames(out, into)
        self._relay = RelayEnd(self._frames, sender)
        self._came: queue.Queue[tuple[str, bytes] | None] = queue.Queue(WAITING)
        self._heard = Heard()
        self._listens, self._silent_s = False, 0.0
        """Counted while we listen: we may be stopped, or busy with what it said."""
        self._end_by_s: float | None = None
        self._errors = bytearray()
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._read, self._read_errors, self._live)
        ]

    def greeted(self) -> None:
        """It runs there, and is of our version. LabProblem, in one sentence, if not."""
        try:
            word = self.word()
        except LabProblem as problem:
            words = self._stuck() or f"nodrop cannot run there{self._last()}"
            raise LabProblem(f"{self.name}: {words}") from problem
        if word.get("event") != "hello":
            raise LabProblem(f"{self.name}: nodrop there says {shown(word.get('event'))} at first")

    def order(self, order: Order) -> None:
        with suppress(OSError):  # it has ended: that is heard
            command(self._frames, order)

    def end(self, number: int) -> None:
        """It is to end by this signal, and to undo. If it hangs, it may not even take the word."""
        self._end_by_s = time.monotonic() + UNDO_S
        threading.Thread(target=self.order, args=(End(signal=number),), daemon=True).start()

    def word(self) -> Json:
        """The next one. LabProblem if it has ended, or is stuck."""
        while True:
            kind, content = self._next()
            if kind != FILE:
                return word_of(content)

    def file(self, size: int) -> Iterator[bytes]:
        """Content of a file, which follows the word that announces it."""
        while size > 0:
            kind, content = self._next()
            if kind != FILE or len(content) > size:
                raise NotJson("a file that is not as long as it was said")
            size -= len(content)
            yield content

    def _next(self) -> tuple[str, bytes]:
        came = self._await()
        if came is None:
            self._came.put(None)
            gone = ": the ssh connection is gone" if self._host.lost() else ""
            raise LabProblem(f"{self.name}: nodrop there has ended{gone}{self._last()}")
        return came

    def _await(self) -> tuple[str, bytes] | None:
        """None: it has ended."""
        while True:
            try:
                return self._came.get(timeout=LOOK_S)
            except queue.Empty:
                self._silent_s += LOOK_S if self._listens else 0
                if words := self._stuck():
                    raise LabProblem(f"{self.name}: {words}") from None

    def _stuck(self) -> str:
        """Why it is not waited for any longer; "" if it is."""
        if self._silent_s >= SILENT_S:
            words = f"says nothing for {SILENT_S:g} s: it hangs, or its host"
        elif self._end_by_s is not None and time.monotonic() > self._end_by_s:
            words = f"does not end within {UNDO_S:g} s"
        else:
            return ""
        return f"nodrop there {words}; `nodrop undo LAB --all` ends it"

    def _last(self) -> str:
        """The last line that the program complained of."""
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(END_TIMEOUT_S)
        self._threads[1].join(1.0)
        lines = bytes(self._errors).decode(errors="replace").strip().splitlines()
        return f": {one_line(lines[-1], longest=300)}" if lines else ""

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while (frame := self._received()) is not None:
                if frame.channel != OURS:
                    self._relay.hear(frame)
                elif frame.kind == ALIVE:
                    continue
                elif frame.kind == FILE:
                    self._came.put((FILE, frame.payload))
                elif (content := self._heard.word(frame)) is not None:
                    self._came.put((LAST, content))
        self._ended.set()
        self._relay.close()
        self._came.put(None)

    def _received(self) -> Frame | None:
        self._silent_s, self._listens = 0.0, True
        try:
            return self._frames.receive()
        finally:
            self._listens = False

    def _live(self) -> None:
        """Says now and then that we are."""
        with suppress(OSError, ValueError):
            while not self._ended.wait(ALIVE_INTERVAL_S):
                self._frames.send(OURS, ALIVE)

    def _read_errors(self) -> None:
        assert self._program.stderr is not None
        with suppress(OSError, ValueError):
            for line in self._program.stderr:
                self._errors += line
                del self._errors[:-STDERR_BYTES]

    def __enter__(self) -> Far:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        program = self._program
        assert program.stdin is not None
        self._ended.set()
        self._end_by_s = self._end_by_s or time.monotonic() + UNDO_S
        try:
            if not self._stuck():
                with suppress(OSError):
                    program.stdin.close()
            while self._await() is not None:  # until it has undone, whatever it still says
                pass
        except LabProblem:  # it is stuck, and ssh would keep our pipes open
            self._host.close()
        with suppress(subprocess.TimeoutExpired):
            program.wait(END_TIMEOUT_S)
        if program.poll() is None:
            program.kill()
            program.wait()
        for pipe in (program.stdin, program.stdout, program.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
