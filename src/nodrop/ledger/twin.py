"""Queue in front of a SUT: departures and cost from its level, and a twin that predicts both.

Departures are arrivals less losses less level. While packets wait, the reader is busy, so the time
from one departure to the next is what a packet costs, less the time in which the reader was kept
off its CPU. The twin is a queue with that cost, fed with the arrivals of another load.

`limit(observed: Sequence[Observation], slots: int | None = None) -> Prediction | Refusal` is the
highest load that loses nothing; `level` says what another load does. Both are pure. Trials are not
mixed before that: each has its own twin, as flows fall to rings anew in each trial, and the spread
of what the twins say is the interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise
from math import exp, inf, log, sqrt
from statistics import fmean, median, stdev

from nodrop.ledger.level import RingLook

QUEUED = 3
REPRODUCED_RATIO = 0.15
"""A twin whose highest level and loss together are further from those of its own trial is not
used..."""
REPRODUCED_SLOTS = 0.03
REPRODUCED_PACKETS = 20
"""... or packets by which it may be further, if that is more than this part of the ring."""
CLOSE = 1.6
"""Trials no further from the limit than by this factor are preferred: a packet costs a little less
the more of them wait."""
FURTHEST = 32.0
"""A limit further away from a trial than by this factor is not predicted."""
EXACT = 0.002
"""Relative width at which the search for a limit ends."""
T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t for 95 %, by degrees of freedom from 1 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Packets that left the sender, in equal bins, by the clock of the looks."""

    first_ns: int
    bin_ns: int
    packets: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Time of the thread that reads a ring, between two readings of it."""

    begin_ns: int
    end_ns: int
    ran_ns: float | None
    """None = it polls: it runs without packets, too."""
    kept_off_ns: float
    """Ready, stopped or blocked: not let run."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A capture ring in one trial, with the thread that reads it."""

    slots: int
    """Packets that fit, as full as its blocks became in this trial."""
    most_slots: int | None = None
    """Packets that fit if no block is closed before it is full: the reader gets packets by the
    block and gives them back so (TPACKET_V3). None = packets share no blocks."""
    looks: Sequence[RingLook]
    reader: Sequence[Reader] = ()
    """Times of the reader; empty: its thread was not watched."""
    lost: int = 0
    """Packets that found it full, as the SUT counts them at rest."""
    sends: Sends | None = None
    thread: str = ""
    """The SUT's name for the thread; empty = not known."""
    busy_from: int = QUEUED
    """Least number of packets at two looks in a row that shows a busy reader in between."""

    def room(self, times: float) -> float:
        """Packets that fit under `times` the load: it fills a block before its time ends, or at
        least fuller."""
        if self.most_slots is None:
            return self.slots
        return max(self.slots, min(self.most_slots, self.slots * times))

    @property
    def highest(self) -> int:
        return max((look.packets for look in self.looks), default=0)

    @property
    def polled(self) -> bool:
        return any(one.ran_ns is None for one in self.reader)

    @cached_property
    def service(self) -> Service:
        return Service(self)

    @cached_property
    def steps(self) -> Sequence[RingStep]:
        """Arrivals with the work that they would bring, were the reader never kept off its CPU."""
        return steps(self, absences=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingObservation:
    """One trial, as its rings saw it."""

    load: float
    """Multiplier, rate or speed; a prediction is in the same unit."""
    queues: Sequence[Queue]
    faster: bool = False
    """A higher load brings the same packets in less time, and then again for as long; not more
    packets at each moment."""


@dataclass(frozen=True, slots=True)
class RingStep:
    """A short time of a ring."""

    begin_ns: float
    end_ns: float
    came: float
    """Packets, those included that found no room."""
    work_s: float
    """Time on a CPU that the reader needs for all of them."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time from one look at a ring to the next."""

    begin_ns: int
    end_ns: int
    came: int
    """Packets, those included that found no room."""
    taken: int
    """Packets that found room."""
    left: int
    """Packets that departed."""
    queued: bool
    """Packets waited all the time. Before a reader that polls, from when it was kept off."""
    drains: bool
    """Packets waited at its begin."""

    @property
    def ns(self) -> int:
        return self.end_ns - self.begin_ns


def gaps(queue: Queue) -> list[Gap]:
    """Arrivals and departures between looks, from the first packet on."""
    found: list[Gap] = []
    departed = _departed(queue.looks[0]) if queue.looks else 0
    for then, now in pairwise(queue.looks):
        left = max(departed, _departed(now))
        found.append(
            Gap(
                begin_ns=then.at_ns,
                end_ns=now.at_ns,
                came=max(0, now.arrived - then.arrived),
                taken=max(0, now.arrived - now.dropped - then.arrived + then.dropped),
                left=left - departed,
                queued=_waits(queue, now) and (queue.polled or _waits(queue, then)),
                drains=_waits(queue, then),
            )
        )
        departed = left
    return found


def _departed(look: RingLook) -> int:
    return look.arrived - look.dropped - look.packets


def _waits(queue: Queue, look: RingLook) -> bool:
    """Packets wait; the reader does not see a block yet that is still being filled."""
    return look.packets >= queue.busy_from if queue.most_slots is None else look.full >= 1


@dataclass(slots=True)
class _Spell:
    """Gaps within one reading of the reader's time."""

    reader: Reader | None
    gaps: list[int]
    queued_ns: float = 0.0
    unqueued: int = 0
    """Packets that departed without a queue."""


class Service:
    """Time on a CPU that each packet of one ring took, in the order of departures."""

    def __init__(self, queue: Queue) -> None:
        self.gaps = gaps(queue)
        self.absent_ns = [0.0] * len(self.gaps)
        """Time by gap for which the reader was kept off its CPU while packets waited."""
        self.asleep_ns = [0.0] * len(self.gaps)
        """Time by gap for which the reader slept while packets waited."""
        self._each_ns = [0.0] * len(self.gaps)
        """Time of one packet, by gap without a queue."""
        self.typical_ns = 0.0
        """Time of a packet that did not queue."""
        self._tell(queue)

    def _tell(self, queue: Queue) -> None:
        spells = self._spells(queue.reader)
        self.typical_ns = self._typical(spells)
        for spell in spells:
            if spell.reader is None:
                each = self.typical_ns
            elif (ran_ns := spell.reader.ran_ns) is None:
                each = self.typical_ns
                # Packets wait as soon as it is kept off: all of that time has a queue.
                if spell.queued_ns:
                    self._spread(spell, spell.reader.kept_off_ns, 0.0)
            else:
                alone = self.typical_ns * spell.unqueued
                idle = max(0.0, spell.queued_ns - max(0.0, ran_ns - alone))
                absent = min(idle, spell.reader.kept_off_ns)
                if spell.queued_ns:
                    self._spread(spell, absent, idle - absent)
                rest = ran_ns - (spell.queued_ns - absent)
                each = max(0.0, rest / spell.unqueued) if spell.unqueued else 0.0
            for n in spell.gaps:
                self._each_ns[n] = each

    def _spells(self, readers: Sequence[Reader]) -> list[_Spell]:
        begins = [reader.begin_ns for reader in readers]
        found: dict[int, _Spell] = {}
        for n, gap in enumerate(self.gaps):
            middle = (gap.begin_ns + gap.end_ns) / 2
            at = bisect_right(begins, middle) - 1
            inside = at >= 0 and middle < readers[at].end_ns
            spell = found.setdefault(
                at if inside else -1, _Spell(readers[at] if inside else None, [])
            )
            spell.gaps.append(n)
            if gap.queued:
                spell.queued_ns += gap.ns
            else:
                spell.unqueued += gap.left
        return list(found.values())

    def _typical(self, spells: Sequence[_Spell]) -> float:
        """Time of a typical packet: what half of them took at most, because the reader was kept off
        its CPU in many of those times. Times in which nothing queued tell it, else all times; of a
        reader that polls, times in which packets waited."""
        told = [(s, s.reader.ran_ns) for s in spells if s.reader and s.reader.ran_ns is not None]
        calm = [(s, ran_ns) for s, ran_ns in told if s.unqueued and not s.queued_ns]
        packets = sum(s.unqueued for s, _ in calm)
        if packets and 10 * packets >= sum(gap.left for gap in self.gaps):
            return sum(ran_ns for _, ran_ns in calm) / packets
        left = sum(gap.left for s, _ in told for gap in map(self.gaps.__getitem__, s.gaps))
        if left:
            return sum(ran_ns for _, ran_ns in told) / left
        each = sorted((gap.ns / gap.left, gap.left) for gap in self.gaps if gap.drains and gap.left)
        departed = [*accumulate(packets for _, packets in each)]
        return each[bisect_right(departed, departed[-1] // 2)][0] if each else 0.0

    def _spread(self, spell: _Spell, absent: float, asleep: float) -> None:
        """Absence falls where fewest packets departed for the time that passed, sleep anywhere."""
        over = {
            n: max(0.0, gap.ns - gap.left * self.typical_ns)
            for n in spell.gaps
            if (gap := self.gaps[n]).queued
        }
        whole = sum(over.values())
        for n, ns in over.items():
            self.absent_ns[n] = min(ns, absent * ns / whole) if whole else 0.0
            left_ns = self.gaps[n].ns - self.absent_ns[n]
            self.asleep_ns[n] = min(left_ns, asleep * self.gaps[n].ns / spell.queued_ns)

    def knots(self, *, absences: bool) -> Iterator[tuple[float, float]]:
        """(packets departed, time that they took), rising. Blocks are given back in lumps: a gap
        without a departure belongs to the next one. `absences`: as it was; else on a CPU."""
        departed, took = 0.0, 0.0
        yield departed, took
        for n, gap in enumerate(self.gaps):
            if gap.queued:
                took += gap.ns if absences else gap.ns - self.absent_ns[n]
            else:
                took += min(gap.ns, gap.left * self._each_ns[n])
            if gap.left:
                departed += gap.left
                yield departed, took


def steps(queue: Queue, *, absences: bool) -> list[RingStep]:
    """Arrivals in short times, with the work that they bring."""
    service, sends = queue.service, queue.sends
    departed, took = zip(*service.knots(absences=absences), strict=True)
    found: list[RingStep] = []
    taken = 0.0
    spent = 0.0
    at = 0
    each = service.typical_ns
    for gap in service.gaps:
        for begin, end, part in _parts(gap, sends):
            came, into = gap.came * part, taken + gap.taken * part
            while at + 1 < len(departed) and departed[at + 1] < into:
                at += 1
            if at + 1 < len(departed):
                share = (into - departed[at]) / (departed[at + 1] - departed[at])
                now = took[at] + share * (took[at + 1] - took[at])
            else:
                now = took[-1] + (into - departed[-1]) * each
            room = into - taken
            # What found no room is taken to cost as much as what came beside it.
            work = (now - spent) * came / room if room else came * each
            found.append(RingStep(begin, end, came, work / 1e9))
            taken, spent = into, now
    return found


def _parts(gap: Gap, sends: Sends | None) -> Iterator[tuple[float, float, float]]:
    """(begin, end, part of the packets) of a gap, by the sender's bins."""
    if sends is None or not gap.came:
        yield gap.begin_ns, gap.end_ns, 1.0
        return
    first = (gap.begin_ns - sends.first_ns) // sends.bin_ns
    last = (gap.end_ns - sends.first_ns) // sends.bin_ns
    pieces = []
    for n in range(first, last + 1):
        begin = max(gap.begin_ns, sends.first_ns + n * sends.bin_ns)
        end = min(gap.end_ns, sends.first_ns + (n + 1) * sends.bin_ns)
        sent = sends.packets[n] if 0 <= n < len(sends.packets) else 0
        if end > begin:
            pieces.append((begin, end, sent * (end - begin) / sends.bin_ns))
    whole = sum(part for _, _, part in pieces)
    for begin, end, part in pieces:
        yield begin, end, part / whole if whole else (end - begin) / gap.ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A ring under a load."""

    slots: float
    highest_packets: float
    lost_packets: float
    at_ns: float
    """The moment at which the ring was fullest, by the clock of the trial that says so."""

    @property
    def excess(self) -> float:
        return (self.highest_packets + self.lost_packets) / self.slots


def fill(
    arriving: Sequence[RingStep], slots: float, *, times: float = 1.0, faster: float = 1.0
) -> Filled:
    """Queue of one server with `slots` places, the one in service included. `times`: factor on the
    packets of each moment; `faster`: factor by which the time between them shrinks."""
    waiting = [0.0] * len(arriving)
    head = 0
    level = undone = highest = lost = 0.0
    at_ns: float = 0
    for n, step in enumerate(arriving):
        lasts = (step.end_ns - step.begin_ns) / 1e9 / faster
        packets, work = step.came * times, step.work_s * times
        if undone + work <= lasts:
            level = undone = 0.0
            head = n + 1
            continue
        waiting[n] = packets
        level += packets
        undone += work - lasts
        while head <= n and lasts > 0:
            whole = arriving[head].came
            left = waiting[head] * arriving[head].work_s / whole if whole else 0.0
            if left > lasts:
                gone = lasts / left * waiting[head]
                waiting[head] -= gone
                level -= gone
                break
            lasts -= left
            level -= waiting[head]
            waiting[head] = 0.0
            head += 1
        over = min(level - slots, waiting[n])
        if over > 0:
            lost += over
            level -= over
            undone -= over * work / packets
            waiting[n] -= over
        if level > highest:
            highest, at_ns = level, step.end_ns
    return Filled(slots=slots, highest_packets=highest, lost_packets=lost, at_ns=at_ns)


class TwinRefusal(StrEnum):
    """The reason why a twin is not used."""

    NO_QUEUE = "no_queue"
    """Packets never waited long enough to say what they cost."""
    NOT_REPRODUCED = "not_reproduced"
    """The twins of most trials do not show what those trials showed."""
    TOO_FAR = "too_far"
    """The limit is further from each trial than can be predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: TwinRefusal
    load: float | None = None
    """Load of the trial that the twin reproduces worst."""
    measured: float | None = None
    """Excess of that trial: (highest level + lost) / slots."""
    reproduced: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Highest load that loses nothing, as trials at other loads predict it."""

    load: float
    low: float | None
    high: float | None
    """Bounds of 95 %, from the spread of what the trials say; None = fewer than two say it."""
    trials: int
    """Trials that say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """A trial and its own twin."""

    measured: float
    """Excess, as in the trial."""
    twin: float
    slots: int

    @property
    def close(self) -> bool:
        least = max(REPRODUCED_SLOTS, REPRODUCED_PACKETS / self.slots)
        bound = max(least, REPRODUCED_RATIO * self.measured)
        return abs(self.twin - self.measured) <= bound


def reproduced(observation: RingObservation) -> Reproduced | None:
    """The ring that came nearest to its limit, with all absences of its reader; None if no ring had
    packets that waited."""
    queues = [
        queue for queue in observation.queues if any(gap.queued for gap in queue.service.gaps)
    ]
    if not queues:
        return None
    queue = max(queues, key=lambda queue: (queue.highest + queue.lost) / queue.slots)
    return Reproduced(
        measured=(queue.highest + queue.lost) / queue.slots,
        twin=fill(steps(queue, absences=True), queue.slots).excess,
        slots=queue.slots,
    )


def limit(observed: Sequence[RingObservation], slots: int | None = None) -> Prediction | Refusal:
    """Highest load that loses nothing, on an undisturbed host. `slots`: of another ring."""
    usable = _usable(observed)
    if isinstance(usable, Refusal):
        return usable
    found = [(one.load * times, times) for one in usable if (times := limit_times(one, slots))]
    if not found:
        return Refusal(reason=TwinRefusal.TOO_FAR)
    close = [load for load, times in found if 1 / CLOSE <= times <= CLOSE]
    return _together(close or [load for load, _ in found])


def level(
    observed: Sequence[RingObservation], load: float, slots: int | None = None
) -> Filled | Refusal:
    """Fullest ring under another load, as the middle one of the trials predicts it."""
    usable = _usable(observed)
    if isinstance(usable, Refusal):
        return usable
    found = sorted((_fullest(one, load / one.load, slots) for one in usable), key=_excess)
    return found[len(found) // 2]


def limit_times(observation: RingObservation, slots: int | None = None) -> float | None:
    """Multiple of the trial's own load that its rings just hold; None if it is too far away."""

    return crossing(
        lambda times: max(_unbounded(q, observation, times, slots) for q in observation.queues) - 1
    )


def crossing(over: Callable[[float], float]) -> float | None:
    """Multiple of a load at which something that grows with it becomes positive; None if it is too
    far away."""
    low, high = 1.0, 1.0
    below = above = over(1.0)
    while below >= 0:
        high, above, low = low, below, low / 2
        if low < 1 / FURTHEST:
            return None
        below = over(low)
    while above < 0:
        low, below, high = high, above, high * 1.5
        if high > FURTHEST:
            return None
        above = over(high)
    while high / low > 1 + EXACT:
        # A level grows about evenly: the straight line is near, the middle bounds what it costs.
        straight = low + (high - low) * -below / (above - below)
        middle = min(max(straight, low + (high - low) / 16), high - (high - low) / 16)
        now = over(middle)
        low, below, high, above = (
            (middle, now, high, above) if now < 0 else (low, below, middle, now)
        )
    return sqrt(low * high)


def _unbounded(
    queue: Queue, observation: RingObservation, times: float, slots: int | None
) -> float:
    of = slots or queue.room(times)
    return _filled(queue, observation, times, inf).highest_packets / of


def _filled(queue: Queue, observation: RingObservation, times: float, slots: float) -> Filled:
    if observation.faster:
        return fill(_repeated(queue.steps, times), slots, faster=times)
    return fill(queue.steps, slots, times=times)


def _repeated(arriving: Sequence[RingStep], times: float) -> Sequence[RingStep]:
    """The arrivals repeated `times` times, at least once: a faster pass is sent again for as long.
    The last pass ends where the time does."""
    came = [n for n, step in enumerate(arriving) if step.came]
    if times <= 1 or not came:
        return arriving
    sent = arriving[came[0] : came[-1] + 1]
    whole, part = divmod(times, 1)
    until = sent[0].begin_ns + part * (sent[-1].end_ns - sent[0].begin_ns)
    return [*sent] * int(whole) + [step for step in sent if step.end_ns <= until]


def _fullest(observation: RingObservation, times: float, slots: int | None) -> Filled:
    return max(
        (_filled(r, observation, times, slots or r.room(times)) for r in observation.queues),
        key=_excess,
    )


def _excess(filled: Filled) -> float:
    return filled.excess


def _usable(observed: Sequence[RingObservation]) -> Sequence[RingObservation] | Refusal:
    """Trials whose twins reproduce them; they must be most of those that had a queue."""
    had = [
        (observation, found)
        for observation in observed
        if (found := reproduced(observation)) is not None
    ]
    if not had:
        return Refusal(reason=TwinRefusal.NO_QUEUE)
    usable = [one for one, found in had if found.close]
    if 2 * len(usable) > len(had):
        return usable
    one, worst = max(had, key=lambda pair: abs(log((pair[1].twin or 1e-9) / pair[1].measured)))
    return Refusal(
        reason=TwinRefusal.NOT_REPRODUCED,
        load=one.load,
        measured=worst.measured,
        reproduced=worst.twin,
    )


def _together(loads: Sequence[float]) -> Prediction:
    logs, n = [log(load) for load in loads], len(loads)
    middle = median(logs)
    if n < 2:
        return Prediction(load=exp(middle), low=None, high=None, trials=n)
    half = T_975[min(n - 2, len(T_975) - 1)] * stdev(logs) / sqrt(n)
    mean = fmean(logs)
    low, high = min(mean - half, middle), max(mean + half, middle)
    return Prediction(load=exp(middle), low=exp(low), high=exp(high), trials=n)
