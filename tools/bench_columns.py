"""What an engine of columns would save a report: the part of it that such an engine can do.

python tools/bench_columns.py [TRIALS [WAY...]]: median, quartiles and count of six figures in
every cell of a made run, once by each way, each in a process of its own: nodrop's records, DuckDB
and Polars (if it can be imported) over trials.jsonl. Beside them, what they cannot do: each trial's
own files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.made.long_runs import make_long_run

FIGURES = {
    "loss_ratio": "body", "per_s": "offered", "activation_s": "", "sut_cpu_s": "",
    "host_cpu_ratio": "", "sut_rss_peak_bytes": "",
}  # fmt: skip


def records(run: Path) -> int:
    from nodrop.results.rundir import read_trials

    cells: dict[str, dict[str, list[float]]] = {}
    for record in read_trials(run).records:
        found = cells.setdefault(json.dumps(record.cell), {name: [] for name in FIGURES})
        for name, part in FIGURES.items():
            of = getattr(getattr(record, part) if part else record, name)
            if record.valid and of is not None:
                found[name].append(of)
    return sum(len(quantiles(v)) for of in cells.values() for v in of.values() if len(v) > 1)


def duckdb(run: Path) -> int:
    import duckdb as engine

    columns = ", ".join(
        f"quantile_cont({path}, [0.25, 0.5, 0.75]), count({path})" for path in _paths(".")
    )
    query = f"SELECT cell, {columns} FROM read_json(?) WHERE valid GROUP BY cell"
    return len(engine.execute(query, [str(run / "trials.jsonl")]).fetchall())


def polars(run: Path) -> int:
    import polars as engine

    def column(name: str, part: str) -> Any:
        return engine.col(part).struct.field(name) if part else engine.col(name)

    asked = [
        one
        for name, part in FIGURES.items()
        for one in (
            *(column(name, part).quantile(q).alias(f"{name}{q}") for q in (0.25, 0.5, 0.75)),
            column(name, part).count().alias(f"{name}_n"),
        )
    ]
    lines = engine.scan_ndjson(run / "trials.jsonl").filter(engine.col("valid"))
    return len(lines.group_by("cell").agg(asked).collect(engine="streaming"))


def folders(run: Path) -> int:
    """What no engine does: books balanced again, details, damage."""
    from nodrop.report.story import read_story

    return len(read_story([run]).sources[0].run.all_damage)


def _paths(dot: str) -> list[str]:
    return [f"{part}{dot}{name}" if part else name for name, part in FIGURES.items()]


def cost(way: Callable[[Path], int], run: Path) -> str:
    """Of a child, in CPU time and peak memory."""
    child = os.fork()
    if child == 0:
        try:
            way(run)
        except ImportError as missing:
            print(missing)
            os._exit(1)
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    if status:
        return "not measured"
    return f"{used.ru_utime + used.ru_stime:7.1f} s  peak {used.ru_maxrss >> 10:5} MiB"


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    ways = [way for way in (records, duckdb, polars, folders) if way.__name__ in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        run = make_long_run(Path(folder), trials)
        for way in ways or (records, duckdb, polars, folders):
            print(f"{way.__name__:8} {cost(way, run)}", flush=True)


if __name__ == "__main__":
    main()
