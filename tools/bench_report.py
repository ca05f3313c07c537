"""Reports of long runs: ten times the trials may take twelve times the work, in bounded memory.

python tools/bench_report.py [TRIALS]: each command reads a made run of TRIALS (100,000) and one of
a tenth of it. Work is CPU time of the command; a ratio of two on one machine is all it says.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.made.long_runs import make_long_run

MOST_TIMES = 12.0
MOST_BYTES = 1 << 30
MOST_PAGE_BYTES = 1_500_000
LIMIT_S = 3600


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    peak_bytes: int


def cost(*words: str) -> Cost:
    """Of one command. Peak memory is of the child alone: a fork of this small process."""
    child = subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli.main", *words], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1, 6):
        raise SystemExit(f"nodrop {' '.join(words)}: exit {os.waitstatus_to_exitcode(status)}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def commands(run: Path, other: Path, out: Path) -> dict[str, tuple[str, ...]]:
    return {
        "report": ("report", str(run), "--out", str(out / f"{run.parent.name}-report")),
        "compare": ("compare", str(other), str(run)),
        "export": ("export", str(run), "--parquet", str(out / f"{run.parent.name}.parquet")),
        "watch": ("watch", str(run)),
    }


def main() -> int:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    bad = 0
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        out = Path(folder)
        short, long, other = (
            make_long_run(out / str(n), n, name=f"long-{n}") for n in (trials // 10, trials, 200)
        )
        for name in commands(short, other, out):
            few, many = (cost(*commands(run, other, out)[name]) for run in (short, long))
            times = many.cpu_s / few.cpu_s
            kept = times <= MOST_TIMES and many.peak_bytes <= MOST_BYTES
            bad += not kept
            print(
                f"{name:8} {few.cpu_s:7.1f} s, {many.cpu_s:7.1f} s: x{times:.1f}; peak "
                f"{few.peak_bytes >> 20}, {many.peak_bytes >> 20} MiB  {'' if kept else 'MISSED'}",
                flush=True,
            )
        page_bytes = (out / f"{long.parent.name}-report" / "index.html").stat().st_size
        bad += page_bytes > MOST_PAGE_BYTES
        print(f"page     {page_bytes:,} bytes  {'MISSED' if page_bytes > MOST_PAGE_BYTES else ''}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
