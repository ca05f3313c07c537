"""The study of 2016 beside this run: what holds here, what does not, what cannot be judged.

Other hosts, another trace, another Suricata: nothing but direction is compared, each setup against
bare of its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.report import numbers
from nodrop.report.difference import RELATIVE_MARGIN, more_runs_words
from nodrop.report.setups import BASE_KIND, KIND, Condition, Place
from nodrop.report.story import Story, Trial
from nodrop.report.tables import Column, Row, Table, Value, text
from nodrop.results.study_2016 import MME_ACTIVATION_S, PUBLISHED
from nodrop.stats.comparison import Answer, Comparison, compare
from nodrop.stats.interval import Summary, summarize

LOAD, FLOWS, SAME_FLOWS = "load.multiplier", "load.flows", "same"
STUDIED_SUT = "suricata"


Figure = Callable[[Trial], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    title: str
    load: int
    by_setup: Mapping[str, float]


def _table(number: str) -> dict[str, float]:
    return {setup: mean for (table, setup), (mean, _) in PUBLISHED.items() if table == number}


HOST_CPU = (
    _Published(title="Host CPU at 1X, % of one core", load=1, by_setup=_table("III")),
    _Published(title="Host CPU at 2X, % of one core", load=2, by_setup=_table("IV")),
)
MEMORY = _Published(
    title="Memory at 1X; 2016: % of the host, here: MiB of the SUT", load=1, by_setup=_table("II")
)


def busy_cores_pct(trial: Trial) -> float | None:
    """CPU of the whole host while the load was offered, as the study counted it: % of one core."""
    usage, ratio = trial.details.get("usage"), trial.record.host_cpu_ratio
    try:
        cores = len(usage["sampler"]["first"]["cpus"]) if isinstance(usage, dict) else 0
    except (LookupError, TypeError):
        return None
    return ratio * cores * 100 if cores and ratio is not None else None


def memory_mib(trial: Trial) -> float | None:
    found = trial.record.sut_rss_peak_bytes
    return None if found is None else found / 2**20


COLUMNS = (
    Column(name="figure", title="Figure"),
    Column(name="setup", title="Setup"),
    Column(name="published", title="2016", numeric=True),
    Column(name="published_relative_pct", title="2016, against bare", numeric=True),
    Column(name="here", title="Here", numeric=True),
    Column(name="here_relative_pct", title="Here, against bare", numeric=True),
    Column(name="judgement", title="Does it hold here?"),
)


def studies_table(story: Story, found: Sequence[Condition]) -> Table | None:
    """None where the run does not ask the study's question, at one of its loads."""
    loads = {published.load for published in HOST_CPU}
    studied = [
        c
        for c in found
        if c.base.cell.factors.get(KIND) == BASE_KIND and c.base.cell.factors.get(LOAD) in loads
    ]
    kinds = {_kind(place) for c in studied for place in c.places}
    if not studied or not kinds & (set(HOST_CPU[0].by_setup) - {BASE_KIND}):
        return None
    if not any(STUDIED_SUT in source.sut_names for source in story.sources):
        return None
    rows: list[Row] = []
    for published in HOST_CPU:
        rows += _rows(published, _at(studied, published.load), busy_cores_pct)
    rows += _rows(MEMORY, _at(studied, MEMORY.load), memory_mib)
    rows += _mme_rows()
    return Table(
        name="study-2016", title="The study of 2016 beside this run", columns=COLUMNS,
        rows=tuple(rows),
    )  # fmt: skip


def _kind(place: Place) -> str:
    return str(place.cell.factors.get(KIND))


def _at(found: Sequence[Condition], load: int) -> Condition | None:
    """Its load, with identical copies where the run has them, as the study sent them."""
    loaded = [c for c in found if c.base.cell.factors.get(LOAD) == load]
    same = [c for c in loaded if c.base.cell.factors.get(FLOWS) == SAME_FLOWS]
    return next(iter(same or loaded), None)


def _rows(published: _Published, condition: Condition | None, figure: Figure) -> Iterator[Row]:
    places = {} if condition is None else {_kind(p): p for p in condition.places}
    base = _values(places.get(BASE_KIND), figure)
    for setup, mean in published.by_setup.items():
        place = places.get(setup)
        values = _values(place, figure)
        middle = summarize(base)
        found = None
        if setup != BASE_KIND and middle:
            found = compare(base, values, margin=abs(middle.median) * RELATIVE_MARGIN)
        there = mean / published.by_setup[BASE_KIND] - 1
        here = found.shift / middle.median if found and middle and middle.median else None
        yield Row(
            values=(
                text(published.title),
                text(setup if place is None else place.name),
                Value(raw=mean, shown=f"{mean:.2f}"),
                _relative(None if setup == BASE_KIND else there),
                _here(summarize(values)),
                _relative(here),
                text(_judgement(setup, place, there, found)),
            )
        )


def _values(place: Place | None, figure: Figure) -> list[float]:
    if place is None:
        return []
    return [value for trial in place.cell.valid if (value := figure(trial)) is not None]


def _here(found: Summary | None) -> Value:
    if found is None:
        return Value(raw=None, shown=numbers.NOT_MEASURED)
    said = f"{found.median:.1f}"
    if interval := found.interval:
        said += f" [{interval.low:.1f}, {interval.high:.1f}]"
    return Value(raw=found.median, shown=said)


def _relative(ratio: float | None) -> Value:
    if ratio is None:
        return Value(raw=None, shown="")
    said = f"{ratio * 100:+,.0f} %" if abs(ratio) >= 0.1 else f"{ratio * 100:+.1f} %"
    return Value(raw=ratio * 100, shown=said.replace(",", "\u202f").replace("-", "−"))


def _judgement(setup: str, place: Place | None, there: float, found: Comparison | None) -> str:
    if setup == BASE_KIND:
        return "the base of both"
    if place is not None and place.emulated:
        return "cannot be judged: this guest is emulated (TCG), the study's ran on KVM"
    if found is None:
        return "not measured here"
    match found.answer:
        case Answer.CANNOT_TELL:
            return f"cannot tell yet ({more_runs_words(found)})"
        case Answer.SAME:
            within = f"within {RELATIVE_MARGIN * 100:.0f} %"
            if abs(there) <= RELATIVE_MARGIN:
                return f"holds: {within} of bare there and here"
            return f"does not hold: {within} of bare here"
        case Answer.DIFFERENT:
            more = "more" if found.shift > 0 else "less"
            return f"{'holds' if found.shift * there > 0 else 'does not hold'}: {more} here"


def _mme_rows() -> Iterator[Row]:
    base = MME_ACTIVATION_S[BASE_KIND]
    for setup, seconds in MME_ACTIVATION_S.items():
        there = None if setup == BASE_KIND else seconds / base - 1
        none = Value(raw=None, shown=numbers.NOT_MEASURED)
        yield Row(
            values=(
                text("Activation of an MME, s"),
                text(setup),
                Value(raw=seconds, shown=f"{seconds:.2f}"),
                _relative(there),
                none,
                _relative(None),
                text("cannot be judged: this run measures no MME"),
            )
        )


def studies_words(table: Table) -> str:
    """How many of the study's differences hold, in a sentence."""
    said = [str(row.values[-1].raw) for row in table.rows]
    holds, fails = (sum(1 for s in said if s.startswith(w)) for w in ("holds", "does not hold"))
    open_ = sum(1 for s in said if s.startswith("cannot tell yet"))
    unjudged = sum(1 for s in said if s.startswith(("cannot be judged", "not measured")))
    return (
        f"Of the study's differences to bare {holds} hold here, {fails} do not, {open_} need more "
        f"runs, and {unjudged} cannot be judged from this run."
    )
