"""The answer of a search as a report keeps it: cards, and cells that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nodrop.answer.finding import Finding, render
from nodrop.ledger.quantities import Count, NotNegative, Seconds
from nodrop.results.model import Model

LimitedBy = Literal[
    "sut",
    "sut_failed",
    "before_sut",
    "other_programs",
    "sender_cpu",
    "interrupts",
    "quota",
    "not_known",
    "generator",
    "hypervisor",
    "max",
    "min",
    "loss_at_every_load",
    "void_above",
    "budget",
    "unfinished",
    "lab",
    "changes",
    "nothing_measured",
    "not_judged",
]
"""Limit of an answer; words.toml has the meaning of each."""


class Forecast(Model):
    """The trials that a budget was likely to buy for each cell: a guess before the first trial, as
    the manifest keeps it (`forecast`)."""

    budget_s: Seconds
    trials: Count
    """Trials in all rounds, beside the ramp."""
    relative_width: NotNegative | None
    """(upper − lower) / upper that was likely; null: so few trials that bounds were likely to be
    far apart, or not to be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure a figure is (docs/methodology.md has the rule)."""

    level: Literal["high", "fair", "low"]
    reason: Finding
    known_ratio: float
    """The last digit of the load in sentences is worth this part of it or less."""

    @property
    def why(self) -> str:
        return render(self.reason, "why")


class SoakAnswer(Model):
    """A long trial at the load that was carried, after the search and no part of its bounds."""

    words: str
    value: NotNegative
    """Load on the scale of the search."""
    pps: NotNegative | None
    bps: NotNegative | None
    duration_s: Seconds | None
    outcome: Literal["measured", "failed", "void"]
    held: bool | None
    """The SUT lost nothing and was not behind; null if that is not known."""
    loss_ratio: NotNegative | None
    lossy_from_s: NotNegative | None
    """Time of the first loss, after the first packet."""
    place: str | None


State = Literal["untried", "helps", "does not", "cannot tell yet"]


class CardLoad(Model):
    """A load as it was really sent."""

    pps: NotNegative | None
    bps: NotNegative | None
    value: NotNegative | None
    """Load on the scale of the search: NX of the named window, for one; null if no search chose it.
    """
    runs: list[str]
    """Trials that show it."""
    shown_pps: str
    """The rate with as many digits as are known, and enough that the two loads differ; empty: not
    known."""
    shown_mbit: str
    shown_value: str
    unit: str = "X"
    """Unit that stands behind `shown_value`."""


class CardThread(Model):
    """A capture thread at the load that was too much."""

    name: str
    ran: NotNegative | None
    """Part of the trial; likewise `waited`."""
    waited: NotNegative | None
    dropped: Count | None


class Breaks(Model):
    """The limit that the cell meets next: what breaks, where and why."""

    verdict: str
    limited_by: LimitedBy
    place: str | None
    """The place where packets were lost; the page marks it if it is a stage of `path`."""
    path: list[str]
    why: list[str]
    """Sentences, the reason first."""
    lost: Count | None
    sent: Count | None
    run: str | None
    """The trial that the figures are of."""
    threads: list[CardThread]


class Sure(Model):
    """How sure the number is."""

    confidence: Confidence | None
    width: NotNegative | None
    """(too much − carried) / too much."""
    rounds: Count
    rounds_asked: Count
    cut: Count
    """Rounds that the budget ended before their bounds were close."""
    trials: Count
    measured: Count
    void: Count
    failed: Count
    books_closed: Count
    disagree: list[str]
    """Trials on the other side of the answer's bounds."""
    words: list[str]


class Action(Model):
    """A thing to do: a hypothesis until its state says otherwise."""

    text: str
    why: str
    command: str
    """Command to paste; empty for an action without one."""
    cost_s: Seconds | None
    """Measuring time it takes; None if that is not known."""
    state: State = "untried"
    predicted: NotNegative | None = None
    """Load that it is predicted to carry, on the scale of the card's `by`; None if that is not
    known. The actions that have one stand in this order, the highest first."""


class Card(Model):
    """The answer of one searched cell, or of cells that differ in the given load alone."""

    subject: str
    by: str
    """`multiplier`, `speed` or `pps`: what the search varied; `given`: the experiment gives the
    loads."""
    goal: NotNegative
    """Loss ratio that is tolerated."""
    goals_of: Literal["packets", "detections"] = "packets"
    """Packets or detections: `goal`, `lost` and `lossy` count these."""
    headline: str
    carried: CardLoad | None
    only_seen: bool = False
    """No trial of `carried` lost a packet, but it is not shown that the SUT keeps this up."""
    too_much: CardLoad | None
    lost: tuple[NotNegative, NotNegative] | None
    """Least and most that trials of the load that is too much lost, of what was sent."""
    lossy: Count
    """Trials of that load that lost packets, and how many show whether they did (`lossy_of`)."""
    lossy_of: Count
    tolerated: str
    """The difference that tolerating loss makes, in words."""
    needed: str = ""
    """Whether the load that has to be carried is, in words; empty if none has."""
    predicted: str = ""
    """The limit that another run predicted, beside the one that was measured; empty if none was."""
    window: str
    peak_pps: NotNegative | None = None
    """Most packets within any second of the trace, at its own speed; null if not known."""
    breaks: Breaks
    sure: Sure
    actions: list[Action]


Ratio = tuple[float | None, float | None]
"""Least and greatest ratio; null = open on that side."""


class Level(Model):
    """One value of the factor, against the base."""

    name: str
    verdict: Literal["more", "less", "same", "cannot tell"]
    """The level against the base. Losses are also `more` or `less` if the levels differ in how many
    trials lose, and not in their medians."""
    why: str
    """The reason for `cannot tell`: what is lacking. Empty otherwise."""
    ratio: Ratio | None
    """How many times as much as the base a search found it to carry, between rounds (95 % for all
    levels of the run together); null if the load was not searched, or from too few rounds."""
    seen_ratio: Ratio | None
    """The ratio by the bounds within the search of one round of each: seen, and no verdict."""
    difference: float | None
    """Difference of the medians, in the figure's unit; null if the load was searched."""
    interval: tuple[float, float] | None
    """Interval of the difference; null with too few runs."""
    more: Count | None
    """Number of further rounds, or runs, of each that would tell; null if it is told, or if no
    number can be named."""
    words: str = ""
    """The size of the difference in words, or what was seen so far."""
    needed: str = ""
    """For `cannot tell`: what would tell, in words; empty if nothing is known to."""


class Direct(Model):
    """Cells that differ in one factor alone."""

    format: Literal[1] = 1
    question: str
    factor: list[str]
    """Keys of the experiment that differ together."""
    held: dict[str, Any]
    """Factors that vary in the run, and are the same in these cells."""
    figure: str
    """`capacity`, or a figure of the report (`loss_pct` …); `books`: no cells are compared."""
    at: str
    """The load at which the cells are compared; empty if it was searched."""
    base: str
    """The value of the factor that the others are held against."""
    disturbed: bool
    """Other programs had the SUT's CPUs in most trials, so nothing is ranked."""
    levels: list[Level]
    text: str
    """The answer in words."""
    to_do: str
    """A command to paste that helps if the run cannot tell; empty if none does."""
