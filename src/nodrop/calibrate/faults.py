"""Faults put into a run that goes on, and how its parts are found from outside.

A fault is a context manager around a run. What it yields puts it in, once per trial, and is called
as a named step of the trial begins. What a fault changes goes with the lab, which every trial makes
anew; its helpers end with the context.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.journal import journals
from nodrop.testbed.hosts.local import LABEL_VARIABLE, run_command
from nodrop.testbed.hosts.processes import ProcessId

PutIn = Callable[[], None]
Fault = Callable[[], AbstractContextManager[PutIn]]
INJECTOR = Path(__file__).with_name("drop_by_xdp.py")
COMMAND_TIMEOUT_S = 10.0


class Inject(Progress):
    """Runs a fault as a trial's step begins: a step and its fault, or several in a mapping."""

    def __init__(self, steps: str | Mapping[str, PutIn], fault: PutIn = lambda: None) -> None:
        self._faults = {steps: fault} if isinstance(steps, str) else dict(steps)

    def phase(self, name: str) -> None:
        if name in self._faults:
            self._faults[name]()


def label() -> str:
    """Label of the run that goes on in this process: it has one journal at a time."""
    us = ProcessId.of(os.getpid())
    (journal,) = (found for found in journals() if found.head().controller == us)
    return journal.label


def namespace(end: str) -> str:
    """Network namespace of an end, which is `snd` or `rcv`."""
    return f"nodrop-{label()}-{end}"


def labelled(program: str) -> list[int]:
    """PIDs of the run's own processes with this program name."""
    mark = f"{LABEL_VARIABLE}={label()}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if mark in environment and name.startswith(program):
            found.append(int(folder.name))
    return found


def job(kind: str) -> int:
    """PID of the run's node job of this kind: `replay` sends, `sink` is the SUT."""
    for pid in labelled("nodrop-node"):
        with suppress(OSError):
            if kind.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    raise LabProblem(f"no node job '{kind}' of this run is seen on this host")


def at_the_sender(argv: Sequence[str], *, stdin: str = "") -> None:
    entering = ["ip", "netns", "exec", namespace("snd"), *argv]
    run_command(entering, where="fault", timeout_s=COMMAND_TIMEOUT_S, stdin=stdin)


def at_the_sut(argv: Sequence[str]) -> None:
    """Runs a command in the sink's network namespace: a container has taken the port there."""
    run_command(_beside_the_sut(argv), where="fault", timeout_s=COMMAND_TIMEOUT_S)


def _beside_the_sut(argv: Sequence[str]) -> list[str]:
    return ["nsenter", f"--net=/proc/{job('sink')}/ns/net", *argv]


@contextmanager
def nothing() -> Iterator[PutIn]:
    yield lambda: None


def per_trial(*faults: Fault) -> Fault:
    """The n-th fault in the n-th trial."""

    @contextmanager
    def entered() -> Iterator[PutIn]:
        with ExitStack() as stack:
            waiting = iter([stack.enter_context(fault()) for fault in faults])
            yield lambda: next(waiting)()

    return entered


def at_once(put_in: PutIn) -> Fault:
    """A fault that needs nothing around the run."""

    @contextmanager
    def entered() -> Iterator[PutIn]:
        yield put_in

    return entered


def egress_drops(port: str, packets: int) -> Fault:
    """A filter on the sender's way out drops exactly the first packets."""
    rules = f"""
        table netdev fault {{
          chain out {{
            type filter hook egress device "{port}" priority 0; policy accept;
            numgen inc mod 4000000000 < {packets} drop
          }}
        }}
    """
    return at_once(lambda: at_the_sender(["nft", "-f", "-"], stdin=rules))


SEND = """
import socket, sys
port, packets = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind((port, 0))
for _ in range(packets):
    s.send(bytes(12) + b"\\x08\\x00" + bytes(50))
"""


def injected(port: str, packets: int) -> Fault:
    """Frames that the generator did not send, out of the sender's port."""
    return at_once(lambda: at_the_sender([sys.executable, "-c", SEND, port, str(packets)]))


def receiver_mtu(port: str, mtu: int) -> Fault:
    return at_once(lambda: at_the_sut(["ip", "link", "set", port, "mtu", str(mtu)]))


NATIVE_XDP_MTU = 1500
"""veth takes a native program up to an MTU of about 3,400 bytes of its peer's (ERANGE beyond)."""


def first_dropped_by_xdp(sender: str, port: str, packets: int, mode: str) -> Fault:
    """A program on the receiver's port drops exactly the first packets: `drv`, run by the driver,
    which counts them; `skb`, run by the kernel, which counts them nowhere."""

    @contextmanager
    def entered() -> Iterator[PutIn]:
        with ExitStack() as stack:

            def put_in() -> None:
                if mode == "drv":
                    at_the_sender(["ip", "link", "set", sender, "mtu", str(NATIVE_XDP_MTU)])
                argv = [sys.executable, str(INJECTOR), port, f"first:{packets}", mode]
                _attach(_beside_the_sut(argv), stack)

            yield put_in

    return entered


@contextmanager
def xdp_drops(one_in: int, mode: str, *, where: str = "rcv") -> Iterator[PutIn]:
    """An XDP program that drops one frame of `one_in`, at random."""
    with ExitStack() as stack:
        argv = [sys.executable, str(INJECTOR), "ndrx0", str(one_in), mode]
        yield lambda: _attach(["ip", "netns", "exec", namespace(where), *argv], stack)


def _attach(argv: Sequence[str], stack: ExitStack) -> None:
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    stack.callback(process.communicate, timeout=COMMAND_TIMEOUT_S)
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != "attached\n":
        said = process.stderr.read().strip().splitlines()
        raise LabProblem(f"fault: the XDP program cannot be attached: {said[-1:] or 'no word'}")


def stopped(kind: str, *, after_s: float, for_s: float) -> Fault:
    """Stops a node job (SIGSTOP) `after_s` after its trial's step began, and continues it (SIGCONT)
    `for_s` later."""

    def stop(pid: int, ended: threading.Event) -> None:
        if ended.wait(after_s):
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            ended.wait(for_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    return _later(kind, stop)


def killed(kind: str, *, after_s: float) -> Fault:
    """SIGKILL: what a crash looks like from outside."""

    def kill(pid: int, ended: threading.Event) -> None:
        if not ended.wait(after_s):
            os.kill(pid, signal.SIGKILL)

    return _later(kind, kill)


def one_thread_frozen(kind: str, *, after_s: float, for_s: float, held: list[str]) -> Fault:
    """The busiest thread of a node job, held by ptrace(2); the others go on. Its name goes into
    `held`."""

    def freeze(pid: int, ended: threading.Event) -> None:
        before = _thread_cpu_ns(pid)
        if ended.wait(after_s):
            return
        used = {tid: t - before.get(tid, 0) for tid, t in _thread_cpu_ns(pid).items() if tid != pid}
        busiest = max(used, key=used.__getitem__)
        held.append(Path(f"/proc/{pid}/task/{busiest}/comm").read_text().strip())
        with _held(busiest):
            ended.wait(for_s)

    return _later(kind, freeze)


def _later(kind: str, act: Callable[[int, threading.Event], None]) -> Fault:
    """`act(pid, ended)` in a thread of its own, which `ended` calls back when the run is over."""

    @contextmanager
    def entered() -> Iterator[PutIn]:
        ended = threading.Event()
        threads: list[threading.Thread] = []
        failed: list[OSError] = []

        def acting(pid: int) -> None:
            try:
                act(pid, ended)
            except OSError as error:
                failed.append(error)

        def put_in() -> None:
            thread = threading.Thread(target=acting, args=(job(kind),), daemon=True)
            threads.append(thread)
            thread.start()

        try:
            yield put_in
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        if failed:
            raise LabProblem(f"fault: {failed[0].strerror} (node job '{kind}')")

    return entered


def _thread_cpu_ns(pid: int) -> dict[int, int]:
    """CPU time of each thread; stat has it in ticks of 10 ms, too coarse for a sink."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) for task in tasks}


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WAIT_ALL = 0x40000000


@contextmanager
def _held(tid: int) -> Iterator[None]:
    """Holds a thread for the length of the block. If we die, the kernel lets it go."""
    _ptrace(PTRACE_SEIZE, tid)
    try:
        _ptrace(PTRACE_INTERRUPT, tid)
        os.waitpid(tid, WAIT_ALL)
        yield
    finally:
        with suppress(OSError):
            _ptrace(PTRACE_DETACH, tid)


def _ptrace(request: int, tid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, tid, None, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
