"""Searches for the rate of a sink that is known: how many come within 1 % of it.

python tools/bench_sink.py [SEARCHES] (root): so many in turn over rates x rings, each a run of its
own, with the share within 1 % and its 95 % interval. The fitted load is what counts as the answer.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy.stats import binomtest

RATES, RINGS = (5_000, 20_000, 50_000), (256, 16_384)
WITHIN = 0.01
SETTINGS = (
    "search.relative_width=0.01",
    "search.initial_trial_s=1.2",
    "search.final_trial_s=1.5",
    "search.duration_sum_s=12",
    "search.rounds=1",
    "measure.sut=standing",
    "measure.late_p99_us=200000",
    "measure.late_burst_max_ratio=1",
    "measure.steal_max_ratio=1",
)


def searched(rate: int, ring: int, seed: int, trace: Path, out: str) -> dict[str, object]:
    """What `nodrop capacity --json` says of its one goal."""
    own = (f"sut.service_rate_pps={rate}", f"sut.ring_frames={ring}", f"measure.seed={seed}")
    settings = [word for one in (*own, *SETTINGS) for word in ("--set", one)]
    found = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "capacity", str(trace), "--sut", "sink",
         "--by", "pps", "--goal", "0", *settings, "--out", out, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=300,
    )  # fmt: skip
    if not found.stdout:
        raise SystemExit(found.stderr.decode())
    answer: dict[str, object] = json.loads(found.stdout)
    return answer


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    right = 0
    with tempfile.TemporaryDirectory() as out:
        trace = Path(out, "short.pcap")
        node = ["nodrop-node", "trace", "make", "demo", str(trace), "--packets", "1000"]
        from nodrop.hosts.binary import find_node_binary

        subprocess.run([str(find_node_binary()), *node[1:]], check=True, stdout=subprocess.PIPE)
        grid = itertools.islice(itertools.cycle(itertools.product(RATES, RINGS)), wanted)
        for seed, (rate, ring) in enumerate(grid, start=1):
            answer = searched(rate, ring, seed, trace, out)
            print(rate, ring, json.dumps(answer)[:1500], flush=True)
    return 0
if __name__ == "__main__":
    raise SystemExit(main())
