"""The receiver boots before each trial, over real ssh: awaited, found as it was, counted apart."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.measure.plan import Progress
from nodrop.remote import client
from nodrop.remote.client import Rebooting
from nodrop.remote.dispatch import measuring
from nodrop.results.rundir import open_run
from tests.e2e.conftest import closes
from tests.ssh.machines import Machine, lay_direct_cable
from tests.ssh.pairs import END_S, SINK, UNUSUAL, Pair, Run, runs_on

REBOOT = 'measure.reset="reboot"'
ONCE = "measure.repetitions=1"
LISTENS = """\
import socket
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
port.bind(("cab0", 3))
print(flush=True)
input()
"""
HOLDS = """\
import fcntl, sys
journal = open(sys.argv[1], "w")
fcntl.flock(journal, fcntl.LOCK_EX)
print(flush=True)
input()
"""


@pytest.fixture(scope="module")
def there(there: Pair) -> Iterator[Pair]:
    with there.machines.boot_id_of_its_own(there.receiver):
        yield there


@pytest.fixture(autouse=True)
def cabled(there: Pair) -> None:
    """The cable, again if a try before lost it."""
    if "cab0" not in there.receiver.run("ip", "-br", "link"):
        lay_direct_cable(there.sender, there.receiver)
        there.receiver.run("sh", "-euc", UNUSUAL)


@pytest.fixture
def run(
    cabled: None, there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(there, tmp_path) as go:
        yield go


def boot_id(machine: Machine) -> str:
    """Boot id in the namespaces of the machine's sshd, which `run` enters."""
    return machine.run("cat", "/run/boot_id")


class Boots(Progress):
    """Boots of the receiver, counted by its boot id in each trial."""

    def __init__(self, receiver: Machine) -> None:
        self._receiver = receiver
        self.seen: list[str] = []
        self.noted: list[str] = []

    def note(self, words: str) -> None:
        self.noted.append(words)

    def phase(self, name: str) -> None:
        if name == "offer":
            self.seen.append(boot_id(self._receiver))


def test_each_trial_has_a_boot_of_its_own_that_its_time_does_not_count(
    run: Run, there: Pair
) -> None:
    before, boots = boot_id(there.receiver), Boots(there.receiver)
    outcome = run(REBOOT, progress=boots)
    assert len({before, *boots.seen}) == 3
    of_plan = [words for words in boots.noted if "is offered for less than" in words]
    assert len(of_plan) == 1, "not said again after a boot"
    assert boots.noted.count("receiver sensor1 boots") == 2
    assert outcome.exit_code == 0
    kept = open_run(outcome.directory)
    assert not kept.damage
    assert "finished_utc" in kept.manifest
    assert kept.manifest["undo"]["left"] == []
    for record in outcome.records:
        assert closes(record)
        assert record.packets.decoded_packets == record.offered.sent > 10_000
        assert record.reset_s is not None
        assert record.reset_s > 0
        said = kept.detail(record.run, "trial")
        assert isinstance(said, dict)
        assert said["reset_s"] == record.reset_s


class EndsIt(Progress):
    """The receiver goes down in the middle of a trial, by no word of ours."""

    def __init__(self, there: Pair) -> None:
        self._receiver, self._config = there.receiver, there.machines.config
        self.before = self._receiver.pid

    def phase(self, name: str) -> None:
        if name == "offer" and self._receiver.pid == self.before:
            ssh = ["ssh", "-F", str(self._config), "sensor1"]
            subprocess.run([*ssh, "sudo /usr/local/sbin/systemctl reboot"], check=False)


def test_a_host_that_boots_in_the_middle_is_one_sentence_and_resume_goes_on(
    run: Run, there: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boots = there.receiver.boots
    with pytest.raises(LabProblem, match="receiver sensor1: nodrop there has ended") as caught:
        run(ONCE, progress=EndsIt(there))
    assert re.search(r"; go on with --resume --out \S+$", str(caught.value))
    assert "\n" not in str(caught.value)
    # A NIC would be at home again; a veth went with the namespace that nodrop had put it into.
    there.receiver.await_boot(boots + 1)
    deadline = time.monotonic() + 2 * END_S  # the kernel takes namespaces down one by one
    while "cab0" in there.sender.run("ip", "-br", "link"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lay_direct_cable(there.sender, there.receiver)
    there.receiver.run("sh", "-euc", UNUSUAL)
    assert exit_code(["undo", there.lab(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "undone: receiver sensor1: everything went with the last boot" in said
    assert [record.outcome for record in run(ONCE, resume=True).records] == ["measured"]


@pytest.mark.depth  # a host that is not as before is named below
def test_a_host_that_booted_without_what_nodrop_needs_ends_a_run_that_can_go_on(
    run: Run, there: Pair
) -> None:
    at_boot = there.machines.folder / "sensor1" / "at_boot"
    other = "printf '#!/bin/sh\\necho 3.9 x86_64\\n' >/run/programs/python3"
    names = f"python3 python{sys.version_info.major}.{sys.version_info.minor}"
    at_boot.write_text(
        f"{other}; cd /run/programs; chmod 755 python3; cp python3 {names.split()[1]}; cd /\n"
    )
    try:
        words = r"sensor1: nodrop needs .*finds python3\.9.* go on with --resume --out \S+$"
        with pytest.raises(NotReady, match=words):
            run(REBOOT, ONCE)
    finally:
        at_boot.unlink()
        there.receiver.run("sh", "-c", f"cd /usr/local/sbin; rm {names}")
    assert [record.outcome for record in run(REBOOT, ONCE, resume=True).records] == ["measured"]


@pytest.fixture
def rebooting_it(
    cabled: None, there: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Rebooting:
    monkeypatch.setattr(client, "SETTLED_TIMEOUT_S", 0.0)
    lab = plugins.build_lab(load_lab(there.lab(tmp_path)))
    return Rebooting(lab, lambda _words: None)


def test_a_host_that_is_not_as_before_is_named(there: Pair, rebooting_it: Rebooting) -> None:
    at_boot = there.machines.folder / "sensor1" / "at_boot"
    at_boot.write_text("ip link set cab0 mtu 1600\n")
    try:
        with pytest.raises(LabProblem) as caught:
            rebooting_it.reboot()
    finally:
        at_boot.unlink()
        there.receiver.run("ip", "link", "set", "cab0", "mtu", "9000")
    words = "after it booted: receiver sensor1: mtu is 1600, and was 9000; let the host set it"
    assert str(caught.value).startswith(words), caught.value


def test_who_listens_on_the_port_is_found_before_it_boots(
    there: Pair, rebooting_it: Rebooting
) -> None:
    before = boot_id(there.receiver)
    with there.receiver.running("python3", "-c", LISTENS):
        words = "receiver sensor1: a program of user 0 listens on cab0"
        with pytest.raises(LabProblem, match=words):
            rebooting_it.reboot()
    assert boot_id(there.receiver) == before


@pytest.mark.parametrize("state", ["/root/.local/state", "/run/home of lab/state"])
def test_another_run_there_is_not_ended_by_a_boot(
    there: Pair, rebooting_it: Rebooting, state: str
) -> None:
    """The other run is root's, or that of a user whose state lies elsewhere."""
    before = boot_id(there.receiver)
    journal = f"{state}/nodrop/undo/other.jsonl"
    there.receiver.run("mkdir", "-p", str(Path(journal).parent))
    words = "another run is there, so it does not boot"
    words_there = shlex.join(["sudo", "python3", "-c", HOLDS, journal])
    ssh = ["ssh", "-F", str(there.machines.config), "sensor1", words_there]
    with subprocess.Popen(ssh, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        with pytest.raises(LabProblem) as no:
            rebooting_it.reboot()
    assert words in str(no.value)
    there.receiver.run("rm", journal)
    assert boot_id(there.receiver) == before


def test_this_machine_is_never_booted(there: Pair, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SINK)
    here = Pair(there.machines, receiver_elsewhere=False)
    for lab, words in (
        (here.lab(tmp_path), "its receiver is the machine that nodrop runs on"),
        ("netns", "nothing there can be reset"),
    ):
        where = load_lab(lab)
        with pytest.raises(BadInput, match=rf'measure.reset = "reboot": not in this lab: {words}'):
            measuring(where)(
                load_experiment(file, [REBOOT]),
                where,
                out=tmp_path / "results",
                resume=False,
                progress=Progress(),
            )
    assert not (tmp_path / "results").exists()


def test_nor_under_the_name_of_another(there: Pair, rebooting_it: Rebooting) -> None:
    """With `host = "localhost"`, or any other name and address, the boot id is ours."""
    ours, theirs = client.BOOT_ID, boot_id(there.receiver).strip()
    show = ["sh", "-c", f"echo {Path(ours).read_text().strip()} > /run/boot_id"]
    there.receiver.run(*show)
    try:
        with pytest.raises(LabProblem, match="receiver sensor1 is the machine that nodrop runs on"):
            rebooting_it.reboot()
    finally:
        there.receiver.run("sh", "-c", f"echo {theirs} > /run/boot_id")
    assert boot_id(there.receiver).strip() == theirs
