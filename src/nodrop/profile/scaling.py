"""Thread models as they ran, and how capacity grows with their threads."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nodrop.config.units import count_of
from nodrop.installation import adding
from nodrop.report import numbers
from nodrop.report.tables import Field, Table, number, table_of, words
from nodrop.stats.interval import CONFIDENCE, Interval, Summary
from nodrop.stats.special import stdtrit


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadModelRun:
    """One thread model as it ran, under one load or as a search found it."""

    label: str
    runmode: str
    capture_threads: int
    detect_threads: int
    """0 = the capture threads detect."""
    ports: int
    cpus: int | None
    """CPUs that the SUT might use, without those of the generator; None = not known."""
    load: str
    """Names what was offered; "" if it was searched."""
    rest: tuple[tuple[str, str], ...] = ()
    """Factors of its cell other than threads and load: key and value. Models are compared only if
    these are equal."""
    capacity: tuple[float, float] | None = None
    """Bounds that a search found: the highest load that was carried, and the lowest above it that
    was not."""
    cpu_s_per_million: Summary | None = None
    """CPU-seconds for a million decoded packets."""
    loss: Summary | None = None
    """Ratio, under that load."""
    over_mean: Summary | None = None
    """How much more than its share the busiest of the threads with the same work had."""
    coordination: tuple[float, float] | None = None
    """Part of the CPU time of its capture and detect threads in locks, conditions and polling,
    without and with the switches, which most of those cause; of trials with a profile."""

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """Values that make it a model of its own, whatever the load."""
        return self.runmode, self.capture_threads, self.detect_threads, self.ports

    @property
    def threads(self) -> int:
        return self.capture_threads + self.detect_threads

    @property
    def shares_cpus(self) -> bool:
        return self.cpus is not None and self.threads > self.cpus


def time_sharing(models: Sequence[ThreadModelRun]) -> str:
    """Words if models had more threads than CPUs; else empty."""
    over = [model for model in models if model.shares_cpus]
    if not over:
        return ""
    cpus = " or ".join(str(n) for n in sorted({m.cpus for m in over if m.cpus is not None}))
    shapes, sharing = {m.shape for m in models}, {m.shape for m in over}
    who = (
        "The only thread model"
        if len(shapes) == 1
        else f"{len(sharing)} of {len(shapes)} thread models"
    )
    return (
        f"{who} ran more capture and detect threads than the SUT had CPUs of its own ({cpus}): "
        "they took turns. That is time-sharing and not scaling; CPU per packet and waits are what "
        "such a host can show"
    )


def differing(models: Sequence[ThreadModelRun]) -> tuple[str, ...]:
    """Keys beside threads and load that not all of these models agree in."""
    keys = dict.fromkeys(key for model in models for key, _ in model.rest)
    return tuple(k for k in keys if len({dict(m.rest).get(k) for m in models}) > 1)


def not_compared(models: Sequence[ThreadModelRun]) -> tuple[str, ...]:
    """Models of a run mode that are laid against no other, for they differ in more than threads."""
    found = []
    for runmode in dict.fromkeys(model.runmode for model in models):
        own = [model for model in models if model.runmode == runmode]
        keys = differing(own)
        alone = dict.fromkeys(one.label for one in own if not _has_partner(one, own))
        if keys and alone and len({model.shape for model in own}) > 1:
            found.append(
                f"{runmode}: {', '.join(alone)}: compared with no other number of threads, as no "
                f"other cell differs in threads alone; cells also differ in {', '.join(keys)}"
            )
    return tuple(found)


def _has_partner(run: ThreadModelRun, models: Sequence[ThreadModelRun]) -> bool:
    return any((m.rest, m.load) == (run.rest, run.load) and m.shape != run.shape for m in models)


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
    if len(set(threads)) < LEAST_COUNTS or not _has_scipy():
        return None
    from scipy.optimize import curve_fit  # here, because few reports come here, and it takes long

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
    half = stdtrit(len(threads) - len(found), (1 + CONFIDENCE) / 2)
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
class ScalingStep:
    """One count of threads, as a search found its capacity."""

    model: ThreadModelRun
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
    steps: tuple[ScalingStep, ...]
    """Steps from few threads to many; the first has one thread."""
    law: Law | None
    why_no_law: str


def growing(model: ThreadModelRun) -> int:
    """The threads that grow: behind receive threads, those that detect."""
    return model.detect_threads or model.capture_threads


def scalings(models: Iterable[ThreadModelRun]) -> tuple[Scaling, ...]:
    """One scaling for each group of searched models that differ only in threads, if their thread
    counts begin at one and include another."""
    searched = [m for m in models if m.capacity is not None and m.runmode != "single"]
    keys = differing(searched)
    rows: dict[tuple[object, ...], dict[int, ThreadModelRun]] = {}
    for model in searched:
        row = rows.setdefault((model.runmode, model.ports, _receive(model), model.rest), {})
        row.setdefault(growing(model), model)
    return tuple(
        _scaling(_name(row[1], keys), [row[n] for n in sorted(row)])
        for row in rows.values()
        if len(row) > 1 and min(row) == 1
    )


def _receive(model: ThreadModelRun) -> int:
    return model.capture_threads if model.detect_threads else 0


def _scaling(name: str, models: Sequence[ThreadModelRun]) -> Scaling:
    real = [model for model in models if model.cpus is not None and not model.shares_cpus]
    first = real[0] if real and growing(real[0]) == 1 else None
    steps = tuple(
        ScalingStep(model=m, speedup=_ratio(m, first) if first is not None and m in real else None)
        for m in models
    )
    known = [(growing(m), sum(m.capacity) / 2) for m in real if m.capacity is not None]
    law = fit([n for n, _ in known], [x for _, x in known])
    return Scaling(name=name, steps=steps, law=law, why_no_law="" if law else _why(models, real))


def _why(models: Sequence[ThreadModelRun], real: Sequence[ThreadModelRun]) -> str:
    if len(real) < LEAST_COUNTS <= len(models):
        return "more threads than the SUT had CPUs of its own: time-sharing, not scaling"
    if len(real) < LEAST_COUNTS:
        return f"a law needs {LEAST_COUNTS} counts of threads on CPUs of their own"
    if not _has_scipy():
        return f"it is fitted by scipy, which is not installed: {adding('scipy')}"
    return "no law fits these capacities"


def _has_scipy() -> bool:
    """A wheel leaves it out: 145 MB for this one fit."""
    return importlib.util.find_spec("scipy") is not None


def _ratio(more: ThreadModelRun, fewer: ThreadModelRun) -> tuple[float, float]:
    assert more.capacity is not None and fewer.capacity is not None
    if more is fewer:
        return 1.0, 1.0
    return more.capacity[0] / fewer.capacity[1], more.capacity[1] / fewer.capacity[0]


def _name(model: ThreadModelRun, keys: Sequence[str]) -> str:
    """`keys`: what tells the rows apart beside threads."""
    receive, rest = _receive(model), dict(model.rest)
    behind = "" if not receive else f", {count_of(receive, 'receive thread')}"
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


Grown = tuple[str, ScalingStep]
"""Name of the models, and one of them."""


def _end(
    of: Callable[[ScalingStep], tuple[float, float] | None], n: int
) -> Callable[[Grown], float | None]:
    def end(grown: Grown) -> float | None:
        found = of(grown[1])
        return None if found is None else found[n]

    return end


def _capacity(step: ScalingStep) -> tuple[float, float] | None:
    return step.model.capacity


def _speedup(step: ScalingStep) -> tuple[float, float] | None:
    return step.speedup


SCALING_FIELDS: tuple[Field[Grown], ...] = (
    words("models", "Models", lambda x: x[0]),
    number("threads", "Threads", lambda x: growing(x[1].model),
           help="that capture; behind receive threads, those that detect"),
    number("capacity_low", "Carried", _end(_capacity, 0), "{:.4g}".format, help=SCALE),
    number("capacity_high", "Not carried", _end(_capacity, 1), "{:.4g}".format, help=SCALE),
    number("speedup_low", "Speed-up, at least", _end(_speedup, 0), "{:.2f}".format,
           help="against one thread, by the bounds of both searches; – = not measured: threads "
           "took turns on CPUs, which is time-sharing and not scaling"),
    number("speedup_high", "At most", _end(_speedup, 1), "{:.2f}".format),
    number("efficiency_pct", "Efficiency, at least, %", _end(lambda step: step.efficiency, 0),
           numbers.percent, scale=100),
    number("cpu_s_per_million", "CPU s per million packets",
           lambda x: cost.median if (cost := x[1].model.cpu_s_per_million) else None,
           "{:.2f}".format),
)  # fmt: skip


def _table(found: Sequence[Scaling]) -> Table:
    steps = ((one.name, step) for one in found for step in one.steps)
    return table_of("scaling", "What more threads carry", SCALING_FIELDS, steps)


def _words(one: Scaling) -> str:
    if one.law is None:
        return f"{one.name}: no law of scaling: {one.why_no_law}"
    law: Law = one.law
    return (
        f"{one.name}, up to {law.most_threads} threads, by the Universal Scalability Law: "
        f"contention {law.alpha:.3f} {_between(law.alpha_interval)}, "
        f"coherency {law.beta:.2g} {_between(law.beta_interval)}; nothing is said beyond"
    )


def _between(interval: Interval) -> str:
    return f"({interval.low:.2g} to {interval.high:.2g})"
