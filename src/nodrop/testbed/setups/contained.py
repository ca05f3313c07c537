"""The common parts of the container setups: a place, a program that is no child of ours, its work
folder."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from nodrop.config.options import Options, check
from nodrop.errors import LabProblem
from nodrop.ledger.hops import Account, Hop
from nodrop.testbed.hosts.api import AnyJob, Host, HostProcess, Json, Link, UndoJournal
from nodrop.testbed.hosts.node import start_job
from nodrop.testbed.hosts.processes import Inside, look
from nodrop.testbed.hosts.rights import SUT, readable_by
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.netns import local
from nodrop.testbed.setups.api import (
    Limits,
    PlaceReading,
    ProcessSpec,
    Proof,
    SamplesInside,
    Setup,
    cpu_problems,
    host_cpus,
    memory_problems,
    out_of_memory_words,
    proof_of,
    swappiness_problems,
)
from nodrop.untrusted.folder import Folder


class OnThisKernel(Setup):
    """A Setup (setups/api.py) whose SUT runs on the receiving host's own kernel."""

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        check(Options, options or {}, table="setup", base=base)


class LocalView:
    """The looking half of a Process (setups/api.py) of the receiving host, seen from outside: its
    work folder is the controller's, launching and ending is the setup's."""

    root: HostProcess
    work: Path
    own_cgroup = False
    phases_s: Mapping[str, float] = {}
    quiet = False
    shown: Mapping[str, str] = {}
    """Name in the work folder → path as the program sees it, of the host's files it was shown."""

    def inside(self) -> HostProcess | None:
        return self.root

    def look(self) -> Inside | None:
        return look(self.root)

    def proof(self) -> Proof | None:
        return proof_of(self.root, self.shown)

    def fetch(self, name: str) -> Path:
        return self.work / name

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        return connect(self.work / name, timeout_s=timeout_s)

    def servants(self) -> Sequence[HostProcess]:
        return ()

    def cause_of_death(self) -> str | None:
        return None


def connect(path: Path, *, timeout_s: float) -> socket.socket:
    """A connection to a Unix socket, however long its path: sun_path has 108 bytes, a descriptor
    has no path.

    A listener that is busy accepts later: the kernel waits for that only if the connecting socket
    blocks, and otherwise says EAGAIN at once (unix_stream_connect, net/unix/af_unix.c).
    """
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            stream.connect(f"/proc/self/fd/{folder}/{path.name}")
        except BlockingIOError:
            raise TimeoutError(f"no connection within {timeout_s:g} s") from None
        finally:
            os.close(folder)
        stream.settimeout(timeout_s)
    except BaseException:
        stream.close()
        raise
    return stream


def _timeval(seconds: float) -> bytes:
    """struct timeval of 64-bit hosts; 0 would mean for ever."""
    whole, part = divmod(max(1, round(seconds * 1e6)), 1_000_000)
    return struct.pack("ll", whole, part)


WORK_INSIDE = "/run/nodrop"
NODE_INSIDE = "/run/nodrop-node"
"""The one file that every container is shown, whatever its image has."""
POLL_S = 0.005
"""Interval of looks at a container's keeper: its files and /proc give no notice of a change."""
KILL_TIMEOUT_S = 5.0
JOB_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a contained program ended."""

    status: int
    """Exit status like a child's: negative = by this signal."""
    out_of_memory: bool

    @classmethod
    def of(cls, said: int, *, out_of_memory: bool) -> Self:
        """`said`: a status as a shell has it, above 128 for a signal."""
        return cls(status=128 - said if said > 128 else said, out_of_memory=out_of_memory)


class OnTheNic:
    """The common part of every Env (setups/api.py) whose SUT captures on this kernel's own NIC."""

    cold = False
    delivers_at_once = True

    def read(self) -> PlaceReading:
        return {}

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        return {}

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        del before, after  # it captures on the NIC itself
        return (), ()


class ContainedEnv(OnTheNic):
    """The common part of every Env (setups/api.py) of a container."""

    def __init__(
        self,
        name: str,
        link: Link,
        *,
        bits: Bits | None,
        limits: Limits,
        work: Path,
        journal: UndoJournal,
    ) -> None:
        if bits is not None and bits.kind != "image":
            raise LabProblem("a container needs an image")
        self.near = link.rx.host
        self.host: Host = link.rx.host
        self.nic = link.rx
        self.capture_interfaces: Sequence[str] = (link.rx.name,)
        self.bits = bits
        self.cpus = host_cpus(limits)
        self.work_inside = WORK_INSIDE
        self._name = name
        self._near = local(link.rx.host)
        self._limits = limits
        self._work = WorkFolder(work)
        self._journal = journal
        self._undo = ExitStack()

    def _launched(
        self, process: ProcessSpec, pid: int, *, servants: Sequence[HostProcess], **seen: Any
    ) -> ContainedProcess:
        launched = ContainedProcess(
            HostProcess(self.near, pid),
            program=Path(process.argv[0]).name,
            work=self._work.path,
            shown=self._work.names(),
            memory_bytes=self._limits.memory_bytes,
            servants=servants,
            **seen,
        )
        self._undo.callback(launched.close)
        return launched

    def facts(self) -> Json:
        return {
            "setup": self._name,
            "capabilities": list(SUT),
            "cpus": self._limits.cpus,
            "memory_bytes": self._limits.memory_bytes,
            "swappiness": self._limits.swappiness,
        }


class ContainedProcess(LocalView):
    """A Process (setups/api.py) by its PID in this kernel; how it ended is asked of its keeper."""

    def __init__(
        self,
        root: HostProcess,
        *,
        program: str,
        work: Path,
        launched_mono_ns: int,
        phases_s: Mapping[str, float],
        ending: Callable[[], Ending],
        shown: Mapping[str, str],
        memory_bytes: int | None,
        servants: Sequence[HostProcess],
    ) -> None:
        self.root = root
        self.own_cgroup = True
        self.work = work
        self.stdout, self.stderr = output_files(work, program)
        self.launched_mono_ns = launched_mono_ns
        self.phases_s = phases_s
        self.shown = shown
        self._ask = ending
        self._memory_bytes = memory_bytes
        self._servants = tuple(servants)
        self._ended: Ending | None = None
        try:
            self._handle = os.pidfd_open(root.pid)
        except ProcessLookupError:
            self._handle = -1

    def poll(self) -> int | None:
        return self._ending().status if self._dead(0) else None

    def wait(self, timeout_s: float | None) -> int | None:
        """None if it still runs."""
        return self._ending().status if self._dead(timeout_s) else None

    def signal(self, number: int) -> None:
        if self._handle < 0:
            return
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            pass  # ended, and its keeper has taken note

    def stop(self, *, timeout_s: float) -> int:
        self.signal(signal.SIGTERM)
        if not self._dead(timeout_s):
            return self.kill()
        return self._ending().status

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        if not self._dead(KILL_TIMEOUT_S):
            raise LabProblem(f"process {self.root.pid} outlives SIGKILL")
        return self._ending().status

    def servants(self) -> Sequence[HostProcess]:
        return self._servants

    def cause_of_death(self) -> str | None:
        if not self._dead(0) or not self._ending().out_of_memory:
            return None
        return out_of_memory_words(self._memory_bytes)

    def close(self) -> None:
        """Kills it if it still runs, without asking how it ended."""
        if self._handle >= 0:
            self.signal(signal.SIGKILL)
            self._dead(KILL_TIMEOUT_S)
            os.close(self._handle)
            self._handle = -1

    def _dead(self, timeout_s: float | None) -> bool:
        if self._handle < 0:
            return True
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))

    def _ending(self) -> Ending:
        if self._ended is None:
            self._ended = self._ask()
        return self._ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainedJob:
    """A node job in a container, with the pipes of a Popen (hosts/node.py, `Piped`)."""

    process: ContainedProcess
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int:
        return self.process.root.pid

    def wait(self, timeout: float | None = None) -> int:
        status = self.process.wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired([NODE_INSIDE], timeout or 0)
        return status

    def kill(self) -> None:
        self.process.kill()


def contained_job(
    spec: Mapping[str, Any], *, where: str, run: Callable[[ProcessSpec], ContainedJob]
) -> AnyJob:
    """A job of the node, which `run` makes the first process of a container of its own."""
    return start_job(
        [NODE_INSIDE, str(spec["job"]), "--controlled"],
        spec,
        env={},
        where=where,
        timeout_s=JOB_TIMEOUT_S,
        start=lambda argv, env: run(ProcessSpec(argv=tuple(argv), env=env)),
    )


def output_files(work: Path, program: str) -> tuple[Path, Path]:
    return work / f"{program}.stdout", work / f"{program}.stderr"


class WorkFolder:
    """The work folder of one trial: contents are written, the host's files are shown in it."""

    def __init__(self, work: Path) -> None:
        self.path = work.absolute()
        self._places: list[Path] = []

    def place(
        self, files: Mapping[str, bytes | Path], *, copies: Path, user: int | None
    ) -> dict[Path, str]:
        """Files of the host → the path that shows them, read-only; a file that this `user` may not
        read is copied to the folder `copies`."""
        shown: dict[Path, str] = {}
        for name, content in files.items():
            *above, last = Path(name).parts
            folder = Folder(self.path, tuple(above))
            folder.make_all()
            if isinstance(content, bytes):
                folder.write(last, content, durable=False)
            else:
                self._places.append(folder.path / last)
                seen = readable_by(user, content.absolute(), copies / f"file-{len(shown)}")
                shown[seen] = f"{WORK_INSIDE}/{name}"
        return shown

    def names(self) -> Mapping[str, str]:
        """The host's files that are shown → the path at which the program sees them."""
        names = (str(place.relative_to(self.path)) for place in self._places)
        return {name: f"{WORK_INSIDE}/{name}" for name in names}

    def close(self) -> None:
        """The mount points of what was shown are empty files."""
        for path in self._places:
            path.unlink(missing_ok=True)


def problems(name: str, bits: Bits | None, limits: Limits) -> Sequence[str]:
    """Unmet needs of a container: an image, or nothing at all if the node is the SUT, and limits
    that this host can keep."""
    found = []
    if bits is not None and bits.kind != "image":
        found.append(
            f"setup {name} runs an image, not the host's {bits.path}: `nodrop image list` "
            "names those that sut.image can be, `nodrop image build NAME` makes one"
        )
    return [*found, *memory_problems(limits), *cpu_problems(limits), *swappiness_problems(limits)]


def since(began_s: float) -> float:
    return time.monotonic() - began_s
