"""Pairs of namespaces that share a plan on dask, with a real sink; what happens if one fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodrop.cli.main import exit_code
from nodrop.results.rundir import RunDir, open_run
from nodrop.results.trial import TrialRecord
from nodrop.terminal.arguments import run_directory
from nodrop.testbed.hosts.reversal import NETNS_FOLDER
from tests.s3 import serving

EXPERIMENT = """
name = "shared"
question = "Does a fleet measure what one pair does?"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 0.3
[matrix]
"load.pps" = [1000, 2000]
[measure]
repetitions = 2
"""
BOTH = {"a", "b"}


@dataclass(frozen=True, slots=True)
class Ground:
    """A folder with files for nodrop, and the environment that it is run in."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        places = {"XDG_STATE_HOME": str(self.folder / "state"), "TMPDIR": str(self.temporary)}
        return {**os.environ, **places}

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def fleet(self, pairs: Sequence[str], text: str = "") -> Path:
        for name in pairs:
            self.write(f"{name}.toml", f'name = "{name}"\nkind = "netns"\n')
        files = json.dumps([f"{name}.toml" for name in pairs])
        return self.write("fleet.toml", f'name = "ours"\npairs = {files}\n{text}\n')

    def argv(self, *arguments: str | Path) -> list[str]:
        run = [sys.executable, "-m", "nodrop.cli.main", "run", *map(str, arguments)]
        return run if "--out" in arguments else [*run, "--out", str(self.folder / "out")]

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments),
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=240,
            check=False,
        )

    def measured(self) -> RunDir:
        (found,) = (self.folder / "out").iterdir()
        return open_run(found)

    def nothing_is_left(self) -> bool:
        changed = self.measured().manifest["undo"]["changed"]
        names = [words.removeprefix("network namespace ") for words in changed]
        journals = [*(self.folder / "state").glob("nodrop/undo/*")]
        return bool(names) and not journals and not any((NETNS_FOLDER / n).exists() for n in names)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A run that two pairs shared, with a process for each on this machine."""
    ground = Ground(tmp_path_factory.mktemp("fleet"))
    # Another user was there first, and names a file of ours and a module of theirs.
    (taken := ground.temporary / "dask-scratch-space").mkdir(parents=True)
    (taken / "global.lock").symlink_to(ground.write("precious", "ours"))
    (taken / "yaml.py").write_text(f"open({str(ground.folder / 'imported')!r}, 'w')")
    experiment = ground.write("shared.toml", EXPERIMENT)
    done = ground.run(experiment, "--fleet", ground.fleet(sorted(BOTH)))
    assert done.returncode in (0, 1), done.stderr  # a busy machine makes senders late
    return ground


def test_each_cell_is_measured_by_one_pair_in_one_run_directory(shared: Ground) -> None:
    run = shared.measured()
    records = run.trials.records
    assert sorted(record.index for record in records) == [1, 2, 3, 4]
    of_cell: dict[Any, set[Any]] = defaultdict(set)
    for record in records:
        of_cell[record.cell["load.pps"]].add(record.pair)
        assert record.packets.books_closed and record.offered.intended == record.offered.sent
        assert record.packets.lost_packets == 0
    assert [len(pairs) for pairs in of_cell.values()] == [1, 1]
    assert set.union(*of_cell.values()) == BOTH
    assert not run.damage and not [*run.unlisted()]


def test_the_files_of_a_trial_come_to_the_run_directory(shared: Ground) -> None:
    run = shared.measured()
    for record in run.trials.records:
        assert run.detail(record.run, "ledger") and run.detail(record.run, "offered")
        assert run.sampled_hosts(record.run) == ("rx",) and any(run.samples(record.run, "rx"))


def test_the_manifest_has_each_pairs_host_and_clock(shared: Ground) -> None:
    fleet: Mapping[str, Any] = shared.measured().manifest["fleet"]
    assert (fleet["name"], fleet["cluster"], fleet["host_invariant"]) == ("ours", "local", False)
    assert set(fleet["pairs"]) == BOTH
    for facts in fleet["pairs"].values():
        assert facts["drained"] is None and facts["host"] and facts["self_test"]
        assert abs(facts["clock"]["offset_ns"]) <= facts["clock"]["bound_ns"] + 1_000_000_000
        assert facts["worker"].startswith("tls://127.0.0.1:")


def test_other_pairs_go_on_by_the_name_of_the_fleet_alone(
    shared: Ground, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, fleet = shared.folder / "shared.toml", shared.fleet("c")
    goes_on = shared.run(found, "--fleet", fleet, "--resume")
    assert goes_on.returncode in (0, 1), goes_on.stderr
    fleet.write_text(fleet.read_text().replace('"ours"', '"other"'))
    refused = shared.run(found, "--fleet", fleet, "--resume")
    assert refused.returncode == 2
    words = 'started: fleet "other", was fleet "ours" (other pairs may go on by that name)'
    assert words in refused.stderr
    monkeypatch.setenv("XDG_STATE_HOME", shared.environment["XDG_STATE_HOME"])
    assert exit_code([*shared.argv(found, "--resume")[3:]]) == 2
    assert 'started: one lab, was fleet "ours"' in capsys.readouterr().err


def test_nothing_of_a_fleet_is_left(shared: Ground) -> None:
    assert shared.nothing_is_left()
    assert [path.name for path in shared.temporary.iterdir()] == ["dask-scratch-space"]


def test_who_made_dasks_folder_first_has_no_say(shared: Ground) -> None:
    assert (shared.folder / "precious").read_text() == "ours"
    assert not (shared.folder / "imported").exists()


@pytest.mark.depth  # ssh/test_receiver_elsewhere.py keeps a run in a store
def test_a_fleets_run_is_kept_in_a_store(
    real_root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    experiment = ground.write("shared.toml", EXPERIMENT)
    with serving() as server:
        server.known_to(monkeypatch)
        fleet = ground.fleet(sorted(BOTH))
        once = ("--set", "measure.repetitions=1")
        done = ground.run(experiment, *once, "--fleet", fleet, "--out", server.url)
        assert done.returncode in (0, 1), done.stderr
        (url,) = {word for word in done.stderr.split() if word.startswith(f"{server.url}/")}
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-machine"))
        run = open_run(run_directory(url))
        assert {record.pair for record in run.trials.records} == BOTH
        assert set(run.manifest["fleet"]["pairs"]) == BOTH and "finished_utc" in run.manifest
        for record in run.trials.records:
            assert run.detail(record.run, "ledger") and any(run.samples(record.run, "rx"))
    assert not [*(tmp_path / "state").glob("nodrop/undo/*")]


KILLS = """\
#!/bin/sh
grep -qa spawn_main /proc/$PPID/cmdline && mkdir {once} 2>/dev/null && kill -KILL $PPID
exec {node} "$@"
"""
"""A node whose worker is killed by the first thing that it does there."""


@pytest.mark.depth  # two minutes; a killed worker's trial is done again below
def test_a_worker_that_is_killed_while_pairs_begin_costs_no_pair(
    tmp_path: Path, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    killing = ground.write("killing-node", KILLS.format(once=tmp_path / "once", node=node))
    killing.chmod(0o755)
    monkeypatch.setenv("NODROP_NODE", str(killing))
    # A pair keeps each cell that it has begun, and dask may take 20 s to start a worker again.
    cells = EXPERIMENT.replace("[1000, 2000]", str([*range(1000, 1060)])).replace("= 2", "= 1")
    experiment = ground.write("shared.toml", cells)
    argv = ground.argv(experiment, "--fleet", ground.fleet(sorted(BOTH)), "--json")
    measured, notes = set[str](), list[str]()
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ground.environment
    ) as going:
        assert going.stdout is not None
        for event in map(json.loads, going.stdout):
            if event["event"] == "trial_ended":
                measured.add(event["trial"]["pair"])
            elif event["event"] == "note":
                notes.append(event["words"])
            if measured == BOTH:
                break
        going.send_signal(signal.SIGINT)
        _, said = going.communicate(timeout=60)
    assert measured == BOTH and going.returncode == 130, said
    words = "its worker ended while the pair began"
    assert [note for note in notes if note.endswith(f": {words}")]
    run = ground.measured()
    found = run.manifest["fleet"]["pairs"]
    assert [one["failures"] for one in found.values() if "failures" in one] == [[words]]
    assert not any(one["drained"] for one in found.values())
    assert ground.nothing_is_left()


def senders(pid: int) -> int:
    """Number of senders below this process."""
    found = 0
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            found += one.cmdline()[1:2] == ["replay"]
    return found


def test_ctrl_c_ends_trials_under_way_and_every_pair_undoes(tmp_path: Path, node: Path) -> None:
    ground = Ground(tmp_path)
    long = EXPERIMENT.replace("0.3", "60").replace("[1000, 2000]", "[100, 200]")
    experiment = ground.write("long.toml", long)
    argv = ground.argv(experiment, "--fleet", ground.fleet("ab"), "--json")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ground.environment
    ) as run:
        assert run.stdout is not None
        begun = (e for e in map(json.loads, run.stdout) if e["event"] == "trial_started")
        assert {next(begun)["index"], next(begun)["index"]} == {1, 2}
        until = time.monotonic() + 60
        while senders(run.pid) < 2:
            assert time.monotonic() < until, "no sender began"
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=60)
    assert run.returncode == 130, words
    assert "go on with --resume" in words
    assert ground.nothing_is_left() and not ground.measured().trials.records


# On a busy machine senders are late, and a void trial would not count; here that is no question.
MANY = (
    EXPERIMENT.replace("[1000, 2000]", "[1000, 1500, 2000, 2500]")
    .replace("= 2\n", "= 3\n")
    .replace("0.3", "1.2")  # a busy machine looks at all processes in some tenths of a second
    + "late_p99_us = 60e6\n"
)
"""12 trials: a pair that has measured one of a cell has two more of it."""
BROKEN_SENDER = """\
#!/bin/sh
case "$*" in *replay*) echo "no such luck" >&2; exit 1 ;; esac
exec {node} "$@"
"""


class Cluster:
    """A scheduler of dask and workers, each a process that a test may kill."""

    def __init__(self, ground: Ground, port: int) -> None:
        self.ground, self.port = ground, port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self, name: str, **environment: str) -> None:
        """The scheduler, or the worker of a pair."""
        assert name not in self.processes, f"{name} was never killed"
        if name == "scheduler":
            words = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", self.port]
        else:
            words = ["distributed.cli.dask_worker", self.address, "--name", name, "--no-nanny"]
            words += ["--nthreads", 1, "--resources", "pair=1", "--memory-limit", 0]
        with (self.ground.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *map(str, words), "--no-dashboard"],
                stdout=log,
                stderr=log,
                env={**self.ground.environment, **environment},
            )

    def measures(self, name: str) -> bool:
        """Its worker has a node job of a trial under way."""
        return senders(self.processes[name].pid) > 0

    def seen_to_measure(self, name: str) -> bool:
        """Whether it is, soon: a trial that has just begun may be over on a busy machine."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if self.measures(name):
                return True
            time.sleep(0.01)
        return False

    def kill(self, *names: str) -> None:
        for name in names:
            process = self.processes.pop(name)
            process.kill()
            process.wait(timeout=30)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from _cluster(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from _cluster(tmp_path_factory.mktemp("faults"))


def _cluster(folder: Path) -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = Cluster(Ground(folder), free.getsockname()[1])
    try:
        yield found
    finally:
        found.kill(*found.processes)


def test_what_a_killed_worker_left_goes_when_one_starts_there(own_cluster: Cluster) -> None:
    """The new worker undoes though it gets no trial."""
    cluster, ground = own_cluster, own_cluster.ground
    for name in ("scheduler", "a"):
        cluster.start(name)
    experiment = ground.write("long.toml", EXPERIMENT.replace("0.3", "60"))
    fleet = ground.fleet("a", f'cluster = "scheduler"\naddress = "{cluster.address}"')
    argv = ground.argv(experiment, "--fleet", fleet)
    with subprocess.Popen(argv, env=ground.environment) as run:
        until = time.monotonic() + 60
        while not cluster.measures("a"):
            assert time.monotonic() < until, "pair a sends nothing"
            time.sleep(0.05)
        cluster.kill("a")
        run.kill()
    journals = ground.folder / "state" / "nodrop" / "undo"
    (journal,) = journals.glob("*.jsonl")
    assert [*NETNS_FOLDER.glob(f"nodrop-{journal.stem}-*")]
    cluster.start("a")
    until = time.monotonic() + 60
    while journal.exists():
        assert time.monotonic() < until, "it is not undone"
        time.sleep(0.05)
    assert not [*NETNS_FOLDER.glob(f"nodrop-{journal.stem}-*")]


@dataclass(frozen=True, slots=True)
class Faulty:
    """A run during which a worker and then the scheduler were killed; and how it went on."""

    ground: Ground
    code: int
    said: str
    kept: tuple[TrialRecord, ...]
    """Records at the end of the scheduler."""
    resumed: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def faulty(cluster: Cluster, node: Path) -> Faulty:
    ground = cluster.ground
    broken = ground.write("broken-node", BROKEN_SENDER.format(node=node))
    broken.chmod(0o755)
    cluster.start("scheduler")
    for name in ("a", "b"):
        cluster.start(name)
    cluster.start("c", NODROP_NODE=str(broken))
    experiment = ground.write("many.toml", MANY)
    fleet = ground.fleet("abc", f'cluster = "scheduler"\naddress = "{cluster.address}"')
    argv = ground.argv(experiment, "--fleet", fleet, "--json")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ground.environment
    ) as run:
        assert run.stdout is not None
        measured: list[str] = []
        cells_of_b: list[Any] = []
        for event in map(json.loads, run.stdout):
            if event["event"] == "trial_ended" and event["trial"]["valid"]:
                measured.append(event["trial"]["pair"])
                cells_of_b += [event["trial"]["cell"]] * (measured[-1] == "b")
            if "b" in cluster.processes:
                of_b = event["event"] == "trial_started" and event["cell"] in cells_of_b
                if of_b and cluster.seen_to_measure("b"):
                    cluster.kill("b")
            elif measured[-1] == "a" and len(measured) >= 5:
                cluster.kill("scheduler")
                break
        said, words = run.communicate(timeout=120)
    assert "b" not in cluster.processes, "it was never seen to measure"
    kept = ground.measured().trials.records
    cluster.kill("a", "c")
    for name in ("scheduler", "a"):  # what the worker of b left goes as well: it is the same host
        cluster.start(name)
    ground.fleet("a", f'cluster = "scheduler"\naddress = "{cluster.address}"')
    resumed = ground.run(experiment, "--fleet", fleet, "--resume")
    return Faulty(ground, run.returncode, said + words, kept, resumed)


def test_the_scheduler_goes_and_what_was_finished_is_kept(faulty: Faulty) -> None:
    assert faulty.code == 3
    assert "the scheduler of the fleet is gone; what was measured is kept" in faulty.said
    assert "Traceback" not in faulty.said and "distributed" not in faulty.said
    assert faulty.resumed.returncode in (0, 1), faulty.resumed.stderr
    run = faulty.ground.measured()
    assert not run.damage and not [*run.unlisted()]
    records = {record.run: record for record in run.trials.records}
    measured = [record for record in faulty.kept if record.valid]
    assert len(measured) >= 5 and all(records[r.run] == r for r in measured)
    trials = {(record.cell["load.pps"], record.repetition) for record in records.values()}
    assert len(trials) == len(records) == 12


def test_the_trial_of_a_killed_worker_is_done_again_elsewhere(faulty: Faulty) -> None:
    run = faulty.ground.measured()
    (words,) = run.manifest["fleet"]["pairs"]["b"]["failures"]
    # Another number, if the scheduler went before it was done again.
    _number, _, lost = words.removeprefix("its worker ended in ").partition("-")
    (again,) = [record for record in run.trials.records if record.run.endswith(f"-{lost}")]
    assert again.pair == "a"


def test_a_pair_that_always_fails_is_drained_with_its_reason(faulty: Faulty) -> None:
    run = faulty.ground.measured()
    facts = run.manifest["fleet"]["pairs"]["c"]
    assert facts["drained"].startswith("3 trials in a row failed there, the last: ")
    assert "no such luck" in facts["drained"] and len(facts["failures"]) == 3
    assert {record.pair for record in run.trials.records} == {"a", "b"}


def test_nothing_is_left_after_all_that(faulty: Faulty) -> None:
    assert faulty.ground.nothing_is_left()
