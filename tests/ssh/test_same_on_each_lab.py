"""Equal runs in the lab of one machine and over ssh: each closes its books to the packet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.config.units import format_cpus
from nodrop.exit_codes import NO_ANSWER
from nodrop.results.rundir import open_run
from tests.depth import depth
from tests.e2e.conftest import SURICATA, closes, only, real_trace, suricata
from tests.e2e.test_books_close import MERGED
from tests.real_inputs import REALMIX_PACKETS
from tests.ssh.pairs import OneMachine, Pair, Run, Runnable, receiver_here, receiver_there, runs_on

__all__: Sequence[str] = ("real_trace", "suricata")

DEMO = Path(__file__).parents[2] / "experiments/demo.toml"
DEMO_PACKETS = 10_000
"""Lower bound of the packets of a demo trace."""
HERE, ELSEWHERE, ONE = "receiver here", "receiver elsewhere", "one machine"
FARTHEST = pytest.mark.parametrize("on", [ELSEWHERE, depth(HERE), depth(ONE)], indirect=True)


@pytest.fixture(scope="module", params=[ELSEWHERE, depth(HERE), depth(ONE)])
def on(
    request: pytest.FixtureRequest, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runnable]:
    folder = tmp_path_factory.mktemp("lab")
    if request.param == ONE:
        yield OneMachine()
        return
    with (receiver_here if request.param == HERE else receiver_there)(folder) as pair:
        yield pair


@pytest.fixture
def run(on: Runnable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(on, tmp_path) as go:
        yield go


@FARTHEST
def test_an_experiment_is_compared_with_the_lab_of_one_machine(
    run: Run, on: Runnable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unchanged: hosts with one kernel take turns on its CPUs as two namespaces do, and generator
    and SUT are parted alike."""
    with runs_on(OneMachine(), tmp_path) as go:
        first = go("measure.repetitions=1", out=tmp_path / "one-machine").directory
    outcome = run("measure.repetitions=1", out=tmp_path / "other")
    cpus = sorted(os.sched_getaffinity(0))
    parting = None if len(cpus) < 2 else {"generator": cpus[:1], "sut": cpus[1:]}
    for kept in (open_run(first), open_run(outcome.directory)):
        assert kept.manifest["parting"] == parting
        (record,) = kept.trials.records
        assert record.cpus_parted is (len(cpus) > 1)
        assert record.generator_cpus == (str(cpus[0]) if record.cpus_parted else None)
        assert record.sut_cpus == format_cpus(cpus[1:] or cpus)
    ssh = ["--differs", "lab", "--differs", "host"] if isinstance(on, Pair) else []
    assert exit_code(["compare", str(first), str(outcome.directory), *ssh]) == NO_ANSWER
    assert "parting" not in capsys.readouterr().out


def test_books_close_in_each_place_and_from_each_generator(run: Run, on: Runnable) -> None:
    outcome = run(
        'matrix."setup.kind"=["bare", "oci"]',
        'matrix."load.kind"=["replay", "tcpreplay"]',
        "load.multiplier=2",
        "sut.ring_frames=200000",
        "measure.repetitions=1",
    )
    assert len(outcome.records) == 4
    for record in outcome.records:
        assert closes(record), record
        assert record.packets.decoded_packets == record.offered.sent > 2 * DEMO_PACKETS
        assert record.offered.sent == record.offered.intended
    kept = open_run(outcome.directory)
    assert kept.manifest["undo"]["left"] == []
    assert "finished_utc" in kept.manifest
    assert not kept.damage
    for record in outcome.records:
        assert len(list(kept.live(record.run))) > 3
        assert kept.sampled_hosts(record.run)
        said = kept.detail(record.run, "trial")
        assert isinstance(said, dict)
        clocks = said["details"]["facts"].get("clocks", [])
        assert len(clocks) == isinstance(on, Pair)
        for clock in clocks:
            bounds_ns = clock["before"]["bound_ns"] + clock["after"]["bound_ns"]
            assert abs(clock["drift_ns"]) <= bounds_ns, "one kernel, one clock"


@pytest.mark.depth  # its Suricata follows, a search is in test_wrong_cable.py
@FARTHEST
def test_the_demo_closes_its_books(run: Run, suricata: None) -> None:
    """The search of `make demo`, with less time. Its senders may be late, and its trials void: this
    machine is busy."""
    short = ("search.initial_trial_s=1.5", "search.final_trial_s=1.5")
    outcome = run("search.budget_s=15", *short, file=DEMO)
    assert len(outcome.records) > 1
    for record in outcome.records:
        assert record.packets.residual_packets == 0, record
        assert record.offered.sent > 0


@FARTHEST
def test_real_suricata_on_the_real_trace(
    run: Run, on: Runnable, suricata: None, real_trace: Path
) -> None:
    record = only(run("sut.ring_size=110000", text=SURICATA, trace=str(real_trace)))
    assert (record.outcome, record.packets.residual_packets) == ("measured", 0), record
    assert record.offered.sent == REALMIX_PACKETS
    assert (record.packets.merged_packets, record.packets.lost_packets) == (MERGED, 0)
    assert record.packets.decoded_packets == REALMIX_PACKETS - MERGED
    assert closes(record)
    if isinstance(on, Pair) and on.receiver_elsewhere:
        copies = on.receiver.run("sh", "-c", "stat -c %u:%a /var/lib/nodrop/files")
        assert copies == "0:700\n", "a trace is for root alone"
