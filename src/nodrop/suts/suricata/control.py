"""Suricata's command socket: JSON lines over a Unix socket in the work folder."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from nodrop.errors import TrialFailed
from nodrop.untrusted.json_text import decode_object

_PROTOCOL = "0.2"
MAX_PATH_BYTES = 107
"""sun_path less its final zero."""
LONGEST_ANSWER_BYTES = 64 << 20
"""dump-counters of 64 threads has a megabyte."""


class Refused(TrialFailed):
    """Suricata answered, and said no."""


class ControlSocket:
    """One connection, opened at the first command and closed with the block."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._open = connect
        self._stream: socket.socket | None = None
        self._rest = b""

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def command(self, name: str, **arguments: str) -> Any:
        """The answer's `message`. TrialFailed if Suricata does not answer or refuses."""
        request: dict[str, Any] = {"command": name}
        if arguments:
            request["arguments"] = arguments
        try:
            if self._stream is None:
                self._connect()
            answer = self._ask(request)
        except (OSError, ValueError) as error:
            self._close()
            raise TrialFailed(
                f"Suricata does not answer {name} on its command socket: {error}"
            ) from None
        if answer.get("return") != "OK":
            raise Refused(f"Suricata refused {name}: {answer.get('message')}")
        return answer.get("message")

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._rest = b""

    def _connect(self) -> None:
        self._stream = self._open()
        answer = self._ask({"version": _PROTOCOL})
        if answer.get("return") != "OK":
            raise ValueError(f"protocol {_PROTOCOL} refused: {answer}")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._stream is None:
            raise ConnectionError("not connected")
        self._stream.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._rest:
            # Large answers come in parts: dump-counters of two threads is over 30 kB.
            part = self._stream.recv(65536)
            if not part:
                raise ConnectionError("connection closed")
            self._rest += part
            if len(self._rest) > LONGEST_ANSWER_BYTES:
                raise ConnectionError(f"an answer of more than {LONGEST_ANSWER_BYTES} bytes")
        text, _, self._rest = self._rest.partition(b"\n")
        return decode_object(text, most_bytes=LONGEST_ANSWER_BYTES)
