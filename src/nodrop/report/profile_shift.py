"""Shifts of a role's CPU time between the first cell and another, by group and by function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from nodrop.findings.functions import RoleProfile
from nodrop.report import numbers
from nodrop.report.profiled import Profiled
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.stats.comparison import Answer, Comparison, Question, compare
from nodrop.stats.family import Family

MARGIN = 0.02
"""Share of the samples: shares that differ by less are the same."""
MOST_FUNCTIONS = 10
"""Number of functions in the table for each role and cell: those that shifted most."""

Shares = Callable[[RoleProfile], Mapping[str, float]]


def shifts_table(cells: Sequence[Profiled]) -> Table | None:
    """Table of shifts of every other cell against the first; None if there is no role that both
    have."""
    rows = tuple(row for other in cells[1:] for row in _rows(cells[0], other))
    if not rows:
        return None
    return Table(
        name="profile-shifts",
        title=f"What shifted against {cells[0].label}",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="role", title="Role"),
            Column(name="kind", title="Of"),
            Column(name="name", title="Name"),
            numeric("before_pct", "First cell, %"),
            numeric("after_pct", "This cell, %"),
            numeric("shift_points", "Shift, points"),
            numeric("low_points", "from", "of the 95 % interval"),
            numeric("high_points", "to", "of the 95 % interval"),
            Column(name="verdict", title="Verdict"),
        ),
        rows=rows,
    )


def _rows(base: Profiled, other: Profiled) -> Iterator[Row]:
    for role in base.roles():
        if role not in other.roles():
            continue
        groups = list(_shifted(base, other, role, lambda one: one.group_shares()))
        functions = list(_shifted(base, other, role, _by_function))
        for kind, found in (("group", groups), ("function", functions[:MOST_FUNCTIONS])):
            for name, before, compared, verdict in found:
                yield Row(
                    values=(
                        text(other.label),
                        text(role),
                        text(kind),
                        text(name),
                        _points(before),
                        _points(before + compared.shift),
                        _points(compared.shift, signed=True),
                        *_ends(compared),
                        text(verdict),
                    )
                )


def _by_function(role: RoleProfile) -> dict[str, float]:
    return {f"{one.function} ({one.module})": share for one, share in role.shares().items()}


def _shifted(
    base: Profiled, other: Profiled, role: str, shares: Shares
) -> Iterator[tuple[str, float, Comparison, str]]:
    """The largest shift first. All keys are looked at, so all count in the error."""
    before, after = base.by_start(role, shares), other.by_start(role, shares)
    keys = sorted({*before, *after})
    family = Family(parts=max(1, 2 * len(keys)))
    asked = Question(absolute=MARGIN, family=family)
    none_before, none_after = ([0.0] * len(next(iter(one.values()), ())) for one in (before, after))
    found = []
    for key in keys:
        was = before.get(key, none_before)
        compared = compare(was, after.get(key, none_after), asked)
        if compared is not None:
            found.append((key, median(was), compared, _verdict(compared, family)))
    yield from sorted(found, key=lambda one: -abs(one[2].shift))


def _verdict(compared: Comparison, family: Family) -> str:
    if compared.answer is Answer.DIFFERENT:
        return "more" if compared.shift > 0 else "less"
    if compared.answer is Answer.SAME:
        return f"same within {MARGIN * 100:g} points"
    if compared.interval is None:
        return f"cannot tell: needs {family.runs_needed()} runs of each"
    return "cannot tell"


def _ends(compared: Comparison) -> tuple[Value, Value]:
    found = compared.interval
    if found is None:
        return Value(raw=None, shown="–"), Value(raw=None, shown="–")
    return _points(found.low, signed=True), _points(found.high, signed=True)


def _points(ratio: float, *, signed: bool = False) -> Value:
    sign = "+" if signed and ratio > 0 else ""
    shown = f"{sign}{numbers.percent(ratio)}" if ratio >= 0 else f"−{numbers.percent(-ratio)}"
    return Value(raw=ratio * 100, shown=shown)
