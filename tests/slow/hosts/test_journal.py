"""Processes of a journal: found by their label, and ended if they are the ones that it names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.processes import ProcessId, end_process


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def sleeper(label: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"],
        env={**os.environ, "NODROP_LAB": label},
        stdout=subprocess.PIPE,
    )


def test_processes_are_found_by_label_and_only_those() -> None:
    journal = DiskJournal.create()
    with sleeper(journal.label) as ours, sleeper(journal.label + "0") as another:
        for process in (ours, another):
            assert process.stdout and process.stdout.readline() == b"1\n"
        try:
            report = journal.undo_all()
            assert report.done == [f"process {ours.pid}"]
            assert ours.wait(10) == -9
            assert another.poll() is None
            assert journal.undo_all().done == []
        finally:
            another.kill()
    journal.remove()


def test_a_journaled_process_is_ended_without_its_label() -> None:
    with sleeper("none-of-ours") as process, DiskJournal.create() as journal:
        assert process.stdout and process.stdout.readline() == b"1\n"
        journal.process(process.pid, "suricata")
        assert journal.undo_all().done == [f"suricata {process.pid}"]
        assert process.wait(10) == -9


def test_a_pid_that_now_is_somebody_elses_is_left_alone() -> None:
    with sleeper("none-of-ours") as process:
        assert process.stdout and process.stdout.readline() == b"1\n"
        real = ProcessId.of(process.pid)
        assert end_process(ProcessId(real.pid, real.start_ticks - 1)) is None
        assert process.poll() is None
        process.kill()
