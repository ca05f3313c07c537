"""Every cell as often as it is repeated, in blocked random order.

A block is one repetition of every cell, shuffled. So a drift of the host (heat, a neighbour waking
up) falls on all cells alike, and an interrupted run has whole blocks. If the SUT stays up between
trials, a block is a third of each cell's repetitions, each share in a world of its own: so every
cell is still seen at three times and in three starts of the SUT.

With a rule, a cell whose figures are known closely enough is in no further block; those that are
not go on, in the order that they would have had anyway. A look is taken at whole shares only.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any, Literal, Protocol

from nodrop.config.search import Repetitions, Search
from nodrop.results.summary import Eta, Remaining, looks, settled
from nodrop.results.trial import Searched, TrialRecord

# WHAT NEXT: a controller reads the finished trials and names the next one (RFC 9971).
#
# A controller is pure and seeded. It does no I/O and knows no lab, setup, SUT or generator, so it
# is tested without one, and a run is resumed by feeding the finished records back.

LONGEST_SLUG = 48

Factors = Mapping[str, Any]
"""The factors that make a cell: dotted matrix key → the value of this cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCell:
    """A cell as a controller sees it."""

    factors: Factors
    load: Mapping[str, Any]
    """The [load] table as this cell has it."""
    trace_packets: int | None = None
    """Packets of one pass over the trace; None without a search, or if it could not be read."""
    trace_s: float | None = None
    """The trace's own duration; None as for `trace_packets`."""
    trace_bytes: int | None = None
    """Bytes of the frames of one pass; None as for `trace_packets`."""
    first_pps: float | None = None
    """Packets/s of the deciding trial where a search begins; None as for `trace_packets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Facts that a controller is built from."""

    cells: Sequence[AskedCell]
    repetitions: int
    """Trials of each cell; the most, if there is a rule."""
    seed: int
    sut: Literal["fresh", "standing"]
    guess_s: float
    """Seconds that a trial may take: a guess until one has ended."""
    around_s: float = 0.0
    """Seconds of `guess_s` that a trial takes beside its load."""
    rule: Repetitions | None = None
    """Rule by which a cell has been repeated often enough; None: the number above says it."""
    search: Search | None = None
    """The search for capacity; None if the experiment asks for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInput:
    """One trial to be measured."""

    index: int
    """1-based place in the order of the run; a repeated trial keeps it."""
    cell: Factors
    repetition: int
    """Number within its cell, from 1."""
    load: Mapping[str, Any]
    """The [load] table to be offered: the cell's own, or what a search makes of it."""
    new_world: bool = True
    """SUT and ports are new, even if those of the cell stand."""
    searched: Searched | None = None
    """The trial's part in a search; its record is known again by it."""
    reset_s: float | None = None
    """Seconds that the receiver took to boot for the trial (remote/client.py)."""

    @property
    def run_name(self) -> str:
        """`0007-docker-4x-r03`: names the folder of the trial."""
        slug = cell_slug({**self.cell, **self._load_factor})
        return f"{self.index:04d}-{slug + '-' if slug else ''}r{self.repetition:02d}"

    @property
    def _load_factor(self) -> Factors:
        found = self.searched
        if found is None:
            return {}
        value = f"{found.value:.4g}" if found.value < 1000 else f"{found.value:.0f}"
        ramp = {} if found.ramp is None else {"load.ramp": "to"}
        return {**ramp, f"load.{found.by}": value}


May = Callable[[TrialInput], bool]
"""Whether this trial may begin now, here: it may be under way already, or be another pair's."""


def any_trial(_trial: TrialInput) -> bool:
    """Any trial may begin: they are measured one by one, in one place."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Time that is still to come, as far as the controller can say."""

    at_least: Remaining
    at_most: Remaining | None
    """None = no bound is known."""
    next_s: float = 0.0
    """Seconds of the remaining time that the next trial takes."""
    budget_s: float | None = None
    """Seconds of the budget, if it ends the trials; after it none begins."""


NO_OUTLOOK = Outlook(at_least=Remaining(trials=0, seconds=0.0, spread_s=None), at_most=None)
"""The outlook on trials that another process names: only it can say more."""


class Controller(Protocol):
    """Names the trials one by one. Built from `Asked` by its entry point (`nodrop.controllers`), or
    the voice of another process that has such a one."""

    heeds_void: bool
    """Void trials are records like others to it. Otherwise they are left out of a resumed run, and
    measured again."""

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        """The next trial, of those that may begin, after these have been measured; None when there
        is nothing to add."""
        ...

    def beforehand(self) -> Sequence[TrialInput]:
        """The trials that are certain before any was measured, in their order; it may be ()."""
        ...

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook: ...


def cell_slug(factors: Factors) -> str:
    """`docker-4x` for setup.kind = "docker", load.multiplier = 4: safe in file names. A named cell
    is its name and what it is combined with, as far as there is room."""
    words = [_word(key, value) for key, value in factors.items()]
    first, *more = [re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words] or [""]
    text = "-".join((first, *(word for word in more if word != first)))
    return text[:LONGEST_SLUG].strip("-.")


def _word(key: str, value: object) -> str:
    name = key.rsplit(".", 1)[-1].strip('"')
    if name in ("kind", "cell"):
        return str(value)
    if name == "multiplier":
        return f"{value:g}x" if isinstance(value, float) else f"{value}x"
    if isinstance(value, list):
        value = "-".join(_stem(v) if isinstance(v, str) else str(v) for v in value)
    if isinstance(value, str) and "/" in value:
        value = _stem(value)
    return f"{name}-{value}"


def _stem(path: str) -> str:
    """The file's name without its last suffix."""
    name = path.rstrip("/").rpartition("/")[2]
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name


WORLDS = 3
"""Starts in each cell of a SUT that stays up: the fewest that show a spread between starts."""

Measured = Mapping[str, Mapping[int, TrialRecord]]
"""Cell → repetition → its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A trial's place in a run in which no cell ends early."""

    trial: TrialInput
    cell: str
    share: range
    block: int
    """Number of the block, from 0."""


class Blocks:
    """A `Controller`."""

    heeds_void = False

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._order = _order(asked)
        self._before = looks(asked.rule, asked.sut).first if asked.rule else 0
        """Blocks before the first look."""

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        measured = _measured(done)
        found = next((place for place in self._ahead(measured) if may(place.trial)), None)
        if found is None:
            return None
        taken = {record.index for record in done}
        index = 1 + sum(
            place.trial.repetition in measured.get(place.cell, {})
            for place in self._order[: found.trial.index - 1]
        )
        # A void trial that was repeated can unsettle its cell: then it goes on at the end.
        return replace(found.trial, index=max(taken) + 1 if index in taken else index)

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        """Trials of one cell take about the same time, trials of different cells need not."""
        ahead = list(self._ahead(_measured(done)))
        eta = Eta(guess_s=self._asked.guess_s)
        for record in done:
            if record.took_s is not None:
                eta.ended(_key(record.cell), record.took_s + (record.reset_s or 0.0))
        most = eta.remaining(Counter(place.cell for place in ahead))
        least = eta.remaining(Counter(place.cell for place in self._certain(ahead)))
        first = Counter(place.cell for place in ahead[:1])
        return Outlook(at_least=least, at_most=most, next_s=eta.remaining(first).seconds)

    def beforehand(self) -> Sequence[TrialInput]:
        return tuple(place.trial for place in self._certain(self._order))

    def _ahead(self, measured: Measured) -> Iterator[_Place]:
        """Trials that are still lacking, of cells that are not settled."""
        enough: dict[tuple[str, int | None], bool] = {}
        for place in self._order:
            records = measured.get(place.cell, {})
            if place.trial.repetition in records:
                continue
            if place.block < self._before:
                yield place
                continue
            begun = any(repetition in records for repetition in place.share)
            look = place.cell, place.block if begun else None
            if look not in enough:
                enough[look] = self._enough(place, records)
            if not enough[look]:
                yield place

    def _enough(self, place: _Place, records: Mapping[int, TrialRecord]) -> bool:
        if self._asked.rule is None:
            return False
        others = [record for n, record in records.items() if n not in place.share]
        return settled(others, self._asked.rule, self._asked.sut)

    def _certain(self, places: Sequence[_Place]) -> Sequence[_Place]:
        """Places that are certain, whatever is seen: the blocks before the first look, and what is
        next."""
        if self._asked.rule is None:
            return places
        first: dict[str, int] = {}
        for place in places:
            first.setdefault(place.cell, place.block)
        return [p for p in places if p.block < self._before or p.block == first[p.cell]]


def _order(asked: Asked) -> tuple[_Place, ...]:
    random = Random(asked.seed)
    places: list[_Place] = []
    for number, share in enumerate(_shares(asked)):
        block = list(asked.cells)
        random.shuffle(block)
        for cell in block:
            for repetition in share:
                trial = TrialInput(
                    index=len(places) + 1,
                    cell=cell.factors,
                    repetition=repetition,
                    load=cell.load,
                    new_world=repetition == share[0],
                )
                key = _key(cell.factors)
                places.append(_Place(trial=trial, cell=key, share=share, block=number))
    return tuple(places)


def _shares(asked: Asked) -> Sequence[range]:
    """The repetitions of a cell that follow each other."""
    n = asked.repetitions
    if asked.rule is not None:
        each = asked.rule.each_start(asked.sut)
        return [range(begin, min(begin + each, n + 1)) for begin in range(1, n + 1, each)]
    worlds = n if asked.sut == "fresh" else min(n, WORLDS)
    cuts = [1 + n * world // worlds for world in range(worlds + 1)]
    return [range(*pair) for pair in pairwise(cuts)]


def _measured(done: Sequence[TrialRecord]) -> Measured:
    found: dict[str, dict[int, TrialRecord]] = defaultdict(dict)
    for record in done:
        found[_key(record.cell)][record.repetition] = record
    return found


def _key(cell: Factors) -> str:
    return json.dumps(cell, sort_keys=True, default=str)


LOOKS = (12, 20, 32, 50)
"""Trials of each cell that are not void; after these, one look at the end. Each look costs half of
the error that is left, so there are few."""

MORE_VOID = 2
"""Most void trials of a cell beyond its others, as long as other cells wait for it."""

Told = Callable[[Sequence[TrialRecord], int], bool]
"""Do these records tell, at the look of this number?"""


class UntilTold:
    """A `Controller`. A look is taken once, when its number of trials is reached, so a resumed run
    takes none again."""

    heeds_void = False

    def __init__(
        self,
        blocks: Controller,
        *,
        most: int,
        told: Told,
        budget_s: float | None,
        cells: int = 2,
    ) -> None:
        """`most`: trials of each cell, as the blocks have them."""
        self._blocks, self._told, self._budget_s = blocks, told, budget_s
        self._cells = cells
        self._looks = tuple(look for look in LOOKS if look < most)

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        look = self._due(done)
        if look is not None and self._told(done, look):
            return None
        if self._budget_s is not None and sum(r.took_s or 0.0 for r in done) >= self._budget_s:
            return None
        trial = self._blocks.next(done, may)
        behind = None if trial is None else self._behind(_key(trial.cell), done)
        if behind is None:
            return trial
        return self._blocks.next(done, lambda t: _key(t.cell) == behind and may(t)) or trial

    def _behind(self, ahead: str, done: Sequence[TrialRecord]) -> str | None:
        """The cell that is measured before the one that is `ahead`, for its void trials: a look
        waits for the cell that has fewest others. None if there is none, or too many of its trials
        are void."""
        void: Counter[str] = Counter(_key(r.cell) for r in done if r.outcome == "void")
        told: Counter[str] = Counter(_key(r.cell) for r in done if r.outcome != "void")
        for cell, missing in void.items():
            if 0 < told[ahead] - told[cell] <= missing <= told[cell] + MORE_VOID:
                return cell
        return None

    def look_at_the_end(self, done: Sequence[TrialRecord]) -> int:
        """The number of the last look: it was taken, or it is one more."""
        due = self._due(done)
        return sum(look <= self._least(done) for look in self._looks) if due is None else due

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        most = self._blocks.outlook(done)
        every = most.at_most or most.at_least
        rest = self._within_budget(every, done)
        budget_s = self._budget_s if rest is not every else None
        ahead = next((look for look in self._looks if look > self._least(done)), None)
        if ahead is None or not rest.trials:
            return Outlook(at_least=rest, at_most=rest, next_s=most.next_s, budget_s=budget_s)
        counted = sum(min(ahead, trials) for trials in self._counted(done).values())
        trials = min(self._cells * ahead - counted, rest.trials)
        seconds = rest.seconds * trials / rest.trials
        least = Remaining(trials=trials, seconds=seconds, spread_s=None)
        return Outlook(at_least=least, at_most=rest, next_s=most.next_s, budget_s=budget_s)

    def _within_budget(self, rest: Remaining, done: Sequence[TrialRecord]) -> Remaining:
        """The trial that the budget ends in is measured whole."""
        if self._budget_s is None or not rest.trials:
            return rest
        left_s = self._budget_s - sum(r.took_s or 0.0 for r in done)
        each_s = rest.seconds / rest.trials
        if left_s >= rest.seconds or each_s <= 0:
            return rest
        trials = max(0, math.ceil(left_s / each_s))
        return Remaining(trials=trials, seconds=trials * each_s, spread_s=None)

    def beforehand(self) -> Sequence[TrialInput]:
        first = self._looks[0] if self._looks else None
        inputs = self._blocks.beforehand()
        return inputs if first is None else inputs[: self._cells * first]

    def _due(self, done: Sequence[TrialRecord]) -> int | None:
        """The look that the last record made due."""
        least = self._least(done)
        if least in self._looks and self._least(done[:-1]) < least:
            return self._looks.index(least)
        return None

    def _least(self, done: Sequence[TrialRecord]) -> int:
        """Trials of the cell that has fewest."""
        counted = self._counted(done)
        return min(counted.values()) if len(counted) == self._cells else 0

    @staticmethod
    def _counted(done: Sequence[TrialRecord]) -> Counter[str]:
        """Trials of each cell that say something."""
        return Counter(_key(record.cell) for record in done if record.outcome != "void")
