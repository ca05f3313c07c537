"""The trials of a search: which loads a SUT carries, for a goal, as far as they show it.

A trial counts for a load only if nothing was lost beyond the goal *and* the SUT was seen to keep
the pace (ledger/over_time.py): a ring that holds a short trial carries nothing. A SUT that fails
under a load does not carry it. A void trial says nothing, except of the sender.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Any, Literal

from nodrop.config.search import Search
from nodrop.ledger.cause import Rule
from nodrop.ledger.outcome import Reason
from nodrop.ledger.over_time import LEAST_S, SEEN_BEHIND, TOLERANCE
from nodrop.ledger.sender import NAMED_RATIO
from nodrop.results.trial import OTHERS, Ramp, TrialRecord

SENDER_REASONS = frozenset(
    {Reason.SENDER_LATE, Reason.SENDER_SHORT, Reason.NOTHING_SENT, Reason.LOAD_FAILED}
)
AT_ANY_LOAD = frozenset({Reason.NO_RULES, Reason.OTHER_BITS, Reason.OTHER_FILES})
"""Reasons that make a trial void whatever its load is: no other trial of the cell would be
measured."""
MOST_MUTE = 3
"""Number of trials that say nothing of a load, and no other does: it cannot be tried."""
LATE = 2 / 3
"""Part of at least `MOST_MUTE` trials of a load in which the sender was late: it cannot send that
load, even if it sent one of them in time."""
CEILING = 1.5
"""Factor on a load: if the sender cannot send the product, "at least" need not be closer."""
MOST_DISTURBED = 8
"""Number of trials that say nothing of a load, if some of them were disturbed by the hypervisor: a
disturbed trial says less of the load."""
LAST_OF_LAB = 3
"""Number of trials in a row that end a search if all failed with the lab."""
FAR_LATE_US = 30_000.0
"""Lateness at the 99th percentile that is no moment without a CPU: one trial says that the sender
cannot, or as many as `MOST_MUTE` if the hypervisor disturbed them."""
DISTURBING = 0.02
"""Share of the CPUs of the SUT or of the sender. The hypervisor disturbed a void trial if it took
more."""

TWIN_FROM = 0.5
TWIN_TO = 1.6
"""A twin is believed from this excess on, up to a limit so many times above or below its load: the
fewer packets wait, the more one of them costs."""
LAST_PART = 0.95
"""A ring that is fullest in the last part of the load, from here on, was still filling."""
NEAR = 1.25
"""Factor between a load and what was served of it: trials within it say how it is at the limit."""
ROUNDED = 1.01
"""Loads that are asked for have three digits."""
SAME = 1.0005
"""Limits that differ by less are the same."""
LEAST_FALL = 0.005
"""Least fall from an earlier trial to a later one; less is no matter."""
SURE_FALL = -2.8
"""Standard deviations of Kendall's S: one steady SUT in 400 looks as if it slowed so surely."""
KEEPS_CHANGING = 3
"""Number of phases of a round that finds no load that the SUT carries."""
MOST_MISSED = 0.2
"""A load is not carried if a larger part of its trials, and of those of loads a little below,
missed the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One trial of a search, as a search sees it."""

    value: float
    """The load, on the scale of the search."""
    seconds: float
    """Length that was asked for."""
    outcome: str
    loss_ratio: float | None
    """The part of the packets that was lost or, in a search by detections, the part of the expected
    detections that was missed."""
    kept: bool | None
    """The SUT kept the pace of what it was given; None = not shown."""
    served_ratio: float | None
    """Part of the load that the SUT served at least while it was offered."""
    record: TrialRecord
    doubtful: bool = False
    """The hypervisor alone can explain what it lost, and nothing speaks against that."""

    def good(self, goal: float) -> bool | None:
        """Whether it carried the load within the goal; None = it does not show it."""
        if self.outcome == "void":
            return None
        if self.outcome == "failed":
            return None if never_ready(self.record) else False
        if self.loss_ratio is None:
            return None
        if self.loss_ratio > goal:
            return None if self.doubtful or self._excused(goal) else False
        return self.kept

    @property
    def disturbed(self) -> bool:
        """The trial says nothing because the hypervisor took CPU; another trial of this load
        may."""
        void = self.outcome == "void" and (self.record.steal_ratio or 0.0) > DISTURBING
        return void or self.doubtful

    @property
    def others_took_more(self) -> bool:
        """Other programs had much of its CPUs, and more of them than the hypervisor."""
        seen = self.record.disturbed
        others = (seen.others_ratio or 0.0) if seen else 0.0
        return others >= OTHERS and others > (self.record.steal_ratio or 0.0)

    @property
    def may_be_stolen(self) -> bool:
        """Whether the packets it lost are no more than those that came while the hypervisor had a
        CPU of the SUT or of the sender, and as many again for its rings to empty (as
        ledger/cause.py has it). One tick of 10 ms overflows a ring of 256 frames at 38,000
        packets/s. A twin that would lose them on an undisturbed host denies it."""
        body, sent = self.record.packets, self.record.offered.sent or 0
        if body.queue is not None and (body.queue.fits_times or 1.0) < 1:
            return False
        if self.outcome != "measured" or body.lost_before_sut_packets:
            return False
        return 0 < (body.lost_packets or 0) <= 2 * (self.record.steal_ratio or 0.0) * sent

    def _excused(self, goal: float) -> bool:
        """The loss is within the goal without what the hypervisor, or late bursts of the sender,
        explain. For a goal of detections nothing else may be lost: what a lost packet costs of them
        is not known."""
        body, sent = self.record.packets, self.record.offered.sent or 0
        within = 0.0 if by_detections(self.record) else goal * sent
        beyond = (
            self.record.lost_beyond_steal_packets if self.may_be_stolen else None,
            body.lost_beyond_bursts_packets if body.lost_packets != 0 else None,
        )
        return sent > 0 and any(n is not None and n <= within for n in beyond)

    def share(self, goal: float) -> float | None:
        """Share of its load that the trial carried within the goal, 0 to 1; None = not shown."""
        good, causes = self.good(goal), self.record.packets.loss_causes[:1]
        # Lost while other programs or the hypervisor had its CPU: that is no change of the SUT.
        taken = self.others_took_more or any(c.rule in (Rule.OTHERS, Rule.STOLEN) for c in causes)
        if good is None or self.outcome != "measured" or (not good and taken):
            return None
        at = self.value if good else self.reaches(goal)
        return None if at is None else min(1.0, at / self.value)

    def excess(self, goal: float) -> float | None:
        """(Highest level + lost) / slots of the SUT's fullest ring, 1 at the limit; of a goal that
        tolerates some loss, what found no room of what it tolerates. None if no level was read, or
        what was lost was lost elsewhere."""
        queue, sent = self.record.packets.queue, self.record.offered.sent
        if self.outcome != "measured":
            return None
        if queue is None or not sent or not queue.slots or by_detections(self.record):
            return None
        whole, tolerated = queue.highest_packets + queue.lost_packets, goal * sent
        found = max(0.0, whole - queue.slots) / tolerated if tolerated else whole / queue.slots
        beyond = self.loss_ratio is not None and self.loss_ratio > goal
        return None if beyond and found < 1 else found

    def fits(self, goal: float) -> float | None:
        """Load that its ring just holds, as its twin says (ledger/twin.py); None if it has none,
        or what waited in it says too little of a fuller one."""
        queue, excess = self.record.packets.queue, self.excess(goal)
        if goal or queue is None or queue.fits_times is None or excess is None:
            return None
        near = 1 / TWIN_TO <= queue.fits_times <= TWIN_TO
        return self.value * queue.fits_times if excess >= TWIN_FROM and near else None

    @property
    def far_late(self) -> bool:
        """Void, as the sender was late by far more than noise makes it."""
        late_us = self.record.offered.schedule_error_us
        return self.late and late_us is not None and (late_us.p99 or 0.0) >= FAR_LATE_US

    @property
    def late(self) -> bool:
        """Void, as the sender was late."""
        return self.outcome == "void" and Reason.SENDER_LATE in self.record.invalid_reasons

    def reaches(self, goal: float) -> float | None:
        """Load that a trial that was not good would have carried within the goal, if the SUT serves
        as much of a little more as of a little less. None if it failed, or if how much was the
        SUT's loss is not known."""
        lost = self.record.packets.lost_packets
        beyond = self.record.packets.lost_beyond_bursts_packets
        by_bursts = 0.0 if not lost or beyond is None else 1 - beyond / lost
        if self.outcome != "measured" or self.served_ratio is None or by_bursts > NAMED_RATIO:
            return None
        return self.value * self.served_ratio / (1 - goal)


def never_ready(record: TrialRecord) -> bool:
    """The SUT did not get ready, before a packet was sent: no load did that."""
    not_ready = Reason.SUT_NOT_READY in record.invalid_reasons
    return record.outcome == "failed" and (not_ready or record.offered.sent == 0)


def lab_is_out(records: Iterable[TrialRecord]) -> bool:
    """Whether the last trials failed with the lab, whatever their cells: a search's next trial
    would not be measured either. False for a fleet, which drains such a pair and goes on with the
    others."""
    last = sorted(records, key=lambda r: r.index)[-LAST_OF_LAB:]
    out = all(r.failed_with_lab and r.pair is None for r in last)
    return len(last) == LAST_OF_LAB and out


def tried(record: TrialRecord) -> Tried:
    """Trial of a search, from a record with `searched`."""
    assert record.searched is not None
    return Tried(
        value=record.searched.value,
        seconds=record.searched.duration_s,
        outcome=record.outcome,
        loss_ratio=judged_ratio(record),
        kept=_kept(record),
        served_ratio=_served_ratio(record),
        record=record,
    )


def of_round(
    records: Iterable[TrialRecord], cell: Mapping[str, Any], number: int
) -> tuple[Tried, ...]:
    """Trials of a round in the order in which they were measured. A ramp decides nothing and is
    none of them."""
    of_cell = dict(cell)
    own = [
        record
        for record in records
        if (asked := record.searched) is not None
        and asked.round == number
        and asked.ramp is None
        and asked.soak is None
        and record.cell == of_cell
    ]
    found = [tried(record) for record in sorted(own, key=lambda r: r.index)]
    return tuple(replace(one, doubtful=True) if _doubtful(one, found) else one for one in found)


def of_cell_tried(records: Iterable[TrialRecord]) -> tuple[Tried, ...]:
    """Trials of one cell, of all its rounds in the order in which they were measured."""
    own = [(record, record.searched.round) for record in records if record.searched is not None]
    every = [record for record, _ in own]
    found = [t for n in {n for _, n in own} for t in of_round(every, every[0].cell, n)]
    return tuple(sorted(found, key=lambda t: t.record.index))


def _doubtful(one: Tried, of_round: Sequence[Tried]) -> bool:
    """The hypervisor may have caused the loss. The load caused it if packets were lost while
    nothing was taken or, if nobody saw when, if several trials all lost: the hypervisor comes by
    chance."""
    if not one.may_be_stolen:
        return False
    if one.record.lost_beyond_steal_packets is not None:
        return one.record.lost_beyond_steal_packets == 0
    same = [t for t in of_round if t.value == one.value and t.outcome == "measured"]
    return len(same) < MOST_MUTE or any(not t.loss_ratio for t in same)


def ramp_of(records: Iterable[TrialRecord], cell: Mapping[str, Any]) -> Ramp | None:
    """Result of a cell's ramp; None if it had none."""
    of_cell = (r.searched for r in records if r.searched and r.cell == dict(cell))
    return next((found.ramp for found in of_cell if found.ramp is not None), None)


def by_detections(record: TrialRecord) -> bool:
    return record.searched is not None and record.searched.goals_of == "detections"


def judged_ratio(record: TrialRecord) -> float | None:
    return record.detection_loss_ratio if by_detections(record) else record.loss_ratio


def no_ratio(records: Iterable[TrialRecord]) -> str:
    """Why no trial can be judged by its detections, in words, if that holds at any load: too few
    are expected, or nothing says which. Empty otherwise."""
    mute = (r.detections for r in records if by_detections(r) and r.outcome == "measured")
    return next((d.no_ratio for d in mute if d is not None and d.no_ratio), "")


def _kept(record: TrialRecord) -> bool | None:
    """`sustained`; where a loss or a short lag leaves that open, what the pace itself shows."""
    if (answered := record.transactions) is not None:
        return answered.sustained
    body, offered = record.packets, record.offered
    if body.sustained is None and (shown := _kept_by_level(record)) is not None:
        return shown
    if body.sustained is not None or body.service_pps_at_least is None:
        return body.sustained
    if not body.decoded_packets or (offered.duration_s or 0.0) < LEAST_S:
        return None
    pace = body.decoded_packets / (offered.duration_s or 1.0)
    if body.service_pps_at_least < (1 - TOLERANCE) * pace:
        return None
    # It kept nearly all of the pace. Without loss that is not called sustained only if it was seen
    # to be behind.
    return bool(body.loss_ratio)


def _kept_by_level(record: TrialRecord) -> bool | None:
    """A ring that never held more than a SUT may be behind, or was fullest as the load ended."""
    queue, sent, lasted_s = record.packets.queue, record.offered.sent, record.offered.duration_s
    if queue is None or not sent or (lasted_s or 0.0) < LEAST_S or record.packets.lost_packets:
        return None
    assert lasted_s is not None
    if queue.highest_packets <= SEEN_BEHIND * sent:
        return True
    return False if queue.at_s >= LAST_PART * lasted_s else None


def _served_ratio(record: TrialRecord) -> float | None:
    body, offered, lost = record.packets, record.offered, judged_ratio(record)
    if lost is None or not offered.sent or not offered.duration_s:
        return None
    if (answered := record.transactions) is not None:
        asked = offered.sent / offered.duration_s
        return None if answered.per_s is None else min(1.0, answered.per_s / asked)
    carried = 1 - lost
    if body.service_pps_at_least is None or not body.decoded_packets:
        return carried
    pace = body.decoded_packets / offered.duration_s
    return carried * min(1.0, body.service_pps_at_least / pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """All that was tried at one load."""

    value: float
    trials: tuple[Tried, ...]

    def carried(self, goal: float, search: Search) -> bool | None:
        """Decided by seconds of trials of the final length; None: not yet. As MLRsearch does it,
        or, if a fit looks at all loads together, by those that there are: there a shorter trial
        speaks against a load too."""
        final_s = search.final_trial_s
        least_s = 0.0 if search.method == "nodrop" else final_s
        good_s = sum(t.seconds for t in self.trials if t.seconds >= final_s and t.good(goal))
        bad = [t for t in self.trials if t.good(goal) is False]
        bad_s = sum(t.seconds for t in bad if t.seconds >= least_s)
        needed_s = search.duration_sum_s if search.method == "mlrsearch" else search.final_trial_s
        allowed_s = max(good_s + bad_s, needed_s) * search.exceed_ratio
        if bad_s > allowed_s:
            return False
        if bad_s == allowed_s and bad_s and search.method == "nodrop":
            return None  # a tie decides nothing
        missing_s = max(0.0, needed_s - good_s - bad_s)
        return True if bad_s + missing_s <= allowed_s and good_s else None

    def looks_carried(self, goal: float, search: Search) -> bool | None:
        """Whether the load was carried, by trials of any length if those of the final length do not
        decide it. False if it cannot be tried, None if nothing shows it."""
        decided = self.carried(goal, search)
        if decided is not None:
            return decided
        found = [good for t in self.trials if (good := t.good(goal)) is not None]
        if found:
            return found.count(False) <= len(found) * search.exceed_ratio
        return False if self.mute(goal) else None

    def final_s(self, search: Search) -> float:
        """Seconds of the trials of at least the final length that are not void."""
        return sum(
            t.seconds
            for t in self.trials
            if t.seconds >= search.final_trial_s and t.outcome != "void"
        )

    def mute(self, goal: float) -> bool:
        """Enough trials were made, and none showed anything."""
        if any(t.good(goal) is not None for t in self.trials):
            return False
        undisturbed = [t for t in self.trials if not t.disturbed]
        if len(undisturbed) >= MOST_MUTE or len(self.trials) >= MOST_DISTURBED:
            return True
        late = sum(t.far_late for t in self.trials)
        return late >= MOST_MUTE or any(t.far_late for t in undisturbed)

    def beyond_sender(self) -> bool:
        """Most of its trials say only that the sender was late."""
        undisturbed = [t for t in self.trials if not t.disturbed]
        late = sum(t.late for t in undisturbed)
        return late >= MOST_MUTE and late >= LATE * len(undisturbed)

    def untriable(self, goal: float) -> bool:
        return self.mute(goal) or self.beyond_sender()


def loads(trials: Iterable[Tried]) -> tuple[Load, ...]:
    """Loads with their trials, the lowest first."""
    found: dict[float, list[Tried]] = {}
    for trial in trials:
        found.setdefault(trial.value, []).append(trial)
    return tuple(Load(value=v, trials=tuple(found[v])) for v in sorted(found))


Aside = Literal["stolen", "pace", "odd", "changed"]
"""Why a trial is set aside: the hypervisor explains what it lost; it lost nothing and was too short
to show the pace; it lost far more than others of no less load, and few others did; or the SUT began
to serve less after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The highest load that is carried and the lowest above it that is not; None = not found."""

    lower: Load | None
    upper: Load | None


def untriable_above(
    found: Sequence[Load], lower: Load | None, goal: float, search: Search
) -> Load | None:
    """The load that could not be tried, if it is what a search came to: near what was carried, and
    below everything else that could not. One far above says nothing of a search that did not get
    there."""
    reached = [x for x in found if x.looks_carried(goal, search) and not x.beyond_sender()]
    most = max([*(x.value for x in reached), 0.0 if lower is None else lower.value])
    ceiling = next((x for x in found if x.value > most and x.untriable(goal)), None)
    if ceiling is None or lower is None:
        return ceiling
    return ceiling if ceiling.value <= lower.value * CEILING * ROUNDED else None


def slows(rounds: Sequence[Sequence[Tried]], goal: float) -> bool:
    """The SUT serves less and less within its rounds. Of two trials of one round that were too
    much, the later one carried a smaller part of no more load, again and again (Kendall's S, summed
    over rounds)."""
    rises = spread = 0.0
    falls: list[float] = []
    for trials in rounds:
        known = [
            (t.value, share)
            for t in trials
            if (share := t.share(goal)) is not None and 1 / NEAR <= share < 1
        ]
        n = len(known)
        for (value, share), (later_value, later) in combinations(known, 2):
            fell = later_value <= value * ROUNDED and later < share / SAME
            rose = later_value >= value / ROUNDED and later > share * SAME
            rises += rose - fell
            if fell or rose or abs(later_value / value - 1) < ROUNDED - 1:
                falls.append(later / share)
                spread += (2 * n + 5) / 9
    if not falls or median(falls) >= 1 - LEAST_FALL:
        return False
    return rises <= SURE_FALL * math.sqrt(spread)


def bracket_of(found: Sequence[Load], goal: float, search: Search) -> Bracket:
    """The lowest load that is not carried counts, even if a higher one was: more load cannot make a
    SUT lose less."""
    upper = next((x for x in found if x.carried(goal, search) is False), None)
    below = [x for x in found if upper is None or x.value < upper.value]
    lower = next((x for x in reversed(below) if x.carried(goal, search)), None)
    return Bracket(lower=lower, upper=upper)
