"""A look into a running process, as its own kernel shows it: state, threads, packet sockets."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketSocket:
    """A row of /proc/net/packet that belongs to the process."""

    inode: int
    interface_index: int
    running: bool


PF_EXITING = 0x4
"""Of the flags in /proc/PID/stat (include/linux/sched.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    stopped: bool
    """Stands still (SIGSTOP, a debugger)."""
    threads: tuple[str, ...]
    """Names, in the order of their ids."""
    packet_sockets: tuple[PacketSocket, ...]
    cpu_ns: int | None = None
    """CPU time of all threads; None while one of them runs or waits for a CPU, or if
    the place does not report it."""


def look(pid: int, *, proc: Path = PROC) -> Inside | None:
    """None if there is no such process (any more)."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        return Inside(
            stopped=stat.rpartition(") ")[2][:1] in ("T", "t"),
            threads=thread_names(pid, proc=proc),
            packet_sockets=packet_sockets(pid, proc=proc),
            cpu_ns=cpu_ns_asleep(pid, proc=proc),
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        # Once its memory is gone, its descriptors are root's for the moment until it is.
        if _is_exiting(pid, proc=proc):
            return None
        raise


def _is_exiting(pid: int, *, proc: Path) -> bool:
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return int(stat.rpartition(") ")[2].split()[6]) & PF_EXITING != 0


def thread_names(pid: int, *, proc: Path = PROC) -> tuple[str, ...]:
    names = []
    for task in sorted((proc / str(pid) / "task").glob("*"), key=lambda p: int(p.name)):
        try:
            names.append((task / "comm").read_text().rstrip("\n"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended between the listing and the reading
    return tuple(names)


def cpu_ns_asleep(pid: int, *, proc: Path = PROC) -> int | None:
    """schedstat of the kernel: run time, time on the run queue, turns."""
    total_ns = 0
    try:
        for task in (proc / str(pid) / "task").iterdir():
            if (task / "stat").read_text(errors="replace").rpartition(") ")[2][:1] != "S":
                return None
            total_ns += int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return None  # a thread that ends has run just now
    return total_ns


def packet_sockets(pid: int, *, proc: Path = PROC) -> tuple[PacketSocket, ...]:
    """The process's own rows of its namespace's packet table, matched through its descriptors."""
    own = set(_socket_inodes(proc / str(pid) / "fd"))
    rows = (proc / str(pid) / "net/packet").read_text().splitlines()[1:]
    sockets = []
    for row in rows:
        # sk RefCnt Type Proto Iface R Rmem User Inode
        columns = row.split()
        if int(columns[8]) in own:
            sockets.append(
                PacketSocket(
                    inode=int(columns[8]),
                    interface_index=int(columns[4]),
                    running=columns[5] == "1",
                )
            )
    return tuple(sockets)


def connect(path: Path, *, timeout_s: float) -> socket.socket:
    """To a Unix socket, however long its path: sun_path has 108 bytes, a descriptor has no path."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.settimeout(timeout_s)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            stream.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except BaseException:
        stream.close()
        raise
    return stream


def _socket_inodes(folder: Path) -> list[int]:
    inodes = []
    for entry in os.listdir(folder):  # noqa: PTH208 - names are enough
        try:
            target = os.readlink(folder / entry)  # noqa: PTH115 - not a path
        except FileNotFoundError:
            continue  # closed between the listing and the reading
        if target.startswith("socket:["):
            inodes.append(int(target[8:-1]))
    return inodes
