"""A virtual machine as a host: programs, files and node jobs in it, through its one line."""

from __future__ import annotations

import itertools
import json
import queue
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, SupportsIndex

from nodrop.errors import LabProblem
from nodrop.protocol import ProbeResult
from nodrop.testbed.hosts.api import AS_OURS, Completed, Json, ProbeJob, SpawnRequest
from nodrop.testbed.hosts.node import NodeProcess, Pipes, start_job
from nodrop.testbed.hosts.processes import probe_spec
from nodrop.testbed.hosts.rights import entering, of_job
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import (
    NotJson,
    counted,
    decode_object,
    making_sense,
    member,
    one_line,
    optional,
)

# The line into a guest: one virtio-serial port that carries several conversations at once.
#
# The other end is `nodrop-node guest` (docs/node-protocol.md, "A guest"). One thread reads; whoever
# wants to write takes a lock. The line breaks when the guest or its emulator ends.
HEAD = struct.Struct("<IIB")
"""Length of the payload, channel, kind."""
LONGEST_BYTES = 64 * 1024
"""Limit on a payload, in both directions (crates/node/src/guest/frame.rs)."""
MOST_UNHEARD = 1000
"""Words of the guest that no one has asked for yet."""
SEND_TIMEOUT_S = 30.0
"""Time for which a guest takes nothing before it counts as hung."""
LOST = -9
"""The status of a program whose guest is gone: nothing of it can be left."""

Take = Callable[[bytes], object]


class GuestLine:
    """Our end. `pid` is that of the emulator, which stands for the guest's programs here."""

    def __init__(self, stream: socket.socket, *, pid: int) -> None:
        self.pid = pid
        self.broken = threading.Event()
        self.why = "the guest is gone"
        """Words for the end of the line, once it is broken."""
        self._stream = stream
        self._stream.settimeout(SEND_TIMEOUT_S)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, Conversation] = {}
        self._said: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self, timeout_s: float) -> Json | None:
        """The next word of the guest itself (hello, time). None if the line broke."""
        try:
            word = self._said.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None
        if word is None:
            self._said.put(None)
        return word

    def open(self, request: Json, *, out: Take, err: Take) -> Conversation:
        conversation = Conversation(self, next(self._numbers), out=out, err=err)
        self._open[conversation.number] = conversation
        if self.broken.is_set():
            conversation.lost()
        self.send(conversation.number, "o", json.dumps(request).encode())
        return conversation

    def send(self, channel: int, kind: str, payload: bytes = b"") -> None:
        """BrokenPipeError if the guest is gone, or takes nothing any more."""
        try:
            with self._sending:
                self._stream.sendall(HEAD.pack(len(payload), channel, ord(kind)) + payload)
        except OSError as error:
            raise BrokenPipeError(f"the line to the guest broke: {error}") from None

    def close(self) -> None:
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        self._reader.join(SEND_TIMEOUT_S)
        self._stream.close()

    def _read(self) -> None:
        try:
            while True:
                length, channel, kind = HEAD.unpack(self._exactly(HEAD.size))
                if length > LONGEST_BYTES:
                    raise NotJson(f"a frame of {length} bytes, allowed are {LONGEST_BYTES}")
                self._hand_out(channel, chr(kind), self._exactly(length))
        except OSError:
            pass
        except NotJson as error:
            self.why = f"the guest broke the protocol of its line: {error}"
        self.broken.set()
        for conversation in list(self._open.values()):
            conversation.lost()
        self._said.put(None)

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            try:
                part = self._stream.recv(count - len(got))
            except TimeoutError:
                continue  # the timeout is for sending; silence is normal
            if not part:
                raise ConnectionError
            got += part
        return bytes(got)

    def _hand_out(self, channel: int, kind: str, payload: bytes) -> None:
        if channel == 0:
            if self._said.qsize() > MOST_UNHEARD:
                raise NotJson(f"more than {MOST_UNHEARD} words that were not asked for")
            self._said.put(decode_object(payload))
        elif conversation := self._open.get(channel):
            conversation.hear(kind, payload)
            if kind in "fx":
                del self._open[channel]


class Conversation:
    """A program in the guest (a Child, hosts/api.py), or a file or socket of it."""

    def __init__(self, line: GuestLine, number: int, *, out: Take, err: Take) -> None:
        self.number = number
        self.pid = line.pid
        self.inside_pid: int | None = None
        self.failure: str | None = None
        self._line = line
        self._takes = {"1": out, "2": err}
        self._status: int | None = None
        self._begun = threading.Event()
        self._over = threading.Event()

    def begin(self, timeout_s: float) -> None:
        """Waits until the guest says that it started, or why not (LabProblem)."""
        if not self._begun.wait(timeout_s):
            raise LabProblem(f"the guest did not answer within {timeout_s:g} s")
        if self.failure:
            raise LabProblem(f"guest: {self.failure}")

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired(["guest"], timeout or 0)
        assert self._status is not None
        return self._status

    def send_signal(self, sig: int) -> None:
        if self._status is None:
            self._line.send(self.number, "k", bytes([sig]))

    def kill(self) -> None:
        try:
            self.send_signal(9)
        except BrokenPipeError:
            pass  # gone with its guest

    def write(self, content: bytes) -> None:
        for start in range(0, len(content), LONGEST_BYTES):
            self._line.send(self.number, "d", content[start : start + LONGEST_BYTES])

    def end(self) -> None:
        self._line.send(self.number, "e")

    def hear(self, kind: str, payload: bytes) -> None:
        if kind in self._takes:
            self._takes[kind](payload)
            return
        said = decode_object(payload)
        if kind == "s":
            self.inside_pid = optional(said, "pid", int)
            self._begun.set()
        elif kind == "f":
            self.failure = one_line(member(said, "message", str))
            self._finish(127)
        elif kind == "x":
            self._finish(member(said, "status", int))

    def lost(self) -> None:
        self.failure = self.failure or self._line.why
        self._finish(LOST)

    def _finish(self, status: int) -> None:
        if self._status is None:
            self._status = status
            self._begun.set()
            self._over.set()
            for take in self._takes.values():
                take(b"")


class PipedConversation(Pipes):
    """A program in the guest with the pipes of a Popen: node jobs are spoken to through it."""

    def __init__(self, line: GuestLine, argv: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__(self._tell, self._end)
        self.pid = line.pid
        out, err = (self._into(file) for file in self.inputs)
        request = {"run": {"argv": list(argv), "env": list(env.items())}}
        try:
            self._conversation = line.open(request, out=out, err=err)
        except BrokenPipeError:
            for file in self.inputs:
                file.close()
            self.close_outputs()
            raise

    def wait(self, timeout: float | None = None) -> int:
        return self._conversation.wait(timeout)

    def kill(self) -> None:
        self._conversation.kill()

    def _tell(self, content: bytes) -> None:
        self._conversation.write(content)

    def _end(self) -> None:
        self._conversation.end()

    @staticmethod
    def _into(file: Any) -> Take:
        def take(content: bytes) -> None:
            try:
                if content:
                    file.write(content)
                else:
                    file.close()
            except (OSError, ValueError):
                pass  # no reader is left

        return take


def deadline_left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


NODE = "/run/nodrop-node"
"""The path of the guest's init."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ANSWER_TIMEOUT_S = 30.0
"""Time for an answer: under emulation, on a busy machine, starting a program takes a second."""
CLOCK_ROUNDS = 16


class GuestHost:
    """A Host (hosts/api.py). Its programs' PIDs are, for us, the emulator's."""

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
        out, err = _Output(), _Output()
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

    def spawn(self, request: SpawnRequest) -> Conversation:
        """Returns once it runs; what it says goes to files of ours, as it says it."""
        if request.around != AS_OURS:
            raise LabProblem(f"{self.name}: a guest's program sees the guest's files only")
        words = _on(request.cpus, request.caps, request.argv)
        said = _File(request.stdout), _File(request.stderr)
        program = self._run(words, request.env, request.cwd, *said)
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
        job: ProbeJob = self.job(probe_spec(what, ports, pids, files), timeout_s=timeout_s)
        with closing(job):
            return job.result(timeout_s=timeout_s)

    def read_file(self, path: str, *, offset: int = 0) -> bytes:
        """The content from `offset` to its end now. FileNotFoundError if it cannot be read. A guest
        that sends more than is allowed has broken the line's protocol, and the line ends."""
        got = _Output()
        self._finish({"read": {"path": path, "offset": offset}}, got)
        return bytes(got)

    def write_file(self, path: str, content: bytes) -> None:
        self._finish({"write": {"path": path}}, bytearray(), content)

    def connect(self, path: str, *, timeout_s: float) -> socket.socket:
        """A connection to a Unix socket of the guest. OSError if nothing listens."""
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
    return [*(entering(NODE, cpus=cpus, caps=caps) if cpus or caps is not None else ()), *argv]


class _Output(bytearray):
    """A guest's output in our memory, of a size that the guest decides. NotJson if it exceeds the
    bound on a guest's file."""

    def extend(self, content: Iterable[SupportsIndex]) -> None:
        super().extend(content)
        if len(self) > json_text.raised(json_text.GUEST_FILE_BYTES):
            self.clear()
            most = json_text.said(json_text.raised(json_text.GUEST_FILE_BYTES))
            raise NotJson(
                f"one file or program gives more than {most} ({json_text.KEY}=… allows more)"
            )


class _File:
    """Takes what a program says; beyond the bound the rest is dropped."""

    def __init__(self, path: Path) -> None:
        self._file = Folder(path.parent).changing(path.name, append=True)
        self._left = json_text.raised(json_text.GUEST_FILE_BYTES)

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
    """Drops an answer: no one waits for it."""
