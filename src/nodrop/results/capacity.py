"""The answer of `nodrop capacity --json`: how much a SUT carries, and how sure that is.

schema/capacity.schema.json is made from these models. `None` means not measured, or not found.
Bounds *within* one search and the interval *between* starts of the SUT stand apart: neither says
what the other does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.answer.finding import WORDS
from nodrop.results.records import Count, LoadWindow, Model, NotNegative, Seconds

Range = tuple[NotNegative, NotNegative]
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
LIMITS = "; ".join(f"`{code}`: {words['short']}" for code, words in WORDS["limited_by"].items())


class Forecast(Model):
    """The trials that a budget was likely to buy for each cell: a guess before the first trial, as
    the manifest keeps it (`forecast`)."""

    budget_s: Seconds
    trials: Count
    """In all rounds, beside the ramp."""
    relative_width: NotNegative | None
    """(upper − lower) / upper that was likely; null: so few trials that bounds were likely to be
    far apart, or not to be found."""


class Confidence(Model):
    """How sure the figure is (docs/methodology.md has the rule)."""

    level: Literal["high", "fair", "low"]
    why: str
    known_ratio: NotNegative
    """The last digit of the load in sentences is worth this part of it or less."""


class Carried(Model):
    """The highest load that was carried in the median round, in one unit."""

    value: NotNegative | None
    within_search: Range | None
    """From there to the lowest load above it that was not carried, of the same round; null if one
    of them was not found."""
    between_rounds: Range | None
    """95 % interval of the median over rounds, each with a new start of the SUT; null with fewer
    than six."""
    rounds: Range | None
    """The smallest and the largest that any round carried that no budget cut short."""


class Goal(Model):
    """The load that is carried if `loss_ratio` of it, or `detection_loss_ratio` of the expected
    detections, may be lost."""

    loss_ratio: NotNegative | None
    """Null if the goal is one of detections."""
    detection_loss_ratio: NotNegative | None = None
    """Null if the goal is one of packets."""
    multiplier: Carried | None
    """Replicas of the trace at once; null if the search varied something else."""
    speed: Carried | None
    """Times the trace's own; null if the search varied something else."""
    pps: Carried
    bps: Carried
    limited_by: LimitedBy = Field(description=LIMITS)
    place: str | None
    """Where the packets died at the load that was not carried or, if its rings held them, at the
    next higher one that lost some."""
    knob: str
    """The setting that affects the loss; empty if none is known."""
    broke: str
    """The verdict of a trial at that load; empty if there is none."""
    tried_at_or_below: Count | None
    """Trials of the load that is carried and of loads down to 80 % of it, of all rounds; null if
    none is carried."""
    missed_at_or_below: Count | None
    """Trials of `tried_at_or_below` that missed the goal."""
    missed_share_at_most: NotNegative | None
    """So large a part of such trials may miss it (95 %)."""
    reached_width: NotNegative | None
    """(upper − lower) / upper of the bounds within the search; null if one was not found."""
    confidence: Confidence | None
    """Null if no load is shown to be carried."""


class SoakAnswer(Model):
    """A long trial at the load that was carried, after the search and no part of its bounds."""

    words: str
    value: NotNegative
    """On the scale of the search."""
    pps: NotNegative | None
    bps: NotNegative | None
    duration_s: Seconds | None
    outcome: Literal["measured", "failed", "void"]
    held: bool | None
    """It lost nothing and was not behind; null if that is not known."""
    loss_ratio: NotNegative | None
    lossy_from_s: NotNegative | None
    """So long after the first packet the first loss was seen."""
    place: str | None


State = Literal["untried", "helps", "does not", "cannot tell yet"]


class CardLoad(Model):
    """A load as it was really sent."""

    pps: NotNegative | None
    bps: NotNegative | None
    value: NotNegative | None
    """On the scale of the search: NX of the named window, for one; null if no search chose it."""
    runs: list[str]
    """Its trials."""
    shown_pps: str
    """With as many digits as are known, and so that the two loads differ; empty: not known."""
    shown_mbit: str
    shown_value: str


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
    """Where packets were lost; the page marks it if it is a stage of `path`."""
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
    """To be pasted; empty if there is none."""
    cost_s: Seconds | None
    """Measuring time it takes; None if that is not known."""
    state: State = "untried"


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
    window: str
    breaks: Breaks
    sure: Sure
    actions: list[Action]


class CapacityAnswer(Model):
    format: Literal[1] = 1
    run_directory: str
    report: str
    exit_code: Count
    """0: each goal has its figure; 6: for a goal, no load is shown to be carried."""
    by: str
    """`multiplier`, `speed` or `pps`: what the search varied."""
    ndr_multiplier: NotNegative | None
    """The no-drop rate: `ndr` in short. All `ndr_` are null if no loss was not among the goals."""
    ndr_multiplier_interval: Range | None
    """Within the search, as `ndr.multiplier.within_search`."""
    ndr_pps: NotNegative | None
    ndr_pps_interval: Range | None
    ndr_bps: NotNegative | None
    ndr_bps_interval: Range | None
    limited_by: LimitedBy
    """The limit of the no-drop rate, or of the first goal if no goal asks for no loss."""
    confidence: Confidence | None
    """Confidence in the no-drop rate, or in the first goal if no goal asks for no loss."""
    place: str | None
    knob: str
    ndr: Goal | None
    pdr: list[Goal]
    """Partial-drop rates: goals that tolerate some loss."""
    detections: list[Goal] = Field(default_factory=list)
    """Goals of a search by detections, which has neither `ndr` nor `pdr`."""
    window: LoadWindow | None
    """The part of the trace that every trial sent: NX is N times this part. Null if the load has
    none."""
    trace_changes: list[str]
    """Changes made to the captures before they were sent, and oddities found in them."""
    decoder: list[str]
    """Which packets the SUT decoded though they were cut, or its decoder calls them invalid: no
    loss, and beside the answer. Of all cells of the run."""
    soak: SoakAnswer | None
    """Null if none was asked for, or no load was carried."""
    trials: Count
    trial_seconds: Seconds
    """Seconds of load, all trials together."""
    forecast: Forecast | None
    """The trials that the budget was likely to buy; null without a budget, or if the run keeps no
    forecast."""
    round_trials: list[Count]
    """Trials of each round, ramps left out: what the budget bought. The width is in each goal."""
    sentences: Annotated[list[str], Field(min_length=1)]
    """The answer as the report has it."""
    card: Card | None = None
    """The answer card of the first goal, as page, report.md and terminal show it."""


Ratio = tuple[float | None, float | None]
"""From, to; null = open on that side."""


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
    """So many more rounds, or runs, of each would tell; null if it is told, or if no number can be
    named."""
    words: str = ""
    """By how much, or what was seen so far."""
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
