"""The study of 2016 beside this run: what holds here, what does not, what cannot be judged.

Other hosts, another trace, another Suricata: only the direction is compared, each setup against
bare of its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodrop.report import numbers
from nodrop.report.comparison import more_runs_words
from nodrop.report.costs import RELATIVE_MARGIN, minus
from nodrop.report.sections import Section
from nodrop.report.sentences import listed
from nodrop.report.setups import BASE_KIND, KIND, SetupCondition, SetupLevel, conditions
from nodrop.report.story import Story, gathered
from nodrop.report.tables import Field, Table, Value, number, numeric, own, table_of, words
from nodrop.report.trials import StoredTrial, count_once
from nodrop.stats.comparison import Advice, Comparison, ComparisonRule, Relation, compare, more_runs
from nodrop.stats.interval import Summary, summarize
from nodrop_studies.words import NOTES, WORDS

KINDS = ("bare", "docker", "docker-macvtap", "vm")
PUBLISHED: Mapping[tuple[str, str], tuple[float, float]] = {
    (table, setup): (mean, sigma)
    for table, row in WORDS["study-2016"].items()
    for setup, (mean, sigma) in zip(KINDS, row, strict=True)
}
"""Table and setup → mean and sigma over time. II: memory of the host at 1X, %; III and IV: CPU of
the host at 1X and 2X, % of one core. Tables V and VI are not in the bundle this was made with."""

MME_ACTIVATION_S: Mapping[str, float] = {"bare": 4.77, "docker": 4.81, "vm": 12.01}
"""Seconds from the launch of an LTE mobility management entity to its readiness."""

LOAD, FLOWS, SAME_FLOWS = "load.multiplier", "load.flows", "same"
STUDIED_SUT = "suricata"


class OrderingJudgement(StrEnum):
    """Judgement of one ordering of 2016, a setup against bare."""

    BASE = "the base of both"
    HOLDS = "holds"
    FAILS = "does not hold"
    UNSURE = "cannot tell yet"
    UNJUDGED = "cannot be judged"
    UNMEASURED = "not measured here"


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """One figure as it was printed, and what is measured here for it."""

    name: str
    """Within a sentence."""
    there: str
    """Unit of the figure of 2016, with what it was measured of where that needs saying."""
    here: str
    load: int | None
    """None: it does not depend on the load."""
    by_setup: Mapping[str, float]
    of: Callable[[StoredTrial], float | None]
    another_program: str = ""
    """The one measured in 2016, if it was not this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePair:
    """One setup's figure of 2016, and this run's."""

    setup: str
    kind: str
    published: float
    here: Summary | None
    published_ratio: float | None
    """Against bare of its own time, less 1; None for bare."""
    here_ratio: float | None
    judgement: OrderingJudgement
    why: str

    @property
    def said(self) -> str:
        return f"{self.judgement}: {self.why}" if self.why else self.judgement.value


@dataclass(frozen=True, slots=True)
class StudyFigure:
    published: PrintedFigure
    rows: tuple[FigurePair, ...]

    @property
    def name(self) -> str:
        name = self.published.name
        return name[0].upper() + name[1:]

    @property
    def title(self) -> str:
        there, here = self.published.there, self.published.here
        return f"{self.name}, {there if there == here else f'2016: {there}; here: {here}'}"


def _busy_cores_pct(trial: StoredTrial) -> float | None:
    """CPU of the whole host while the load was offered, as the study counted it: % of one core."""
    cores, ratio = trial.aside.cpus, trial.host_cpu_ratio
    return ratio * cores * 100 if cores and ratio is not None else None


def _means(table: str) -> Mapping[str, float]:
    return {setup: mean for (one, setup), (mean, _) in PUBLISHED.items() if one == table}


ONE_CORE = "% of one core"
FIGURES = (
    PrintedFigure("host CPU at 1X", ONE_CORE, ONE_CORE, 1, _means("III"), _busy_cores_pct),
    PrintedFigure("host CPU at 2X", ONE_CORE, ONE_CORE, 2, _means("IV"), _busy_cores_pct),
    PrintedFigure("memory at 1X", "% of the host's", "MiB of the SUT", 1, _means("II"),
              lambda t: None if t.sut_rss_peak_bytes is None else t.sut_rss_peak_bytes / 2**20),
    PrintedFigure("activation", "s, of an LTE MME: another program", "s, of Suricata", None,
              MME_ACTIVATION_S, lambda t: t.activation_s, another_program="an LTE MME"),
)  # fmt: skip


def study_figures(story: Story, found: Sequence[SetupCondition]) -> tuple[StudyFigure, ...]:
    """Empty unless the run asks the study's question at one of its loads."""
    loads = {published.load for published in FIGURES if published.load}
    bases = [(c, c.base.cell.factors) for c in found]
    studied = [c for c, of in bases if of.get(KIND) == BASE_KIND and of.get(LOAD) in loads]
    kinds = {str(place.cell.factors.get(KIND)) for c in studied for place in c.places}
    if not kinds & {*KINDS[1:]} or not any(STUDIED_SUT in s.run.sut_names for s in story.sources):
        return ()
    return tuple(StudyFigure(one, tuple(_rows(one, studied))) for one in FIGURES)


def _at(found: Sequence[SetupCondition], load: int | None) -> Sequence[SetupCondition]:
    """Conditions of a load; with identical copies, as the study sent them, if the run has any."""
    if load is None:
        return found
    loaded = [c for c in found if c.base.cell.factors.get(LOAD) == load]
    same = [c for c in loaded if c.base.cell.factors.get(FLOWS) == SAME_FLOWS]
    return (same or loaded)[:1]


def _rows(published: PrintedFigure, studied: Sequence[SetupCondition]) -> Iterator[FigurePair]:
    places: dict[str, list[SetupLevel]] = {}
    for place in (p for c in _at(studied, published.load) for p in c.places):
        places.setdefault(str(place.cell.factors.get(KIND)), []).append(place)

    def values(setup: str) -> tuple[float, ...]:
        """One per start of the SUT, or per host if several measured these."""
        trials = [trial for place in places.get(setup, ()) for trial in place.cell.valid]
        return gathered(zip(map(published.of, trials), count_once(trials), strict=True)).by_start

    base = values(BASE_KIND)
    middle = summarize(base)
    asked = ComparisonRule(relative=RELATIVE_MARGIN, family=studied[0].family)
    for setup, mean in published.by_setup.items():
        these, own = places.get(setup, []), values(setup)
        found = None if setup == BASE_KIND else compare(base, own, asked)
        unsure = found is not None and found.answer is Relation.CANNOT_TELL
        advice = more_runs(base, own, asked) if unsure else None
        there = mean / published.by_setup[BASE_KIND] - 1
        judgement, why = _judged(published, setup, these, there, found, advice)
        yield FigurePair(
            setup=these[0].name if these else setup,
            kind=setup,
            published=mean,
            here=summarize(own),
            published_ratio=None if setup == BASE_KIND else there,
            here_ratio=found.shift / middle.median if found and middle and middle.median else None,
            judgement=judgement,
            why=why,
        )


Row = tuple[StudyFigure, FigurePair]


def _against_bare(name: str, title: str, of: Callable[[FigurePair], float | None]) -> Field[Row]:
    def value(x: Row) -> Value:
        ratio = of(x[1])
        if ratio is None:
            return Value(None, "")
        said = f"{ratio * 100:+,.0f} %" if abs(ratio) >= 0.1 else f"{ratio * 100:+.1f} %"
        return Value(ratio * 100, minus(said))

    return Field(numeric(name, title), value)


def _judged(
    published: PrintedFigure,
    setup: str,
    places: Sequence[SetupLevel],
    there: float,
    comparison: Comparison | None,
    advice: Advice | None,
) -> tuple[OrderingJudgement, str]:
    if setup == BASE_KIND:
        return OrderingJudgement.BASE, ""
    if published.another_program:
        return OrderingJudgement.UNJUDGED, f"2016 timed {published.another_program}"
    if any(place.emulated for place in places):
        return OrderingJudgement.UNJUDGED, EMULATED
    if comparison is None:
        return OrderingJudgement.UNMEASURED, ""
    within = f"within {RELATIVE_MARGIN * 100:.0f} % of bare"
    match comparison.answer:
        case Relation.CANNOT_TELL:
            return OrderingJudgement.UNSURE, more_runs_words(advice) if advice else ""
        case Relation.SAME if abs(there) <= RELATIVE_MARGIN:
            return OrderingJudgement.HOLDS, f"{within} there and here"
        case Relation.SAME:
            return OrderingJudgement.FAILS, f"{within} here"
        case Relation.DIFFERENT:
            more = "more here" if comparison.shift > 0 else "less here"
            return (
                OrderingJudgement.HOLDS if comparison.shift * there > 0 else OrderingJudgement.FAILS
            ), more


EMULATED = "emulated, and TCG is not KVM"

FIELDS: tuple[Field[Row], ...] = (
    words("figure", "Figure", lambda x: x[0].title),
    words("setup", "Setup", lambda x: x[1].setup),
    number("published", "2016", lambda x: x[1].published, "{:.2f}".format),
    _against_bare("published_relative_pct", "2016, against bare", lambda row: row.published_ratio),
    own("here", "Here", lambda x: x[1].here.median if x[1].here else None,
        lambda x: lambda _: here_words(x[1].here)),
    _against_bare("here_relative_pct", "Here, against bare", lambda row: row.here_ratio),
    words("judgement", "Does it hold here?", lambda x: x[1].said),
)  # fmt: skip


def studies_table(figures: Sequence[StudyFigure]) -> Table:
    rows = ((figure, row) for figure in figures for row in figure.rows)
    return table_of("study-2016", "The study of 2016 beside this run", FIELDS, rows)


def here_words(summary: Summary | None) -> str:
    """The median with its interval, or with the range of the runs if there are too few."""
    if summary is None:
        return numbers.NOT_MEASURED
    return numbers.with_spread(summary, "{:.2f}".format)


OPENINGS = (
    (OrderingJudgement.HOLDS, "holds here for"),
    (OrderingJudgement.FAILS, "does not hold here for"),
    (OrderingJudgement.UNSURE, "needs more runs for"),
    (OrderingJudgement.UNMEASURED, "was not measured here for"),
)


def studies_words(figures: Sequence[StudyFigure]) -> str:
    """Which of the study's orderings hold, which do not, and which cannot be judged and why."""
    parts = [f"{verb} {names}" for kind, verb in OPENINGS if (names := _named(figures, kind))]
    said = f"The study's order against bare {'; it '.join(parts)}. " if parts else ""
    unjudged: dict[str, list[StudyFigure]] = {}
    for figure in figures:
        for why in dict.fromkeys(
            r.why for r in figure.rows if r.judgement is OrderingJudgement.UNJUDGED
        ):
            unjudged.setdefault(why, []).append(figure)
    reasons = (f"{_named(of, OrderingJudgement.UNJUDGED)}: {why}" for why, of in unjudged.items())
    return said + (f"It cannot be judged for {'; nor for '.join(reasons)}." if unjudged else "")


def _named(figures: Sequence[StudyFigure], judgement: OrderingJudgement) -> str:
    """`host CPU at 1X (docker, vm) and memory at 1X (docker)`."""
    named = []
    for figure in figures:
        kinds = [r.kind for r in figure.rows if r.judgement is judgement]
        if kinds:
            named.append(f"{figure.published.name} ({', '.join(kinds)})")
    return listed(named)


def _sentences(story: Story) -> Iterator[str]:
    if words := studies_words(study_figures(story, conditions(story))):
        yield words


def _tables(story: Story) -> Iterator[Table]:
    table = studies_table(study_figures(story, conditions(story)))
    if table.rows:
        yield table


SECTION = Section(
    id="study-2016", title="The study of 2016", note=NOTES["study-2016"],
    sentences=_sentences, tables=_tables, place=45, with_search=False,
)  # fmt: skip
