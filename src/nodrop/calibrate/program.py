"""The proof of a capture program's description, by two known answers.

n packets slowly: it must say n. Then n packets while it stands still (SIGSTOP): its ring takes
some, the kernel drops the rest, and both are seen from outside. Neither answer depends on how fast
this host or the program is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

from nodrop.calibrate import case
from nodrop.config.lab_file import find_lab, load_lab
from nodrop.errors import LabProblem, NotReady, TrialFailed, interrupts
from nodrop.plugins import build_lab
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.control_groups import SocketLook
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.suts.command import Command
from nodrop.testbed.suts.command.description import ProgramDescription, holds, value_of
from nodrop.testbed.suts.command.sut import RunningCommand

BOOKS = ("captured", "dropped_ring_full", "decoded")
PACKETS = 5_000
FRAME_BYTES = 512
SLOW_PPS, FAST_PPS = 10_000.0, 100_000.0
MOST_LOOPS = 100
READY_TIMEOUT_S = DRAIN_TIMEOUT_S = STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOfProgram:
    """A known answer: what was put in, by the lab and by the kernel's counters, and what the
    program said of it."""

    put_in: str
    truth: Mapping[str, int]
    """True counts of captured, dropped_ring_full and decoded packets."""
    said: Mapping[str, int]
    """The program's own counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProof:
    program: str
    version: str | None
    answers: Sequence[AnswerOfProgram]
    wrong: Sequence[str]
    notes: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.wrong


def prove(options: Mapping[str, Any], *, base: Path, work: Path) -> ProgramProof:
    """Both answers in a lab of namespaces on this host. BadInput if the description is wrong."""
    sut = Command(options, base=base)
    small = Command({**options, **_smallest(sut)}, base=base)
    bits = resolve_bits(options, sut.needs_bits() or "", base=base, version=sut.version)
    if problems := [*sut.problems(bits), *Bare().problems(bits, Limits())]:
        raise NotReady(problems[0])
    trace = case.write(
        work / "known.pcap",
        ((n * 1e-4, case.datagram(n % 64, FRAME_BYTES)) for n in range(PACKETS)),
    )
    answers: list[AnswerOfProgram] = []
    wrong: list[str] = []
    notes: list[str] = []
    try:
        for one, stopped in ((sut, False), (small, True)):
            folder = work / f"stopped-{stopped}"
            folder.mkdir()
            with _launched(one, bits, folder) as (running, link):
                running.wait_ready(timeout_s=READY_TIMEOUT_S)
                answers.append(_answer(running, link, trace, stopped=stopped))
        wrong, notes = judge(sut.program, answers)
    except TrialFailed as failed:
        wrong.append(str(failed))
    return ProgramProof(
        program=sut.name, version=bits.version, answers=answers, wrong=wrong, notes=notes
    )


def _smallest(sut: Command) -> Mapping[str, int]:
    """A ring as small as may be, so that it overflows soon."""
    knobs = sut.program.knobs.items()
    return {name: knob.min for name, knob in knobs if knob.meaning == "ring"}


@contextmanager
def _launched(sut: Command, bits: Any, work: Path) -> Iterator[tuple[RunningCommand, Link]]:
    lab = build_lab(load_lab(str(find_lab("netns"))))
    with (
        interrupts(),
        DiskJournal.create() as journal,
        lab.up(journal) as link,
        Bare().provision(link, bits=bits, limits=Limits(), work=work, journal=journal) as env,
    ):
        running = sut.launch(env)
        try:
            yield running, link
        finally:
            running.close()
            running.process.signal(signal.SIGKILL)
            running.process.stop(timeout_s=STOP_TIMEOUT_S)


def _answer(running: RunningCommand, link: Link, trace: Path, *, stopped: bool) -> AnswerOfProgram:
    seen = _must_see(running.sockets.look())
    put_in = "slowly"
    if stopped:
        put_in = "while it stood still"
        _signal(seen, signal.SIGSTOP)
        sent = 0
        for _ in range(MOST_LOOPS):
            sent += _replay(link, trace, FAST_PPS)
            seen = _must_see(running.sockets.look())
            if seen.dropped:
                break
        _signal(seen, signal.SIGCONT)
    else:
        sent = _replay(link, trace, SLOW_PPS)
        seen = _must_see(running.sockets.look())
    if seen.arrived != sent:
        raise LabProblem(
            f"{sent:,} packets were sent, and {seen.arrived:,} came to the sockets",
            hint=f"the packets of this check are UDP over IPv4, to port 9, of {FRAME_BYTES} bytes: "
            "if the program has a filter of its own, check it without that",
        )
    dropped = seen.dropped or 0
    running.drain(expected_packets=sent, timeout_s=DRAIN_TIMEOUT_S)
    said = running.finish(timeout_s=STOP_TIMEOUT_S).results
    captured = sent + running.nudged
    return AnswerOfProgram(
        put_in=put_in,
        truth={
            "captured": captured,
            "dropped_ring_full": dropped,
            "decoded": captured - dropped,
        },
        said=said,
    )


def _must_see(seen: SocketLook | None) -> SocketLook:
    if seen is None:
        raise TrialFailed("it ended before it was stopped")
    if seen.arrived is None:
        raise NotReady(
            f"the counters of its sockets cannot be read ({seen.missing})", hint="be root"
        )
    return seen


def _signal(seen: SocketLook, number: int) -> None:
    """Signals each process that holds a socket; its own parent waits for it."""
    for pid in {socket["pid"] for socket in seen.sockets} - {None}:
        assert pid is not None
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def _replay(link: Link, trace: Path, pps: float) -> int:
    spec = {"job": "replay", "trace": str(trace), "interface": link.tx.name, "pps": pps}
    job = link.tx.host.job(spec)
    try:
        job.start()
        return int(job.result(timeout_s=60)["sent_packets"])
    finally:
        job.close()


def judge(
    program: ProgramDescription, answers: Sequence[AnswerOfProgram]
) -> tuple[list[str], list[str]]:
    """Faults of a description, with what would hold instead, and notes; both in words."""
    if program.exit is None:
        return [], ["it says nothing: its figures are the kernel's counters of its sockets"]
    wrong, notes, written = [], [], program.books.sums()
    if not any(one.truth["dropped_ring_full"] for one in answers):
        wrong.append(
            'its ring did not overflow: give the knob of its ring `is = "ring"` and a small `min`'
        )
    for answer in answers:
        said = [(at, value_of(written[at], answer.said)) for at in BOOKS if at in written]
        wrong += [
            f"{answer.put_in}: {at} = {written[at]} says {value:,}, and it was {answer.truth[at]:,}"
            for at, value in said
            if value != answer.truth[at]
        ]
        wrong += [
            f"{answer.put_in}: the identity {name} ({text}) does not hold"
            for name, text in program.identities.items()
            if not holds(text, answer.said)
        ]
    for at in BOOKS:
        would = next(iter(_holding(answers, at)), None)
        if at in written:
            if all(value_of(written[at], one.said) == one.truth[at] for one in answers):
                continue
            nothing = f"no sum of its counters is {at}: leave it out"
            wrong.append(nothing if would is None else f'this would hold: {at} = "{would}"')
        elif would is not None and at == "dropped_ring_full":
            wrong.append(f'books leave out what it says: {at} = "{would}"')
        elif would is not None:
            notes.append(f'it says this, too: {at} = "{would}"')
    return wrong, notes


def _holding(answers: Sequence[AnswerOfProgram], at: str) -> list[str]:
    """Sums of its counters that have the true value in both answers, the shortest first."""
    names = sorted(set.intersection(*(set(answer.said) for answer in answers)))
    tried = [
        *names,
        *(f"{a} + {b}" for a, b in combinations(names, 2)),
        *(f"{a} - {b}" for a, b in permutations(names, 2)),
        *(f"{a} - {b} - {c}" for a in names for b, c in combinations(set(names) - {a}, 2)),
    ]
    return [
        text
        for text in tried
        if all(value_of(text, answer.said) == answer.truth[at] for answer in answers)
    ]
