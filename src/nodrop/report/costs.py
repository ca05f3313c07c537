"""Costs that a cell may have, as figures that can be laid against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nodrop.answer.finding import WORDS
from nodrop.report.story import Gathered, RunCell
from nodrop.report.trials import StoredTrial
from nodrop.stats.comparison import ComparisonRule
from nodrop.stats.interval import Family, Summary

RELATIVE_MARGIN = 0.05
"""Share of the base's median: less difference is the same, for figures that are no loss."""
LOSS = "loss_pct"
FAILURES = "failures_pct"
DETECTION_LOSS = "detection_loss_pct"
MARGINS = {LOSS: 0.1, FAILURES: 0.1, DETECTION_LOSS: 1.0}
"""Percentage points: less loss than that is the same. Zero is special for these figures."""

Told = Callable[[StoredTrial], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    title: str
    unit: str
    scale: float
    digits: int
    of: Told
    help: str
    points: bool = False
    """A share of something: differences are in percentage points."""
    verb: str = "lose"
    """Verb for runs whose value is above 0."""
    of_trials: bool = False
    """100 or 0 for each trial, and so a share: a median says nothing of it."""
    ways: tuple[str, str, str, str] = ("has", "have", "more", "less")
    """Verb of one and of several, and what stands after it if the value is higher, or lower."""

    @property
    def difference_unit(self) -> str:
        return "points" if self.points else self.unit

    @property
    def loses(self) -> bool:
        """The figure is a share that is lost: zero is special, and a share of the base says
        nothing."""
        return self.name in MARGINS

    @property
    def margin_words(self) -> str:
        points = f"{MARGINS.get(self.name, 0.0):.1f} points"
        return points if self.loses else f"{RELATIVE_MARGIN * 100:.0f} %"

    def margin(self, level: float) -> float:
        return MARGINS[self.name] if self.loses else RELATIVE_MARGIN * abs(level)

    def asked(self, family: Family) -> ComparisonRule:
        """Differences up to the margin count as the same."""
        if self.loses:
            return ComparisonRule(absolute=MARGINS[self.name], losses=True, family=family)
        return ComparisonRule(relative=RELATIVE_MARGIN, family=family)

    def gathered(self, cell: RunCell) -> Gathered:
        return cell.gathered(self, self.of, self.scale)

    def values(self, cell: RunCell) -> tuple[float, ...]:
        return self.gathered(cell).values

    def summary(self, cell: RunCell) -> Summary | None:
        return self.gathered(cell).summary

    def median(self, cell: RunCell) -> float | None:
        return summary.median if (summary := self.summary(cell)) else None

    def shown(self, value: float) -> str:
        return minus(f"{value:,.{self.digits}f}") if value else "0"

    def at_least(self, value: float) -> str:
        """Rounded up: what is more than nothing is never shown as nothing."""
        step = 10**self.digits
        return self.shown(math.ceil(value * step) / step)

    def signed(self, value: float) -> str:
        """The value with its sign; a value that is rounded to nothing has none."""
        said = f"{value:+,.{self.digits}f}"
        return minus(said if said.strip("+-0.") else said[1:]) if value else "0"


def minus(text: str) -> str:
    return text.replace("-", "−")


def _lost(trial: StoredTrial) -> float | None:
    return trial.loss_ratio if trial.record.transactions is None else None


def _failed(trial: StoredTrial) -> float | None:
    return None if trial.record.transactions is None else trial.loss_ratio


def _sure_loss(trial: StoredTrial) -> float | None:
    beyond, sent = trial.record.packets.lost_beyond_bursts_packets, trial.record.offered.sent
    return trial.loss_ratio if beyond is None or not sent else beyond / sent


SCALES = {"%": 100.0, "s": 1.0, "MiB": 2.0**-20}
"""Units of figures: by what a value is multiplied to be in it."""


def figure(name: str, of: Told) -> Figure:
    """A figure in the words and the unit that words.toml has for it."""
    said = WORDS["figures"][name]
    unit, ways = said["unit"], tuple(said["ways"])
    more = {"scale": SCALES[unit], "points": unit == "%", "ways": ways}
    return Figure(name=name, of=of, **said | more)


FIGURES = (
    figure(LOSS, _lost),
    figure(FAILURES, _failed),
    figure("host_cpu_pct", lambda t: t.host_cpu_ratio),
    figure("sut_cpu_s", lambda t: t.sut_cpu_s),
    figure("setup_cpu_s", lambda t: t.setup_cpu_s),
    figure("memory_mib", lambda t: t.sut_rss_peak_bytes),
    figure("anonymous_mib", lambda t: t.aside.anonymous_bytes),
    figure("activation_s", lambda t: t.activation_s),
)
LOSS_FIGURE, FAILURES_FIGURE = FIGURES[:2]
DETECTION_FIGURE = figure(
    DETECTION_LOSS, lambda t: t.detections.detection_loss_ratio if t.detections else None
)
SURE_LOSS = replace(LOSS_FIGURE, of=_sure_loss)
"""Loss that an on-time sender would have suffered too."""
DIFFERENCES = tuple(
    f for f in FIGURES if f.name in (LOSS, FAILURES, "sut_cpu_s", "memory_mib", "activation_s")
)
"""Figures that are compared between cells that differ in whatever the matrix varies."""


def differences_of(cells: Sequence[RunCell]) -> tuple[Figure, ...]:
    """Figures that say something of these cells: loss of packets, failures of transactions."""
    answered = [cell.answered for cell in cells]
    of = {LOSS: not all(answered), FAILURES: any(answered)}
    return tuple(figure for figure in DIFFERENCES if of.get(figure.name, True))
