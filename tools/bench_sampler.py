"""The sampler beside a psutil poller that reads and writes what the studies' sysmon.py did.

The poller makes that program's calls at each sample, from three monitors that `sched` runs one
after the other: `cpu_percent` of the host and of each CPU, `virtual_memory`, `swap_memory` and
`disk_io_counters`; `net_io_counters(pernic=True)`; and, with a process tree, `process_iter` for the
roots and of each process below them I/O, memory, context switches, threads, CPU and children. It
writes the same columns to the same files. Ours does so with
`--format sysmon`, which reads every one of its sources for every row; and once more as it is by
default: JSON lines with every thread, the backlog of each CPU, load and pressure, of which disks
and what changes slowly are read once per second.

Of both, the CPU time of the rows alone: neither's start counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from bench_lab import Bench

CORE_AT_10_HZ = "sampler's part of a core at 10 Hz, default rows, with tree"
LATENESS = "sampler's lateness p99, ms"
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
import json, sched, sys, time
from pathlib import Path
import psutil

samples, interval_s, folder, ports, pids = json.loads(sys.argv[1])
system = (Path(folder) / "sysstat.csv").open("w")
networks = {port: (Path(folder) / f"netstat.{port}.csv").open("w") for port in ports}
processes = (Path(folder) / "psstat.csv").open("w")
before = {"disks": psutil.disk_io_counters(), "networks": psutil.net_io_counters(pernic=True)}
begin = int(time.time())

def write(file, *values):
    now = int(time.time())
    file.write(", ".join(map(str, (now, now - begin, *values))) + "\\n")

def rise(now, before):
    return [a - b for a, b in zip(now, before)]

def read_system():
    cpu, cpus = psutil.cpu_percent(), psutil.cpu_percent(percpu=True)
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    disks = psutil.disk_io_counters()
    write(
        system, len(cpus), cpu * len(cpus), *cpus,
        memory.percent, memory.total, memory.used, memory.available, memory.free,
        swap.percent, swap.total, swap.used, swap.free, *rise(disks[:6], before["disks"][:6]),
    )
    before["disks"] = disks

def read_networks():
    seen = psutil.net_io_counters(pernic=True)
    for port, file in networks.items():
        write(file, port, *rise(seen[port], before["networks"][port]))
    before["networks"] = seen

def tree(process, rows, seen):
    if process.pid in seen:
        return
    seen.add(process.pid)
    io, switches = process.io_counters(), process.num_ctx_switches()
    rows.append((
        process.cpu_percent(), process.memory_percent("rss"), *io[:4], process.memory_info().rss,
        switches.voluntary + switches.involuntary, process.num_threads(),
    ))
    for child in process.children():
        tree(child, rows, seen)

def read_processes():
    rows, seen = [], set()
    for process in psutil.process_iter(["pid", "name"]):
        if process.pid in pids:
            tree(process, rows, seen)
    write(processes, *map(sum, zip(*rows)))

monitors = [*([read_processes] if pids else []), read_networks, read_system]
for monitor in monitors:
    monitor()
scheduler = sched.scheduler(time.time, time.sleep)
begin_s, cpu_s = time.time(), time.process_time()
for number in range(1, samples + 1):
    for priority, monitor in enumerate(monitors):
        scheduler.enterabs(begin_s + number * interval_s, priority, monitor)
    scheduler.run()
print(json.dumps((time.process_time() - cpu_s) / samples))
"""


def sampler_against_psutil(bench: Bench) -> Iterator[tuple[str, float]]:
    """CPU per sample of ours in that of the poller; and what ours takes and how late it is."""
    samples = 10 if bench.quick else 100
    ports = [name for name, port in psutil.net_if_stats().items() if port.isup][:2]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        tree = [stack.enter_context(_sleeper()) for _ in range(PROCESSES)]
        pids = [process.pid for process in tree]
        for what, roots in (("with tree", pids), ("system only", [])):
            peer = _psutil(samples, folder, ports, roots)
            for how, flags in (
                ("sysmon columns", ["--format", "sysmon", "--path", folder]),
                ("default rows", ["--path", folder / "rows.jsonl"]),
            ):
                result = _ours(bench, samples, ports, roots, flags)
                ours = result["rows_cpu_s"] / result["rows"]
                yield f"sampler CPU per sample : psutil, {how}, {what}", ours / peer
                if roots and how == "default rows":
                    yield CORE_AT_10_HZ, ours * 10
        rows = _ours(bench, 4 * samples, ports, [], ["--path", folder / "late.jsonl"], 0.02)
        yield LATENESS, rows["lateness_us"]["p99"] / 1e3
        for process in tree:
            assert process.stdin is not None
            process.stdin.close()


def _sleeper() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", SLEEPER]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _psutil(samples: int, folder: Path, ports: Sequence[str], pids: Sequence[int]) -> float:
    asked = json.dumps([samples, INTERVAL_S, str(folder), ports, pids])
    argv = [sys.executable, "-c", POLLER, asked]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=300)
    return float(json.loads(done.stdout))


def _ours(
    bench: Bench,
    samples: int,
    ports: Sequence[str],
    pids: Sequence[int],
    flags: Sequence[str | Path],
    interval_s: float = INTERVAL_S,
) -> dict[str, Any]:
    argv = [bench.node, "sample", "--interval-ms", str(round(interval_s * 1000)), *flags]
    argv += ["--duration-s", str(samples * interval_s)]
    argv += [word for port in ports for word in ("--port", port)]
    argv += [word for pid in pids for word in ("--pid", str(pid))]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=300)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
