"""A virtual machine as a host: programs, files and node jobs in it, through its one line."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, SupportsIndex

from nodrop.errors import LabProblem
from nodrop.hosts.guest_line import Conversation, GuestLine, PipedConversation, deadline_left
from nodrop.hosts.node import NodeProcess, start_job
from nodrop.hosts.rights import of_job
from nodrop.hosts.seam import AS_OURS, Completed, Json, ProbeJob, Surroundings
from nodrop.protocol.events import ProbeResult
from nodrop.untrusted import bounds
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, counted
from nodrop.untrusted.words import making_sense

NODE = "/run/nodrop-node"
"""The path of the guest's init."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ANSWER_TIMEOUT_S = 30.0
"""Under emulation, on a busy machine, starting a program takes a second."""
CLOCK_ROUNDS = 16


class GuestHost:
    """A Host (hosts/seam.py). Its programs' PIDs are, for us, the emulator's."""

    name = "guest"
    here = False

    def __init__(self, line: GuestLine, hello: Json) -> None:
        self.hello = hello
        self.clock_offset_ns = 0
        self.clock_bound_ns = 0
        self._line = line

    def set_clock(self) -> None:
        """Learns the offset of the guest's monotonic clock, and sets its wall clock to ours."""
        self.learn_clock()
        self._time({"id": CLOCK_ROUNDS, "set_real_ns": time.time_ns() + self.clock_bound_ns})

    def learn_clock(self) -> None:
        """The offset of the guest's monotonic clock."""
        best: tuple[int, int] | None = None
        for number in range(CLOCK_ROUNDS):
            before_ns = time.monotonic_ns()
            said = self._time({"id": number})
            half_ns = (time.monotonic_ns() - before_ns) // 2
            if best is None or half_ns < best[0]:
                with making_sense(f"the clock of {self.name}"):
                    best = half_ns, before_ns + half_ns - counted(said, "mono_ns")
        assert best is not None
        self.clock_bound_ns, self.clock_offset_ns = best

    def reads(self, file: Path) -> str:
        raise LabProblem(f"{self.name}: {file} is not in the guest")

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, stdin: str = ""
    ) -> Completed:
        began_s = time.monotonic()
        out, err = _Kept(), _Kept()
        words = " ".join(argv)
        try:
            program = self._run(argv, {}, None, out, err)
            program.write(stdin.encode())
            program.end()
            status = program.wait(timeout_s)
        except subprocess.TimeoutExpired:
            program.kill()
            raise LabProblem(f"{self.name}: `{words}` took longer than {timeout_s:g} s") from None
        except BrokenPipeError as error:
            raise LabProblem(f"{self.name}: `{words}`: {error}") from None
        if program.failure:
            raise LabProblem(f"{self.name}: {program.failure}")
        done = Completed(
            argv=tuple(argv),
            returncode=status,
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            seconds=time.monotonic() - began_s,
        )
        if check and status != 0:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise LabProblem(f"{self.name}: `{words}` failed ({status}): {said}")
        return done

    def spawn(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] = {},
        cpus: str | None = None,
        caps: Sequence[str] | None = None,
        around: Surroundings = AS_OURS,
    ) -> Conversation:
        """Returns once it runs; what it says goes to files of ours, as it says it."""
        if around != AS_OURS:
            raise LabProblem(f"{self.name}: a guest's program sees the guest's files only")
        program = self._run(_on(cpus, caps, argv), env, cwd, _File(stdout), _File(stderr))
        program.begin(ANSWER_TIMEOUT_S)
        program.end()
        return program

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> NodeProcess:
        if cgroup:
            raise LabProblem(f"{self.name}: control groups are those of the guest")
        return start_job(
            _on(cpus, of_job(spec), [NODE, str(spec["job"]), "--controlled"]),
            spec,
            env={"PATH": PATH},
            where=self.name,
            timeout_s=timeout_s,
            start=lambda argv, env: PipedConversation(self._line, argv, env),
        )

    def probe(
        self,
        *what: str,
        ports: Sequence[str] = (),
        pids: Sequence[int] = (),
        files: Sequence[str] = (),
        timeout_s: float = 30,
    ) -> ProbeResult:
        """A process for each: none stays in the guest, whose memory is measured."""
        spec = {
            "job": "probe",
            "what": list(what),
            "ports": list(ports),
            "pids": list(pids),
            "files": list(files),
        }
        job: ProbeJob = self.job(spec, timeout_s=timeout_s)
        with closing(job):
            return job.result(timeout_s=timeout_s)

    def read_file(self, path: str, *, offset: int = 0) -> bytes:
        """From `offset` to its end now. FileNotFoundError if it cannot be read. A guest that
        sends more than is allowed has broken the line's protocol, and the line ends."""
        got = _Kept()
        self._finish({"read": {"path": path, "offset": offset}}, got)
        return bytes(got)

    def write_file(self, path: str, content: bytes) -> None:
        self._finish({"write": {"path": path}}, bytearray(), content)

    def connect(self, path: str, *, timeout_s: float) -> socket.socket:
        """To a Unix socket of the guest. OSError if nothing listens."""
        ours, theirs = socket.socketpair()
        conversation = self._line.open(
            {"connect": {"path": path}}, out=lambda part: _pass(theirs, part), err=_nothing
        )
        try:
            conversation.begin(timeout_s)
        except LabProblem as problem:
            ours.close()
            theirs.close()
            raise ConnectionRefusedError(problem.message) from None
        threading.Thread(target=_pump, args=(theirs, conversation), daemon=True).start()
        ours.settimeout(timeout_s)
        return ours

    def _run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, out: Any, err: Any
    ) -> Conversation:
        variables = {"PATH": PATH, **env}
        request = {
            "argv": list(argv),
            "env": list(variables.items()),
            "cwd": None if cwd is None else str(cwd),
        }
        return self._line.open({"run": request}, out=out.extend, err=err.extend)

    def _finish(self, request: Json, got: bytearray, content: bytes | None = None) -> None:
        conversation = self._line.open(request, out=got.extend, err=_nothing)
        if content is not None:
            conversation.write(content)
            conversation.end()
        try:
            conversation.wait(ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LabProblem(f"{self.name} did not answer within {ANSWER_TIMEOUT_S:g} s") from None
        if conversation.failure:
            raise FileNotFoundError(conversation.failure)

    def _time(self, question: Json) -> Json:
        self._line.send(0, "t", json.dumps(question).encode())
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                said = self._line.said(deadline_left(deadline))
            except TimeoutError:
                raise LabProblem(f"{self.name} does not report its time") from None
            if said is None:
                raise LabProblem(f"{self.name}: {self._line.why}")
            if said.get("id") == question["id"]:
                return said


def _on(cpus: str | None, caps: Sequence[str] | None, argv: Sequence[str]) -> list[str]:
    entering = ["--cpus", cpus] if cpus else []
    if caps is not None:
        entering += ["--caps", ",".join(caps)]
    return [NODE, "enter", *entering, "--", *argv] if entering else list(argv)


class _Kept(bytearray):
    """A guest's output in our memory, of a size that the guest decides. NotJson if it exceeds the
    bound on a guest's file."""

    def extend(self, content: Iterable[SupportsIndex]) -> None:
        super().extend(content)
        if len(self) > bounds.raised(bounds.GUEST_FILE_BYTES):
            self.clear()
            most = bounds.said(bounds.raised(bounds.GUEST_FILE_BYTES))
            raise NotJson(
                f"one file or program gives more than {most} ({bounds.KEY}=… allows more)"
            )


class _File:
    """Takes what a program says; beyond the bound the rest is dropped."""

    def __init__(self, path: Path) -> None:
        self._file = Folder(path.parent).changing(path.name, append=True)
        self._left = bounds.raised(bounds.GUEST_FILE_BYTES)

    def extend(self, content: bytes) -> None:
        if content:
            self._file.write(content[: self._left])
            self._left -= min(len(content), self._left)
        else:
            self._file.close()


def _pump(theirs: socket.socket, conversation: Conversation) -> None:
    try:
        while part := theirs.recv(65536):
            conversation.write(part)
        conversation.end()
    except OSError:
        pass  # one of the two ends is gone
    finally:
        theirs.close()


def _pass(theirs: socket.socket, part: bytes) -> None:
    try:
        if part:
            theirs.sendall(part)
        else:
            # close() alone would not wake who waits at either end: _pump still reads there.
            theirs.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # our end was closed


def _nothing(_part: bytes) -> None:
    """No one waits for this answer."""
