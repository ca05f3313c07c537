"""A machine that is reached over ssh: commands and node jobs there, as its root."""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Literal, Self

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import AS_OURS, Completed, SpawnRequest
from nodrop.testbed.hosts.content_store import ContentStore
from nodrop.testbed.hosts.local import LABEL_VARIABLE
from nodrop.testbed.hosts.node import (
    PROGRAM,
    ClockFix,
    NodeProcess,
    find_node_binary,
    start_child,
    start_job,
)
from nodrop.testbed.hosts.processes import TERM_S, Lease, Looking, Probed, keep_words
from nodrop.testbed.hosts.relay import RelayedConnection
from nodrop.testbed.hosts.rights import entering, of_job
from nodrop.testbed.hosts.ssh_connection import SshConnection, too_few_sessions

NODE_FOLDER = "/var/lib/nodrop/node"
"""Folder of the host that is root's, with one folder for each content hash, so versions do not
collide."""
KEPT_FOLDER = posixpath.dirname(NODE_FOLDER)
"""Folder of all that is kept for a connection, each time in a folder of its own."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A user's has no sbin on Debian, and sudo may keep it: ethtool is there."""
COMMAND_TIMEOUT_S = 30.0
FILE_TIMEOUT_S, SLOWEST_BYTES_S = 600.0, 50_000
"""Seconds that any file may take, and the rate (bytes per second) at which its size adds to them.
TCP gets through 40 kB/s of a line that takes 200 ms and loses 5 %, and a line that is cut ends a
copy by itself."""
END_TIMEOUT_S = 5.0
LOST_S = 1.0
"""Wait for a connection to end: what goes by it ends a moment before it does."""
Become = Literal["sudo"]
BECOMING: Mapping[Become | None, tuple[str, ...]] = {
    None: (),
    "sudo": ("sudo", "--non-interactive", "--"),
}
TAKE = """\
set -eu
umask 077
cat >"$1"
[ "$(wc -c <"$1")" -eq "$2" ] || { echo "it did not arrive whole" >&2; exit 1; }
"""
"""$1: the file, $2: so many bytes come by stdin."""


HOLD = """\
exec 3<&0
echo 1 >/proc/self/timerslack_ns
"$@" </dev/null 3<&- &
program=$!
{ cat <&3; kill -KILL "$program"; } >/dev/null 2>&1 &
wait "$program"
"""
"""Runs a program until our end of its stdin ends, at most. Its timers are exact (load/tcpreplay.py
says why), and the shell's status is the program's."""


def file_timeout_s(size_bytes: int) -> float:
    return FILE_TIMEOUT_S + size_bytes / SLOWEST_BYTES_S


class FarProgram(subprocess.Popen[bytes]):
    """A program of another host, which lives no longer than our ssh to it."""

    def wait(self, timeout: float | None = None) -> int:
        status = super().wait(timeout)
        if self.stdin is not None:
            self.stdin.close()
        return status


class SshHost(Probed):
    """A Host (hosts/api.py) for a sender: node jobs, and programs that the host has.

    Entered, it is connected, its node is in place, it is held for this run, and its clock is known.
    LabProblem otherwise, with one sentence. After it nothing of ours runs there; the node's file
    stays for the next time.
    """

    here = False

    def __init__(
        self,
        host: str,
        *,
        name: str | None = None,
        label: str,
        become: Become | None = None,
        config: Path | None = None,
        holds: bool = True,
        relay: Path | None = None,
    ) -> None:
        """`holds`: for one run alone, which is ended there if we are gone. If not, it is good
        for commands only. `relay`: another machine holds the connection, and this
        socket leads to it."""
        self.name = name or host
        self.label = label
        self.machine = ""
        self.node_copied = False
        """The node was not there before."""
        self.clock = ClockFix(offset_ns=0, bound_ns=0, real_offset_ns=0)
        self.clock_offset_ns = 0
        self._become = become
        self._connection = (
            RelayedConnection(relay, name=self.name)
            if relay
            else SshConnection(host, name=self.name, config=config, label=label)
        )
        self._node = ""
        self._looking = Looking(self)
        self._relayed = relay is not None
        self._timing: NodeProcess | None = None
        """A node at the other end of a relay that stays, because it takes a third of a second to
        begin."""
        self._holds = holds
        self._lease: Lease | None = None
        self._kept = ""
        """The folder of our lease; after it, that of the last one."""
        self._copies: dict[tuple[int, ...], str] = {}

    @property
    def address(self) -> str:
        """The host's address as ssh reached it; empty if that is not known."""
        return self._connection.address

    def __enter__(self) -> Self:
        self._connection.__enter__()
        try:
            self.machine = self._root_of()
            self._node = self._installed(find_node_binary(self.machine))
            self._must_run()
            if self._holds:
                self._take_lease()
                self.learn_clock()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._looking.close()
        if self._timing is not None:
            self._timing.close()
            self._timing = None
        lease, self._lease, self._copies = self._lease, None, {}
        if lease is not None:
            lease.close(meanwhile=self._connection.hang_up)
        self._connection.close()

    @property
    def node(self) -> str:
        """Path of the node on the host."""
        return self._node

    def learn_clock(self) -> ClockFix:
        """The offset of the host's clocks, from a job that is told nothing else."""
        if not self._relayed:
            with closing(self.job({"job": "sample"})) as job:
                self.clock = job.clock()
        else:
            if self._timing is None or self._timing.ended():
                self._timing = self.job({"job": "sample"})
            self.clock = self._timing.clock()
        self.clock_offset_ns = self.clock.offset_ns
        return self.clock

    def gone(self) -> bool:
        """The host is to be closed and entered again."""
        return self._connection.gone() or (self._lease is not None and self._lease.gone())

    def lost(self) -> bool:
        """The connection is gone, or is about to be: what went by it has just ended."""
        return self._connection.gone(within_s=LOST_S)

    def spawn(self, request: SpawnRequest) -> FarProgram:
        """`Host.spawn` of a program of that host, as it is there. Its PID is that of our ssh."""
        if request.cwd or request.env or request.around != AS_OURS:
            raise LabProblem(
                f"{self.name}: {request.argv[0]} runs there as that host has it: without a folder, "
                "variables or surroundings of its own"
            )
        held = ["sh", "-c", HOLD, "nodrop"]
        entered = entering(self._node, cpus=request.cpus, caps=request.caps)
        words = [*held, *entered, *request.argv]
        with request.stdout.open("ab") as out, request.stderr.open("ab") as err:
            return FarProgram(
                self._connection.shared(self._rooted(words)),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=self._connection.environment(),
                process_group=0,
            )

    def begin(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """A program as root, with pipes: to speak with it. The end of its stdin must end it."""
        return start_child(
            self._connection.shared(self._rooted(argv)), self._connection.environment()
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30,
        check: bool = True,
        stdin: str | IO[bytes] = "",
    ) -> Completed:
        return self._as_root(argv, timeout_s=timeout_s, check=check, stdin=stdin)

    def copied(self, argv: Sequence[str], content: IO[bytes], name: str) -> Completed:
        """A file to the stdin of a program there, which ends even if it never hears of our end."""
        timeout_s = file_timeout_s(os.fstat(content.fileno()).st_size)
        words = ["timeout", f"{timeout_s + END_TIMEOUT_S:.0f}", *argv]
        return self._as_root(
            words, timeout_s=timeout_s, check=False, stdin=content, shown=f"copy {name}"
        )

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> NodeProcess:
        # The death signal comes if sudo, or sshd's process of this conversation, is killed there.
        words = entering(self._node, cpus=cpus, caps=of_job(spec), cgroup=cgroup)
        argv = [*words, self._node, str(spec["job"]), "--controlled"]
        job = start_job(
            self._connection.shared(self._rooted(argv)),
            spec,
            env=self._connection.environment(),
            where=self.name,
            timeout_s=timeout_s,
            lost=self._lost,
        )
        job.pid = job.far_pid
        return job

    def _lost(self, said: str) -> str:
        if why := too_few_sessions(said):
            return why
        if self.lost():
            return ": the ssh connection is gone"
        if self._lease is not None and self._lease.gone():
            return f": its keeper there has ended it: {TERM_S} s without a word of us, or killed"
        return ""

    def reads(self, file: Path) -> str:
        """Root's, and gone with the connection. Files that follow each other in one place are told
        apart by what `stat` says."""
        found = file.stat()
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp not in self._copies:
            path = f"{self._kept}/{len(self._copies)}"
            with file.open("rb") as content:
                argv = ["sh", "-c", TAKE, "nodrop", path, str(found.st_size)]
                done = self.copied(argv, content, file.name)
            if done.returncode != 0:
                said = " ".join((done.stderr or done.stdout).split())
                raise LabProblem(f"{self.name}: {file.name} cannot be copied there: {said}")
            self._copies[stamp] = path
        return self._copies[stamp]

    def _take_lease(self) -> None:
        """The one that we had before may still wait for a word of us: it is ended first."""
        before = posixpath.basename(self._kept)
        words = keep_words(self._node, KEPT_FOLDER, self.label, instead_of=before)
        argv = self._connection.shared([*BECOMING[self._become], "env", f"PATH={PATH}", *words])
        self._lease = Lease(
            argv, env=self._connection.environment(), where=self.name, lost=too_few_sessions
        )
        self._kept = self._lease.folder

    def _root_of(self) -> str:
        """The host's machine (`uname -m`), asked as root. LabProblem if we cannot be root there."""
        argv = ["sh", "-c", "id -u && uname -m"]
        done = self._as_root(argv, timeout_s=COMMAND_TIMEOUT_S, check=False)
        words = done.stdout.split()
        if done.returncode == 0 and len(words) == 2 and words[0] == "0":
            return words[1]
        raise LabProblem(f"{self.name}: {self._not_root(done)}")

    def _not_root(self, done: Completed) -> str:
        said = " ".join((done.stderr or done.stdout).split())
        if self._become is None and done.returncode == 0:
            return (
                f"user {said.split()[0]} is not root there; log in as root (`User root` in "
                '~/.ssh/config), or set become = "sudo"'
            )
        if self._become and "password is required" in said:
            return (
                "sudo asks for a password there; allow this user NOPASSWD (visudo), or log in as "
                "root"
            )
        if self._become and "not found" in said:
            return "there is no sudo there; install it, or log in as root"
        return f"cannot become root there: {said}"

    def _installed(self, binary: Path) -> str:
        """The path of the node on the host: what has this hash, copied if it is not there."""
        store = ContentStore(self, NODE_FOLDER)
        placed = store.put_file(binary, name=PROGRAM, mode="755", shown="the node")
        self.node_copied = placed.copied
        return placed.path

    def _must_run(self) -> None:
        """`noexec`, a missing C library and another machine show at once, and with their words."""
        argv = [self._node, "--version"]
        done = self._as_root(argv, timeout_s=COMMAND_TIMEOUT_S, check=False)
        if done.returncode != 0 or not done.stdout.startswith(PROGRAM):
            said = " ".join((done.stderr or done.stdout).split())
            raise LabProblem(
                f"{self.name}: the node cannot run there ({self.machine}): {said}",
                hint="its file system may be mounted noexec",
            )

    def _as_root(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        check: bool = True,
        stdin: str | IO[bytes] = "",
        shown: str = "",
    ) -> Completed:
        shown = shown or " ".join(argv[:1] if argv[0] == "sh" else argv)
        return self._connection.run(
            self._rooted(argv), timeout_s=timeout_s, check=check, stdin=stdin, shown=shown
        )

    def _rooted(self, argv: Sequence[str]) -> list[str]:
        """sudo drops our environment, so what carries our label is set behind it."""
        variables = [f"PATH={PATH}", f"{LABEL_VARIABLE}={self.label}"]
        return [*BECOMING[self._become], "env", *variables, *argv]
