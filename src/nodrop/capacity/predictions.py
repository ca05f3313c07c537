"""Loads that the twins of a search predict for another ring, more workers, or without a flow, and
the one that an earlier run predicted, beside what was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from nodrop.answer.finding import worded
from nodrop.capacity.findings import writing
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.tried import Tried, tried
from nodrop.ledger.level import QueueLevel, WithoutFlow, WorkersFit
from nodrop.report import escape

LEAST_TWINS = 3
LEAST_GAIN = 0.05
"""A search does not show less."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Load that no trial has sent."""

    value: float
    words: str

    @property
    def setting(self) -> str:
        """Key that shows it beside the limit measured by the run that tries it."""
        return f"search.predicted={self.value:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Loads above the one that is measured; None where the trials do not say."""

    room: Predicted | None = None
    """Load with a ring of 32,768 packets."""
    workers: Mapping[int, Predicted] = field(default_factory=dict)
    """Load by workers in place of one."""
    without: tuple[WithoutFlow, Predicted] | None = None


@dataclass(frozen=True, slots=True)
class _Twins:
    """Trials of a search whose twins are believed."""

    answer: Answer
    trials: Sequence[tuple[Tried, QueueLevel]]

    def middle(self, times_of: Callable[[QueueLevel], float | None]) -> float | None:
        """The middle of what the twins say; None if too few say it."""
        said = [(one.value, times_of(queue)) for one, queue in self.trials]
        loads = [value * times for value, times in said if times]
        return median(loads) if len(loads) >= LEAST_TWINS else None

    def more(self, value: float) -> float:
        """Part by which it is above what they say of the trials' own SUT."""
        now = self.middle(lambda queue: queue.fits_times)
        return 0.0 if now is None else value / now - 1


def predictions(searched: SearchedCell, answer: Answer) -> Predictions:
    """Loads by trials whose rings were half full: their twins alone are believed."""
    believed = [one for t in searched.trials if (one := tried(t.record)).fits(answer.goal)]
    if any(one.record.cpu_not_valid for one in believed):
        return Predictions()
    queues = [(one, one.record.packets.queue) for one in believed]
    twins = _Twins(answer, [(one, queue) for one, queue in queues if queue is not None])
    counts = sorted({fit.workers for _, queue in twins.trials for fit in queue.workers_fit})
    several = {n: found for n in counts if (found := _with_workers(twins, n)) is not None}
    return Predictions(room=_with_room(twins), workers=several, without=_without(twins))


def _with_room(twins: _Twins) -> Predicted | None:
    """Load with a larger ring, no more than the busiest thread has time for: it holds what a thread
    without time left falls behind by, and that is not carried. None if that time is not known."""
    roomy = twins.middle(lambda queue: queue.fits_times and queue.roomy_fits_times)
    if roomy is None:
        return None
    busy = [(one.value, one.record.busiest_thread) for one, _ in twins.trials]
    full = [value / thread.cpu_ratio for value, thread in busy if thread and thread.cpu_ratio]
    paced = median(full) if full else math.inf
    value = min(roomy, paced)
    if (more := twins.more(value)) <= 0:
        return None
    code = "with_room" if roomy <= paced else "with_room_paced"
    load = writing(twins.answer).at(value)
    return Predicted(value, worded(code, trials=len(twins.trials), load=load, more=more))


def _with_workers(twins: _Twins, workers: int) -> Predicted | None:
    def fit(queue: QueueLevel) -> WorkersFit | None:
        return next((one for one in queue.workers_fit if one.workers == workers), None)

    def middle(times_of: Callable[[WorkersFit], float]) -> float | None:
        return twins.middle(lambda queue: None if (one := fit(queue)) is None else times_of(one))

    value = middle(lambda deal: deal.fits_times)
    low = middle(lambda deal: deal.low_times)
    high = middle(lambda deal: deal.high_times)
    if value is None or low is None or high is None or (more := twins.more(value)) < LEAST_GAIN:
        return None
    at = writing(twins.answer).at
    words = worded(
        "with_workers", workers=workers, load=at(value), more=more, low=at(low), high=at(high)
    )
    return Predicted(value, words)


def _without(twins: _Twins) -> tuple[WithoutFlow, Predicted] | None:
    """The flow that most trials name, and the load without it."""
    named = Counter(queue.without.flow for _, queue in twins.trials if queue.without is not None)
    if not named:
        return None
    flow, _ = named.most_common(1)[0]

    def fit(queue: QueueLevel) -> WithoutFlow | None:
        found = queue.without
        return found if found is not None and found.flow == flow else None

    value = twins.middle(lambda queue: None if (one := fit(queue)) is None else one.fits_times)
    if value is None or (more := twins.more(value)) < LEAST_GAIN:
        return None
    found = next(one for _, queue in twins.trials if (one := fit(queue)) is not None)
    per = (written := writing(twins.answer)).pps_per
    # The same multiple of a trace without it is fewer packets/s; a rate is a rate.
    if per is not None and twins.answer.by != "pps":
        written = replace(written, pps_per=per * (1 - found.packets_ratio))
    words = worded(
        "without_flow",
        load=written.at(value),
        more=more,
        flow=escape.plain(flow, longest=120),
        packets=found.packets_ratio,
        work=found.work_ratio,
    )
    return found, Predicted(value, words)


def beside_measured(said: object, answer: Answer) -> str:
    """The limit that `search.predicted` names, beside the measured one."""
    if not isinstance(said, (int, float)):
        return ""
    how, fit = writing(answer), answer.fit
    load = how.at(said)
    if fit is None:
        return worded("predicted.not_measured", load=load)
    if fit.low is not None and fit.high is not None:  # it is known better than far bounds are
        how = replace(how, known=min(how.known, (fit.high - fit.low) / (2 * fit.estimate)))
    off = said / fit.estimate - 1
    code = "more" if off > 0 else "less"
    return worded(f"predicted.{code}", load=load, measured=how.at(fit.estimate), off=abs(off))
