"""A container's input and output, as the pipes of a Popen: node jobs are spoken to through them.

The daemon carries all of it in one stream; each part of the output has a header (Docker Engine
API, "Attach to a container"). When we die the stream breaks, and the job's stdin ends.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import IO, Protocol, cast

HEAD = struct.Struct(">BxxxI")
"""Which output: 1 stdout, 2 stderr; length of the part."""


class Closes(Protocol):
    def close(self) -> object: ...


class Attached:
    def __init__(self, stream: socket.socket, reading: Closes) -> None:
        stream.settimeout(None)
        self._stream = stream
        self._reading = reading
        ends = os.pipe(), os.pipe()
        self._inputs = {n: os.fdopen(end, "wb", buffering=0) for n, (_, end) in enumerate(ends, 1)}
        self.stdin = cast(IO[bytes], _Input(stream))
        self.stdout: IO[bytes] = os.fdopen(ends[0][0], "rb")
        self.stderr: IO[bytes] = os.fdopen(ends[1][0], "rb")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the daemon was faster
        self._thread.join()
        self._reading.close()
        self._stream.close()
        self.stdout.close()
        self.stderr.close()

    def _read(self) -> None:
        try:
            with self._stream.makefile("rb") as parts:
                while head := parts.read(HEAD.size):
                    number, length = HEAD.unpack(head)
                    self._inputs[number].write(parts.read(length))
        except (OSError, struct.error):
            pass  # cut off, or no reader is left
        for file in self._inputs.values():
            file.close()


class _Input:
    """The writing half of a pipe, as far as a job's controller uses it."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._closed = False

    def write(self, content: bytes) -> int:
        if self._closed:
            raise ValueError("write to closed file")
        self._stream.sendall(content)
        return len(content)

    def flush(self) -> None:
        """Everything is sent at once."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.shutdown(socket.SHUT_WR)
