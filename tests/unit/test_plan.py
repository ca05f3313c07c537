"""The plan: every cell in every block, in an order that the seed alone decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import PositiveInt

from nodrop import plugins
from nodrop.config.experiment import load_experiment
from nodrop.config.options import Options, check
from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput, LabProblem
from nodrop.measure.controllers.blocks import Blocks, TrialInput, cell_slug
from nodrop.measure.plan import Plan, make_plan
from nodrop.terminal.console import memory_words, peak_words, sent_words
from nodrop.testbed.load.api import PeakDemand, Planned
from nodrop.testbed.load.trace import _peak_demand
from nodrop.testbed.setups.api import Limits
from nodrop.testing.fakes import FakeSetup, FakeSut


class SutOptions(Options):
    service_rate_pps: PositiveInt | None = None


class AnySut(FakeSut):
    """A SUT that only checks its table."""

    holds_packets = 4000
    rest_seen_s = 0.2

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        check(SutOptions, options, table="sut", base=base)


class AnySetup(FakeSetup):
    """A setup that only checks its table."""

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        check(SutOptions, options, table="setup", base=base)


class FakeLoad:
    name, unit = "replay", "packets"
    senders = 1
    wrong_checksums = 0

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(ReplayOptions, options, table="load", base=base)

    def duration_s(self) -> float | None:
        return self.options.duration_s

    def trace_facts(self) -> Any:
        """Facts of a trace with 3 packets at one time, and 5 within 10 ms."""
        replicas = int(self.options.multiplier)
        said = {"packets_in_1_ms": 3 * replicas, "packets_in_10_ms": 5 * replicas}
        reached = self.options.loops  # a fake that sends so many packets of its 50
        return SimpleNamespace(
            peak_demand=_peak_demand(said, self.options),
            memory_bytes=2**20 * (replicas % 5) * 100,
            packets=50,
            source=None,
            captured=None,
            parts=(),
            flow_sizes=None,
            raw={"checksums": {"tcp": {"wrong": self.wrong_checksums}}},
            planned=Planned(
                packets=reached * replicas,
                frame_bytes=100 * reached * replicas,
                flows=replicas,
                duration_s=self.options.duration_s,
                window_packets=min(50, reached),
                window_s=min(50, reached) / 10,
            ),
        )

    def mean_pps(self) -> float | None:
        return self.options.pps


@dataclass
class FakeEntry:
    target: type

    def load(self) -> type:
        return self.target


@pytest.fixture(autouse=True)
def _fake_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        ("setup", "bare"): AnySetup,
        ("setup", "docker"): AnySetup,
        ("sut", "sink"): AnySut,
        ("load", "replay"): FakeLoad,
        ("controller", "blocks"): Blocks,
    }
    found = tuple(
        plugins.Plugin(table=table, kind=kind, origin="test 1", entry=FakeEntry(target))  # type: ignore[arg-type]
        for (table, kind), target in made.items()
    )
    monkeypatch.setattr(plugins, "plugins", lambda: found)


def plan(tmp_path: Path, *settings: str, cpus: Set[int] = frozenset({0, 1})) -> Plan:
    path = tmp_path / "x.toml"
    path.write_text(
        'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "make:x"\n'
        '[limits]\nmemory = "1GiB"\n'
        '[matrix]\n"setup.kind" = ["bare", "docker"]\n"load.multiplier" = [1, 2, 4]\n'
    )
    return make_plan(load_experiment(path, settings)).on(cpus)


def order(made: Plan) -> list[TrialInput]:
    return list(made.controller.beforehand())


def test_every_block_holds_every_cell_once(tmp_path: Path) -> None:
    made = plan(tmp_path, "measure.repetitions=4")
    assert len(made.cells) == 6
    assert [t.index for t in order(made)] == list(range(1, 25))
    for block in range(4):
        trials = order(made)[block * 6 : block * 6 + 6]
        assert {t.repetition for t in trials} == {block + 1}
        every = {json.dumps(cell.factors) for cell in made.cells}
        assert {json.dumps(t.cell) for t in trials} == every


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    def names(seed: int) -> list[str]:
        return [t.run_name for t in order(plan(tmp_path, f"measure.seed={seed}"))]

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_blocks_differ_from_each_other(tmp_path: Path) -> None:
    trials = order(plan(tmp_path, "measure.repetitions=5"))
    orders = {json.dumps([t.cell for t in trials[i : i + 6]]) for i in range(0, 30, 6)}
    assert len(orders) > 1


def test_a_cell_carries_its_tables(tmp_path: Path) -> None:
    made = plan(tmp_path, 'matrix.limits.memory=["1GiB", "2GiB"]', "load.multiplier=2")
    assert len(order(made)) == 12
    for trial in order(made):
        cell = made.cell(trial.cell)
        memory = trial.cell["limits.memory"]
        assert cell.setup == {"kind": trial.cell["setup.kind"]}
        load = {"kind": "replay", "trace": "make:x", "multiplier": 2, "cpu": 0}
        assert made.as_parted(trial).load == cell.load == load
        assert cell.limits == Limits(
            cpus="1", cpus_left=True, memory_bytes={"1GiB": 2**30, "2GiB": 2**31}[memory]
        )


def test_the_estimate(tmp_path: Path) -> None:
    assert plan(tmp_path).load_s is None
    made = plan(tmp_path, "load.duration_s=10", "measure.warmup_s=1")
    assert made.load_s == 180
    assert made.around_s == 18 * 5
    for settings, each_s in (((), 0.5), (("measure.sut=standing",), 4.0)):
        on_the_host = plan(tmp_path, "load.duration_s=10", "setup.kind=bare", *settings)
        assert on_the_host.around_s == 9 * each_s


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], (12, 20)),
        (["matrix.load.multiplier=[7]"], (21, 35)),
        (["matrix.load.multiplier=[2,5]"], (15, 25)),
        (["load.pps=100"], None),
        (["load.top_speed=true"], None),
    ],
)
def test_the_peak_demand_of_the_load_that_asks_for_most(
    tmp_path: Path, settings: list[str], expected: tuple[int, int] | None
) -> None:
    made = plan(tmp_path, *settings)
    if expected is None:
        assert (made.peak_demand, peak_words(made)) == (None, "")
        return
    assert made.peak_demand == PeakDemand(packets_in_1_ms=expected[0], packets_in_10_ms=expected[1])
    assert f"{expected[0]},000/s" in peak_words(made)


@pytest.mark.parametrize(("packets", "said"), [(1, "1 packet is due"), (2, "2 packets are due")])
def test_one_packet_is_no_plural(packets: int, said: str) -> None:
    peak: Any = PeakDemand(packets_in_1_ms=packets, packets_in_10_ms=9)
    made: Any = SimpleNamespace(peak_demand=peak)
    assert said in peak_words(made)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "at most about 400 MiB"),
        (["matrix.load.multiplier=[2,6]"], "at most about 200 MiB"),
        (["matrix.load.multiplier=[5]"], "at most about 1 MiB"),
    ],
)
def test_a_plan_says_what_memory_the_largest_trace_takes(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    assert words in memory_words(plan(tmp_path, *settings))


def test_a_plan_needs_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_node(_: FakeLoad) -> float:
        raise LabProblem("no node")

    monkeypatch.setattr(FakeLoad, "duration_s", without_node)
    monkeypatch.setattr(FakeLoad, "trace_facts", without_node)
    made = plan(tmp_path, "load.duration_s=10")
    assert (made.load_s, made.peak_demand, made.memory_bytes) == (None, None, None)
    assert memory_words(made) == ""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("sut.kind=snk", '--set sut.kind=snk: sut.kind = "snk": '),
        ("setup.kind=gvisor", '--set setup.kind=gvisor: setup.kind = "gvisor": gVisor has no AF_P'),
        ("sut.service_rate=3", "--set sut.service_rate=3: sut.service_rate: no such key; did you"),
        ("matrix.sut.x=[1]", "--set matrix.sut.x=[1]: sut.x: no such key"),
        (
            "matrix.load.multiplier=[1,-2]",
            "--set matrix.load.multiplier=[1,-2]: load.multiplier = -2: must be > 0",
        ),
        ('matrix.limits.memory=["lots"]', 'limits.memory = "lots": must be bytes'),
        ("limits.memory=1kB", 'limits.memory = "1kB": must be >= 6291456'),
        ("limits.memory=-1", "limits.memory = -1: must be >= 6291456"),
        ("load.pps=1e18", "load.pps = 1e+18: must be <= 1e+09"),
        ("load.speed=1e300", "load.speed = 1e+300: must be <= 1e+06"),
        ("load.loops=4294967296", "load.loops = 4294967296: must be <= 4294967295"),
        ("load.multiplier=1000001", "load.multiplier = 1000001: must be <= 1000000"),
        ("load.duration_s=1e300", "load.duration_s = 1e+300: must be <= 1e+07"),
        (
            "load.seed=18446744073709551616",
            "load.seed = 18446744073709551616: must be < 18446744073709551616",
        ),
        ("load.trace=no.pcap", '--set load.trace=no.pcap: load.trace = "no.pcap": no such file'),
        ('load={kind="replay"}', '--set load={kind="replay"}: load.trace: missing'),
    ],
)
def test_a_wrong_cell_is_told_before_anything_runs(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        plan(tmp_path, setting)
    whole = said if said.startswith("--set") else f"--set {setting}: {said}"
    assert caught.value.message.startswith(whole)


def test_run_names(tmp_path: Path) -> None:
    made = plan(tmp_path, "measure.repetitions=1", "setup.kind=docker", "load.multiplier=4")
    assert [t.run_name for t in order(made)] == ["0001-r01"]
    assert cell_slug({"setup.kind": "docker", "load.multiplier": 4}) == "docker-4x"
    assert cell_slug({"load.trace": "../data/Big Flows.pcap"}) == "trace-big-flows"
    assert cell_slug({"sut.rules": ["a/x.rules", "y.rules"]}) == "rules-x-y"


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.text())),
    )
)
def test_a_slug_is_safe_in_a_file_name(cell: dict[str, Any]) -> None:
    slug = cell_slug(cell)
    assert len(slug) <= 48
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert not slug.startswith((".", "-"))


@pytest.mark.parametrize(
    ("pps", "duration_s", "least_s", "short"),
    [(10_000, 5, 3.8, False), (10_000, 3, 3.8, True), (100_000, 1, 1.1, True)],
)
def test_a_load_too_short_to_be_called_carried_is_named(
    tmp_path: Path, pps: int, duration_s: float, least_s: float, short: bool
) -> None:
    """4,000 packets of rings are 5 % of 8 s at 10,000/s; rest is seen 0.2 s late: 5 % of 3.8 s.
    Seen: a load of 1 s lasted 0.99998 s, and "less than a second shows no rate"."""
    made = plan(tmp_path, f"load.pps={pps}", f"load.duration_s={duration_s}")
    assert [length.offered_s for length in made.lengths] == [duration_s] * 6
    assert [length.least_s for length in made.lengths] == [pytest.approx(least_s)] * 6
    assert bool(made.too_short()) == short == ("6 of 6 cells" in made.too_short())


@pytest.mark.parametrize(("duration_s", "short"), [(1e-3, True), (1, True), (1.5, False)])
def test_what_has_no_rate_is_too_short_for_one(
    tmp_path: Path, duration_s: float, short: bool
) -> None:
    """One packet, or all of one time: no pace follows from them."""
    made = plan(tmp_path, f"load.duration_s={duration_s}")
    assert ("1.1 s" in made.too_short()) == short


def test_what_is_not_known_is_not_too_short(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert {(length.offered_s, length.least_s) for length in made.lengths} == {(None, None)}
    assert made.too_short() == ""


@pytest.mark.parametrize(
    ("settings", "sharing"),
    [
        (('load.cpu="any"',), 6),
        (("load.cpu=0",), 6),
        (('limits.cpus="1"',), 6),
        (("load.cpu=0", 'limits.cpus="1"'), 0),
        (("load.cpu=3", 'limits.cpus="0-2"'), 0),
        (("load.cpu=1", 'limits.cpus="0-2"'), 6),
    ],
)
def test_a_generator_that_may_share_the_suts_cpu_is_named(
    tmp_path: Path, settings: tuple[str, ...], sharing: int
) -> None:
    notes = [words for words in plan(tmp_path, *settings).notes() if "late sender" in words]
    assert len(notes) == (sharing > 0)
    assert not sharing or (f"{sharing} of 6 cells" in notes[0] and "limits.cpus" in notes[0])


def test_one_cell_is_not_counted(tmp_path: Path) -> None:
    made = plan(tmp_path, "load.multiplier=1", 'setup.kind="bare"')
    assert "generator has CPU 0" in made.parted() and "cells" not in made.parted()


@pytest.mark.parametrize(
    ("flows", "by", "words"),
    [
        (1.02, "multiplier", "in 1 flow: "),
        (3.6, "multiplier", "in 4 flows"),
        (12.0, "multiplier", ""),
        (1.02, "pps", ""),
    ],
)
def test_a_trace_of_few_flows_has_coarse_multiples(
    tmp_path: Path, flows: float, by: str, words: str
) -> None:
    """Seen: a search between 1X and 2X of a trace of one flow tried the same load four times."""
    made = plan(tmp_path)
    lengths = [replace(one, effective_flows=flows) for one in made.lengths[:2]]
    made = replace(made, lengths=(*lengths, *made.lengths[2:]), searched_by=by)
    assert words in made.coarse() and bool(made.coarse()) == bool(words)


def test_generator_and_sut_on_machines_of_their_own_are_not_parted(tmp_path: Path) -> None:
    made = plan(tmp_path, cpus=set())
    assert (made.parting, made.parted(), made.shared_cpus()) == (None, "", "")
    assert [made.as_parted(trial) for trial in order(made)] == order(made)


def test_one_cpu_is_shared_and_that_is_said(tmp_path: Path) -> None:
    made = plan(tmp_path, cpus={0})
    assert made.parting is None
    assert "6 of 6 cells" in made.shared_cpus()


@pytest.mark.parametrize(
    ("cpus", "generator", "sut"),
    [({0, 1}, 0, "1"), ({3, 7}, 3, "7"), ({2, 4, 5, 6}, 2, "4-6"), (set(range(64)), 0, "1-63")],
)
def test_a_host_of_two_cpus_parts_them(
    tmp_path: Path, cpus: set[int], generator: int, sut: str
) -> None:
    made = plan(tmp_path, cpus=cpus)
    assert {(c.load["cpu"], c.limits.cpus, c.limits.cpus_left) for c in made.cells} == {
        (generator, sut, True)
    }
    assert {made.as_parted(trial).load["cpu"] for trial in order(made)} == {generator}
    assert {trial["load"]["cpu"] for trial in made.to_json()["trials"]} == {generator}
    assert f"generator has CPU {generator}, the SUT CPU {sut}; " in made.parted()
    assert made.parted() in made.notes()
    assert made.shared_cpus() == ""


@pytest.mark.parametrize(
    ("settings", "parted"),
    [
        (('load.cpu="any"',), 0),
        (("load.cpu=1",), 0),
        (('limits.cpus="0"',), 0),
        (("matrix.load.cpu=[0, 1]",), 0),
        (('matrix.limits.cpus=["0", "0-1"]',), 0),
        (('matrix.limits.memory=["1GiB", "2GiB"]',), 12),
    ],
)
def test_who_names_cpus_is_left_alone(
    tmp_path: Path, settings: tuple[str, ...], parted: int
) -> None:
    made = plan(tmp_path, *settings, cpus={0, 1, 2})
    assert sum(cell.limits.cpus_left for cell in made.cells) == parted
    assert all(cell.limits.cpus_left or cell.limits.cpus != "1-2" for cell in made.cells)
    assert (made.parted() == "") == (parted == 0)


@pytest.mark.parametrize(("reached", "seconds"), [(1, "0.1 s"), (20, "2.0 s"), (49, "4.9 s")])
def test_a_trial_that_ends_before_its_trace_is_named(
    tmp_path: Path, reached: int, seconds: str
) -> None:
    made = plan(tmp_path, f"load.loops={reached}", "load.duration_s=1")
    assert f"{seconds} ({reached} of 50 packets)" in made.windows()
    assert made.windows() in made.notes()


def test_cells_that_end_at_the_same_second_are_one_window(tmp_path: Path) -> None:
    made = plan(tmp_path, "load.loops=20", "load.duration_s=1")
    first, *others = made.lengths
    assert first.planned is not None
    more = replace(first, planned=replace(first.planned, window_packets=21))
    assert "2.0 s (20 to 21 of 50" in replace(made, lengths=(more, *others)).windows()


@pytest.mark.parametrize("reached", [50, 51, 400])
def test_a_trial_of_the_whole_trace_is_no_window(tmp_path: Path, reached: int) -> None:
    assert plan(tmp_path, f"load.loops={reached}").windows() == ""


def test_what_each_load_sends_is_said_once(tmp_path: Path) -> None:
    made = plan(tmp_path, "matrix.load.multiplier=[1, 3]", "load.loops=8", "load.duration_s=2")
    assert [*sent_words(made)] == [
        "load.multiplier=1: 8 packets of 1 flow, 4 packets/s, 0.00 Mbit/s on average",
        "load.multiplier=3: 24 packets of 3 flows, 12 packets/s, 0.01 Mbit/s on average",
    ]


def test_what_is_sent_is_that_of_each_trial_if_the_load_is_no_factor(tmp_path: Path) -> None:
    made = plan(tmp_path, "load.multiplier=2", "load.loops=8", "load.duration_s=2")
    (said,) = sent_words(made)
    assert said.startswith("each trial: 16 packets of 2 flows, ")


@pytest.mark.parametrize(
    ("multiplier", "slug"), [(1, "1x"), (1.5, "1.5x"), (2.0, "2x"), (3.4, "3.4x"), (0.05, "0.05x")]
)
def test_a_fractional_multiplier_is_named_as_it_is_written(multiplier: float, slug: str) -> None:
    assert cell_slug({"setup.kind": "docker", "load.multiplier": multiplier}) == f"docker-{slug}"


@pytest.mark.parametrize(("wrong", "said"), [(13, ["26.00 %"]), (0, [])])
def test_wrong_checksums_of_the_trace_are_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, said: list[str]
) -> None:
    monkeypatch.setattr(FakeLoad, "wrong_checksums", wrong)
    notes = [one for one in plan(tmp_path).notes() if "wrong TCP checksum" in one]
    words = "load.trace: {} of the packets sent have a wrong TCP checksum"
    assert [one.partition(",")[0] for one in notes] == [words.format(share) for share in said]
