"""Outlets of a watch beside the terminal: a run directory, and OpenMetrics on request."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.results.layout import DROPS
from nodrop.results.other_records import WatchedCapture, WatchedInterval
from nodrop.results.writer import RunWriter
from nodrop.untrusted.folder import Folder

CONTENT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_SOCKET = 107
"""Bytes of the path of a Unix socket."""


class Record:
    """A run directory without a sender: `nodrop report` makes a page of it. To be closed."""

    def __init__(self, path: Path, *, host: Mapping[str, Any], command: Sequence[str]) -> None:
        self._writer = RunWriter.create_at(
            path,
            "drops",
            experiment="",
            manifest={
                "question": f"Where does {host.get('hostname', 'this sensor')} lose packets?",
                "host": dict(host),
                "command": [*command],
            },
        )
        self._file = Folder(path).changing(DROPS, append=True)

    def add(self, interval: WatchedInterval) -> None:
        """Not forced onto the disk each time: the sensor has work of its own there."""
        self._file.write(interval.model_dump_json().encode() + b"\n")

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        self._writer.update_manifest(
            {"finished_utc": datetime.now(UTC).isoformat(timespec="seconds")}
        )
        self._writer.close()


class Metrics:
    """The last interval as OpenMetrics, at `GET /metrics` of a port of 127.0.0.1 or of a Unix
    socket. To be closed."""

    def __init__(self, place: str) -> None:
        """BadInput if it can be served neither way."""
        self._text = exposition(None)
        self._socket: Path | None = None
        handler = type("Handler", (_Handler,), {"said": lambda _: self._text})
        try:
            if place.isascii() and place.isdecimal() and int(place) < 1 << 16:
                self._server = HTTPServer(("127.0.0.1", int(place)), handler)
                self.address = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
            elif "/" in place and len(os.fsencode(place)) <= LONGEST_SOCKET:
                _remove_abandoned(place)
                self._server = _UnixServer(place, handler)  # type: ignore[arg-type]
                self._socket = Path(place)
                self.address = f"{place} (GET /metrics)"
            else:
                raise BadInput(
                    f"--metrics {place}: must be a port of this machine (9100; 0 = a free one) or "
                    "the path of a socket (./drops.sock)"
                )
        except OSError as error:
            raise BadInput(f"--metrics {place}: {error.strerror}") from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, interval: WatchedInterval) -> None:
        self._text = exposition(interval)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)


class _UnixServer(HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 2.0
    said: Any

    def do_GET(self) -> None:
        # Pages of a browser reach a loopback port under a name of their own.
        host = self.headers.get("Host", "127.0.0.1").partition(":")[0]
        tcp = self.connection.family != socket.AF_UNIX
        if tcp and host not in ("127.0.0.1", "localhost"):
            self.send_error(403)
        elif self.path != "/metrics":
            self.send_error(404)
        else:
            body = self.said().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Standard output and error are the watch's."""

    def address_string(self) -> str:
        return "a client"


def _remove_abandoned(place: str) -> None:
    """A socket without a listener is in the way; anything else is left alone."""
    path = Path(place)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(place)
            except ConnectionRefusedError:
                path.unlink()


PAIRS = ("offered", "arrived", "waiting", "read", "residual")
FLAGS = ("closed", "at_least", "stopped")


def exposition(interval: WatchedInterval | None) -> str:
    """Text of OpenMetrics 1.0. A value that is not visible is left out."""
    families: dict[tuple[str, str, str], list[str]] = {}

    def sample(
        name: str, kind: str, value: float | None, words: str = "", **labels: object
    ) -> None:
        if value is not None:
            told = ",".join(f'{key}="{_escaped(str(one))}"' for key, one in labels.items())
            suffix = "_total" if kind == "counter" else ""
            line = f"nodrop_drops_{name}{suffix}{{{told}}} {value}"
            families.setdefault((name, kind, words), []).append(line.replace("{}", ""))

    for place in interval.places if interval else ():
        named = {"place": place.place, "where": place.where, "counter": place.counter}
        sample("lost", "counter", place.total, "Packets, or times, since the watch began.", **named)
        sample("lost_per_second", "gauge", place.rate_pps, "Within the last interval.", **named)
    for one in interval.captures if interval else ():
        named = {"program": one.program or "", "pid": str(one.pid or ""), "port": one.port}
        _of_capture(sample, one, named)
    if interval:
        sample("interval_seconds", "gauge", interval.interval_s, "Length of the last interval.")
        sample("look_seconds", "gauge", interval.look_ns / 1e9, "How long the last look took.")
        sample("not_visible", "gauge", len(interval.not_visible), "Sources that cannot be read.")
    lines: list[str] = []
    for (name, kind, words), samples in families.items():
        lines += [f"# TYPE nodrop_drops_{name} {kind}"]
        lines += [f"# HELP nodrop_drops_{name} {words}"] if words else []
        lines += samples
    return "\n".join([*lines, "# EOF"]) + "\n"


def _of_capture(sample: Any, one: WatchedCapture, named: Mapping[str, object]) -> None:
    for name in PAIRS:
        pair = getattr(one, f"{name}_packets")
        for bound, value in zip(("low", "high"), pair or (), strict=False):
            words = "Since the capture was first seen, between two readings."
            sample(f"{name}_packets", "gauge", value, words, **named, bound=bound)
    sample("dropped_packets", "gauge", one.dropped_packets, "Since it was first seen.", **named)
    for name in ("oldest", "overflow"):
        value = getattr(one, f"{name}_ms")
        sample(f"{name}_seconds", "gauge", None if value is None else value / 1e3, "", **named)
    for name in FLAGS:
        flag = getattr(one, name)
        sample(name, "gauge", None if flag is None else int(flag), "1 = yes, 0 = no.", **named)
    for thread in one.threads:
        for name in ("ran", "waited"):
            words = "Part of the last interval."
            value = getattr(thread, name)
            sample(f"thread_{name}_ratio", "gauge", value, words, **named, thread=thread.name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
