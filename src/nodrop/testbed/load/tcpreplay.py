"""The peer: tcpreplay, N processes for NX, as the studies ran it."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.config.units import format_cpus
from nodrop.errors import BadKey, LoadFailed
from nodrop.testbed.hosts.api import Child, HostProcess, Link, SpawnRequest, UndoJournal
from nodrop.testbed.hosts.processes import cpu_s as cpu_s_of
from nodrop.testbed.hosts.processes import ended
from nodrop.testbed.hosts.rights import GENERATOR
from nodrop.testbed.load.api import LoadGenerator, OfferedFlows, OfferedLoad, Offerer, Tick, lasting
from nodrop.testbed.load.prepared import prepared
from nodrop.testbed.load.trace import TraceLoad
from nodrop.untrusted.folder import read_end

SECTION, INTERFACE = 0x0A0D0D0A, 1
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"\x04\x22\x4d\x18")
"""First bytes of gzip, zstd, xz and lz4."""
LONGEST_SNAPSHOT_BYTES = 262_144
"""The snapshot length that libpcap puts in place of 0 and of more."""


def is_plain(path: Path) -> bool:
    """Whether libpcap reads the capture."""
    with path.open("rb") as file:
        packed = file.read(4).startswith(PACKED)
    return not packed and len(interface_kinds(path)) < 2


def interface_kinds(path: Path) -> frozenset[tuple[int, int]]:
    """Link type and snapshot length of its interfaces; libpcap wants all alike.
    Empty for a pcap file."""
    with path.open("rb") as file:
        return frozenset(_interfaces(file))


def _interfaces(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    order = "<"
    while len(head := file.read(12)) == 12:
        if head[:4] == SECTION.to_bytes(4, "big"):  # the same in either byte order
            order = "<" if head[8:] == b"\x4d\x3c\x2b\x1a" else ">"
        elif file.tell() == 12:
            return
        kind, length = struct.unpack(f"{order}II", head[:8])
        if kind == INTERFACE:
            if len(tail := file.read(4)) < 4:
                return
            linktype, snapshot = struct.unpack(f"{order}H2xI", head[8:] + tail)
            yield linktype, min(snapshot or LONGEST_SNAPSHOT_BYTES, LONGEST_SNAPSHOT_BYTES)
            file.seek(-4, 1)
        if length < 12:
            return
        file.seek(length - 12, 1)


TICK_S = 0.5
_ACTUAL = re.compile(r"Actual: (\d+) packets \((\d+) bytes\) sent in ([\d.]+) seconds")
_FAILED = re.compile(r"Failed packets:\s+(\d+)")


PR_SET_TIMERSLACK = 29


class Tcpreplay(TraceLoad):
    """`-T nano`: the default timer burns a core per process (isolation.md, headline 4)."""

    name = program = "tcpreplay"
    late_ratio = 0.5
    """4.4.3 drifts: 8 to 25 % longer than the trace's own timing on a quiet machine, more on a busy
    one. The rate that was really offered stands beside every result."""

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        # It can send nothing else, so who asks for nothing else need not say it.
        given = {"flows": "same", **options}
        self.options = check(ReplayOptions, given, table="load", base=base)
        self.constant_rate = self.options.pps is not None
        if not isinstance(self.options.multiplier, int):
            raise BadKey(
                "load.multiplier",
                "tcpreplay sends whole copies only",
                given=str(self.options.multiplier),
                hint='set a whole number, or load.kind = "replay"',
            )
        self.senders = self.options.multiplier
        if self.options.multiplier > 1 and self.options.flows == "distinct":
            raise BadKey(
                "load.flows",
                "tcpreplay sends N identical copies of a trace",
                given='"distinct"',
                hint='set load.flows = "same", or load.kind = "replay"',
            )
        if self.options.loop_flows == "distinct":
            raise BadKey(
                "load.loop_flows",
                "tcpreplay sends the same flows in each pass",
                given='"distinct"',
                hint='leave it out, or set load.kind = "replay"',
            )
        if self.options.duration_s is not None:
            raise BadKey(
                "load.duration_s", "tcpreplay here sends whole passes only", hint="use load.loops"
            )

    @cached_property
    def plain_trace(self) -> Path:
        """The capture as libpcap reads it: not packed, and no pcapng whose interfaces differ."""
        if is_plain(self.trace):
            return self.trace
        return prepared(self.trace, self.options, as_pcap=True).path

    def files(self) -> Sequence[Path]:
        return [self.plain_trace]

    def problems(self) -> Sequence[str]:
        self.trace_facts()
        _ = self.plain_trace  # made before the first trial
        return []

    def argv(self, interface: str, trace: str) -> list[str]:
        match self.options.pace:
            case {"pps": pps}:
                pace = [f"--pps={pps / self.options.multiplier:g}"]
            case {"speed": speed}:
                pace = [f"--multiplier={speed:g}"]
            case _:
                pace = ["--topspeed"]
        return [
            "tcpreplay", "--timer=nano", "--preload-pcap", f"--intf1={interface}",
            f"--loop={self.options.loops}", *pace, trace,
        ]  # fmt: skip

    @contextmanager
    def prepare(self, link: Link, *, work: Path, journal: UndoJournal) -> Iterator[Offerer]:
        del journal  # the processes die with us (nodrop-node enter)
        yield _TcpreplayOfferer(self, link, work)


LONGEST_WORDS = 64 << 10
"""Room for the statistics at its end."""


class _TcpreplayOfferer:
    flows: OfferedFlows = "repeated"
    processes: Sequence[HostProcess] = ()
    """None before it sends: it is started then."""

    def __init__(self, generator: Tcpreplay, link: Link, work: Path) -> None:
        self._link = link
        said = link.tx.host.run([generator.program, "-V"], check=False)
        self._version = next(iter((said.stdout + said.stderr).splitlines()), None)
        self.aim(generator, work=work)

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        if not isinstance(load, Tcpreplay):
            raise TypeError(f"tcpreplay cannot offer a load of kind {load.name}")
        self._generator, self._work, options = load, work, load.options
        self.intended_packets = load.trace_facts().packets * options.loops * load.senders
        self.intended_duration_s = load.duration_s()

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        host = self._link.tx.host
        argv = self._generator.argv(self._link.tx.name, host.reads(self._generator.plain_trace))
        cpus = self._generator.options.cpus
        logs = [self._work / f"tcpreplay-{n}.log" for n in range(self._generator.senders)]
        cpu_s: list[float | None] = []
        deadline = time.monotonic() + timeout_s
        before = time.monotonic_ns()
        with _exact_timers():
            processes = [
                host.spawn(
                    SpawnRequest(
                        argv=argv,
                        stdout=log,
                        stderr=log.with_suffix(".err"),
                        cpus=format_cpus(cpus) or None,
                        caps=GENERATOR,
                    )
                )
                for log in logs
            ]
        try:
            for process, log in zip(processes, logs, strict=True):
                while not self._is_over(process, TICK_S):
                    if time.monotonic() > deadline:
                        raise LoadFailed(f"tcpreplay was not done after {timeout_s:.0f} s")
                    tick(None)
                cpu_s.append(cpu_s_of(HostProcess(host, process.pid)) if host.here else None)
                if (status := process.wait()) != 0:
                    words = " ".join(_said(log.with_suffix(".err")).split())
                    raise LoadFailed(f"tcpreplay ended with status {status}: {words[-300:]}")
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        after = time.monotonic_ns()
        said = [parse_summary(_said(log)) for log in logs]
        failed = sum(failed for _, _, _, failed in said)
        return OfferedLoad(
            intended_packets=self.intended_packets,
            sent_packets=sum(packets for packets, _, _, _ in said),
            sent_bytes=sum(sent_bytes for _, sent_bytes, _, _ in said),
            refused_packets={"failed": failed} if failed else {},
            duration_s=max(lasting(seconds, packets) for packets, _, seconds, _ in said),
            intended_duration_s=self.intended_duration_s,
            schedule_error_us=None,
            cpu_s=None if None in cpu_s else sum(s for s in cpu_s if s is not None),
            first_sent_mono_ns=before - host.clock_offset_ns,
            last_sent_mono_ns=after - host.clock_offset_ns,
            facts={
                "argv": argv,
                "version": self._version,
                "processes": len(said),
                "cpu": format_cpus(cpus) or None,
            },
        )

    def _is_over(self, process: Child, timeout_s: float) -> bool:
        """A child of ours is not reaped: its account can still be read."""
        if self._link.tx.host.here:
            return ended(process.pid, timeout_s)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
        return process.poll() is not None


@contextmanager
def _exact_timers() -> Iterator[None]:
    """Children inherit the timer slack: with the usual 50 us tcpreplay's naps of 30 us at 20x make
    a minute's trace take 9 s instead of 3, with 1 ns 4 s (both on a busy machine)."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0)  # 0: the default again


def _said(log: Path) -> str:
    return read_end(log, bytes_from_end=LONGEST_WORDS).decode(errors="replace")


def parse_summary(text: str) -> tuple[int, int, float, int]:
    """Packets, bytes, seconds and failed packets of tcpreplay 4's closing statistics."""
    actual, failed = _ACTUAL.search(text), _FAILED.search(text)
    if actual is None or failed is None:
        raise LoadFailed(f"tcpreplay said nothing about what it sent: {text[-300:]!r}")
    return int(actual[1]), int(actual[2]), float(actual[3]), int(failed[1])
