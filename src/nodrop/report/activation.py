"""From the launch call to a SUT that listens: which part of it each setup spends on what."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.report import escape, numbers
from nodrop.report.charts import Bar, Part
from nodrop.report.setups import Condition, setup_names
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.report.trials import Trial, count_once
from nodrop.stats.interval import Summary, of_hosts, summarize

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
    """Of one setup: activation does not depend on the load, so all conditions are together."""

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
    said = f"{numbers.seconds(found.median)} s"
    if interval := found.interval:
        return f"{said} {numbers.between(interval.low, interval.high, numbers.seconds)}"
    if found.n == 1:
        return f"{said} (one run)"
    return f"{said} ({numbers.seconds(found.low)} to {numbers.seconds(found.high)})"


def phases_page_table(found: Sequence[Activation]) -> Table:
    """Setups down, phases across."""
    names = phase_names(found)
    columns = [Column(name="setup", title="Setup"), numeric("n", "n")]
    columns += [numeric(name, f"{name}, s") for name in ["all", *names]]
    rows = tuple(
        Row(
            values=(
                text(activation.setup),
                Value(raw=activation.whole.n, shown=str(activation.whole.n)),
                *(_cell(each) for each in (activation.whole, *map(activation.phases.get, names))),
            )
        )
        for activation in found
    )
    title = "Medians, with their 95 % interval or the range of the runs"
    return Table(name="phases", title=title, columns=tuple(columns), rows=rows)


def _cell(found: Summary | None) -> Value:
    if found is None:
        return Value(raw=None, shown=numbers.NOT_MEASURED)
    return Value(raw=found.median, shown=summary_words(found).replace(" s", "", 1))


def activation_table(found: Sequence[Activation]) -> Table:
    return Table(
        name="activation",
        title="Activation by phase",
        columns=(
            Column(name="setup", title="Setup"),
            Column(name="phase", title="Phase"),
            numeric("n", "n"),
            numeric("median_s", "Median, s"),
            numeric("low_s", "95 % interval from, s"),
            numeric("high_s", "to, s"),
        ),
        rows=tuple(_rows(found)),
    )


def _rows(found: Sequence[Activation]) -> Iterator[Row]:
    for activation in found:
        for name, summary in [("all", activation.whole), *activation.phases.items()]:
            yield Row(
                values=(
                    text(activation.setup),
                    text(name),
                    Value(raw=summary.n, shown=str(summary.n)),
                    *with_ends(summary, numbers.seconds),
                )
            )
