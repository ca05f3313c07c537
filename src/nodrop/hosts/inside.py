"""Processes of a host as its kernel shows them: its node looks, never Python in a /proc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodrop.hosts.seam import Host, HostProcess
from nodrop.protocol.events import ProcessInside, ProcessUsage

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
