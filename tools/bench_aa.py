"""A against A on the sink, for real: how often `nodrop ab` calls two of the same different.

python tools/bench_aa.py [COMPARISONS] (root): each is a run of its own, with 12 trials of each side
and all metrics at once. At most 5 % of comparisons may be "different" in any metric.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter

from scipy.stats import binomtest

PAIRS = 12
SINK = ("sut.service_rate_pps=1500", "sut.ring_frames=64")
"""About what is offered, so that some trials lose packets and others none."""
SETTINGS = (
    "load.duration_s=0.2",
    "measure.late_p99_us=200000",
    "measure.late_burst_max_ratio=1",
    "measure.steal_max_ratio=1",
)


def compared(seed: int, out: str) -> dict[str, str]:
    """Metric → its answer."""
    builds = [word for side in "ab" for one in SINK for word in (f"--{side}", one)]
    settings = [word for one in (*SETTINGS, f"measure.seed={seed}") for word in ("--set", one)]
    found = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "ab", "make:demo", "--sut", "sink", *builds,
         *settings, "--most", str(PAIRS), "--out", out, "--json"],
        stdout=subprocess.PIPE, check=False, timeout=300,
    )  # fmt: skip
    rows = json.loads(found.stdout)["rows"]
    return {row["metric"]: row["answer"] for row in rows}


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seen = Counter[tuple[str, str]]()
    alarms = 0
    with tempfile.TemporaryDirectory() as out:
        for seed in range(1, wanted + 1):
            rows = compared(seed, out)
            seen.update(rows.items())
            alarms += "different" in rows.values()
    for (metric, answer), times in sorted(seen.items()):
        print(f"{metric:24} {answer:12} {times:4} of {wanted}")
    share = binomtest(alarms, wanted).proportion_ci()
    interval = f"95 % interval {share.low:.1%}..{share.high:.0%}"
    print(f"comparisons with a false alarm: {alarms} of {wanted}, {interval}")
    # One in twenty is allowed; of so few comparisons, luck is too.
    return int(alarms > 0.05 * wanted + 2.3 * (wanted * 0.05 * 0.95) ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
