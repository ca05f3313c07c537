"""How long four pairs take for a plan that takes one pair so long, where no CPU is the limit.

python tools/bench_fleet.py [ROUNDS] (root): a sink at low rates in trials of 3 s, by one pair and
by four in turn. Both must have the same records: cells, packets, verdicts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord

BOUND = 0.3
EXPERIMENT = """
name = "low"
question = "How long does a plan take?"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 3
[matrix]
"load.pps" = [500, 600, 700, 800, 900, 1000, 1100, 1200]
[measure]
repetitions = 3
"""


def fleet(folder: Path, pairs: str) -> Path:
    for name in pairs:
        (folder / f"{name}.toml").write_text(f'name = "{name}"\nkind = "netns"\n')
    path = folder / f"fleet-{pairs}.toml"
    files = ", ".join(f'"{name}.toml"' for name in pairs)
    path.write_text(f'name = "of-{len(pairs)}"\npairs = [{files}]\n')
    return path


def measured(folder: Path, *arguments: str) -> tuple[float, float, tuple[TrialRecord, ...]]:
    """Seconds of the whole command, of them from the first trial's begin to the last one's end, and
    what it measured."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "run", str(folder / "low.toml"), "--quiet",
         "--out", str(folder), *arguments],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    command_s = time.monotonic() - began
    records = open_run(Path(done.stdout.strip())).trials.records
    begins = [datetime.fromisoformat(record.started_utc) for record in records]
    ends = [
        begin + timedelta(seconds=record.took_s or 0.0)
        for begin, record in zip(begins, records, strict=True)
    ]
    return command_s, (max(ends) - min(begins)).total_seconds(), records


def said(records: tuple[TrialRecord, ...]) -> Mapping[Any, Any]:
    """What must be the same, of each trial."""
    return {
        (record.cell["load.pps"], record.repetition): (
            record.outcome,
            record.offered.intended,
            record.offered.sent,
            record.packets.decoded_packets,
            record.packets.lost_packets,
        )
        for record in records
    }


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    ratios, commands, others = [], [], 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "low.toml").write_text(EXPERIMENT)
        for number in range(1, rounds + 1):
            alone_s, alone_plan_s, one = measured(folder)
            shared_s, shared_plan_s, four = measured(folder, "--fleet", str(fleet(folder, "abcd")))
            ratios.append(shared_plan_s / alone_plan_s)
            commands.append(shared_s / alone_s)
            alone, shared = said(one), said(four)
            differ = {
                key: (alone[key], shared.get(key)) for key in alone if alone[key] != shared.get(key)
            }
            others += len(differ)
            print(
                f"round {number}: plan {alone_plan_s:.1f} and {shared_plan_s:.1f} s, ratio "
                f"{ratios[-1]:.3f}; whole command {alone_s:.1f} and {shared_s:.1f} s, ratio "
                f"{commands[-1]:.3f}; other records: {differ or 'none'}",
                flush=True,
            )
    ratio = median(ratios)
    print(
        f"four pairs take {ratio:.3f} of one pair's time for the plan (bound {BOUND}), "
        f"{median(commands):.3f} with all that comes before and after; {others} records differ"
    )
    return int(ratio > BOUND or others > 0)


if __name__ == "__main__":
    raise SystemExit(main())
