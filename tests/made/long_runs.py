"""Run directories of very many trials: some are made, the others have links to their files."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

from tests.made.rundirs import Fake, Trouble, make_run

SETUPS = ("bare", "docker", "docker-macvtap", "vm")
LOADS = (1, 2, 4, 6, 8)
FAKE = Fake(
    name="long",
    question="What does each setup carry, in a fleet's run of many weeks?",
    cells=tuple({"setup.kind": setup, "load.multiplier": n} for setup in SETUPS for n in LOADS),
    trouble={17: Trouble(late=True), 71: Trouble(not_ready=True), 133: Trouble(path_lost=507)},
)
DIFFER = ("activation_s", "sut_cpu_s", "setup_cpu_s")
"""Figures that no book holds: each trial has its own."""


def make_long_run(out: Path, trials: int, *, repetitions: int = 10, name: str = "long") -> Path:
    """A run directory with so many trials, of which each has as many files as others have: a
    multiple of `repetitions` of all cells."""
    fake = replace(FAKE, repetitions=repetitions, name=name)
    run = make_run(out, fake)
    lines = (run / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    times, rest = divmod(trials, len(lines))
    if rest or not times:
        raise ValueError(f"{trials} trials are no multiple of {len(lines)}")
    rng = random.Random(fake.seed)
    made = [json.loads(line) for line in lines]
    with (run / "trials.jsonl").open("a", encoding="utf-8") as file:
        for time in range(1, times):
            for record in made:
                file.write(json.dumps(_again(run, record, time, fake, rng)) + "\n")
    return run


def _again(
    run: Path, record: dict[str, object], time: int, fake: Fake, rng: random.Random
) -> dict[str, object]:
    name = f"{record['run']}-{time}"
    (run / "runs" / name).mkdir()
    for file in (run / "runs" / str(record["run"])).iterdir():
        if file.is_file():
            os.link(file, run / "runs" / name / file.name)
    index, repetition = int(str(record["index"])), int(str(record["repetition"]))
    again = record | {
        "run": name,
        "index": index + time * len(fake.cells) * fake.repetitions,
        "repetition": repetition + time * fake.repetitions,
    }
    for figure in DIFFER:
        if isinstance(value := record[figure], float):
            again[figure] = round(value * rng.lognormvariate(0, 0.03), 6)
    return again
