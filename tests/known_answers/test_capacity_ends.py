"""Ends of a search in a real lab whose SUT or path is not the one that a search hopes for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nodrop.calibrate.faults import at_the_sender, job
from nodrop.capacity.answering import answers
from nodrop.capacity.search_answer import Answer
from nodrop.config.search import Search
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Progress
from nodrop.testbed.suts.sink import Sink
from tests.depth import depth
from tests.e2e.conftest import Run
from tests.known_answers.test_capacity import SINK, short_trace

__all__ = ("short_trace",)

QUICK = ("search.relative_width=0.1", "search.duration_sum_s=3")
LARGE = "sut.ring_frames=4096"
"""A ring that loses nothing while other tests have the SUT's CPU for a moment."""


def found(outcome: RunOutcome) -> dict[float, Answer]:
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    search = Search.of(manifest["search"])
    return {answer.goal: answer for answer in answers(outcome.records, search)}


def texts(answer: Answer) -> str:
    return "; ".join(statement.text for statement in answer.findings)


class AtLoads(Progress):
    """Does something as a trial of such a load is offered."""

    def __init__(self, loads: Callable[[float], bool], act: Callable[[], None]) -> None:
        self._loads, self._act, self._value = loads, act, 0.0

    def trial_started(self, trial: TrialInput) -> None:
        self._value = trial.searched.value if trial.searched else 0.0

    def phase(self, name: str) -> None:
        if name == "offer" and self._loads(self._value):
            self._act()


def lose_one_in(packets: int) -> None:
    """Sets a filter on the sender's way out, also if a new start has made its port anew."""
    rules = f"""
        table netdev fault
        delete table netdev fault
        table netdev fault {{
          chain out {{
            type filter hook egress device "ndtx0" priority 0; policy accept;
            numgen inc mod {packets} 0 drop
          }}
        }}
    """
    at_the_sender(["nft", "-f", "-"], stdin=rules)


@pytest.mark.depth  # unit/measure/controllers/test_capacity.py has it without a lab
@pytest.mark.parametrize(("lost_one_in", "goal"), [(30, 0.08), (1000, 0.005)])
def test_a_constant_loss_is_no_capacity_but_a_goal_above_it_is(
    run: Run, short_trace: Path, lost_one_in: int, goal: float
) -> None:
    outcome = run(
        f"load.trace={short_trace}",
        "sut.service_rate_pps=8000",
        LARGE,
        f"search.goals=[0, {goal}]",
        "search.min=2000",
        "search.relative_width=0.1",
        "search.duration_sum_s=8",
        text=SINK,
        progress=AtLoads(lambda _load: True, lambda: lose_one_in(lost_one_in)),
    )
    none, some = found(outcome)[0.0], found(outcome)[goal]
    assert (none.limited_by, none.lower) == ("loss_at_every_load", None), texts(none)
    assert none.place and none.place != "socket ring"
    assert f"loss at every load, at place {none.place}" in texts(none)
    # Just above its pace, only what other programs took of its CPU makes its ring overflow.
    assert some.limited_by in {"sut", "other_programs"}, texts(some)
    assert some.lower and some.upper, texts(some)
    assert some.lower.value <= 8_000 * (1 + 2 * goal) and some.upper.value >= 8_000


@pytest.mark.alone  # a sink that waits 50 ms for its CPU at a trial's end is behind
@pytest.mark.depth  # unit/measure/controllers/test_capacity.py has it without a lab
@pytest.mark.parametrize("above", [3_000, 11_000])
def test_a_sut_that_dies_under_load_bounds_it_from_above(
    run: Run, short_trace: Path, above: float
) -> None:
    outcome = run(
        f"load.trace={short_trace}",
        "sut.service_rate_pps=40000",
        "sut.ring_frames=4096",
        f"search.min={0.9 * above}",
        f"search.max={2 * above}",
        *QUICK,
        text=SINK,
        progress=AtLoads(lambda load: load > above, lambda: os.kill(job("sink"), signal.SIGKILL)),
    )
    (answer,) = found(outcome).values()
    assert answer.limited_by == "sut_failed" and answer.lower and answer.upper, texts(answer)
    assert answer.lower.value <= above < answer.upper.value <= answer.lower.value * 1.21
    assert answer.broke.startswith("failed:") and "it failed" in texts(answer)


@pytest.mark.parametrize("least", [4_000, depth(9_000)])
def test_loss_at_the_lowest_load(run: Run, short_trace: Path, least: int) -> None:
    outcome = run(
        f"load.trace={short_trace}", "sut.service_rate_pps=2000", f"search.min={least}", text=SINK
    )
    (answer,) = found(outcome).values()
    assert (answer.limited_by, answer.lower) == ("min", None), texts(answer)
    assert answer.place == "socket ring"
    assert f"carries less than {least:,} packets/s" in texts(answer)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The n-th start of the sink serves this share of what it was asked for."""
    given: list[float] = []
    started, launch = count(), Sink.launch

    def weaker(sink: Sink, env: Any) -> Any:
        share = given[min(next(started), len(given) - 1)]
        asked = sink.options
        rate = (asked.service_rate_pps or 1.0) * share
        sink.options = asked.model_copy(update={"service_rate_pps": rate})
        try:
            return launch(sink, env)
        finally:
            sink.options = asked

    monkeypatch.setattr(Sink, "launch", weaker)
    yield given


@pytest.mark.alone
@pytest.mark.depth  # slow/measure/controllers/test_capacity_rounds.py has it without a lab
@pytest.mark.parametrize("of_rounds", [[1.0, 0.6], [0.5, 1.0]])
def test_rounds_of_a_sut_that_slows_or_recovers_differ(
    run: Run, short_trace: Path, shares: list[float], of_rounds: list[float]
) -> None:
    shares += [of_rounds[0], *of_rounds]  # the ramp has a start of its own
    outcome = run(
        f"load.trace={short_trace}",
        "sut.service_rate_pps=8000",
        LARGE,
        *QUICK,
        f"search.rounds={len(of_rounds)}",
        "search.min=3000",
        "search.max=12000",
        text=SINK,
    )
    (answer,) = found(outcome).values()
    assert answer.limited_by == "sut" and answer.between, texts(answer)
    assert answer.between.lowest == pytest.approx(8000 * min(of_rounds), rel=0.1)
    assert answer.between.highest == pytest.approx(8000 * max(of_rounds), rel=0.1)
