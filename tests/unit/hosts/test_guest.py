"""The line into a guest, played by a thread; what a guest boots from."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts import node
from nodrop.testbed.hosts.api import SpawnRequest
from nodrop.testbed.hosts.guest import HEAD, LOST, GuestHost, GuestLine
from nodrop.testbed.images.guest_assets import cpio, module_depends

Reply = Callable[["Guest", int, str, bytes], None]


class Guest:
    """The other end: hands every frame to `reply`."""

    def __init__(self, reply: Reply) -> None:
        ours, self._stream = socket.socketpair()
        self.line = GuestLine(ours, pid=4711)
        self.host = GuestHost(self.line, {})
        self._reply = reply
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, channel: int, kind: str, payload: bytes = b"") -> None:
        with suppress(BrokenPipeError):  # the dead say nothing
            self._stream.sendall(HEAD.pack(len(payload), channel, ord(kind)) + payload)

    def die(self) -> None:
        self._stream.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.line.close()
        self._thread.join(5)
        self._stream.close()

    def _serve(self) -> None:
        with self._stream.makefile("rb") as frames:
            while head := frames.read(HEAD.size):
                length, channel, kind = HEAD.unpack(head)
                self._reply(self, channel, chr(kind), frames.read(length))


@pytest.fixture
def guest() -> Iterator[Callable[[Reply], Guest]]:
    made: list[Guest] = []

    def make(reply: Reply) -> Guest:
        made.append(Guest(reply))
        return made[-1]

    yield make
    for one in made:
        one.end()


def echo(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
    """A program that repeats its input and ends with 3."""
    if kind == "o":
        guest.say(channel, "s", b'{"pid": 42}')
    elif kind == "d":
        guest.say(channel, "1", payload)
    elif kind == "e":
        guest.say(channel, "2", b"done")
        guest.say(channel, "x", b'{"status": 3}')


def silence(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
    """A guest that has hung: its emulator still takes orders, and nothing answers them."""


@pytest.mark.timeout(60)
def test_a_guest_that_hangs_ends_a_job_as_late_as_its_timeout(
    guest: Callable[[Reply], Guest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "CLOSE_GRACE_S", 0.05)  # four times, for what heeds no order
    with pytest.raises(LabProblem, match=r"sent no hello within 0\.5 s"):
        guest(silence).host.job({"job": "sink"}, timeout_s=0.5)


def test_a_program_runs_to_its_end(guest: Callable[[Reply], Guest]) -> None:
    done = guest(echo).host.run(["cat"], check=False, stdin="words")
    assert (done.returncode, done.stdout, done.stderr) == (3, "words", "done")


def test_a_programs_failure_is_told_in_its_words(guest: Callable[[Reply], Guest]) -> None:
    with pytest.raises(LabProblem, match=r"`cat` failed \(3\): done"):
        guest(echo).host.run(["cat"])


def test_a_guest_that_dies_takes_its_programs_along(
    guest: Callable[[Reply], Guest], tmp_path: Path
) -> None:
    def sleep(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        if kind == "o":
            guest.say(channel, "s", b'{"pid": 42}')

    one = guest(sleep)
    said = tmp_path / "stdout"
    child = one.host.spawn(SpawnRequest(argv=["sleep"], stdout=said, stderr=said))
    assert (child.pid, child.inside_pid) == (4711, 42)
    one.die()
    assert child.wait(5) == LOST
    with pytest.raises(LabProblem, match=r"gone|broke"):
        one.host.run(["true"])


def test_a_program_that_cannot_start(guest: Callable[[Reply], Guest], tmp_path: Path) -> None:
    def refuse(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        if kind == "o":
            guest.say(channel, "f", b'{"message": "cannot run nope: not found"}')

    with pytest.raises(LabProblem, match="cannot run nope"):
        guest(refuse).host.spawn(
            SpawnRequest(argv=["nope"], stdout=tmp_path / "o", stderr=tmp_path / "e")
        )


def test_a_node_job_is_spoken_to_as_anywhere(guest: Callable[[Reply], Guest]) -> None:
    def node(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        if kind == "o":
            asked = json.loads(payload)["run"]["argv"]
            assert asked == ["/run/nodrop-node", "probe", "--controlled"]
            hello = {"type": "hello", "protocol": 2, "version": "0", "job": "probe", "pid": 9}
            guest.say(channel, "1", json.dumps(hello).encode() + b"\n")
        elif kind == "d":
            guest.say(channel, "1", b'{"type":"result","tsc":{"batches":0,"ns":{}}}\n')
        elif kind == "e":
            guest.say(channel, "x", b'{"status": 0}')

    assert guest(node).host.probe("tsc")["tsc"] == {"batches": 0, "ns": {}}


def test_the_clock_of_a_guest(guest: Callable[[Reply], Guest]) -> None:
    asked: list[Any] = []

    def clock(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        question = json.loads(payload)
        asked.append(question)
        answer = {"id": question["id"], "mono_ns": 5_000, "real_ns": 1}
        guest.say(0, "t", json.dumps(answer).encode())

    one = guest(clock)
    one.host.set_clock()
    assert one.host.clock_offset_ns > 5_000
    assert one.host.clock_bound_ns >= 0
    assert ["set_real_ns" in question for question in asked] == [False] * 16 + [True]


def test_a_socket_of_the_guest(guest: Callable[[Reply], Guest]) -> None:
    def serve(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        if kind == "o":
            guest.say(channel, "s", b"{}")
        elif kind == "d":
            guest.say(channel, "1", payload.upper())
        elif kind == "e":
            guest.say(channel, "x", b'{"status": 0}')

    with guest(serve).host.connect("/run/s", timeout_s=5) as stream:
        stream.sendall(b"words")
        assert stream.recv(100) == b"WORDS"


def test_who_waits_for_an_answer_sees_that_the_other_side_has_ended(
    guest: Callable[[Reply], Guest],
) -> None:
    """A SUT that dies while it is asked: its socket ends, and so must ours."""

    def serve(guest: Guest, channel: int, kind: str, payload: bytes) -> None:
        if kind == "o":
            guest.say(channel, "s", b"{}")
        elif kind == "d":
            guest.say(channel, "x", b'{"status": 0}')

    with guest(serve).host.connect("/run/s", timeout_s=5) as stream:
        stream.sendall(b"question")
        assert stream.recv(100) == b""


def test_a_newc_entry_is_aligned() -> None:
    archive = cpio({"modules/a": (0o644, b"xyz")})
    assert len(archive) % 4 == 0
    assert archive.count(b"070701") == 3
    assert archive.index(b"modules\0") < archive.index(b"modules/a\0")


def test_what_a_module_needs_stands_in_it() -> None:
    info = b"\0license=GPL\0depends=virtio,virtio-ring\0name=virtio_pci\0"
    assert module_depends(info) == ["virtio", "virtio_ring"]
    assert module_depends(b"\0depends=\0") == []


def test_a_job_for_a_guest_that_is_gone_leaves_no_pipe(guest: Callable[[Reply], Guest]) -> None:
    one = guest(echo)
    before = len(list(Path("/proc/self/fd").iterdir()))
    one.die()
    assert one.line.broken.wait(5)
    one.line._stream.shutdown(socket.SHUT_RDWR)  # the emulator's end is closed as well
    with pytest.raises((LabProblem, BrokenPipeError)):
        one.host.job({"job": "sample"})
    assert len(list(Path("/proc/self/fd").iterdir())) == before
