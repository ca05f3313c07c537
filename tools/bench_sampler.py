"""The sampler beside a psutil poller: system and NIC, with or without a process tree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench_lab import Bench

INTERVAL_S = 0.1
PROCESSES, THREADS_EACH = 6, 4
SLEEPER = f"""
import sys, threading
for _ in range({THREADS_EACH - 1}):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""
POLLER = """
import json, sys, time
import psutil
samples, interval, pids = int(sys.argv[1]), float(sys.argv[2]), [int(p) for p in sys.argv[3:]]
def read():
    row = [psutil.cpu_times(percpu=True), psutil.virtual_memory(), psutil.swap_memory()]
    row += [psutil.disk_io_counters(perdisk=True), psutil.net_io_counters(pernic=True)]
    for pid in pids:
        root = psutil.Process(pid)
        for one in [root, *root.children(recursive=True)]:
            row += [one.cpu_times(), one.memory_info(), one.num_ctx_switches(), one.threads()]
    return row
read()
begin, cpu = time.monotonic(), time.process_time()
for number in range(samples):
    time.sleep(max(0, begin + number * interval - time.monotonic()))
    read()
print(json.dumps((time.process_time() - cpu) / samples))
"""


def sampler_against_psutil(bench: Bench) -> Iterator[tuple[str, float]]:
    """CPU per sample of ours in that of the poller."""
    samples = 10 if bench.quick else 40
    with ExitStack() as stack:
        tree = [stack.enter_context(_sleeper()) for _ in range(PROCESSES)]
        pids = [str(process.pid) for process in tree]
        for name, watched in (("with tree", pids), ("system only", [])):
            ratio = _ours(bench, samples, watched) / _psutil(samples, watched)
            yield f"sampler CPU per sample : psutil, {name}", ratio
        for process in tree:
            assert process.stdin is not None
            process.stdin.close()


def _sleeper() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", SLEEPER]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _psutil(samples: int, pids: list[str]) -> float:
    argv = [sys.executable, "-c", POLLER, str(samples), str(INTERVAL_S), *pids]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=300)
    return float(json.loads(done.stdout))


def _ours(bench: Bench, samples: int, pids: list[str]) -> float:
    argv = [str(bench.node), "sample", "--interval-ms", str(round(INTERVAL_S * 1000))]
    argv += ["--duration-s", str(samples * INTERVAL_S), "--path", "/dev/null"]
    argv += [word for pid in pids for word in ("--pid", pid)]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=300)
    result = json.loads(done.stdout.splitlines()[-1])
    return float(result["cpu_s"]) / int(result["rows"])
