"""Whole runs whose receiver is another machine, over real ssh: nodrop itself goes there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput, Interrupted, LabProblem, NotReady
from nodrop.installation import revision
from nodrop.measure.plan import Progress, make_plan
from nodrop.remote import messages, upload
from nodrop.remote.client import doctor_elsewhere
from nodrop.results.rundir import open_run
from nodrop.terminal.arguments import out_folder, run_directory
from nodrop.testbed.hosts.processes import holder, this_host
from nodrop.testbed.labs.ssh import SshLab
from tests.depth import depth
from tests.s3 import serving
from tests.ssh.machines import Machine
from tests.ssh.other_python import other_python, version
from tests.ssh.pairs import SINK, Pair, Run, runs_on

US = re.escape(holder())
FRONT = """
import os, sys
from pathlib import Path
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.remote.dispatch import measuring
from nodrop.measure.plan import Progress
step, number, file, lab, out = sys.argv[1:]
class Ends(Progress):
    seen = 0
    def phase(self, name):
        self.seen += name == step
        if self.seen == 2:
            os.kill(os.getpid(), int(number))
where = load_lab(lab)
measuring(where)(load_experiment(Path(file)), where, out=Path(out), resume=False, progress=Ends())
"""


@pytest.fixture
def run(there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(there, tmp_path) as go:
        yield go


def written(pair: Pair, folder: Path) -> tuple[Path, str]:
    file = folder / "experiment.toml"
    file.write_text(SINK)
    return file, pair.lab(folder)


def inode(machine: Machine) -> str:
    """Inode, owner and mode of the control plane, of which there is one."""
    return machine.run("sh", "-c", "stat -c %i:%u:%a /var/lib/nodrop/control/*")


THERE = {
    r"control/\w{64}": "0:755",
    r"node/\w{64}/nodrop-node": "0:755",
    r"run\.\w+": "0:711",
    r"run\.\w+/door\.\w+": "0:700",
    r"run\.\w+/door\.\w+/door": "0:600",
}
AT_THE_SENDER = {
    r"node/\w{64}/nodrop-node": "0:755",
    r"kept\.\w+": "0:700",
    r"kept\.\w+/[^/]+": "0:600",
}
"""Files below /var/lib/nodrop, owner and mode, of docs/reference/security.md."""


@pytest.mark.parametrize(
    ("step", "number"),
    [
        depth("launch", signal.SIGKILL),
        ("offer", signal.SIGKILL),
        depth("offer", signal.SIGINT),
    ],
)
def test_a_front_that_ends_leaves_nothing_and_is_gone_on_with(
    run: Run, there: Pair, tmp_path: Path, step: str, number: signal.Signals
) -> None:
    file, lab = written(there, tmp_path)
    argv = [step, str(int(number)), str(file), lab, str(tmp_path / "results")]
    done = subprocess.run(
        [sys.executable, "-c", FRONT, *argv],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == (-number if number == signal.SIGKILL else 1), done.stderr
    if number == signal.SIGINT:
        assert "Interrupted: SIGINT" in done.stderr
    there.nothing_is_left()
    (begun,) = (tmp_path / "results").iterdir()
    (first,) = open_run(begun).trials.records
    outcome = run(resume=True)
    assert outcome.directory == begun
    assert [record.run for record in outcome.records] == [first.run, "0002-r02"]
    assert outcome.records[0] == first
    with pytest.raises(BadInput, match=rf"{begun}: the experiment, the lab or the plan changed"):
        run("sut.ring_frames=4096", resume=True)


def test_a_run_elsewhere_is_kept_in_a_store(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        server.known_to(monkeypatch)
        first = run("measure.repetitions=1", out=out_folder(server.url))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-machine"))
        second = run("measure.repetitions=1", out=out_folder(server.url), resume=True)
        assert second.directory.name == first.directory.name
        assert second.directory != first.directory
        assert second.records == first.records
        read = open_run(run_directory(f"{server.url}/{first.directory.name}"))
    assert "finished_utc" in read.manifest and not read.damage
    assert read.sampled_hosts(first.records[0].run) == ("receiver",)


class KillsThere(Progress):
    """Ends nodrop on the receiver, while it measures, as no one could undo."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver

    def phase(self, name: str) -> None:
        if name == "offer":
            for pid, argv in self._receiver.processes().items():
                if "nodrop.remote.agent" in argv:
                    os.kill(pid, signal.SIGKILL)


def test_what_a_killed_nodrop_left_there_is_undone_from_here(
    run: Run, there: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabProblem, match="receiver sensor1: nodrop there has ended"):
        run(progress=KillsThere(there.receiver))
    assert "nodrop-" in there.receiver.run("ip", "netns"), "the port is not at home"
    _, lab = written(there, tmp_path)
    assert exit_code(["undo", lab]) == 0
    said = capsys.readouterr().out
    assert "undone: receiver sensor1: port cab0 at home" in said
    assert "undone: receiver sensor1: folder /var/lib/nodrop/run." in said
    there.nothing_is_left()


class KillsSshd(Progress):
    """Kills the receiver's sshd in a trial: every process but the one that listens."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver

    def phase(self, name: str) -> None:
        if name == "offer":
            for pid, argv in self._receiver.processes().items():
                if argv.startswith("sshd: ") and "[listener]" not in argv:
                    os.kill(pid, signal.SIGKILL)


def test_a_killed_sshd_is_said_and_the_run_goes_on(run: Run, there: Pair) -> None:
    words = (
        "^receiver sensor1: nodrop there has ended: the ssh connection is gone; go on with --res"
    )
    with pytest.raises(LabProblem, match=words):
        run(progress=KillsSshd(there.receiver))
    there.nothing_is_left()
    assert run(resume=True).exit_code == 0


class Looks(Progress):
    """In a trial: at files, as a second controller, and with a second run on the receiver, which
    comes from another sender and goes to another port."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self._machines = (pair.receiver, pair.sender)
        self._lab = plugins.build_lab(load_lab(pair.lab(folder)))
        (second := folder / "second").mkdir()
        self._file, lab = written(pair.with_ports(["other0"], ["other0"]), second)
        self._other = Path(lab)
        self._other.write_text(self._other.read_text().replace('host = "gen1"\n', ""))
        self.made = second / "results"
        self.files: list[dict[str, str]] = []
        self.checked: list[str] = []
        self.refused = ""

    def phase(self, name: str) -> None:
        if name == "offer":
            argv = ["find", "/var/lib/nodrop", "-maxdepth", "3", "-printf", r"%P %U:%m\n"]
            shown = (machine.run(*argv).splitlines() for machine in self._machines)
            self.files = [dict(line.rsplit(" ", 1) for line in lines) for lines in shown]
            assert isinstance(self._lab, SshLab)
            self.checked = [words for one in self._lab.check() for words in one.problems]
            argv = [sys.executable, "-m", "nodrop.cli.main", "run", str(self._file)]
            second = subprocess.run(
                [*argv, "--lab", self._other, "--out", self.made],
                capture_output=True, text=True, timeout=90, check=False,
            )  # fmt: skip
            self.refused = second.stderr
            assert second.returncode == 3, second


def test_what_a_trial_has_there_and_who_else_is_told_of_it(
    run: Run, there: Pair, tmp_path: Path
) -> None:
    looks = Looks(there, tmp_path)
    outcome = run("measure.repetitions=1", "load.speed=1", progress=looks)
    (record,) = outcome.records
    assert record.valid, record.verdict
    manifest = open_run(outcome.directory).manifest
    assert (manifest["lab"]["name"], manifest["host"]["hostname"]) == ("pair", "sensor1")
    assert manifest["nodrop"]["revision"] == revision()
    for seen, page in zip(looks.files, (THERE, AT_THE_SENDER), strict=True):
        for pattern, whose in page.items():
            modes = {mode for path, mode in seen.items() if re.fullmatch(pattern, path)}
            assert modes == {whose}, pattern
        for path, mode in seen.items():
            assert int(mode.partition(":")[2], 8) & 0o022 == 0, f"others may write to {path}"
    sender, receiver = looks.checked
    run_of_us = rf"run [0-9a-f]{{8}} of {US}, since .* UTC,"
    assert re.match(rf"sender gen1: {run_of_us} has this host; wait", sender)
    assert re.match(rf"receiver sensor1: {run_of_us} has cab0; wait", receiver)
    assert re.match(rf"nodrop: receiver sensor1: {run_of_us} has this host; wait", looks.refused)
    assert not looks.made.exists()
    copied = inode(there.receiver)
    assert copied.endswith(":0:755\n")
    assert run("measure.repetitions=1").exit_code == 0
    assert inode(there.receiver) == copied, "nodrop is copied once"


class Stops(Progress):
    """Nodrop on the receiver hangs while it measures."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver

    def phase(self, name: str) -> None:
        if name == "offer":
            for pid, argv in self._receiver.processes().items():
                if argv.startswith("/usr/bin/python3") and "nodrop.remote.agent" in argv:
                    os.kill(pid, signal.SIGSTOP)


def test_a_nodrop_there_that_hangs_is_named_and_ended_from_here(
    run: Run,
    there: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(messages, "SILENT_S", 12.0)  # it says every 5 s that it is there
    words = "receiver sensor1: nodrop there says nothing for 12 s: it hangs, or its host; `nodrop"
    with pytest.raises(LabProblem, match=words) as hangs:
        run(progress=Stops(there.receiver))
    assert "go on with --resume" in str(hangs.value)
    _, lab = written(there, tmp_path)
    assert exit_code(["undo", lab]) == 0
    (said,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        rf"receiver sensor1: run [0-9a-f]{{8}} of {US}, since .* UTC, goes on \(--all ends it\)",
        said,
    )
    assert exit_code(["undo", lab, "--all", "--yes"]) == 0
    ended = f"undone: receiver sensor1: run {said.split()[3]} (pid "
    assert ended in capsys.readouterr().out
    assert run(resume=True).exit_code == 0


@pytest.mark.depth  # a hang, above, is ended by the same path
def test_an_interrupt_ends_a_run_that_hangs_there(
    run: Run, there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SILENT_S", 12.0)

    class StopsAndEnds(Stops):
        def phase(self, name: str) -> None:
            super().phase(name)
            if name == "offer":
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as ended:
        run(progress=StopsAndEnds(there.receiver))
    words = (
        "nodrop there says nothing for 12 s: it hangs, or its host; `nodrop undo LAB --all` ends it"
    )
    assert ended.value.left == f"receiver sensor1: {words}"
    assert "go on with --resume" in ended.value.advice
    _, lab = written(there, tmp_path)
    assert exit_code(["undo", lab, "--all", "--yes"]) == 0


@contextmanager
def mounted(machine: Machine, *words: str) -> Iterator[None]:
    machine.run("mount", *words)
    try:
        yield
    finally:
        machine.run("umount", words[-1])


class Fills(Progress):
    """The disk there, in a trial."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver

    def phase(self, name: str) -> None:
        if name == "offer":
            words = "dd if=/dev/zero of=/var/lib/nodrop/filler bs=4k status=none 2>/dev/null || :"
            self._receiver.run("sh", "-c", words)


@pytest.mark.depth  # a full disk here, below, is the same sentence
def test_a_full_disk_there_names_the_host_and_the_folder(run: Run, there: Pair) -> None:
    receiver = there.receiver
    receiver.run("mkdir", "-p", "/var/lib/nodrop")
    with mounted(receiver, "-t", "tmpfs", "-o", "mode=755,size=40m", "tmpfs", "/var/lib/nodrop"):
        words = (
            r"^No space left on device \(on receiver sensor1, during: keeping the results, files "
            r"go to /var/lib/nodrop/run\.\w+/far-\w+\); make room .*, then go on with --resume "
            r"--out /tmp"
        )
        receiver.run("hostname", "localhost")  # its own name says nothing to the user
        try:
            with pytest.raises(LabProblem, match=words):
                run(progress=Fills(receiver))
        finally:
            receiver.run("hostname", "sensor1")
        receiver.run("rm", "/var/lib/nodrop/filler")
        assert run(resume=True).exit_code == 0


def test_a_full_disk_here_is_named_too_and_resume_goes_on(run: Run, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150k", "tmpfs", small], check=True)
    try:
        words = (
            rf"^No space left on device \(on {re.escape(this_host())}, during: keeping the "
            rf"results, files go to {small}/far-\w+\); make room .*, then go on "
            rf"with --resume --out {small}"
        )
        with pytest.raises(LabProblem, match=words):
            run(out=small)
        subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)
        outcome = run(out=small, resume=True)
        assert outcome.exit_code == 0 and len(outcome.records) == 2
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_receiver_with_another_python_measures_too(
    run: Run, there: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = other_python()
    if other is None:
        pytest.skip("needs a Python of another version, 3.11 or newer")
    monkeypatch.setattr(upload, "WHEEL_TIMEOUT_S", 20.0)
    try:
        upload._wheel(metadata.distribution("pydantic_core"), version(other))
    except LabProblem as problem:
        pytest.skip(str(problem))
    receiver, ours = there.receiver, "python{}.{}".format(*sys.version_info)
    first = "/usr/local/sbin"  # of the PATH
    with mounted(receiver, "-t", "tmpfs", "tmpfs", first):
        receiver.run("cp", "/bin/false", f"{first}/{ours}")
        receiver.run("ln", "-s", str(other), f"{first}/python3")
        outcome = run()
    assert outcome.exit_code == 0 and len(outcome.records) == 2
    assert all(record.valid for record in outcome.records)
    tag = "cpython-" + version(other).replace(".", "")
    sent = receiver.run("find", "/var/lib/nodrop/control", "-name", "_pydantic_core*")
    assert tag in sent, sent


def test_what_stands_in_the_way_is_one_sentence(run: Run, there: Pair, tmp_path: Path) -> None:
    receiver, version = there.receiver, "{}.{}".format(*sys.version_info)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9 x86_64\n")
    other.chmod(0o755)
    first = "/usr/local/sbin"  # of the PATH
    with mounted(receiver, "-t", "tmpfs", "tmpfs", first):
        for name in ("python3", f"python{version}"):
            receiver.run("cp", str(other), f"{first}/{name}")
        words = r"needs python 3\.11 or newer for .* and finds python3.9 for x86"
        with pytest.raises(NotReady, match=words):
            run()
    receiver.run("mkdir", "-p", "/var/lib/nodrop")
    with (
        mounted(receiver, "-t", "tmpfs", "-o", "mode=755,size=12m", "tmpfs", "/var/lib/nodrop"),
        pytest.raises(NotReady, match=r"nodrop cannot be copied to .*control: .* No space left"),
    ):
        run()
    with pytest.raises(NotReady, match="sender unknown: not reached: its host key is not known"):
        run(lab={"sender": "unknown"})
    receiver.run("ip", "link", "set", "cab0", "down")
    try:
        file, lab = written(there, tmp_path)
        asked = load_experiment(file)
        problems = doctor_elsewhere(asked, load_lab(lab), make_plan(asked)).problems
    finally:
        receiver.run("ip", "link", "set", "cab0", "up")
    assert "receiver sensor1: cab0 is down; `ip link set cab0 up`" in problems, problems
