"""Runs over a cable that leads elsewhere, or is taken out: no figure is made of it.

Between the two hosts is a patch panel: a network namespace that hands frames on, or does not. Both
ports keep their carrier.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import NotReady
from nodrop.measure.plan import Progress, make_plan
from nodrop.remote.dispatch import looked_at
from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.disturbed import BY_THE_MACHINE
from tests.e2e.conftest import closes
from tests.ssh.machines import Machine, lay_direct_cable
from tests.ssh.pairs import SINK, Pair, Run, receiver_here, receiver_there, runs_on

NONE = r"^cable: none of 32 marked frames came from {tx} of sender gen1 to {rx} of receiver"
HERE, ELSEWHERE = "receiver here", "receiver elsewhere"
FROM_HERE = pytest.mark.parametrize("bench", [HERE, depth(ELSEWHERE)], indirect=True)
FROM_ELSEWHERE = pytest.mark.parametrize("bench", [ELSEWHERE, depth(HERE)], indirect=True)
MENDING = "; put the cable or the switch right, and look with `nodrop lab check LAB`"
SEARCH = """
[search]
max = 3
rounds = 1
initial_trial_s = 1.1
final_trial_s = 1.2
duration_sum_s = 2.4
"""


@dataclass(frozen=True, slots=True)
class Panel:
    box: Machine

    def joins(self) -> None:
        ways = "".join(
            f'add chain netdev panel from{one} {{ type filter hook ingress device "b{one}" '
            f'priority 0; }}\nadd rule netdev panel from{one} fwd to "b{other}"\n'
            for one, other in ((0, 1), (1, 0))
        )
        self.box.run("nft", f"add table netdev panel\n{ways}")

    def out(self) -> None:
        self.box.run("nft", "add table netdev panel\ndelete table netdev panel")

    @contextmanager
    def joined(self) -> Iterator[None]:
        self.joins()
        try:
            yield
        finally:
            self.out()


@contextmanager
def panel_between(*machines: Machine) -> Iterator[Panel]:
    """`far0` of each leads to it."""
    own = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--", "cat"]
    with subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        holder.stdout.readline()  # it is in its namespace
        box = Machine("panel", holder.pid)
        box.run("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
        for number, machine in enumerate(machines):
            lay_direct_cable(machine, box, "far0")
            box.run("ip", "link", "set", "far0", "down")
            box.run("ip", "link", "set", "far0", "name", f"b{number}", "up")
            # What is handed on has its VLAN tag in the frame, as on a cable.
            for tag in ("txvlan", "tx-vlan-stag-hw-insert"):
                box.run("ethtool", "-K", f"b{number}", tag, "off")
        yield Panel(box)
        with suppress(ProcessLookupError):
            holder.kill()


@dataclass(frozen=True, slots=True)
class Bench:
    pair: Pair
    panel: Panel


@pytest.fixture(scope="module", params=[HERE, ELSEWHERE])
def bench(
    request: pytest.FixtureRequest, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    made = receiver_there if request.param == ELSEWHERE else receiver_here
    with (
        made(tmp_path_factory.mktemp("bench")) as pair,
        panel_between(pair.sender, pair.receiver) as panel,
    ):
        lay_direct_cable(pair.sender, pair.receiver, "cab1")
        yield Bench(pair, panel)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def running(pair: Pair, folder: Path, sender: list[str], receiver: list[str]) -> Iterator[Run]:
    with runs_on(pair.with_ports(sender, receiver), folder) as go:
        yield go


@FROM_HERE
@pytest.mark.parametrize(
    ("sender", "receiver", "found"),
    [
        depth(["cab0"], ["cab1"], "; the cable leads to cab0 of receiver"),
        (["cab0", "cab1"], ["cab1", "cab0"], "; the cable leads to cab0 of receiver"),
        (["far0"], ["far0"], ", nor to another port that is up (cab0, cab1, mgmt of sender gen1; "),
    ],
)
def test_a_run_is_refused_if_its_cable_leads_elsewhere(
    bench: Bench,
    tmp_path: Path,
    state: None,
    sender: list[str],
    receiver: list[str],
    found: str,
) -> None:
    with (
        running(bench.pair, tmp_path, sender, receiver) as run,
        pytest.raises(NotReady, match=NONE.format(tx=sender[0], rx=receiver[0])) as refused,
    ):
        run()
    assert found in refused.value.message
    assert refused.value.message.partition(" (and ")[0].endswith(MENDING)
    assert not (tmp_path / "results").exists()


@FROM_ELSEWHERE
def test_a_doctor_says_so_too(bench: Bench, tmp_path: Path, state: None) -> None:
    pair = bench.pair.with_ports(["far0"], ["far0"])
    where, file = load_lab(pair.lab(tmp_path)), tmp_path / "experiment.toml"
    file.write_text(SINK)
    experiment = load_experiment(file, ())
    plan, before = make_plan(experiment), sent_by(pair.sender)
    found = looked_at(where, experiment, plan)
    (words,) = found.problems
    assert words.startswith("cable: none of 32 marked frames came from far0 of sender gen1")
    assert sent_by(pair.sender) == before + 2 * 32, "again, while other ports were listened at"
    assert not found.calibration
    with bench.panel.joined():
        assert looked_at(where, experiment, plan).problems == ()
    assert sent_by(pair.sender) == before + 3 * 32


@FROM_ELSEWHERE
def test_a_cable_of_one_way_is_enough(bench: Bench, tmp_path: Path, state: None) -> None:
    """A mirror port has such a cable."""
    with bench.panel.joined(), running(bench.pair, tmp_path, ["far0"], ["far0"]) as run:
        bench.panel.box.run("nft", "flush chain netdev panel from1")
        (record,) = run("measure.repetitions=1").records
    assert closes(record) and record.packets.lost_packets == 0, record.verdict
    assert {*record.invalid_reasons} <= BY_THE_MACHINE, record.verdict


class PullsItOut(Progress):
    """The cable, after so many trials."""

    def __init__(self, panel: Panel, after: int = 1) -> None:
        self._panel, self._after = panel, after

    def trial_ended(self, trial: Any, record: TrialRecord) -> None:
        del trial, record
        self._after -= 1
        if self._after == 0:
            self._panel.out()


def nothing_arrived(record: TrialRecord) -> bool:
    sent = record.offered.sent
    assert record.outcome == "void" and record.invalid_reasons == ["nothing_arrived"], record
    assert closes(record) and record.packets.decoded_packets == 0
    assert record.verdict.startswith(
        f"void: not one of {sent:,} packets that left far0 of sender gen1 reached far0 of receiver"
    )
    return True


@pytest.mark.parametrize(
    ("bench", "sut"),
    [
        (HERE, "standing"),
        depth(ELSEWHERE, "fresh"),
        depth(HERE, "fresh"),
        depth(ELSEWHERE, "standing"),
    ],
    indirect=["bench"],
)
def test_a_cable_that_is_pulled_out_makes_void_trials_and_resume_wants_it_back(
    bench: Bench, tmp_path: Path, state: None, sut: str
) -> None:
    with bench.panel.joined(), running(bench.pair, tmp_path, ["far0"], ["far0"]) as run:
        settings = f"measure.sut={sut}"
        outcome = run(settings, progress=PullsItOut(bench.panel))
        first, second = outcome.records
        assert first.outcome == "measured" and closes(first), first.verdict
        assert nothing_arrived(second)
        assert outcome.exit_code == 1
        kept = {"resume": True, "out": outcome.directory}
        with pytest.raises(NotReady, match=NONE.format(tx="far0", rx="far0")):
            run(settings, **kept)
        bench.panel.joins()
        outcome = run(settings, **kept)
    assert [record.outcome for record in outcome.records] == ["measured", "measured"]
    assert outcome.records[0] == first


@FROM_HERE
def test_a_search_ends_with_a_sentence_and_goes_on_with_resume(
    bench: Bench, tmp_path: Path, state: None
) -> None:
    settings = ("measure.mode=capacity", "measure.repetitions=", "load.speed=")
    text = SINK + SEARCH
    experiment = tmp_path / "x.toml"
    experiment.write_text(text)
    search = load_experiment(experiment, settings).search
    assert search is not None
    with bench.panel.joined(), running(bench.pair, tmp_path, ["far0"], ["far0"]) as run:
        outcome = run(*settings, text=text, progress=PullsItOut(bench.panel, after=2))
        assert [r.outcome for r in outcome.records[:2]] == ["measured", "measured"]
        assert len(outcome.records) == 5 and all(map(nothing_arrived, outcome.records[2:]))
        answer, *_ = answers(outcome.records, search)
        assert answer.limited_by == "lab"
        said = answer.findings[0].text
        assert "as the lab failed; void: not one of" in said, said
        bench.panel.joins()
        outcome = run(*settings, text=text, resume=True, out=outcome.directory)
    answer, *_ = answers(outcome.records, search)
    assert answer.limited_by == "max", answer.findings[0].text
    assert answer.lower is not None and answer.lower.value == 3


def test_a_port_without_carrier_is_a_void_trial_that_says_so(
    here: Pair, tmp_path: Path, state: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.testbed.labs.nic.CARRIER_TIMEOUT_S", 3.0)
    sender = here.sender

    class Unplugs(Progress):
        def trial_ended(self, trial: Any, record: TrialRecord) -> None:
            sender.run("ip", "link", "set", "cab0", "down")

    with runs_on(here, tmp_path) as run:
        try:
            first, second = run(progress=Unplugs()).records
        finally:
            sender.run("ip", "link", "set", "cab0", "up")
    assert first.outcome == "measured" and closes(first), first.verdict
    assert (second.outcome, second.invalid_reasons) == ("void", ["lab_problem"])
    assert second.failed_with_lab
    no_carrier = "cab0 is DOWN, not UP, after 3 s; is the cable in, and the other end up?"
    assert second.error == f"lab: {no_carrier}"


def sent_by(machine: Machine) -> int:
    return int(machine.run("cat", "/sys/class/net/far0/statistics/tx_packets"))
