"""What the profiler itself took, of one CPU: the SUT did not have that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodrop.report import numbers
from nodrop.report.profiled import Profiled
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.stats.interval import summarize


def cost_table(cells: Sequence[Profiled]) -> Table | None:
    """None if nothing was sampled."""
    rows = tuple(_rows(cells))
    if not rows:
        return None
    return Table(
        name="profile-cost",
        title="What the profiler itself took",
        columns=(
            Column(name="cell", title="Cell"),
            numeric(
                "own_cpu_pct",
                "Of one CPU, %",
                "its own process, in a guest of a virtual CPU there; median over the runs",
            ),
            numeric("own_cpu_pct_most", "at most, %", "of any run"),
            numeric("threads", "Threads sampled", "the most of any run"),
            numeric("own_cpu_pct_per_thread", "For each of them, %", "median over the runs"),
        ),
        rows=rows,
    )


def _rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        of = [(start, trial) for start, trial in cell.trials if trial.sampled_threads]
        starts = [start for start, _ in of]
        took = summarize([trial.own_cpu_ratio for _, trial in of], starts=starts)
        each = summarize([t.own_cpu_ratio / t.sampled_threads for _, t in of], starts=starts)
        if took is None or each is None:
            continue
        threads = max(trial.sampled_threads for _, trial in of)
        yield Row(
            values=(
                text(cell.label),
                _percent(took.median),
                _percent(max(trial.own_cpu_ratio for _, trial in of)),
                Value(raw=threads, shown=str(threads)),
                _percent(each.median),
            )
        )


def _percent(ratio: float) -> Value:
    return Value(raw=ratio * 100, shown=numbers.percent(ratio))
