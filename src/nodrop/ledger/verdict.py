"""Judging a trial: is it valid, how much was lost, where, and which setting touches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import KNOBS, Account, Class, Place


class Reason(StrEnum):
    """Why a trial says nothing about the SUT. Stable codes: they stand in trials.jsonl."""

    RESIDUAL = "residual"
    """Some packets are in no class, so the loss is not known either."""
    NOT_READ = "not_read"
    """A counter at the end of the chain could not be read."""
    SENDER_LATE = "sender_late"
    SENDER_SHORT = "sender_short"
    """Fewer packets were sent than were asked for."""
    NOTHING_SENT = "nothing_sent"
    RECEIVED_MORE_THAN_SENT = "received_more_than_sent"
    LOAD_FAILED = "load_failed"
    """The generator broke down before it had sent what was asked."""
    SUT_NOT_READY = "sut_not_ready"
    SUT_DIED = "sut_died"
    COUNTERS_MOVED = "counters_moved_after_drain"
    NOT_DRAINED = "not_drained"
    SELF_TEST = "self_test_failed"
    OTHER_BITS = "other_bits"
    """What runs is not what the run says it measures."""
    OTHER_FILES = "other_files"
    """The rules it was shown are not those that the run began with."""
    NO_BOOKS = "no_books"
    """The trial ended before there was anything to balance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason for which a trial is invalid."""

    code: str
    """A `Reason`, or a code of a plugin's own."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What the generator did. The sender is a suspect."""

    intended_packets: int
    sent_packets: int
    duration_s: float | None = None
    intended_duration_s: float | None = None
    """None at top speed: then nobody can be late."""
    constant_rate: bool = False
    """Packets per second were asked for, and not the trace's own timing."""
    schedule_error_p99_us: float | None = None
    """None where the generator cannot say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the sender may stray before the trial says more of it than of the SUT."""

    schedule_error_p99_us: float = 5_000
    """A trace's own bursts of equal timestamps go out back to back: 1.9 ms p99 was measured on one
    at original timing with nothing wrong. A starved sender is late by tens of milliseconds."""
    late_ratio: float = 0.05
    """Sending may take this much longer than asked, with at least `late_floor_s` of grace; at a
    constant rate that grace is never longer than what was asked."""
    late_floor_s: float = 0.05
    unsent_ratio: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyThread:
    """The SUT's busiest thread while the load was offered."""

    name: str
    cpu_ratio: float
    """Of one CPU."""

    @property
    def saturated(self) -> bool:
        return self.cpu_ratio >= 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How the SUT ran while the load was offered. None = not measured."""

    busiest: BusyThread | None = None
    idle_s: float | None = None
    """Longest time in which it did not run at all."""
    throttled_s: float | None = None
    """Not let run for want of the CPU quota of its control group or one above it, summed over CPUs:
    several threads wait more than a second in a second."""
    foreign_cpu_ratio: float | None = None
    """Part of the host's CPUs that neither the SUT nor the generator used."""


STOPPED_S = 0.5
"""A loaded SUT that does not run for so long was stopped; the scheduler never waits like this."""
FOREIGN_CPU_RATIO = 0.25
"""Beyond this other programs compete with the SUT for its CPUs."""
STOPPED_KNOB = "find what stopped the SUT; a larger ring only moves the burst"
THROTTLED_S = 0.01
"""A tenth of the kernel's period of a quota (100 ms): packets wait in the ring meanwhile."""
THROTTLED_KNOB = "the CPU quota (cpu.max, cpu.cfs_quota_us) of the SUT's control group or above it"
FOREIGN_KNOB = "a quiet host, or CPUs that the SUT does not share (limits.cpus)"
SATURATED_KNOB = "sut.threads, fewer rules, or less load; a larger ring only moves the burst"
IDLE_KNOB = "sut.ring_size: the thread had time left, so bursts are what overflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    valid: bool
    invalid_reasons: tuple[Problem, ...] = ()
    loss_ratio: float | None = None
    """Lost of sent packets; None where the books do not close."""
    place: str | None = None
    """Where most of the lost packets died."""
    evidence: str = ""
    """The counter that shows it."""
    cause: str = ""
    """What else points there: the thread that had no time left. A guess, with its evidence."""
    knob: str = ""
    words: str = ""
    by_place: Mapping[str, int] = field(default_factory=dict)
    """Lost packets per place, the most first."""


def judge(
    ledger: Ledger | None,
    sending: Sending | None,
    *,
    bounds: Bounds | None = None,
    problems: Sequence[Problem] = (),
    running: Running | None = None,
) -> Verdict:
    """Judges a trial from its books, its sender and what else was seen.

    `ledger` or `sending` is None where the trial ended before there was one.
    """
    found = [
        *problems,
        *_of_the_sender(ledger, sending, bounds or Bounds()),
        *_of_the_books(ledger, explained=bool(problems)),
    ]
    ratio = _loss_ratio(ledger, sending)
    places = _lost_by_place(ledger) if ratio else {}
    place = next(iter(places), None)
    worst = _largest_account(ledger, place)
    cause, touches = _cause(place, running or Running())
    knob = touches or _knob(worst, place)
    evidence = _evidence(worst, sending)
    if found:
        words = "invalid: " + "; ".join(problem.words for problem in found)
    else:
        words = _words(ratio, place, "; ".join(filter(None, (evidence, cause))), knob, len(places))
    return Verdict(
        valid=not found,
        invalid_reasons=tuple(found),
        loss_ratio=ratio,
        place=place,
        evidence=evidence,
        cause=cause,
        knob=knob,
        words=words,
        by_place=places,
    )


def _of_the_sender(ledger: Ledger | None, sending: Sending | None, bounds: Bounds) -> list[Problem]:
    if sending is None:
        return []
    found: list[Problem] = []
    if sending.sent_packets == 0:
        found.append(Problem(code=Reason.NOTHING_SENT, words="no packet was sent"))
    unsent = sending.intended_packets - sending.sent_packets
    if sending.sent_packets and unsent > bounds.unsent_ratio * sending.intended_packets:
        refused = [a for a in ledger.accounts if a.kind is Class.UNSENT] if ledger else []
        why = "; ".join(f"{a.packets}: {a.counter}" for a in refused)
        words = f"only {sending.sent_packets} of {sending.intended_packets} packets were sent"
        words += f" ({why})" if why else ""
        found.append(Problem(code=Reason.SENDER_SHORT, words=words))
    late = _lateness(sending, bounds)
    if late:
        found.append(Problem(code=Reason.SENDER_LATE, words=f"the sender was late: {late}"))
    return found


def _lateness(sending: Sending, bounds: Bounds) -> str:
    p99 = sending.schedule_error_p99_us
    if p99 is not None and p99 > bounds.schedule_error_p99_us:
        return (
            f"schedule error p99 {p99 / 1000:.1f} ms "
            f"(bound {bounds.schedule_error_p99_us / 1000:g} ms)"
        )
    asked, took = sending.intended_duration_s, sending.duration_s
    if asked is None or took is None:
        return ""
    # The floor forgives a pause of the host. It must not forgive a rate: a thousand packets at any
    # rate are gone in 2 ms, and that is no proof of 10^18 per second.
    floor_s = min(bounds.late_floor_s, asked) if sending.constant_rate else bounds.late_floor_s
    if took > asked + max(bounds.late_ratio * asked, floor_s):
        return f"sending took {took:.3g} s instead of {asked:.3g} s"
    return ""


def _of_the_books(ledger: Ledger | None, *, explained: bool) -> list[Problem]:
    if ledger is None:
        # A SUT that never got ready has said so already.
        words = "the trial ended before its books could be balanced"
        return [] if explained else [Problem(code=Reason.NO_BOOKS, words=words)]
    found: list[Problem] = []
    foreign = ledger.total(Class.FOREIGN)
    if foreign:
        words = f"{foreign} more packets were received than sent"
        found.append(Problem(code=Reason.RECEIVED_MORE_THAN_SENT, words=words))
    for step in ledger.steps:
        if step.residual_packets:
            words = (
                f"{step.residual_packets:+d} packets unexplained "
                f"between {step.start.name} and {step.end.name}"
            )
            found.append(Problem(code=Reason.RESIDUAL, words=words))
        if step.residual_packets < 0 and not foreign:
            words = f"{step.end.name} has more packets than {step.start.name} can explain"
            found.append(Problem(code=Reason.RECEIVED_MORE_THAN_SENT, words=words))
    if not ledger.closed and not any(p.code == Reason.RESIDUAL for p in found):
        unread = ", ".join(ledger.invisible) or "all but one hop"
        words = f"the books cannot be closed: {unread} not read"
        found.append(Problem(code=Reason.NOT_READ, words=words))
    return found


def _loss_ratio(ledger: Ledger | None, sending: Sending | None) -> float | None:
    if ledger is None or sending is None or not ledger.closed or not sending.sent_packets:
        return None
    return ledger.total(Class.LOST) / sending.sent_packets


def _place(account: Account) -> str:
    return account.place or account.into


def _lost_by_place(ledger: Ledger | None) -> dict[str, int]:
    places: dict[str, int] = {}
    for account in ledger.accounts if ledger else ():
        if account.kind is Class.LOST and account.packets:
            places[_place(account)] = places.get(_place(account), 0) + account.packets
    return dict(sorted(places.items(), key=lambda item: -item[1]))


def _largest_account(ledger: Ledger | None, place: str | None) -> Account | None:
    if ledger is None or place is None:
        return None
    there = [a for a in ledger.accounts if a.kind is Class.LOST and _place(a) == place]
    return max(there, key=lambda a: a.packets)


def _cause(place: str | None, running: Running) -> tuple[str, str]:
    """What points at the cause of losses inside the SUT's reach, and the knob that touches it."""
    if place not in (Place.MACVTAP_QUEUE, Place.SOCKET_RING, Place.SUT):
        return "", ""
    idle_s, throttled_s = running.idle_s or 0.0, running.throttled_s or 0.0
    if throttled_s >= max(THROTTLED_S, idle_s):  # a quota stops a SUT for a while, too
        words = f"the SUT was throttled for {throttled_s:.2f} s, summed over CPUs, by its CPU quota"
        return words, THROTTLED_KNOB
    if idle_s >= STOPPED_S:
        words = f"the SUT did not run for {idle_s:.1f} s while packets arrived"
        return words, STOPPED_KNOB
    if place == Place.MACVTAP_QUEUE:
        # QEMU does not fetch for a slow guest either: what it and others used is no cause.
        return "", ""
    if running.foreign_cpu_ratio is not None and running.foreign_cpu_ratio >= FOREIGN_CPU_RATIO:
        used = f"{running.foreign_cpu_ratio * 100:.0f} % of the host's CPUs"
        return f"other programs used {used}", FOREIGN_KNOB
    busiest = running.busiest
    if busiest is None:
        return "", ""
    words = f"thread {busiest.name} used {busiest.cpu_ratio * 100:.0f} % of one CPU"
    if place != Place.SOCKET_RING:
        return words, ""
    return words, SATURATED_KNOB if busiest.saturated else IDLE_KNOB


def _knob(worst: Account | None, place: str | None) -> str:
    if worst is None or place is None:
        return ""
    return worst.knob or KNOBS.get(place, "")


def _evidence(worst: Account | None, sending: Sending | None) -> str:
    if worst is None or sending is None:
        return ""
    said = worst.evidence or f"{worst.counter} {worst.packets}"
    return f"{said} of {sending.sent_packets} sent"


def _words(ratio: float | None, place: str | None, evidence: str, knob: str, places: int) -> str:
    if ratio is None:
        return "not known"
    if not ratio:
        return "no loss"
    mostly = "mostly in" if places > 1 else "in"
    tail = f": {knob}" if knob else ""
    return f"{percent(ratio)} lost {mostly} the {place} ({evidence}){tail}"


def percent(ratio: float) -> str:
    """Two decimals, but a loss of one packet in a million never reads as 0 %."""
    pct = ratio * 100
    if pct == 0:
        return "0 %"
    return f"{pct:.2f} %" if pct >= 0.01 else f"{pct:.2g} %"
