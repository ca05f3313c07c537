"""Several conversations in one pair of pipes: each frame has a length, a channel and a kind."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

HEAD = struct.Struct("<IIB")
"""Length of the payload, channel, kind."""
LONGEST_BYTES = 64 * 1024
"""Limit on a payload."""


class Frame(NamedTuple):
    channel: int
    kind: str
    payload: bytes


class Frames:
    """One end. Any thread may send, one receives."""

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
