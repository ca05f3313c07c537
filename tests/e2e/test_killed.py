"""Killed at any moment: `nodrop undo` leaves nothing, `--resume` repeats no good trial."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.lab_file import DEFAULT_LAB
from tests.depth import depth

KILLS = int(os.environ.get("NODROP_KILLS", "1"))
"""Kills of each mode. SPECIFICATION.md: 50."""
REPETITIONS = 2 * KILLS
TRIALS = 2 * REPETITIONS
PACKETS = """
[matrix]
"load.multiplier" = [1, 2]
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
pps = 40000
duration_s = 0.2
"""
ATTACHES = """
[matrix]
"load.rate" = [200, 400]
[sut]
kind = "reference-mme"
core = "stubs"
[load]
kind = "attach"
count = 40
hold_s = 0
"""
EXPERIMENT = f"""
name = "killed"
{{what}}
[measure]
repetitions = {REPETITIONS}
late_p99_us = 60e6 # a busy machine is late; what is left behind is the question
"""
NODROP = [sys.executable, "-m", "nodrop.cli.main"]


class Place:
    """A run directory, a journal folder and a label space of this test's own."""

    def __init__(
        self, tmp_path: Path, sut: str = "fresh", *, what: str = PACKETS, lab: str = DEFAULT_LAB
    ) -> None:
        self.lab = lab
        self.experiment = tmp_path / "killed.toml"
        self.experiment.write_text(EXPERIMENT.format(what=what) + f'sut = "{sut}"\n')
        self.out = tmp_path / "results"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        self.labels: set[str] = set()

    def start(self, *, resume: bool) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*NODROP, "run", str(self.experiment), "--out", str(self.out), "--lab", self.lab,
             *(["--resume"] if resume else [])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment,
        )  # fmt: skip

    def undo(self, *options: str) -> None:
        done = subprocess.run(
            [*NODROP, "undo", self.lab, *options],
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def records(self) -> list[dict[str, Any]]:
        """Records of all whole lines, in file order."""
        lines = [
            line
            for file in self.out.glob("*/trials.jsonl")
            for line in file.read_text().split("\n")[:-1]
        ]
        return [json.loads(line) for line in lines]

    def good(self) -> list[str]:
        return [record["run"] for record in self.records() if record["outcome"] != "void"]

    def late(self) -> set[str]:
        """Runs that a busy machine made void each time: here only what they leave counts."""
        late = [r for r in self.records() if r["invalid_reasons"] == ["sender_late"]]
        return {record["run"] for record in late} - set(self.good())

    def remember_labels(self) -> None:
        """The journal names what a run puts on the host; its file goes once that is undone."""
        folder = Path(self.environment["XDG_STATE_HOME"])
        self.labels |= {path.stem for path in folder.rglob("*.jsonl")}

    def seconds_to_its_journal(self) -> float:
        """Time that a run takes to its journal here; one that is killed before has touched
        nothing."""
        process, began = self.start(resume=False), time.monotonic()
        while not self.labels:
            self.remember_labels()
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        took_s = time.monotonic() - began
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        self.undo()
        return took_s

    def leftovers(self) -> set[str]:
        """Everything of our runs that a host can show: namespaces, processes, mounts."""
        found = {
            f"netns {path.name}"
            for path in Path("/run/netns").glob("nodrop-*")
            if path.name.split("-")[1] in self.labels
        }
        marks = {f"NODROP_LAB={label}".encode() for label in self.labels}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue
            if marks & set(environment):
                found.add(f"process {folder.name} {name}")
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        marked = (*self.labels, str(self.out))
        return found | {line for line in mounts if any(mark in line for mark in marked)}

    @property
    def begun(self) -> bool:
        return any(self.out.glob("*/manifest.json"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sut", "what"),
    [
        ("fresh", PACKETS),
        ("standing", PACKETS),
        depth("fresh", ATTACHES),
        depth("standing", ATTACHES),
    ],
)
def test_killed_at_random_points(tmp_path: Path, sut: str, what: str) -> None:
    """One in each equal part of the time that it takes, in any order: few kills miss no part."""
    place, seed = Place(tmp_path, sut, what=what), random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    dice, latest_s = random.Random(seed), place.seconds_to_its_journal() + 2.0
    for part in dice.sample(range(KILLS), KILLS):
        process = place.start(resume=place.begun)
        try:
            process.communicate(timeout=latest_s * (part + dice.random()) / KILLS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
        place.remember_labels()
        place.undo()
        assert not place.leftovers()
        good = place.good()
        assert len(good) == len(set(good)), "a good trial was repeated"
    last = place.start(resume=place.begun)
    said, _ = last.communicate(timeout=300)
    assert len(place.good()) == len(set(place.good()))
    assert last.returncode == (1 if place.late() else 0), said
    assert len(place.good()) + len(place.late()) == TRIALS
    assert place.labels, "no run got as far as its journal"
    (directory,) = place.out.iterdir()
    assert said.strip().splitlines()[-1] == str(directory)


@pytest.mark.alone  # five seconds are the bound
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_undoes_by_itself_within_five_seconds(tmp_path: Path, number: int) -> None:
    place = Place(tmp_path)
    process = place.start(resume=False)
    deadline = time.monotonic() + 60
    while not place.leftovers():  # until the lab stands
        place.remember_labels()
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    sent = time.monotonic()
    said, _ = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5, said
    assert process.returncode == 128 + number
    assert not place.leftovers()
    assert not list((tmp_path / "state").rglob("*.jsonl")), "the journal is closed"
    assert "--resume" in said
