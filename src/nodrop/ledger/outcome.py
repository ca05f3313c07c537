"""Outcomes of a trial: measured, a failure of the SUT, or void; and reasons for the last two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The ways in which a trial can end."""

    MEASURED = "measured"
    """The books stand: the trial says what the SUT carried."""
    FAILED = "failed"
    """The SUT died, hung or was killed under this load: a result about the SUT."""
    VOID = "void"
    """The instrument or the sender is at fault: it says nothing about the SUT."""


class Reason(StrEnum):
    """Why a trial is no measurement. Stable codes: they stand in trials.jsonl."""

    RESIDUAL = "residual"
    """Some packets are in no class, so the loss is not known either."""
    NOT_READ = "not_read"
    """A counter at the end of the chain could not be read."""
    SENDER_LATE = "sender_late"
    SENDER_BURST = "sender_burst"
    """The sender stood still and caught up, which may explain the lost packets."""
    CPU_STOLEN = "cpu_stolen"
    """The hypervisor took so much CPU time that this can explain the losses."""
    SENDER_SHORT = "sender_short"
    """Fewer packets were sent than were asked for."""
    NOTHING_SENT = "nothing_sent"
    NOTHING_ARRIVED = "nothing_arrived"
    """The cable, which nodrop has not made, does not lead from the one port to the other."""
    RECEIVED_MORE_THAN_SENT = "received_more_than_sent"
    LOAD_FAILED = "load_failed"
    """The generator broke down before it had sent what was asked."""
    SUT_NOT_READY = "sut_not_ready"
    SUT_DIED = "sut_died"
    COUNTERS_MOVED = "counters_moved_after_drain"
    COUNTERS_DISAGREE = "counters_disagree"
    """The SUT's counters contradict each other, or the kernel's of its sockets."""
    NOT_DRAINED = "not_drained"
    """The SUT had not worked off what it was given within the time for it."""
    OTHER_BITS = "other_bits"
    """The bits that run are not those that the run says it measures."""
    OTHER_FILES = "other_files"
    """The rules it was shown, or the trace, are not those that the run began with."""
    NO_RULES = "no_rules"
    """Rules were named, and the SUT does not say that it loaded any, or some do not load."""
    LAB_PROBLEM = "lab_problem"
    """The lab, or the place of the SUT, broke down."""
    CLOCK_MOVED = "clock_moved"
    """A host's clock moved against ours by more than two running clocks can."""
    NO_BOOKS = "no_books"
    """The trial ended before there was anything to balance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason for which a trial is no measurement."""

    code: str
    """A `Reason`, or a code of a plugin's own."""
    words: str


OF_THE_LAB = frozenset({Reason.LAB_PROBLEM, Reason.LOAD_FAILED, Reason.NOTHING_ARRIVED})
"""Hosts, ports or cables were at fault: the next trial may be no better, until they are mended."""
FAILURES = frozenset({Reason.SUT_NOT_READY, Reason.SUT_DIED, Reason.NOT_DRAINED})
"""Failures of the SUT, not of the instrument."""
FOLLOWS = frozenset({Reason.RESIDUAL, Reason.NOT_READ, Reason.NO_BOOKS, Reason.COUNTERS_MOVED})
"""Consequences of a SUT that dies or hangs: its books cannot close, and the instrument is not to
blame. On its own each of these makes a trial void."""


def outcome_of(codes: Iterable[str]) -> Outcome:
    """A failure of the SUT counts only if the instrument and the sender did nothing wrong."""
    found = set(codes)
    if not found:
        return Outcome.MEASURED
    return Outcome.FAILED if found & FAILURES and found <= FAILURES | FOLLOWS else Outcome.VOID
