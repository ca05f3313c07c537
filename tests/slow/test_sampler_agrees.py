"""The sampler's numbers beside psutil's, /proc's and a control group's own files.

A counter is read by the other side before and after: ours must lie between, without a tolerance but
for the units it is counted in. What is no total is compared while it stands still.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.node import find_node_binary

psutil = pytest.importorskip("psutil")

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STILL = """
import sys, threading, time
begin = time.process_time()
while time.process_time() < begin + 0.2: pass
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
print("still", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def node() -> Path:
    try:
        return find_node_binary()
    except LabProblem as problem:
        pytest.skip(str(problem).splitlines()[0])


@pytest.fixture
def still() -> Iterator[int]:
    """A process of four threads that has used 0.2 s of CPU and now waits."""
    argv = [sys.executable, "-c", STILL]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        yield child.pid
        child.stdin.close()


def rows(node: Path, *arguments: str) -> list[dict[str, Any]]:
    argv = [str(node), "sample", "--interval-ms", "10", "--duration-s", "0.01", *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30)
    return [json.loads(line) for line in done.stdout.splitlines()[:-1]]


def between(before: float, ours: float, after: float, what: str, unit: float = 0) -> None:
    assert before - unit <= ours <= after + unit, f"{what}: {before} <= {ours} <= {after}"


def test_cpu_times_lie_between_two_looks_of_psutil(node: Path) -> None:
    before = psutil.cpu_times(percpu=True)
    row = rows(node)[0]
    after = psutil.cpu_times(percpu=True)
    assert [cpu["cpu"] for cpu in row["cpus"]] == list(range(len(before)))
    for cpu in row["cpus"]:
        first, last = before[cpu["cpu"]], after[cpu["cpu"]]
        for name in ("system", "irq", "softirq", "steal", "guest"):
            times = getattr(first, name), cpu[f"{name}_ns"] / 1e9, getattr(last, name)
            between(*times, f"{name} of {cpu}", 1e-6)
        user = (cpu["user_ns"] + cpu["guest_ns"]) / 1e9
        between(first.user, user, last.user, "user with guests, as psutil has it", 1e-6)


def test_disks_ports_and_swap_lie_between_two_looks_of_psutil(node: Path) -> None:
    looks = (
        lambda: psutil.disk_io_counters(perdisk=True),
        lambda: psutil.net_io_counters(pernic=True),
        psutil.swap_memory,
    )
    before = [look() for look in looks]
    row = rows(node, "--port", "lo")[0]
    after = [look() for look in looks]
    for disk, counted in row["disks"].items():
        first, last = before[0][disk], after[0][disk]
        for ours, theirs in (
            ("reads", "read_count"),
            ("writes", "write_count"),
            ("read_bytes", "read_bytes"),
            ("write_bytes", "write_bytes"),
        ):
            between(getattr(first, theirs), counted[ours], getattr(last, theirs), f"{disk} {ours}")
        between(first.write_time, counted["write_ns"] / 1e6, last.write_time, f"{disk} write_ns")
    first, last, ours = before[1]["lo"], after[1]["lo"], row["links"]["lo"]
    between(first.packets_recv, ours["rx_packets"], last.packets_recv, "rx_packets")
    between(first.bytes_sent, ours["tx_bytes"], last.bytes_sent, "tx_bytes")
    between(before[2].sin, row["swap"]["in_bytes"], after[2].sin, "swapped in")
    between(before[2].sout, row["swap"]["out_bytes"], after[2].sout, "swapped out")
    memory = psutil.virtual_memory()
    assert row["memory"]["total_bytes"] == memory.total
    assert row["memory"]["swap_total_bytes"] == before[2].total
    # Of the moment, on a machine that works: within a tenth of all memory.
    assert abs(row["memory"]["available_bytes"] - memory.available) < memory.total / 10


def test_a_process_that_stands_still_is_told_exactly(node: Path, still: int) -> None:
    row = rows(node, "--pid", str(still))[-1]
    theirs = psutil.Process(still)
    (ours,) = row["processes"]
    assert ours["rss_bytes"] == theirs.memory_info().rss
    used = theirs.cpu_times()
    assert ours["cpu_ns"] / 1e9 == pytest.approx(used.user + used.system, abs=2 * TICK_S)
    assert {thread["tid"] for thread in ours["threads"]} == {t.id for t in theirs.threads()}
    main = next(thread for thread in ours["threads"] if thread["tid"] == still)
    switches = theirs.num_ctx_switches()
    assert (main["voluntary_switches"], main["involuntary_switches"]) == tuple(switches)
    io = theirs.io_counters()
    counted = ours["io"]["read_calls"], ours["io"]["write_calls"]
    assert counted == (io.read_count, io.write_count)
    assert (ours["io"]["read_bytes"], ours["io"]["write_bytes"]) == (io.read_bytes, io.write_bytes)
    for thread in ours["threads"]:
        text = Path(f"/proc/{still}/task/{thread['tid']}/schedstat").read_text()
        assert [thread["cpu_ns"], thread["wait_ns"], thread["slices"]] == [*map(int, text.split())]


def test_protocol_counters_lie_between_two_looks_at_proc(node: Path) -> None:
    def look() -> dict[str, int]:
        lines = Path("/proc/net/snmp").read_text().splitlines()
        found = {}
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            table, *columns = names.split()
            numbers = zip(columns, map(int, values.split()[1:]), strict=True)
            found |= {f"{table[:-1]}.{name}": value for name, value in numbers}
        return found

    before = look()
    row = rows(node, "--every", "snmp=10")[0]
    after = look()
    assert set(before) <= set(row["snmp"])
    for name in ("Ip.InReceives", "Ip.ReasmReqds", "Tcp.InSegs", "Tcp.OutSegs", "Udp.InDatagrams"):
        between(before[name], row["snmp"][name], after[name], name)


def cgroup_files() -> dict[str, Path]:
    """Controller → our own folder of it, v1 only; the v2 reader is tested on made-up trees."""
    mounts = {
        options: Path(point)
        for _, point, kind, options in (
            line.split()[:4] for line in Path("/proc/mounts").read_text().splitlines()
        )
        if kind == "cgroup"
    }
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            point = next((p for o, p in mounts.items() if name in o.split(",")), None)
            if name and point and (point / path.lstrip("/")).is_dir():
                found[name] = point / path.lstrip("/")
    return found


def test_a_control_group_lies_between_two_looks_at_its_files(node: Path) -> None:
    folders = cgroup_files()
    if not {"cpuacct", "memory"} <= set(folders):
        pytest.skip("no cgroup v1 cpuacct and memory controllers here")

    def look() -> tuple[int, ...]:
        usage = int((folders["cpuacct"] / "cpuacct.usage").read_text())
        hits = int((folders["memory"] / "memory.failcnt").read_text())
        peak = int((folders["memory"] / "memory.max_usage_in_bytes").read_text())
        return usage, hits, peak

    before = look()
    row = rows(node, "--cgroup-of-pid", str(os.getpid()))[0]["cgroup"]
    after = look()
    names = ("cpu_ns", "memory_limit_hits", "memory_peak_bytes")
    for name, first, last in zip(names, before, after, strict=True):
        between(first, row[name], last, name)
    limit = int((folders["memory"] / "memory.limit_in_bytes").read_text())
    assert row["memory_limit_bytes"] == (limit if limit < 1 << 62 else None)
    assert 0 < row["anon_bytes"] + row["file_bytes"] <= row["memory_peak_bytes"]


def test_the_studies_columns_say_what_psutil_says(node: Path, still: int, tmp_path: Path) -> None:
    argv = [str(node), "sample", "--interval-ms", "50", "--duration-s", "0.2", "--format", "sysmon"]
    argv += ["--port", "lo", "--pid", str(still), "--path", str(tmp_path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)

    def last(name: str) -> dict[str, str]:
        with (tmp_path / name).open(newline="") as file:
            return list(csv.DictReader(file, skipinitialspace=True))[-1]

    system, processes = last("sysstat.csv"), last("psstat.csv")
    theirs = psutil.Process(still)
    assert int(system["NCPU"]) == psutil.cpu_count()
    assert int(system["mem.total.KB"]) == psutil.virtual_memory().total >> 10
    assert int(system["swap.total.KB"]) == psutil.swap_memory().total >> 10
    used = int(system["mem.total.KB"]) - int(system["mem.avail.KB"])
    share = 100 * used / int(system["mem.total.KB"])
    assert float(system["%MEM"]) == pytest.approx(share, abs=0.05)
    assert 0 <= float(system["%CPU"]) <= 100 * int(system["NCPU"])
    assert int(processes["mem.rss.KB"]) == theirs.memory_info().rss >> 10
    assert float(processes["%MEM"]) == pytest.approx(theirs.memory_percent("rss"), abs=0.001)
    assert int(processes["nctxsw"]) == sum(theirs.num_ctx_switches())
    assert int(processes["nthreads"]) == theirs.num_threads() == 4
    assert float(processes["%CPU"]) == 0
    assert int(processes["io.read"]) == theirs.io_counters().read_count
    assert last("netstat.lo.csv")["NIC"] == "lo"
