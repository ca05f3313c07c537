"""The first controller: its order is that of the runs before there were controllers."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.measure.controllers.blocks import Asked, AskedCell, Blocks, TrialInput
from nodrop.results.trial import TrialRecord
from tests.made import outcome_runs

RECORDED = json.loads((Path(__file__).parent / "recorded_order.json").read_text())
"""Orders that `make_plan` of commit 30b845c gave these matrices with 4 repetitions."""


def asked(cells: int, *, repetitions: int = 3, seed: int = 1) -> Asked:
    made = [AskedCell(factors={"load.multiplier": n}, load={"n": n}) for n in range(cells)]
    return Asked(cells=made, repetitions=repetitions, seed=seed, sut="fresh", guess_s=10.0)


def record(trial: TrialInput, **fields: object) -> TrialRecord:
    found = {"cell": trial.cell, "repetition": trial.repetition, "index": trial.index}
    found |= {"run": trial.run_name, "outcome": "measured", "valid": True, "verdict": ""}
    return outcome_runs.trial(**found | fields)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda r: f"{r['seed']}-{len(r['order'])}")
def test_the_order_of_a_seed_is_what_it_always_was(recorded: dict[str, object]) -> None:
    matrix = [line.split("=") for line in str(recorded["matrix"]).splitlines()]
    keys = [key.strip().strip('"') for key, _ in matrix]
    cells = [
        AskedCell(factors=dict(zip(keys, values, strict=True)), load={})
        for values in product(*(json.loads(values) for _, values in matrix))
    ]
    seed = int(str(recorded["seed"]))
    blocks = Blocks(Asked(cells=cells, repetitions=4, seed=seed, sut="fresh", guess_s=1))
    assert [trial.run_name for trial in blocks.beforehand()] == recorded["order"]


def test_a_run_is_what_was_said_beforehand() -> None:
    blocks, done = Blocks(asked(4)), list[TrialRecord]()
    while (trial := blocks.next(done)) is not None:
        assert blocks.outlook(done).at_least.trials == 12 - len(done)
        done.append(record(trial))
    assert [r.run for r in done] == [trial.run_name for trial in blocks.beforehand()]
    assert blocks.outlook(done).at_least.seconds == 0


@given(st.sets(st.integers(1, 12)), st.integers(1, 5))
def test_whatever_is_lacking_is_measured_in_order(there: set[int], seed: int) -> None:
    """A resumed run: the finished records are fed back, void ones are left out."""
    blocks = Blocks(asked(4, seed=seed))
    done = [record(trial) for trial in blocks.beforehand() if trial.index in there]
    went_on = []
    while (trial := blocks.next(done)) is not None:
        went_on.append(trial.index)
        done.append(record(trial))
    assert went_on == [index for index in range(1, 13) if index not in there]


def test_a_void_trial_is_not_repeated_in_the_same_sitting() -> None:
    blocks = Blocks(asked(1, repetitions=2))
    first = blocks.next([])
    assert first is not None
    void = record(first, outcome="void", valid=False, invalid_reasons=["sender_late"])
    second = blocks.next([void])
    assert second is not None and second.index == 2


def test_the_outlook_is_of_what_trials_of_the_same_cell_took() -> None:
    blocks = Blocks(asked(2, repetitions=3))
    assert blocks.outlook([]).at_least.seconds == 60
    took = {0: 2.0, 1: 8.0}
    done = [record(trial, took_s=took[trial.load["n"]]) for trial in blocks.beforehand()[:2]]
    outlook = blocks.outlook(done)
    assert outlook.at_least == outlook.at_most
    assert (outlook.at_least.trials, outlook.at_least.seconds) == (4, 20.0)
    following = blocks.next(done)
    assert following is not None and outlook.next_s == took[following.load["n"]]
