"""The line into a guest: one virtio-serial port that carries several conversations at once.

The other end is `nodrop-node guest` (docs/node-protocol.md, "A guest"). One thread reads; whoever
wants to write takes a lock. The line breaks when the guest or its emulator ends.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

from nodrop.errors import LabProblem
from nodrop.hosts.seam import Json
from nodrop.untrusted.json_text import NotJson, decode_object, member, optional
from nodrop.untrusted.words import one_line

HEAD = struct.Struct("<IIB")
"""Length of the payload, channel, kind."""
LONGEST_BYTES = 64 * 1024
"""Limit on a payload, in both directions (crates/node/src/guest/frame.rs)."""
MOST_UNHEARD = 1000
"""Words of the guest that no one has asked for yet."""
SEND_TIMEOUT_S = 30.0
"""A guest that takes nothing for so long has hung."""
LOST = -9
"""The status of a program whose guest is gone: nothing of it can be left."""

Take = Callable[[bytes], object]


class GuestLine:
    """Our end. `pid` is that of the emulator, which stands for the guest's programs here."""

    def __init__(self, stream: socket.socket, *, pid: int) -> None:
        self.pid = pid
        self.broken = threading.Event()
        self.why = "the guest is gone"
        """Once it is broken."""
        self._stream = stream
        self._stream.settimeout(SEND_TIMEOUT_S)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, Conversation] = {}
        self._said: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self, timeout_s: float) -> Json | None:
        """The next word of the guest itself (hello, time). None if the line broke."""
        try:
            word = self._said.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None
        if word is None:
            self._said.put(None)
        return word

    def open(self, request: Json, *, out: Take, err: Take) -> Conversation:
        conversation = Conversation(self, next(self._numbers), out=out, err=err)
        self._open[conversation.number] = conversation
        if self.broken.is_set():
            conversation.lost()
        self.send(conversation.number, "o", json.dumps(request).encode())
        return conversation

    def send(self, channel: int, kind: str, payload: bytes = b"") -> None:
        """BrokenPipeError if the guest is gone, or takes nothing any more."""
        try:
            with self._sending:
                self._stream.sendall(HEAD.pack(len(payload), channel, ord(kind)) + payload)
        except OSError as error:
            raise BrokenPipeError(f"the line to the guest broke: {error}") from None

    def close(self) -> None:
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        self._reader.join(SEND_TIMEOUT_S)
        self._stream.close()

    def _read(self) -> None:
        try:
            while True:
                length, channel, kind = HEAD.unpack(self._exactly(HEAD.size))
                if length > LONGEST_BYTES:
                    raise NotJson(f"a frame of {length} bytes, allowed are {LONGEST_BYTES}")
                self._hand_out(channel, chr(kind), self._exactly(length))
        except OSError:
            pass
        except NotJson as error:
            self.why = f"the guest broke the protocol of its line: {error}"
        self.broken.set()
        for conversation in list(self._open.values()):
            conversation.lost()
        self._said.put(None)

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            try:
                part = self._stream.recv(count - len(got))
            except TimeoutError:
                continue  # the timeout is for sending; silence is normal
            if not part:
                raise ConnectionError
            got += part
        return bytes(got)

    def _hand_out(self, channel: int, kind: str, payload: bytes) -> None:
        if channel == 0:
            if self._said.qsize() > MOST_UNHEARD:
                raise NotJson(f"more than {MOST_UNHEARD} words that were not asked for")
            self._said.put(decode_object(payload))
        elif conversation := self._open.get(channel):
            conversation.hear(kind, payload)
            if kind in "fx":
                del self._open[channel]


class Conversation:
    """A program in the guest (a Child, hosts/seam.py), or a file or socket of it."""

    def __init__(self, line: GuestLine, number: int, *, out: Take, err: Take) -> None:
        self.number = number
        self.pid = line.pid
        self.inside_pid: int | None = None
        self.failure: str | None = None
        self._line = line
        self._takes = {"1": out, "2": err}
        self._status: int | None = None
        self._begun = threading.Event()
        self._over = threading.Event()

    def begin(self, timeout_s: float) -> None:
        """Waits until the guest says that it started, or why not (LabProblem)."""
        if not self._begun.wait(timeout_s):
            raise LabProblem(f"the guest did not answer within {timeout_s:g} s")
        if self.failure:
            raise LabProblem(f"guest: {self.failure}")

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired(["guest"], timeout or 0)
        assert self._status is not None
        return self._status

    def send_signal(self, sig: int) -> None:
        if self._status is None:
            self._line.send(self.number, "k", bytes([sig]))

    def kill(self) -> None:
        try:
            self.send_signal(9)
        except BrokenPipeError:
            pass  # gone with its guest

    def write(self, content: bytes) -> None:
        for start in range(0, len(content), LONGEST_BYTES):
            self._line.send(self.number, "d", content[start : start + LONGEST_BYTES])

    def end(self) -> None:
        self._line.send(self.number, "e")

    def hear(self, kind: str, payload: bytes) -> None:
        if kind in self._takes:
            self._takes[kind](payload)
            return
        said = decode_object(payload)
        if kind == "s":
            self.inside_pid = optional(said, "pid", int)
            self._begun.set()
        elif kind == "f":
            self.failure = one_line(member(said, "message", str))
            self._finish(127)
        elif kind == "x":
            self._finish(member(said, "status", int))

    def lost(self) -> None:
        self.failure = self.failure or self._line.why
        self._finish(LOST)

    def _finish(self, status: int) -> None:
        if self._status is None:
            self._status = status
            self._begun.set()
            self._over.set()
            for take in self._takes.values():
                take(b"")


class PipedConversation:
    """A program in the guest with the pipes of a Popen: node jobs are spoken to through it."""

    def __init__(self, line: GuestLine, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.pid = line.pid
        ends = os.pipe(), os.pipe()
        self._inputs = [os.fdopen(write, "wb", buffering=0) for _, write in ends]
        self.stdout: IO[bytes] = os.fdopen(ends[0][0], "rb")
        self.stderr: IO[bytes] = os.fdopen(ends[1][0], "rb")
        takes = [self._into(file) for file in self._inputs]
        request = {"run": {"argv": list(argv), "env": list(env.items())}}
        try:
            self._conversation = line.open(request, out=takes[0], err=takes[1])
        except BrokenPipeError:
            for file in (*self._inputs, self.stdout, self.stderr):
                file.close()
            raise
        self.stdin = cast(IO[bytes], _Input(self._conversation))

    def wait(self, timeout: float | None = None) -> int:
        return self._conversation.wait(timeout)

    def kill(self) -> None:
        self._conversation.kill()

    @staticmethod
    def _into(file: Any) -> Take:
        def take(content: bytes) -> None:
            try:
                if content:
                    file.write(content)
                else:
                    file.close()
            except (OSError, ValueError):
                pass  # no reader is left

        return take


class _Input:
    """The writing half of a pipe, as far as a job's controller uses it."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._closed = False

    def write(self, content: bytes) -> int:
        if self._closed:
            raise ValueError("write to closed file")
        self._conversation.write(content)
        return len(content)

    def flush(self) -> None:
        """Everything is sent at once."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._conversation.end()


def deadline_left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
