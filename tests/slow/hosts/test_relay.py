"""A relay: conversations by one pair of pipes, as faithful as those by ssh itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.processes import ended
from nodrop.testbed.hosts.relay import (
    Frame,
    Frames,
    HeldHere,
    RelayDoor,
    RelayedConnection,
    RelayEnd,
)

END_S = 15.0


@dataclass
class Relay:
    door: RelayDoor
    connection: RelayedConnection
    sink: IO[bytes]
    """The far end's input: closed, it is as if the far end had been killed."""


class Unreached(HeldHere):
    """Its first connection is gone, and there is no other."""

    def gone(self, *, within_s: float = 0) -> bool:
        return True

    def __enter__(self) -> Self:
        raise LabProblem(f"{self.name}: not reached: no route to host")


@pytest.fixture
def held() -> HeldHere:
    return HeldHere("sender")


@pytest.fixture
def relay(held: HeldHere, tmp_path: Path) -> Iterator[Relay]:
    down, up = os.pipe(), os.pipe()
    pipes = [os.fdopen(n, mode) for n, mode in zip((*up, *down), ("rb", "wb") * 2, strict=True)]
    near, far = Frames(pipes[0], pipes[3]), Frames(pipes[2], pipes[1])
    end = RelayEnd(near, held)
    with RelayDoor(far, folder=tmp_path) as door:

        def front() -> None:
            while (frame := near.receive()) is not None:
                end.hear(frame)
            end.close()
            pipes[3].close()

        def back() -> None:
            while (frame := far.receive()) is not None:
                door.hear(frame)
            door.broken()

        threads = [threading.Thread(target=run, daemon=True) for run in (front, back)]
        for thread in threads:
            thread.start()
        yield Relay(door, RelayedConnection(door.path, name="sender"), pipes[1])
        pipes[1].close()
        for thread in threads:
            thread.join(END_S)
            assert not thread.is_alive()
    for pipe in pipes:
        pipe.close()


def test_what_is_said_and_the_status_are_those_of_the_program(relay: Relay) -> None:
    script = "cat; echo aside >&2; exit 7"
    content = os.urandom(300_000)
    done = subprocess.run(
        relay.connection.shared(["sh", "-c", script]),
        input=content,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, content, b"aside\n")


def test_several_at_once(relay: Relay) -> None:
    programs = [
        subprocess.Popen(
            relay.connection.shared(["sh", "-c", f"read a; echo {n} $a"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for n in range(5)
    ]
    said = [program.communicate(b"word\n", END_S)[0] for program in reversed(programs)]
    assert said == [f"{n} word\n".encode() for n in reversed(range(5))]


def begun(relay: Relay) -> tuple[subprocess.Popen[bytes], int]:
    """A program that lives until its stdin ends, and its PID."""
    client = subprocess.Popen(
        relay.connection.shared(["sh", "-c", "echo $$; exec cat"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    return client, int(client.stdout.readline())


def test_a_client_that_is_killed_ends_its_program(relay: Relay) -> None:
    client, pid = begun(relay)
    with client:
        client.kill()
        assert ended(pid, END_S)


def test_the_end_of_the_pipes_ends_all(relay: Relay) -> None:
    client, pid = begun(relay)
    with client:
        relay.sink.close()
        assert ended(pid, END_S)
        assert client.wait(END_S) == 255
    with pytest.raises(LabProblem, match="sender: the ssh connection is gone"):
        relay.connection.run(["true"], timeout_s=END_S)


@pytest.mark.parametrize("held", [Unreached("sender")])
def test_why_it_is_not_reached_is_said(relay: Relay) -> None:
    with pytest.raises(LabProblem, match="sender: not reached: no route to host"):
        relay.connection.__enter__()
    assert relay.connection.gone()


def test_the_door_is_of_its_user_alone(relay: Relay) -> None:
    found = relay.door.path.stat(), relay.door.path.parent.stat()
    assert [oct(one.st_mode & 0o777) for one in found] == ["0o600", "0o700"]
    assert sys.executable in relay.connection.command("true")


def test_a_program_may_end_while_all_are_ended(held: HeldHere) -> None:
    """The thread that reads the far end died of it, and the run waited for ever."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as near, os.fdopen(write, "wb") as sink:
        frames, before = Frames(near, sink), {*threading.enumerate()}
        end = RelayEnd(frames, held)
        end.hear(Frame(1, "o", b'{"command": "read a"}'))
        begun = frames.receive()
        assert begun is not None and begun.kind == "s"
        # One that is being started has no number yet, and cannot be waited for.
        threads = {one for one in threading.enumerate() if one.ident} - before
        program = end._programs[1]

        class EndsAnother:
            def kill(self) -> None:
                program.kill()
                for thread in threads:
                    thread.join(0.2)  # it may forget its program only once this is over

        end._programs = {0: EndsAnother(), 1: program}  # type: ignore[dict-item]
        end.close()
        for thread in threads:
            thread.join(END_S)
            assert not thread.is_alive()
        assert [*end._programs] == [0]


def test_a_program_that_is_ended_with_all_has_no_status(held: HeldHere) -> None:
    """Its client was told that it was killed, and not that the connection is gone."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as near, os.fdopen(write, "wb") as sink:
        frames, before = Frames(near, sink), {*threading.enumerate()}
        end = RelayEnd(frames, held)
        end.hear(Frame(1, "o", b'{"command": "exec cat"}'))
        begun = frames.receive()
        assert begun is not None and begun.kind == "s"
        threads = {one for one in threading.enumerate() if one.ident} - before
        end.close()
        for thread in threads:
            thread.join(END_S)
        sink.close()
        assert frames.receive() is None
