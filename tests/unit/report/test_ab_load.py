"""An ab is measured near the limit of its first build, unless somebody says at which load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.compare.near_limit import given_load, kept_load, names_its_load, searched
from nodrop.config.asked import AbQuestion
from nodrop.config.experiment import Experiment, asked_experiment
from nodrop.errors import BadInput
from tests.simulated_sut import SimulatedSut, controller, run

A, B = ["sut.threads=1"], ["sut.threads=2"]


def question(**more: Any) -> AbQuestion:
    return AbQuestion(a=A, b=B, trace="make:demo", sut="sink", most=20, window="busiest", **more)


@pytest.mark.parametrize(
    ("text", "load"),
    [("4X", {"multiplier": 4}), ("2.5x", {"multiplier": 2.5}), ("20,000 pps", {"pps": 20000}),
     ("20kpps", {"pps": 20000})],
)  # fmt: skip
def test_a_load_is_a_number_of_replicas_or_a_rate(text: str, load: dict[str, Any]) -> None:
    assert given_load(text) == load


@pytest.mark.parametrize("text", ["1Gbit/s", "4", "", "fast"])
def test_another_load_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--load"):
        given_load(text)


@pytest.mark.parametrize(
    ("settings", "cells", "named"),
    [([], {}, False), (["load.pps=9000"], {}, True), ([], {"a": {"load.speed": 2.0}}, True),
     (["load.kind=iperf3"], {}, True), (["load.loops=2"], {}, False)],
)  # fmt: skip
def test_a_load_that_was_said_is_not_searched(
    tmp_path: Path, settings: list[str], cells: dict[str, dict[str, Any]], named: bool
) -> None:
    table = question().table(tmp_path)
    if "load.kind=iperf3" in settings:
        table["load"] = {}
    asked = asked_experiment(table, settings, path=tmp_path)
    assert names_its_load(asked, cells) is named


@pytest.mark.parametrize("limit", [6.0, 41.0])
@pytest.mark.parametrize("budget_s", [None, 900.0])
def test_the_search_is_of_the_first_build(limit: float, budget_s: float | None) -> None:
    asked: list[Experiment] = []

    def measure(experiment: Experiment) -> Any:
        asked.append(experiment)
        assert experiment.search is not None
        search = controller(experiment.search, sut="standing")
        return run(search, SimulatedSut(capacity=limit, noise=0.005).measure)

    near = searched(question().search, ["limits.cpus=1"], {"sut.threads": 1}, budget_s, measure)
    (experiment,) = asked
    assert experiment.sut["threads"] == 1 and str(experiment.limits["cpus"]) == "1"
    assert experiment.search is not None and experiment.search.rounds == 1
    assert 0.85 * limit < near.load["multiplier"] < limit and near.took_s > 10
    assert f"load: {near.load['multiplier']:g}X" in near.words


def test_a_short_budget_has_no_search() -> None:
    def measure(_: Experiment) -> Any:
        pytest.fail("searched")

    near = searched(question().search, [], {}, 90.0, measure)
    assert not near.load and "90 s are too short" in near.words


@pytest.mark.parametrize("load", ["multiplier = 4.61", "pps = 9000"])
def test_a_run_goes_on_at_its_own_load(tmp_path: Path, load: str) -> None:
    (tmp_path / "experiment.toml").write_text(f'[load]\nkind = "replay"\n{load}\nloops = 2\n')
    name, _, value = load.partition(" = ")
    assert kept_load(tmp_path) == {name: float(value)}
    assert kept_load(tmp_path / "none") == {}


@pytest.mark.parametrize("started", [0, 1])
def test_a_build_that_never_gets_ready_is_no_build_without_a_limit(started: int) -> None:
    """Seen: `a short search found no limit of A` of a build that lacked a shared library."""
    sut = SimulatedSut(capacity=9.0)
    why = "failed: it ended before it was ready: libevent-2.1.so.7: cannot open"

    def measure(experiment: Experiment) -> Any:
        assert experiment.search is not None
        done = [*run(controller(experiment.search, sut="standing"), sut.measure)][-2:]
        dead = {"outcome": "failed", "invalid_reasons": ["sut_not_ready"], "verdict": why}
        return [record.model_copy(update=dead) for record in done[started:]] + done[:started]

    if started:
        assert searched(question().search, [], {}, None, measure).words
        return
    with pytest.raises(BadInput, match=r"--a: the SUT did not get ready: failed: .* cannot open"):
        searched(question().search, [], {}, None, measure)
