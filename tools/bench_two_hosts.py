"""One experiment in the lab of one machine and on two machines over ssh, block by block in turn.

python -m tools.bench_two_hosts EXPERIMENT OUT SECONDS [SETTING...] (root): the two machines are
namespaces of this one with an sshd each. Two run directories below OUT, and what `nodrop compare`
says. After SECONDS no block begins; the same command goes on with the next.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import LabSource, load_lab
from nodrop.measure.controllers.blocks import Controller, May, TrialInput, any_trial
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Progress, make_plan
from nodrop.remote.dispatch import measuring
from nodrop.results.layout import MANIFEST
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from tests.ssh.machines import Machines, two_machines

LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "gen1"
port = "cab0"
[receiver]
host = "sensor1"
port = "cab0"
become = "sudo"
"""
DOCKERD = [
    shutil.which("dockerd") or "dockerd",
    "--bridge=none",
    "--iptables=false",
    "--ip-forward=false",
]
UP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class UpTo:
    """A Controller, as far as the end of a block."""

    controller: Controller
    repetition: int
    heeds_void: bool = False

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        asked = self.controller.next(done, may)
        return None if asked is None or asked.repetition > self.repetition else asked

    def outlook(self, done: Sequence[TrialRecord]) -> object:
        return self.controller.outlook(done)

    def beforehand(self) -> Sequence[TrialInput]:
        return self.controller.beforehand()


def begun(out: Path) -> int:
    """The last block that a lab has trials of; 1 if none has."""
    runs = [open_run(found) for found in out.glob("*/*/") if (found / MANIFEST).exists()]
    return max((one.repetition for run in runs for one in run.trials.records), default=1)


def block(
    experiment: Path, settings: Sequence[str], lab: LabSource, out: Path, number: int
) -> RunOutcome:
    asked = load_experiment(experiment, settings)
    plan = make_plan(asked)
    until = UpTo(plan.controller, number)
    return measuring(lab)(
        asked, lab, out=out, resume=out.exists(), progress=Progress(),
        plan=replace(plan, controller=until),  # type: ignore[arg-type]
    )  # fmt: skip


@contextmanager
def docker(begin: Sequence[str], folder: Path, socket: str) -> Iterator[None]:
    """A daemon where `begin` begins programs; the other machine's one knows other PIDs."""
    places = ("--data-root=", "--exec-root=", "--pidfile=")
    argv = [*DOCKERD, f"--host=unix://{socket}"]
    argv += [f"{option}{folder / option.strip('-=')}" for option in places]
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            [*begin, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + UP_TIMEOUT_S
    asked = [*begin, shutil.which("docker") or "docker", "--host", f"unix://{socket}", "info"]
    try:
        while subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((folder / "dockerd.log").read_text())
            time.sleep(0.2)
        yield
    finally:
        daemon.terminate()
        daemon.wait(UP_TIMEOUT_S)


@contextmanager
def dockers(machines: Machines, folder: Path) -> Iterator[None]:
    there, here = folder / "there", Path(tempfile.mkdtemp(prefix="nodrop-docker-"))
    there.mkdir()
    ssh = ["ssh", "-F", str(machines.config), "sensor1", "sudo"]
    os.environ["NODROP_DOCKER_HOST"] = f"unix://{here / 'docker.sock'}"
    with docker(ssh, there, "/run/docker.sock"), docker([], here, str(here / "docker.sock")):
        yield


def main() -> int:
    experiment, out, settings = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:]
    until_s = time.monotonic() + float(sys.argv[3])
    with (
        tempfile.TemporaryDirectory(prefix="nodrop-machines-") as made,
        two_machines(folder := Path(made), switch=False) as machines,
        dockers(machines, folder),
    ):
        (folder / "pair.toml").write_text(LAB.format(config=machines.config))
        labs = {"netns": load_lab(), "ssh": load_lab(str(folder / "pair.toml"))}
        asked = load_experiment(experiment, settings)
        outcomes: dict[str, RunOutcome] = {}
        for number in range(begun(out), asked.measure.most_repetitions + 1):
            if outcomes and time.monotonic() > until_s:
                break
            for name in random.sample([*labs], len(labs)):
                outcomes[name] = block(experiment, settings, labs[name], out / name, number)
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome.directory}")
        for record in outcome.records:
            print(
                f"  {record.run}: {record.outcome} {' '.join(record.invalid_reasons)} "
                f"sent {record.offered.sent} lost {record.packets.lost_packets} "
                f"residual {record.packets.residual_packets} CPU {record.sut_cpu_s} s "
                f"steal {record.steal_ratio} took {record.took_s} s {record.error or ''}"
            )
    a, b = (str(outcomes[name].directory) for name in labs)
    return exit_code(["compare", a, b, "--differs", "lab", "--differs", "host"])


if __name__ == "__main__":
    sys.exit(main())
