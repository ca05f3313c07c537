"""Silence of a far nodrop: a slow one is waited for, and one that hangs is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.remote import client, messages
from nodrop.remote.messages import Ended, Far
from nodrop.testbed.hosts.node import start_child
from nodrop.testbed.hosts.relay import HeldHere

THERE = """
import signal, sys, time
from nodrop.remote.messages import ALIVE, OURS, Ended, Greeting, send
from nodrop.testbed.hosts.relay import Frames
frames = Frames(sys.stdin.buffer, sys.stdout.buffer)
send(frames, Greeting(version=""))
def lives(times):
    for _ in range(times):
        time.sleep(0.2)
        frames.send(OURS, ALIVE)
match sys.argv[1]:
    case "is slow":
        lives(25)
        send(frames, Ended())
    case "hangs":
        signal.pause()
    case "undoes for ever":
        lives(1000)
"""


class There:
    """A host of this machine. Its connection, closed, ends what goes by it."""

    name, address = "receiver here", ""
    program: subprocess.Popen[bytes]

    def __init__(self, how: str) -> None:
        self._how = how

    def begin(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        del argv
        self.program = start_child([sys.executable, "-c", THERE, self._how], {})
        return self.program

    def lost(self) -> bool:
        return False

    def close(self) -> None:
        self.program.kill()


@pytest.fixture
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    host: Any = There(request.param)
    with Far(host, [], HeldHere("sender")) as found:
        found.greeted()
        monkeypatch.setattr(
            messages, "SILENT_S", 3.0
        )  # it has started, however busy the machine is
        monkeypatch.setattr(messages, "UNDO_S", 1.0)
        yield found
    assert host.program.returncode is not None


@pytest.mark.parametrize("far", ["is slow"], indirect=True)
def test_one_that_is_slow_is_waited_for(far: Far) -> None:
    assert far.report() == Ended(), "5 s later"


@pytest.mark.parametrize("far", ["hangs"], indirect=True)
def test_one_that_says_nothing_hangs(far: Far) -> None:
    words = (
        "here: nodrop there says nothing for 3 s: it hangs, or its host; `nodrop undo LAB --all`"
    )
    with pytest.raises(LabProblem, match=words):
        far.report()


@pytest.mark.parametrize("far", ["undoes for ever"], indirect=True)
def test_one_that_is_told_to_end_and_does_not_is_left(far: Far) -> None:
    far.end(2)
    with pytest.raises(LabProblem, match="here: nodrop there does not end within 1 s; `nodrop"):
        far.report()


class Hangs(HeldHere):
    def command(self, words: str) -> list[str]:
        return ["sleep", "60"]


def test_a_sender_on_which_a_program_hangs_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "COMMAND_TIMEOUT_S", 0.1)
    with pytest.raises(LabProblem, match=r"^sender gen1: `uname -m` took longer than 0.1 s$"):
        client._machine(Hangs("sender gen1"))
