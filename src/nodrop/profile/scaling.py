"""How capacity grows with threads, as a table and a sentence for each row of models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import t as student

from nodrop.profile.study_2017 import Model, differing
from nodrop.report import numbers
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.stats.interval import CONFIDENCE, Interval

LEAST_COUNTS = 4
"""Fewest thread counts for a fit: the law has three unknowns."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    alpha: float
    beta: float
    gamma: float
    alpha_interval: Interval
    beta_interval: Interval
    gamma_interval: Interval
    most_threads: int
    """The largest count that was measured: nothing is said beyond it."""

    def at(self, threads: float) -> float:
        return float(_law(np.array([threads]), self.alpha, self.beta, self.gamma)[0])


def fit(threads: Sequence[int], capacities: Sequence[float]) -> Law | None:
    """None if fewer than LEAST_COUNTS different counts were measured, or no law fits them."""
    if len(set(threads)) < LEAST_COUNTS:
        return None
    n, x = np.array(threads, dtype=float), np.array(capacities, dtype=float)
    each = float(np.max(x / n))
    try:
        found, covariance = curve_fit(
            _law, n, x, p0=(0.05, 0.001, each), bounds=((0, 0, 0), (1, np.inf, np.inf))
        )
    except RuntimeError:
        return None  # it does not converge
    errors = np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(errors)):
        return None
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(threads) - len(found)))
    alpha, beta, gamma = (
        Interval(low=max(0.0, v - half * e), high=v + half * e, coverage=CONFIDENCE)
        for v, e in zip(found, errors, strict=True)
    )
    return Law(
        alpha=float(found[0]),
        beta=float(found[1]),
        gamma=float(found[2]),
        alpha_interval=alpha,
        beta_interval=beta,
        gamma_interval=gamma,
        most_threads=max(threads),
    )


def _law(n: Numbers, alpha: float, beta: float, gamma: float) -> Numbers:
    return gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One count of threads, as a search found its capacity."""

    model: Model
    speedup: tuple[float, float] | None
    """Against the fewest threads of its row of models, by the bounds of both searches; None if
    either took turns on CPUs."""

    @property
    def efficiency(self) -> tuple[float, float] | None:
        """Speed-up of each thread, if the fewest is one."""
        if self.speedup is None:
            return None
        low, high = self.speedup
        return low / growing(self.model), high / growing(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Models that differ in the number of one kind of thread alone."""

    name: str
    steps: tuple[Step, ...]
    """From few threads to many; the first has one."""
    law: Law | None
    why_no_law: str


def growing(model: Model) -> int:
    """The threads that grow: behind receive threads, those that detect."""
    return model.detect_threads or model.capture_threads


def scalings(models: Iterable[Model]) -> tuple[Scaling, ...]:
    """One scaling for each group of searched models that differ only in threads, if their thread
    counts begin at one and include another."""
    searched = [m for m in models if m.capacity is not None and m.runmode != "single"]
    keys = differing(searched)
    rows: dict[tuple[object, ...], dict[int, Model]] = {}
    for model in searched:
        row = rows.setdefault((model.runmode, model.ports, _receive(model), model.rest), {})
        row.setdefault(growing(model), model)
    return tuple(
        _scaling(_name(row[1], keys), [row[n] for n in sorted(row)])
        for row in rows.values()
        if len(row) > 1 and min(row) == 1
    )


def _receive(model: Model) -> int:
    return model.capture_threads if model.detect_threads else 0


def _scaling(name: str, models: Sequence[Model]) -> Scaling:
    real = [model for model in models if model.cpus is not None and not model.shares_cpus]
    first = real[0] if real and growing(real[0]) == 1 else None
    steps = tuple(
        Step(model=m, speedup=_ratio(m, first) if first is not None and m in real else None)
        for m in models
    )
    known = [(growing(m), sum(m.capacity) / 2) for m in real if m.capacity is not None]
    law = fit([n for n, _ in known], [x for _, x in known])
    return Scaling(name=name, steps=steps, law=law, why_no_law="" if law else _why(models, real))


def _why(models: Sequence[Model], real: Sequence[Model]) -> str:
    if len(real) < LEAST_COUNTS <= len(models):
        return "more threads than the SUT had CPUs of its own: time-sharing, not scaling"
    if len(real) < LEAST_COUNTS:
        return f"a law needs {LEAST_COUNTS} counts of threads on CPUs of their own"
    return "no law fits these capacities"


def _ratio(more: Model, fewer: Model) -> tuple[float, float]:
    assert more.capacity is not None and fewer.capacity is not None
    if more is fewer:
        return 1.0, 1.0
    return more.capacity[0] / fewer.capacity[1], more.capacity[1] / fewer.capacity[0]


def _name(model: Model, keys: Sequence[str]) -> str:
    """`keys`: what tells the rows apart beside threads."""
    receive, rest = _receive(model), dict(model.rest)
    behind = "" if not receive else f", {receive} receive thread{'s' if receive > 1 else ''}"
    others = "".join(f", {key} {rest[key]}" for key in keys if key in rest)
    ports = f", {model.ports} ports" if model.ports > 1 else ""
    return f"{model.runmode}{behind}{ports}{others}"


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
