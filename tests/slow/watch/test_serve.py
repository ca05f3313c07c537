"""The page on loopback: to who knows the token, and nothing else."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nodrop.errors import BadInput
from nodrop.results.writer import RunWriter
from nodrop.watch.follow import RunFollower
from nodrop.watch.serve import MOST_CONNECTIONS, MOST_VIEWERS, ServedPage, serve_page

TIMEOUT_S = 10.0


@pytest.fixture
def to(tmp_path: Path) -> Iterator[RunWriter]:
    with RunWriter.create(
        tmp_path, "demo", experiment="", lab="", plan_sha256="p", manifest={"order": ["0001-r01"]}
    ) as found:
        yield found


@pytest.fixture
def page(to: RunWriter) -> Iterator[ServedPage]:
    with serve_page(RunFollower.of(to.path)) as found:
        yield found


def ask(page: ServedPage, path: str, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(page.address).netloc, timeout=TIMEOUT_S)
    connection.request(method, path)
    return connection.getresponse()


def token_of(page: ServedPage) -> str:
    return urlsplit(page.address).path


def test_the_page_stands_under_its_token(page: ServedPage) -> None:
    assert page.address.startswith("http://127.0.0.1:")
    assert len(token_of(page)) > 20
    answer = ask(page, token_of(page))
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert b"<!doctype html>" in answer.read()


@pytest.mark.parametrize(
    "path", ["/", "/events", "/x/", "/x/events", "{token}manifest.json", "{token}../", "{token}x/"]
)
def test_nothing_else_is_served(page: ServedPage, path: str) -> None:
    answer = ask(page, path.replace("{token}", token_of(page)))
    assert (answer.status, answer.read()) == (404, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_read_only(page: ServedPage, method: str) -> None:
    assert ask(page, token_of(page), method).status == 501


def event(answer: http.client.HTTPResponse) -> dict[str, object]:
    """The next one; comments are passed over."""
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            found: dict[str, object] = json.loads(line[6:])
            return found


def test_viewers_are_told_of_the_run_until_it_ends(page: ServedPage, to: RunWriter) -> None:
    answer = ask(page, token_of(page) + "events")
    assert answer.headers["Content-Type"] == "text/event-stream"
    first = event(answer)
    assert (first["name"], first["total"], first["over"]) == ("demo", 1, False)
    to.close()
    looking = threading.Thread(target=page.until_over)
    looking.start()
    last = event(answer)
    while not last["over"]:
        last = event(answer)
    assert last["goes_on"] is False
    assert answer.read().replace(b": nothing new", b"").strip() == b""
    looking.join(TIMEOUT_S)
    assert not looking.is_alive()


def test_viewers_are_limited(page: ServedPage) -> None:
    answers = [ask(page, token_of(page) + "events") for _ in range(MOST_VIEWERS)]
    assert [answer.status for answer in answers] == [200] * MOST_VIEWERS
    assert ask(page, token_of(page) + "events").status == 503
    for answer in answers:
        answer.close()


@pytest.mark.parametrize("connections", [MOST_CONNECTIONS + 1, 100, 250])
def test_hundreds_without_a_token_do_not_end_it(
    page: ServedPage, to: RunWriter, connections: int
) -> None:
    """Each is a file and a thread of ours; the files that a process may open are few."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The others' ends are of this process, too, and need room.
    resource.setrlimit(resource.RLIMIT_NOFILE, (connections + MOST_CONNECTIONS + 60, most))
    port = urlsplit(page.address).port
    try:
        with ExitStack() as stack:
            for _ in range(connections):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            threads = [one for one in threading.enumerate() if "process_request" in one.name]
            assert len(threads) <= MOST_CONNECTIONS
            page._board.look()
            assert ask(page, token_of(page)).status == 200, "who knows the token gets in"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))


@pytest.mark.parametrize("word", [b"", b"GET /wrong", b"\0" * 100])
def test_a_viewer_is_not_pushed_out_by_who_has_no_token(page: ServedPage, word: bytes) -> None:
    port = urlsplit(page.address).port
    viewers = [ask(page, token_of(page) + "events") for _ in range(MOST_VIEWERS)]
    with ExitStack() as stack:
        for _ in range(100):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(word)
        assert ask(page, token_of(page)).status == 200
        page._board.close()
        assert all(b'"over"' in viewer.read() for viewer in viewers)


def test_a_port_that_is_taken(page: ServedPage, to: RunWriter) -> None:
    port = urlsplit(page.address).port
    assert port is not None
    with pytest.raises(BadInput, match="--port"), serve_page(RunFollower.of(to.path), port=port):
        pass
