"""Searches for the rate of a sink that is known: how many come within 1 % of it.

python tools/bench_sink.py [SEARCHES] (root): so many in turn over rates and rings, each a run of
its own. What counts is the load that was carried; a search that came to another end, be it by the
hypervisor, is not within 1 %.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy.stats import binomtest

from nodrop.testbed.hosts.node import find_node_binary

RATES, RINGS = (5_000, 20_000, 50_000, 7_300, 31_000), (256, 16_384)
WITHIN, ENOUGH = 0.01, 0.95
SETTINGS = (
    "search.relative_width=0.01",
    "search.initial_trial_s=1.2",
    "search.final_trial_s=1.5",
    "search.duration_sum_s=12",
    "search.rounds=1",
    "measure.sut=standing",
)


def searched(rate: int, ring: int, seed: int, trace: Path, out: str) -> dict[str, object]:
    """What `nodrop capacity --json` says."""
    own = (f"sut.service_rate_pps={rate}", f"sut.ring_frames={ring}", f"measure.seed={seed}")
    settings = [word for one in (*own, *SETTINGS) for word in ("--set", one)]
    done = subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", "capacity", str(trace), "--sut", "sink",
         "--by", "pps", "--goal", "0", *settings, "--out", out, "--json"],
        capture_output=True, check=False, timeout=400,
    )  # fmt: skip
    if not done.stdout:
        raise SystemExit(done.stderr.decode())
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    right = 0
    with tempfile.TemporaryDirectory() as out:
        trace = Path(out, "short.pcap")  # of few packets: whole passes fit into each trial
        make = [str(find_node_binary()), "trace", "make", "demo", str(trace), "--packets", "1000"]
        subprocess.run(make, check=True, stdout=subprocess.PIPE)
        grid = itertools.islice(itertools.cycle(itertools.product(RATES, RINGS)), wanted)
        for seed, (rate, ring) in enumerate(grid, start=1):
            found = searched(rate, ring, seed, trace, out)
            ndr = found["goals"][0]
            pps, most = (end and end["pps"] for end in (ndr["lower"], ndr["upper"]))
            error = None if not isinstance(pps, float) else pps / rate - 1
            right += error is not None and abs(error) <= WITHIN
            said = "none" if error is None else f"{error:+.2%}"
            seconds = ndr["trial_seconds"]
            print(
                f"{rate:6} packets/s, {ring:6} frames: {said:>8}, bounds {pps} to {most}, "
                f"limited by {ndr['limited_by']}, {ndr['trials']} trials, {seconds:.0f} s",
                flush=True,
            )
    share = binomtest(right, wanted).proportion_ci()
    interval = f"95 % interval {share.low:.0%}..{share.high:.0%}"
    print(f"within {WITHIN:.0%}: {right} of {wanted}, {interval}")
    return int(right < ENOUGH * wanted)


if __name__ == "__main__":
    sys.exit(main())
