"""Processes of a host as its kernel shows them: its node looks, never Python in a /proc."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from nodrop.errors import NodeDied
from nodrop.hosts.rights import LOOKS
from nodrop.hosts.seam import AnyJob, Host, HostProcess, ProbeJob
from nodrop.protocol.events import ProbeResult, ProcessInside, ProcessUsage


class Jobs(Protocol):
    """The part of a Host (hosts/seam.py) that is needed here."""

    def job(self, spec: Mapping[str, Any], *, timeout_s: float = 30) -> AnyJob: ...


class Looking:
    """The looks of one host, from any thread. To be closed."""

    def __init__(self, host: Jobs) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._probe: ProbeJob | None = None

    def probe(
        self,
        *what: str,
        ports: Sequence[str],
        pids: Sequence[int],
        files: Sequence[str],
        timeout_s: float,
    ) -> ProbeResult:
        """`Host.probe`."""
        spec = {
            "job": "probe",
            "what": list(what),
            "ports": list(ports),
            "pids": list(pids),
            "files": list(files),
        }
        # Others try something out, each in a process of its own.
        if LOOKS.issuperset(what):
            return self._look({**spec, "again": True}, timeout_s)
        job: ProbeJob = self._host.job(spec, timeout_s=timeout_s)
        with closing(job):
            return job.result(timeout_s=timeout_s)

    def close(self) -> None:
        """Ends the job that looks. The next look starts another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _look(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        with self._lock:
            try:
                return self._asked(spec, timeout_s)
            except NodeDied:  # its thread of ours has ended, or it was killed
                self._close()
                return self._asked(spec, timeout_s)

    def _asked(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        try:
            if self._probe is None:
                self._probe = self._host.job(spec, timeout_s=timeout_s)
            else:
                self._probe.again(spec, timeout_s=timeout_s)
            return self._probe.result(timeout_s=timeout_s)
        except NodeDied:
            raise
        except BaseException:
            self._close()  # refused, late or interrupted: its next answer would be to this question
            raise


LOOK_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketSocket:
    """One that belongs to the process."""

    inode: int
    interface_index: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A look into a running process."""

    stopped: bool
    """Stands still (SIGSTOP, a debugger)."""
    threads: tuple[str, ...]
    """Names, in the order of their ids."""
    packet_sockets: tuple[PacketSocket, ...]
    cpu_ns: int | None = None
    """CPU time of all threads; None while one of them runs or waits for a CPU, or if the place does
    not say."""


def look(process: HostProcess) -> Inside | None:
    """None if there is no such process (any more)."""
    seen = seen_inside(process)
    return None if seen is None else inside(seen, cpu_ns=seen["asleep_cpu_ns"])


def seen_inside(process: HostProcess) -> ProcessInside | None:
    said = process.host.probe("process", pids=[process.pid], timeout_s=LOOK_TIMEOUT_S)
    return said["process"].get(str(process.pid))


def inside(seen: ProcessInside, *, cpu_ns: int | None) -> Inside:
    return Inside(
        stopped=seen["stopped"],
        threads=tuple(seen["threads"]),
        packet_sockets=tuple(
            PacketSocket(inode=row["inode"], interface_index=row["ifindex"], running=row["running"])
            for row in seen["packet_sockets"]
        ),
        cpu_ns=cpu_ns,
    )


def usage(processes: Iterable[HostProcess]) -> Mapping[HostProcess, ProcessUsage]:
    """Usage of the processes that live now; each host is asked once."""
    asked: dict[Host, list[int]] = {}
    for process in processes:
        asked.setdefault(process.host, []).append(process.pid)
    found = {}
    for host, pids in asked.items():
        said = host.probe("usage", pids=pids, timeout_s=LOOK_TIMEOUT_S)["usage"]
        for pid in pids:
            if (one := said.get(str(pid))) is not None:
                found[HostProcess(host, pid)] = one
    return found


def allowed_cpus(processes: Iterable[HostProcess]) -> frozenset[int]:
    """On which any of their threads may run; cpusets are in it. Those of their host."""
    return frozenset(cpu for one in usage(processes).values() for cpu in one["allowed_cpus"])


def cpu_s(process: HostProcess) -> float | None:
    """User and system time, its reaped children's included; also of a zombie. None = gone."""
    said = process.host.probe("account", pids=[process.pid], timeout_s=LOOK_TIMEOUT_S)["account"]
    used_ns = said.get(str(process.pid))
    return None if used_ns is None else used_ns / 1e9
