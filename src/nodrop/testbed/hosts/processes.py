"""Processes of a host: by identity, as its kernel shows them, and those of a leased far host."""

from __future__ import annotations

import getpass
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

from nodrop.errors import LabProblem, NodeDied
from nodrop.protocol import ProbeResult, ProcessInside, ProcessUsage
from nodrop.testbed.hosts.api import AnyJob, Host, HostProcess, Json, ProbeJob
from nodrop.testbed.hosts.node import NOISE_LIMIT_BYTES, start_child
from nodrop.testbed.hosts.rights import KEEPER, LOOKS, entering
from nodrop.untrusted.json_text import (
    NotJson,
    counted,
    decode_object,
    making_sense,
    member,
    one_line,
)

# Processes of a host as its kernel shows them: its node looks, never Python in a /proc.


class Jobs(Protocol):
    """The part of a Host (hosts/api.py) that is needed here."""

    def job(self, spec: Mapping[str, Any], *, timeout_s: float = 30) -> AnyJob: ...


class KeptProbe:
    """One probe job of a host, asked again and again. To be closed; the next question starts
    another."""

    def __init__(self, host: Jobs) -> None:
        self._host = host
        self._probe: ProbeJob | None = None

    def asked(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        spec = {**spec, "again": True}
        if self._probe is None:
            self._probe = self._host.job(spec, timeout_s=timeout_s)
        else:
            self._probe.again(spec, timeout_s=timeout_s)
        return self._probe.result(timeout_s=timeout_s)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None


class Looking:
    """The looks of one host, from any thread. To be closed."""

    def __init__(self, host: Jobs) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._kept = KeptProbe(host)

    def probe(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        # Others try something out, each in a process of its own.
        if LOOKS.issuperset(spec["what"]):
            return self._look(spec, timeout_s)
        job: ProbeJob = self._host.job(spec, timeout_s=timeout_s)
        with closing(job):
            return job.result(timeout_s=timeout_s)

    def close(self) -> None:
        """Ends the job that looks. The next look starts another."""
        with self._lock:
            self._kept.close()

    def _look(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        with self._lock:
            try:
                return self._asked(spec, timeout_s)
            except NodeDied:  # its thread of ours has ended, or it was killed
                self._kept.close()
                return self._asked(spec, timeout_s)

    def _asked(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        try:
            return self._kept.asked(spec, timeout_s)
        except NodeDied:
            raise
        except BaseException:
            # Refused, late or interrupted: its next answer would be to this question.
            self._kept.close()
            raise


class Probed:
    """A Host whose looks share one job."""

    _looking: Looking

    def probe(
        self,
        *what: str,
        ports: Sequence[str] = (),
        pids: Sequence[int] = (),
        files: Sequence[str] = (),
        timeout_s: float = 30,
    ) -> ProbeResult:
        return self._looking.probe(probe_spec(what, ports, pids, files), timeout_s)


def probe_spec(
    what: Sequence[str], ports: Sequence[str], pids: Sequence[int], files: Sequence[str]
) -> Mapping[str, Any]:
    asked = {"what": what, "ports": ports, "pids": pids, "files": files}
    return {"job": "probe", **{name: list(values) for name, values in asked.items()}}


LOOK_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketSocket:
    """A packet socket of a process."""

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
    """CPUs on which any of their threads may run; cpusets are in it. Those of their host."""
    return frozenset(cpu for one in usage(processes).values() for cpu in one["allowed_cpus"])


def cpu_s(process: HostProcess) -> float | None:
    """User and system time, its reaped children's included; also of a zombie. None = gone."""
    said = process.host.probe("account", pids=[process.pid], timeout_s=LOOK_TIMEOUT_S)["account"]
    used_ns = said.get(str(process.pid))
    return None if used_ns is None else used_ns / 1e9


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
    """Our user namespace; what was changed in another is not ours to reverse."""
    return (PROC / "self/ns/user").stat().st_ino


def pid_namespace() -> int:
    """Our PID namespace; a PID of another means another process here."""
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


def listener_of(stream: socket.socket) -> int:
    """PID of whoever listens at the other end of a connected Unix socket."""
    (pid,) = struct.unpack("i8x", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


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


# The lease of a run on a far host: a keeper there, which hears of us every few seconds.
#
# `nodrop-node keep` holds the host for one run, and a folder for its files. If we end, or are not
# heard for a term, it ends every process there that carries our label, removes the files, and ends.

BEAT_S = 5.0
TERM_S = 20
"""Longer than ssh needs to find a line cut (ssh_connection.py): a controller that lives knows."""
GONE_TIMEOUT_S = 15.0
"""Seconds that a keeper has to end its processes after it is asked to; then it is killed."""


class Lease:
    """A host that is held for one run; to be closed. LabProblem if another run has the host, or
    nothing can be kept there."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        where: str,
        lost: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`argv`: what `keep_words` says, as it is run there. `lost` says why a keeper ended with
        these words; "" if they are all that is known."""
        self._where, self._lost = where, lost
        self._over = threading.Event()
        self._keeper = start_child(argv, env)
        try:
            self.folder = self._kept()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._beat, daemon=True, name="beats").start()

    def gone(self) -> bool:
        """Nothing of ours is safe there any more."""
        return self._keeper.poll() is not None

    def close(self, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Waits for the keeper's end, so that nothing is left. `meanwhile` ends what would hold it
        up."""
        self._over.set()
        keeper = self._keeper
        assert keeper.stdin is not None
        with suppress(OSError):
            keeper.stdin.close()
        meanwhile()
        try:
            keeper.wait(GONE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        for pipe in (keeper.stdout, keeper.stderr):
            assert pipe is not None
            pipe.close()

    def _beat(self) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None
        with suppress(OSError, ValueError):  # it is gone, or closed
            while not self._over.wait(BEAT_S):
                stdin.write(b"\n")
                stdin.flush()

    def _kept(self) -> str:
        said = self._answer()
        if "held" in said:
            with making_sense(f"what the keeper of {self._where} says"):
                raise LabProblem(
                    f"{self._where}: {run_words(member(said, 'held', dict))} has this host",
                    hint="wait for its end, or end it from there (`nodrop undo LAB --all`)",
                )
        with making_sense(f"what the keeper of {self._where} says"):
            return member(said, "kept", str)

    def _answer(self) -> Json:
        """The keeper's one line. Words of a login shell before it are passed over."""
        assert self._keeper.stdout is not None and self._keeper.stderr is not None
        left_bytes = NOISE_LIMIT_BYTES
        while left_bytes > 0 and (line := self._keeper.stdout.readline(left_bytes)):
            left_bytes -= len(line)
            with suppress(NotJson):
                return decode_object(line)
        self._keeper.kill()
        said = self._keeper.stderr.read(NOISE_LIMIT_BYTES).decode(errors="replace")
        why = self._lost(said) or f": {one_line(said)}"
        raise LabProblem(f"{self._where}: no file can be kept there{why}")


def keep_words(node: str, folder: str, label: str, *, instead_of: str = "") -> list[str]:
    """The command that holds a host. It carries no label itself, or it would end itself."""
    words = [*entering(node, caps=KEEPER), node, "keep", "--folder", folder]
    words += ["--label", label, "--holder", holder(), "--controller", this_process()]
    words += ["--term-s", str(TERM_S)]
    return [*words, "--instead-of", instead_of] if instead_of else words


HOLDER_VARIABLE = "NODROP_HOLDER"
"""Variable that names who has begun us from another host."""
HOST_VARIABLE = "NODROP_HOST"
"""Variable with the name under which whoever has begun us from another host knows this one."""


OPEN_JOURNALS = (
    "ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n 's|.* -> \\(/.*/nodrop/undo/.*[.]jsonl\\)$|\\1|p'"
)
"""Command for a shell of a host's root: lists the journal of each run that lives there, whosever it
is. A run has its own open, and it may lie in any home (XDG_STATE_HOME)."""


def this_host() -> str:
    """This host's name, as the user knows it."""
    return one_line(os.environ.get(HOST_VARIABLE) or socket.gethostname(), longest=120)


def holder() -> str:
    if begun_by := os.environ.get(HOLDER_VARIABLE):
        return one_line(begun_by, longest=120)
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.geteuid()}"
    return one_line(f"{user}@{socket.gethostname()}", longest=120)


def run_words(run: Json) -> str:
    """A run in words, from its `label`, `holder` and `since_unix_s` as a node or a journal gives
    them."""
    since = datetime.fromtimestamp(counted(run, "since_unix_s"), UTC)
    who = one_line(member(run, "holder", str), longest=120)
    label = one_line(member(run, "label", str), longest=60)
    return f"run {label} of {who}, since {since:%Y-%m-%d %H:%M:%S} UTC,"
