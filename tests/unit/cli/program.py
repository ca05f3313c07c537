"""The program as a user starts it, a process of its own, and an experiment to start it with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXPERIMENT = """\
name = "x"
question = "Does it [hold]?"
[matrix]
"load.multiplier" = [1, 4]
[sut]
kind = "any"
[load]
kind = "any"
[measure]
repetitions = 2
"""


def nodrop(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return started(sys.executable, "-m", "nodrop.cli.main", *argv, **env)


def in_a_shell(words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return started("sh", "-c", f"exec {sys.executable} -m nodrop.cli.main {words}", **env)


def started(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    ours = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    return subprocess.run(
        argv, capture_output=True, text=True, cwd=ROOT, env=ours | env, timeout=60
    )
