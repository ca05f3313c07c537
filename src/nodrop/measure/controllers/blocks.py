"""Every cell as often as it is repeated, in blocked random order.

A block is one repetition of every cell, shuffled. So a drift of the host (heat, a neighbour waking
up) falls on all cells alike, and an interrupted run has whole blocks. If the SUT stays up between
trials, a block is a third of each cell's repetitions, each share in a world of its own: so every
cell is still seen at three times and in three starts of the SUT.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from nodrop.measure.controllers.seam import Asked, Factors, Outlook, TrialInput
from nodrop.results.trial import TrialRecord
from nodrop.stats.eta import Eta

WORLDS = 3
"""Of each cell, if the SUT stays up: the fewest that show a spread between starts of the SUT."""


class Blocks:
    """A `Controller`."""

    heeds_void = False

    def __init__(self, asked: Asked) -> None:
        self._guess_s = asked.guess_s
        self._order = _order(asked)

    def next(self, done: Sequence[TrialRecord]) -> TrialInput | None:
        measured = {record.index for record in done}
        return next((trial for trial in self._order if trial.index not in measured), None)

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        """Trials of one cell take about the same time, trials of different cells need not."""
        measured = {record.index for record in done}
        ahead = [trial for trial in self._order if trial.index not in measured]
        eta = Eta(guess_s=self._guess_s)
        for record in done:
            if record.took_s is not None:
                eta.ended(_key(record.cell), record.took_s)
        rest = eta.remaining(Counter(_key(trial.cell) for trial in ahead))
        first = Counter(_key(trial.cell) for trial in ahead[:1])
        return Outlook(at_least=rest, at_most=rest, next_s=eta.remaining(first).seconds)

    def beforehand(self) -> Sequence[TrialInput]:
        return self._order


def _order(asked: Asked) -> tuple[TrialInput, ...]:
    random = Random(asked.seed)
    trials: list[TrialInput] = []
    for share in _shares(asked):
        block = list(asked.cells)
        random.shuffle(block)
        for cell in block:
            for repetition in share:
                trials.append(
                    TrialInput(
                        index=len(trials) + 1,
                        cell=cell.factors,
                        repetition=repetition,
                        load=cell.load,
                        new_world=repetition == share[0],
                    )
                )
    return tuple(trials)


def _shares(asked: Asked) -> Sequence[range]:
    """The repetitions of a cell that follow each other."""
    n = asked.repetitions
    worlds = n if asked.sut == "fresh" else min(n, WORLDS)
    cuts = [1 + n * world // worlds for world in range(worlds + 1)]
    return [range(*pair) for pair in pairwise(cuts)]


def _key(cell: Factors) -> str:
    return json.dumps(cell, sort_keys=True, default=str)
