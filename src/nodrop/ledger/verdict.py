"""Judging a trial: what became of it, how much was lost, where, and which setting touches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from nodrop.config.units import count_of, noun
from nodrop.ledger.balance import Ledger
from nodrop.ledger.cause import ThreadCause, causes_of, lost_to_steal
from nodrop.ledger.hops import CUT, Account, Class, Place
from nodrop.ledger.imbalance import Running
from nodrop.ledger.outcome import Outcome, Problem, Reason, outcome_of
from nodrop.ledger.over_time import Losses, ServicePace, WorkedOff, pace
from nodrop.ledger.quantities import PART, Text
from nodrop.ledger.sender import (
    NAMED_RATIO,
    SenderLimits,
    Sending,
    lost_by_bursts,
    problems_of_the_sender,
)

INVALID_NAMED = 0.01
"""Share of the decoded packets: a trial with fewer invalid ones, or wrong checksums, does not
mention them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Packets that the SUT decoded, but not whole, or that it calls broken, or left out of its
    streams for their checksum."""

    __pydantic_config__: ClassVar = PART

    about: Literal["cut", "invalid", "checksum"]
    words: Text
    knob: Text = ""
    """The setting that affects these packets."""

    def __str__(self) -> str:
        return f"{self.words}: {self.knob}" if self.knob else self.words


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    outcome: Outcome
    """Only what was measured enters a figure of loss."""
    invalid_reasons: tuple[Problem, ...] = ()
    loss_ratio: float | None = None
    """Lost of sent packets; None if the books do not close."""
    lost_beyond_bursts: int | None = None
    """Lost packets that late bursts of the sender cannot explain; None if the loss is not known,
    the generator cannot say when it was late, or nobody wants to know (a bound of 1)."""
    place: Place | None = None
    """The place where most of the lost packets died."""
    evidence: str = ""
    """The counter that shows it."""
    cause: str = ""
    """Further evidence of the cause, in words: what the thread that lost did meanwhile."""
    causes: tuple[ThreadCause, ...] = ()
    """The causes in `cause`, with rules and evidence, the largest share first."""
    knob: str = ""
    words: str = ""
    pace: ServicePace | None = None
    """How fast it was seen to serve; None if nothing watched it."""
    lost_at: Mapping[Place, int] = field(default_factory=dict)
    """Lost packets per place, the most first."""
    remarks: tuple[Remark, ...] = ()
    """Remarks on packets beside the loss, which are no loss."""

    @property
    def valid(self) -> bool:
        return self.outcome is Outcome.MEASURED


def judge(
    ledger: Ledger | None,
    sending: Sending | None,
    *,
    bounds: SenderLimits | None = None,
    problems: Sequence[Problem] = (),
    running: Running | None = None,
    worked_off: WorkedOff | None = None,
    losses: Sequence[Losses] | None = None,
) -> Verdict:
    """Judges a trial from its books, its sender and what else was seen.

    `ledger` or `sending` is None if the trial ended before there was one; `losses` is None if it is
    not known when packets were lost.
    """
    found = [
        *problems,
        *problems_of_the_sender(ledger, sending, bounds or SenderLimits(), losses),
        *_of_the_books(ledger, explained=bool(problems)),
    ]
    ratio = _loss_ratio(ledger, sending)
    places = _lost_at(ledger) if ratio else {}
    sent = sending.sent_packets if sending else 0
    heeded = (bounds or SenderLimits()).late_burst_ratio < 1
    beyond = _beyond_bursts(ratio, ledger, sending, losses) if heeded else None
    if stolen := lost_to_steal(places, sent, running, (bounds or SenderLimits()).steal_ratio):
        found.append(Problem(code=Reason.CPU_STOLEN, words=stolen))
    place = next(iter(places), None)
    worst = _largest_account(ledger, place)
    causes = causes_of(place, running)
    cause = "; ".join(one.words for one in causes)
    knob = next((one.knob for one in causes if one.knob), "") or _knob(worst, place)
    evidence = _evidence(worst, sending, ledger)
    outcome = outcome_of(problem.code for problem in found)
    shown = None if worked_off is None or found else pace(worked_off)
    if shown is not None and shown.sustained and ratio != 0:
        shown = replace(shown, sustained=None)  # its pace was that of what was not lost
    if found:
        words = f"{outcome}: " + "; ".join(problem.words for problem in found)
    else:
        # The counter's name stands in the books.
        seen = evidence.removeprefix(f"{worst.counter} ") if worst else ""
        words = _burst_words(ratio, shown) or _words(
            ratio, place, "; ".join(filter(None, (seen, cause))), knob, len(places)
        )
        words += _late_words(beyond, sum(places.values()))
    remarks = () if ledger is None else tuple(_remarks(ledger))
    return Verdict(
        outcome=outcome,
        invalid_reasons=tuple(found),
        loss_ratio=ratio,
        lost_beyond_bursts=beyond,
        place=place,
        evidence=evidence,
        cause=cause,
        causes=causes,
        knob=knob,
        words="; ".join((words, *(str(r) for r in remarks if _of_the_trial(r, ledger)))),
        remarks=remarks,
        pace=shown,
        lost_at=places,
    )


def _of_the_books(ledger: Ledger | None, *, explained: bool) -> list[Problem]:
    if ledger is None:
        # A SUT that never got ready has said so already.
        words = "the trial ended before its books could be balanced"
        return [] if explained else [Problem(code=Reason.NO_BOOKS, words=words)]
    problems: list[Problem] = []
    foreign = ledger.total(Class.FOREIGN)
    if foreign:
        seen = "; ".join(
            f"{a.packets:,}: {a.evidence or a.counter}"
            for a in ledger.accounts
            if a.kind is Class.FOREIGN and a.packets
        )
        words = f"{count_of(foreign, 'packet')} that the generator did not send ({seen})"
        problems.append(Problem(code=Reason.RECEIVED_MORE_THAN_SENT, words=words))
    for step in ledger.steps:
        if step.residual_packets:
            packets = noun(abs(step.residual_packets), "packet")
            words = (
                f"{step.residual_packets:+,d} {packets} unexplained "
                f"between {step.start.name} and {step.end.name}"
            )
            words += f" ({step.end.look_at})" if step.end.look_at else ""
            problems.append(Problem(code=Reason.RESIDUAL, words=words))
        if step.residual_packets < 0 and not foreign:
            words = f"{step.end.name} has more packets than {step.start.name} can explain"
            problems.append(Problem(code=Reason.RECEIVED_MORE_THAN_SENT, words=words))
    for way in ledger.byte_steps:
        if way.residual_bytes:
            words = (
                f"{way.residual_bytes:+,d} bytes unexplained between {way.start.name} and "
                f"{way.end.name}: not all packets there are those that were sent"
            )
            problems.append(Problem(code=Reason.RESIDUAL, words=words))
    if not ledger.closed and not any(p.code == Reason.RESIDUAL for p in problems):
        unread = ", ".join(ledger.invisible) or "all but one hop"
        words = f"the books cannot be closed: {unread} not read"
        problems.append(Problem(code=Reason.NOT_READ, words=words))
    return problems


def _remarks(ledger: Ledger) -> Iterator[Remark]:
    decoded = next((hop for hop in ledger.hops if hop.name == "decoded"), None)
    for account in ledger.accounts if decoded and decoded.packets else ():
        assert decoded is not None and decoded.packets
        share = percent(account.packets / decoded.packets)
        of_decoded = f"{account.packets:,} of {decoded.packets:,} decoded packets ({share})"
        evidence = f" ({account.evidence})" if account.evidence else ""
        if account.name == CUT and account.packets:
            least, most = account.bytes_between or (account.bytes or 0, account.bytes or 0)
            words = f"{of_decoded} were cut to the room in the SUT's ring{evidence}"
            if least and decoded.bytes:
                at_least = "at least " if most > least else ""
                lacks = f"between {least:,} and {most:,}" if at_least else f"{least:,}"
                share = percent(least / (decoded.bytes + least))
                words += f", which took {lacks} bytes ({at_least}{share})"
            yield Remark(about="cut", words=words, knob=account.knob)
        if account.kind is Class.INVALID and account.packets:
            words = f"the decoder calls {of_decoded} invalid{evidence}"
            yield Remark(about="invalid", words=words, knob=account.knob)
        if account.kind is Class.CHECKSUM and account.packets >= INVALID_NAMED * decoded.packets:
            words = f"{of_decoded} had a wrong TCP checksum"
            yield Remark(about="checksum", words=words, knob=account.knob)


def _of_the_trial(remark: Remark, ledger: Ledger | None) -> bool:
    """A few packets that the decoder calls invalid are in every real trace, and in every trial of
    it: the answer says so once, and so of wrong checksums."""
    decoded = next((h.packets for h in ledger.hops if h.name == "decoded"), 0) if ledger else 0
    if remark.about == "cut" or ledger is None:
        return True
    return remark.about == "invalid" and ledger.total(Class.INVALID) >= INVALID_NAMED * (
        decoded or 0
    )


def _loss_ratio(ledger: Ledger | None, sending: Sending | None) -> float | None:
    if ledger is None or sending is None or not ledger.closed or not sending.sent_packets:
        return None
    return ledger.loss_ratio


def _beyond_bursts(
    ratio: float | None,
    ledger: Ledger | None,
    sending: Sending | None,
    losses: Sequence[Losses] | None,
) -> int | None:
    if ratio is None or ledger is None or sending is None or sending.late_bursts is None:
        return None
    return ledger.total(Class.LOST) - lost_by_bursts(sending, ledger, losses)


def _late_words(beyond: int | None, lost: int) -> str:
    """A loss that is the SUT's, of which a part may be the sender's doing."""
    if beyond is None or lost - beyond < NAMED_RATIO * lost or not lost:
        return ""
    return (
        f"; {beyond:,} to {count_of(lost, 'packet')} are the SUT's loss: the others are no more "
        "than late bursts of the sender can explain"
    )


def _lost_at(ledger: Ledger | None) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for account in ledger.accounts if ledger else ():
        if account.kind is Class.LOST and account.packets:
            place = next((p for p in found if p.name == _place(account).name), _place(account))
            found[place] = found.get(place, 0) + account.packets
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _place(account: Account) -> Place:
    """A plugin's setup may say only into which hop they went."""
    return account.place or Place(name=account.into, owner=None)


def _largest_account(ledger: Ledger | None, place: Place | None) -> Account | None:
    if ledger is None or place is None:
        return None
    there = [a for a in ledger.accounts if a.kind is Class.LOST and _place(a).name == place.name]
    return max(there, key=lambda a: a.packets)


def _knob(worst: Account | None, place: Place | None) -> str:
    return "" if worst is None or place is None else worst.knob or place.knob


def _evidence(worst: Account | None, sending: Sending | None, ledger: Ledger | None) -> str:
    if worst is None or sending is None or ledger is None:
        return ""
    said = worst.evidence or f"{worst.counter} {worst.packets:,}"
    copied = ledger.total(Class.COPIED)
    more = f" and {copied:,} copied" if copied else ""
    answered = ledger.total(Class.ANSWERED)
    more += f" and {answered:,} answered" if answered else ""
    return f"{said} of {sending.sent_packets:,} sent{more}"


def _words(ratio: float | None, place: Place | None, evidence: str, knob: str, places: int) -> str:
    if ratio is None:
        return "not known"
    if not ratio:
        return "no loss"
    mostly = "mostly in" if places > 1 else "in"
    tail = f": {knob}" if knob else ""
    return f"{percent(ratio)} lost {mostly} the {place} ({evidence}){tail}"


def _burst_words(ratio: float | None, shown: ServicePace | None) -> str:
    """Words if nothing was lost, but the rings may have held what the SUT could not carry."""
    if ratio != 0 or shown is None or shown.sustained:
        return ""
    kept = "did not keep its pace" if shown.sustained is False else "keeping its pace is not shown"
    return f"absorbed a burst without loss, {kept}: {shown.evidence}"


def percent(ratio: float) -> str:
    """The ratio in per cent with two decimals; a loss of one packet in a million never reads as 0
    %."""
    pct = ratio * 100
    if pct == 0:
        return "0 %"
    return f"{pct:.2f} %" if pct >= 0.01 else f"{pct:.2g} %"
