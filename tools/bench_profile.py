"""What a profile does to the SUT: one Suricata under a constant load, looked at and not, in turns.

`nodrop ab` compares trials, and trials differ by more than a profile costs: by the start of the
SUT, by what the host does beside. Here one SUT stands, and profilers come and go: in each block one
turn without and one with each node that is named, in an order drawn anew. A turn is one whole loop
of the trace, so all turns have the same packets; a difference is taken within its block.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from nodrop.stats.interval import Summary, summarize
from nodrop.testbed.hosts.node import find_node_binary, start_job

EXPERIMENT = """
name = "profile-cost"
[sut]
kind = "suricata"
[load]
kind = "replay"
trace = {trace}
pps = {pps}
loops = {loops}
[measure]
repetitions = 1
late_p99_us = 60e6 # what a packet costs is the question
late_burst_max_ratio = 1
"""
TURN_S = 3.0
SETTLE_S = 0.5
"""Between the beginning of a profile and that of the turn; a turn without one waits as long."""
START_TIMEOUT_S = 60.0
JOB_TIMEOUT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--node", type=Path, action="append", default=[], help="one more node")
    parser.add_argument("--set", action="append", default=[], help="of the experiment")
    asked = parser.parse_args()
    nodes = [find_node_binary(), *asked.node]
    told = json.loads(subprocess.check_output(
        [sys.executable, "-m", "nodrop.cli.main", "trace", "info", str(asked.trace), "--json"]
    ))  # fmt: skip
    pps = told["packets"] / TURN_S
    loops = round(asked.blocks * (len(nodes) + 1) * 3)
    with standing(EXPERIMENT.format(trace=json.dumps(str(asked.trace)), pps=pps, loops=loops),
                  asked.set) as sut:  # fmt: skip
        blocks = [block(sut, nodes) for _ in range(asked.blocks)]
    say(blocks, [None, *nodes])


@contextmanager
def standing(experiment: str, settings: Sequence[str]) -> Iterator[psutil.Process]:
    """Suricata, with packets coming in."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile-cost.toml"
        file.write_text(experiment)
        words = [word for setting in settings for word in ("--set", setting)]
        run = subprocess.Popen(
            [sys.executable, "-m", "nodrop.cli.main", "run", str(file), "--out", folder, *words],
            stdout=sys.stderr,
        )
        try:
            yield waited_for(run)
        finally:
            run.terminate()
            run.wait()


def waited_for(run: subprocess.Popen[bytes]) -> psutil.Process:
    ends = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < ends and run.poll() is None:
        for one in psutil.Process(run.pid).children(recursive=True):
            try:
                if one.name().lower().startswith("suricata") and received(one) > 100_000:
                    return one
            except (psutil.Error, OSError):
                continue
        time.sleep(0.2)
    raise SystemExit("no Suricata came up under a load")


def received(sut: psutil.Process) -> int:
    """Packets at the ports of its network namespace."""
    rows = Path(f"/proc/{sut.pid}/net/dev").read_text().splitlines()[2:]
    return sum(int(row.split(":")[1].split()[1]) for row in rows if "lo:" not in row)


def cpu_ns(sut: psutil.Process) -> int:
    tasks = Path(f"/proc/{sut.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def block(sut: psutil.Process, nodes: Sequence[Path]) -> dict[Path | None, float]:
    """Node, or None → microseconds of CPU per packet."""
    order: list[Path | None] = [None, *nodes]
    random.shuffle(order)
    return {node: turn(sut, node) for node in order}


def turn(sut: psutil.Process, node: Path | None) -> float:
    if node is None:
        time.sleep(SETTLE_S)
        return per_packet_us(sut)
    spec = {"job": "profile", "pids": [sut.pid], "hardware": False}
    job = start_job([str(node), "profile", "--controlled"], spec, env=os.environ, where="here",
                    timeout_s=JOB_TIMEOUT_S)  # fmt: skip
    try:
        job.start(at_mono_ns=time.monotonic_ns())
        time.sleep(SETTLE_S)
        found = per_packet_us(sut)
        job.stop()
        job.result(timeout_s=JOB_TIMEOUT_S)
    finally:
        job.close()
    return found


def per_packet_us(sut: psutil.Process) -> float:
    cpu, packets = cpu_ns(sut), received(sut)
    time.sleep(TURN_S)
    return (cpu_ns(sut) - cpu) / (received(sut) - packets) / 1000


def say(blocks: Sequence[dict[Path | None, float]], arms: Sequence[Path | None]) -> None:
    for arm in arms:
        took = [block[arm] for block in blocks]
        name = "without a profile" if arm is None else str(arm)
        print(
            f"{name}: {median(took):.2f} µs of CPU per packet ({min(took):.2f} to {max(took):.2f})"
        )
    pairs = [(a, b) for n, a in enumerate(arms) for b in arms[n + 1 :]]
    for a, b in pairs:
        more = summarize([block[b] - block[a] for block in blocks])
        ratio = summarize([block[b] / block[a] - 1 for block in blocks])
        print(f"{b} − {a or 'without'}: {shown(more, 1)} µs, {shown(ratio, 100)} %, median of "
              f"{len(blocks)} blocks")  # fmt: skip


def shown(found: Summary | None, by: float) -> str:
    if found is None or found.interval is None:
        return "not known" if found is None else f"{found.median * by:+.2f}"
    low, high = found.interval.low * by, found.interval.high * by
    return f"{found.median * by:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    main()
