"""The undo journal (long: one made-up host serves all): on disk first, reversed last first,
harmless when repeated or torn."""

import errno
import json
import os
import signal
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import BadInput, LabProblem, NotReady, SystemRefused
from nodrop.measure.busy import beside_words
from nodrop.testbed.hosts import journal as journal_module
from nodrop.testbed.hosts import reversal
from nodrop.testbed.hosts.api import Completed, UndoAction
from nodrop.testbed.hosts.journal import DiskJournal, must_be_kept, undo_abandoned
from nodrop.testbed.hosts.processes import ProcessId, labelled_processes
from nodrop.testbed.hosts.reversal import reverse

ROOT_ALONE = pytest.mark.usefixtures("real_root")  # to be another user


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


class Host:
    """Macvtaps that stand, and what was run to take them away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: list[str] = []
        self.says: str | None = None
        """stderr of a command that fails."""

    def add(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def __call__(self, argv: Sequence[str], **_: object) -> Completed:
        self.run.append(" ".join(argv))
        if self.says is None:
            (self.folder / argv[-1]).unlink()
        return Completed(
            argv=tuple(argv),
            returncode=0 if self.says is None else 1,
            stdout="",
            stderr=self.says or "",
            seconds=0,
        )


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path / "net")
    found.folder.mkdir()
    monkeypatch.setattr(reversal, "NICS", found.folder)
    monkeypatch.setattr(reversal, "run_command", found)
    return found


def push(journal: DiskJournal, name: str) -> None:
    journal.push(what=name, action=UndoAction.DELETE_MACVTAP, arguments=[name])


def abandon(journal: DiskJournal) -> None:
    """Stands for a controller that was killed: the kernel lets go of its lock."""
    journal.close()


def rewrite_head(journal: DiskJournal, **changes: object) -> None:
    head, *lines = journal.path.read_text().splitlines()
    text = json.dumps({**json.loads(head), **changes})
    journal.path.write_text("\n".join([text, *lines]) + "\n")


def test_changes_are_reversed_last_first_and_once_each(host: Host) -> None:
    host.add("ndlv1", "ndlv2")
    with DiskJournal.create() as journal:
        for _ in range(3):  # three trials change the same things
            push(journal, "ndlv1")
            push(journal, "ndlv2")
    assert host.run == ["ip link del ndlv2", "ip link del ndlv1"]
    assert not journal.path.exists()
    assert journal.changed == ["ndlv1", "ndlv2"]


def test_the_entry_is_on_disk_when_push_returns(host: Host) -> None:
    with DiskJournal.create() as journal:
        push(journal, "ndlv1")
        assert json.loads(journal.path.read_text().splitlines()[-1]) == {
            "what": "ndlv1",
            "action": "delete_macvtap",
            "arguments": ["ndlv1"],
        }


@pytest.mark.parametrize(
    "words",
    [
        "no way",
        "cannot open shared object: No such file or directory",
        "No such process",
        "Cannot find device",
        "",
    ],
)
def test_what_still_stands_is_said_and_kept_whatever_the_program_says(
    host: Host, words: str
) -> None:
    host.add("ndlv1")
    host.says = words
    with (
        pytest.raises(LabProblem, match="could not undo: ndlv1: ") as caught,
        DiskJournal.create() as journal,
    ):
        push(journal, "ndlv1")
    assert journal.path.exists() and str(journal.path) in str(caught.value)
    host.says = None
    (report,) = undo_abandoned()
    assert (report.done, report.failed) == (["ndlv1"], [])


def test_what_is_gone_already_counts_as_undone(host: Host) -> None:
    with DiskJournal.create() as journal:
        push(journal, "ndlv1")
        assert journal.undo() == []
    assert host.run == []


def test_a_torn_last_line_is_passed_over(host: Host) -> None:
    host.add("ndlv1")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    with journal.path.open("a") as file:
        file.write('{"what": "second", "argv": ["touch", "/tm')
    abandon(journal)
    (report,) = undo_abandoned()
    assert (report.done, report.failed, host.run) == (["ndlv1"], [], ["ip link del ndlv1"])
    assert not journal.path.exists()
    assert undo_abandoned() == []


DAMAGED = [
    "{}",
    "[]",
    "null",
    '{"controll',
    '{"what": 7, "action": "delete_macvtap", "arguments": ["ndlv9"]}',
    '{"what": "x", "action": "delete_macvtap"}',
    '{"what": "x", "action": "delete_macvtap", "arguments": [7]}',
    '{"what": "x", "process": {"pid": "7", "start_ticks": 1}}',
    '{"what": "x", "process": []}',
    "[" * 100_000,
    '{"what": "x", "process": {"pid": ' + "9" * 5000 + ', "start_ticks": 1}}',
    '{"what": "x", "argv": ["touch", "/tmp/x"]}',
    '{"what": "x", "action": "run", "arguments": ["touch", "/tmp/x"]}',
    '{"what": "x", "action": "delete_macvtap", "arguments": ["ndlv1", "ndlv2"]}',
    '{"what": "x", "action": "delete_macvtap", "arguments": []}',
    # What no system call takes, which is a ValueError or an OverflowError of Python's.
    '{"what": "x", "action": "detach_nic", "arguments": ["u\\u0000", "d", "ndlv1"]}',
    '{"what": "x", "action": "detach_nic", "arguments": ["\\ud800", "d", "ndlv1"]}',
    '{"what": "x", "process": {"pid": 4294967297, "start_ticks": 1}}',
    '{"what": "x", "process": {"pid": 0, "start_ticks": 1}}',
]


@pytest.mark.parametrize("name", [b"**.jsonl", b"\xff.jsonl", b"[.jsonl", b"a b.jsonl"])
def test_a_journal_that_no_run_named_is_kept_and_stops_nothing(
    host: Host, state_home: Path, name: bytes
) -> None:
    """The label becomes part of patterns, of names and of bytes to look for."""
    host.add("ndlv1", "ndlv3")
    for label, port in (("a", "ndlv1"), ("z", "ndlv3")):
        journal = DiskJournal.create(label)
        push(journal, port)
        abandon(journal)
    folder = state_home / "nodrop" / "undo"
    foreign = folder / os.fsdecode(name)
    (folder / "a.jsonl").rename(foreign)
    reports = undo_abandoned()
    assert [r.done for r in reports if r.label == "z"] == [["ndlv3"]]
    (kept,) = (r for r in reports if r.label != "z")
    assert not kept.done and "its name is that of no run" in kept.failed[0]
    assert foreign.exists() and host.run == ["ip link del ndlv3"]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_said_kept_and_stops_nothing(host: Host, line: str) -> None:
    """The other changes of that journal, and other journals, are undone."""
    host.add("ndlv1", "ndlv2", "ndlv3")
    journals = [DiskJournal.create(label) for label in ("a", "b")]
    push(journals[0], "ndlv1")
    with journals[0].path.open("a") as file:
        file.write(line + "\n")
    push(journals[0], "ndlv2")
    push(journals[1], "ndlv3")
    for journal in journals:
        abandon(journal)
    one, two = undo_abandoned()
    assert (one.done, len(one.failed)) == (["ndlv2", "ndlv1"], 1)
    assert (two.done, two.failed) == (["ndlv3"], [])
    assert journals[0].path.exists() and not journals[1].path.exists()


@pytest.mark.parametrize("line", [*DAMAGED, "", "\x00\x00", '{"controller": {}, "boot_id": "x"}'])
def test_a_journal_whose_first_line_is_damaged_is_kept(host: Host, line: str) -> None:
    host.add("ndlv1", "ndlv3")
    journals = [DiskJournal.create(label) for label in ("a", "b")]
    push(journals[0], "ndlv1")
    _, *rest = journals[0].path.read_text().splitlines()
    journals[0].path.write_text("\n".join([line, *rest]) + "\n")
    push(journals[1], "ndlv3")
    for journal in journals:
        abandon(journal)
    one, two = undo_abandoned()
    assert "first line" in one.failed[0] and str(journals[0].path) in one.failed[0]
    assert two.done == ["ndlv3"]
    assert journals[0].path.exists() and host.run == ["ip link del ndlv3"]


def test_a_full_disk_leaves_no_half_line(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add("ndlv1", "ndlv2")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    before = journal.path.read_bytes()
    limit = resource_limit(len(before) + 20)
    with limit, pytest.raises(OSError):
        push(journal, "ndlv2")
    assert journal.path.read_bytes() == before
    push(journal, "ndlv2")  # there is room again
    abandon(journal)
    (report,) = undo_abandoned()
    assert (report.done, report.failed) == (["ndlv2", "ndlv1"], [])


class resource_limit:  # noqa: N801
    """No file may grow beyond so many bytes: write(2) then writes a part, as on a full disk."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        import resource

        self._ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *_: object) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
        signal.signal(signal.SIGXFSZ, self._ignored)


def test_a_living_controller_keeps_its_changes(host: Host) -> None:
    host.add("ndlv1")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    assert undo_abandoned() == [] and host.run == []
    journal.remove()


def test_a_run_of_another_process_is_named_before_this_one_begins(
    host: Host, tmp_path: Path
) -> None:
    with DiskJournal.create(results=tmp_path / "elsewhere") as journal:
        assert [*beside_words()] == [], "its own"
        controller = ProcessId.of(os.getpid()).as_json() | {"pid": 4711}
        rewrite_head(journal, controller=controller, since_unix_s=1_795_834_800)
        (words,) = beside_words()
        assert f"(pid 4711, run {journal.label} of " in words
        assert f"since 2026-11-28 03:00:00 UTC, writes to {tmp_path}/elsewhere): " in words
        rewrite_head(journal, controller=controller, results=None, since_unix_s=1_795_834_800)
        assert "since 2026-11-28 03:00:00 UTC): " in next(beside_words())
    assert [*beside_words()] == [], "it is over"


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"pid": 2**22, "start_ticks": 5}])
def test_a_run_in_another_pid_namespace_is_left_alone(host: Host, change: dict[str, int]) -> None:
    """Seen from here its PID means no process, or another one."""
    host.add("ndlv1")
    with DiskJournal.create() as journal:
        push(journal, "ndlv1")
        controller = ProcessId.of(os.getpid()).as_json() | change
        rewrite_head(journal, controller=controller, pid_namespace=1)
        assert undo_abandoned() == [] and host.run == []
        (report,) = undo_abandoned(running=True)
        assert "another PID namespace" in report.failed[0] and host.run == []
        assert journal.path.exists()


def test_after_a_reboot_nothing_is_run(host: Host) -> None:
    host.add("ndlv1")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    rewrite_head(journal, boot_id="another")
    abandon(journal)
    (report,) = undo_abandoned()
    assert report.failed == [] and host.run == [] and not journal.path.exists()


def test_another_user_namespaces_changes_are_not_reversed_here(host: Host) -> None:
    host.add("ndlv1")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    rewrite_head(journal, user_namespace=1)
    abandon(journal)
    (report,) = undo_abandoned()
    assert report.failed == [] and host.run == [] and not journal.path.exists()


def test_of_a_user_namespace_that_stands_nothing_is_forgotten(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add("ndlv1")
    journal = DiskJournal.create()
    push(journal, "ndlv1")
    abandon(journal)
    monkeypatch.setattr(journal_module, "user_namespace", lambda: 1)  # we are in another
    (report,) = undo_abandoned()
    assert "undo it from there" in report.failed[0] and host.run == [] and journal.path.exists()


def test_we_never_find_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.getpid() not in [found.pid for found in labelled_processes("")]


def test_a_state_folder_that_cannot_be_written_is_said_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(NotReady, match=r"the undo journal cannot be kept there: .*XDG_STATE_HOME"):
        DiskJournal.create()


def test_nobody_else_reads_or_writes_a_journal(state_home: Path) -> None:
    with DiskJournal.create() as journal:
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


@ROOT_ALONE
@pytest.mark.parametrize(("owner", "mode"), [(4242, 0o700), (0, 0o777), (0, 0o770)])
def test_root_takes_no_journals_out_of_anothers_folder(
    state_home: Path, owner: int, mode: int
) -> None:
    """`sudo -E` leads root to such a folder."""
    folder = state_home / "nodrop" / "undo"
    folder.mkdir(parents=True)
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    for use in (undo_abandoned, DiskJournal.create):
        with pytest.raises(BadInput, match="the undo journals"):
            use()


@ROOT_ALONE
def test_root_makes_no_folder_in_anothers_home(state_home: Path) -> None:
    state_home.mkdir()
    os.chown(state_home, 4242, 4242)
    with pytest.raises(NotReady, match="another user's folder"):
        DiskJournal.create()


@ROOT_ALONE
@pytest.mark.parametrize("change", ["owner", "mode", "link", "fifo"])
def test_a_journal_that_another_could_have_written_is_not_obeyed(
    host: Host, tmp_path: Path, change: str
) -> None:
    host.add("ndlv1", "ndlv2")
    journals = [DiskJournal.create(label) for label in ("a", "b")]
    push(journals[0], "ndlv1")
    push(journals[1], "ndlv2")
    path = journals[0].path
    match change:
        case "owner":
            os.chown(path, 4242, 4242)
        case "mode":
            path.chmod(0o666)
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            path.unlink()
            os.mkfifo(path)
    for journal in journals:
        abandon(journal)
    one, two = undo_abandoned()
    assert len(one.failed) == 1 and two.done == ["ndlv2"]
    assert host.run == ["ip link del ndlv2"]


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        (UndoAction.DELETE_NETNS, ["nodrop-other-snd"]),
        (UndoAction.DELETE_NETNS, ["nodrop-l-../../x"]),
        (UndoAction.DELETE_NETNS, ["--all"]),
        (UndoAction.DELETE_MACVTAP, ["eth0"]),
        (UndoAction.DELETE_MACVTAP, ["ndlv1 up"]),
        (UndoAction.REMOVE_GROUP, ["/etc"]),
        (UndoAction.REMOVE_GROUP, ["/sys/fs/cgroup/../../../nodrop-l-sut"]),
        (UndoAction.REMOVE_GROUP, ["nodrop-l-sut"]),
        (UndoAction.REMOVE_CONTAINERS, ["tcp://192.0.2.1:2375"]),
        (UndoAction.DELETE_CONTAINER, ["/run/runc", "somebody-elses"]),
        (UndoAction.DETACH_NIC, ["qemu:///system", "ids", "vnet0"]),
        (UndoAction.DETACH_NIC, ["", "ids", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["/etc/passwd", "ids", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["qemu:///sys tem", "ids", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["qemu:///system\x1b[31m", "ids", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["qemu:///system", "", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["qemu:///system", "a/../b", "ndlv1"]),
        (UndoAction.DETACH_NIC, ["qemu:///system", "i\nds", "ndlv1"]),
        (UndoAction.RESTORE_DRIVER, ["../../../etc", "ixgbe"]),
        (UndoAction.LOAD_DRIVER, ["eth1 up", "igb", "1500", "feature/rx-gro=00", "1"]),
        (UndoAction.LOAD_DRIVER, ["eth1", "../igb", "1500", "feature/rx-gro=00", "1"]),
        (UndoAction.LOAD_DRIVER, ["eth1", "igb", "all", "feature/rx-gro=00", "1"]),
        (UndoAction.LOAD_DRIVER, ["eth1", "igb", "1500", "--reset", "1"]),
        (UndoAction.RESTORE_DRIVER, ["0000:01:00.0", "../x"]),
    ],
)
def test_arguments_that_are_no_runs_own_are_refused(
    host: Host, action: UndoAction, arguments: list[str]
) -> None:
    with pytest.raises(LabProblem, match=r"is not|is no"):
        reverse(action, arguments, label="l")
    assert host.run == []


def test_what_would_be_done_is_said_and_not_done(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.add("ndlv1", "ndlv2", "ndlv3")
    left, mine = DiskJournal.create("left"), DiskJournal.create("mine")
    push(left, "ndlv1")
    push(left, "ndlv2")
    push(mine, "ndlv3")
    abandon(left)
    assert exit_code(["undo", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["would undo: ndlv2", "would undo: ndlv1"]
    assert said[2].startswith("run mine of ") and said[2].endswith("goes on (--all would end it)")
    assert exit_code(["undo", "--dry-run", "--all", "--json"]) == 0
    found = {one["label"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["left"]["goes_on"] == ""
    assert found["mine"]["what"] == ["ndlv3"]
    assert host.run == [] and left.path.exists() and mine.path.exists()
    mine.remove()


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_all_ends_no_run_unasked(
    host: Host,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    user: str,
) -> None:
    monkeypatch.setenv("SUDO_USER", user)
    ended: list[int] = []
    monkeypatch.setattr(
        journal_module, "end_process", lambda process, **_: ended.append(process.pid)
    )
    host.add("ndlv1")
    journal = DiskJournal.create("other")
    push(journal, "ndlv1")
    assert exit_code(["undo", "--all"]) == 2
    shown = capsys.readouterr()
    assert f"would end: run other of {user}@" in shown.out
    assert "--all ends 1 run (above), which may be another user's; add --yes" in shown.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _: False)
    assert exit_code(["undo", "--all"]) == 130
    assert ended == [] and host.run == []
    monkeypatch.setattr("typer.confirm", lambda _: True)
    for argv in (["undo", "--all"], ["undo", "--all", "--yes"]):
        ended.clear()
        exit_code(argv)
        assert ended == [os.getpid()]
    journal.remove()


@pytest.mark.parametrize(
    ("number", "does"), [(errno.ENOSPC, "make room"), (errno.EROFS, "write to another disk")]
)
def test_a_full_state_disk_is_not_the_results_disk(
    number: int, does: str, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    journal = DiskJournal.create()

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "append_whole", full)
        with pytest.raises(SystemRefused) as refused:
            push(journal, "ndlv1")
    assert f"during: keeping the undo journal, files go to {state_home}/nodrop/undo" in str(
        refused.value
    )
    assert does in str(refused.value)
    journal.remove()


def test_a_read_only_state_folder_is_said_before_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_kept()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere else
    with pytest.raises(NotReady, match="undo: the undo journal cannot be kept there"):
        must_be_kept()
