"""The generator and the SUT take no turns on a CPU unless the experiment wants it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import BadInput
from nodrop.measure.cells import may_share, parting
from nodrop.measure.plan import make_plan
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.load.tcpreplay import Tcpreplay
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.vm import Vm
from tests.e2e.conftest import Run, closes, only

SINK = """
name = "parting"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
pps = 20000
duration_s = 0.5
[measure]
repetitions = 1
late_p99_us = 60e6 # a machine that tests is late; the CPUs are the question
"""
ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def real_trace() -> Path:
    return Path("make:demo")


@pytest.mark.parametrize(
    ("allowed", "senders", "generator", "sut"),
    [
        ({0, 1}, 1, (0,), (1,)),
        ({0, 1}, 32, (0,), (1,)),
        ({4, 9, 2}, 1, (2,), (4, 9)),
        ({4, 9, 2}, 8, (2,), (4, 9)),
        (range(16), 3, (0, 1, 2), tuple(range(3, 16))),
        (range(16), 32, tuple(range(8)), tuple(range(8, 16))),
    ],
)
def test_the_generator_has_the_first_and_at_most_half(
    allowed: Any, senders: int, generator: tuple[int, ...], sut: tuple[int, ...]
) -> None:
    found = parting(frozenset(allowed), senders=senders)
    assert found is not None
    assert (found.generator, found.sut) == (generator, sut)
    assert not may_share({"cpu": found.generator_cpus(senders)}, None, format_cpus(sut))


@pytest.mark.parametrize("allowed", [set(), {0}, {17}])
def test_one_cpu_is_not_parted(allowed: set[int]) -> None:
    assert parting(allowed, senders=1) is None


def test_all_loads_of_a_run_leave_the_sut_the_same_cpus(tmp_path: Path) -> None:
    """1, 2 and 8 processes: a SUT with 7 CPUs at one load and 4 at another would be two SUTs."""
    file = tmp_path / "x.toml"
    file.write_text(
        'name = "x"\n[sut]\nkind = "sink"\n[load]\ntrace = "make:demo"\n[matrix]\n'
        '"load.kind" = ["tcpreplay", "replay"]\n"load.multiplier" = [1, 2, 8]\n'
    )
    made = make_plan(load_experiment(file)).on(set(range(8)))
    assert {trial.limits.cpus for trial in made.cells} == {"4-7"}
    by_load = {tuple(c.factors.values()): c.load["cpu"] for c in made.cells}
    assert by_load == {
        ("tcpreplay", 1): 0,
        ("tcpreplay", 2): "0-1",
        ("tcpreplay", 8): "0-3",
        ("replay", 1): 0,
        ("replay", 2): 0,
        ("replay", 8): 0,
    }


def test_a_domain_of_the_users_own_keeps_its_cpus(tmp_path: Path) -> None:
    """Refused by setup libvirt, so nothing is set that the user did not set."""
    file = tmp_path / "x.toml"
    file.write_text(SINK.replace("[sut]", '[setup]\nkind = "libvirt"\ndomain = "ids"\n[sut]', 1))
    made = make_plan(load_experiment(file)).on({0, 1})
    assert made.cells[0].limits.cpus is None
    assert made.parted() == ""
    assert "share a CPU" in made.shared_cpus()


@pytest.mark.parametrize(
    ("cpus", "left", "vcpus"),
    [(None, False, 2), ("1", True, 1), ("1-15", True, 2), ("1-3", False, 3), ("1", False, 1)],
)
def test_a_guest_grows_only_by_cpus_that_are_named(
    cpus: str | None, left: bool, vcpus: int
) -> None:
    assert Vm({}).cpus(Limits(cpus=cpus, cpus_left=left)) == set(range(vcpus))


@pytest.mark.parametrize("cpu", ["any", "0", 0, "0-1", "0,2"])
def test_where_copies_of_tcpreplay_may_run(tmp_path: Path, cpu: int | str) -> None:
    (tmp_path / "t.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" + bytes(20))
    options = {"trace": "t.pcap", "multiplier": 4, "cpu": cpu}
    found = Tcpreplay(options, base=tmp_path)
    assert found.options.cpus == (() if cpu == "any" else parse_cpus(str(cpu)))
    assert found.senders == 4
    if cpu in ("0-1", "0,2"):
        with pytest.raises(BadInput, match="one thread sends: name one CPU"):
            Replay(options, base=tmp_path)


@pytest.mark.parametrize("cpus", ["0", "0-2,5", "1,3,5-6", "7,9"])
def test_cpu_lists_are_written_as_they_are_read(cpus: str) -> None:
    assert format_cpus(parse_cpus(cpus)) == cpus


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("settings", "generator", "sut", "parted"),
    [
        ((), ALLOWED[0], ALLOWED[1:], True),
        (('load.cpu="any"',), None, ALLOWED, False),
        ((f'limits.cpus="{ALLOWED[0]}"', f"load.cpu={ALLOWED[1]}"), *ALLOWED[1::-1], False),
    ],
)
def test_a_trial_says_where_both_ran(
    run: Run, settings: tuple[str, ...], generator: int | None, sut: Any, parted: bool
) -> None:
    record = only(run(*settings, text=SINK))
    closes(record)
    assert record.generator_cpus == (None if generator is None else str(generator))
    assert record.sut_cpus == format_cpus([sut] if isinstance(sut, int) else sut)
    assert record.cpus_parted is parted
