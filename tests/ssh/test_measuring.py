"""Whole runs with a sender that is reached over real ssh, and the receiver here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.config.lab_file import load_lab
from nodrop.config.units import format_cpus
from nodrop.errors import NotReady
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.plan import Progress
from nodrop.results.trial import Live
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.processes import holder
from nodrop.testbed.hosts.ssh import KEPT_FOLDER
from nodrop.testbed.labs.ssh import SshLab
from nodrop.testbed.load.tcpreplay import Tcpreplay
from tests.e2e.conftest import closes
from tests.ssh.machines import MTU, Machine
from tests.ssh.pairs import SINK, Pair, Run, runs_on


@pytest.fixture
def run(here: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(here, tmp_path) as go:
        yield go


def test_nothing_is_parted_if_the_sender_has_a_kernel_of_its_own(run: Run, here: Pair) -> None:
    with here.machines.boot_id_of_its_own(here.sender):
        outcome = run("measure.repetitions=1")
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    assert manifest["lab"]["seen"]["sender gen1"]["mtu"] == 9000
    assert manifest["parting"] is None, "the sender takes no CPU of this machine"
    (record,) = outcome.records
    assert (record.generator_cpus, record.cpus_parted) == (None, False)
    assert record.cpus_in_common is False
    assert record.sut_cpus == format_cpus(sorted(os.sched_getaffinity(0)))


class CountsTraces(Progress):
    """Counts the traces on the sender as the first trial begins."""

    def __init__(self, sender: Machine) -> None:
        self._sender, self.notes, self.there = sender, list[str](), -1

    def note(self, words: str) -> None:
        self.notes.append(words)

    def trial_started(self, trial: TrialInput) -> None:
        if self.there < 0:
            find = f"find {KEPT_FOLDER} -path '*/kept.*' -type f -size +1M | wc -l"
            self.there = int(self._sender.run("sh", "-c", find))


def test_no_trial_waits_for_the_way_of_its_trace(run: Run, here: Pair, tmp_path: Path) -> None:
    """The sender has all of them before; a repetition and a pace need no other."""
    other = tmp_path / "other.pcap"
    make = [str(find_node_binary()), "trace", "make", "demo", str(other), "--packets", "9000"]
    subprocess.run(make, check=True, timeout=60, capture_output=True)
    counting = CountsTraces(here.sender)
    run(
        f'matrix."load.trace"=["make:demo", "{other}"]',
        'matrix."load.speed"=[20, 30]',
        "measure.repetitions=1",
        progress=counting,
    )
    assert counting.there == 2
    sent = [note for note in counting.notes if note.startswith("sender gen1: ")]
    assert len(sent) == 2
    assert re.fullmatch(r"sender gen1: other\.pcap goes there, \d+\.\d MB", sent[1])


TCPREPLAY = ("load.kind=tcpreplay", "measure.repetitions=1")
OF_THERE = """\
#!/bin/sh
[ "$1" = -V ] && exec echo tcpreplay of there
exec /usr/bin/tcpreplay "$@"
"""


def test_tcpreplay_is_the_senders(run: Run, here: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not be here, and its version is that of there."""
    monkeypatch.setattr("nodrop.testbed.labs.api.which", lambda _: None)
    own = "/run/programs/tcpreplay"
    here.sender.run("sh", "-c", 'printf %s "$0" >$1 && chmod 755 $1', OF_THERE, own)
    try:
        outcome = run(*TCPREPLAY)
    finally:
        here.sender.run("rm", own)
    (record,) = outcome.records
    assert closes(record) and record.packets.decoded_packets == record.offered.sent > 10_000
    offered = json.loads((outcome.directory / "runs" / record.run / "offered.json").read_text())
    assert offered["facts"]["version"] == "tcpreplay of there"


def test_a_program_that_the_sender_lacks_is_said_beforehand(
    run: Run,
    here: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Tcpreplay, "program", "tcpreplay-of-nobody")
    words = "sender gen1: tcpreplay-of-nobody is not installed there; apt-get install tcpreplay-of-"
    with pytest.raises(NotReady, match=words):
        run(*TCPREPLAY)
    assert not (tmp_path / "results").exists()
    file = tmp_path / "asked.toml"
    file.write_text(SINK)
    asked = ["doctor", str(file), "--lab", here.lab(tmp_path), "--set", TCPREPLAY[0]]
    assert exit_code(asked) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"- {words}nobody there" and said[-1] == "1 problem to fix."


class LooksBeside(Progress):
    """Asks for the port as a second run with another home would, while the first has it."""

    def __init__(self, lab: SshLab) -> None:
        self._lab = lab
        self.said: list[str] = []

    def phase(self, name: str) -> None:
        if name == "launch":
            with pytest.MonkeyPatch.context() as other:
                other.setenv("XDG_STATE_HOME", "/nonexistent")
                self.said = [*self._lab.problems()]


@pytest.mark.alone  # beside it another test's run may have a port of that name
def test_a_second_run_is_told_who_has_the_port(run: Run, here: Pair, tmp_path: Path) -> None:
    lab = plugins.build_lab(load_lab(here.lab(tmp_path)))
    assert isinstance(lab, SshLab)
    beside = LooksBeside(lab)
    run("measure.repetitions=1", progress=beside)
    sender, receiver = beside.said
    assert sender.startswith(f"sender gen1: run {label_of(receiver)} of ")
    assert re.match(
        rf"receiver: run [0-9a-f]{{8}} of {re.escape(holder())}, since .* UTC, has cab0; wait",
        receiver,
    )
    assert lab.problems() == []


def label_of(words: str) -> str:
    """Label of the run that has the port."""
    return words.split()[2]


class CutsTheLine(Progress):
    """Ends sshd's end of the connection while the load is offered."""

    def __init__(self, sender: Machine) -> None:
        self._sender, self.cut = sender, False

    def live(self, reading: Live) -> None:
        if not self.cut and reading.sent_packets:
            self.cut = True
            for pid, argv in self._sender.processes().items():
                if argv.startswith("sshd: root@"):
                    os.kill(pid, signal.SIGKILL)


def test_a_line_that_is_cut_is_one_sentence_and_the_next_trial_goes_on(
    run: Run, here: Pair
) -> None:
    cutting = CutsTheLine(here.sender)
    outcome = run("load.speed=4", progress=cutting)
    assert cutting.cut
    first, second = outcome.records
    assert first.outcome == "void"
    assert "lab_problem" in first.invalid_reasons
    assert "sender gen1 ended without a result" in (first.error or "")
    assert "the ssh connection is gone" in (first.error or "")
    assert "\n" not in (first.error or "")
    assert second.outcome == "measured"
    assert closes(second)


def test_what_cannot_be_is_said_before_anything_is_touched(run: Run, here: Pair) -> None:
    machines = (here.sender, here.receiver)
    for machine in machines:
        machine.run("ip", "link", "set", "cab0", "mtu", "1000")
    try:
        with pytest.raises(NotReady, match="MTU 1000 of cab0 is too small for frames of 1514"):
            run()
    finally:
        for machine in machines:
            machine.run("ip", "link", "set", "cab0", "mtu", str(MTU))
    with pytest.raises(NotReady, match="its host key is not known"):
        run(lab={"sender": "unknown"})
