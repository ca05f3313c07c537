"""The node binary, and one job of it: JSON lines over its stdin and stdout; its clock."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from nodrop.errors import LabProblem, NodeDied, NodeRefused
from nodrop.installation import getting_a_node
from nodrop.protocol import EVENTS, PROTOCOL, ClockAnswer, Hello, TaiAnswer
from nodrop.testbed.hosts.api import Json
from nodrop.untrusted import json_text
from nodrop.untrusted.json_text import NotJson, decode_object, making_sense, one_line, shown

PROGRAM = "nodrop-node"
ENVIRONMENT = "NODROP_NODE"


def find_node_binary(machine: str | None = None) -> Path:
    """The first executable of `candidates`; the error lists every place tried.

    `machine`: as the `uname -m` of a far host says; what the environment chooses is for this one.
    """
    here = machine in (None, platform.machine())
    chosen = os.environ.get(ENVIRONMENT) if here else None
    if chosen:
        path = Path(chosen)
        if not _runs(path):
            raise LabProblem(
                f"{ENVIRONMENT}={chosen} is not an executable file",
                hint=f"unset {ENVIRONMENT} or point it at a {PROGRAM} binary",
            )
        return path.resolve()
    tried = candidates(machine)
    for path in tried:
        if _runs(path):
            _must_be_built_since(path)
            return path
    raise LabProblem(
        f"no {PROGRAM} binary found{'' if here else f' for {machine}'} "
        f"(looked at {', '.join(map(str, tried))})",
        hint=getting_a_node(machine or platform.machine())
        + (f", or set {ENVIRONMENT} to the binary" if here else ""),
    )


def job_lacking(job: str) -> str:
    """Why the node of this machine cannot do a job that takes a newer Rust than the others, in
    words; "" if it can, or if there is no node."""
    try:
        path = find_node_binary()
    except LabProblem:
        return ""  # said where the lab is asked
    return _job_lacking(path, path.stat().st_mtime_ns, job)


ANSWERS_WITHIN_S = 10.0


@cache
def _job_lacking(path: Path, _stamp: int, job: str) -> str:
    asked = [str(path), job, "--controlled"]
    try:
        done = subprocess.run(
            asked, capture_output=True, stdin=subprocess.DEVNULL, text=True,
            timeout=ANSWERS_WITHIN_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""  # said where the job is started
    if done.stdout:
        return ""  # its hello
    return (
        f"{one_line(done.stderr)}; build it with a newer Rust (`rustup update`, `make build`), or "
        "take a released wheel, which has them"
    )


def _must_be_built_since(path: Path) -> None:
    """Raises LabProblem if a checkout's schema is newer than the node that was built of it: they
    misunderstand each other."""
    schema = Path(__file__).resolve().parents[4] / "schema/node.schema.json"
    if schema.is_file() and schema.stat().st_mtime > path.stat().st_mtime:
        raise LabProblem(
            f"{path} was built before {schema.parent.name}/{schema.name} changed",
            hint="run `make build`",
        )


def candidates(machine: str | None = None) -> list[Path]:
    """Packaged binary first, then the cargo target folder of the checkout we are in.

    Release before debug (a debug build cannot pace), musl before glibc (one file for every host).
    """
    here = platform.machine()
    machine = machine or here
    triples = [f"{machine}-unknown-linux-musl", f"{machine}-unknown-linux-gnu"]
    package = Path(__file__).resolve().parents[2]
    places = [package / "node" / "bin" / triple / PROGRAM for triple in triples]
    checkout = package.parents[1]
    if (checkout / "Cargo.toml").is_file():
        target = Path(os.environ.get("CARGO_TARGET_DIR", checkout / "target"))
        for profile in ("release", "debug"):
            places += [target / triple / profile / PROGRAM for triple in triples]
            if machine == here:
                places.append(target / profile / PROGRAM)
    return places


def file_sha256(path: Path) -> str:
    """Content hash, for the manifest."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


Event = TypeVar("Event")


def fit(kind: type[Event], said: Mapping[str, Any]) -> Event:
    """`said` itself. NotJson, whose words need the source in front, names the first field that is
    of another type. Unknown fields may be there: a newer node says more."""
    try:
        _adapter(cast(Any, kind)).validate_python(said, strict=True)
    except ValidationError as error:
        raise NotJson(_words(error)) from None
    return cast(Event, said)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _words(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"has no {field}"
    return f"{field}: {shown(first['input'])}: {first['msg']}"


STA_UNSYNC = 0x40  # include/uapi/linux/timex.h


class _Timex(ctypes.Structure):
    """struct __kernel_timex of a 64-bit machine (include/uapi/linux/timex.h)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_longlong),
        ("freq", ctypes.c_longlong),
        ("maxerror", ctypes.c_longlong),
        ("esterror", ctypes.c_longlong),
        ("status", ctypes.c_int),
        ("to_tick", ctypes.c_longlong * 6),
        ("to_shift", ctypes.c_longlong * 2),
        ("shift", ctypes.c_int),
        ("to_stbcnt", ctypes.c_longlong * 5),
        ("tai", ctypes.c_int),
        ("unused", ctypes.c_int * 11),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFix:
    """How to turn the clock of another host into ours."""

    offset_ns: int
    """Add to its CLOCK_MONOTONIC to get the controller's."""
    bound_ns: int
    """The offset cannot be further off than this."""
    real_offset_ns: int
    """The host's CLOCK_REALTIME minus ours, for file names and logs."""
    by: Literal["round trip", "TAI"] = "round trip"


def own_tai() -> TaiAnswer | None:
    """None if this host's clock runs free."""
    kept = _Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(kept)) < 0:
        return None
    if kept.status & STA_UNSYNC or not kept.tai:
        return None
    before, tai, after = (
        time.monotonic_ns(),
        time.clock_gettime_ns(time.CLOCK_TAI),
        time.monotonic_ns(),
    )
    return {
        "ahead_ns": tai - (before + after) // 2,
        "max_error_ns": kept.maxerror * 1000 + after - before,
    }


def closer(fix: ClockFix, theirs: TaiAnswer | None, ours: TaiAnswer | None) -> ClockFix:
    """The fix by TAI if it is closer than the round trip and the two agree. Otherwise a clock that
    falsely says that it is kept would be believed."""
    if theirs is None or ours is None:
        return fix
    offset_ns = theirs["ahead_ns"] - ours["ahead_ns"]
    bound_ns = theirs["max_error_ns"] + ours["max_error_ns"]
    moves_ns = offset_ns - fix.offset_ns
    if bound_ns >= fix.bound_ns or abs(moves_ns) > fix.bound_ns + bound_ns:
        return fix
    real_ns = fix.real_offset_ns - moves_ns
    return replace(fix, offset_ns=offset_ns, bound_ns=bound_ns, real_offset_ns=real_ns, by="TAI")


HELLO_TIMEOUT_S = 10.0
CLOSE_GRACE_S = 2.0
CLOCK_TRIPS = 4
"""Number of the shortest one-way times that a round may take, about."""
TICK_S = 0.5
NOISE_LIMIT_BYTES = 64 * 1024
"""Limit on what comes before the hello: a login banner, not a flood."""
NOISE_SHOWN_BYTES = 60
STDERR_TAIL_BYTES = 32 * 1024
LINE_LIMIT_BYTES = 16 * 1024 * 1024
MOST_BYTES = 1 << 30
"""Limit on all that one job says, since its samples are kept."""
AT_ONCE = frozenset({"probe", "trace"})
"""Jobs whose result follows the spec at once: `result` also says what was wrong with the spec."""
KINDS = frozenset({"hello", "ready", "clock", "sample", "result", "error"})


class Piped(Protocol):
    """The process through which a job is spoken to: a Popen, or a program in a guest that looks
    like one."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def wait(self, timeout: float | None = None) -> int:
        """subprocess.TimeoutExpired if it does not end."""
        ...

    def kill(self) -> None: ...


class Pipes:
    """The pipes of a Popen for a program that is reached another way: what it says is written to
    `inputs`, what it is told goes to `write` and `end`."""

    def __init__(self, write: Callable[[bytes], object], end: Callable[[], object]) -> None:
        ends = os.pipe(), os.pipe()
        self.inputs = [os.fdopen(there, "wb", buffering=0) for _, there in ends]
        self.stdout: IO[bytes] = os.fdopen(ends[0][0], "rb")
        self.stderr: IO[bytes] = os.fdopen(ends[1][0], "rb")
        self.stdin = cast(IO[bytes], _Input(write, end))

    def close_outputs(self) -> None:
        self.stdout.close()
        self.stderr.close()


class _Input:
    """The writing half of a pipe, as far as a job's controller uses it."""

    def __init__(self, write: Callable[[bytes], object], end: Callable[[], object]) -> None:
        self._write, self._end = write, end
        self._closed = False

    def write(self, content: bytes) -> int:
        if self._closed:
            raise ValueError("write to closed file")
        self._write(content)
        return len(content)

    def flush(self) -> None:
        """Does nothing: everything is sent at once."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._end()


Start = Callable[[Sequence[str], Mapping[str, str]], Piped]
"""argv, environment → the running program."""


class _Group(subprocess.Popen[bytes]):
    """A child in a process group of its own, which is killed as a whole: also what it began."""

    def kill(self) -> None:
        if self.returncode is None:  # not waited for yet, so its number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def start_child(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A process group of its own: Ctrl-C reaches the controller alone, which then undoes.
    return _Group(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        process_group=0,
    )


class NodeProcess:
    """A NodeJob (hosts/api.py) over a program with pipes, by default a direct child.

    The child may die, hang or babble at any moment: two threads only move bytes, and every wait
    has a deadline. Closing its stdin is the order to undo and leave.
    """

    def __init__(
        self,
        argv: Sequence[str],
        spec: Mapping[str, Any],
        *,
        env: Mapping[str, str],
        where: str,
        start: Start = start_child,
        lost: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`lost` says, once the job has died with these words, what its host knows of that; "" if
        nothing."""
        self._lost = lost
        self.ready: Any = {}
        """The `ready` event, of its type in protocol.py; `_expect` has checked it."""
        self._who = f"node job '{spec['job']}' on {where}"
        self._types = EVENTS.get(spec["job"], {})
        self._at_once = spec["job"] in AT_ONCE
        self._spec = dict(spec)
        self._samples: list[Json] = []
        self._events: queue.Queue[Json | None] = queue.Queue()
        self._noise = bytearray()
        self._stderr = bytearray()
        self._outcome: Json | None = None
        self._due = 0
        """Number of specs that were sent: each has one `ready` and one `result`."""
        self._had = {"ready": 0, "result": 0}
        self._clock_id = 0
        try:
            self._process = start(argv, env)
        except OSError as error:
            raise LabProblem(f"{self._who}: cannot start {argv[0]}: {error.strerror}") from error
        self.pid = self._process.pid
        self.far_pid = 0
        """PID that the node itself gives in its hello. It counts for a node that is no child of
        ours."""
        self._threads = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def prepare(self, *, timeout_s: float) -> None:
        """Hello, spec, ready. The job is closed if this fails."""
        deadline = time.monotonic() + timeout_s
        try:
            hello = self._expect("hello", min(HELLO_TIMEOUT_S, timeout_s))
            if hello.get("protocol") != PROTOCOL:
                raise LabProblem(
                    f"{self._who} speaks protocol {shown(hello.get('protocol'))}, not {PROTOCOL}",
                    hint=f"both must be of one build: {getting_a_node(platform.machine())}",
                )
            with making_sense(f"the hello of {self._who}"):
                self.far_pid = fit(Hello, hello)["pid"]
            self._begin(deadline)
        except BaseException:
            self.close()
            raise

    def again(self, spec: Mapping[str, Any], *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        # All samples came before the result, and whoever asks again has had that.
        self._spec, self._samples, self._outcome = dict(spec), [], None
        self._begin(deadline)

    def _begin(self, deadline: float) -> None:
        self._send({"type": "spec", **self._spec})
        if not self._at_once:
            self.ready = self._expect("ready", deadline - time.monotonic())

    def clock(self, *, rounds: int = 16, timeout_s: float = 5) -> ClockFix:
        """The offset of the node's clock, from the exchange with the shortest round trip: of fewer
        than `rounds` if they take long. By TAI if that is closer."""
        deadline = time.monotonic() + timeout_s
        best: ClockFix | None = None
        tai: TaiAnswer | None = None
        for _ in range(rounds):
            if best is not None and time.monotonic() + CLOCK_TRIPS * best.bound_ns / 1e9 > deadline:
                break
            self._clock_id += 1
            before_ns, real_ns = time.monotonic_ns(), time.time_ns()
            self._send({"type": "clock", "id": self._clock_id})
            answer = self._expect("clock", deadline - time.monotonic())
            after_ns = time.monotonic_ns()
            half_ns = (after_ns - before_ns) // 2
            with making_sense(f"the clock of {self._who}"):
                clock = fit(ClockAnswer, answer)
            if clock["id"] == self._clock_id and (best is None or half_ns < best.bound_ns):
                tai = clock["tai"]
                best = ClockFix(
                    offset_ns=before_ns + half_ns - clock["mono_ns"],
                    bound_ns=half_ns,
                    real_offset_ns=clock["real_ns"] - (real_ns + half_ns),
                )
        if best is None:
            raise LabProblem(f"{self._who} answered no clock question")
        return closer(best, tai, own_tai()) if tai else best

    def start(self, *, at_mono_ns: int | None = None) -> None:
        self._send({"type": "start", "at_mono_ns": at_mono_ns})

    def stop(self) -> None:
        self._send({"type": "stop"})

    def samples(self) -> Sequence[Any]:
        return list(self._samples)

    def result(self, *, timeout_s: float, tick: Callable[[], None] | None = None) -> Any:
        if self._outcome is None:
            self._outcome = self._expect("result", timeout_s, tick)
        asked = self._spec.get("what", ()) if self._spec["job"] == "probe" else ()
        for word in asked:
            if not isinstance(self._outcome.get(word), dict):
                raise LabProblem(f"{self._who}: its result holds no {word}")
        return self._outcome

    def ended(self) -> bool:
        return not self._threads[0].is_alive()

    def close(self) -> None:
        _close_quietly(self._process.stdin)
        deadline = time.monotonic() + CLOSE_GRACE_S
        self._threads[0].join(CLOSE_GRACE_S)  # its end of file is the event; wait() would poll
        if self._threads[0].is_alive():
            self._process.kill()  # it is deaf, or has ended and what it began holds the pipe
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # a guest that hangs heeds no order
                self._process.wait(CLOSE_GRACE_S)
        for thread in self._threads:
            # A grandchild may hold the pipes open: never wait for it, the threads are daemons.
            thread.join(CLOSE_GRACE_S)

    def _send(self, message: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        self._due += message["type"] == "spec"
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):
            # Gone. If it left a last word (an error event), that says more than the broken pipe.
            self._expect("result", CLOSE_GRACE_S)
            raise self._died() from None

    def _expect(
        self, wanted: str, timeout_s: float, tick: Callable[[], None] | None = None
    ) -> Json:
        """The next event of a type; an error event or the end of the stream is raised."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                event = self._events.get(timeout=min(left_s, TICK_S) if tick else left_s)
            except queue.Empty:
                if tick and left_s > TICK_S:
                    tick()
                    continue
                raise LabProblem(
                    f"{self._who} sent no {wanted} within {timeout_s:.1f} s{self._heard()}"
                ) from None
            if event is None:
                self._events.put(None)
                raise self._died()
            kind = event["type"]
            if kind == "error":
                hint = event.get("hint")
                raise NodeRefused(
                    f"{self._who}: {one_line(event.get('message', 'no message'))}",
                    kind=one_line(event.get("kind", "unknown"), longest=60),
                    said=one_line(event.get("message", "")),
                    hint=None if hint is None else one_line(hint),
                )
            if kind == wanted:
                return event
            if kind not in KINDS or wanted == "hello":
                raise LabProblem(f"{self._who} sent {shown(kind)} when {wanted!r} was due")
            if kind == "result":
                self._outcome = event

    def _died(self) -> NodeDied:
        try:
            status = f"exit status {self._process.wait(CLOSE_GRACE_S)}"
        except subprocess.TimeoutExpired:
            status = "stdout closed, still running"
        self._threads[1].join(CLOSE_GRACE_S)
        said = self._lost(_text(self._stderr)) or self._heard()
        return NodeDied(f"{self._who} ended without a result ({status}){said}")

    def _heard(self) -> str:
        """The job's output outside the protocol, for the error message."""
        words = ""
        if self._noise:
            words += f"; before hello: {_text(self._noise)}"
        if self._stderr:
            words += f"; stderr: {_text(self._stderr)}"
        return words

    def _read_events(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        if words := self._refused(stdout):
            self._events.put({"type": "error", "kind": "protocol", "message": words})
        _close_quietly(stdout)  # whoever goes on writing, a child of the job too, gets SIGPIPE
        self._events.put(None)

    def _refused(self, stdout: IO[bytes]) -> str:
        """Takes events until the job ends, then ""; or says which line is no event, and stops."""
        greeted = False
        left_bytes = json_text.raised(MOST_BYTES)
        for line in iter(lambda: stdout.readline(LINE_LIMIT_BYTES), b""):
            event = _parse(line)
            if not greeted and event is None:
                self._noise += line[: NOISE_LIMIT_BYTES + 1 - len(self._noise)]
                if len(self._noise) > NOISE_LIMIT_BYTES:
                    del self._noise[NOISE_SHOWN_BYTES:]
                    return (
                        f"more than {json_text.said(NOISE_LIMIT_BYTES)} and no hello{self._heard()}"
                    )
            elif event is None:
                return f"not a protocol line: {_text(line[:200])}"
            elif not greeted and event["type"] not in ("hello", "error"):
                return f"sent {shown(event['type'])} when 'hello' was due"
            elif (left_bytes := left_bytes - len(line)) < 0:
                return f"more than {json_text.said(MOST_BYTES)} of events"
            elif misfit := self._misfit(event) or self._one_too_many(event["type"]):
                return misfit
            elif event["type"] == "sample":
                self._samples.append(event)
            else:
                greeted = True
                self._events.put(event)
        return ""

    def _one_too_many(self, kind: str) -> str:
        """Words if the node says more than was asked for. Otherwise the second answer to one spec
        would be taken as the first to the next."""
        if kind not in self._had:
            return ""
        self._had[kind] += 1
        return f"sent a {kind} that no spec asked for" if self._had[kind] > self._due else ""

    def _misfit(self, event: Json) -> str:
        """Why an event of the job is not of its type; "" if it is."""
        kind = self._types.get(event["type"])
        try:
            if kind is not None:
                fit(kind, event)
        except NotJson as words:
            return f"its {event['type']} makes no sense: {words}"
        return ""

    def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        with stderr:
            while chunk := os.read(stderr.fileno(), 4096):
                self._stderr += chunk
                del self._stderr[:-STDERR_TAIL_BYTES]


def start_job(
    argv: Sequence[str],
    spec: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    where: str,
    timeout_s: float,
    start: Start = start_child,
    lost: Callable[[str], str] = lambda _: "",
) -> NodeProcess:
    """Spawns `argv` (a node with `--controlled`) and returns when it is ready."""
    job = NodeProcess(argv, spec, env=env, where=where, start=start, lost=lost)
    job.prepare(timeout_s=timeout_s)
    return job


def _parse(line: bytes) -> Json | None:
    try:
        event = decode_object(line, most_bytes=LINE_LIMIT_BYTES)
    except NotJson:
        return None
    return event if isinstance(event.get("type"), str) else None


def _text(raw: bytes | bytearray) -> str:
    return bytes(raw).decode(errors="replace").strip()


def _close_quietly(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        try:
            pipe.close()
        except OSError:
            pass  # unsent bytes to a dead process
