"""iperf3 as a load: what the study of 2017 offered, measured as the bad example that it is.

It fills a link between two TCP/IP stacks and has no schedule: a packet leaves when the sender's
socket, the receiver's window and the CPU that they share let it. Its books close all the same,
because both stacks count what they send. Both hosts need addresses for it, so the receiver answers,
and a capture socket sees the answers as well: they are part of the load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Annotated, Any

from pydantic import Field, model_validator

from nodrop.config.options import Options, YesNo, check
from nodrop.config.replay import ANY_CPU, Cpu
from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import LoadFailed
from nodrop.protocol import Counters
from nodrop.testbed.hosts.api import (
    Child,
    HostProcess,
    Json,
    LabPort,
    Link,
    SpawnRequest,
    UndoJournal,
    rise,
)
from nodrop.testbed.hosts.processes import cpu_s as cpu_s_of
from nodrop.testbed.hosts.processes import ended
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs.addresses import RECEIVER, addressed, show
from nodrop.testbed.load.api import (
    LoadGenerator,
    OfferedFlows,
    OfferedLoad,
    Offerer,
    Tick,
    Unscheduled,
)
from nodrop.untrusted.folder import read_end
from nodrop.untrusted.json_text import decode_object, making_sense

HEADER_BYTES, UDP_HEADERS_BYTES = 14, 28
MOST_LENGTH_BYTES = 65_507
WINDOW_MS = 100
TICK_S = 0.5
READY_TIMEOUT_S = 10.0
LONGEST_WORDS = 4 << 20
"""Room for a JSON with a row for each second and stream."""
HEARD = b"Server listening"


class Iperf3Options(Options):
    duration_s: Annotated[float, Field(ge=1, le=86_400)] = 10.0
    """iperf3 -t."""
    udp: YesNo = False
    """iperf3 -u."""
    bitrate_bps: Annotated[int, Field(ge=0)] | None = None
    """iperf3 -b, for each flow; 0 = as fast as it can. None = iperf3's own default: 1 Mbit/s of
    UDP, no limit of TCP."""
    length_bytes: Annotated[int, Field(ge=16, le=MOST_LENGTH_BYTES)] | None = None
    """iperf3 -l: payload of a datagram, or of a write to a TCP socket. None = iperf3's default."""
    parallel: Annotated[int, Field(ge=1, le=128)] = 1
    """iperf3 -P: flows at once."""
    bidir: YesNo = False
    """iperf3 --bidir: as much the other way."""
    offloads: YesNo = False
    """Segmentation offload on both ports, as a NIC has it: frames of up to 64 KiB then cross the
    link as one packet."""
    cpu: Cpu | None = None
    """CPU of client and server. None = the kernel chooses."""

    @model_validator(mode="after")
    def _whole_seconds(self) -> Iperf3Options:
        if self.duration_s != int(self.duration_s):
            raise ValueError("duration_s: iperf3 takes whole seconds")
        return self

    @property
    def cpus(self) -> Sequence[int]:
        return () if self.cpu in (None, ANY_CPU) else parse_cpus(str(self.cpu))


class Iperf3(LoadGenerator):
    """A LoadGenerator that sends no capture: it is known afterwards what was sent."""

    name = program = "iperf3"
    late_ratio = 0.5
    constant_rate = False
    senders = 1

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(Iperf3Options, options, table="load", base=base)

    def problems(self) -> Sequence[str]:
        return ()

    def misplaced(self, setup: str, *, mtu: int | None, alone: bool) -> str:
        """Why it cannot send to a SUT there, in words; "" if it can. It needs a TCP/IP stack behind
        the port that is captured, gives addresses to no port of the user's, and sends no fragments,
        which the stack's own reassembly would count."""
        if setup != "bare" or not alone:
            return (
                'load.kind = "iperf3" needs the receiving port on the host itself: set setup.kind '
                '= "bare", with one instance and one port'
            )
        if mtu is None:
            return (
                'load.kind = "iperf3" gives addresses to both ports, and to none of the user\'s: '
                "use the lab netns"
            )
        length, most = self.options.length_bytes or 0, mtu - UDP_HEADERS_BYTES
        if self.options.udp and length > most:
            return (
                f"load.length_bytes = {length}: at most {most:,}, or datagrams come as fragments "
                f"(MTU {mtu:,} of the lab)"
            )
        return ""

    def duration_s(self) -> float | None:
        return self.options.duration_s

    def mean_pps(self) -> float | None:
        return None

    def trace_facts(self) -> None:
        return None

    def facts(self) -> Json:
        return {
            "generator": self.name,
            "options": self.options.model_dump(exclude_none=True),
        }

    def argv(self) -> list[str]:
        asked = self.options
        words = ["iperf3", "-c", RECEIVER, "-J", "-i", "0", "-t", f"{asked.duration_s:.0f}"]
        words += ["-u"] if asked.udp else []
        words += [] if asked.bitrate_bps is None else ["-b", str(asked.bitrate_bps)]
        words += [] if asked.length_bytes is None else ["-l", str(asked.length_bytes)]
        words += ["-P", str(asked.parallel)] if asked.parallel > 1 else []
        return words + (["--bidir"] if asked.bidir else [])

    @contextmanager
    def prepare(self, link: Link, *, work: Path, journal: UndoJournal) -> Iterator[Offerer]:
        del journal  # the lab made these ports, and removes them with all they have
        mtu = min(int(show(port)["mtu"]) for port in (link.tx, link.rx))
        with addressed(link.tx, link.rx, offloads=self.options.offloads):
            yield _Iperf3Offerer(self, link, work, mtu)


class _Iperf3Offerer:
    flows: OfferedFlows = "repeated"
    processes: Sequence[HostProcess] = ()
    """None before they send: they are started then."""
    intended_packets = None

    def __init__(self, load: Iperf3, link: Link, work: Path, mtu: int) -> None:
        self._link, self._mtu, self._load = link, mtu, load
        self.aim(load, work=work)

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        if not isinstance(load, Iperf3) or load.options.offloads != self._load.options.offloads:
            raise TypeError(f"iperf3 cannot offer a load of kind {load.name}")
        self._load, self._work = load, work
        self.intended_duration_s: float | None = load.options.duration_s

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        load, link = self._load, self._link
        client, server, rows = (self._work / f"iperf3-{n}" for n in ("client", "server", "rows"))
        before = link.tx.counters(), link.rx.counters()
        watch = {"job": "sample", "interval_ms": WINDOW_MS, "ports": [link.tx.name]}
        with ExitStack() as stack:
            served = stack.enter_context(self._running(link.rx, ["iperf3", "-s", "-1"], server))
            _wait_listening(server, served)
            job = link.tx.host.job({**watch, "path": str(rows)})
            stack.enter_context(closing(job))
            job.start()
            began_ns = time.monotonic_ns()
            sender = stack.enter_context(self._running(link.tx, load.argv(), client))
            deadline = time.monotonic() + timeout_s
            used = [_to_its_end(process, link, tick, deadline) for process in (sender, served)]
            ended_ns = time.monotonic_ns()
            job.stop()
            job.result(timeout_s=READY_TIMEOUT_S)
            said = _said(client)
            if status := sender.wait():
                raise LoadFailed(f"iperf3 ended with status {status}: {said.get('error', '')}")
        after = link.tx.counters(), link.rx.counters()
        sent = sent_by_stack(before[0], after[0], joined=load.options.offloads)
        octets = rise(before[0], after[0], link.tx.name, "tx_bytes")
        with making_sense("what iperf3 says at its end"):
            duration_s = float(said["end"]["sum_sent"]["seconds"])
            lost = said["end"]["sum"]["lost_packets"] if load.options.udp else None
            version = str(said["start"]["version"])
        mean = octets / sent if sent else None
        return OfferedLoad(
            intended_packets=sent,
            sent_packets=sent,
            sent_bytes=octets,
            duration_s=duration_s,
            intended_duration_s=self.intended_duration_s,
            schedule_error_us=None,
            cpu_s=None if None in used else sum(s for s in used if s is not None),
            first_sent_mono_ns=began_ns - link.tx.host.clock_offset_ns,
            last_sent_mono_ns=ended_ns - link.tx.host.clock_offset_ns,
            answered_packets=sent_by_stack(before[1], after[1], joined=load.options.offloads),
            unscheduled=Unscheduled(
                generator=version,
                flows=load.options.parallel * (2 if load.options.bidir else 1),
                mean_frame_bytes=mean,
                longest_on_wire_bytes=self._mtu + HEADER_BYTES,
                **rates(read_rows(rows), link.tx.name),
                said_lost_packets=lost,
                socket_full_packets=_rose(before[1], after[1], "Udp.RcvbufErrors"),
            ),
            facts={
                "argv": load.argv(),
                "version": version,
                "cpu": format_cpus(load.options.cpus) or None,
                "said": said["end"],
            },
        )

    @contextmanager
    def _running(self, port: LabPort, argv: Sequence[str], log: Path) -> Iterator[Child]:
        words = [*argv, "--forceflush"]
        cpus = format_cpus(self._load.options.cpus) or None
        err = log.with_suffix(".err")
        for old in (log, err):
            old.unlink(missing_ok=True)
        process = port.host.spawn(
            SpawnRequest(argv=words, stdout=log, stderr=err, cpus=cpus, caps=())
        )
        self.processes = (*self.processes[-1:], HostProcess(port.host, process.pid))
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _to_its_end(process: Child, link: Link, tick: Tick, deadline: float) -> float | None:
    """The client's CPU time, read before it is reaped."""
    while not ended(process.pid, TICK_S):
        if time.monotonic() > deadline:
            raise LoadFailed("iperf3 did not come to its end: is the receiving host at a stop?")
        tick(None)
    used = cpu_s_of(HostProcess(link.tx.host, process.pid))
    process.wait()
    return used


def _wait_listening(log: Path, server: Child) -> None:
    for _ in looks(READY_TIMEOUT_S):
        if HEARD in read_end(log, bytes_from_end=LONGEST_WORDS):
            return
        if server.poll() is not None:
            break
    words = read_end(log.with_suffix(".err"), bytes_from_end=LONGEST_WORDS)
    raise LoadFailed(f"iperf3's server does not listen: {words.decode(errors='replace')}")


def _said(log: Path) -> Json:
    text = read_end(log, bytes_from_end=LONGEST_WORDS).decode(errors="replace")
    with making_sense("what iperf3 says at its end"):
        return decode_object(text)


def sent_by_stack(before: Counters, after: Counters, *, joined: bool) -> int:
    """Packets that a host's stack handed to its port. Without segmentation offload each segment is
    one; with it (`joined`) a frame of many segments is, and only IP counts it as such."""
    names = ("Ip.OutRequests",) if joined else (
        "Tcp.OutSegs", "Tcp.RetransSegs", "Udp.OutDatagrams",
    )  # fmt: skip
    return sum(_rose(before, after, name) for name in names)


def _rose(before: Counters, after: Counters, name: str) -> int:
    return int(after["snmp"][name]) - int(before["snmp"][name])


def read_rows(path: Path) -> Sequence[Json]:
    with making_sense(str(path)):
        return [decode_object(line) for line in path.read_text().splitlines()]


def rates(rows: Sequence[Json], port: str) -> dict[str, float | None]:
    """Packets/s of the windows in which anything was sent, but for the first and the last."""
    seen = [(row["mono_ns"], row["links"][port]["tx_packets"]) for row in rows if "links" in row]
    moved = [
        (packets - before) / (now - then) * 1e9
        for (then, before), (now, packets) in pairwise(seen)
        if packets > before and now > then
    ][1:-1]
    mean = fmean(moved) if moved else 0.0
    return {
        "least_pps": min(moved, default=None),
        "most_pps": max(moved, default=None),
        "spread_ratio": pstdev(moved) / mean if mean else None,
    }
