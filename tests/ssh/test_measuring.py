"""Whole runs with a sender that is reached over real ssh, and the receiver here."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop import plugins
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import NotReady
from nodrop.labs.ssh import SshLab
from nodrop.load.tcpreplay import Tcpreplay
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.measure.progress import Silent
from nodrop.results.live import Live
from tests.e2e.conftest import SURICATA, closes, only, real_trace, suricata
from tests.ssh.machines import MTU, Machine, Machines, sender_and_here

__all__: Sequence[str] = ("real_trace", "suricata")

SINK = """
name = "far"
[sut]
kind = "sink"
ring_frames = 65536
[load]
kind = "replay"
trace = "make:demo"
speed = 20
[measure]
repetitions = 2
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "{sender}"
port = "cab0"
[receiver]
port = "cab0"
"""

Run = Callable[..., RunOutcome]


@pytest.fixture(scope="module")
def pair(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with sender_and_here(tmp_path_factory.mktemp("pair")) as machines:
        yield machines


@pytest.fixture
def run(pair: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run; after it, the port is as it was and nothing is left on either machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = shown(pair.receiver)

    def go(
        *settings: str,
        text: str = SINK,
        sender: str = "gen1",
        config: Path | None = None,
        resume: bool = False,
        progress: Any = None,
        **given: str,
    ) -> RunOutcome:
        file, lab = tmp_path / "experiment.toml", written(pair, tmp_path, sender, config)
        file.write_text(text.format(**given))
        return run_experiment(
            load_experiment(file, settings),
            load_lab(str(lab)),
            out=tmp_path / "results",
            resume=resume,
            progress=progress or Silent(),
        )

    yield go
    assert shown(pair.receiver) == before
    assert nothing_is_left(pair)


def written(pair: Machines, folder: Path, sender: str = "gen1", config: Path | None = None) -> Path:
    lab = folder / "pair.toml"
    lab.write_text(LAB.format(config=config or pair.config, sender=sender))
    return lab


def shown(machine: Machine) -> Any:
    """Of the receiver's port: what a run could leave otherwise than it was."""
    (port,) = json.loads(machine.run("ip", "-j", "-d", "address", "show", "cab0"))
    kept = ("flags", "mtu", "promiscuity", "addr_info", "ifname")
    return {name: port[name] for name in kept}, machine.run("ethtool", "-k", "cab0")


def nothing_is_left(pair: Machines) -> bool:
    jobs = [argv for argv in pair.sender.processes().values() if "nodrop" in argv]
    copies = pair.sender.run("ls", "/var/lib/nodrop").split()
    return not jobs and copies == ["node"]


def test_the_books_close_over_a_cable(run: Run) -> None:
    outcome = run()
    assert outcome.exit_code == 0
    for record in outcome.records:
        assert closes(record)
        assert record.packets.decoded_packets == record.offered.sent > 10_000
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    assert manifest["lab"]["seen"]["sender gen1"]["mtu"] == 9000
    assert manifest["parting"] is None, "the sender takes no CPU of this machine"
    assert manifest["undo"]["left"] == []
    said = json.loads(
        (outcome.directory / "runs" / outcome.records[0].run / "trial.json").read_text()
    )
    (sender,) = said["details"]["facts"]["clocks"]
    bounds_ns = sender["before"]["bound_ns"] + sender["after"]["bound_ns"]
    assert abs(sender["drift_ns"]) <= bounds_ns, "one kernel, one clock"


def test_real_suricata_on_the_real_trace(run: Run, suricata: None, real_trace: Path) -> None:
    record = only(run("sut.ring_size=110000", text=SURICATA, trace=str(real_trace)))
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0)
    assert record.offered.sent == 101_171
    assert closes(record)


def test_tcpreplay_sends_from_there_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tcpreplay, "late_ratio", 100.0)  # it drifts, and the machine is busy
    settings = ("load.kind=tcpreplay", "load.multiplier=2", "measure.repetitions=1")
    record = only(run(*settings, "load.speed=20", "sut.ring_frames=200000"))
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0), record
    assert record.offered.sent == record.offered.intended > 20_000
    assert closes(record)


class LooksBeside(Silent):
    """What a second run would be told while the first one has the port."""

    def __init__(self, lab: SshLab) -> None:
        self._lab = lab
        self.said: list[str] = []

    def phase(self, name: str) -> None:
        if name == "launch":
            self.said = [*self._lab.problems()]


def test_a_second_run_is_told_who_has_the_port(run: Run, pair: Machines, tmp_path: Path) -> None:
    lab = plugins.build_lab(load_lab(str(written(pair, tmp_path))))
    assert isinstance(lab, SshLab)
    beside = LooksBeside(lab)
    run("measure.repetitions=1", progress=beside)
    sender, receiver = beside.said
    assert sender.startswith(f"sender gen1: run {label_of(receiver)} of ")
    assert receiver.startswith("receiver: another run has cab0 (nodrop-")
    assert lab.problems() == []


def label_of(words: str) -> str:
    """Of the run that has the port."""
    return words.partition("(nodrop-")[2].partition("-rcv")[0]


class CutsTheLine(Silent):
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
    run: Run, pair: Machines
) -> None:
    cutting = CutsTheLine(pair.sender)
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


def test_what_cannot_be_is_said_before_anything_is_touched(run: Run, pair: Machines) -> None:
    machines = (pair.sender, pair.receiver)
    for machine in machines:
        machine.run("ip", "link", "set", "cab0", "mtu", "1000")
    try:
        with pytest.raises(NotReady, match="MTU 1000 of cab0 is too small for frames of 1514"):
            run()
    finally:
        for machine in machines:
            machine.run("ip", "link", "set", "cab0", "mtu", str(MTU))
    with pytest.raises(NotReady, match="its host key is not known"):
        run(sender="unknown")
