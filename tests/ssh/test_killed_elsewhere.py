"""Killed at any moment: `nodrop undo LAB` leaves nothing, here and on the far host."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.e2e.test_killed import Place
from tests.ssh.machines import set_control
from tests.ssh.pairs import Pair

KILLS = int(os.environ.get("NODROP_KILLS", "4"))
DOWN_S = float(os.environ.get("NODROP_LINE_DOWN_S", "1"))
"""SPECIFICATION.md: 100, and 10 s."""
EACH = 3
"""Of so many undos one begins with the line to the far host down."""


@pytest.mark.timeout(60 + KILLS * 20)
def test_killed_at_random_points_nothing_is_left_on_either_host(
    here: Pair, tmp_path: Path, sockets: Path
) -> None:
    place, seed = Place(tmp_path, lab=here.lab(tmp_path)), random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    before = here.shown()
    dice, latest_s = random.Random(seed), place.seconds_to_its_journal() + 2.0
    for number in range(KILLS):
        process = place.start(resume=place.begun)
        try:
            process.communicate(timeout=dice.uniform(0.1, latest_s))
        except subprocess.TimeoutExpired:
            if number % EACH == 0:
                set_control(0, up=False)
                threading.Timer(DOWN_S, set_control, (0,), {"up": True}).start()
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
        place.remember_labels()
        place.undo()
        assert not place.leftovers()
        here.nothing_is_left()
        assert here.shown() == before
        assert not [path for path in sockets.rglob("*") if not path.is_dir()]
        assert not list((tmp_path / "state").rglob("*.jsonl"))
        good = place.good()
        assert len(good) == len(set(good)), "a good trial was repeated"
    assert place.labels, "no run got as far as its journal"
