"""A host that only the user's own machine can log in on, for a nodrop that runs elsewhere.

The machine that holds the ssh connection (`RelayEnd`) begins there what the other asks for. The
other one (`RelayDoor`) listens on a Unix socket of root's alone, and who wants a conversation runs
`relay_client.py`, which stands where `ssh HOST COMMAND` stands otherwise. All goes by one pair of
pipes, in frames with a length, a channel and a kind: if it ends, whichever side dies, so does every
conversation.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from nodrop.errors import LabProblem
from nodrop.testbed.hosts import relay_client
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.node import start_child
from nodrop.testbed.hosts.ssh_connection import SshConnection

HEAD = struct.Struct("<IIB")
"""Length of the payload, channel, kind."""
LONGEST_BYTES = 64 * 1024
"""Limit on a payload."""


class Frame(NamedTuple):
    channel: int
    kind: str
    payload: bytes


class Frames:
    """An end of a relay. Any thread may send, one receives."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._sending = threading.Lock()

    def send(self, channel: int, kind: str, payload: bytes = b"") -> None:
        """OSError if no one listens any more."""
        with self._sending:
            try:
                self._sink.write(HEAD.pack(len(payload), channel, ord(kind)) + payload)
                self._sink.flush()
            except ValueError:
                raise BrokenPipeError("closed") from None

    def say(self, channel: int, kind: str, words: Mapping[str, Any]) -> None:
        self.send(channel, kind, json.dumps(words, ensure_ascii=False).encode())

    def stream(self, channel: int, kind: str, content: bytes) -> None:
        """Content of any length, in as many frames as it takes."""
        for start in range(0, len(content), LONGEST_BYTES):
            self.send(channel, kind, content[start : start + LONGEST_BYTES])

    def receive(self) -> Frame | None:
        """None at the end, also in the midst of a frame. ValueError if this is none of ours."""
        head = self._source.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        length, channel, kind = HEAD.unpack(head)
        if length > LONGEST_BYTES:
            raise ValueError(f"a frame of {length} bytes, allowed are {LONGEST_BYTES}")
        payload = self._source.read(length)
        return Frame(channel, chr(kind), payload) if len(payload) == length else None


RELAY_VARIABLE = "NODROP_RELAY"
"""The socket by which the sender is reached."""
LONGEST_ANSWER_BYTES = 64 * 1024


class HeldHere:
    """The host is this machine itself."""

    address = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, words: str) -> list[str]:
        return ["sh", "-c", words]

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def gone(self, *, within_s: float = 0) -> bool:
        del within_s
        return False

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def __enter__(self) -> Self:
        return self


Held = SshConnection | HeldHere
"""A connection of this machine's, that begins programs on its host."""


class RelayEnd:
    """The end of a relay where the connection is. `hear` is given every frame of a channel that is
    not 0."""

    def __init__(self, frames: Frames, connection: Held) -> None:
        self._frames, self._connection = frames, connection
        self._connecting, self._changing = threading.Lock(), threading.Lock()
        self._programs: dict[int, subprocess.Popen[bytes]] = {}
        self._unwanted: set[int] = set()
        """Channels that were left before their programs had begun."""
        self._over = False

    def hear(self, frame: Frame) -> None:
        channel = frame.channel
        with self._changing:
            program = self._programs.get(channel)
            if frame.kind == "k" and program is None:
                self._unwanted.add(channel)
        if frame.kind == "o":
            _in_thread(self._opened, channel, json.loads(frame.payload))
        elif program is None:
            return  # it has ended, and that is on its way
        elif frame.kind == "d":
            with suppress(OSError, ValueError):
                assert program.stdin is not None
                program.stdin.write(frame.payload)
                program.stdin.flush()
        elif frame.kind == "e":
            _close(program.stdin)
        elif frame.kind == "k":
            program.kill()

    def close(self) -> None:
        """Ends what still goes by the connection."""
        with self._changing:
            self._over = True
            for program in self._programs.values():
                program.kill()

    def _opened(self, channel: int, asked: Json) -> None:
        with suppress(OSError):  # no one listens: `close` is on its way
            if "command" in asked:
                self._run(channel, str(asked["command"]))
            elif "connect" in asked:
                self._frames.say(channel, "x", self._connected())
            else:
                within_s = float(asked["gone"])
                self._frames.say(channel, "x", {"gone": self._connection.gone(within_s=within_s)})

    def _connected(self) -> Json:
        connection = self._connection
        with self._connecting:
            try:
                if connection.gone():
                    connection.close()
                    connection.__enter__()
            except LabProblem as problem:
                return {"failure": str(problem)}
            return {"address": connection.address}

    def _run(self, channel: int, words: str) -> None:
        program = start_child(self._connection.command(words), self._connection.environment())
        with self._changing:
            self._programs[channel] = program
            if self._over or channel in self._unwanted:
                program.kill()
        self._frames.send(channel, "s")
        out, err = program.stdout, program.stderr
        assert out is not None and err is not None
        errors = _in_thread(self._passed, channel, "2", err.fileno())
        self._passed(channel, "1", out.fileno())
        errors.join()
        status = program.wait()
        for pipe in (program.stdin, out, err):
            _close(pipe)
        with self._changing:
            del self._programs[channel]
            over = self._over
        if not over:  # else it was killed because the pipes are gone, and that is what is said
            self._frames.say(channel, "x", {"status": status})

    def _passed(self, channel: int, kind: str, descriptor: int) -> None:
        with suppress(OSError):
            while part := os.read(descriptor, LONGEST_BYTES):
                self._frames.send(channel, kind, part)


@dataclass(slots=True)
class _Guest:
    """A visitor at the door: a client, or we with a question."""

    socket: socket.socket
    files: Sequence[int]
    """The client's stdin, stdout and stderr; none of a question."""
    begun: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class RelayDoor:
    """The end of a relay where the connection is wanted. To be entered; `hear` as above."""

    def __init__(self, frames: Frames, *, folder: Path) -> None:
        """The door is made in the folder."""
        self._frames, self._above = frames, folder
        self._numbers = itertools.count(1)
        self._guests: dict[int, _Guest] = {}
        self._standing = ExitStack()
        self._broken = False
        self.path = Path()

    def __enter__(self) -> Self:
        folder = tempfile.mkdtemp(prefix="door.", dir=self._above)  # 0700
        self._standing.callback(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "door"
        listening = socket.socket(socket.AF_UNIX)
        self._standing.callback(_shut, listening)
        listening.bind(str(self.path))
        self.path.chmod(0o600)
        listening.listen()
        _in_thread(self._let_in, listening)
        return self

    def __exit__(self, *_: object) -> None:
        self._standing.close()
        self.broken()

    def broken(self) -> None:
        """The pipes have ended, and with them what goes by them."""
        self._broken = True
        for guest in list(self._guests.values()):
            guest.over.set()
            _shut(guest.socket)

    def hear(self, frame: Frame) -> None:
        guest = self._guests.get(frame.channel)
        if guest is None:
            return
        if frame.kind in "12":
            # Blocks all others while this one is not read from; nodrop reads from all it begins.
            _written(guest.files[int(frame.kind)], frame.payload)
        elif frame.kind == "s":
            guest.begun.set()
        elif frame.kind == "x":
            guest.begun.set()
            guest.over.set()
            with suppress(OSError):
                guest.socket.sendall(frame.payload)
                guest.socket.shutdown(socket.SHUT_WR)

    def _let_in(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                guest, _ = listening.accept()
                _in_thread(self._served, guest)

    def _served(self, stream: socket.socket) -> None:
        number = next(self._numbers)
        with stream, suppress(OSError):
            asked, files, _, _ = socket.recv_fds(stream, LONGEST_BYTES, 3)
            guest = _Guest(stream, files)
            self._guests[number] = guest
            try:
                if self._broken:
                    return
                self._frames.send(number, "o", asked)
                if files:
                    _in_thread(self._fed, number, guest)
                stream.recv(1)  # it says nothing more, so this is its end
                if not guest.over.is_set():
                    self._frames.send(number, "k")
            finally:
                del self._guests[number]
                for descriptor in files:
                    os.close(descriptor)

    def _fed(self, number: int, guest: _Guest) -> None:
        # Its own, because the guest's are closed when it has left.
        descriptor = os.dup(guest.files[0])
        try:
            guest.begun.wait()
            while part := os.read(descriptor, LONGEST_BYTES):
                self._frames.send(number, "d", part)
            self._frames.send(number, "e")
        except OSError:
            pass  # the pipes are gone
        finally:
            os.close(descriptor)


class RelayedConnection(SshConnection):
    """An SshConnection by way of the door at `path`."""

    def __init__(self, path: Path, *, name: str) -> None:
        super().__init__(name, name=name)
        self._path = path

    def __enter__(self) -> Self:
        said = self._asked({"connect": True})
        if failure := said.get("failure"):
            raise LabProblem(str(failure))
        self.address = str(said.get("address", ""))
        return self

    def close(self) -> None:
        """Does nothing: the connection is another machine's, and goes on."""

    def command(self, words: str) -> list[str]:
        return [sys.executable, "-IS", relay_client.__file__, str(self._path), words]

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def gone(self, *, within_s: float = 0) -> bool:
        try:
            return bool(self._asked({"gone": within_s}).get("gone", True))
        except LabProblem:
            return True

    def _asked(self, question: Json) -> Json:
        try:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(str(self._path))
                stream.sendall(json.dumps(question).encode())
                said = b""
                while part := stream.recv(LONGEST_ANSWER_BYTES):
                    said += part
                answer = json.loads(said)
                return answer if isinstance(answer, dict) else {}
        except (OSError, ValueError):
            raise LabProblem(
                f"{self.name}: the way to it is gone: the controller has ended"
            ) from None


def _in_thread(run: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread


def _written(descriptor: int, content: bytes) -> None:
    with suppress(OSError):  # who read it has left
        while content:
            content = content[os.write(descriptor, content) :]


def _close(pipe: Any) -> None:
    if pipe is not None:
        with suppress(OSError):
            pipe.close()


def _shut(stream: socket.socket) -> None:
    """Closes a socket, and wakes who waits for it."""
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()
