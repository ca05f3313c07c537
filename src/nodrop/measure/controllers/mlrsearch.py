"""FD.io's MLRsearch as the method of a search: its own library decides.

The library calls a measurer and waits for the result. So it is run again over the trials so far,
each time from the beginning, and stopped where it asks for one that is not there yet.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from nodrop.findings.searched import Tried
from nodrop.measure.controllers.methods import Ask, Field

PACKETS = 1_000_000
"""It wants counts, of which it only uses the ratio."""
LONGEST_S = 1e9


class _NotTried(Exception):
    def __init__(self, value: float, seconds: float) -> None:
        self.value, self.seconds = value, seconds


def mlrsearch(field: Field) -> Ask | None:
    # Imported where it is used: 60 modules that no other method needs.
    import MLRsearch

    search = field.search
    goals = [
        MLRsearch.SearchGoal(
            loss_ratio=goal,
            exceed_ratio=search.exceed_ratio,
            relative_width=search.relative_width,
            initial_trial_duration=search.initial_trial_s,
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
            measurer=_Replayed(field.tried), debug=_say_nothing
        )
    except _NotTried as missing:
        return Ask(value=missing.value, seconds=missing.seconds)
    return None


class _Replayed:
    """An `AbstractMeasurer` that knows the trials so far."""

    def __init__(self, trials: Sequence[Tried]) -> None:
        self._known: dict[tuple[float, float], deque[Tried]] = defaultdict(deque)
        for one in trials:
            if one.outcome != "void":
                self._known[one.value, one.seconds].append(one)

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
    """What is left behind in a ring, or not shown to be worked off, was not carried; a SUT that
    failed carried nothing."""
    if one.outcome == "failed" or one.loss_ratio is None:
        return PACKETS
    if one.kept and not one.loss_ratio:
        return 0
    lost = one.loss_ratio if one.kept else 1 - (one.served_ratio or 0.0)
    return max(1, round(PACKETS * lost))


def _say_nothing(words: str) -> None:
    del words
