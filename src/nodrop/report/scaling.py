"""How capacity grows with threads, as a table and a sentence for each row of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.findings.scaling import Scaling, Step, growing
from nodrop.report import numbers
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.stats.interval import Interval
from nodrop.stats.scalability import Law

SCALE = "on the scale that was searched: replicas (X), packets/s, or times the trace's speed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSection:
    table: Table
    laws: tuple[str, ...]


def scaling_section(found: Sequence[Scaling]) -> ScalingSection | None:
    if not found:
        return None
    return ScalingSection(table=_table(found), laws=tuple(map(_words, found)))


def _table(found: Sequence[Scaling]) -> Table:
    return Table(
        name="scaling",
        title="What more threads carry",
        columns=(
            Column(name="models", title="Models"),
            numeric(
                "threads", "Threads", "that capture; behind receive threads, those that detect"
            ),
            numeric("capacity_low", "Carried", SCALE),
            numeric("capacity_high", "Not carried", SCALE),
            numeric(
                "speedup_low",
                "Speed-up, at least",
                "against one thread, by the bounds of both searches; – = not measured: "
                "threads took turns on CPUs, which is time-sharing and not scaling",
            ),
            numeric("speedup_high", "At most"),
            numeric("efficiency_pct", "Efficiency, at least, %"),
            numeric("cpu_s_per_million", "CPU s per million packets"),
        ),
        rows=tuple(_row(one.name, step) for one in found for step in one.steps),
    )


def _row(name: str, step: Step) -> Row:
    model = step.model
    carried, not_carried = model.capacity or (None, None)
    low, high = step.speedup or (None, None)
    cost = model.cpu_s_per_million
    return Row(
        values=(
            text(name),
            Value(raw=growing(model), shown=numbers.count(growing(model))),
            _number(carried, "{:.4g}"),
            _number(not_carried, "{:.4g}"),
            _number(low, "{:.2f}"),
            _number(high, "{:.2f}"),
            Value(
                raw=None if step.efficiency is None else step.efficiency[0] * 100,
                shown=numbers.percent(None if step.efficiency is None else step.efficiency[0]),
            ),
            _number(None if cost is None else cost.median, "{:.2f}"),
        )
    )


def _number(value: float | None, form: str) -> Value:
    return Value(raw=value, shown=numbers.NOT_MEASURED if value is None else form.format(value))


def _words(one: Scaling) -> str:
    if one.law is None:
        return f"{one.name}: no law of scaling: {one.why_no_law}"
    law: Law = one.law
    return (
        f"{one.name}, up to {law.most_threads} threads, by the Universal Scalability Law: "
        f"contention {law.alpha:.3f} {_between(law.alpha_interval)}, "
        f"coherency {law.beta:.2g} {_between(law.beta_interval)}; nothing is said beyond"
    )


def _between(found: Interval) -> str:
    return f"({found.low:.2g} to {found.high:.2g})"
