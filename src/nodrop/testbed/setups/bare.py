"""Bare: the SUT runs on the host itself, in the receiver's network namespace.

From an image it runs in a root folder of its own (chroot in a private mount namespace):
other setups can run the very same bits; from a binary it sees the host's files, read-only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import (
    AnyJob,
    Child,
    Host,
    HostProcess,
    Json,
    LabPort,
    Link,
    SpawnRequest,
    Surroundings,
    UndoJournal,
)
from nodrop.testbed.hosts.control_groups import MemoryGroup, memory_controller, memory_group
from nodrop.testbed.hosts.rights import SUT, give, sut_user
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import (
    Limits,
    ProcessSpec,
    Proof,
    cpu_problems,
    host_cpus,
    memory_problems,
    out_of_memory_words,
    swappiness_problems,
)
from nodrop.testbed.setups.contained import (
    WORK_INSIDE,
    LocalView,
    OnTheNic,
    OnThisKernel,
    WorkFolder,
)

COVERED = ("/home", "/root", "/run", "/tmp", "/var/log", "/var/tmp")
PROGRAM_FOLDERS = frozenset({"bin", "sbin", "libexec", ".libs"})
"""Names of folders of programs: what belongs to a program in one of these lies beside the
folder."""


def covered(home: str | None = None) -> list[Path]:
    """Folders of this host that are empty for the SUT, `home` of whoever runs nodrop included."""
    own = home if home is not None else os.environ.get("HOME", "")
    named = [Path(name) for name in (*COVERED, own) if name.startswith("/")]
    real = dict.fromkeys(path.resolve() for path in named if path.is_dir())
    return [path for path in real if path != Path("/") and not any(p in real for p in path.parents)]


def shown(argv: Sequence[str], reads: Iterable[Path], below: Sequence[Path]) -> list[Path]:
    """Paths below the covered folders `below` that must be seen: the program with its libraries,
    what its arguments name and what it `reads`. A path inside another one is left out."""
    wanted = [path for way in _ways(argv[0]) for path in (way, _installed(way, below))]
    wanted += [path for word in argv[1:] for path in _named(word)]
    wanted += reads
    found = {
        path
        for path in map(Path.absolute, wanted)
        if ":" not in str(path) and path.exists() and any(top in path.parents for top in below)
    }
    return sorted(path for path in found if not found & set(path.parents))


def _ways(program: str) -> Iterator[Path]:
    """The program, and each file that a link on the way to it leads to."""
    found = shutil.which(program)
    path = Path(found).absolute() if found else Path(program)
    for _ in range(40):  # as many as the kernel follows
        yield path
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    yield path.resolve()


def _installed(program: Path, below: Sequence[Path]) -> Path:
    """The folder that was installed with it; only the program if that folder is a user's home."""
    folder = program.parent
    if folder.name in PROGRAM_FOLDERS:
        folder = folder.parent
    for choice in (folder, program.parent):
        if choice not in below and choice.parent != Path("/home"):
            return choice
    return program


def _named(word: str) -> Iterator[Path]:
    path = word.partition("=")[2] if word.startswith("-") else word
    if path.startswith("/"):
        yield Path(path)


def refusal(program: Path, below: Sequence[Path], user: int | None) -> str | None:
    """Why the SUT's user, who owns nothing, cannot run the program, in words."""
    if ":" in str(program):
        return f"{program}: a path with a colon cannot be shown to the SUT; move or link it"
    for path in (program, *program.parents) if user is not None else ():
        if path in below:
            break  # from here on the folders are the trial's
        letters, wanted = ("rx", 0o005) if path == program else ("x", 0o001)
        if path.stat().st_mode & wanted != wanted:
            return (
                f"the SUT has a user of its own, who may not use {path}: chmod o+{letters} {path}"
            )
    return None


WRITABLE = ("run", "tmp", "var/log", "var/tmp", "var/lib/suricata")
"""Folders of the image that a program may write to: empty ones of the trial lie over them."""
KILL_TIMEOUT_S = 5.0


class Bare(OnThisKernel):
    """A Setup (setups/api.py)."""

    name = "bare"
    several_ports = True

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        found = []
        if bits is not None and bits.kind == "binary":
            words = refusal(bits.path, covered(), sut_user())
            found += [f"sut.binary: {words}"] if words else []
        if limits.memory_bytes is not None:
            try:
                memory_controller()
            except LabProblem as problem:
                found.append(f"limits.memory: {problem}")
        return [
            *found,
            *memory_problems(limits),
            *cpu_problems(limits),
            *swappiness_problems(limits),
        ]

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[BareEnv]:
        with ExitStack() as stack:
            group = None
            if limits.memory_bytes is not None or limits.swappiness is not None:
                group = stack.enter_context(
                    memory_group(
                        limits.memory_bytes,
                        journal,
                        of=link.rx.host.name,
                        swappiness=limits.swappiness,
                    )
                )
            env = BareEnv(link, bits=bits, limits=limits, group=group, work=work, journal=journal)
            stack.callback(env.close)
            yield env


class BareEnv(OnTheNic):
    """An Env (setups/api.py)."""

    def __init__(
        self,
        link: Link,
        *,
        bits: Bits | None,
        limits: Limits,
        group: MemoryGroup | None,
        work: Path,
        journal: UndoJournal,
    ) -> None:
        self.near = self.host = link.rx.host
        self.nic: LabPort | None = link.rx
        self.capture_interfaces: Sequence[str] = link.capture_ports or (link.rx.name,)
        self.bits = bits
        self.cpus = host_cpus(limits)
        self._limits = limits
        self._group = group
        self._folder = WorkFolder(work)
        self._work = self._folder.path
        self._journal = journal
        # Not below the work folder, which is the SUT's.
        self._private = self._work.with_name(f"{self._work.name}.private")
        self._image = bits.path if bits is not None and bits.kind == "image" else None
        self._user = sut_user()
        self.work_inside = WORK_INSIDE
        self._processes: list[BareProcess] = []

    def give_device(self, address: str) -> None:
        """The SUT drives the receiving NIC itself, by its PCI address; its queues are on no way
        that this kernel sees the end of."""
        self.nic, self.capture_interfaces, self.delivers_at_once = None, (address,), False

    def launch(self, process: ProcessSpec) -> BareProcess:
        binds = self._places() if self._image else self._places_of_host(process)
        placed = self._folder.place(process.files, copies=self._empty("files"), user=self._user)
        shown = {path: f"{inside}:ro" for path, inside in placed.items()}
        binds |= {self._work: WORK_INSIDE, **shown}
        binds |= {path: str(path) for path in process.devices}
        give(self._work, self._user)
        around = Surroundings(
            root=self._image or self._empty("root"),
            of_host=self._image is None,
            binds=binds,
            private=True,
            cgroup=self._group.path if self._group else None,
            user=self._user,
        )
        cpus = process.cpus or self._limits.cpus
        launched = BareProcess(
            self.host, process, around, work=self._work, cpus=cpus, group=self._group
        )
        launched.shown = self._folder.names()
        self._processes.append(launched)
        self._journal.process(launched.root.pid, process.argv[0])
        return launched

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        group = self._group.path if self._group else None
        return self.host.job(spec, cpus=self._limits.cpus, cgroup=group)

    def facts(self) -> Json:
        return {
            "setup": Bare.name,
            "chroot": self._image is not None,
            "capabilities": list(SUT),
            "user": self._user,
            "cpus": self._limits.cpus,
            "memory": self._group.facts() if self._group else None,
        }

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        self._folder.close()
        if self._user is not None:
            give(self._work, os.geteuid())
        shutil.rmtree(self._private, ignore_errors=True)

    def _places(self) -> dict[Path, str]:
        """The image is never written to, not even by a missing folder: it is every trial's."""
        assert self._image is not None
        names = [name for name in WRITABLE if (self._image / name).is_dir()]
        return {self._writable(name): f"/{name}" for name in names}

    def _places_of_host(self, process: ProcessSpec) -> dict[Path, str]:
        empty = covered()
        seen = shown(process.argv, process.reads, empty)
        return {
            **{self._writable(str(path).lstrip("/")): str(path) for path in empty},
            **{path: f"{path}:ro" for path in seen},
        }

    def _writable(self, name: str) -> Path:
        place = self._empty(f"over/{name}")
        if name.endswith("tmp"):
            place.chmod(0o1777)
        elif self._user is not None:
            os.chown(place, self._user, self._user)
        return place

    def _empty(self, name: str) -> Path:
        place = self._private / name
        place.mkdir(parents=True, exist_ok=True)
        return place


class BareProcess(LocalView):
    """A Process (setups/api.py): a direct child, whose PID is the program's own."""

    def __init__(
        self,
        host: Host,
        process: ProcessSpec,
        around: Surroundings,
        *,
        work: Path,
        cpus: str | None,
        group: MemoryGroup | None,
    ) -> None:
        self._group = group
        self._root_seen = str(around.root.resolve()) if around.root and around.of_host else ""
        self.own_cgroup = group is not None
        self.work = work
        program = Path(process.argv[0]).name
        self.stdout = work / f"{program}.stdout"
        self.stderr = work / f"{program}.stderr"
        self.launched_mono_ns = time.monotonic_ns()
        self._child: Child = host.spawn(
            SpawnRequest(
                argv=process.argv,
                stdout=self.stdout,
                stderr=self.stderr,
                cwd=Path(WORK_INSIDE) if around.of_host else None,
                env=process.env,
                cpus=cpus,
                caps=process.caps,
                around=around,
            )
        )
        self.root = HostProcess(host, self._child.pid)

    def proof(self) -> Proof | None:
        """Paths as it sees them: the kernel names ours, through the folder that is its root, which
        each of several instances has to itself."""
        proof = super().proof()
        return proof and replace(
            proof,
            exe=proof.exe.removeprefix(self._root_seen),
            libraries={
                path.removeprefix(self._root_seen): sha256
                for path, sha256 in proof.libraries.items()
            },
        )

    def poll(self) -> int | None:
        return self._child.poll()

    def cause_of_death(self) -> str | None:
        if self.poll() is None or self._group is None or not self._group.facts()["oom_kills"]:
            return None
        return out_of_memory_words(self._group.limit_bytes)

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def stop(self, *, timeout_s: float) -> int:
        self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Ends the process at once; a stopped or hanging process obeys this too."""
        self._child.kill()
        try:
            return self._child.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LabProblem(f"process {self._child.pid} outlives SIGKILL") from None
