"""Each setup against the base under the same condition: what it costs, and whether that is sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodrop.report import numbers
from nodrop.report.costs import FIGURES, LOSS, Figure, grouped
from nodrop.report.setups import Condition
from nodrop.report.story import Cell
from nodrop.report.tables import Column, Row, Table, Value, text
from nodrop.stats.comparison import Answer, Comparison, compare
from nodrop.stats.interval import Interval, Summary, summarize

MOST_BASES = 40
"""Every cell can be the base up to so many cells; beyond, the first one is."""
DIFFERENCES = tuple(
    f for f in FIGURES if f.name in (LOSS, "sut_cpu_s", "memory_mib", "activation_s")
)
"""Of cells that differ in whatever the matrix varies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of a cell; `found` is None for the base and where either was not measured."""

    figure: Figure
    is_base: bool
    summary: Summary | None
    found: Comparison | None
    base_median: float | None

    @property
    def median_words(self) -> str:
        if self.summary is None:
            return "not measured"
        return f"{self.figure.shown(self.summary.median)} {self.figure.unit}"

    @property
    def spread_words(self) -> str:
        """The interval of the median, or the range of the runs: `[1, 2]`, or `1 to 2`."""
        if self.summary is None:
            return ""
        if interval := self.summary.interval:
            return _between(interval, self.figure.shown)
        if self.summary.n == 1:
            return "one run"
        low, high = self.figure.shown(self.summary.low), self.figure.shown(self.summary.high)
        if low == high:
            return "in each run"
        return f"{low} to {high}"

    @property
    def shift_words(self) -> str:
        """`+0.42 s [+0.38, +0.47]`, without a verdict."""
        if self.found is None:
            return ""
        said = f"{self.figure.signed(self.found.shift)} {self.figure.difference_unit}"
        if interval := self.found.interval:
            said += f" {_between(interval, self.figure.signed)}"
        return said

    @property
    def relative(self) -> float | None:
        """Of the base's median; None where that is 0, or a loss: nothing is a hundred per cent."""
        if self.found is None or not self.base_median or self.figure.name == LOSS:
            return None
        return self.found.shift / self.base_median

    @property
    def relative_words(self) -> str:
        if self.relative is None or self.found is None or not self.base_median:
            return ""
        said = f"{_percent(self.relative)} %"
        if interval := self.found.interval:
            low, high = interval.low / self.base_median, interval.high / self.base_median
            said += f" [{_percent(low)}, {_percent(high)}]"
        return said

    @property
    def verdict(self) -> str:
        """`different`, `same within 5 %` or `cannot tell yet (about 3 more runs)`."""
        if self.is_base:
            return "base"
        if self.found is None:
            return "not measured"
        match self.found.answer:
            case Answer.DIFFERENT:
                return "different"
            case Answer.SAME:
                return f"same within {self.figure.margin_words}"
            case Answer.CANNOT_TELL:
                return f"cannot tell yet ({more_runs_words(self.found)})"

    @property
    def mark(self) -> str:
        """A sign beside the word, for those who skim."""
        if self.found is None:
            return ""
        signs = {Answer.DIFFERENT: "≠", Answer.SAME: "=", Answer.CANNOT_TELL: "?"}
        return signs[self.found.answer]


def _between(interval: Interval, shown: Callable[[float], str]) -> str:
    return f"[{shown(interval.low)}, {shown(interval.high)}]"


def _percent(ratio: float) -> str:
    return grouped(f"{ratio * 100:+,.0f}" if abs(ratio) >= 0.1 else f"{ratio * 100:+.1f}")


def figures_of(found: Sequence[Condition]) -> tuple[Figure, ...]:
    """Those that at least two places of a condition have measured."""
    return tuple(
        figure
        for figure in FIGURES
        if any(sum(1 for p in c.places if figure.values(p.cell)) > 1 for c in found)
    )


def more_runs_words(found: Comparison) -> str:
    more = found.more_runs
    return f"about {more} more run{'s' if more != 1 else ''}" if more else "too near to the margin"


def compared(base: Cell, cell: Cell, figure: Figure) -> Compared:
    values = figure.values(base)
    middle, own = summarize(values), figure.values(cell)
    found = None
    if cell is not base and middle is not None:
        found = compare(values, own, margin=figure.margin(middle.median))
    return Compared(
        figure=figure,
        is_base=cell is base,
        summary=summarize(own),
        found=found,
        base_median=middle.median if middle else None,
    )


def differences(cells: Sequence[Cell], base: int) -> list[list[str]]:
    """For every cell the words of each figure; the base's own row says that it is the base."""
    return [
        [_words(compared(cells[base], cell, figure)) for figure in DIFFERENCES] for cell in cells
    ]


def _words(item: Compared) -> str:
    """The unit stands in the head of the column."""
    if item.found is None or item.found.answer is Answer.SAME:
        return item.verdict
    between = item.found.interval
    shift = item.figure.signed(item.found.shift)
    shift += f" {_between(between, item.figure.signed)}" if between else ""
    return shift if item.found.answer is Answer.DIFFERENT else f"{shift}: {item.verdict}"


COLUMNS = (
    *(Column(name=n, title=n.capitalize()) for n in ("condition", "setup", "base", "figure")),
    Column(name="n", title="n", numeric=True),
    Column(name="median", title="Median", numeric=True),
    Column(name="difference", title="Difference", numeric=True),
    Column(name="difference_low", title="from", numeric=True),
    Column(name="difference_high", title="to", numeric=True),
    Column(name="relative", title="Relative", numeric=True),
    Column(name="verdict", title="Verdict"),
)


def comparison_table(found: Sequence[Condition]) -> Table:
    """A row per condition, setup and figure: for files."""
    rows = [
        Row(
            values=(
                *map(text, (c.label, place.name, c.base.name, figure.name)),
                *_numbers(compared(c.base.cell, place.cell, figure)),
            )
        )
        for c in found
        for figure in figures_of(found)
        for place in c.places
    ]
    return Table(
        name="setups", title="Setups against their base", columns=COLUMNS, rows=tuple(rows)
    )


def _numbers(item: Compared) -> Iterator[Value]:
    n = item.summary.n if item.summary else 0
    yield Value(raw=n, shown=str(n))
    yield _value(item.summary.median if item.summary else None, item.figure.shown)
    shift = item.found.shift if item.found else None
    interval = item.found.interval if item.found else None
    for value in (shift, *((interval.low, interval.high) if interval else (None, None))):
        yield _value(value, item.figure.signed)
    yield _value(item.relative, lambda ratio: f"{_percent(ratio)} %")
    yield text(item.verdict)


def _value(value: float | None, shown: Callable[[float], str]) -> Value:
    return Value(raw=value, shown=numbers.NOT_MEASURED if value is None else shown(value))


def cost_sentences(found: Sequence[Condition]) -> list[tuple[str, str]]:
    """Setup and sentence of each that is not the base, where most was asked of it: first what it
    costs for certain, then what it does not cost, then what more runs would tell."""
    figures = figures_of(found)
    if not found or not figures:
        return []
    heaviest = max(found, key=lambda c: c.base.cell.offered_pps or 0.0)
    at = f" at {heaviest.label}" if heaviest.label else ""
    said = []
    for place in heaviest.places[1:]:
        items = [compared(heaviest.base.cell, place.cell, figure) for figure in figures]
        words = "; ".join(_verdicts(items)) or "no valid trial to compare"
        said.append((place.name, f"{place.name} against {heaviest.base.name}{at}: {words}."))
    return said


def _verdicts(items: Sequence[Compared]) -> Iterator[str]:
    told = {answer: [i for i in items if i.found and i.found.answer is answer] for answer in Answer}
    if different := told[Answer.DIFFERENT]:
        yield "different in " + ", ".join(_difference(item) for item in different)
    if same := told[Answer.SAME]:
        yield "the same in " + ", ".join(f"{_name(i)} ({i.figure.margin_words})" for i in same)
    if unsure := told[Answer.CANNOT_TELL]:
        more = [i.found.more_runs for i in unsure if i.found and i.found.more_runs]
        most = "up to about" if len(set(more)) > 1 else "about"
        hint = f" ({most} {max(more)} more run{'s' if max(more) > 1 else ''})" if more else ""
        yield "cannot tell yet in " + ", ".join(map(_name, unsure)) + hint


def _difference(item: Compared) -> str:
    relative = f" ({_percent(item.relative)} %)" if item.relative is not None else ""
    return f"{_name(item)} {item.shift_words}{relative}"


def _name(item: Compared) -> str:
    """Within a sentence: SUT stays SUT."""
    title = item.figure.title
    return title if title[:2].isupper() else title[0].lower() + title[1:]
