"""The hosts and links of a lab file, how they come up, and a host that keeps raw files of runs."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import IO, Self

from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.testbed.hosts.api import Host, Json, Link, UndoJournal
from nodrop.testbed.hosts.journal import UndoReport
from nodrop.testbed.hosts.relay import Held
from nodrop.testbed.hosts.ssh import SshHost
from nodrop.testbed.hosts.ssh_connection import SshConnection
from nodrop.untrusted.folder import Folder

LOOK_TIMEOUT_S = 30.0
FILE_TIMEOUT_S = 3600.0
LOOK = """\
umask 077
command -v sha256sum >/dev/null || { echo "there is no sha256sum" >&2; exit 1; }
mkdir -p "$1" && : >"$1/.nodrop" && rm "$1/.nodrop" && df -Pk "$1" | awk 'END { print $4 }'
"""
BEGUN = """\
wc -c 2>/dev/null <"$1/.$2.$3" || sha256sum 2>/dev/null <"$1/$2" || :
"""
"""How much of a file is there, or the hash of one that is whole."""
KEEP = """\
umask 077
mkdir -p "$1" && cat >>"$1/.$2.$3" || exit
[ $(wc -c <"$1/.$2.$3") -ge "$4" ] || { echo "the line was cut" >&2; exit 1; }
if [ "$(sha256sum <"$1/.$2.$3")" != "$3  -" ]; then
  rm "$1/.$2.$3"
  echo "it did not arrive whole" >&2
  exit 1
fi
sync "$1/.$2.$3" && mv "$1/.$2.$3" "$1/$2" && sync "$1"
"""
"""$1: the folder, $2: the file, $3: its hash, $4: its size; stdin: what is not there yet. A file
has its name once it is whole and on disk. What has begun bears its hash, and is gone on with."""


class Storage:
    """A Keeper (results/layout.py), while it is entered. NotReady, in one sentence, if it is not
    to be had."""

    def __init__(self, host: str, path: str, *, config: Path | None) -> None:
        self.host, self.path = host, path.rstrip("/")
        self.name = f"storage {host}"
        self.free_bytes = 0
        self._connection = SshConnection(host, name=self.name, config=config)

    def __enter__(self) -> Self:
        try:
            self._connection.__enter__()
            self.free_bytes = self._look()
        except LabProblem as problem:
            self._connection.close()
            raise NotReady(problem.message, hint=problem.hint) from problem
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def keep(self, folder: Folder, name: str, sha256: str, *, there: str) -> None:
        """Keeps a file there; it is on disk when this returns."""
        if self._connection.gone():
            self._connection.close()
            self._connection.__enter__()
        begun = self._run(BEGUN, there, name, sha256).strip()
        if begun == f"{sha256}  -":
            return
        with folder.open(name) as file:
            size = str(os.fstat(file.fileno()).st_size)
            os.lseek(file.fileno(), int(begun) if begun.isdecimal() else 0, os.SEEK_SET)
            self._run(KEEP, there, name, sha256, size, stdin=file, timeout_s=FILE_TIMEOUT_S)

    def _look(self) -> int:
        free = self._run(LOOK, self.path).strip()
        if free == "0":
            raise LabProblem(f"{self.name}: {self.path}: {os.strerror(errno.ENOSPC)}")
        return int(free) << 10 if free.isdecimal() else 0

    def _run(
        self,
        script: str,
        folder: str,
        *names: str,
        stdin: str | IO[bytes] = "",
        timeout_s: float = LOOK_TIMEOUT_S,
    ) -> str:
        path = "/".join((folder, *names[:1]))
        done = self._connection.run(
            ["sh", "-c", script, "nodrop", folder, *names],
            timeout_s=timeout_s,
            check=False,
            stdin=stdin,
            shown=f"keep {path}",
        )
        if done.returncode != 0:
            raise LabProblem(f"{self.name}: {path} cannot be kept: {_said(done.stderr)}")
        return done.stdout


def _said(stderr: str) -> str:
    """A full disk, or what was complained of at last."""
    if (full := os.strerror(errno.ENOSPC)) in stderr:
        return full
    lines = stderr.strip().splitlines()
    return lines[-1].strip() if lines else "it does not say why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """How ports take what comes in."""

    queues: int = 1
    """Receive and send queues of each port."""
    rps_cpus: tuple[int, ...] = ()
    """The receiver's port hands frames to these CPUs (rps_cpus); empty: they go on where they are,
    on a veth on the sender's CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a look at one host of a lab, or at its cable."""

    what: str
    """E.g. `sender gen1`."""
    seen: Sequence[str] = ()
    """Facts that were seen, in words."""
    problems: Sequence[str] = ()
    """All that stands in the way, each with what to do; they name the host themselves."""
    facts: Json = field(default_factory=dict)
    """Facts for machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPreparation:
    """The preparation of one host of a lab: what nodrop needs there before it can work."""

    host: str
    has: Sequence[str]
    needs: Sequence[str]
    """Missing things, each with how to get it there."""
    did: Sequence[str]
    """Steps taken to prepare the host."""


class Lab(ABC):
    """The hosts and links of a lab file, brought up fresh for every trial.

    Built from the whole file by the entry point of its `kind`; BadInput if the file makes no sense.
    Its defaults are those of a lab of this machine alone.
    """

    name: str
    ports: tuple[str, str]
    """The sender's and the receiver's, by name."""
    mtu: int | None = None
    """MTU of ports that nodrop makes; None: they are the user's."""
    cables: int = 1
    """Number of cables between its hosts."""
    programs: AbstractSet[str] = frozenset()
    """Programs that it starts on this machine."""

    @property
    def receiver_elsewhere(self) -> bool:
        """nodrop itself must go to the receiver to measure (remote/client.py)."""
        return False

    @abstractmethod
    def carrying(self, frame_bytes: int) -> Lab:
        """The lab with ports that take frames of that length, if it can be had."""

    @abstractmethod
    def problems(self) -> Sequence[str]:
        """Why this lab cannot be used here, each in words a user can act on. Nothing is changed; a
        cable that is the user's is proved by some frames."""

    @abstractmethod
    def cpus_in_common(self) -> AbstractSet[int]:
        """CPUs on which the sender and a SUT could take turns; none if they are on machines of
        their own. Asked after `problems`, which may have to look."""

    @abstractmethod
    def up(self, journal: UndoJournal) -> AbstractContextManager[Link]:
        """Makes hosts, ports, link anew (counters zero, offloads off, IPv6 off, promiscuous)."""

    @abstractmethod
    def facts(self) -> Json:
        """Facts for the manifest."""

    def receiving(self, how: Receiving) -> Lab:
        """The lab with ports that receive so; asked where `mtu` is known."""
        del how
        raise BadInput(f"lab {self.name}: its ports are not nodrop's")

    def lacking(self, program: str) -> str:
        """Words on a program that the sender needs and has not; empty if it has it. LabProblem if
        the sender is not reached."""
        there = which(program) is not None
        return "" if there else f"{program} is not installed: apt-get install {program}"

    def ends(self) -> Sequence[tuple[str, str]]:
        """Host and port of the sender, then of the receiver, of each cable of the user's, which has
        one run at a time; a host without a name is the machine that the lab is used on."""
        return ()

    def check(self) -> Sequence[Checked]:
        """Everything that stands in the way, on all hosts, at once: it may take more than
        `problems`."""
        return [Checked(what=f"lab {self.name}", problems=self.problems())]

    def prepare(self, *, do_it: bool) -> Sequence[HostPreparation]:
        """Prepares all hosts at once. With `do_it` packages are installed, and nothing else is
        done."""
        del do_it
        raise BadInput(f"lab {self.name} is this machine alone; `nodrop doctor` says what it needs")

    def undo(
        self, labels: Collection[str], *, everything: bool, waiting: Callable[[str], None]
    ) -> Sequence[UndoReport]:
        """Ends, on all other hosts at once, what is left of runs whose controller is gone, and of
        those of `labels`; with `everything` also runs that go on. The receiver's report is the
        last. `waiting` says what takes time."""
        del labels, everything, waiting
        return ()

    def storage(self) -> Storage | None:
        """A host for raw files of its trials, to be entered for a run."""
        return None

    def connected(self, journal: UndoJournal) -> AbstractContextManager[Host | None]:
        """The sender, for a run: what takes time to make is kept from one trial to the next. None:
        there is nothing to keep."""
        del journal
        return nullcontext()

    def cannot_reset(self, how: str) -> str:
        """Why the receiver, or the driver of its port, cannot begin anew between trials, in words;
        "" if it can."""
        del how
        return "nothing there can be reset (netns makes its ports anew for each start of the SUT)"

    def driver_problems(self) -> Sequence[str]:
        """Why the driver of the receiver's port must not be loaded anew; we are on that host."""
        return ()

    def load_driver(self, journal: UndoJournal) -> None:
        """Loads anew the driver of the receiver's port, which is at home."""
        del journal
        raise self._all_here()

    def receiver(self, label: str) -> SshHost:
        """Connected once it is entered."""
        del label
        raise self._all_here()

    def look_at_receiver(self, label: str) -> Checked:
        """A look at what stands in the way on the receiver, without its cable."""
        del label
        raise self._all_here()

    def held_sender(self) -> Held:
        """The means to begin programs on the sender, from this machine; it must be entered."""
        raise self._all_here()

    def _all_here(self) -> LabProblem:
        return LabProblem(f"lab {self.name} is this machine alone")
