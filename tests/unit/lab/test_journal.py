"""The undo journal: on disk first, reversed last first, harmless when repeated or torn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.errors import LabProblem, NotReady
from nodrop.lab import journal as journal_module
from nodrop.lab.journal import DiskJournal, undo_abandoned
from nodrop.lab.processes import ProcessId, end_process, labelled_processes


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def writes(word: str, file: Path) -> list[str]:
    return [sys.executable, "-c", f"open({str(file)!r}, 'a').write({word!r})"]


def sleeper(label: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"],
        env={**os.environ, "NODROP_LAB": label},
        stdout=subprocess.PIPE,
    )


def abandon(journal: DiskJournal) -> None:
    """As if its controller had been killed."""
    lines = journal.path.read_text().splitlines()
    head = json.loads(lines[0])
    head["controller"]["start_ticks"] -= 1
    journal.path.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")


def test_changes_are_reversed_last_first_and_once_each(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with DiskJournal.create() as journal:
        for _ in range(3):  # three trials change the same things
            journal.push(what="first", argv=writes("1", out))
            journal.push(what="second", argv=writes("2", out))
    assert out.read_text() == "21"
    assert not journal.path.exists()


def test_the_entry_is_on_disk_when_push_returns() -> None:
    with DiskJournal.create() as journal:
        journal.push(what="x", argv=["true"])
        assert json.loads(journal.path.read_text().splitlines()[-1]) == {
            "what": "x",
            "argv": ["true"],
        }


def test_what_cannot_be_undone_is_said_and_kept() -> None:
    with (
        pytest.raises(LabProblem, match="the thing: no way") as caught,
        DiskJournal.create() as journal,
    ):
        journal.push(what="the thing", argv=[sys.executable, "-c", "raise SystemExit('no way')"])
    assert journal.path.exists() and str(journal.path) in str(caught.value)


def test_what_is_gone_already_counts_as_undone() -> None:
    gone = "raise SystemExit('Cannot remove namespace file: No such file or directory')"
    with DiskJournal.create() as journal:
        journal.push(what="the thing", argv=[sys.executable, "-c", gone])
        assert journal.undo() == []


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    journal = DiskJournal.create()
    journal.push(what="first", argv=writes("1", out))
    with journal.path.open("a") as file:
        file.write('{"what": "second", "argv": ["touch", "/tm')
    abandon(journal)
    (report,) = undo_abandoned()
    assert (report.done, report.failed, out.read_text()) == (["first"], [], "1")
    assert not journal.path.exists()
    assert undo_abandoned() == []


def test_a_journal_torn_in_its_first_line_is_removed() -> None:
    journal = DiskJournal.create()
    journal.path.write_text('{"controll')
    (report,) = undo_abandoned()
    assert report.failed == [] and not journal.path.exists()


def test_a_living_controller_keeps_its_changes(tmp_path: Path) -> None:
    journal = DiskJournal.create()
    journal.push(what="first", argv=writes("1", tmp_path / "out"))
    assert undo_abandoned() == []
    assert not (tmp_path / "out").exists()


def test_after_a_reboot_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = DiskJournal.create()
    journal.push(what="first", argv=writes("1", tmp_path / "out"))
    monkeypatch.setattr(journal_module, "boot_id", lambda: "another")
    (report,) = undo_abandoned()
    assert report.failed == [] and not (tmp_path / "out").exists() and not journal.path.exists()


def test_another_user_namespaces_commands_are_not_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = DiskJournal.create()
    journal.push(what="first", argv=writes("1", tmp_path / "out"))
    abandon(journal)
    monkeypatch.setattr(journal_module, "user_namespace", lambda: 1)
    (report,) = undo_abandoned()
    assert report.failed == [] and not (tmp_path / "out").exists() and not journal.path.exists()


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


def test_we_never_find_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.getpid() not in [found.pid for found in labelled_processes("")]


def test_a_state_folder_that_cannot_be_written_is_said_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(NotReady, match=r"the undo journal cannot be kept there: .*XDG_STATE_HOME"):
        DiskJournal.create()
