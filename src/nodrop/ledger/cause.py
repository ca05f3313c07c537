"""The cause of losses within the SUT's reach: what the thread that lost did while it lost.

Each rule has its own evidence; none is what remains when the others do not hold. What counts is the
share of the time in which packets were lost. Where that does not decide, the cause is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from statistics import median

from nodrop.ledger.hops import Place
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.pace import Pace, pace_of
from nodrop.ledger.shares import (
    TAKEN,
    Shares,
    Spans,
    Went,
    not_running_ns,
    shares,
    still_intervals,
)
from nodrop.ledger.timeline import Interval, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyThread:
    """The SUT's busiest thread while the load was offered."""

    name: str
    cpu_ratio: float
    """Of one CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What the sender sent, in equal intervals."""

    first_ns: int
    interval_ns: int
    packets: Sequence[int]
    steady: bool = False
    """A constant rate was asked for, and kept: no bursts are in it."""
    peaks: Sequence[tuple[int, int]] = ()
    """(ns, packets): so many came within so short a time, once or more."""

    @property
    def mean_pps(self) -> float:
        """From the first packet to the last, to the interval."""
        seconds = len(self.packets) * self.interval_ns / 1e9
        return sum(self.packets) / seconds if seconds else 0.0

    @property
    def usual_pps(self) -> float:
        """A burst now and then does not change it."""
        return median(self.packets or (0,)) / self.interval_ns * 1e9

    def within(self, begin_ns: float, end_ns: float) -> float:
        found = 0.0
        for n, packets in enumerate(self.packets):
            begin = self.first_ns + n * self.interval_ns
            part = min(end_ns, begin + self.interval_ns) - max(begin_ns, begin)
            found += packets * max(0.0, part) / self.interval_ns
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How the SUT ran while the load was offered. None = not measured."""

    offered_ns: tuple[int, int]
    timeline: Timeline
    losses: Sequence[Losses] | None = None
    served: Mapping[str, int] = field(default_factory=dict)
    """Packets by thread, as the SUT names it."""
    over_time: Mapping[str, Sequence[Served]] = field(default_factory=dict)
    """By thread; empty if the SUT's counters are not read often enough for it."""
    throttled: Sequence[tuple[int, float]] = ()
    """(when, seconds so far, summed over CPUs) the SUT was not let run for want of its CPU quota or
    one above it: several threads wait more than a second in a second."""
    arrivals: Arrivals | None = None
    ring_packets: int | None = None
    """What the ring of one thread holds."""
    steal_ratio: float | None = None
    """Of the CPUs of the SUT or those of the sender, whichever lost more of their time."""

    def throttled_ns(self, spans: Spans) -> float:
        return sum(self._throttled_by(e) - self._throttled_by(b) for b, e in spans) * 1e9

    def _throttled_by(self, at_ns: int) -> float:
        before = (0, 0.0)
        for when, seconds in self.throttled:
            if when >= at_ns:
                part = (at_ns - before[0]) / (when - before[0]) if before[0] else 1.0
                return before[1] + part * (seconds - before[1])
            before = (when, seconds)
        return before[1]


class Rule(StrEnum):
    """By which a cause is named (docs/methodology.md has them in words)."""

    SENDER = Went.SENDER.value
    SUT = Went.SUT.value
    SOFTIRQ = Went.SOFTIRQ.value
    OTHERS = Went.OTHERS.value
    STOLEN = Went.STOLEN.value
    THROTTLED = Went.THROTTLED.value
    STOPPED = Went.STOPPED.value
    STILL = Went.STILL.value
    BLOCKED = Went.BLOCKED.value
    SATURATED = "saturated"
    BURST = "burst"
    OWN_PACE = "own_pace"
    NOT_KNOWN = "not_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    rule: Rule
    words: str
    share: float | None
    """Of the time in which packets were lost; None if that is not what it is about."""
    thread: str
    knob: str
    evidence: Mapping[str, float]


NAMED_SHARE = 0.1
"""Of the time of loss: what took less is not named."""
SATURATED_SHARE = 0.9
"""The tick in which the kernel accounts is 4 ms; a busy thread shows a little less than all."""
SLEEPS_SHARE = 0.25
"""A thread that sleeps so much while packets are lost had time left."""
EXPLAINS = 0.5
"""Packets that came while a thread was kept off explain the loss if they are so much of it."""
MOST_OF = 0.9
"""Less than this part of the loss explained, and the thread itself comes first."""
WAIT_FOR_CPU = frozenset({Place.SOFTNET, Place.MACVTAP_QUEUE, Place.SOCKET_RING, Place.SUT})
LONE_STALL_NS = 500_000_000
"""If nobody knows what the ring holds, so long a time without the thread overflows any."""

_HAD = {
    Went.SENDER: "it waited for its CPU, which the sender had,",
    Went.SUT: "it waited for its CPU, which other threads of the SUT had,",
    Went.OTHERS: "it waited for its CPU, which other programs had,",
    Went.SOFTIRQ: "interrupts (softirq) had its CPU",
    Went.STOLEN: "the hypervisor gave its CPU to others",
    Went.THROTTLED: "it was held by its CPU quota",
    Went.STOPPED: "it was stopped (state T): it did not run",
    Went.STILL: "it did not run at all, though it was not stopped,",
    Went.BLOCKED: "it was blocked in the kernel (state D)",
}
KNOBS: Mapping[Rule, str] = {
    Rule.SENDER: "CPUs that the SUT does not share with the sender (limits.cpus, load.cpu)",
    Rule.SUT: "more CPUs for the SUT (limits.cpus, sut.cpus), or fewer threads (sut.threads)",
    Rule.SOFTIRQ: "interrupts and RPS away from the SUT's CPUs (smp_affinity, rps_cpus), or other "
    "CPUs for the SUT (limits.cpus)",
    Rule.OTHERS: "a quiet host, or CPUs that the SUT does not share (limits.cpus)",
    Rule.STOLEN: "a host whose CPUs are its own: no setting of the SUT gives back what the "
    "hypervisor takes",
    Rule.THROTTLED: "the CPU quota (cpu.max, cpu.cfs_quota_us) of the SUT's control group or above "
    "it",
    Rule.STOPPED: "find what stopped the thread (a signal, a debugger)",
    Rule.STILL: "find what froze the thread (a frozen control group, a lock)",
    Rule.BLOCKED: "find what it waits for in the kernel: a disk, or memory that is taken back",
    Rule.SATURATED: "sut.threads, fewer rules, or less load; a larger ring only moves the burst",
    Rule.BURST: "sut.ring_size: the thread had time left, and a burst is what overflowed",
    Rule.OWN_PACE: "the SUT's own limits: it slept while packets waited, and no ring is large "
    "enough for that",
    Rule.NOT_KNOWN: "",
}


def causes_of(place: str | None, running: Running | None) -> tuple[Cause, ...]:
    """What points at the cause of losses inside the SUT's reach, the largest share first."""
    if running is None or place not in (Place.MACVTAP_QUEUE, Place.SOCKET_RING, Place.SUT):
        return ()
    if place == Place.SOCKET_RING:
        return _of_the_ring(running)
    whole = (running.offered_ns,)
    tid = running.timeline.ran_most(whole)
    found = _shares(running, tid, whole)
    if tid is None or found is None:
        return ()
    thread = running.timeline.names[tid]
    causes = _taken(running, thread, found)
    if place == Place.MACVTAP_QUEUE:
        # QEMU does not fetch for a slow guest either: what it and others used is no cause.
        outright = (Rule.THROTTLED, Rule.STOPPED, Rule.STILL)
        return tuple(cause for cause in causes if cause.rule in outright)
    return tuple(causes)


def lost_to_steal(
    by_place: Mapping[str, int], sent: int, running: Running | None, bound: float
) -> str:
    """In words, if the hypervisor took so much that this alone can explain the losses of places
    where packets wait for a CPU."""
    lost = sum(packets for place, packets in by_place.items() if place in WAIT_FOR_CPU)
    stolen = None if running is None else running.steal_ratio
    if not lost or not stolen or stolen < bound or lost > 2 * stolen * sent:
        return ""
    return (
        f"the hypervisor took {stolen * 100:.1f} % of the CPU time of the SUT or the sender (bound "
        f"{bound * 100:.0f} %), which can explain the {lost} lost packets"
    )


def _of_the_ring(running: Running) -> tuple[Cause, ...]:
    if not running.losses:
        return (_unknown("", "when packets were lost is not known"),)
    lost = dict.fromkeys(dict.fromkeys(w.thread for w in running.losses), 0)
    for window in running.losses:
        lost[window.thread] += window.packets
    thread = max(lost, key=lambda name: lost[name])
    tid = running.timeline.find(thread) if thread else None
    windows = [w for w in running.losses if w.thread == thread]
    spans = _union([(w.begin_mono_ns, w.end_mono_ns) for w in windows])
    if tid is None or _shares(running, tid, spans) is None:
        whose = f"thread {thread}" if thread else "the thread that lost them"
        return (_unknown(thread, f"{whose} could not be watched"),)
    case = _Case(running=running, thread=thread, tid=tid, lost=lost[thread])
    return case.causes(spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The thread that lost most."""

    running: Running
    thread: str
    tid: int
    lost: int

    def causes(self, spans: Spans) -> tuple[Cause, ...]:
        spans = self._kept_off(spans) or spans
        found = _shares(self.running, self.tid, spans)
        assert found is not None, "it was seen there"
        causes = _taken(self.running, self.thread, found)
        explained = self._explained(found, spans)
        if explained < MOST_OF and found.of[Went.SLEPT] >= SLEEPS_SHARE:
            own = self._of_its_own(found, spans)
            return (own, *causes) if explained >= EXPLAINS else (own,)
        if not causes or found.of[Went.SLEPT] > max(0.5, found.taken):
            causes.append(self._of_its_own(found, spans))
        elif self._wanted_more(found):
            causes.append(self._saturated(found))
        return tuple(sorted(causes, key=lambda cause: -(cause.share or 0.0)))

    def _kept_off(self, spans: Spans) -> Spans:
        """A long wait or stop within the windows, which are wider than they need be: what came
        meanwhile is what was lost, less what the ring holds."""
        running, arrivals = self.running, self.running.arrivals
        still = still_intervals(running.timeline, self.tid)
        if arrivals is None:
            return ()
        off: list[tuple[int, int]] = []
        explained = 0.0
        seen = [i for i in running.timeline.intervals if i.part(spans)]
        for kept, group in groupby(seen, lambda i: not_running_ns(i, self.tid, still) >= i.ns / 2):
            together = list(group)
            came = self._share * sum(
                arrivals.within(i.begin_ns, i.end_ns) * not_running_ns(i, self.tid, still) / i.ns
                for i in together
            )
            held = self._holds(together)
            if kept and held is not None and came > held:
                off += [(i.begin_ns, i.end_ns) for i in together]
                explained += came - held
        return _union(off) if explained >= EXPLAINS * self.lost else ()

    def _holds(self, together: Sequence[Interval]) -> float | None:
        """What the ring holds of what comes meanwhile; None if that could be all."""
        if self.running.ring_packets is not None:
            return self.running.ring_packets
        return 0.0 if sum(i.ns for i in together) >= LONE_STALL_NS else None

    @property
    def _share(self) -> float:
        """Of all packets: that came to this thread."""
        served, losses = self.running.served, self.running.losses or ()
        every = sum(served.values()) + sum(window.packets for window in losses)
        mine = served.get(self.thread, 0) + self.lost
        return mine / every if served and every else 1.0

    def _capacity_pps(self) -> float | None:
        """Served per second on a CPU."""
        whole = _shares(self.running, self.tid, (self.running.offered_ns,))
        ran_s = whole.of[Went.RAN] * whole.ns / 1e9 if whole else 0.0
        served = self.running.served.get(self.thread)
        return served / ran_s if served and ran_s else None

    def _wanted_more(self, found: Shares) -> bool:
        """It never slept, and the time that it was kept off would not have been enough either."""
        capacity = self._capacity_pps()
        if found.of[Went.SLEPT] >= NAMED_SHARE or capacity is None:
            return False
        return self.lost > 1.25 * capacity * found.taken * found.ns / 1e9

    def _explained(self, found: Shares, spans: Spans) -> float:
        """What came while it was kept off, as a part of what it lost; 1 if nobody knows."""
        arrivals = self.running.arrivals
        if arrivals is None or not self.lost:
            return 1.0
        came = self._share * sum(arrivals.within(b, e) for b, e in spans)
        return came * found.taken / self.lost

    def _of_its_own(self, found: Shares, spans: Spans) -> Cause:
        """Nobody kept it from its packets for long."""
        pace, arrivals, slept = self._pace(), self.running.arrivals, found.of[Went.SLEPT]
        more = self._more_at_once(pace, spans) if pace else None
        serves_the_mean = pace and self._mean_pps < pace.at_least_pps
        if pace and more and serves_the_mean:
            return self._burst(more, pace, found)
        if found.of[Went.RAN] + found.taken >= SATURATED_SHARE:
            return self._saturated(found)
        sleeps = f"thread {self.thread} slept {slept * 100:.0f} % of the time in which it lost"
        kept_off = self._explained(found, spans) >= EXPLAINS
        if arrivals and slept >= SLEEPS_SHARE and not kept_off:
            # Measured to serve the mean, it paused: that is no pace.
            paused = serves_the_mean and self.thread in self.running.over_time
            if arrivals.steady and not paused:
                words = f"{sleeps}, at a constant rate: it takes packets at its own pace"
                return self._cause(Rule.OWN_PACE, words, slept, found)
            if pace and pace.at_most_pps is not None:
                # Kept off for a part of that time, it would have served more.
                serves = pace.at_most_pps / (1 - min(found.taken, EXPLAINS))
                usual = self._share * arrivals.usual_pps
                if SATURATED_SHARE * usual > serves:
                    words = (
                        f"{sleeps} and served {pace.at_most_pps:,.0f} packets/s while more "
                        f"waited, of usually {usual:,.0f}/s that came: it takes packets at its "
                        "own pace"
                    )
                    return self._cause(Rule.OWN_PACE, words, slept, found)
        return self._not_known(found, pace, more)

    def _not_known(self, found: Shares, pace: Pace | None, more: float | None) -> Cause:
        ran, slept = found.of[Went.RAN], found.of[Went.SLEPT]
        words = (
            f"thread {self.thread} ran {ran * 100:.0f} % and slept {slept * 100:.0f} % of the time "
            "in which it lost; bursts too short to be seen or its own pace are both possible"
        )
        if pace and more:
            words = (
                f"a burst brought thread {self.thread} {more:.0f} packets more than it serves "
                f"meanwhile, and its ring holds {self.running.ring_packets}; but it was not seen "
                f"to serve the load's mean of {self._mean_pps:,.0f} packets/s (seen: "
                f"{pace.at_least_pps:,.0f}), so that its own pace is possible as well"
            )
        return self._cause(Rule.NOT_KNOWN, f"cause not known: {words}", None, found)

    def _saturated(self, found: Shares) -> Cause:
        ran = found.of[Went.RAN]
        words = f"thread {self.thread} used {ran * 100:.0f} % of one CPU while it lost"
        return self._cause(Rule.SATURATED, words, ran, found)

    @property
    def _mean_pps(self) -> float:
        arrivals = self.running.arrivals
        return self._share * arrivals.mean_pps if arrivals else 0.0

    def _pace(self) -> Pace | None:
        """Measured; of a SUT that is not read often enough, by the CPU time that a packet takes:
        then it must not sleep while packets wait."""
        readings, ring = self.running.over_time.get(self.thread), self.running.ring_packets
        if readings:
            return pace_of(readings, ring) if ring is not None else None
        capacity = self._capacity_pps()
        return Pace(at_least_pps=SATURATED_SHARE * capacity, at_most_pps=None) if capacity else None

    def _more_at_once(self, pace: Pace, spans: Spans) -> float | None:
        """By so many packets more came than it serves meanwhile, if its ring does not hold them."""
        arrivals, ring = self.running.arrivals, self.running.ring_packets
        if arrivals is None or ring is None or arrivals.steady:
            return None
        serves = pace.at_least_pps / 1e9
        over = most = 0.0
        for n, packets in enumerate(arrivals.packets):
            at = arrivals.first_ns + n * arrivals.interval_ns
            came = self._share * packets
            if any(b < at + arrivals.interval_ns and e > at for b, e in spans):
                over = max(over + came - serves * arrivals.interval_ns, 0.0)
                most = max(most, over)
        for ns, packets in arrivals.peaks:
            most = max(most, self._share * packets - serves * ns)
        return most if most > ring else None

    def _burst(self, more: float, pace: Pace, found: Shares) -> Cause:
        ring = self.running.ring_packets
        assert ring is not None, "it does not hold them"
        words = (
            f"a burst brought thread {self.thread} {more:.0f} packets more than it serves "
            f"meanwhile, and its ring holds {ring}"
        )
        numbers = {
            "burst_packets": more,
            "ring_packets": ring,
            "serves_pps": pace.at_least_pps,
            "mean_pps": self._mean_pps,
        }
        cause = self._cause(Rule.BURST, words, None, found)
        return replace(cause, evidence={**cause.evidence, **numbers})

    def _cause(self, rule: Rule, words: str, share: float | None, found: Shares) -> Cause:
        return Cause(
            rule=rule,
            words=words,
            share=share,
            thread=self.thread,
            knob=KNOBS[rule],
            evidence=_evidence(found),
        )


def _taken(running: Running, thread: str, found: Shares) -> list[Cause]:
    named = sorted((w for w in TAKEN if found.of[w] >= NAMED_SHARE), key=lambda w: -found.of[w])
    causes = []
    for went in named:
        share = found.of[went]
        had = _HAD[went]
        if went is Went.OTHERS and not any(i.sender for i in running.timeline.intervals):
            had = "it waited for its CPU, which the sender or other programs had,"
        words = f"thread {thread} lost while {had} {share * 100:.0f} % of the time"
        if went in (Went.STOPPED, Went.STILL):
            words += f" ({share * found.ns / 1e9:.1f} s)"
        if went is Went.THROTTLED:
            seconds = running.throttled[-1][1] if running.throttled else 0.0
            words = (
                f"the SUT was throttled for {seconds:.2f} s, summed over CPUs, by its CPU quota: "
                f"{share * 100:.0f} % of the time in which thread {thread} lost"
            )
        causes.append(
            Cause(
                rule=Rule(went.value),
                words=words,
                share=share,
                thread=thread,
                knob=KNOBS[Rule(went.value)],
                evidence=_evidence(found),
            )
        )
    return causes


def _unknown(thread: str, why: str) -> Cause:
    return Cause(
        rule=Rule.NOT_KNOWN,
        words=f"cause not known: {why}",
        share=None,
        thread=thread,
        knob="",
        evidence={},
    )


def _shares(running: Running, tid: int | None, spans: Spans) -> Shares | None:
    if tid is None:
        return None
    return shares(running.timeline, tid, spans, running.throttled_ns(spans))


def _evidence(found: Shares) -> dict[str, float]:
    """What the time went to, as ratios, and how long it was."""
    return {
        "loss_time_s": round(found.ns / 1e9, 3),
        **{f"{went}_ratio": round(share, 3) for went, share in found.of.items() if share >= 0.001},
    }


def _union(spans: Sequence[tuple[int, int]]) -> Spans:
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
