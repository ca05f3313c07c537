"""The answer so far, while a run goes on: the card of its report as it fills."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodrop.answer.finding import worded
from nodrop.capacity.answering import answers
from nodrop.capacity.bounds import BRIMFUL
from nodrop.capacity.card import breaks_words, lost_in
from nodrop.capacity.findings import ends_of, rate_words
from nodrop.capacity.limited_by import loss_by
from nodrop.capacity.load_words import UNSURE, ends_words, value_words
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.tried import judged_ratio, ramp_of
from nodrop.capacity.tried import tried as tried_of
from nodrop.config.matrix import NAMED
from nodrop.config.search import Search
from nodrop.findings.observations import RATES, rates_of
from nodrop.ledger.verdict import percent
from nodrop.results.summary import cell_key
from nodrop.results.trial import TrialRecord, mark_of
from nodrop.untrusted.json_text import plain

MOST_TRIED = 200
"""Marks of the last trials: a long run is watched at no more cost than a short one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """The cell that was tried last, by all of its trials. None = not known, empty = not shown."""

    cell: str
    """Name of the cell among several; empty if it is the only one."""
    carried: str
    """`11,168 packets/s, 5.379X`: the highest load that is shown to be carried."""
    no_loss: str
    """The highest load of which no trial lost a packet, if it is not shown to be carried."""
    too_much: str
    """`11,436 packets/s, 1.75 to 1.96 % lost in 3 of 3 trials`."""
    limit: str
    """The likeliest between the two, as trials near it or a ramp say."""
    breaks: str
    sure: str
    carried_pps: float | None
    """The highest load that is carried, or that of `no_loss`."""
    too_much_pps: float | None
    tried: tuple[tuple[float, str], ...]
    """Packets/s and mark of its trials, in the order measured."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Key and value of each line, as the card of a report has them."""
        found = (
            ("cell", self.cell),
            ("carried", self.carried or ("" if self.no_loss else worded("so_far.nothing"))),
            ("no loss", self.no_loss),
            ("too much", self.too_much or worded("so_far.nothing")),
            ("limit", self.limit),
            ("breaks", self.breaks),
            ("sure", self.sure),
        )
        yield from ((key, words) for key, words in found if words)


@dataclass(frozen=True, slots=True)
class _GivenTrial:
    """One trial of a given load that says something of it."""

    pps: float | None
    loss_ratio: float | None
    """Loss ratio; None: the SUT failed."""
    sustained: bool
    place: str | None
    limited_by: str


@dataclass(frozen=True, slots=True)
class _Load:
    """Trials of one given load. One that was repeated counts once, as it was at last."""

    name: str
    rank: tuple[float, ...]
    runs: dict[str, _GivenTrial] = field(default_factory=dict)

    @property
    def bad(self) -> list[_GivenTrial]:
        """Runs that lost packets or failed."""
        return [run for run in self.runs.values() if run.loss_ratio is None or run.loss_ratio > 0]

    @property
    def pps(self) -> float | None:
        """Mean of the trials whose rate is known."""
        known = [run.pps for run in self.runs.values() if run.pps is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFarRow:
    """One trial that has ended, in the columns of a terminal."""

    mark: str
    name: str
    """The load if a search chose it, else the cell."""
    per_s: float | None
    """Packets or transactions a second."""
    unit: str
    said: str
    """`1.59 % lost`, `no loss`, `0.4 % failed`, `none failed`, `void`."""
    why: str
    """The place that lost most; of a void or failed trial its reason."""
    late_us: float | None
    """p99 of the sender's schedule error."""
    sut_cpu_s: float | None

    @classmethod
    def of(cls, record: TrialRecord) -> SoFarRow:
        mark, asked, books = mark_of(record), record.searched, record.transactions
        late = record.offered.schedule_error_us
        load = "" if asked is None else value_words(asked.by, asked.value)
        grows = "to " if asked is not None and asked.ramp is not None else ""
        name = " · ".join(filter(None, (cell_name(record.cell), f"{grows}{load}")))
        said, why = mark, record.verdict.partition(": ")[2] or record.verdict
        ratio = record.loss_ratio if record.outcome == "measured" else None
        if ratio is not None and books is not None:
            said = f"{percent(ratio)} failed" if ratio else "none failed"
            why = why if ratio else ""
        elif ratio is not None:
            said = f"{percent(ratio)} lost" if ratio else "no loss"
            why = (record.packets.loss_place or "place not known") if ratio else ""
            queue = record.packets.queue
            if not ratio and queue is not None and queue.highest_ratio > BRIMFUL:
                why = "its ring was full"
            if asked is not None and asked.ramp is not None:
                why = "a ramp: decides nothing"
        return cls(
            mark=mark,
            name=plain(name or record.run, longest=100),
            per_s=record.offered.per_s,
            unit=record.offered.unit,
            said=said,
            why=plain(why),
            late_us=late.p99 if late else None,
            sut_cpu_s=record.sut_cpu_s,
        )


class CellsSoFar:
    """The trials of a run by cell. What was looked at is not worked out again."""

    def __init__(self, search: Search | None) -> None:
        self.search = search
        self._searched: dict[str, dict[str, TrialRecord]] = {}
        self._given: dict[str, dict[str, _Load]] = {}
        self._tried: dict[str, deque[tuple[float, str]]] = {}
        self._cells: dict[str, Mapping[str, Any]] = {}
        self._last = ""
        self._found: SoFar | None = None

    def add(self, record: TrialRecord) -> None:
        cell = {k: v for k, v in record.cell.items() if k not in RATES}
        self._last = key = cell_key(record.cell if record.searched else cell)
        self._cells.setdefault(key, cell)
        if record.searched is not None:
            self._searched.setdefault(key, {})[record.run] = record
        elif (seen := _seen(record)) is not None:
            name = " · ".join(_rate(f, record.cell[f]) for f in RATES if f in record.cell)
            load = _Load(name=name, rank=rates_of(record.cell))
            runs = self._given.setdefault(key, {}).setdefault(name, load).runs
            runs.pop(record.run, None)
            runs[record.run] = seen
        if record.offered.pps:
            tried = self._tried.setdefault(key, deque(maxlen=MOST_TRIED))
            tried.append((record.offered.pps, self._mark(record)))
        self._found = None

    def _mark(self, record: TrialRecord) -> str:
        """A trial of a search that lost nothing, and fell behind, did not carry its load."""
        mark, search, asked = mark_of(record), self.search, record.searched
        if search is None or asked is None or asked.ramp is not None or mark != "good":
            return mark
        return "loss" if tried_of(record).good(search.goals[0]) is False else mark

    def look(self) -> SoFar | None:
        """None if nothing is to be said yet."""
        if self._found is None and self._last:
            key = self._last
            if self.search is not None and (searched := self._searched.get(key)):
                found = answers(records := [*searched.values()], self.search)
                self._found = self._by_answer(key, found[0], records) if found else None
            elif given := self._given.get(key):
                self._found = self._of_given(key, given.values())
        return self._found

    def _cell(self, key: str) -> str:
        return "" if len(self._cells) < 2 else cell_name(self._cells[key])

    def _by_answer(self, key: str, answer: Answer, records: Sequence[TrialRecord]) -> SoFar:
        lower, upper = ends_of(answer)
        carried = ""
        if lower is not None:
            is_scaled = lower.shown_pps and answer.by == "multiplier"
            scale = value_words(answer.by, lower.value or 0.0, UNSURE, up=False)
            carried = ", ".join(filter(None, (rate_words(lower), scale if is_scaled else "")))
        too_much = ""
        if upper is not None:
            at = [r for r in records if r.searched and r.searched.value == upper.value]
            known = [ratio for r in at if r.valid and (ratio := judged_ratio(r)) is not None]
            lossy = [ratio for ratio in known if ratio > answer.goal]
            lost = lost_in(lossy, len(lossy), len(known), answer.goals_of)
            too_much = ", ".join(filter(None, (rate_words(upper), lost)))
        width = answer.reached_width
        return SoFar(
            cell=self._cell(key),
            carried=carried,
            no_loss="",
            too_much=too_much,
            limit=_limit(answer, records),
            # The budget has not run out while somebody watches.
            breaks=""
            if upper is None or answer.limited_by == "budget"
            else breaks_words(answer.limited_by, _place(answer.place), "The SUT")[0],
            sure="" if width is None else worded("so_far.apart", width=width),
            carried_pps=None if lower is None else lower.pps,
            too_much_pps=None if upper is None else upper.pps,
            tried=tuple(self._tried.get(key, ())),
        )

    def _of_given(self, key: str, loads: Iterable[_Load]) -> SoFar:
        ladder = sorted(loads, key=lambda load: (load.pps or 0.0, load.rank))
        bad = next((load for load in ladder if load.bad), None)
        below = ladder[: ladder.index(bad)] if bad else ladder
        top = below[-1] if below else None
        low, high = (None if load is None else load.pps for load in (top, bad))
        rates = ends_words(low, high, UNSURE)
        carried, too_much = _named(top, rates[0]), _named(bad, rates[1])
        breaks = ""
        if bad is not None:
            lossy = [one.loss_ratio for one in bad.bad if one.loss_ratio]
            lost = lost_in(lossy, len(lossy), len(bad.runs), "packets")
            too_much = ", ".join(filter(None, (too_much, lost)))
            worst = max(bad.bad, key=lambda one: one.loss_ratio or 0.0)
            breaks = breaks_words(worst.limited_by, _place(worst.place), "The SUT")[0]
        shown = top is not None and all(run.sustained for run in top.runs.values())
        return SoFar(
            cell=self._cell(key),
            carried=carried if shown else "",
            no_loss="" if shown else carried,
            too_much=too_much,
            limit="",
            breaks=breaks,
            sure=worded("so_far.lossless", trials=len(top.runs)) if top else "",
            carried_pps=top.pps if top else None,
            too_much_pps=bad.pps if bad else None,
            tried=tuple(self._tried.get(key, ())),
        )


def _limit(answer: Answer, records: Sequence[TrialRecord]) -> str:
    """The load where loss begins, from the first trial on: a bracket stands long before it is
    proved."""
    near = answer.fit
    if near is not None:
        values = {"load": value_words(answer.by, near.estimate, UNSURE), "trials": near.n}
        return worded("so_far.near_by_level" if answer.by_level else "so_far.near", **values)
    ramp = ramp_of(records, answer.cell)
    if ramp is None or ramp.expects is None:
        return ""
    return worded("so_far.ramp", load=value_words(answer.by, ramp.expects, UNSURE))


def _named(load: _Load | None, rate: str) -> str:
    if load is None or not rate:
        return load.name if load else ""
    name = "" if load.name.endswith(" packets/s") else load.name
    return ", ".join(filter(None, (f"{rate} packets/s", name)))


def _seen(record: TrialRecord) -> _GivenTrial | None:
    """None of a trial that says nothing of its load."""
    books, failed = record.packets, record.outcome == "failed"
    if record.outcome == "void" or (not failed and books.loss_ratio is None):
        return None
    return _GivenTrial(
        pps=record.offered.pps,
        loss_ratio=None if failed else books.loss_ratio,
        sustained=bool(books.sustained),
        place=books.loss_place,
        limited_by="sut_failed" if failed else loss_by(record),
    )


def cell_name(factors: Mapping[str, Any]) -> str:
    """`ring_size 256 · 8X`; of a named cell its name and its load."""
    said = [str(factors[NAMED])] if NAMED in factors else []
    for factor, value in factors.items():
        if factor == "setup.kind":
            said.append(str(value))
        elif factor in RATES:
            said.append(_rate(factor, value))
        elif NAMED not in factors:
            said.append(f"{factor.rsplit('.', 1)[-1]} {value}")
    return plain(" · ".join(said), longest=80)


def _rate(factor: str, value: object) -> str:
    by = factor.removeprefix("load.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(f"{by.replace('_', ' ')} {value}", longest=60)
    return value_words(by, float(value))


def _place(place: str | None) -> str | None:
    return plain(place, longest=40) if place else None
