"""Kinds of SUTs that change, lose now and then, or are disturbed, and whether an answer is true.

tools/bench_answers.py counts how often it is not, over many searches of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nodrop.capacity.answering import answers
from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.tried import tried
from nodrop.config.search import Search
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.results.trial import Searched
from tests.simulated_queue import SimulatedQueue
from tests.simulated_sut import SimulatedSut, controller, run

LATER = 50
"""Trials of the answer's load after the search."""
FALSE = 0.5
"""An answer is, if its load loses in more of the later trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A kind of SUT. `anew`: each later trial is of a start of its own; else the last one goes
    on."""

    sut: Callable[[Random], SimulatedSut | SimulatedQueue]
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


def _queue(random: Random, *, bursts: bool = True, **fields: Any) -> SimulatedQueue:
    """A ring that one moment of the trace fills, or several, at 60 to 90 % of what the mean packet
    allows; without bursts, only a load beyond that."""
    rate, slots = random.uniform(4.0, 40.0), random.choice((2058, 8192, 16_384))
    of_moment = rate * random.uniform(0.2, 0.6)
    moment: dict[str, Any] = {}
    if bursts:
        limit = rate * random.uniform(0.6, 0.9)
        length_s = slots / ((limit - of_moment) * 10_000)
        moment = {"moment_rate": of_moment, "moment_s": length_s}
        moment["moments"] = random.choice((1, 1, 3))
    return SimulatedQueue(rate=rate, slots=slots, random=random, **{**moment, **fields})


def _queue_stepped(random: Random) -> SimulatedQueue:
    at, left = random.randint(3, 8), random.choice((0.5, 0.7, 0.85, 0.93))
    return _queue(random, drift=lambda index: left if index > at else 1.0)


QUEUES: dict[str, World] = {
    "ring: constant load": World(sut=lambda r: _queue(r, bursts=False)),
    "ring: costly moments": World(sut=_queue),
    "ring: 2 % noise": World(sut=lambda r: _queue(r, noise=0.02)),
    "ring: 10 % noise": World(sut=lambda r: _queue(r, noise=0.1)),
    "ring: a core shared with others": World(
        sut=lambda r: _queue(r, drift=lambda index: 1 - 0.16 * r.betavariate(0.6, 0.4), noise=0.01)
    ),
    "ring: thefts": World(sut=lambda r: _queue(r, noise=0.01, thefts_per_s=0.3)),
    "ring: stalls in a trial of eight": World(sut=lambda r: _queue(r, stalls=(0.125, 0.01))),
    "ring: 0.5 % slower per trial": World(
        sut=lambda r: _queue(r, drift=lambda index: max(0.85, 1 - 0.005 * index))
    ),
    "ring: a step": World(sut=_queue_stepped),
    "ring: two modes": World(sut=lambda r: _queue(r, modes=(0.25, 0.6))),
    "ring: costly moments, 150 s": World(sut=_queue, search={"budget_s": 150.0}),
}
WORLDS: dict[str, World] = {
    **QUEUES,
    "quiet": World(sut=lambda r: _sut(r, noise=0.0)),
    "2 % noise": World(sut=lambda r: _sut(r, noise=0.02)),
    "10 % noise, 150 s": World(sut=lambda r: _sut(r, noise=0.1), search={"budget_s": 150.0}),
    "bursts and 10 % noise, 150 s": World(
        sut=lambda r: _sut(r, noise=0.1, spikes=(0.1, r.choice((1.5, 2.5)))),
        search={"budget_s": 150.0},
    ),
    "half speed after trial 4": World(
        sut=lambda r: _sut(r, drift=lambda index: 0.5 if index > 4 else 1.0)
    ),
    "a step": World(sut=lambda r: _stepped(r, 9)),
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
        return {statement.code for statement in self.ndr.findings}

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
            # As the SUT was when the search ended: what changes later, no search can know.
            later = copy(sut).measure(
                TrialInput(
                    index=len(done) + 1,
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

    carried, too_much = lossy(ndr.lower), lossy(ndr.upper)
    least = sut.least(len(done))
    return Found(seed=seed, ndr=ndr, pdr=pdr, lossy=carried, too_much=too_much, least=least)
