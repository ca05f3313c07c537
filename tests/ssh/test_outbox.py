"""A trial that was measured whole is not measured again because its files did not come over."""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import Interrupted, LabProblem
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Progress
from nodrop.remote.outbox import UNTAKEN
from nodrop.results.rundir import open_run
from nodrop.results.writer import RunWriter
from nodrop.testbed.hosts import ssh_connection
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.relay import LONGEST_BYTES
from tests.disturbed import BY_THE_MACHINE
from tests.e2e.conftest import closes
from tests.ssh.machines import set_control
from tests.ssh.pairs import END_S, Pair, Run, runs_on

PLACE = f"/var/lib/nodrop/{UNTAKEN}"
COPY = "/var/lib/of-the-test"
SLOW = ["tbf", "rate", "400kbit", "burst", "4kb", "limit", "512kb"]
"""Nothing is dropped: TCP would then wait for seconds at times, and ssh, which is to see a cut
soon, would take that for one."""


@pytest.fixture
def run(there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> Iterator[Run]:
    """Runs with a small trace, for it goes over the slow line too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    trace = tmp_path / "small.pcap"
    make = [str(find_node_binary()), "trace", "make", "demo", str(trace), "--packets", "300"]
    subprocess.run(make, check=True, timeout=60, capture_output=True)
    with runs_on(there, tmp_path) as go:

        def small(*settings: str, **given: Any) -> RunOutcome:
            return go(f"load.trace={trace}", *settings, **given)

        yield small


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is cut is seen soon."""
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveInterval", "1")
    monkeypatch.setitem(ssh_connection.OPTIONS, "ServerAliveCountMax", "2")


class Counts(Progress):
    """The trials that are measured, and what is said."""

    def __init__(self) -> None:
        self.measured, self.said = 0, list[str]()

    def phase(self, name: str) -> None:
        self.measured += name == "offer"

    def note(self, words: str) -> None:
        self.said.append(words)


def far_half(pair: Pair) -> int:
    (pid,) = (
        pid
        for pid, argv in pair.receiver.processes().items()
        if "nodrop.remote.agent" in argv and "python" in argv.split()[0]
    )
    return pid


class Breaks:
    """Something that happens once, when a file has come in part: the largest, if not told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.does: Callable[[], None] | None = None
        self.file = "samples-receiver.jsonl"
        self.begun: dict[str, int] = {}
        """File → the byte at which its upload went on."""
        take = RunWriter.take

        def taken(
            writer: RunWriter, path: Any, chunks: Any, *, sha256: str, begun: int = 0
        ) -> None:
            self.begun["/".join(path[1:])] = begun

            def watched() -> Iterator[bytes]:
                for chunk in chunks:
                    yield chunk
                    if self.does and path[-1] == self.file:
                        does, self.does = self.does, None
                        does()

            take(writer, path, watched(), sha256=sha256, begun=begun)

        monkeypatch.setattr(RunWriter, "take", taken)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Breaks:
    return Breaks(monkeypatch)


class Slows(Counts):
    """The control line, once the load is offered: what is sent after it takes seconds."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self._pair = pair

    def phase(self, name: str) -> None:
        super().phase(name)
        if name == "offer":
            slow(self._pair, "replace")


def slow(pair: Pair, how: str) -> None:
    pair.receiver.run("tc", "qdisc", how, "dev", "mgmt", "root", *(SLOW if how != "del" else ()))


def cut(
    pair: Pair, go: Callable[[], object], breaks: Breaks, *, kill: bool = False, late: bool = False
) -> None:
    """Runs until its line is cut in the midst of a file; the line is as it was after that. With
    `kill`, nodrop there has no time to do anything about it. The line comes back once nodrop here
    has ended, which ends nodrop there; with `late`, after that one's lease (20 s)."""
    ends: list[int] = []

    def breaking() -> None:
        set_control(1, up=False)  # first: what is left of the file takes half a second
        half = far_half(pair)
        ends.append(os.pidfd_open(half))
        if kill:
            os.kill(half, signal.SIGKILL)

    breaks.does = breaking
    try:
        with pytest.raises(LabProblem, match="sensor1: nodrop there has ended") as said:
            go()
        assert "--resume" in str(said.value)
        if not late:
            set_control(1, up=True)
        assert select.select(ends, [], [], END_S)[0], "it has ended"
    finally:
        for handle in ends:
            os.close(handle)
        set_control(1, up=True)
        slow(pair, "del")


def hashes(pair: Pair, run: str) -> Mapping[str, str]:
    """Hashes of the files there."""
    said = pair.receiver.run(
        "sh", "-c", f"cd {PLACE}/runs/{run} && find . -type f -exec sha256sum {{}} +"
    )
    return {path[2:]: sha256 for sha256, path in map(str.split, said.splitlines())}


def here(directory: Path, run: str) -> Mapping[str, str]:
    top = directory / "runs" / run
    return {
        str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in top.rglob("*")
        if path.is_file()
    }


LONG = ("load.speed=0.06", "measure.sample_interval_ms=30")
"""2.5 s and 230 KB of rows: three frames and a half. ssh hands on 32 KB at once, so that all of a
file of two frames may be here before the line is cut."""


@pytest.mark.depth  # a kill there, below, ends it in the same place
def test_a_cut_while_files_come_costs_no_trial_however_often(
    run: Run, there: Pair, breaks: Breaks, tmp_path: Path
) -> None:
    cut(there, lambda: run(*LONG, progress=Slows(there)), breaks, late=True)
    (directory,) = (tmp_path / "results").iterdir()
    assert not open_run(directory).trials.records
    assert there.receiver.run("stat", "-c", "%u:%a", PLACE) == "0:700\n"
    whole = hashes(there, "0001-r01")
    # Another experiment in between does not take its place.
    run("measure.repetitions=1", out=tmp_path / "other")
    first = Counts()

    def again() -> None:
        slow(there, "replace")
        run(*LONG, progress=first, resume=True)

    cut(there, again, breaks)
    assert first.measured == 0
    assert hashes(there, "0001-r01") == whole
    then = Counts()
    outcome = run(*LONG, progress=then, resume=True)
    record, _ = outcome.records
    assert outcome.directory == directory
    assert f"0001-r01: fetched from receiver sensor1, measured at {record.started_utc}" in then.said
    assert then.measured == 1, "the second alone"
    begun = breaks.begun["0001-r01/samples-receiver.jsonl"]
    assert begun >= 2 * LONGEST_BYTES, "it went on where it was cut, each time"
    assert here(directory, "0001-r01") == whole
    assert all(closes(record) for record in outcome.records)
    assert all({*record.invalid_reasons} <= BY_THE_MACHINE for record in outcome.records)
    assert not list(directory.rglob("*.part"))


@pytest.mark.depth  # cut in an earlier file, as the others here: both halves have the trial
def test_a_trial_that_came_whole_is_known_though_nodrop_there_was_not_told(
    run: Run, there: Pair, breaks: Breaks, tmp_path: Path
) -> None:
    """Cut after the last file: both halves have it."""
    breaks.file = "trial.json"
    cut(there, lambda: run(*LONG, progress=Slows(there)), breaks)
    then = Counts()
    outcome = run(*LONG, progress=then, resume=True)
    assert then.measured == 1, "the second alone"
    assert [record.run for record in outcome.records] == ["0001-r01", "0002-r02"]
    assert all(closes(record) for record in outcome.records)


@pytest.mark.depth  # test_reboot.py boots, and a kill there, below, keeps the trial
def test_a_host_does_not_boot_for_a_trial_that_it_has(
    run: Run, there: Pair, breaks: Breaks, tmp_path: Path
) -> None:
    reset = 'measure.reset="reboot"'
    with there.machines.boot_id_of_its_own(there.receiver):
        cut(there, lambda: run(*LONG, reset, progress=Slows(there)), breaks)
        whole, then = hashes(there, "0001-r01"), Counts()
        outcome = run(*LONG, reset, progress=then, resume=True)
    assert [words for words in then.said if words.endswith(" boots")] == ["receiver sensor1 boots"]
    assert then.measured == 1
    assert here(outcome.directory, "0001-r01") == whole
    assert all(record.reset_s for record in outcome.records)


@pytest.mark.depth  # a cut and a kill end it in the same place
def test_ctrl_c_while_files_come_costs_no_trial(
    run: Run, there: Pair, breaks: Breaks, tmp_path: Path
) -> None:
    breaks.does = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        run(*LONG)
    (directory,) = (tmp_path / "results").iterdir()
    assert not open_run(directory).trials.records, "a file of it is not here"
    whole, then = hashes(there, "0001-r01"), Counts()
    outcome = run(*LONG, progress=then, resume=True)
    assert then.measured == 1, "the second alone"
    assert here(directory, "0001-r01") == whole
    assert all(closes(record) for record in outcome.records)


def kept(pair: Pair, folder: Path) -> Callable[[], None]:
    """Puts back what is on the receiver and in the results now."""
    pair.receiver.run("cp", "-a", PLACE, COPY)
    shutil.copytree(folder / "results", folder / "copy")

    def back() -> None:
        pair.receiver.run("sh", "-c", f"rm -rf {PLACE} && cp -a {COPY} {PLACE}")
        shutil.rmtree(folder / "results")
        shutil.copytree(folder / "copy", folder / "results")

    return back


def test_a_kill_there_costs_no_trial_that_is_whole(
    run: Run, there: Pair, breaks: Breaks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is fetched; measured again if it was damaged there; gone after `undo --all`."""
    cut(there, lambda: run(*LONG, progress=Slows(there)), breaks, kill=True)
    killed = "0001-r01"
    assert exit_code(["undo", there.lab(tmp_path)]) == 0
    back = kept(there, tmp_path)
    try:
        then = Counts()
        outcome = run(*LONG, progress=then, resume=True)
        assert then.measured == 1
        assert any(words.startswith(f"{killed}: fetched from") for words in then.said)
        assert all(closes(record) for record in outcome.records)
        assert all({*record.invalid_reasons} <= BY_THE_MACHINE for record in outcome.records)

        back()
        rows = f"{PLACE}/runs/{killed}/samples-receiver.jsonl"
        there.receiver.run("sh", "-c", f"printf x | dd of={rows} conv=notrunc")
        then = Counts()
        outcome = run(*LONG, progress=then, resume=True)
        assert f"{killed}: what was kept of it is damaged; it is measured again" in then.said
        assert then.measured == 2
        assert all(closes(record) for record in outcome.records)

        back()
        capsys.readouterr()
        assert exit_code(["undo", "--all", "--yes", there.lab(tmp_path)]) == 0
        (directory,) = (tmp_path / "results").iterdir()
        which = f"trial {killed} of run {open_run(directory).manifest['run_id']}"
        said = capsys.readouterr().out
        assert f"undone: receiver sensor1: {which}, which was not fetched" in said
        there.nothing_is_left()
    finally:
        there.receiver.run("rm", "-rf", COPY)
