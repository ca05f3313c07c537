"""Load that more threads carry: speed-up and efficiency against the fewest, and the law that fits.

This holds only where the threads had CPUs of their own: with fewer CPUs than threads they take
turns, and what such a host shows is time-sharing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodrop.findings.study_2017 import Model, differing
from nodrop.stats.scalability import LEAST_COUNTS, Law, fit


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
