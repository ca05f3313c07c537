"""Each setup against the base under the same condition: what it costs, and whether that is sure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from nodrop.config.units import count_of
from nodrop.report.costs import FIGURES, LOSS_FIGURE, SURE_LOSS, Figure, minus
from nodrop.report.hosts import other_hosts
from nodrop.report.numbers import between
from nodrop.report.sentences import Sentence, phrase
from nodrop.report.setups import SetupCondition, SetupLevel
from nodrop.report.story import Gathered, RunCell
from nodrop.report.tables import Column, Field, Table, Value, number, own, table_of, words
from nodrop.stats.comparison import Advice, Comparison, Relation, compare, more_runs
from nodrop.stats.interval import CONFIDENCE, Family, Interval


def no_number(counted: str = "run") -> str:
    return f"no number of further {counted}s can be promised"


FEWEST_BEYOND = 4
"""Fewer runs lie beyond those of another cell too often by chance to be worth a word."""
MOST_BASES = 40
"""Number of cells up to which every cell can be the base; beyond, the first one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of a cell; `found` is None for the base, and if either was not measured."""

    figure: Figure
    own: Gathered
    base: Gathered
    hosts: bool = False
    """The values are of hosts: several measured either cell."""
    other_hosts: str = ""
    """`b against a`, if other hosts measured the base."""
    found: Comparison | None
    family: Family

    @property
    def answer(self) -> Relation | None:
        return self.found.answer if self.found else None

    @property
    def interval(self) -> Interval | None:
        return self.found.interval if self.found else None

    @property
    def more(self) -> bool:
        """The cell has more than the base; where shares were compared, more often."""
        if self.found is None or not (self.found.by_share or self.figure.of_trials):
            return self.found is not None and self.found.shift > 0
        own, base = (mean(v > 0 for v in one.by_start) for one in (self.own, self.base))
        return own > base

    @property
    def base_median(self) -> float | None:
        return median(self.base.by_start) if self.base.by_start else None

    @property
    def advice(self) -> Advice:
        return more_runs(self.base.by_start, self.own.by_start, self.figure.asked(self.family))

    @property
    def advice_words(self) -> str:
        return more_runs_words(self.advice, "host" if self.hosts else "run")

    @property
    def worst_words(self) -> str:
        """The most that any run lost: a median hides it. Of other figures nothing."""
        if not self.figure.loses or self.own.summary is None:
            return ""
        return f"worst run {self.figure.shown(self.own.summary.high)} %"

    def shift_words(self, unit: str = "") -> str:
        """`+0.42 s [+0.38, +0.47]`, without a verdict."""
        if self.found is None:
            return ""
        signed, interval = self.figure.signed, self.interval
        said = f"{signed(self.found.shift)}{unit and f' {unit}'}"
        return f"{said} {between(interval.low, interval.high, signed)}" if interval else said

    @property
    def relative(self) -> float | None:
        """Shift as a share of the base's median; None if that is 0, or if the figure is a loss."""
        if self.found is None or not self.base_median or self.figure.loses:
            return None
        return self.found.shift / self.base_median

    @property
    def verdict(self) -> str:
        """`different`, `same within 5 %, but for at most 17 % of the runs` or `cannot tell yet (at
        least 3 more runs)`."""
        if self.own is self.base:  # kept with the cell
            return "base"
        if self.found is None:
            return "not measured"
        hosts = f"; other hosts: {self.other_hosts}" if self.other_hosts else ""
        return f"{self._judged(self.found)}{hosts}"

    def _judged(self, comparison: Comparison) -> str:
        by_share = self.figure.of_trials
        match comparison.answer:
            case Relation.DIFFERENT:
                both = by_share or comparison.by_share
                return f"different: {self.lossy_words}" if both else "different"
            case Relation.SAME if by_share:
                most = math.ceil(comparison.apart * 100)
                return f"same: {self.lossy_words}; the shares are at most {most} points apart"
            case Relation.SAME:
                return f"same within {self.figure.margin_words}, {self.but_words}"
            case Relation.CANNOT_TELL if by_share:
                return f"cannot tell yet: {self.lossy_words} ({self.advice_words})"
            case _:
                beyond = f"; so far {self.beyond_words}" if self.beyond_words else ""
                return f"cannot tell yet ({self.advice_words}{beyond})"

    @property
    def lossy_words(self) -> str:
        both = self.own.by_start, self.base.by_start
        own, base = (sum(1 for v in values if v > 0) for values in both)
        alone = both == (self.own.values, self.base.values)
        each = "trials" if self.figure.of_trials else "runs"
        name = "hosts" if self.hosts else each if alone else "starts of the SUT"
        verb = self.figure.verb
        return f"{own} of {len(both[0])} {name} {verb}, in the base {base} of {len(both[1])}"

    @property
    def but_words(self) -> str:
        """Words for what "same" leaves open, at 95 %."""
        share = math.ceil(self.found.apart * 100) if self.found else 100
        return f"but for at most {share} % of the runs"

    @property
    def beyond_words(self) -> str:
        """Words for what the runs show, though they are too few to infer anything from it."""
        own, base = self.own.values, self.base.values
        if min(len(own), len(base)) >= FEWEST_BEYOND:
            if min(own) > max(base):
                return "every run lies above the base's"
            if max(own) < min(base):
                return "every run lies below the base's"
        return ""

    @property
    def evidence(self) -> dict[str, Any]:
        """Plain JSON, in the figure's unit."""
        found, unsure = self.found, self.answer is Relation.CANNOT_TELL
        return {
            "answer": found.answer.value if found else None,
            "difference": found.shift if found else None,
            "interval": [self.interval.low, self.interval.high] if self.interval else None,
            "apart_ratio": found.apart if found else None,
            "n": len(self.own.values),
            "base_n": len(self.base.values),
            "largest": max(self.own.values, default=None),
            "base_largest": max(self.base.values, default=None),
            "more_runs": self.advice.more_runs if unsure else None,
            **({"other_hosts": self.other_hosts} if self.other_hosts else {}),
        }

    @property
    def cell_words(self) -> str:
        """Words of a table's cell; the unit stands in the head of the column."""
        if self.found is None:
            return self.verdict
        worst = f"; {self.worst_words}" if self.worst_words else ""
        if self.answer is Relation.SAME:
            return f"{self.verdict}{worst}"
        worst += f"; other hosts: {self.other_hosts}" if self.other_hosts else ""
        if self.answer is Relation.CANNOT_TELL:
            return f"{self.shift_words()}: cannot tell yet{worst}"
        by_share = f": {self.lossy_words}" if self.found.by_share else ""
        return f"{self.shift_words()}{by_share}{worst}"


def _percent(ratio: float) -> str:
    return minus(f"{ratio * 100:+,.0f}" if abs(ratio) >= 0.1 else f"{ratio * 100:+.1f}")


def figures_of(conditions: Sequence[SetupCondition]) -> tuple[Figure, ...]:
    """Figures that at least two places of a condition have measured."""
    return tuple(
        figure
        for figure in FIGURES
        if any(sum(1 for p in c.places if figure.values(p.cell)) > 1 for c in conditions)
    )


def more_runs_words(advice: Advice, counted: str = "run") -> str:
    """Words for the number of further runs; a guess is called one."""
    if advice.more_runs is None:
        return no_number(counted)
    runs = count_of(advice.more_runs, f"more {counted}")
    return f"at least {runs}" if advice.only_least else f"about {runs}, a guess from these"


def family_words(family: Family, cells: Iterable[RunCell]) -> str:
    counted = "runs (of several hosts: hosts)" if any(len(c.pairs) > 1 for c in cells) else "runs"
    words = {"n": family.parts, "sure": CONFIDENCE, "runs": f"{family.runs_needed()} {counted}"}
    return phrase("at-once", **words)


def compared(base: RunCell, cell: RunCell, figure: Figure, family: Family) -> Compared:
    of_base, of_cell, asked = figure.gathered(base), figure.gathered(cell), figure.asked(family)
    left, right = of_base.by_start, of_cell.by_start
    found = None if cell is base else compare(left, right, asked)
    if figure is LOSS_FIGURE and found is not None and found.answer is Relation.DIFFERENT:
        # It must differ without what late bursts of the sender can explain of it as well.
        more = sum(right) / len(right) > sum(left) / len(left)
        known = SURE_LOSS.gathered(cell if more else base).by_start
        sure = compare(left if more else known, known if more else right, asked)
        if sure is None or sure.answer is not Relation.DIFFERENT:
            found = replace(found, answer=Relation.CANNOT_TELL)
    return Compared(
        figure=figure, own=of_cell, base=of_base, found=found, family=family,
        hosts=any(len(one.pairs) > 1 for one in (base, cell)), other_hosts=other_hosts(base, cell),
    )  # fmt: skip


Side = tuple[SetupCondition, SetupLevel, Compared]


def _signed(name: str, title: str, of: Callable[[Compared], float | None]) -> Field[Side]:
    return own(name, title, lambda x: of(x[2]), lambda x: x[2].figure.signed)


SIDE_FIELDS: tuple[Field[Side], ...] = (
    words("condition", "Condition", lambda x: x[0].label),
    words("setup", "Setup", lambda x: x[1].name),
    words("base", "Base", lambda x: x[0].base.name),
    Field(Column("figure", "Figure"),
          lambda x: Value(x[2].figure.name, f"{x[2].figure.title}, {x[2].figure.unit}")),
    number("n", "n", lambda x: len(x[2].own.values), str),
    own("median", "Median", lambda x: s.median if (s := x[2].own.summary) else None,
        lambda x: x[2].figure.shown),
    own("largest", "Largest run", lambda x: max(x[2].own.values, default=None),
        lambda x: x[2].figure.shown),
    _signed("difference", "Difference", lambda item: item.found.shift if item.found else None),
    _signed("difference_low", "from", lambda item: item.interval.low if item.interval else None),
    _signed("difference_high", "to", lambda item: item.interval.high if item.interval else None),
    number("relative", "Relative", lambda x: x[2].relative, lambda ratio: f"{_percent(ratio)} %"),
    words("verdict", "Verdict", lambda x: x[2].verdict),
)  # fmt: skip


def comparison_table(conditions: Sequence[SetupCondition]) -> Table:
    """A row per condition, setup and figure: for files."""
    sides = (
        (c, place, compared(c.base.cell, place.cell, figure, c.family))
        for c in conditions
        for figure in figures_of(conditions)
        for place in c.places
    )
    return table_of("setups", "Setups against their base", SIDE_FIELDS, sides)


Place = tuple[SetupCondition, SetupLevel]


def verdicts_table(conditions: Sequence[SetupCondition]) -> Table:
    """A row per condition and setup, a column per figure, for a paper: the base's median, then what
    each setup differs by, with its verdict."""

    def of(figure: Figure) -> Field[Place]:
        def value(place: Place) -> Value:
            condition, level = place
            item = compared(condition.base.cell, level.cell, figure, condition.family)
            if level is condition.base and item.base_median is not None:
                return Value(item.base_median, figure.shown(item.base_median))
            return Value(item.cell_words, item.cell_words)

        return Field(Column(figure.name, f"{figure.title}, {figure.unit}"), value)

    first: Sequence[Field[Place]] = (
        words("condition", "Condition", lambda x: x[0].label),
        words("setup", "Setup", lambda x: x[1].name),
    )
    places = [(condition, level) for condition in conditions for level in condition.places]
    fields = (*first[len(conditions) == 1 :], *map(of, figures_of(conditions)))
    return table_of("setups", "Setups against their base (first row)", fields, places)


def cost_sentences(conditions: Sequence[SetupCondition]) -> Iterator[Sentence]:
    """A sentence for each setup that is not the base, under the condition that offered most: first
    what it costs for certain, then what it does not cost, then what more runs would show."""
    if not (figures := figures_of(conditions)):
        return
    heaviest = max(conditions, key=lambda c: c.base.cell.offered_pps or 0.0)
    base, at = heaviest.base, f" at {heaviest.label}" if heaviest.label else ""
    for place in heaviest.places[1:]:
        items = [compared(base.cell, place.cell, figure, heaviest.family) for figure in figures]
        hosts = other_hosts(base.cell, place.cell)
        differ = f"other hosts measured them ({hosts}), so this includes how hosts differ"
        words = (
            *([*_verdicts(items)] or ["no measured trial to compare"]),
            # Only trials that survive are compared.
            *(
                f"{failed} of {failed + len(one.cell.valid)} trials of {one.name} failed and are "
                "in none of these figures"
                for one in (base, place)
                if (failed := len(one.cell.failed))
            ),
            differ if hosts else "",
        )
        yield Sentence(
            "setup-against-base",
            f"{place.name} against {base.name}{at}: {'; '.join(filter(None, words))}.",
            {item.figure.name: item.evidence for item in items if item.found},
            (*base.cell.valid, *place.cell.valid),
            subject=place.name,
        )


def _verdicts(items: Sequence[Compared]) -> Iterator[str]:
    told = {answer: [i for i in items if i.answer is answer] for answer in Relation}
    if different := told[Relation.DIFFERENT]:
        each = (
            _with(
                i,
                f"{_percent(i.relative)} %" if i.relative is not None else "",
                i.lossy_words if i.found and i.found.by_share else "",
                amount=f" {i.shift_words(i.figure.difference_unit)}",
            )
            for i in different
        )
        yield f"different in {', '.join(each)}"
    if same := told[Relation.SAME]:
        most = max(same, key=lambda i: i.found.apart if i.found else 0.0)
        names = ", ".join(_with(i, i.figure.margin_words) for i in same)
        yield f"the same, {most.but_words}, in {names}"
    if unsure := told[Relation.CANNOT_TELL]:
        names = ", ".join(_with(i, i.beyond_words) for i in unsure)
        # The advice that names the most runs, for readers who want all answers.
        named = [i for i in unsure if i.advice.more_runs is not None]
        advice = max(named or unsure[:1], key=lambda i: i.advice.more_runs or 0).advice_words
        some = f"; for some {no_number()}" if named and len(named) < len(unsure) else ""
        yield f"cannot tell yet in {names} ({advice}{some})"


def _with(item: Compared, *more: str, amount: str = "") -> str:
    """The figure as within a sentence (SUT stays SUT), and more about it in brackets."""
    title = item.figure.title
    name = (title if title[:2].isupper() else title[0].lower() + title[1:]) + amount
    of_base = item.figure.shown(max(item.base.values, default=0.0))
    known = item.worst_words and item.base.values
    worst = f"{item.worst_words}, in the base {of_base} %" if known else ""
    said = ", ".join(filter(None, (*more, worst)))
    return f"{name} ({said})" if said else name
