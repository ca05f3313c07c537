"""One read-only page on loopback: what a run is doing, pushed as server-sent events.

It serves only the page and its events, and only to a viewer who knows the token in the address:
other users of this host can reach the port, but cannot guess the path.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from nodrop.errors import BadInput
from nodrop.watch.follow import RunFollower, View

LOOPBACK = "127.0.0.1"
LOOK_S = 0.5
MOST_VIEWERS = 8
"""Viewers at once; each has a thread of its own."""
MOST_CONNECTIONS = 32
"""Connections at once, of anybody; for one more, the oldest that has not shown the token goes."""
REQUEST_TIMEOUT_S = 3.0
DROP_TIMEOUT_S = 1.0
"""Time for a thread to see that its connection was taken from it."""
HEARTBEAT_LOOKS = 20
"""Looks after which an event is sent in any case: that is how a viewer who left is noticed."""
FAREWELL_S = 2.0
"""Time for viewers to hear of the end before the server goes."""
OF_EVERY_ANSWER = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
END_S = 0.1
"""Time within which the server sees that it is to end."""


class Board:
    """The newest view, for every viewer at once: the run directory is read by one thread."""

    def __init__(self, follower: RunFollower) -> None:
        self._follower = follower
        self._changed = threading.Condition()
        self._event = event_of(follower.look())
        self._number = 0
        self.over = False

    def look(self) -> None:
        view = self._follower.look()
        event = event_of(view)
        with self._changed:
            if event != self._event:
                self._event, self._number = event, self._number + 1
            self.over = view.over
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def newer(self, than: int, wait_s: float) -> tuple[int, str]:
        """The newest event; waits for one that the viewer has not seen."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > than or self.over, timeout=wait_s)
            return self._number, self._event


def event_of(view: View) -> str:
    """One line of JSON."""
    found: dict[str, Any] = asdict(replace(view, new=()))
    del found["new"]  # a viewer who joins later needs the last ones too
    found |= {name: getattr(view, name) for name in ("over", "progress", "left", "next_step")}
    return json.dumps(found, ensure_ascii=True, allow_nan=False)


class Handler(BaseHTTPRequestHandler):
    """Answers two addresses and says nothing about any other."""

    server: _Server
    server_version = "nodrop"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S

    def __init__(self, *args: Any, token: str, board: Board, viewers: threading.Semaphore) -> None:
        self._token, self._board, self._viewers = token, board, viewers
        super().__init__(*args)

    def do_GET(self) -> None:
        _, given, *rest = f"{self.path}/".split("/", 3)
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        self.server.proved(self.connection)
        if rest[0] == "" and self.path.endswith("/"):
            self._page()
        elif self.path == f"/{self._token}/events":
            self._events()
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal belongs to the address; and a log would hold the token."""

    def _page(self) -> None:
        body, policy = page()
        head = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
        self._begin(HTTPStatus.OK, {**head, "Content-Security-Policy": policy})
        self.wfile.write(body)

    def _events(self) -> None:
        if not self._viewers.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            head = {"Content-Type": "text/event-stream", "Connection": "close"}
            self._begin(HTTPStatus.OK, head)
            self._push()
        except OSError:
            pass  # the viewer has left
        finally:
            self._viewers.release()
            self.close_connection = True

    def _push(self) -> None:
        seen = -1
        while True:
            number, event = self._board.newer(seen, HEARTBEAT_LOOKS * LOOK_S)
            line = ": nothing new\n\n" if number == seen else f"data: {event}\n\n"
            self.wfile.write(line.encode())
            self.wfile.flush()
            if self._board.over and number == seen:
                return
            seen = number

    def _refuse(self, status: HTTPStatus) -> None:
        self._begin(status, {"Content-Length": "0"})

    def _begin(self, status: HTTPStatus, head: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**head, **OF_EVERY_ANSWER}.items():
            self.send_header(name, value)
        self.end_headers()


def page() -> tuple[bytes, str]:
    """The page and the policy under which only its own script and style may run."""
    folder = files("nodrop.watch")
    style = (files("nodrop.report") / "templates" / "chart.css").read_text(encoding="utf-8")
    style += (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    html = (folder / "page.html").read_text(encoding="utf-8")
    body = html.replace("{{ style }}", style).replace("{{ script }}", script).encode()
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src '{_sha256(script)}'; "
        f"style-src '{_sha256(style)}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return body, policy


def _sha256(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class _Server(ThreadingHTTPServer):
    """Each connection is a thread and a file, token or not, so there are not many. Whoever opens
    hundreds without the token pushes out their own: who shows it gets in, and stays."""

    daemon_threads = True
    request_queue_size = 128
    """Connections that may wait to be accepted. With socketserver's 5, a viewer who comes behind a
    crowd waits 1 s for a SYN that is sent again."""

    def __init__(self, *given: Any) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._unproved: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__(*given)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del request, client_address
        if self._places.acquire(blocking=False):
            return True
        self._drop_oldest()
        return self._places.acquire(timeout=DROP_TIMEOUT_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._unproved[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread to be had
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def proved(self, request: socket.socket) -> None:
        """Counts a connection as proved: it has shown the token."""
        with self._changing:
            self._unproved.pop(request, None)

    def _leave(self, request: socket.socket) -> None:
        self.proved(request)
        self._places.release()

    def _drop_oldest(self) -> None:
        with self._changing:
            oldest = next(iter(self._unproved), None)
            if oldest is None:
                return
            del self._unproved[oldest]
            with suppress(OSError):  # it has just been closed
                oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that disconnects is no error of ours."""


class ServedPage:
    def __init__(self, server: ThreadingHTTPServer, board: Board, token: str) -> None:
        self.address = f"http://{LOOPBACK}:{server.server_address[1]}/{token}/"
        self._board = board
        self._stopped = threading.Event()

    def until_over(self) -> None:
        """Looks at the run until it has ended and the viewers know."""
        while not self._board.over:
            self._stopped.wait(LOOK_S)
            self._board.look()
        self._stopped.wait(FAREWELL_S)


@contextmanager
def serve_page(follower: RunFollower, *, port: int = 0) -> Iterator[ServedPage]:
    """Serves while the context lasts."""
    token = secrets.token_urlsafe(16)
    board = Board(follower)
    viewers = threading.BoundedSemaphore(MOST_VIEWERS)
    handler = partial(Handler, token=token, board=board, viewers=viewers)
    try:
        server = _Server((LOOPBACK, port), handler)
    except OSError as error:
        raise BadInput(
            f"--port {port}: {error.strerror}", hint="leave it out: then any free port is taken"
        ) from None
    serving = threading.Thread(target=server.serve_forever, args=[END_S], daemon=True)
    serving.start()
    try:
        yield ServedPage(server, board, token)
    finally:
        board.close()
        server.shutdown()
        server.server_close()
