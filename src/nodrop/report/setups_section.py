"""The part of the report that lays setups side by side: figures, tables and words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from nodrop.report import escape, numbers
from nodrop.report.cell_charts import comparison_plot, studies_plot
from nodrop.report.charts import Bar, Part, stacked_bars
from nodrop.report.comparison import compared, comparison_table, family_words, figures_of
from nodrop.report.flows import time_chart
from nodrop.report.sections import Picture, Section, rendered
from nodrop.report.setups import (
    KIND,
    Condition,
    Place,
    conditions,
    instance_bars,
    instances_table,
    setup_names,
    shared,
)
from nodrop.report.story import Cell, Story, factor_label, once
from nodrop.report.studies import studies_table, studies_words, study_figures
from nodrop.report.tables import (
    Column,
    Field,
    Row,
    Table,
    Value,
    interval_fields,
    number,
    numeric,
    scaled,
    table_of,
    text,
    words,
)
from nodrop.report.timeline import (
    CPU_TITLE,
    MEMORY_TITLE,
    RECEIVED,
    USED,
    Panel,
    Series,
    Timeline,
    busy,
    timeline,
)
from nodrop.report.trials import Trial, count_once
from nodrop.results.trial import accelerator_words
from nodrop.stats.interval import Summary, of_hosts, summarize

DECODED, MERGED, HELD, RESIDUAL = "decoded", "merged", "held, never whole", "residual"
MOST_PLACES = 6
"""Styles of losses go round after so many places of loss."""


def ledger_bars(found: Sequence[Condition]) -> list[Bar]:
    lost = _lost_places(found)
    return [
        bar
        for condition in found
        for place in condition.places
        if (bar := _ledger_bars_bar(condition, place, lost)) is not None
    ]


def _lost_places(found: Sequence[Condition]) -> list[str]:
    """Places of loss of all setups together: a place looks alike in every bar."""
    names = {name for c in found for p in c.places for name in shares(p)}
    return sorted(names - {DECODED, MERGED, HELD, RESIDUAL})


def shares(place: Place) -> dict[str, int]:
    """Packets of all measured trials by what became of them; empty if no books closed."""
    if shares not in place.cell.kept:
        place.cell.kept[shares] = _ledger_bars_fates(place.cell)
    found: dict[str, int] = place.cell.kept[shares]
    return found


def _ledger_bars_fates(cell: Cell) -> dict[str, int]:
    total: Counter[str] = Counter()
    for trial in cell.valid:
        r = trial.record
        if r.packets.decoded_packets is None or not r.offered.sent:
            continue
        held = r.packets.merged_detail.held_packets if r.packets.merged_detail else 0
        total[DECODED] += r.packets.decoded_packets
        total[MERGED] += (r.packets.merged_packets or 0) - held
        total[HELD] += held
        total.update({f"lost: {name}": n for name, n in r.packets.lost_by_place.items()})
        total[RESIDUAL] += abs(r.packets.residual_packets or 0)
    return {name: n for name, n in total.items() if n}


def _ledger_bars_bar(condition: Condition, place: Place, lost: Sequence[str]) -> Bar | None:
    found = shares(place)
    whole = sum(found.values())
    if not whole:
        return None
    order = [DECODED, MERGED, HELD, *lost, RESIDUAL]
    parts = tuple(
        Part(
            kind=name,
            value=found[name] / whole * 100,
            says=f"{place.name}{_at(condition)}: {numbers.count(found[name])} of "
            f"{numbers.count(whole)} packets {name} ({numbers.percent(found[name] / whole)} %), "
            f"all measured trials together",
            style=_style(name, lost),
        )
        for name in order
        if found.get(name)
    )
    return Bar(name=place.name, parts=parts, words=_words(found, whole), group=condition.label)


def _at(condition: Condition) -> str:
    return f" at {condition.label}" if condition.label else ""


def _words(found: dict[str, int], whole: int) -> str:
    """Words for what was lost, the largest part first. With a residual nothing can be said of
    it."""
    if residual := found.get(RESIDUAL):
        return f"residual {numbers.percent(residual / whole)} %: no verdict on loss"
    names = sorted(found, key=lambda name: (not name.startswith("lost"), -found[name]))
    lost = [n for n in names if n.startswith("lost")]
    said = [f"{n.removeprefix('lost: ')} {numbers.percent(found[n] / whole)} %" for n in lost]
    return f"lost: {', '.join(said)}" if said else "nothing lost"


def _style(name: str, lost: Sequence[str]) -> str:
    fixed = {DECODED: "p-decoded", MERGED: "p-merged", HELD: "p-held", RESIDUAL: "p-residual"}
    return fixed.get(name) or f"p-lost{lost.index(name) % MOST_PLACES}"


Fate = tuple[Condition, Place, str, int]
FATE_FIELDS: tuple[Field[Fate], ...] = (
    words("condition", "Condition", lambda x: x[0].label),
    words("setup", "Setup", lambda x: x[1].name),
    words("fate", "What became of them", lambda x: x[2]),
    number("packets", "Packets", lambda x: x[3]),
)


def ledger_bars_table(found: Sequence[Condition]) -> Table:
    fates = ((c, p, name, n) for c in found for p in c.places for name, n in shares(p).items())
    return table_of("setups-ledger", "Where the packets went", FATE_FIELDS, fates)


SUSPECTS = ("rdtsc", "cpuid")
"""Instructions that the studies blamed. Both cost more if a hypervisor has to answer for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    setup: str
    ns: Mapping[str, tuple[float, float]]
    """Instruction → best and median of the batches."""
    not_asked: str = ""


def clock_costs(found: Sequence[Condition]) -> list[Costs]:
    """One answer per setup, of the first trial that was asked."""
    listed: dict[str, Costs | None] = {}
    for place in (place for condition in found for place in condition.places):
        setup = _setup(place)
        costs = listed.setdefault(setup, None)
        for trial in place.cell.trials:
            if trial.aside.asks_clock and (costs is None or not costs.ns):
                told: Mapping[str, Any] = trial.details["facts"]["tsc"]
                costs = listed[setup] = _clock_costs_costs(setup, told)
    return [costs for costs in listed.values() if costs is not None]


def _setup(place: Place) -> str:
    """By kind if instances are compared as well: they share one CPU."""
    cell = place.cell
    if KIND not in cell.factors:
        return place.name
    accelerator = accelerator_words(cell.trials)
    return " ".join(filter(None, (factor_label(KIND, cell.factors[KIND]), accelerator)))


def _clock_costs_costs(setup: str, told: Mapping[str, object]) -> Costs:
    ns = told.get("ns")
    return Costs(
        setup=setup,
        ns=dict(_figures(ns)) if isinstance(ns, dict) else {},
        not_asked=escape.plain(told.get("not_asked") or ""),
    )


def _figures(ns: Mapping[str, object]) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, cost in ns.items():
        if isinstance(cost, dict):
            told = [cost.get("best"), cost.get("median")]
            known = [n for n in told if isinstance(n, int | float) and math.isfinite(n)]
            if len(known) == len(told):
                yield escape.plain(name, longest=60), (known[0], known[1])


def costs_words(found: Sequence[Costs]) -> list[str]:
    """Words for what is measured of the two suspects, setup by setup."""
    said = []
    for costs in found:
        if all(name in costs.ns for name in SUSPECTS):
            rdtsc, cpuid = (costs.ns[name][0] for name in SUSPECTS)
            times = f" ({cpuid / rdtsc:.0f} times as much)" if rdtsc and cpuid > 2 * rdtsc else ""
            said.append(f"{costs.setup}: rdtsc {_ns(rdtsc)} ns, cpuid {_ns(cpuid)} ns{times}")
        elif costs.not_asked:
            said.append(f"{costs.setup}: not asked ({costs.not_asked})")
    return said


def costs_table(found: Sequence[Costs]) -> Table:
    """Instructions down, setups across; best of the batches, since all else only adds to it."""
    answered = [costs for costs in found if costs.ns]
    names = list(dict.fromkeys(name for costs in answered for name in costs.ns))
    columns = [Column(name="instruction", title="ns each: best (median)")]
    columns += [numeric(f"{costs.setup} best_ns", costs.setup) for costs in answered]
    rows = tuple(
        Row(values=(text(name), *(_value(costs.ns.get(name)) for costs in answered)))
        for name in names
    )
    return Table(name="tsc", title="The cost of a clock", columns=tuple(columns), rows=rows)


def _value(cost: tuple[float, float] | None) -> Value:
    if cost is None:
        return Value(raw=None, shown="–")
    return Value(raw=cost[0], shown=f"{_ns(cost[0])} ({_ns(cost[1])})")


def _ns(value: float) -> str:
    return f"{value:,.1f}".replace(",", escape.THIN)


PHASES = (
    ("create", ("create", "start", "wire")),
    ("boot", ("boot", "copy_files")),
    ("start program", ("exec",)),
    ("load rules", ("load_rules",)),
    ("open capture", ("open_capture",)),
)
"""Phases that setups and SUTs report, and the ones drawn as one."""
REST = "not split"
LEAST_REST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Activation time of one setup. It does not depend on the load, so all conditions are
    together."""

    setup: str
    whole: Summary
    phases: Mapping[str, Summary]


def activations(found: Sequence[Condition]) -> list[Activation]:
    listed = []
    for name in setup_names(found):
        trials = [t for c in found for p in c.places if p.name == name for t in p.cell.valid]
        timed = [(t.activation_s, t) for t in trials if t.activation_s is not None]
        whole = summarize([took for took, _ in timed], starts=_starts([t for _, t in timed]))
        if whole is not None:
            listed.append(Activation(setup=name, whole=whole, phases=_phases(trials)))
    return listed


def _starts(trials: Sequence[Trial]) -> list[Hashable] | None:
    """Each activation is a start of its own; but those of a host count once, if there are
    several."""
    starts = count_once(trials)
    return starts if of_hosts(starts) else None


def _phases(trials: Sequence[Trial]) -> dict[str, Summary]:
    """A phase that a trial lacks took no time; trials that are not split do not count."""
    both = [(parts, trial) for trial in trials if (parts := phases_of(trial))]
    split, starts = [parts for parts, _ in both], _starts([trial for _, trial in both])
    names = dict.fromkeys([*(name for name, _ in PHASES), *(n for p in split for n in p)])
    found = {
        name: summarize([parts.get(name, 0.0) for parts in split], starts=starts) for name in names
    }
    return {name: s for name, s in found.items() if s is not None and s.high > 0}


def phases_of(trial: Trial) -> dict[str, float]:
    """Seconds by phase, and as `not split` what no phase explains; empty if nothing was split."""
    told, whole = trial.aside.phases_s, trial.activation_s
    if whole is None:
        return {}
    together = {part: name for name, parts in PHASES for part in parts}
    found: dict[str, float] = {}
    for name, took in told.items():
        if isinstance(took, int | float) and math.isfinite(took) and took >= 0:
            phase = together.get(name) or escape.plain(name, longest=40)
            found[phase] = found.get(phase, 0.0) + took
    rest = whole - sum(found.values())
    return {**found, **({REST: rest} if found and rest > LEAST_REST_S else {})}


def phase_names(found: Sequence[Activation]) -> list[str]:
    """In the order in which they pass; those of no setup here are left out."""
    seen = {name for activation in found for name in activation.phases}
    known = [name for name, _ in PHASES if name in seen]
    return [*known, *sorted(seen - {*known, REST}), *([REST] if REST in seen else [])]


def activation_bars(found: Sequence[Activation]) -> list[Bar]:
    names = phase_names(found)
    return [_bar(activation, names) for activation in found]


def _bar(of: Activation, names: Sequence[str]) -> Bar:
    parts = [
        Part(
            kind=name,
            value=of.phases[name].median,
            says=f"{of.setup}, {name}: {summary_words(of.phases[name])}",
            style="p-rest" if name == REST else f"p-phase{names.index(name) % 5}",
        )
        for name in names
        if name in of.phases
    ]
    if not parts:
        said = f"{of.setup}: {summary_words(of.whole)}"
        parts = [Part(kind=REST, value=of.whole.median, says=said, style="p-rest")]
    interval = of.whole.interval
    return Bar(
        name=of.setup,
        parts=tuple(parts),
        words=summary_words(of.whole),
        interval=(interval.low, interval.high) if interval else None,
    )


def summary_words(found: Summary) -> str:
    return numbers.with_spread(found, numbers.seconds, " s")


def phases_page_table(found: Sequence[Activation]) -> Table:
    """Setups down, phases across."""

    def phase(name: str) -> Field[Activation]:
        def value(of: Activation) -> Value:
            return _cell(of.whole if name == "all" else of.phases.get(name))

        return Field(column=numeric(name, f"{name}, s"), of=value)

    fields: list[Field[Activation]] = [
        words("setup", "Setup", lambda of: of.setup),
        number("n", "n", lambda of: of.whole.n, str),
        *map(phase, ["all", *phase_names(found)]),
    ]
    title = "Medians, with their 95 % interval or the range of the runs"
    return table_of("phases", title, fields, found)


def _cell(found: Summary | None) -> Value:
    if found is None:
        return scaled(None, numbers.seconds)
    return Value(raw=found.median, shown=numbers.with_spread(found, numbers.seconds))


Phase = tuple[Activation, str, Summary]
PHASE_FIELDS: tuple[Field[Phase], ...] = (
    words("setup", "Setup", lambda x: x[0].setup),
    words("phase", "Phase", lambda x: x[1]),
    number("n", "n", lambda x: x[2].n),
    *interval_fields(
        ("median_s", "low_s", "high_s"),
        ("Median, s", "95 % interval from, s", "to, s"),
        lambda x: x[2],
        numbers.seconds,
    ),
)


def activation_table(found: Sequence[Activation]) -> Table:
    phases = ((a, *one) for a in found for one in (("all", a.whole), *a.phases.items()))
    return table_of("activation", "Activation by phase", PHASE_FIELDS, phases)


STUDY, OVER_TIME = "study-2016", "setups-time-"
MOST_OVERLAYS = 6
MOST_LINES = 8
FROM_S = -1.0
"""Time at which overlays begin, in seconds since the first packet: before that lies a guest's
discarded load, which the others have not."""


def setups_pictures(story: Story) -> Iterator[Picture]:
    """Every figure of the section."""
    found = conditions(story)
    if not found:
        return
    listed, instances = activations(found), shared(story)
    study = study_figures(story, found)
    yield Picture(name="setups", chart=comparison_plot(found), table=comparison_table(found))
    fates = "Where the packets of each setup went", "% of the packets sent, all measured trials"
    chart = stacked_bars(*fates, ledger_bars(found))
    yield Picture(name="setups-ledger", chart=chart, table=ledger_bars_table(found))
    times = "From the launch to a SUT that listens", "seconds, medians over all measured trials"
    chart = stacked_bars(*times, activation_bars(listed), order=phase_names(listed))
    yield Picture(name="activation", chart=chart, table=activation_table(listed))
    if instances:
        falls = "How the packets fall on several instances", "% of the packets received"
        chart = stacked_bars(*falls, instance_bars(instances), high=100)
        yield Picture(name="instances", chart=chart, table=instances_table(instances))
    yield from _over_time(story, found)
    if study:
        yield Picture(name=STUDY, chart=studies_plot(study), table=studies_table(study))


@once
def _drawn(story: Story) -> Mapping[str, Picture]:
    return {picture.name: picture for picture in setups_pictures(story)}


def setups_tables(story: Story) -> Iterator[Table]:
    """Every table of the section that has something to say, for files."""
    drawn = _drawn(story)
    for name in ("setups", "activation", "instances", STUDY):
        if name in drawn and drawn[name].table.rows:
            yield drawn[name].table
    if (clock := costs_table(clock_costs(conditions(story)))).rows:
        yield clock


def _over_time(story: Story, found: Sequence[Condition]) -> Iterator[Picture]:
    """The typical trial of each setup, their first packets at 0 s; the heaviest load first."""
    styles = {name: style for style, name in enumerate(setup_names(found))}
    heaviest = sorted(found, key=lambda c: -(c.base.cell.offered_pps or 0.0))[:MOST_OVERLAYS]
    for n, condition in enumerate(heaviest, 1):
        lines = []
        for place in condition.places[:MOST_LINES]:
            trial = place.cell.typical
            if line := timeline(story.sources[trial.source], trial):
                lines.append((place.name, line))
        if len(lines) > 1:
            together = Timeline(panels=tuple(_panels(lines, styles)), marks=())
            chart = time_chart([together], f"CPU and memory over time{_at(condition)}")
            yield Picture(name=f"{OVER_TIME}{n}", chart=chart, table=together.table())


def _panels(lines: Sequence[tuple[str, Timeline]], styles: Mapping[str, int]) -> Iterator[Panel]:
    """A setup has the style that it has in every other figure, whoever else is drawn."""

    def named(name: str, series: Series | None, style: int | None = None) -> list[Series]:
        points = tuple(p for p in series.points if p[0] >= FROM_S) if series else ()
        given = styles[name] if style is None else style
        return [Series(name=name, points=points, style=given)] if points else []

    received = [s for name, line in lines for s in named(name, line.series(RECEIVED))]
    host = [s for name, line in lines for s in named(name, _host(line))]
    own = [s for name, line in lines for s in named(name, line.own_cpu)]
    memory = [s for name, line in lines for s in named(name, line.series(MEMORY_TITLE))]
    inside = ((name, found) for name, line in lines if (found := _inside(line)))
    for style, (name, used) in enumerate(inside, len(styles)):
        memory += named(f"{name}: inside", used, style)
    for title, unit, high, series in (
        ("Received", "packets/s", None, received),
        ("Host CPU, all of it", "%", 100.0, host),
        ("SUT CPU", "% of one CPU", None, own),
        ("Memory: resident on the host, used inside", "MiB", None, memory),
    ):
        if series:
            yield Panel(title=title, unit=unit, series=tuple(series), high=high)


def _inside(line: Timeline) -> Series | None:
    """Memory used within a guest, if it was sampled from within."""
    inside = (p for p in line.panels if p.title.startswith(f"{MEMORY_TITLE} inside"))
    return next((s for panel in inside for s in panel.series if s.name == USED), None)


def _host(line: Timeline) -> Series | None:
    return next((busy(panel) for panel in line.panels if panel.title == CPU_TITLE), None)


def _page(story: Story) -> Markup:
    """Empty if the run has only one setup."""
    found = conditions(story)
    if not found:
        return Markup("")
    drawn, clocks = _drawn(story), clock_costs(found)
    return rendered(
        "nodrop.report",
        "setups.html.j2",
        story,
        conditions=found,
        figures=figures_of(found),
        compared=compared,
        family=family_words(found[0].family, story.cells),
        emulated=dict.fromkeys(p.name for c in found for p in c.places if p.emulated),
        drawn=drawn,
        over_time=[one for name, one in drawn.items() if name.startswith(OVER_TIME)],
        phases=phases_page_table(activations(found)),
        study_words=studies_words(study_figures(story, found)),
        clock=costs_table(clocks),
        clock_words=costs_words(clocks),
    )


SECTION = Section(
    id="setups", title="Setups", tables=setups_tables,
    pictures=lambda story: _drawn(story).values(), page=_page, place=40, with_search=False,
)  # fmt: skip
