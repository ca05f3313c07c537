"""Processes by identity: a PID alone may name another process by the time it is used."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nodrop.hosts.seam import Json

PROC = Path("/proc")
END_TIMEOUT_S = 2.0
INITIAL_USER_NAMESPACE = 0xEFFFFFFD
"""PROC_USER_INIT_INO of the kernel."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A PID and when it began, in clock ticks since boot: together they never repeat."""

    pid: int
    start_ticks: int

    @classmethod
    def find(cls, pid: int) -> Self | None:
        """None if no such process lives; a zombie has ended."""
        try:
            stat = (PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()  # the name before may hold anything
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @classmethod
    def of(cls, pid: int) -> Self:
        found = cls.find(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return found

    def lives(self) -> bool:
        return ProcessId.find(self.pid) == self

    def as_json(self) -> Json:
        return {"pid": self.pid, "start_ticks": self.start_ticks}


def end_process(process: ProcessId, *, politely_s: float = 0) -> bool | None:
    """Kills exactly this process. None: it was gone; False: it outlived the deadline."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    try:
        if not process.lives():  # checked while the handle pins the PID
            return None
        if politely_s:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            # One that is stopped hears it then, and so does its sudo, which stopped with it.
            os.killpg(os.getpgid(process.pid), signal.SIGCONT)
            if _ended(handle, politely_s):
                return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return _ended(handle, END_TIMEOUT_S)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(handle)


def labelled_processes(label: str) -> list[ProcessId]:
    """Processes with NODROP_LAB=<label> in their environment, ours aside."""
    wanted = f"NODROP_LAB={label}".encode()
    found = []
    for folder in PROC.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        process = ProcessId.find(int(folder.name))
        if process and wanted in environment(process.pid):
            found.append(process)
    return found


def this_process() -> str:
    """Tells this process from any other of any machine."""
    ours = ProcessId.of(os.getpid())
    return f"{boot_id()} {pid_namespace()} {ours.pid} {ours.start_ticks}"


def is_dead(process: str) -> bool:
    """Whether it was one of this machine's, and is gone. It may be anybody's words."""
    boot, namespace, *numbers = [*process.split(), "", ""]
    if (boot, namespace) != (boot_id(), str(pid_namespace())):
        return False
    try:
        pid, start_ticks = (int(number) for number in numbers[:2])
    except ValueError:
        return False
    return not ProcessId(pid, start_ticks).lives()


def boot_id() -> str:
    """Sets a journal of this boot apart from one whose namespaces and processes a reboot took."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def user_namespace() -> int:
    """Which user namespace we are in; what was changed in another is not ours to reverse."""
    return (PROC / "self/ns/user").stat().st_ino


def pid_namespace() -> int:
    """Which PID namespace we are in; a PID of another means another process here."""
    return (PROC / "self/ns/pid").stat().st_ino


def user_namespace_lives(number: int) -> bool:
    """Whether that user namespace still stands: the host's own always does, another as long as a
    process that we may look at is in it."""
    pids = (int(folder.name) for folder in PROC.iterdir() if folder.name.isdecimal())
    return number == INITIAL_USER_NAMESPACE or any(
        number == _user_namespace_of(pid) for pid in pids
    )


def _user_namespace_of(pid: int) -> int | None:
    try:
        number = (PROC / str(pid) / "ns/user").stat().st_ino
    except OSError:
        return None  # another user's, or just gone
    return number if ProcessId.find(pid) else None  # a zombie keeps the number alone


def environment(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # another user's, or just gone


def ended(pid: int, timeout_s: float) -> bool:
    """Waits for its end; a child of ours is not reaped: its account can still be read."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return _ended(handle, timeout_s)
    finally:
        os.close(handle)


def _ended(handle: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))
