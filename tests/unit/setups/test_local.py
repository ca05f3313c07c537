"""A connection to a Unix socket whose listener is busy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nodrop.testbed.setups.contained import connect


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A socket whose queue is full: the next connection has to wait."""
    path, waiting = tmp_path / "socket", []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)
        with suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(path))
        yield path, listener
    for one in waiting:
        one.close()


def test_a_busy_listener_is_waited_for(full: tuple[Path, socket.socket]) -> None:
    path, listener = full
    answered = threading.Event()

    def accept() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                with stream, suppress(OSError):
                    stream.sendall(b"here\n")
                answered.set()

    later = threading.Timer(0.2, accept)
    later.daemon = True
    later.start()
    with connect(path, timeout_s=30) as stream:
        assert stream.recv(5) == b"here\n"
    assert answered.is_set()


@pytest.mark.parametrize("timeout_s", [0.05, 0.3])
def test_one_that_never_accepts_is_not_waited_for(
    full: tuple[Path, socket.socket], timeout_s: float
) -> None:
    with pytest.raises(TimeoutError, match=f"no connection within {timeout_s:g} s"):
        connect(full[0], timeout_s=timeout_s)


def test_an_answer_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        with connect(path, timeout_s=0.05) as stream, pytest.raises(TimeoutError):
            stream.recv(1)
