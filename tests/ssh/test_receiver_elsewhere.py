"""Whole runs whose receiver is another machine, over real ssh: nodrop itself goes there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.elsewhere.front import doctor_elsewhere, run_elsewhere
from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.hosts.processes import ended
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import make_plan
from nodrop.measure.progress import Silent
from nodrop.results.rundir import open_run
from tests.e2e.conftest import SURICATA, closes, only, real_trace, suricata
from tests.ssh.machines import Machine, Machines, two_machines
from tests.ssh.test_measuring import SINK, shown

__all__: Sequence[str] = ("real_trace", "suricata")

LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "{sender}"
port = "cab0"
[receiver]
host = "sensor1"
port = "cab0"
become = "sudo"
"""
END_S = 30.0
KEPT = {"control", "files", "node"}
"""Of /var/lib/nodrop, from one run to the next."""
FRONT = """
import os, sys
from pathlib import Path
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.elsewhere.where import measuring
from nodrop.measure.progress import Silent
step, number, file, lab, out = sys.argv[1:]
class Ends(Silent):
    seen = 0
    def phase(self, name):
        self.seen += name == step
        if self.seen == 2:
            os.kill(os.getpid(), int(number))
where = load_lab(lab)
measuring(where)(load_experiment(Path(file)), where, out=Path(out), resume=False, progress=Ends())
"""

Run = Callable[..., RunOutcome]


@pytest.fixture(scope="module")
def machines(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with two_machines(tmp_path_factory.mktemp("elsewhere"), switch=False) as machines:
        yield machines


@pytest.fixture
def run(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run; after it nothing is left on either machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = shown(machines.receiver)

    def go(
        *settings: str,
        text: str = SINK,
        sender: str = "gen1",
        resume: bool = False,
        progress: Any = None,
        **given: str,
    ) -> RunOutcome:
        file, lab = written(machines, tmp_path, text=text.format(**given), sender=sender)
        return run_elsewhere(
            load_experiment(file, settings),
            load_lab(str(lab)),
            out=tmp_path / "results",
            resume=resume,
            progress=progress or Silent(),
        )

    yield go
    nothing_is_left(machines)
    assert shown(machines.receiver) == before


def written(
    machines: Machines, folder: Path, *, text: str = SINK, sender: str = "gen1"
) -> tuple[Path, Path]:
    file, lab = folder / "experiment.toml", folder / "pair.toml"
    file.write_text(text)
    lab.write_text(LAB.format(config=machines.config, sender=sender))
    return file, lab


def nothing_is_left(machines: Machines) -> None:
    for machine in (machines.sender, machines.receiver):
        for pid, argv in machine.processes().items():
            if "nodrop" in argv and not argv.startswith("sshd"):
                try:
                    assert ended(pid, END_S), f"{machine.name}: still there: {argv}"
                except ProcessLookupError:
                    continue
        assert machine.run("find", "/root/.local/state", "-name", "*.jsonl") == ""
        assert KEPT.issuperset(machine.run("sh", "-c", "cd /var/lib && ls -A nodrop || :").split())
        assert machine.run("ip", "netns") == ""


def inode(machine: Machine) -> str:
    """Of the control plane, of which there is one."""
    return machine.run("sh", "-c", "stat -c %i:%u:%a /var/lib/nodrop/control/*")


def test_the_books_close_and_all_of_the_run_is_here(run: Run, machines: Machines) -> None:
    outcome = run()
    assert outcome.exit_code == 0
    for record in outcome.records:
        assert closes(record)
        assert record.packets.decoded_packets == record.offered.sent > 10_000
    kept = open_run(outcome.directory)
    assert (kept.manifest["lab"]["name"], kept.manifest["undo"]["left"]) == ("pair", [])
    assert kept.manifest["host"]["hostname"] == "sensor1"
    assert "finished_utc" in kept.manifest
    assert not kept.damage
    for record in outcome.records:
        (clock,) = kept.detail(record.run, "trial")["details"]["facts"]["clocks"]
        bounds_ns = clock["before"]["bound_ns"] + clock["after"]["bound_ns"]
        assert abs(clock["drift_ns"]) <= bounds_ns, "one kernel, one clock"
        assert len(list(kept.live(record.run))) > 3
        assert kept.sampled_hosts(record.run)
    there = inode(machines.receiver)
    assert there.endswith(":0:755\n")
    assert run("measure.repetitions=1").exit_code == 0
    assert inode(machines.receiver) == there, "copied once"


def test_real_suricata_on_the_real_trace(
    run: Run, machines: Machines, suricata: None, real_trace: Path
) -> None:
    record = only(run("sut.ring_size=110000", text=SURICATA, trace=str(real_trace)))
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0), record
    assert record.offered.sent == 101_171
    assert closes(record)
    kept = machines.receiver.run("sh", "-c", "stat -c %u:%a /var/lib/nodrop/files")
    assert kept == "0:700\n"


def test_tcpreplay_sends_by_way_of_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("load.kind=tcpreplay", "load.multiplier=2", "measure.repetitions=1")
    record = only(run(*settings, "load.speed=20", "sut.ring_frames=200000"))
    assert record.packets.residual_packets == 0, record
    assert record.offered.sent == record.offered.intended > 20_000
    assert closes(record)


@pytest.mark.parametrize(
    ("step", "number"),
    [("launch", signal.SIGKILL), ("offer", signal.SIGKILL), ("offer", signal.SIGINT)],
)
def test_a_front_that_ends_leaves_nothing_and_is_gone_on_with(
    run: Run, machines: Machines, tmp_path: Path, step: str, number: signal.Signals
) -> None:
    file, lab = written(machines, tmp_path)
    argv = [step, str(int(number)), str(file), str(lab), str(tmp_path / "results")]
    done = subprocess.run(
        [sys.executable, "-c", FRONT, *argv],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == (-number if number == signal.SIGKILL else 1), done.stderr
    if number == signal.SIGINT:
        assert "Interrupted: SIGINT" in done.stderr
    nothing_is_left(machines)
    (begun,) = (tmp_path / "results").iterdir()
    (first,) = open_run(begun).trials.records
    outcome = run(resume=True)
    assert outcome.directory == begun
    assert [record.run for record in outcome.records] == [first.run, "0002-r02"]
    assert outcome.records[0] == first
    with pytest.raises(BadInput, match=rf"{begun}: the experiment, the lab or the plan changed"):
        run("sut.ring_frames=4096", resume=True)


class KillsThere(Silent):
    """Ends nodrop on the receiver, while it measures, as no one could undo."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver

    def phase(self, name: str) -> None:
        if name == "offer":
            for pid, argv in self._receiver.processes().items():
                if "nodrop.elsewhere.far" in argv:
                    os.kill(pid, signal.SIGKILL)


def test_what_a_killed_nodrop_left_there_is_undone_from_here(
    run: Run, machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabProblem, match="receiver sensor1: nodrop there has ended"):
        run(progress=KillsThere(machines.receiver))
    assert "nodrop-" in machines.receiver.run("ip", "netns"), "the port is not at home"
    _, lab = written(machines, tmp_path)
    assert exit_code(["undo", str(lab)]) == 0
    assert "undone: receiver sensor1: port cab0 at home" in capsys.readouterr().out
    assert run("measure.repetitions=1").exit_code == 0, "its folder goes with the next run"


@contextmanager
def mounted(machine: Machine, *words: str) -> Iterator[None]:
    machine.run("mount", *words)
    try:
        yield
    finally:
        machine.run("umount", words[-1])


def test_what_stands_in_the_way_is_one_sentence(
    run: Run, machines: Machines, tmp_path: Path
) -> None:
    receiver, version = machines.receiver, "{}.{}".format(*sys.version_info)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9 x86_64\n")
    other.chmod(0o755)
    first = "/usr/local/sbin"  # of the PATH
    with mounted(receiver, "-t", "tmpfs", "tmpfs", first):
        for name in ("python3", f"python{version}"):
            receiver.run("cp", str(other), f"{first}/{name}")
        words = f"needs python{version} for .* and finds python3.9 for x86"
        with pytest.raises(NotReady, match=words):
            run()
    receiver.run("mkdir", "-p", "/var/lib/nodrop")
    with (
        mounted(receiver, "-t", "tmpfs", "-o", "mode=755,size=12m", "tmpfs", "/var/lib/nodrop"),
        pytest.raises(NotReady, match=r"nodrop cannot be copied to .*control: .* No space left"),
    ):
        run()
    with pytest.raises(NotReady, match="sender unknown: not reached: its host key is not known"):
        run(sender="unknown")
    receiver.run("ip", "link", "set", "cab0", "down")
    try:
        file, lab = written(machines, tmp_path)
        asked = load_experiment(file)
        problems, _ = doctor_elsewhere(
            asked, load_lab(str(lab)), make_plan(asked, sender_elsewhere=True)
        )
    finally:
        receiver.run("ip", "link", "set", "cab0", "up")
    assert "receiver: cab0 is down; `ip link set cab0 up`" in problems, problems
