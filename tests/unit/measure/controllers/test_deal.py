"""Cells dealt to the pairs of a fleet; a controller passes over what is another's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.measure.controllers.blocks import Asked, AskedCell, Blocks, TrialInput
from nodrop.results.trial import TrialRecord
from nodrop_fleet.members import Deal, cell_key
from tests.unit.measure.controllers.test_blocks import record

CELLS: list[dict[str, Any]] = [{"load.pps": pps} for pps in range(1, 9)]


def dealt(
    seconds: Sequence[float],
    pairs: Sequence[str],
    begun: Sequence[tuple[Any, str]] = (),
    seed: int = 1,
) -> dict[str, float]:
    """Pair → seconds of one trial of each of its cells."""
    owners = Deal(CELLS[: len(seconds)], seconds, seed=seed).owners(pairs, begun)
    found = dict.fromkeys(pairs, 0.0)
    for cell, lasts_s in zip(CELLS, seconds, strict=False):
        found[owners[cell_key(cell)]] += lasts_s
    return found


def test_equal_cells_fall_evenly_and_not_in_the_order_of_the_matrix() -> None:
    assert set(dealt([1.0] * 8, "abcd").values()) == {2.0}
    orders = {
        tuple(Deal(CELLS, [1.0] * 8, seed=seed).owners("abcd", ())[cell_key(c)] for c in CELLS)
        for seed in range(5)
    }
    assert len(orders) == 5


def test_a_long_cell_is_alone_on_its_pair() -> None:
    assert sorted(dealt([8, 1, 1, 1, 1, 1, 1, 1], "ab").values()) == [7, 8]


def test_a_cell_stays_where_it_began_unless_that_pair_is_gone() -> None:
    begun = [(CELLS[0], "a"), (CELLS[0], "b"), (CELLS[1], "b")]
    deal = Deal(CELLS, [1.0] * 8, seed=1)
    owners = deal.owners("abc", begun)
    assert (owners[cell_key(CELLS[0])], owners[cell_key(CELLS[1])]) == ("a", "b")
    without_a = deal.owners("bc", begun)
    assert (without_a[cell_key(CELLS[0])], without_a[cell_key(CELLS[1])]) == ("b", "b")


@given(
    seconds=st.lists(st.floats(0.1, 60), min_size=1, max_size=8),
    pairs=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_what_was_begun_as_dealt_deals_the_rest_the_same(
    seconds: list[float], pairs: int, seed: int
) -> None:
    """So a resumed run goes on as the first one would have."""
    names = "abcde"[:pairs]
    deal = Deal(CELLS[: len(seconds)], seconds, seed=seed)
    whole = deal.owners(names, ())
    for count in range(len(seconds)):
        begun = [(cell, whole[cell_key(cell)]) for cell in CELLS[:count]]
        assert deal.owners(names, begun) == whole


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_blocks_shared_by_pairs_are_whole_and_in_random_order_on_each(pairs: int) -> None:
    asked = Asked(
        cells=[AskedCell(factors=cell, load={}) for cell in CELLS],
        repetitions=3,
        seed=1,
        sut="fresh",
        guess_s=1.0,
    )
    blocks, deal = Blocks(asked), Deal(CELLS, [1.0] * 8, seed=1)
    names = "abc"[:pairs]
    owners = deal.owners(names, ())

    def mine(name: str, trial: TrialInput) -> bool:
        return owners[cell_key(trial.cell)] == name

    done: list[TrialRecord] = []
    order: dict[str, list[TrialInput]] = defaultdict(list)
    for _ in range(100):
        for name in names:
            trial = blocks.next(done, partial(mine, name))
            if trial is not None:
                order[name].append(trial)
                done.append(record(trial, index=len(done) + 1))
    assert blocks.next(done) is None and len(done) == 24
    for trials in order.values():
        repetitions = [trial.repetition for trial in trials]
        assert repetitions == sorted(repetitions)  # block after block
        cells = [[t.cell["load.pps"] for t in trials if t.repetition == n] for n in (1, 2, 3)]
        assert len({tuple(block) for block in cells}) > 1
        assert len({frozenset(block) for block in cells}) == 1
    assert set(Counter(cell_key(r.cell) for r in done).values()) == {3}
