"""What reading a clock, cpuid and a system call cost where each setup ran the SUT."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.report import escape
from nodrop.report.setups import KIND, Condition, Place
from nodrop.report.story import factor_label
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.results.trial import accelerator_words

SUSPECTS = ("rdtsc", "cpuid")
"""What the studies blamed. Both cost more if a hypervisor has to answer for them."""


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
                costs = listed[setup] = _costs(setup, told)
    return [costs for costs in listed.values() if costs is not None]


def _setup(place: Place) -> str:
    """By kind if instances are compared as well: they share one CPU."""
    cell = place.cell
    if KIND not in cell.factors:
        return place.name
    accelerator = accelerator_words(cell.trials)
    return " ".join(filter(None, (factor_label(KIND, cell.factors[KIND]), accelerator)))


def _costs(setup: str, told: Mapping[str, object]) -> Costs:
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
    """What is measured of the two suspects, setup by setup."""
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
