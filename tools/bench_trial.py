"""What nodrop adds to a trial beside traffic and the loading of rules: whole runs, tiny trace."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

EXPERIMENT = """
name = "beside"
[sut]
kind = "{sut}"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 1
[measure]
repetitions = {trials}
late_p99_us = 60e6 # the time is the question, on whatever machine
"""
TRIALS = 5
RUN_TIMEOUT_S = 300


def beside_the_traffic(*, quick: bool) -> Iterator[tuple[str, float]]:
    """SUT, and whether waiting for it is in → seconds per trial, median."""
    for sut in ("sink", "suricata"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "beside.toml"
            file.write_text(EXPERIMENT.format(sut=sut, trials=1 if quick else TRIALS))
            done = subprocess.run(
                [sys.executable, "-m", "nodrop.cli.main", "run", str(file), "--out", folder,
                 "--timings", "--json"],
                stdout=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT_S, check=True,
            )  # fmt: skip
        said = json.loads(done.stdout.splitlines()[-1])
        median_s = {part["name"]: part["median_s"] for part in said["parts"]}
        yield f"{sut}, nodrop itself", median_s["nodrop itself"]
        yield f"{sut}, in all", median_s["in all"]
