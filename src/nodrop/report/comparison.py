"""Each setup against the base under the same condition: what it costs, and whether that is sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodrop.report import numbers
from nodrop.report.difference import LOSS_MARGIN, RELATIVE_MARGIN, more_runs_words
from nodrop.report.escape import THIN
from nodrop.report.setups import Condition, Place
from nodrop.report.story import Cell, Trial
from nodrop.report.tables import Column, Row, Table, Value, text
from nodrop.stats.comparison import Answer, Comparison, compare
from nodrop.stats.interval import Interval, Summary, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing a setup may cost."""

    name: str
    """With its unit, as the csv has it."""
    title: str
    unit: str
    scale: float
    digits: int
    of: Callable[[Trial], float | None]
    help: str
    points: bool = False
    """A share of something: differences are in percentage points."""

    @property
    def difference_unit(self) -> str:
        return "points" if self.points else self.unit

    def values(self, cell: Cell) -> list[float]:
        found = (self.of(trial) for trial in cell.valid)
        return [value * self.scale for value in found if value is not None]

    def shown(self, value: float) -> str:
        return _grouped(f"{value:,.{self.digits}f}") if value else "0"

    def signed(self, value: float) -> str:
        """What is rounded to nothing has no sign."""
        said = f"{value:+,.{self.digits}f}"
        return _grouped(said if said.strip("+-0.") else said[1:]) if value else "0"


def _grouped(text: str) -> str:
    return text.replace(",", THIN).replace("-", "−")


def _anonymous_bytes(trial: Trial) -> float | None:
    usage = trial.details.get("usage")
    group = usage.get("cgroup") if isinstance(usage, dict) else None
    found = group.get("anon_peak_bytes") if isinstance(group, dict) else None
    return float(found) if isinstance(found, int) else None


FIGURES = (
    Figure(
        name="loss_pct",
        title="Loss",
        unit="%",
        scale=100,
        digits=2,
        of=lambda t: t.record.loss_ratio,
        help="lost of sent packets",
        points=True,
    ),
    Figure(
        name="host_cpu_pct",
        title="Host CPU",
        unit="%",
        scale=100,
        digits=1,
        of=lambda t: t.record.host_cpu_ratio,
        help="busy share of all CPUs of the receiving host while the load was offered, whoever "
        "used it: the sender and other programs as well",
        points=True,
    ),
    Figure(
        name="sut_cpu_s",
        title="SUT CPU",
        unit="s",
        scale=1,
        digits=2,
        of=lambda t: t.record.sut_cpu_s,
        help="of the SUT from the first packet to the end of the drain; of a guest all that its "
        "machine uses",
    ),
    Figure(
        name="setup_cpu_s",
        title="Setup CPU",
        unit="s",
        scale=1,
        digits=2,
        of=lambda t: t.record.setup_cpu_s,
        help="of the SUT and of all that works for it on the host in that time: shim, daemons, "
        "emulator, vhost threads",
    ),
    Figure(
        name="memory_mib",
        title="Peak memory",
        unit="MiB",
        scale=2**-20,
        digits=1,
        of=lambda t: t.record.sut_rss_peak_bytes,
        help="resident pages of the SUT; of a guest those of its machine on the host",
    ),
    Figure(
        name="anonymous_mib",
        title="Anonymous memory",
        unit="MiB",
        scale=2**-20,
        digits=1,
        of=_anonymous_bytes,
        help="peak in the setup's own control group, without the page cache",
    ),
    Figure(
        name="activation_s",
        title="Activation",
        unit="s",
        scale=1,
        digits=2,
        of=lambda t: t.record.activation_s,
        help="launch call to SUT ready",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one place; `found` is None for the base and where either was not measured."""

    figure: Figure
    place: Place
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
        if self.found is None or not self.base_median or self.figure.name == "loss_pct":
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
                return f"same within {_margin_words(self.figure)}"
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
    return _grouped(f"{ratio * 100:+,.0f}" if abs(ratio) >= 0.1 else f"{ratio * 100:+.1f}")


def _margin_words(figure: Figure) -> str:
    if figure.name == "loss_pct":
        return f"{LOSS_MARGIN * 100:.1f} points"
    return f"{RELATIVE_MARGIN * 100:.0f} %"


def figures_of(found: Sequence[Condition]) -> tuple[Figure, ...]:
    """Those that at least two places of a condition have measured."""
    return tuple(
        figure
        for figure in FIGURES
        if any(sum(1 for p in c.places if figure.values(p.cell)) > 1 for c in found)
    )


def compared(condition: Condition, place: Place, figure: Figure) -> Compared:
    base, values = figure.values(condition.base.cell), figure.values(place.cell)
    is_base = place is condition.base
    middle = summarize(base)
    found = None
    if not is_base and middle is not None:
        loss = figure.name == "loss_pct"
        margin = LOSS_MARGIN * 100 if loss else abs(middle.median) * RELATIVE_MARGIN
        found = compare(base, values, margin=margin)
    return Compared(
        figure=figure,
        place=place,
        is_base=is_base,
        summary=summarize(values),
        found=found,
        base_median=middle.median if middle else None,
    )


COLUMNS = (
    Column(name="condition", title="Condition"),
    Column(name="setup", title="Setup"),
    Column(name="base", title="Base"),
    Column(name="figure", title="Figure"),
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
        _row(condition, compared(condition, place, figure))
        for condition in found
        for figure in figures_of(found)
        for place in condition.places
    ]
    return Table(
        name="setups", title="Setups against their base", columns=COLUMNS, rows=tuple(rows)
    )


def _row(condition: Condition, item: Compared) -> Row:
    figure, comparison = item.figure, item.found
    interval = comparison.interval if comparison else None
    return Row(
        values=(
            text(condition.label),
            text(item.place.name),
            text(condition.base.name),
            text(figure.name),
            Value(raw=n, shown=str(n)) if (n := _n(item)) else Value(raw=0, shown="0"),
            _value(item.summary.median if item.summary else None, figure.shown),
            _value(comparison.shift if comparison else None, figure.signed),
            _value(interval.low if interval else None, figure.signed),
            _value(interval.high if interval else None, figure.signed),
            _value(item.relative, lambda ratio: f"{_percent(ratio)} %"),
            text(item.verdict),
        )
    )


def _n(item: Compared) -> int:
    return item.summary.n if item.summary else 0


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
        items = [compared(heaviest, place, figure) for figure in figures]
        words = "; ".join(_verdicts(items)) or "no valid trial to compare"
        said.append((place.name, f"{place.name} against {heaviest.base.name}{at}: {words}."))
    return said


def _verdicts(items: Sequence[Compared]) -> Iterator[str]:
    told = {answer: [i for i in items if i.found and i.found.answer is answer] for answer in Answer}
    if different := told[Answer.DIFFERENT]:
        yield "different in " + ", ".join(_difference(item) for item in different)
    if same := told[Answer.SAME]:
        yield "the same in " + ", ".join(f"{_name(i)} ({_margin_words(i.figure)})" for i in same)
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
