"""A normal user gets a lab in a user namespace, and no part of it survives its process."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop.results.rundir import open_run
from tests.netns.test_lab import CONTROLLER, DEADLINE_S, ours, wait_for

MAIN = "from nodrop.cli.main import main; main()"
EXPERIMENT = """
name = "level"
question = "How full does the ring become?"
[setup]
kind = "bare"
[sut]
kind = "sink"
service_rate_pps = 2_500
ring_frames = 2048
[load]
kind = "replay"
trace = "make:demo"
window = "0..2"
pps = 5_000
loops = 3
[measure]
repetitions = 1
"""
NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def user(real_root: None, node: Path) -> Iterator[list[str]]:
    """argv in front of a program that makes a normal user run it; its HOME is the last word."""
    home = Path("/tmp") / f"nodrop-test-{os.getpid()}"  # pytest's own folders are root's alone
    home.mkdir()
    try:
        # Their places may be closed to others; these copies are not.
        shutil.copy(node, home / "nodrop-node")
        package = Path(__file__).parents[2] / "src/nodrop"
        shutil.copytree(package, home / "lib/nodrop", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(package.parents[1] / "labs", home / "lib/nodrop/labs")
        for beside in (package.parents[1] / "packages").glob("*/src/*"):
            shutil.copytree(beside, home / "lib" / beside.name)
        libraries = sysconfig.get_path("purelib")
        os.chown(home, NOBODY, NOBODY)
        prefix = [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env"),
            f"PYTHONPATH={home / 'lib'}:{libraries}",
            f"HOME={home}",
            f"XDG_STATE_HOME={home / 'state'}",
            f"NODROP_NODE={home / 'nodrop-node'}",
            "PYTHONDONTWRITEBYTECODE=1",
        ]
        if subprocess.run([*prefix, python(), "-c", "import pydantic"], check=False).returncode:
            pytest.skip(f"user nobody cannot run {python()} with the packages of {libraries}")
        unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"]
        if subprocess.run([*prefix, *unshare], check=False).returncode:
            pytest.skip("this host gives normal users no user namespace")
        yield prefix
    finally:
        shutil.rmtree(home)


def python() -> str:
    """A Python of this version, outside of folders that are root's alone."""
    system = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    return str(system) if system.exists() else sys.executable


def home_of(user: list[str]) -> Path:
    return Path(next(word for word in user if word.startswith("HOME=")).removeprefix("HOME="))


@contextmanager
def run_of(user: list[str], label: str) -> Iterator[subprocess.Popen[bytes]]:
    out = home_of(user) / "out"
    process = subprocess.Popen(
        [*user, python(), "-c", CONTROLLER, label, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    with process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def test_it_is_one_process_and_ends_by_itself(user: list[str], label: str) -> None:
    with run_of(user, label) as process:
        assert Path(f"/proc/{process.pid}").stat().st_uid == NOBODY
        assert len(ours(label)["processes"]) == 4  # two of them look
        assert ours(label)["namespaces"] == []  # none that this machine could see
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) != 0
    assert ours(label) == {"namespaces": [], "links": set(), "processes": []}
    assert list(home_of(user).rglob("*.jsonl")) == []


def test_after_kill_9_undo_leaves_nothing(user: list[str], label: str) -> None:
    with run_of(user, label) as process:
        process.kill()
        process.wait(DEADLINE_S)
    wait_for(lambda: len(ours(label)["processes"]) == 1)  # the SUT died with it, one got away
    done = subprocess.run(
        [*user, python(), "-c", MAIN, "undo"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.startswith("undone: process ")
    assert ours(label) == {"namespaces": [], "links": set(), "processes": []}
    assert list(home_of(user).rglob("*.jsonl")) == []


def test_the_level_of_a_ring_is_read(user: list[str]) -> None:
    """Nobody may load a BPF iterator: its shape comes from packet_diag, arrivals from the
    sender."""
    home = home_of(user)
    experiment = home / "level.toml"
    experiment.write_text(EXPERIMENT)
    done = subprocess.run(
        [*user, python(), "-c", MAIN, "run", str(experiment), "--out", str(home / "out")],
        check=False, cwd="/", timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    # A sender that a busy host held up makes the trial void (1); its ring was looked at anyway.
    assert done.returncode in (0, 1), done.stderr
    [run] = (home / "out").iterdir()
    record = open_run(run).trials.records[-1]
    queue = record.packets.queue
    assert queue is not None and queue.slots == 2048, done.stdout
    # Twice as many come as are served.
    lost = record.packets.lost_packets or 0
    assert queue.looks > 100 and queue.highest_ratio > 0.99 and lost > 0
    assert queue.excess > 1.5 and lost == queue.lost_packets
    # On a busy host the twin may not reproduce its trial.
    assert queue.fits_times is None or 0.3 < queue.fits_times < 1
