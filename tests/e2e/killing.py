"""A controller killed at a named step, and what the host shows of its run afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop.cli.main import exit_code
from nodrop.config.lab_file import DEFAULT_LAB
from nodrop.testbed.hosts.processes import environment
from nodrop.testbed.labs.netns import FIRST_INDEX

SCRIPT = """
import os, signal, sys
from pathlib import Path
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.plan import Progress
from nodrop.measure.manager import run_experiment
step, file, out, lab, *settings = sys.argv[1:]
class Die(Progress):
    def phase(self, name):
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)
run_experiment(load_experiment(Path(file), settings), load_lab(lab), out=Path(out),
               resume=False, progress=Die())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A run whose controller is dead."""

    label: str
    pid: int


def die_at(
    step: str, experiment: Path, settings: Sequence[str] = (), *, lab: str = DEFAULT_LAB
) -> Killed:
    """The run whose journal is in $XDG_STATE_HOME."""
    argv = [step, str(experiment), str(experiment.parent / "killed"), lab, *settings]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *argv],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as controller:  # fmt: skip
        said, _ = controller.communicate(timeout=180)
    assert controller.returncode == -signal.SIGKILL, said
    (journal,) = (Path(os.environ["XDG_STATE_HOME"]) / "nodrop" / "undo").glob("*.jsonl")
    return Killed(label=journal.stem, pid=controller.pid)


def undo() -> None:
    assert exit_code(["undo"]) == 0


def unnamed() -> set[str]:
    """Leftovers that bear no label: links and taps in the host's own namespace, pinned BPF objects.
    Links and taps count by the beginning of their names: a host has others that come and go."""
    ours = (("/sys/class/net", "nd*"), ("/dev", "nodrop*"), ("/dev", "tap1[67]??????"))
    found = {str(path) for folder, names in ours for path in Path(folder).glob(names)}
    return found | {str(path) for path in Path("/sys/fs/bpf").rglob("*")}


def unnamed_of(pid: int, before: set[str]) -> set[str]:
    """Some of these names bear the number of the process that made them: other runs go on beside
    the one that is asked for, and those are theirs."""
    return {name for name in unnamed() - before if _maker(name) in (None, pid)}


def _maker(name: str) -> int | None:
    if indexed := re.fullmatch(r"/sys/class/net/ndlv([0-9a-f]+)", name):
        return int(indexed[1], 16) - FIRST_INDEX
    if indexed := re.fullmatch(r"/dev/tap([0-9]+)", name):
        return int(indexed[1]) - FIRST_INDEX
    if numbered := re.fullmatch(r"/dev/nodrop-tap-([0-9]+)-.*", name):
        return int(numbered[1])
    return None


def leftovers(killed: Killed, before: set[str], *containers: str) -> list[str]:
    """Everything that a host can show of one run."""
    label, marks = killed.label, (killed.label, *containers)
    found = [f"unnamed {name}" for name in unnamed_of(killed.pid, before)]
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
