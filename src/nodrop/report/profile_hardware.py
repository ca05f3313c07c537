"""What the CPU's own counters say of the threads of each role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodrop.report import numbers
from nodrop.report.profiled import Profiled
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends


def hardware_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no trial has such counters: they were not asked for, or not on this host."""
    rows = tuple(_rows(cells))
    if not rows:
        return None
    of = "of the 95 % interval"
    return Table(
        name="profile-hardware",
        title="What the CPU's counters say",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="role", title="Role"),
            numeric("ipc", "Instructions per cycle", "median"),
            numeric("ipc_low", "from", of),
            numeric("ipc_high", "to", of),
            numeric(
                "cache_misses", "Cache misses", "of the last cache, per 1,000 instructions; median"
            ),
            numeric("cache_misses_low", "from", of),
            numeric("cache_misses_high", "to", of),
            numeric(
                "reckoned_pct",
                "Reckoned, %",
                "of the time on a CPU: a counter had no turn there; the most of any run",
            ),
        ),
        rows=rows,
    )


def _rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        for role in cell.roles():
            rates = dict(cell.over(role, lambda one: one.hardware_rates()))
            if not rates:
                continue
            of = [trial.roles[role] for _, trial in cell.trials if role in trial.roles]
            reckoned = max(one.uncounted_ns / max(1, one.cpu_ns) for one in of)
            yield Row(
                values=(
                    *(text(cell.label), text(role)),
                    *with_ends(rates.get("ipc"), _rate),
                    *with_ends(rates.get("misses"), _rate),
                    Value(raw=reckoned * 100, shown=numbers.percent(reckoned)),
                )
            )


def _rate(rate: float | None) -> str:
    return numbers.NOT_MEASURED if rate is None else f"{rate:.2f}"
