"""One search per cell for the highest load that it carries, in rounds: each starts the SUT anew.

With nodrop's own method a later round proves in another start what the first one found; with others
each is a search of its own. The cells take turns in random order, so that a drift of the host falls
on all.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from nodrop.answer.finding import worded
from nodrop.capacity.answering import answers
from nodrop.capacity.forecast import RAMP_TRIALS, deciding_s, ramp_s
from nodrop.capacity.next_load import FEW, Ask, Method, MethodInput, bisection, own
from nodrop.capacity.tried import (
    AT_ANY_LOAD,
    Tried,
    lab_is_out,
    never_ready,
    no_ratio,
    of_cell_tried,
    of_round,
    ramp_of,
)
from nodrop.config.search import MOST_COPIES, RANGE, Search, parse_need
from nodrop.errors import BadInput, BadKey
from nodrop.measure.controllers.blocks import (
    Asked,
    AskedCell,
    Factors,
    May,
    Outlook,
    TrialInput,
    any_trial,
)
from nodrop.results.summary import Remaining
from nodrop.results.trial import Ramp, Searched, Soak, TrialRecord

PACKETS = 1_000_000
"""Packets of an imaginary offer: only the ratio of its counts is used."""
LONGEST_S = 1e9


class _NotTried(Exception):
    """Load and seconds of a trial that MLRsearch asks for."""


def mlrsearch(field: MethodInput) -> Ask | None:
    # Imported where it is used: 60 modules that no other method needs.
    import MLRsearch

    search = field.search
    # Each trial of detections sends the window once: all are of one length.
    initial_s = search.final_trial_s if search.by_detections else search.initial_trial_s
    goals = [
        MLRsearch.SearchGoal(
            loss_ratio=goal,
            exceed_ratio=search.exceed_ratio,
            relative_width=search.relative_width,
            initial_trial_duration=initial_s,
            final_trial_duration=search.final_trial_s,
            duration_sum=search.duration_sum_s,
            fail_fast=False,
        )
        for goal in search.goals
    ]
    config = MLRsearch.Config()
    config.goals = goals
    config.min_load = min(config.min_load, field.lowest)  # it must be below any maximum
    config.max_load, config.min_load = field.highest, field.lowest
    config.search_duration_max, config.warmup_duration = LONGEST_S, None
    try:
        MLRsearch.MultipleLossRatioSearch(config=config).search(
            measurer=_Replayed(field.tried), debug=lambda _: None
        )
    except _NotTried as missing:
        value, seconds = missing.args
        return Ask(value=value, seconds=seconds)
    return None


class _Replayed:
    """An `AbstractMeasurer` that knows the trials so far."""

    def __init__(self, trials: Sequence[Tried]) -> None:
        self._known: dict[tuple[float, float], deque[Tried]] = defaultdict(deque)
        for trial in trials:
            if trial.outcome != "void":
                self._known[trial.value, trial.seconds].append(trial)

    def measure(self, intended_duration: float, intended_load: float) -> object:
        import MLRsearch

        known = self._known[intended_load, intended_duration]
        if not known:
            raise _NotTried(intended_load, intended_duration)
        return MLRsearch.MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=PACKETS,
            loss_count=_lost(known.popleft()),
        )


def _lost(one: Tried) -> int:
    """Lost packets of a trial, out of `PACKETS`. Packets that stay behind in a ring, or are not
    shown to be worked off, were not carried; a SUT that failed carried nothing."""
    if one.outcome == "failed" or one.loss_ratio is None:
        return PACKETS
    if one.kept and not one.loss_ratio:
        return 0
    lost = one.loss_ratio if one.kept else 1 - (one.served_ratio or 0.0)
    return max(1, round(PACKETS * lost))


METHODS: dict[str, Method] = {"nodrop": own, "mlrsearch": mlrsearch, "bisection": bisection}
PACES = ("speed", "pps", "top_speed")
PACED = {
    "multiplier": 'more replicas make it no higher load; search.by = "pps", or leave it out',
    "speed": "paces the load instead of load.speed, which the search varies: leave it out",
}
"""Scale of a search → words on a load whose own pace hides what the search varies."""
SHORTER = 0.1
"""Part of a pass over the window by which a trial may be shorter than it is asked to be."""
RAMP_UP = 64.0
"""Load at the end of a ramp, in loads of its beginning."""
RAMP_LEAST = 4.0
"""Least width of a range of loads that needs a ramp, as a factor."""
MOST_OF_RAMP = 64
"""Replicas at once; what they do not fill is sent again."""
SOON_S = 20.0
"""A search by detections begins at a load that sends the whole window in no more time."""
FAR = 2.0**20
"""Factor on the beginning at which a search without a maximum ends: no sender comes so far."""
LAST = 3
"""Number of trials that say what the next one like them takes."""
MOST_TRIALS = 120
"""Most trials in a round of a cell. A search that needs more has met something unknown to it."""
MOST_SILENT = 36
"""Number of last trials of a cell that end its search if all were void: whatever its load is, its
trials say nothing any more. Those that the hypervisor disturbed are not counted."""


NEVER_READY = 2
"""Number of trials in a row that end a cell's search if the SUT did not get ready in any."""


class Capacity:
    """A `Controller`."""

    heeds_void = True

    def __init__(self, asked: Asked) -> None:
        if asked.search is None:
            raise BadKey("measure.mode", "there is no [search] table", given='"capacity"')
        self._asked, self._search = asked, asked.search
        for cell in asked.cells:
            _check(cell, asked.search)
        if asked.search.budget_s is not None:
            self._must_hold_a_trial(asked.search.budget_s)

    def _must_hold_a_trial(self, budget_s: float) -> None:
        """Raises BadInput if a cell's part of the budget is too small for one trial: the cell would
        be left out without a word."""
        cells = self._asked.cells
        trial_s = self._asked.around_s + max(self._first_s(cell) for cell in cells)
        if budget_s < trial_s * len(cells):
            shared = f"{len(cells)} cells share it, and " if len(cells) > 1 else ""
            raise BadKey(
                "search.budget_s",
                f"{shared}one trial alone takes about {trial_s:.0f} s",
                given=f"{budget_s:g}",
            )

    def _first_s(self, cell: AskedCell) -> float:
        """Seconds of a trial that decides, at the load where the search begins."""
        return _lasts_s(cell, self._search, _first(cell, self._search))

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        if lab_is_out(done):
            return None
        waits: list[Factors] = []
        for number in range(1, self._search.rounds + 1):
            for cell in self._order(number):
                ask = None if cell.factors in waits else self._ask(cell, number, done)
                if ask is not None:
                    trial = self._trial(cell, number, ask, done)
                    if may(trial):
                        return trial
                    waits.append(cell.factors)  # its next round is for later, too
        return None if waits else next(filter(may, self._soaks(done)), None)

    def _soaks(self, done: Sequence[TrialRecord]) -> Iterator[TrialInput]:
        """Soaks of the cells of which the search found a load that is carried."""
        search = self._search
        if search.soak_s is None:
            return
        for cell in self._order(search.rounds):
            own = [record for record in done if record.cell == dict(cell.factors)]
            if any(record.searched and record.searched.soak for record in own):
                continue
            lower = next((answer.lower for answer in answers(own, search)), None)
            if lower is not None:
                ask = Ask(value=lower.value, seconds=search.soak_s, soak=True)
                yield self._trial(cell, search.rounds, ask, done)

    def _order(self, number: int) -> Sequence[AskedCell]:
        cells = list(self._asked.cells)
        Random(f"{self._asked.seed} {number}").shuffle(cells)
        return cells

    def _ask(self, cell: AskedCell, number: int, done: Sequence[TrialRecord]) -> Ask | None:
        """The next trial of this round."""
        of_cell = [record for record in done if record.cell == dict(cell.factors)]
        if no_ratio(of_cell) or any(AT_ANY_LOAD & {*r.invalid_reasons} for r in of_cell):
            return None
        every, tried = of_cell_tried(of_cell), of_round(of_cell, cell.factors, number)
        if len(tried) >= MOST_TRIALS or _silent(every) or _never_ready(of_cell):
            return None
        need = need_of(cell, self._search)
        unseen = all(t.value == need for t in every)  # the load that is needed comes first
        is_first = number == 1 and unseen and ramp_of(of_cell, cell.factors) is None
        is_first &= need is None or bool(every)
        if is_first and (ramp := self._ramp(cell)) is not None:
            return ramp
        is_own = self._search.method == "nodrop"
        field = self._field(cell, every if is_own else tried, of_cell)
        left_s = self._left_s(cell, number, done)
        if not every and is_own:
            once_s = self._takes_s(cell, number, _first(cell, self._search), done)
            field = replace(field, few=(FEW + 1) * once_s > left_s)
        ask = METHODS[self._search.method](field)
        if ask is None or (is_own and ask.round != number):
            return None
        if is_own:
            ask = _in_full(cell, self._search, ask)
        fits = math.isinf(left_s) or self._takes_s(cell, number, ask, done) <= left_s
        return ask if fits else None

    def _takes_s(
        self, cell: AskedCell, number: int, ask: Ask, done: Sequence[TrialRecord]
    ) -> float:
        """Seconds of the trial, with what it takes beside its load."""
        begins = self._begins(cell, number, ask, done)
        return _lasts_s(cell, self._search, ask) + self._beside_s(cell.factors, begins, done)

    def _field(
        self, cell: AskedCell, tried: Sequence[Tried], of_cell: Sequence[TrialRecord]
    ) -> MethodInput:
        lowest, highest = _limits(cell, self._search)
        ramps = [r for r in of_cell if r.searched and r.searched.ramp is not None]
        return MethodInput(
            search=self._search,
            start=_begin(cell, self._search)[0],
            lowest=lowest,
            highest=highest,
            tried=tried,
            need=need_of(cell, self._search),
            ramp=ramp_of(of_cell, cell.factors),
            level=any(r.packets.queue is not None for r in ramps),
        )

    def _ramp(self, cell: AskedCell) -> Ask | None:
        """The ramp of a cell. None for methods that have their own way, a sender whose rate cannot
        grow, a range that is narrow anyway, or a budget that the ramp would eat up."""
        search, (start, highest) = self._search, _begin(cell, self._search)
        end, seconds = min(start * RAMP_UP, highest), RAMP_TRIALS * search.initial_trial_s
        if search.method != "nodrop" or search.by_detections or cell.load.get("kind") != "replay":
            return None
        if end < start * RAMP_LEAST or not cell.first_pps or not cell.trace_packets:
            return None
        cells, around_s = len(self._asked.cells), self._asked.around_s
        decides_s = deciding_s(search, self._first_s(cell))
        if not ramp_s(search, cells=cells, around_s=around_s, decides_s=decides_s):
            return None
        return Ask(value=end, seconds=seconds, ramp_from=start)

    def _left_s(self, cell: AskedCell, number: int, done: Sequence[TrialRecord]) -> float:
        """Seconds of the budget that are left for this round; infinite without one. Each cell has
        an even part of it; of a method whose rounds are searches of their own, each round has an
        even part of that, and what was not used falls to those after it."""
        search = self._search
        if search.budget_s is None:
            return math.inf
        part = 1.0 if search.method == "nodrop" else number / search.rounds
        until = search.budget_s / len(self._asked.cells) * part
        return until - sum(r.took_s or 0.0 for r in done if r.cell == dict(cell.factors))

    def _begins(self, cell: AskedCell, number: int, ask: Ask, done: Sequence[TrialRecord]) -> bool:
        """Whether the trial begins its round, and so a start of the SUT. The ramp's start
        goes on if the budget has no time for another."""
        if of_round(done, cell.factors, number):
            return False
        own = [r for r in done if r.cell == dict(cell.factors)]
        if self._asked.sut == "fresh" or not own or own[-1].outcome != "measured":
            return True
        if own[-1].searched is None or own[-1].searched.ramp is None:
            return True
        whole_s = _lasts_s(cell, self._search, ask) + self._beside_s(cell.factors, True, done)
        return whole_s <= self._left_s(cell, number, done)

    def _beside_s(self, factors: Factors, begins: bool, done: Sequence[TrialRecord]) -> float:
        """Seconds that a trial takes beside its load: the most that the last trials like it took,
        those of its cell if there are any. One that begins a round may wait long for its SUT."""
        starts = _starts(done)
        fresh = self._asked.sut == "fresh"
        alike = [
            (r.cell == dict(factors), beside_s)
            for r in sorted(done, key=lambda r: r.index)
            if (beside_s := _beside_s(r)) is not None and (fresh or (r.index in starts) == begins)
        ]
        known = [s for own, s in alike if own] or [s for _, s in alike]
        return max(known[-LAST:], default=self._asked.around_s)

    def _trial(
        self, cell: AskedCell, number: int, ask: Ask, done: Sequence[TrialRecord]
    ) -> TrialInput:
        of_cell = [record for record in done if record.cell == dict(cell.factors)]
        return TrialInput(
            index=max((record.index for record in done), default=0) + 1,
            cell=cell.factors,
            repetition=max((record.repetition for record in of_cell), default=0) + 1,
            load=load_of(cell, self._search, ask),
            new_world=ask.soak
            or self._asked.sut == "fresh"
            or self._begins(cell, number, ask, done),
            searched=Searched(
                by=self._search.by,
                value=ask.value,
                # Each trial of detections sends the window once: none decides less than others.
                duration_s=self._search.final_trial_s
                if self._search.by_detections
                else ask.seconds,
                round=number,
                ramp=None if ask.ramp_from is None else Ramp(start=ask.ramp_from),
                soak=Soak() if ask.soak else None,
                need=need_of(cell, self._search),
                goals_of=self._search.goals_of,
            ),
        )

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        """The time ahead. At least: the next trial, and one of each round that has not begun. At
        most, with a budget: what is left of it, for then rounds may be left out too."""
        trial, search = self.next(done), self._search
        if trial is None or trial.searched is None:
            nothing = Remaining(trials=0, seconds=0.0, spread_s=None)
            return Outlook(at_least=nothing, at_most=nothing)
        next_s = self._load_s(trial)
        next_s += self._beside_s(trial.cell, trial.new_world, done)
        rounds = [(c, n) for c in self._asked.cells for n in range(1, search.rounds + 1)]
        unbegun = [(c.factors, n) for c, n in rounds if not of_round(done, c.factors, n)]
        if trial.searched.ramp is None and (trial.cell, trial.searched.round) in unbegun:
            unbegun.remove((trial.cell, trial.searched.round))
        rest = [] if search.budget_s is not None else unbegun
        rest_s = sum(search.initial_trial_s + self._beside_s(one, True, done) for one, _ in rest)
        least = Remaining(trials=1 + len(rest), seconds=next_s + rest_s, spread_s=None)
        return Outlook(at_least=least, at_most=self._at_most(least, done), next_s=next_s)

    def _load_s(self, trial: TrialInput) -> float:
        asked = trial.searched
        assert asked is not None
        cell = next(one for one in self._asked.cells if one.factors == trial.cell)
        start = None if asked.ramp is None else asked.ramp.start
        ask = Ask(value=asked.value, seconds=asked.duration_s, ramp_from=start)
        return _lasts_s(cell, self._search, ask)

    def _at_most(self, least: Remaining, done: Sequence[TrialRecord]) -> Remaining | None:
        if self._search.budget_s is None:
            return None
        left_s = self._search.budget_s - sum(r.took_s or 0.0 for r in done if r.searched)
        beside_s = min((s for r in done if (s := _beside_s(r)) is not None), default=0.0)
        trials = int(left_s / (self._search.initial_trial_s + beside_s))
        return Remaining(
            trials=max(least.trials, trials), seconds=max(least.seconds, left_s), spread_s=None
        )

    def beforehand(self) -> Sequence[TrialInput]:
        first = self.next(())
        return () if first is None else (first,)


def _silent(every: Sequence[Tried]) -> bool:
    last = [t for t in every if not t.disturbed][-MOST_SILENT:]
    return len(last) == MOST_SILENT and all(t.outcome == "void" for t in last)


def _never_ready(of_cell: Sequence[TrialRecord]) -> bool:
    last = of_cell[-NEVER_READY:]
    return len(last) == NEVER_READY and all(map(never_ready, last))


def _beside_s(record: TrialRecord) -> float | None:
    """Seconds that a trial took beside its load; None if they are not known."""
    if record.searched is None or record.took_s is None:
        return None
    return max(0.0, record.took_s - (record.offered.duration_s or record.searched.duration_s))


def _starts(done: Sequence[TrialRecord]) -> set[int]:
    """Trials that a start of the SUT was made for: ramps, and the first ones of their rounds."""
    own = [
        ((repr(record.cell), record.searched.round, record.searched.ramp is None), record.index)
        for record in done
        if record.searched is not None
    ]
    first = dict(sorted(own, key=lambda pair: -pair[1]))  # of each round the least stays
    return {*first.values()}


def load_of(cell: AskedCell, search: Search, ask: Ask) -> dict[str, Any]:
    """The cell's [load] table at this value of the scale, for the time that is asked: whole passes
    over the window, so that all trials see the same of the trace."""
    if ask.ramp_from is not None:
        return _growing(cell, search, ask)
    by, value = search.by, ask.value
    whole = by == "multiplier" and value.is_integer()
    found = {**cell.load, by: int(value) if whole else value}
    if by == "rate":
        return {**{k: v for k, v in found.items() if k != "count"}, "duration_s": ask.seconds}
    if by != "multiplier":
        found = {k: v for k, v in found.items() if k == by or k not in PACES}
    once_s = _once_s(cell, by, value)
    if search.by_detections:
        return found
    if not once_s:
        return {**found, "duration_s": ask.seconds}
    found.pop("duration_s", None)
    passes = _passes(once_s, ask.seconds)
    # As other traffic of the same kind: a SUT takes the same packets again for retransmissions.
    if passes > 1 and found.get("kind") == "replay":
        fits = passes * max(1, found.get("multiplier", 1)) <= MOST_COPIES
        found.setdefault("loop_flows", "distinct" if fits or ask.soak else "same")
    return {**found, "loops": passes}


def _growing(cell: AskedCell, search: Search, ask: Ask) -> dict[str, Any]:
    """Packets at even gaps that shrink, of as many replicas as fill the time: each flow once. As
    many a second as a trial of that load has, which may send another part of the trace."""
    trace_packets, from_pps, to_pps = cell.trace_packets, ask.ramp_from, ask.value
    assert trace_packets and from_pps is not None
    if search.by != "pps":
        assert cell.first_pps
        first, _ = _begin(cell, search)
        from_pps, to_pps = from_pps / first * cell.first_pps, to_pps / first * cell.first_pps
    mean_pps = (to_pps - from_pps) / math.log(to_pps / from_pps)
    needed = math.ceil(mean_pps * ask.seconds / trace_packets)
    replicas = min(MOST_OF_RAMP, needed)
    dropped = (*PACES, "duration_s")
    return {
        "loop_flows": "distinct",
        **{key: value for key, value in cell.load.items() if key not in dropped},
        "multiplier": replicas,
        "loops": math.ceil(needed / replicas),
        "ramp": {"from_pps": from_pps, "to_pps": to_pps, "over_s": ask.seconds},
    }


def _begin(cell: AskedCell, search: Search) -> tuple[float, float]:
    """Load with which a search begins, and the most that it tries."""
    lowest, highest = _limits(cell, search)
    return min(max(_start(cell, search), lowest), highest), highest


def _first(cell: AskedCell, search: Search) -> Ask:
    """A trial that decides, at the load where the search begins."""
    return Ask(value=_begin(cell, search)[0], seconds=search.final_trial_s)


def _lasts_s(cell: AskedCell, search: Search, ask: Ask) -> float:
    once_s = _once_s(cell, search.by, ask.value) if ask.ramp_from is None else None
    if search.by_detections:
        return once_s or ask.seconds
    return once_s * _passes(once_s, ask.seconds) if once_s else ask.seconds


def _in_full(cell: AskedCell, search: Search, ask: Ask) -> Ask:
    """A trial that takes as long as one that decides, since it sends a whole pass, decides."""
    full = replace(ask, seconds=max(ask.seconds, search.final_trial_s))
    return full if _lasts_s(cell, search, full) <= _lasts_s(cell, search, ask) else ask


def _passes(once_s: float, seconds: float) -> int:
    return max(1, math.ceil(seconds / once_s - SHORTER))


def _once_s(cell: AskedCell, by: str, value: float) -> float | None:
    """Time of one pass over the window."""
    if by == "rate":
        return None
    if by == "pps":
        packets = (cell.trace_packets or 0) * cell.load.get("multiplier", 1)
        return packets / value or None
    speed = value if by == "speed" else float(cell.load.get("speed") or 1.0)
    return cell.trace_s / speed if cell.trace_s else None


def need_of(cell: AskedCell, search: Search) -> float | None:
    """The load that has to be carried, on the search's scale; None if none has, or it is not
    known what it is of this trace. Three digits, rounded up."""
    if search.need is None:
        return None
    packets, seconds, octets = cell.trace_packets, cell.trace_s, cell.trace_bytes
    times = float(cell.load.get("speed") or 1.0) if search.by == "multiplier" else 1.0
    times *= 1.0 if search.by == "multiplier" else cell.load.get("multiplier", 1)
    pps = packets / seconds * times if packets and seconds else None
    bps = 8 * octets / seconds * times if octets and seconds else None
    value = parse_need(search.need).of(search.by, pps=pps, bps=bps)
    if value is None:
        return None
    digits = 2 - math.floor(math.log10(value))
    return float(math.ceil(value * 10.0**digits - 1e-9) / 10.0**digits)


def first_load(cell: AskedCell, search: Search) -> dict[str, Any]:
    """The [load] table of a trial that decides, at the load where the search begins."""
    return load_of(cell, search, _first(cell, search))


def _check(cell: AskedCell, search: Search) -> None:
    by, load, kind, need = search.by, cell.load, cell.load.get("kind"), need_of(cell, search)
    pace = next((one for one in ("pps", "top_speed") if load.get(one)), "")
    problems = (
        (
            f"load.{by}" in cell.factors,
            f"load.{by}",
            f"matrix.load.{by}: is what the search varies: leave it out of the matrix",
        ),
        (
            by == "rate" and "rate" not in load,
            "search.by",
            worded("scale.no_rate", by=by, kind=kind),
        ),
        (by != "rate" and "rate" in load, "search.by", worded("scale.rate", by=by, kind=kind)),
        (
            pace and by in PACED,
            f"load.{pace}",
            f"load.{pace} = {str(load.get(pace)).lower()}: {PACED.get(by)}",
        ),
        (
            by == "multiplier" and kind == "tcpreplay",
            "search.by",
            'search.by = "multiplier": load.kind = "tcpreplay" sends whole copies only: '
            'search.by = "speed" or "pps"',
        ),
        (
            search.by_detections and "trace" not in load,
            "search.goals_of",
            f'search.goals_of = "detections": load.kind = "{kind}" replays no '
            'trace of which it is known what a SUT should detect: load.kind = "replay"',
        ),
        (
            by in ("multiplier", "speed") and cell.trace_s == 0,
            "load.trace",
            "load.trace: all its packets have one time, so it has no rate of its own and no NX: "
            'search.by = "pps" (--by pps) searches in packets/s',
        ),
        (
            search.need is not None and need is None,
            "search.need",
            worded("needed.no_rate", asked=search.need),
        ),
    )
    for holds, key, words in problems:
        if holds:
            raise BadInput(words, keys=[key])
    lowest, highest = _limits(cell, search)
    if need is not None and not lowest <= need <= highest:
        words = worded("needed.outside", asked=search.need, need=need, low=lowest, high=highest)
        raise BadInput(words, keys=["search.need"])
    for key in ("min", "max"):
        value = getattr(search, key)
        if value is not None and _packets(cell, search, value) < 1:
            raise BadKey(
                f"search.{key}",
                f"a trial of {search.final_trial_s:g} s would have less than one packet",
                given=f"{value:g}",
            )


def _packets(cell: AskedCell, search: Search, value: float) -> float:
    """Packets of a trial that decides; infinite if the trace does not tell them."""
    if search.by in ("pps", "rate"):
        return value * search.final_trial_s
    if not cell.trace_packets or not cell.trace_s:
        return math.inf
    by_speed = search.by == "speed"
    times = cell.load.get("multiplier", 1) if by_speed else cell.load.get("speed") or 1.0
    return float(cell.trace_packets / cell.trace_s * (value * times) * search.final_trial_s)


def _start(cell: AskedCell, search: Search) -> float:
    """The cell's own load; of detections, not before one that sends the window soon."""
    given = cell.load.get(search.by)
    if given:
        return float(given)
    if search.by != "pps":
        soon = search.by_detections and search.by == "speed"
        return max(1.0, (cell.trace_s or 0.0) / SOON_S) if soon else 1.0
    if not cell.trace_packets or not cell.trace_s:
        return 1000.0
    packets = cell.trace_packets * cell.load.get("multiplier", 1)
    own = float(packets / cell.trace_s * (cell.load.get("speed") or 1.0))
    return max(own, packets / SOON_S) if search.by_detections else own


def _limits(cell: AskedCell, search: Search) -> tuple[float, float]:
    start = min(_start(cell, search), math.inf if search.max is None else search.max)
    least = min(start, need_of(cell, search) or start)
    lowest = search.min if search.min is not None else least / RANGE
    highest = search.max if search.max is not None else max(start, lowest) * FAR
    return lowest, highest
