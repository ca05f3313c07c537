"""What the bench measures with: two namespaces and a veth pair, our node, tcpreplay, and clocks
outside of both."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_receiver import BLOCK_TIMEOUT_MS, Receiver

from nodrop.testbed.hosts.node import find_node_binary

LIBC = ctypes.CDLL(None, use_errno=True)
DEADLINE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    out: str
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    p99_us: float
    rate_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    sender: str
    receiver: str
    node: Path
    trace: Path
    quick: bool

    def run(self, *commands: Sequence[str | Path], namespace: str | None = None) -> list[Ended]:
        """Runs commands at once, in the sender's namespace if no other; what each has cost."""
        enter = ["ip", "netns", "exec", namespace or self.sender]
        started = [
            subprocess.Popen([*enter, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for command in commands
        ]
        return [_ended(process) for process in started]

    def replay(self, *flags: str) -> tuple[dict[str, Any], Ended]:
        [ended] = self.run(
            [self.node, "replay", "--interface", "ndt0", "--trace", self.trace, *flags]
        )
        result: dict[str, Any] = json.loads(ended.out)
        return result, ended

    def tcpreplay(self, *flags: str) -> list[str | Path]:
        return ["tcpreplay", "--intf1=ndt0", "--preload-pcap", *flags, self.trace]

    def top_speed(self, backend: str, multiplier: float = 1) -> float:
        flags = ["--top-speed", "--loops", self._loops, "--backend", backend]
        result, _ = self.replay(*flags, "--multiplier", str(multiplier))
        took_ns = result["last_sent_mono_ns"] - result["first_sent_mono_ns"]
        return float(result["sent_packets"] * 1e9 / took_ns)

    def flood(self, backend: str) -> float:
        """Copies of one frame of mean length; over veth only into NAPI, which is GRO."""
        namespace, port = (self.sender, "ndt0")
        if backend == "flood_in":
            namespace, port = (self.receiver, "ndr0")
        flags = ["--loops", "100000" if self.quick else "1000000", "--top-speed"]
        argv = [self.node, "replay", "--interface", port, "--trace", self._mean_frame(), *flags]
        with _inside(self.receiver):
            ethtool("ndr0", "gro", "on")
        try:
            [ended] = self.run([*argv, "--backend", backend], namespace=namespace)
        finally:
            with _inside(self.receiver):
                ethtool("ndr0", "gro", "off")
        result = json.loads(ended.out)
        took_ns = result["last_sent_mono_ns"] - result["first_sent_mono_ns"]
        return float(result["sent_packets"] * 1e9 / took_ns)

    def _mean_frame(self) -> Path:
        frame = self.trace.with_name("mean.pcap")
        if not frame.exists():
            lengths = _frame_lengths(self.trace.read_bytes())
            mean = statistics.fmean(lengths)
            skipped = min(range(len(lengths)), key=lambda number: abs(lengths[number] - mean))
            cut = [self.node, "trace", "cut", self.trace, frame, "--skip", str(skipped)]
            self.run([*cut, "--packets", "1"])
        return frame

    def tcpreplay_top_speed(self) -> float:
        [ended] = self.run(self.tcpreplay("--topspeed", f"--loop={self._loops}"))
        found = re.search(r"Actual: (\d+) packets .* sent in ([\d.]+) seconds", ended.out)
        if found is None:
            raise SystemExit(f"tcpreplay says no rate:\n{ended.out}")
        return int(found[1]) / float(found[2])

    def errors(self, pps: int, *flags: str) -> Errors:
        packets = self._packets(pps)
        argv = [self.node, "replay", "--interface", "ndt0", "--trace", self.trace, "--loops", "0"]
        pace = ["--pps", str(pps), "--duration-s", str(packets / pps)]
        times = self._arrivals([*argv, *pace, *flags])
        return _errors(times, pps)

    def tcpreplay_errors(self, pps: int, flags: Sequence[str]) -> Errors:
        limit = [f"--limit={self._packets(pps)}", f"--pps={pps}"]
        return _errors(self._arrivals(self.tcpreplay(*limit, *flags)), pps)

    def duration_error(self) -> float:
        part_s = 1 if self.quick else 5
        argv = [self.node, "replay", "--interface", "ndt0", "--trace", self.trace, "--speed", "1"]
        with _inside(self.receiver), Receiver("ndr0") as receiver:
            [ended] = self.run([*argv, "--duration-s", str(part_s)])
            times = _after_last_block(receiver)
        asked_ns = json.loads(ended.out)["intended_duration_ns"]
        return (times[-1] - times[0]) / float(asked_ns) - 1

    def cpu_s(self, *, replicas: int, pps: int) -> float:
        seconds = self._packets(pps) / pps
        flags = ["--pps", str(pps), "--loops", "0", "--duration-s", str(seconds)]
        _, ended = self.replay(*flags, "--multiplier", str(replicas))
        return ended.cpu_s

    def tcpreplay_cpu_s(self, *, processes: int, pps: int) -> float:
        packets = self._packets(processes * pps) // processes
        one = self.tcpreplay("--timer=nano", f"--pps={pps}", f"--limit={packets}")
        return sum(ended.cpu_s for ended in self.run(*[one] * processes))

    def peak_bytes(self, replicas: int) -> int:
        flags = ["--pps", "1000", "--duration-s", "0.1", "--multiplier", str(replicas)]
        return self.replay(*flags)[1].peak_bytes

    def info_s_per_gb(self) -> float:
        """CPU time, which one core has as much of as the clock."""
        copies = max(1, (10**8 if self.quick else 10**9) // self.trace.stat().st_size)
        large = self.trace.with_name("large.pcap")
        if not large.exists():
            argv = [self.node, "trace", "replicate", self.trace, large, "--flows", "same"]
            self.run([*argv, "--multiplier", str(copies)])
        [ended] = self.run([self.node, "trace", "info", large])
        return ended.cpu_s * 1e9 / large.stat().st_size

    @property
    def _loops(self) -> str:
        return "1" if self.quick else "5"

    def _packets(self, pps: int) -> int:
        return pps // 2 if self.quick else min(3 * pps, 100_000)

    def _arrivals(self, argv: Sequence[str | Path]) -> list[int]:
        with _inside(self.receiver), Receiver("ndr0") as receiver:
            self.run(argv)
            return _after_last_block(receiver)


def _after_last_block(receiver: Receiver) -> list[int]:
    # The kernel hands the last block over when its time is up: no event says so.
    time.sleep(3 * BLOCK_TIMEOUT_MS / 1000)
    arrivals = receiver.arrivals()
    if arrivals.dropped:
        raise SystemExit(f"the bench's own receiver dropped {arrivals.dropped} packets")
    return arrivals.times_ns


def _errors(times_ns: list[int], pps: int) -> Errors:
    """Distance from the schedule that fits best: neither sender's start is known here."""
    late = [at - times_ns[0] - number * 1e9 / pps for number, at in enumerate(times_ns)]
    middle = statistics.median(late)
    distances = sorted(abs(error - middle) for error in late)
    asked_ns = (len(times_ns) - 1) * 1e9 / pps
    return Errors(
        p99_us=distances[len(distances) * 99 // 100] / 1e3,
        rate_error=asked_ns / (times_ns[-1] - times_ns[0]) - 1,
    )


def _ended(process: subprocess.Popen[bytes]) -> Ended:
    assert process.stdout is not None and process.stderr is not None
    out, said = process.stdout.read().decode(), process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{process.args!r}: exit code {process.returncode}\n{said}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Ended(out=out, cpu_s=cpu_s, peak_bytes=usage.ru_maxrss * 1024)


def _frame_lengths(pcap: bytes) -> list[int]:
    """Of a pcap of this machine's byte order."""
    lengths, place = [], 24
    while place < len(pcap):
        (length,) = struct.unpack_from("I", pcap, place + 8)
        lengths.append(length)
        place += 16 + length
    return lengths


def ethtool(port: str, feature: str, state: str) -> None:
    subprocess.run(["ethtool", "-K", port, feature, state], check=True, timeout=DEADLINE_S)


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """This thread in a network namespace; what it opens there stays there."""
    with Path("/proc/thread-self/ns/net").open() as home:
        with Path("/run/netns", namespace).open() as there:
            LIBC.setns(there.fileno(), 0)
        try:
            yield
        finally:
            LIBC.setns(home.fileno(), 0)


@contextmanager
def busy_cpus() -> Iterator[None]:
    """One process per CPU that never sleeps, as a load on the host under test would be."""
    endless = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(endless) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@contextmanager
def bench_lab(folder: Path, asked: argparse.Namespace) -> Iterator[Bench]:
    """Makes the namespaces and the trace, and removes the namespaces."""
    for program in ("ip", "ethtool", "tcpreplay"):
        if shutil.which(program) is None:
            raise SystemExit(f"bench needs {program}: tools/system-packages test")
    if os.geteuid() != 0:
        raise SystemExit("bench needs root: it makes network namespaces")
    node = find_node_binary()
    trace = folder / "trace.pcap"
    if asked.trace:
        trace.symlink_to(asked.trace.resolve())
    else:
        made = [node, "trace", "make", "bigflows-like", trace, "--packets", "100000"]
        subprocess.run(made, check=True, capture_output=True, timeout=DEADLINE_S)
    names = [f"ndben{os.getpid()}{end}" for end in "tr"]
    try:
        _make(*names)
        yield Bench(sender=names[0], receiver=names[1], node=node, trace=trace, quick=asked.quick)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _make(sender: str, receiver: str) -> None:
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=DEADLINE_S)

    for name in (sender, receiver):
        ip("netns", "add", name)
    pair = ["link", "add", "ndt0", "type", "veth", "peer", "name", "ndr0", "netns", receiver]
    ip("-n", sender, *pair)
    for name, port in ((sender, "ndt0"), (receiver, "ndr0")):
        quiet = "net.ipv6.conf.all.disable_ipv6=1"
        ip("netns", "exec", name, "sysctl", "-qw", quiet)
        ip("-n", name, "link", "set", port, "mtu", "3000", "arp", "off", "up")
        ip("netns", "exec", name, "ethtool", "-K", port, "gro", "off")
