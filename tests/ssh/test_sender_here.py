"""A lab whose sender is this machine and whose receiver is elsewhere, over real ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import LabSource, load_lab
from nodrop.measure.plan import Progress
from nodrop.remote.dispatch import measuring
from nodrop.results.rundir import open_run
from tests.e2e.conftest import SURICATA, closes, only, real_trace, suricata
from tests.e2e.test_books_close import MERGED
from tests.real_inputs import REALMIX_PACKETS
from tests.ssh.machines import Machines, sender_and_here
from tests.ssh.pairs import SINK, Pair

__all__: Sequence[str] = ("real_trace", "suricata")

LAB = """\
name = "from-here"
kind = "ssh"
ssh_config = "{config}"
[sender]
port = "cab0"
become = "sudo"
[receiver]
host = "gen1"
port = "cab0"
"""


SUDO = """\
#!/bin/sh
echo "$@" >>{log}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
ASKS = """\
#!/bin/sh
echo "sudo: a password is required" >&2
exit 1
"""


@pytest.fixture(scope="module")
def machines(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with sender_and_here(tmp_path_factory.mktemp("sender-here")) as machines:
        yield machines


@pytest.fixture
def lab(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSource:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "from-here.toml"
    file.write_text(LAB.format(config=machines.config))
    return load_lab(str(file))


def test_nothing_stands_in_the_way(lab: LabSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["lab", "check", str(lab.path)]) == 0
    said = capsys.readouterr().out
    assert "went from cab0 of sender to cab0 of receiver gen1" in said
    assert "went from cab0 of receiver gen1 to cab0 of sender" in said


def by_sudo(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Log of a `sudo` that notes its arguments, a line each."""
    log = folder / "asked"
    (folder / "sudo").write_text(script.format(log=log))
    (folder / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


def test_a_check_sends_by_sudo_as_a_run_does(
    lab: LabSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = by_sudo(tmp_path, SUDO, monkeypatch)
    assert exit_code(["lab", "check", str(lab.path)]) == 0, capsys.readouterr().out
    for job in ("probe", "overhear", "replay", "sink"):
        assert f" {job} --controlled" in asked.read_text()


def test_a_check_says_that_sudo_asks(
    lab: LabSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_sudo(tmp_path, ASKS, monkeypatch)
    assert exit_code(["lab", "check", str(lab.path)]) == 3
    (words,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("- "))
    assert words.startswith("- sender: cannot become root by sudo: sudo: a password is required; ")


@pytest.mark.parametrize("load", ["replay", "tcpreplay"])
def test_books_close(lab: LabSource, machines: Machines, tmp_path: Path, load: str) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SINK)
    outcome = measuring(lab)(
        load_experiment(file, [f'load.kind="{load}"', "measure.repetitions=1"]),
        lab,
        out=tmp_path / "results",
        resume=False,
        progress=Progress(),
    )
    record = only(outcome)
    assert closes(record), record
    assert record.packets.decoded_packets == record.offered.sent > 10_000
    kept = open_run(outcome.directory)
    assert kept.manifest["host"]["hostname"] == "gen1", "it is measured there"
    assert kept.manifest["undo"]["left"] == []
    Pair(machines, receiver_elsewhere=False).nothing_is_left()


@pytest.mark.depth  # in ssh/test_same_on_each_lab.py it comes from elsewhere
def test_real_suricata_on_the_real_trace(
    lab: LabSource, suricata: None, real_trace: Path, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SURICATA.format(trace=real_trace))
    record = only(
        measuring(lab)(
            load_experiment(file, ["sut.ring_size=110000"]),
            lab,
            out=tmp_path / "results",
            resume=False,
            progress=Progress(),
        )
    )
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0), record
    assert record.offered.sent == REALMIX_PACKETS
    assert (record.packets.merged_packets, record.packets.lost_packets) == (MERGED, 0)
