"""Killed at any moment: `nodrop undo LAB` leaves nothing, here and on the far host."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from nodrop.remote.outbox import UNTAKEN
from tests.e2e.test_killed import Place
from tests.ssh.machines import set_control
from tests.ssh.pairs import Pair

KILLS = int(os.environ.get("NODROP_KILLS", "2"))
DOWN_S = float(os.environ.get("NODROP_LINE_DOWN_S", "1"))
"""SPECIFICATION.md: 100, and 10 s."""
EACH = 3
"""Number of undos of which one begins with the line to the far host down."""


@pytest.mark.timeout(60 + KILLS * 20)
def test_killed_at_random_points_nothing_is_left_on_either_host(
    here: Pair, tmp_path: Path, sockets: Path
) -> None:
    place = Place(tmp_path, lab=here.lab(tmp_path))
    kill_often(here, place, place.seconds_to_its_journal() + 2.0, sockets)
    assert place.labels, "no run got as far as its journal"


@pytest.mark.timeout(60 + KILLS * 30)
def test_nor_if_the_receiver_is_elsewhere(there: Pair, tmp_path: Path, sockets: Path) -> None:
    """The journal is there: nodrop on the receiver sees that the controller has gone."""
    place = Place(tmp_path, lab=there.lab(tmp_path))
    kill_often(there, place, seconds_to_its_manifest(place) + 2.0, sockets)
    place.undo("--all", "--yes")
    there.nothing_is_left()


def seconds_to_its_manifest(place: Place) -> float:
    """Time that a run takes to its manifest here; then its first trial begins."""
    process, began_s = place.start(resume=False), time.monotonic()
    while not place.begun:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    place.undo()
    return took_s


def kill_often(pair: Pair, place: Place, latest_s: float, sockets: Path) -> None:
    """One in each equal part of that time, in any order: few kills miss no part."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    dice, before, state = random.Random(seed), pair.shown(), place.environment["XDG_STATE_HOME"]
    for number, part in enumerate(dice.sample(range(KILLS), KILLS)):
        process = place.start(resume=place.begun)
        try:
            process.communicate(timeout=latest_s * (part + dice.random()) / KILLS)
        except subprocess.TimeoutExpired:
            if number % EACH == 0:
                line = dice.randrange(1 + pair.receiver_elsewhere)
                set_control(line, up=False)
                threading.Timer(DOWN_S, set_control, (line,), {"up": True}).start()
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
        place.remember_labels()
        place.undo()
        assert not place.leftovers()
        # Of a trial that was measured whole, and not fetched: it waits for --resume.
        pair.nothing_is_left(UNTAKEN)
        assert pair.shown() == before
        assert not [path for path in sockets.rglob("*") if not path.is_dir()]
        assert not list(Path(state).rglob("*.jsonl"))
        good = place.good()
        assert len(good) == len(set(good)), "a good trial was repeated"
