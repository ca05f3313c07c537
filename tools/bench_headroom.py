"""Forecasts of `nodrop drops` at half of what a program carries, held against searches for it.

python tools/bench_headroom.py [CASE ...] (root; all cases: 35 minutes): for each program a search
without loss, then runs at about half of the limit found, in whole replicas, each with `nodrop
drops` beside it. The forecast of its last interval, times that load, is held against the search's
estimate. realmix needs NODROP_SHARED_DATA, a folder with realmix.pcap and et.rules, unpacked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
ROOT = Path(__file__).parents[1]
NODROP = str(Path(sys.executable).with_name("nodrop"))
BUDGET_S = 100
LOAD_S, LOOKS_S = 50, 44
RUNS = 3
SHARED = os.environ.get("NODROP_SHARED_DATA", "")
DEMO_RULES = f'sut.rules=["{ROOT}/experiments/demo.rules"]'


@dataclass(frozen=True)
class Case:
    settings: Sequence[str]
    trace: str = "make:demo"


CASES: Mapping[str, Case] = {
    "Suricata, 23 rules, ring of 2,048": Case(
        ['sut.kind="suricata"', DEMO_RULES, "sut.ring_size=2048"]
    ),
    "Suricata without rules, ring of 256": Case(['sut.kind="suricata"', "sut.ring_size=256"]),
    "sink, 100 us, ring of 1,024": Case(
        ['sut.kind="sink"', "sut.receive_ns=100000", "sut.ring_frames=1024"]
    ),
    "sink, 60 us, 240 us of port 80, ring of 1,024": Case(
        [
            'sut.kind="sink"',
            "sut.receive_ns=60000",
            "sut.costly_port=80",
            "sut.costly_times=4",
            "sut.ring_frames=1024",
        ]
    ),
    "tcpdump to disk, ring of 256 KiB": Case(
        ['sut.kind="command"', 'sut.program="tcpdump"', "sut.ring_kib=256"]
    ),
    "Suricata, 19,194 rules, realmix, ring of 2,048": Case(
        ['sut.kind="suricata"', f'sut.rules=["{SHARED}/et.rules"]', "sut.ring_size=2048"],
        trace=f"{SHARED}/realmix.pcap",
    ),
}


def nodrop(arguments: Sequence[str]) -> bytes:
    done = subprocess.run([NODROP, *arguments], capture_output=True, check=False, timeout=900)
    if done.returncode not in {0, 1, 6}:  # 6: also a blind port beside the program's
        raise SystemExit(f"{arguments}: {done.returncode} {done.stderr.decode()}")
    return done.stdout


def searched(case: Case, out: str) -> Json | None:
    """The estimate of the limit of `nodrop capacity --json`; None without one."""
    settings = [word for one in case.settings for word in ("--set", one)]
    said = nodrop(
        ["capacity", case.trace, "--goal", "0", "--window", "first", "--budget", f"{BUDGET_S}s",
         *settings, "--out", out, "--json"]
    )  # fmt: skip
    found: Json | None = json.loads(said)["goals"][0]["fit"]
    return found


EXPERIMENT = """
name = "half-of-the-limit"
[load]
kind = "replay"
trace = "{trace}"
window = "first"
window_s = 5
multiplier = {load}
loop_flows = "distinct"
duration_s = {seconds}
[measure]
repetitions = 1
"""


def forecast(case: Case, load: int, out: str) -> Json | None:
    """The level that `nodrop drops` saw last of the program's capture."""
    experiment = Path(out, "half.toml")
    experiment.write_text(EXPERIMENT.format(trace=case.trace, load=load, seconds=LOAD_S))
    settings = [word for one in case.settings for word in ("--set", one)]
    running = subprocess.Popen(
        [NODROP, "run", str(experiment), *settings, "--out", f"{out}/run"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert running.stdout
    levels: list[Json] = []
    watch = ["drops", "--json", "--for", f"{LOOKS_S}s"]
    for line in nodrop(watch).splitlines():
        interval = json.loads(line)
        levels += [one["level"] for one in interval["captures"] if one["level"]]
    said, _ = running.communicate(timeout=300)
    if running.returncode not in {0, 1}:
        raise SystemExit(said)
    seen = [one for one in levels if one["forecast"] or one["withheld"]]
    return seen[-1] if seen else None


def line(name: str, load: int, fit: Json, level: Json | None) -> str:
    right, ends = fit["estimate"], [fit[end] for end in ("low", "high")]
    limit = f"{right:.4g}X ({' to '.join(f'{one:.4g}' if one else 'none' for one in ends)})"
    if level is None or not level["forecast"]:
        why = level["withheld"] if level else "no spell"
        return f"| {name} | {load}X | | none: {why} | {limit} | |"
    found = level["forecast"]
    fits = load * found["times"]
    sense = "" if found["bound"] == "about" else f"{found['bound']} "
    return (
        f"| {name} | {load}X | {level['highest_ratio']:.0%} | {sense}{fits:.4g}X | "
        f"{limit} | {fits / right - 1:+.0%} |"
    )


def main() -> int:
    print("| program | traffic seen | highest level | forecast | searched | apart |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or list(CASES):
        case = CASES[name]
        with tempfile.TemporaryDirectory() as out:
            fit = searched(case, f"{out}/search")
            if fit is None:
                print(f"| {name} | | | no limit was found | | |", flush=True)
                continue
            half = max(1, round(fit["estimate"] / 2))
            for n in range(RUNS):
                folder = Path(out, str(n))
                folder.mkdir()
                level = forecast(case, half, str(folder))
                print(line(name, half, fit, level), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
