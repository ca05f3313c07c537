"""A fleet with a pair whose receiver is another machine, over real ssh, beside one of this one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodrop.results.rundir import open_run
from nodrop.testbed.hosts.node import file_sha256
from tests.ssh.pairs import SINK, Pair

LOADS = '[matrix]\n"load.pps" = [1000, 2000]\n'
EXPERIMENT = SINK.replace("speed = 20", "duration_s = 0.5") + LOADS


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def argv(there: Pair, folder: Path, *settings: str, more: str = "") -> list[str]:
    (folder / "shared.toml").write_text(EXPERIMENT)
    (folder / "here.toml").write_text('name = "here"\nkind = "netns"\n')
    pairs = ["here.toml", Path(there.lab(folder)).name]
    (folder / "fleet.toml").write_text(f'name = "both"\npairs = {json.dumps(pairs)}\n{more}')
    given = [word for one in settings for word in ("--set", one)]
    command = [sys.executable, "-m", "nodrop.cli.main", "run", str(folder / "shared.toml"), *given]
    return [*command, "--fleet", str(folder / "fleet.toml"), "--out", str(folder / "out"), "--json"]


def test_a_pair_elsewhere_shares_the_plan(there: Pair, tmp_path: Path) -> None:
    before = there.shown()
    place = tmp_path / "nas"  # its machine sees this file system
    storage = f'ssh_config = "{there.machines.config}"\n[storage]\nhost = "gen1"\npath = "{place}"'
    # Long enough for the other pair to begin before one has had both trials.
    words = argv(there, tmp_path, "measure.repetitions=1", "load.duration_s=3", more=storage)
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    (out,) = (tmp_path / "out").iterdir()
    run = open_run(out)
    assert {record.pair for record in run.trials.records} == {"here", "pair"}
    assert len(run.trials.records) == 2
    for record in run.trials.records:
        assert record.packets.books_closed and record.packets.lost_packets == 0
        assert run.detail(record.run, "ledger") and not run.sampled_hosts(record.run)
        (file,) = json.loads((out / "runs" / record.run / "elsewhere.json").read_text())["files"]
        assert file_sha256(place / out.name / record.run / file["name"]) == file["sha256"]
    facts = run.manifest["fleet"]["pairs"]["pair"]
    assert facts["host"]["hostname"] == "sensor1" and facts["drained"] is None
    assert "port cab0 at home" in run.manifest["undo"]["changed"]
    assert run.manifest["name"] == "far" and run.manifest["undo"]["left"] == []
    there.nothing_is_left()
    assert there.shown() == before


@pytest.mark.depth  # netns/test_fleet.py has it, test_receiver_elsewhere.py of one pair
def test_ctrl_c_ends_the_pair_elsewhere_in_its_trial(there: Pair, tmp_path: Path) -> None:
    before = there.shown()
    words = argv(there, tmp_path, "load.duration_s=60")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        begun = (e for e in map(json.loads, run.stdout) if e["event"] == "trial_started")
        assert {next(begun)["index"], next(begun)["index"]} == {1, 2}
        until = time.monotonic() + 60
        while not any("nodrop-node replay" in one for one in there.sender.processes().values()):
            assert time.monotonic() < until, "the pair elsewhere sends nothing"
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=90)
    assert run.returncode == 130, said
    there.nothing_is_left()
    assert there.shown() == before
