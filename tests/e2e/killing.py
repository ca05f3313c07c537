"""A controller killed at a named step, and what the host shows of its run afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop.hosts.processes import environment

SCRIPT = """
import os, signal, sys
from pathlib import Path
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.progress import Silent
from nodrop.measure.manager import run_experiment
step, file, out, *settings = sys.argv[1:]
class Die(Silent):
    def phase(self, name):
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)
run_experiment(load_experiment(Path(file), settings), load_lab(), out=Path(out),
               resume=False, progress=Die())
"""


def die_at(step: str, experiment: Path, settings: Sequence[str] = ()) -> str:
    """The label of the run, whose journal is in $XDG_STATE_HOME."""
    argv = [step, str(experiment), str(experiment.parent / "killed"), *settings]
    died = subprocess.run(
        [sys.executable, "-c", SCRIPT, *argv],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    (journal,) = (Path(os.environ["XDG_STATE_HOME"]) / "nodrop" / "undo").glob("*.jsonl")
    return journal.stem


def undo() -> None:
    undone = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "undo"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert undone.returncode == 0, undone.stdout + undone.stderr


def unnamed() -> set[str]:
    """What bears no label: links and taps in the host's own namespace, pinned BPF objects. Of the
    first two by the beginning of their names, because a host has others that come and go."""
    ours = (("/sys/class/net", "nd*"), ("/dev", "nodrop*"), ("/dev", "tap1[67]??????"))
    found = {str(path) for folder, names in ours for path in Path(folder).glob(names)}
    return found | {str(path) for path in Path("/sys/fs/bpf").rglob("*")}


def leftovers(label: str, before: set[str], *containers: str) -> list[str]:
    """Everything that a host can show of one run."""
    marks = (label, *containers)
    found = [f"unnamed {name}" for name in unnamed() - before]
    found += [f"netns {path.name}" for path in Path("/run/netns").glob(f"nodrop-{label}-*")]
    groups = Path("/sys/fs/cgroup")
    found += [f"cgroup {path}" for mark in marks for path in groups.rglob(f"*{mark}*")]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_text(errors="replace")
            labelled = f"NODROP_LAB={label}".encode() in environment(int(folder.name))
        except OSError:
            continue
        if labelled or any(container in argv for container in containers):
            found.append(f"process {folder.name} {argv[:60]}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return found + [f"mount {line}" for line in mounts if any(mark in line for mark in marks)]
