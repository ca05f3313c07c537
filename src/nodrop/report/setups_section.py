"""The section that lays setups side by side: tables, and their typical trials over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from markupsafe import Markup

from nodrop.answer.finding import WORDS
from nodrop.report import escape, numbers
from nodrop.report.charts import time_chart
from nodrop.report.comparison import comparison_table, family_words
from nodrop.report.costs import minus
from nodrop.report.sections import Picture, Section
from nodrop.report.sentences import phrase
from nodrop.report.setups import KIND, SetupCondition, SetupLevel, conditions
from nodrop.report.story import RunCell, Story, by_key, factor_label, once
from nodrop.report.tables import (
    Field,
    Table,
    Value,
    interval_fields,
    number,
    numeric,
    table_of,
    words,
)
from nodrop.report.timeline import numbers_of, timeline
from nodrop.report.trials import StoredTrial, count_once
from nodrop.results.trial import accelerator_words
from nodrop.stats.interval import Summary, of_hosts, summarize

DECODED, MERGED, HELD, RESIDUAL = "decoded", "merged", "held, never whole", "residual"


@once
def shares(cell: RunCell) -> dict[str, int]:
    """Packets of all measured trials by what became of them; empty if no books closed."""
    total: Counter[str] = Counter()
    for packets, sent in ((t.record.packets, t.record.offered.sent) for t in cell.valid):
        if packets.decoded_packets is not None and sent:
            held = packets.merged_detail.held_packets if packets.merged_detail else 0
            total.update(
                {
                    DECODED: packets.decoded_packets,
                    MERGED: (packets.merged_packets or 0) - held,
                    HELD: held,
                    **{f"lost: {name}": n for name, n in packets.lost_by_place.items()},
                    RESIDUAL: abs(packets.residual_packets or 0),
                }
            )
    return {name: n for name, n in total.items() if n}


Fate = tuple[SetupCondition, SetupLevel, str, int]
FATE_FIELDS: tuple[Field[Fate], ...] = (
    words("condition", "Condition", lambda x: x[0].label),
    words("setup", "Setup", lambda x: x[1].name),
    words("fate", "What became of them", lambda x: x[2]),
    number("packets", "Packets", lambda x: x[3]),
    number("share_pct", "Share, %", lambda x: x[3] / sum(shares(x[1].cell).values()),
           numbers.percent, scale=100, help="of what was sent in all measured trials"),
)  # fmt: skip


Told = Mapping[str, Any]


def clock_costs(found: Sequence[SetupCondition]) -> dict[str, Told]:
    """Setup → what the first of its trials says that was asked and has an answer, else the last
    that was asked."""
    places = [place for condition in found for place in condition.places]
    listed: dict[str, Told] = {_setup(place): {} for place in places}
    for place in places:
        setup = _setup(place)
        for trial in place.cell.trials:
            if trial.aside.asks_clock and not _best_and_median(listed[setup].get("ns")):
                listed[setup] = trial.details["facts"]["tsc"]
    return {setup: told for setup, told in listed.items() if told}


def _best_and_median(ns: object) -> dict[str, tuple[float, float]]:
    found = {}
    for name, cost in ns.items() if isinstance(ns, dict) else ():
        if isinstance(cost, dict):
            told = [cost.get("best"), cost.get("median")]
            known = [n for n in told if isinstance(n, int | float) and math.isfinite(n)]
            if len(known) == len(told):
                found[escape.plain(name, longest=60)] = (known[0], known[1])
    return found


def _setup(place: SetupLevel) -> str:
    """Name of a level or, if instances are compared as well, of its kind: instances share one
    CPU."""
    cell = place.cell
    if KIND not in cell.factors:
        return place.name
    accelerator = accelerator_words(cell.trials)
    return " ".join(filter(None, (factor_label(KIND, cell.factors[KIND]), accelerator)))


def costs_table(found: Mapping[str, Told]) -> Table:
    """Instructions down, setups across; best of the batches, since all else only adds to it."""
    told = ((setup, _best_and_median(costs.get("ns"))) for setup, costs in found.items())
    answered = {setup: ns for setup, ns in told if ns}

    def of(setup: str, ns: Mapping[str, tuple[float, float]]) -> Field[str]:
        def value(name: str) -> Value:
            if name not in ns:
                return Value(None, "–")
            best, middle = ns[name]
            return Value(best, minus(f"{best:,.1f} ({middle:,.1f})"))

        return Field(numeric(f"{setup} best_ns", setup), value)

    first: Field[str] = words("instruction", "ns each: best (median)", str)
    names = dict.fromkeys(name for ns in answered.values() for name in ns)
    return table_of("tsc", "The cost of a clock", (first, *starmap(of, answered.items())), names)


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


Phase = tuple[str, str, Summary]
"""Setup, phase and its seconds."""


def activations(found: Sequence[SetupCondition]) -> Iterator[Phase]:
    """Activation of each setup, all of it and by phase, all conditions together: it does not depend
    on the load."""
    measured = by_key((p.name, p.cell.valid) for c in found for p in c.places)
    for name, each in measured.items():
        trials = [trial for valid in each for trial in valid]
        if whole := _summarized([(t.activation_s, t) for t in trials]):
            yield from ((name, *one) for one in (("all", whole), *_phases(trials).items()))


def _summarized(told: Iterable[tuple[float | None, StoredTrial]]) -> Summary | None:
    """Summary of activations: each is a start of its own; of several hosts each host's count
    once."""
    known = [(value, trial) for value, trial in told if value is not None]
    starts = count_once([trial for _, trial in known])
    return summarize([value for value, _ in known], starts=starts if of_hosts(starts) else None)


def _phases(trials: Sequence[StoredTrial]) -> dict[str, Summary]:
    """A phase that a trial lacks took no time; trials that are not split do not count."""
    split = [(parts, trial) for trial in trials if (parts := phases_of(trial))]
    names = dict.fromkeys((*dict(PHASES), *(n for parts, _ in split for n in parts)))
    found = {n: _summarized([(parts.get(n, 0.0), trial) for parts, trial in split]) for n in names}
    return {name: s for name, s in found.items() if s is not None and s.high > 0}


def phases_of(trial: StoredTrial) -> dict[str, float]:
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


PHASE_FIELDS: tuple[Field[Phase], ...] = (
    words("setup", "Setup", lambda x: x[0]),
    words("phase", "Phase", lambda x: x[1]),
    number("n", "n", lambda x: x[2].n),
    *interval_fields(("median_s", "low_s", "high_s"),
                     ("Median, s", "95 % interval from, s", "to, s"), lambda x: x[2],
                     numbers.seconds),
)  # fmt: skip

COUNTED = ("received", "captured", "decoded", "lost", "residual")


InstancePart = tuple[RunCell, int, Mapping[str, int], int]
"""Cell, number of the instance, its packets by those names of COUNTED that it reported, and what
all instances received."""


def instances(story: Story) -> Iterator[InstancePart]:
    """Instances of the typical trial of each cell, if the trial has books of several."""
    for cell in story.cells:
        parts = _parts(cell.typical.details.get("instances"))
        received = sum(part.get("received", 0) for part in parts)
        if len(parts) > 1 and received:
            yield from ((cell, n, part, received) for n, part in enumerate(parts, 1))


def _parts(told: Any) -> tuple[Mapping[str, int], ...]:
    if not isinstance(told, list) or not all(isinstance(part, dict) for part in told):
        return ()
    return tuple(
        {name: number for name in COUNTED if isinstance(number := part.get(f"{name}_packets"), int)}
        for part in told
    )


def _packets(name: str) -> Field[InstancePart]:
    return number(f"{name}_packets", name.capitalize(), lambda x: x[2].get(name))


INSTANCE_FIELDS: tuple[Field[InstancePart], ...] = (
    words("cell", "Cell", lambda x: x[0].label),
    words("run", "Run", lambda x: x[0].typical.name),
    number("instance", "Instance", lambda x: x[1]),
    number("share_pct", "Share, %", lambda x: x[2].get("received", 0) / x[3],
           numbers.percent, scale=100),
    *map(_packets, COUNTED),
)  # fmt: skip


MOST_CONDITIONS, MOST_SIDES = 2, 4
"""Conditions whose setups are drawn over time, and how many fit beside each other."""


def setups_tables(story: Story) -> Iterator[Table]:
    if found := conditions(story):
        fates = ((c, p, *fate) for c in found for p in c.places for fate in shares(p.cell).items())
        tables = (
            comparison_table(found),
            table_of("setups-ledger", "Where the packets of each setup went", FATE_FIELDS, fates),
            table_of("activation", "Activation by phase", PHASE_FIELDS, activations(found)),
            table_of("instances", "Instances", INSTANCE_FIELDS, instances(story),
                     anchor=lambda x: x[0].typical.anchor),
            costs_table(clock_costs(found)),
        )  # fmt: skip
        yield from (table for table in tables if table.rows)


def setups_pictures(story: Story) -> Iterator[Picture]:
    """The typical trial of each setup over time, side by side; the heaviest load first."""
    heaviest = sorted(conditions(story), key=lambda c: -(c.base.cell.offered_pps or 0.0))
    for n, condition in enumerate(heaviest[:MOST_CONDITIONS], 1):
        typical = [(p.name, p.cell.typical) for p in condition.places[:MOST_SIDES]]
        told = [(name, timeline(story.sources[t.source], t)) for name, t in typical]
        lines = {name: line.under_load for name, line in told if line}
        if len(lines) > 1:
            at = f" at {condition.label}" if condition.label else ""
            chart = time_chart([*lines.values()], f"Typical trials over time{at}", [*lines])
            yield Picture(f"setups-time-{n}", chart, numbers_of(lines))


def setups_sentences(story: Story) -> Iterator[str]:
    found = conditions(story)
    for condition in found[:1]:
        yield f"For all differences and verdicts: {family_words(condition.family, story.cells)}."
    for name in dict.fromkeys(p.name for c in found for p in c.places if p.emulated):
        yield phrase("setup-emulated", name=name)
    for setup, told in clock_costs(found).items():
        if why := told.get("not_asked"):
            yield f"{setup}: the cost of a clock was not asked ({escape.plain(why)})."


SECTION = Section(
    id="setups", title="Setups", note=Markup(WORDS["notes"]["setups"]), sentences=setups_sentences,
    tables=setups_tables, pictures=setups_pictures, place=40, with_search=False,
)  # fmt: skip
