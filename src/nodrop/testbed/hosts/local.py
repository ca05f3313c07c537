"""This machine, or one network namespace of it: everything starts through `nodrop-node enter`."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import AS_OURS, Completed, SpawnRequest, Surroundings
from nodrop.testbed.hosts.node import NodeProcess, start_job
from nodrop.testbed.hosts.processes import Looking, Probed
from nodrop.testbed.hosts.rights import KEPT, KEPT_BY_OURS, entering, environment, of_job

CLONE_NEWPID = 0x20000000  # include/uapi/linux/sched.h
Child = subprocess.Popen[bytes]


def in_own_pids(start: Callable[[], Child]) -> Child:
    """Process 1 of its namespace, and yet our direct child: no process stands between.

    As process 1 it is ended by a signal only if it has a handler for it, or by SIGKILL. The kernel
    changes the namespace of a thread's next children, and `enter` dies with the thread that made
    it: so the thread is one of its own, and stays until the child has ended. OSError as of `start`.
    """
    started: Future[Child] = Future()

    def keep() -> None:
        try:
            _unshare_pids()
            child = start()
            handle = os.pidfd_open(child.pid)
        except BaseException as failed:
            started.set_exception(failed)
            return
        started.set_result(child)
        try:
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll()
        finally:
            os.close(handle)

    threading.Thread(target=keep, daemon=True, name="keeps a child").start()
    return started.result()


def _unshare_pids() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no PID namespace of its own: {os.strerror(number)}")


LABEL_VARIABLE = "NODROP_LAB"
"""Variable in the environment of everything we start; `nodrop undo` finds it by this."""
STDERR_SHOWN_CHARACTERS = 2000


class LocalHost(Probed):
    """A Host (hosts/api.py) of this kernel; `netns` is the path of a network namespace, or None.

    Long-lived children get PR_SET_PDEATHSIG from `enter`, and the kernel means the parent
    *thread* by it: spawn from a thread that lives as long as they should.

    One probe job stays for all looks: a process for each would cost 5 ms, and disturb what is
    measured. To be entered, or closed at least.
    """

    clock_offset_ns = 0  # one kernel, one CLOCK_MONOTONIC
    here = True

    def __init__(self, *, name: str, node: Path, label: str, netns: Path | None = None) -> None:
        self.name = name
        self.node = node
        self.label = label
        self.netns = netns
        self._looking = Looking(self)

    def reads(self, file: Path) -> str:
        return str(file)

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, stdin: str = ""
    ) -> Completed:
        return run_command(
            self._enter(argv) if self.netns else list(argv),
            shown=argv,
            where=self.name,
            env=self._environment(),
            timeout_s=timeout_s,
            check=check,
            stdin=stdin,
        )

    def spawn(self, request: SpawnRequest) -> subprocess.Popen[bytes]:
        around, cwd = request.around, request.cwd
        entering = self._enter(
            request.argv,
            cpus=request.cpus,
            caps=request.caps,
            cwd=cwd if around.root else None,
            around=around,
        )
        ours = self._environment(KEPT if around.private else KEPT_BY_OURS)
        with ExitStack() as files:
            out, err = (
                files.enter_context(path.open("ab")) for path in (request.stdout, request.stderr)
            )

            def start() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    entering,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=None if around.root else cwd,
                    env={**ours, **request.env},
                    process_group=0,
                    pass_fds=around.fds,
                )

            try:
                return in_own_pids(start) if around.private else start()
            except OSError as error:
                words = f"{self.name}: cannot start {request.argv[0]}: {error.strerror}"
                raise LabProblem(words) from error

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> NodeProcess:
        argv = [str(self.node), str(spec["job"]), "--controlled"]
        return start_job(
            self._enter(argv, cpus=cpus, caps=of_job(spec), around=Surroundings(cgroup=cgroup)),
            spec,
            env=self._environment(),
            where=self.name,
            timeout_s=timeout_s,
        )

    def __enter__(self) -> Self:
        """Starts the job that looks, so that what is timed does not wait for it."""
        self.probe("account")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the job that looks. The next look starts another."""
        self._looking.close()

    def _enter(
        self,
        argv: Sequence[str],
        *,
        cpus: str | None = None,
        caps: Sequence[str] | None = None,
        cwd: Path | None = None,
        around: Surroundings = AS_OURS,
    ) -> list[str]:
        # Named, because a parent that dies before `enter` asks for its name would go unnoticed.
        more = ["--parent", str(os.getpid())]
        if self.netns:
            more += ["--netns", str(self.netns)]
        if around.root:
            more += ["--root", str(around.root)]
        for source, inside in around.binds.items():
            more += ["--bind", f"{source}:{inside}"]
        if around.private and around.root:
            more.append("--private")
        if around.of_host:
            more.append("--of-host")
        if cwd:
            more += ["--cwd", str(cwd)]
        words = entering(
            self.node, *more, cpus=cpus, caps=caps, user=around.user, cgroup=around.cgroup
        )
        return [*words, *argv]

    def _environment(self, names: Sequence[str] = KEPT_BY_OURS) -> dict[str, str]:
        return environment(names, **{LABEL_VARIABLE: self.label})


def run_command(
    argv: Sequence[str],
    *,
    where: str,
    timeout_s: float,
    shown: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    stdin: str = "",
) -> Completed:
    """A short command to its end. `shown` is what the message names if `argv` is wrapped."""
    words = " ".join(shown or argv)
    began_s = time.monotonic()
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=timeout_s,
            check=False,
            process_group=0,
        )
    except FileNotFoundError as error:
        raise LabProblem(
            f"{where}: program {argv[0]} is missing", hint="run `nodrop doctor`"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LabProblem(f"{where}: `{words}` took longer than {timeout_s:g} s") from error
    completed = Completed(
        argv=tuple(shown or argv),
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        seconds=time.monotonic() - began_s,
    )
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-STDERR_SHOWN_CHARACTERS:]
        raise LabProblem(f"{where}: `{words}` failed ({done.returncode}): {said}")
    return completed
