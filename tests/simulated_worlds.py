"""Kinds of SUTs that change, lose now and then, or are disturbed, and whether an answer is true.

tools/bench_answers.py counts how often it is not, over many searches of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from nodrop.capacity.answering import answers
from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.tried import tried
from nodrop.config.search import Search
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.results.trial import Searched
from tests.simulated_sut import SimulatedSut, controller, run

LATER = 50
"""Trials of the answer's load after the search."""
FALSE = 0.5
"""An answer is, if its load loses in more of the later trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A kind of SUT. `anew`: each later trial is of a start of its own; else the last one goes
    on."""

    sut: Callable[[Random], SimulatedSut]
    anew: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)


def _stepped(random: Random, last: int) -> SimulatedSut:
    at, left = random.randint(3, last), random.choice((0.5, 0.7, 0.85, 0.93))
    return _sut(random, drift=lambda index: left if index > at else 1.0)


def _sut(random: Random, **fields: Any) -> SimulatedSut:
    ring = random.choice((0, 0, 1_000, 8_000))
    found: dict[str, Any] = {
        "capacity": random.uniform(2.0, 40.0),
        "noise": random.choice((0.0, 0.005, 0.01)),
        "ring_packets": ring,
        "random": random,
    }
    return SimulatedSut(**{**found, **fields})


def _modes(random: Random) -> SimulatedSut:
    return _sut(random, modes=(random.choice((0.3, 0.5, 0.7)), random.choice((0.5, 0.7, 0.9))))


WORLDS: dict[str, World] = {
    "quiet": World(sut=lambda r: _sut(r, noise=0.0)),
    "2 % noise": World(sut=lambda r: _sut(r, noise=0.02)),
    "10 % noise, 150 s": World(sut=lambda r: _sut(r, noise=0.1), search={"budget_s": 150.0}),
    "bursts and 10 % noise, 150 s": World(
        sut=lambda r: _sut(r, noise=0.1, spikes=(0.1, r.choice((1.5, 2.5)))),
        search={"budget_s": 150.0},
    ),
    "half speed after trial 8": World(
        sut=lambda r: _sut(r, drift=lambda index: 0.5 if index > 8 else 1.0)
    ),
    "a step": World(sut=lambda r: _stepped(r, 18)),
    "a step, one round": World(sut=lambda r: _stepped(r, 6), search={"rounds": 1}),
    "1 to 3 % slower per trial": World(sut=lambda r: _sut(r, tires=r.choice((0.01, 0.02, 0.03)))),
    "0.5 % slower per trial": World(sut=lambda r: _sut(r, tires=0.005)),
    "loses 40 % in one run of five": World(sut=lambda r: _sut(r, drops=(0.2, 0.4))),
    "loses 2 % in one run of three": World(sut=lambda r: _sut(r, drops=(0.33, 0.02))),
    "two modes of its starts": World(sut=_modes, anew=True),
    "thefts": World(
        sut=lambda r: _sut(r, thefts_per_s=r.choice((0.1, 0.3)), noise=r.choice((0.01, 0.02)))
    ),
    "ticks": World(sut=lambda r: _sut(r, ticks=0.3)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    seed: int
    ndr: Answer
    pdr: Answer
    lossy: float | None
    """Later trials of the load that is carried without loss; None if there is no such
    load."""

    too_much: float | None
    """Share of later trials that lose at the load called too much; None without such a load."""
    least: float
    """Rate that the SUT serves at the end, or its weaker starts do."""

    @property
    def low(self) -> bool:
        """The answer is far below what is carried."""
        return self.ndr.lower is not None and self.ndr.lower.value < 0.8 * self.least

    @property
    def is_false(self) -> bool:
        return self.lossy is not None and self.lossy > FALSE

    @property
    def rules(self) -> set[str]:
        return {statement.code for statement in self.ndr.statements}

    @property
    def inverted(self) -> bool:
        ndr, pdr = self.ndr.lower, self.pdr.lower
        return ndr is not None and (pdr is None or ndr.value > pdr.value)


def searched_world(world: World, seed: int) -> Found:
    search = Search(**world.search)
    sut = world.sut(Random(seed))
    done = [*run(controller(search, seed=seed, sut="standing"), sut.measure)]
    ndr, pdr = answers(done, search)

    def lossy(bound: Bound | None) -> float | None:
        if bound is None:
            return None
        lost = 0
        for _ in range(LATER):
            asked = Searched(
                by=search.by, value=bound.value, duration_s=search.final_trial_s, round=1
            )
            later = sut.measure(
                TrialInput(
                    index=len(done) + next(more),
                    cell={},
                    repetition=1,
                    load={},
                    searched=asked,
                    new_world=world.anew,
                )
            )
            # What the hypervisor's thefts explain is no loss of the SUT.
            lost += tried(later).good(0.0) is False
        return lost / LATER

    more = count(1)
    carried, too_much = lossy(ndr.lower), lossy(ndr.upper)
    least = sut.capacity * sut.drift(len(done)) * (sut.modes[1] if sut.modes[0] else 1.0)
    return Found(seed=seed, ndr=ndr, pdr=pdr, lossy=carried, too_much=too_much, least=least)
