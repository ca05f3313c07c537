"""The storage of a lab, over real ssh: raw files go there whole, and none is lost on the way."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.config.lab_file import load_lab
from nodrop.errors import LabProblem, NotReady
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.rundir import open_run
from nodrop.testbed.hosts import ssh_connection
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.labs.api import Storage
from nodrop.untrusted.folder import Folder
from tests.ssh.machines import Machine, set_control
from tests.ssh.pairs import Pair, Run, runs_on

PLACE = "/run/nas"
STORAGE = f"""\
[storage]
host = "gen1"
path = "{PLACE}"
"""
ROWS = b'{"mono_ns": 1}\n' * 20_000


@pytest.fixture
def nas(there: Pair) -> Iterator[Machine]:
    """A disk of 1 MiB."""
    machine = there.sender
    machine.run("mkdir", PLACE)
    machine.run("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", PLACE)
    yield machine
    machine.run("umount", PLACE)
    machine.run("rmdir", PLACE)


@pytest.fixture
def run(there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(there, tmp_path) as go:
        yield go


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows"
    path.write_bytes(ROWS)
    return path


def keep(storage: Storage, rows: Path) -> None:
    storage.keep(Folder(rows.parent), rows.name, file_sha256(rows), there=f"{PLACE}/a/1")


def whole(nas: Machine, rows: Path) -> bool:
    said = nas.run("sh", "-c", f"cd {PLACE}/a/1 && ls -A && stat -c %u:%a * && sha256sum *")
    return said == f"rows\n0:600\n{file_sha256(rows)}  rows\n"


def test_samples_of_a_run_lie_there_and_come_back_as_its_report_says(
    run: Run, there: Pair, nas: Machine
) -> None:
    outcome = run("measure.repetitions=1", lab={"more": STORAGE})
    assert outcome.exit_code == 0
    found = open_run(outcome.directory)
    (record,) = outcome.records
    place = {"host": "gen1", "folder": f"{PLACE}/{outcome.directory.name}"}
    assert found.manifest["storage"] == place
    (file,) = json.loads((outcome.directory / "runs" / record.run / "elsewhere.json").read_text())[
        "files"
    ]
    assert (file["name"], found.sampled_hosts(record.run)) == ("samples-receiver.jsonl", ())
    command = found.elsewhere(record.run)
    assert command is not None
    page = write_report(read_story([outcome.directory]))
    assert "Samples lie on the storage of the lab: `scp -rp " in page.read_text()
    config = ["-q", "-F", str(there.machines.config)]
    subprocess.run(["scp", *config, *shlex.split(command)[1:]], check=True, timeout=30)
    samples = outcome.directory / "runs" / record.run / file["name"]
    assert file_sha256(samples) == file["sha256"] and found.elsewhere(record.run) is None
    # Where they lie is no part of what is measured.
    assert run("measure.repetitions=1", resume=True).directory == outcome.directory


def test_what_a_full_disk_did_not_take_is_gone_on_with(
    there: Pair, nas: Machine, rows: Path
) -> None:
    nas.run("mount", "-o", "remount,size=128k", PLACE)
    with Storage("gen1", PLACE, config=there.machines.config) as storage:
        with pytest.raises(LabProblem) as said:
            keep(storage, rows)
        words = f"storage gen1: {PLACE}/a/1/rows cannot be kept: No space left on device"
        assert str(said.value) == words
        (begun,) = nas.run("ls", "-A", f"{PLACE}/a/1").split()
        assert begun == f".rows.{file_sha256(rows)}"
        nas.run("mount", "-o", "remount,size=1m", PLACE)
        # Only the rest is sent: what is there stays as it is, and if it is wrong, that is seen.
        nas.run("sh", "-c", f"printf x | dd of={PLACE}/a/1/{begun} conv=notrunc status=none")
        with pytest.raises(LabProblem, match="rows cannot be kept: it did not arrive whole"):
            keep(storage, rows)
        keep(storage, rows)
        assert whole(nas, rows)
        rows_there = nas.run("stat", "-c", "%i", f"{PLACE}/a/1/rows")
        keep(storage, rows)
        assert nas.run("stat", "-c", "%i", f"{PLACE}/a/1/rows") == rows_there, "sent once"


def test_a_line_that_was_cut_is_laid_again(
    there: Pair, nas: Machine, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveInterval", "1")
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveCountMax", "2")
    with Storage("gen1", PLACE, config=there.machines.config) as storage:
        set_control(0, up=False)
        try:
            with pytest.raises(LabProblem, match=r"^storage gen1: the ssh connection is gone"):
                keep(storage, rows)
        finally:
            set_control(0, up=True)
        keep(storage, rows)
    assert whole(nas, rows)


@pytest.mark.parametrize(
    ("host", "path", "words"),
    [
        ("user", "/root/nas", r"storage user: /root/nas cannot be kept: .*Permission denied"),
        ("unknown", PLACE, "storage unknown: not reached: its host key is not known"),
    ],
)
def test_what_cannot_keep_is_said_before_anything_is_touched(
    run: Run, there: Pair, tmp_path: Path, host: str, path: str, words: str
) -> None:
    more = STORAGE.replace("gen1", host).replace(PLACE, path)
    with pytest.raises(NotReady, match=words) as said:
        run(lab={"more": more})
    assert os.linesep not in str(said.value)
    lab = plugins.build_lab(load_lab(there.lab(tmp_path, more=more)))
    assert str(said.value) in [words for one in lab.check() for words in one.problems]
