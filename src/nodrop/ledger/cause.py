"""The cause of losses within the SUT's reach: what the thread that lost did while it lost.

Each rule has its own evidence; no rule holds just because the others do not. What counts is the
share of the time in which packets were lost. If that does not decide, the cause is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from nodrop.config.units import count_of, noun
from nodrop.ledger.filling import Filler, Filling, Moment
from nodrop.ledger.hops import NEUTRAL, Knobs, Place, WaitsFor
from nodrop.ledger.imbalance import Running, ThreadRole
from nodrop.ledger.thread_times import (
    TAKEN,
    Shares,
    Spans,
    Went,
    not_running_ns,
    shares,
    still_intervals,
)
from nodrop.ledger.worker_threads import (
    SATURATED_SHARE,
    SLEEPS_SHARE,
    Peers,
    PeerThread,
    ThreadPace,
    ThreadQueue,
    peers,
)


class Rule(StrEnum):
    """Rules by which a cause is named (docs/methodology.md has them in words)."""

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
    WORKERS_FULL = "workers_full"
    LOCK = "lock"
    COSTLY = "costly"
    BURST = "burst"
    OWN_PACE = "own_pace"
    NOT_KNOWN = "not_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCause:
    rule: Rule
    words: str
    share: float | None
    """Share of the time in which packets were lost; None if the cause is not about time."""
    thread: str
    knob: str
    evidence: Mapping[str, float]


NAMED_SHARE = 0.1
"""Least share of the time of loss that is named."""
EXPLAINS = 0.5
"""Part of the loss that packets must be to explain it, if they came while a thread was kept off its
CPU."""
MOST_OF = 0.9
"""Less than this part of the loss explained, and the thread itself comes first."""

POLLS = "polls: its CPU time says nothing of its packets"

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


def knob_of(rule: Rule, knobs: Knobs = NEUTRAL) -> str:
    """The settings that affect losses with that cause, in the words of the SUT's own settings;
    empty if the cause is not known."""
    return {
        Rule.SENDER: "CPUs that the SUT does not share with the sender (limits.cpus, load.cpu)",
        Rule.SUT: f"more CPUs for the SUT ({knobs.cpus}), or {knobs.fewer_threads}",
        Rule.SOFTIRQ: "interrupts and RPS away from the SUT's CPUs (smp_affinity, rps_cpus), or "
        "other CPUs for the SUT (limits.cpus)",
        Rule.OTHERS: "a quiet host, or CPUs that the SUT does not share (limits.cpus)",
        Rule.STOLEN: "a host whose CPUs are its own: no setting of the SUT gives back what the "
        "hypervisor takes",
        Rule.THROTTLED: "the CPU quota (cpu.max, cpu.cfs_quota_us) of the SUT's control group or "
        "above it",
        Rule.STOPPED: "find what stopped the thread (a signal, a debugger)",
        Rule.STILL: "find what froze the thread (a frozen control group, a lock)",
        Rule.BLOCKED: "find what it waits for in the kernel: a disk, or memory that is taken back",
        Rule.SATURATED: f"{knobs.threads}, {knobs.less_work}, or less load; a larger ring only "
        "moves the burst",
        Rule.WORKERS_FULL: f"{knobs.workers}, {knobs.less_work}, or less load",
        Rule.LOCK: "fewer threads behind that lock, or less work under it: nodrop profile says "
        "where its threads wait (locks and conditions); neither a larger ring nor more workers "
        "help",
        Rule.COSTLY: f"{knobs.ring}: costly packets came together; or {knobs.less_work}",
        Rule.BURST: f"{knobs.ring}: a burst is what overflowed",
        Rule.OWN_PACE: "the SUT's own limits: it slept while packets waited, and no ring is large "
        "enough for that",
        Rule.NOT_KNOWN: "",
    }[rule]


def causes_of(place: Place | None, running: Running | None) -> tuple[ThreadCause, ...]:
    """Causes of losses inside the SUT's reach, the largest share first."""
    if running is None or place is None:
        return ()
    if place.waits_for is WaitsFor.THREAD:
        return _of_a_thread(running, place.knobs)
    return _of_the_emulator(running) if place.waits_for is WaitsFor.EMULATOR else ()


def lost_to_steal(
    lost_at: Mapping[Place, int], sent: int, running: Running | None, bound: float
) -> str:
    """Words if the hypervisor took so much that this alone can explain the losses of places where
    packets wait for a CPU; else empty."""
    waited = (n for place, n in lost_at.items() if place.waits_for is not WaitsFor.NOTHING)
    lost, stolen = sum(waited), None if running is None else running.steal_ratio
    if not lost or not stolen or stolen < bound or lost > 2 * stolen * sent:
        return ""
    return (
        f"the hypervisor took {stolen * 100:.1f} % of the CPU time of the SUT or the sender (bound "
        f"{bound * 100:.0f} %), which can explain the {lost:,} lost {noun(lost, 'packet')}"
    )


def _of_the_emulator(running: Running) -> tuple[ThreadCause, ...]:
    """QEMU does not fetch for a slow guest either: what it and others used is no cause."""
    whole = (running.offered_ns,)
    tid = running.timeline.ran_most(whole)
    found = _shares(running, tid, whole)
    if tid is None or found is None:
        return ()
    outright = (Rule.THROTTLED, Rule.STOPPED, Rule.STILL)
    causes = _taken(running, running.timeline.names[tid], found, NEUTRAL)
    return tuple(cause for cause in causes if cause.rule in outright)


def _of_a_thread(running: Running, knobs: Knobs) -> tuple[ThreadCause, ...]:
    if running.filling is not None and (causes := _of_a_filling(running, running.filling, knobs)):
        return causes
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
    queue = ThreadQueue(running=running, thread=thread, tid=tid, lost=lost[thread])
    return _Case(queue=queue, knobs=knobs).causes(spans)


def _of_a_filling(running: Running, filling: Filling, knobs: Knobs) -> tuple[ThreadCause, ...]:
    """Causes by what filled the ring; () if the thread that reads it was not watched."""
    tid = running.timeline.find(filling.thread) if filling.thread else None
    found = _shares(running, tid, _union(filling.spans))
    if tid is None or found is None:
        return ()
    queue = ThreadQueue(running=running, thread=filling.thread, tid=tid, lost=filling.lost)
    return _Case(queue=queue, knobs=knobs).by_filling(filling, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The thread that lost most."""

    queue: ThreadQueue
    knobs: Knobs

    @property
    def running(self) -> Running:
        return self.queue.running

    @property
    def thread(self) -> str:
        return self.queue.thread

    def by_filling(self, filling: Filling, found: Shares) -> tuple[ThreadCause, ...]:
        """A cause for each part of what filled the ring, the largest first."""
        beside = peers(self.running, self.queue.tid, _union(filling.spans))
        every: list[tuple[float, ThreadCause]] = []
        for filler, part in filling.parts.items():
            if part < NAMED_SHARE:
                continue
            if filler is Filler.ABSENCE:
                every += self._who_took_it(part, found)
            elif filler is Filler.BURST:
                every.append((part, self._burst_of(filling, found)))
            elif filling.asleep_ratio >= SLEEPS_SHARE:
                every.append((part, self._asleep(filling, found, beside)))
            elif filler is Filler.COST and filling.costliest is not None:
                every.append((part, self._costly(filling, filling.costliest, found)))
            elif self.running.polls:
                every.append((part, self._polled(filling, part, found)))
            else:
                every.append((part, self._saturated(found, beside)))
        if any(cause.rule is Rule.SATURATED for _, cause in every):
            # Much more came than it serves: its absence cost few packets, but much time. A thread
            # that was away longer than it ran is not full.
            first = 1.0 if found.taken > found.of[Went.RAN] else 0.0
            away = _taken(self.running, self.thread, found, self.knobs)
            every = [*((first + (c.share or 0.0) * first, c) for c in away), *every]
        every.sort(key=lambda one: -one[0])
        shares = {f"filled_by_{name}_ratio": round(p, 3) for name, p in filling.parts.items() if p}
        causes: dict[Rule, ThreadCause] = {}
        for _, cause in every:
            evidence = {**cause.evidence, **shares}
            causes.setdefault(cause.rule, replace(cause, evidence=evidence))
        return tuple(causes.values())

    def _who_took_it(self, part: float, found: Shares) -> list[tuple[float, ThreadCause]]:
        """Who kept it off its CPU, with their parts of `part`: the first, and others that took half
        as much or more."""
        causes = _taken(self.running, self.thread, found, self.knobs)
        if not causes:
            # Seconds of which only milliseconds count: who took most of them is named all the same.
            most = max(TAKEN, key=lambda went: found.of[went])
            return [(part, _taken_by(self.running, self.thread, found, self.knobs, most))]
        first = causes[0].share or 0.0
        named = [cause for cause in causes if (cause.share or 0.0) >= first / 2]
        return [(part * (cause.share or 0.0) / first, cause) for cause in named]

    def _costly(self, filling: Filling, moment: Moment, found: Shares) -> ThreadCause:
        words = (
            f"packets of a moment cost thread {self.thread} {moment.each_us:,.0f} us each, "
            f"{moment.each_us / moment.usual_us:.1f} times the {moment.usual_us:,.0f} us of this "
            f"load: {moment.packets:,} that came {moment.begin_s:.2f} to {moment.end_s:.2f} s "
            "after the first packet"
        )
        numbers: dict[str, float] = {}
        if (flows := moment.flows) is not None:
            most = "" if flows.flows == 1 else "most of "
            words += (
                f"; half of that time went to {count_of(flows.flows, 'flow')} of the trace "
                f"({count_of(flows.packets, 'packet')}, {most}{flows.kind})"
            )
            numbers = {
                "moment_flows": flows.flows,
                "moment_flow_packets": flows.packets,
                "moment_protocol": flows.protocol,
                "moment_port": flows.port,
            }
        numbers |= {
            "moment_begin_s": round(moment.begin_s, 3),
            "moment_end_s": round(moment.end_s, 3),
            "moment_packets": moment.packets,
            "moment_us_per_packet": round(moment.each_us, 1),
            "usual_us_per_packet": round(moment.usual_us, 1),
        }
        share = filling.parts[Filler.COST]
        cause = self._cause(Rule.COSTLY, words, share, found)
        return replace(cause, evidence={**cause.evidence, **numbers})

    def _polled(self, filling: Filling, part: float, found: Shares) -> ThreadCause:
        words = (
            f"thread {self.thread} served {filling.served_pps:,.0f} packets/s while packets "
            f"waited, of {filling.mean_pps:,.0f}/s that came; it {POLLS}"
        )
        numbers = {
            "served_pps": round(filling.served_pps, 1),
            "mean_pps": round(filling.mean_pps, 1),
        }
        cause = self._cause(Rule.SATURATED, words, part, found)
        return replace(cause, evidence={**cause.evidence, **numbers})

    def _burst_of(self, filling: Filling, found: Shares) -> ThreadCause:
        words = (
            f"a burst brought thread {self.thread} {filling.burst_packets:,} packets more than "
            f"usually come meanwhile, and its ring holds {filling.slots:,}"
        )
        numbers = {
            "burst_packets": filling.burst_packets,
            "ring_packets": filling.slots,
            "serves_pps": round(filling.serves_pps, 1),
            "mean_pps": round(filling.mean_pps, 1),
        }
        cause = self._cause(Rule.BURST, words, filling.parts[Filler.BURST], found)
        return replace(cause, evidence={**cause.evidence, **numbers})

    def _asleep(self, filling: Filling, found: Shares, beside: Peers) -> ThreadCause:
        if beside.full is not None:
            return self._workers_full(beside, beside.full, found)
        if beside.locked:
            return self._lock(beside, found)
        slept = filling.asleep_ratio
        words = (
            f"thread {self.thread} slept {slept * 100:.0f} % of the time in which packets waited "
            f"for it, and served {filling.serves_pps:,.0f} packets/s: its own pace"
        )
        return self._own_pace(words, slept, found, beside)

    def causes(self, spans: Spans) -> tuple[ThreadCause, ...]:
        whole, spans = spans, self._kept_off(spans) or spans
        found = _shares(self.running, self.queue.tid, spans)
        assert found is not None, "it was seen there"
        causes = _taken(self.running, self.thread, found, self.knobs)
        explained = self._explained(found, spans)
        sleeps = explained < MOST_OF and found.of[Went.SLEPT] >= SLEEPS_SHARE
        own = self._of_its_own(found, spans) if sleeps else None
        if own is None or own.rule is Rule.NOT_KNOWN:
            anyway = self.queue.lost_anyway(found, whole) if causes else None
            if anyway is not None and anyway[0] >= NAMED_SHARE:
                return self._with_its_own(causes, *anyway, found, spans)
            if anyway is None and causes and explained < MOST_OF:
                causes[0] = causes[0] if self.running.polls else _beside_its_own(causes[0], found)
        if own is not None:
            return (own, *causes) if explained >= EXPLAINS else (own,)
        if not causes or found.of[Went.SLEPT] > max(0.5, found.taken):
            causes.append(self._of_its_own(found, spans))
        elif self._wanted_more(found):
            causes.append(self._saturated(found, peers(self.running, self.queue.tid, spans)))
        return tuple(sorted(causes, key=lambda cause: -(cause.share or 0.0)))

    def _with_its_own(
        self,
        causes: Sequence[ThreadCause],
        anyway: float,
        serves: float,
        found: Shares,
        spans: Spans,
    ) -> tuple[ThreadCause, ...]:
        """Causes with the thread's own pace added: loss that a quiet host would have too is the
        thread's own. The larger part comes first, and only its knob is named if the thread's own is
        nearly all."""
        came = self.queue.share * sum(
            self.running.arrivals.within(*span) if self.running.arrivals else 0.0 for span in spans
        )
        per_s = came / (sum(end - begin for begin, end in spans) / 1e9)
        sleeps = found.of[Went.SLEPT] >= SLEEPS_SHARE
        # Its best 0.1 s may have been one in which it was catching up.
        most, least = ("at most", "at least ") if sleeps else ("about", "")
        words = (
            f"thread {self.thread} serves {most} {serves:,.0f} packets/s if nothing keeps it off "
            f"its CPU, of {per_s:,.0f}/s that came: a quiet host would lose {least}"
            f"{anyway * 100:.0f} % of that as well"
        )
        rule = Rule.OWN_PACE if sleeps else Rule.SATURATED
        own = self._cause(rule, words, found.of[Went.SLEPT if sleeps else Went.RAN], found)
        if not sleeps:
            beside = peers(self.running, self.queue.tid, spans)
            one_flow = beside.role is ThreadRole.WORKER and beside.one_flow
            own = replace(own, knob=beside.relief(self.knobs) if one_flow else own.knob)
        numbers = {"lost_anyway_ratio": round(anyway, 3), "serves_pps": round(serves)}
        own = replace(own, evidence={**own.evidence, **numbers})
        if anyway >= MOST_OF:
            return (own, *causes)
        first, second = (own, causes[0]) if anyway >= EXPLAINS else (causes[0], own)
        larger = max(anyway, 1 - anyway) * 100
        knob = f"{first.knob} (for {larger:.0f} % of the loss); {second.knob} (for the rest)"
        first = replace(first, knob=knob)
        return (first, *causes) if anyway >= EXPLAINS else (first, *causes[1:], own)

    def _kept_off(self, spans: Spans) -> Spans:
        """A long wait or stop within the windows, which are wider than they need be: what came
        meanwhile is what was lost, less what the ring holds."""
        running, arrivals = self.running, self.running.arrivals
        still = still_intervals(running.timeline, self.queue.tid)
        if arrivals is None:
            return ()
        off: list[tuple[int, int]] = []
        explained = 0.0
        seen = [i for i in running.timeline.intervals if i.part(spans)]
        for kept, group in groupby(
            seen, lambda i: not_running_ns(i, self.queue.tid, still) >= i.ns / 2
        ):
            together = list(group)
            came = self.queue.share * sum(
                arrivals.within(i.begin_ns, i.end_ns)
                * not_running_ns(i, self.queue.tid, still)
                / i.ns
                for i in together
            )
            held = self.queue.holds(together)
            if kept and held is not None and came > held:
                off += [(i.begin_ns, i.end_ns) for i in together]
                explained += came - held
        return _union(off) if explained >= EXPLAINS * self.queue.lost else ()

    def _wanted_more(self, found: Shares) -> bool:
        """The thread never slept, and the time that it was kept off its CPU would not have been
        enough."""
        capacity = self.queue.capacity_pps()
        if found.of[Went.SLEPT] >= NAMED_SHARE or capacity is None:
            return False
        return self.queue.lost > 1.25 * capacity * found.taken * found.ns / 1e9

    def _explained(self, found: Shares, spans: Spans) -> float:
        """Packets that came while the thread was kept off its CPU, as a part of those it lost; 1 if
        that is not known."""
        arrivals = self.running.arrivals
        if arrivals is None or not self.queue.lost:
            return 1.0
        came = self.queue.share * sum(arrivals.within(b, e) for b, e in spans)
        return came * found.taken / self.queue.lost

    def _of_its_own(self, found: Shares, spans: Spans) -> ThreadCause:
        """Cause if nothing kept the thread from its packets for long."""
        beside = peers(self.running, self.queue.tid, spans)
        if beside.full is not None and found.of[Went.SLEPT] >= SLEEPS_SHARE:
            return self._workers_full(beside, beside.full, found)
        if beside.locked and found.of[Went.SLEPT] >= SLEEPS_SHARE:
            return self._lock(beside, found)
        pace, arrivals, slept = self.queue.pace(), self.running.arrivals, found.of[Went.SLEPT]
        more = self.queue.more_at_once(pace, spans) if pace else None
        serves_the_mean = pace and self.queue.mean_pps < pace.at_least_pps
        if pace and more and serves_the_mean:
            return self._burst(more, pace, found)
        if self.running.polls:
            return _unknown(self.thread, f"thread {self.thread} {POLLS}")
        if found.of[Went.RAN] + found.taken >= SATURATED_SHARE:
            return self._saturated(found, beside)
        sleeps = f"thread {self.thread} slept {slept * 100:.0f} % of the time in which it lost"
        kept_off = self._explained(found, spans) >= EXPLAINS
        if arrivals and slept >= SLEEPS_SHARE and not kept_off:
            # Measured to serve the mean, it paused: a pause is no pace.
            paused = serves_the_mean and self.thread in self.running.over_time
            if arrivals.steady and not paused:
                words = f"{sleeps}, at a constant rate: it takes packets at its own pace"
                return self._own_pace(words, slept, found, beside)
            if pace and pace.at_most_pps is not None:
                # Kept off for a part of that time, it would have served more.
                serves = pace.at_most_pps / (1 - min(found.taken, EXPLAINS))
                usual = self.queue.share * arrivals.usual_pps
                if SATURATED_SHARE * usual > serves:
                    words = (
                        f"{sleeps} and served {pace.at_most_pps:,.0f} packets/s while more "
                        f"waited, of usually {usual:,.0f}/s that came: it takes packets at its "
                        "own pace"
                    )
                    return self._own_pace(words, slept, found, beside)
        return self._not_known(found, pace, more)

    def _not_known(self, found: Shares, pace: ThreadPace | None, more: float | None) -> ThreadCause:
        ran, slept = found.of[Went.RAN], found.of[Went.SLEPT]
        words = (
            f"thread {self.thread} ran {ran * 100:.0f} % and slept {slept * 100:.0f} % of the time "
            "in which it lost; bursts too short to be seen or its own pace are both possible"
        )
        if pace and more:
            words = (
                f"a burst brought thread {self.thread} {more:,.0f} packets more than it serves "
                f"meanwhile, and its ring holds {self.running.ring_packets:,}; but it was not seen "
                f"to serve the load's mean of {self.queue.mean_pps:,.0f} packets/s (seen: "
                f"{pace.at_least_pps:,.0f}), so its own pace is possible as well"
            )
        return self._cause(Rule.NOT_KNOWN, f"cause not known: {words}", None, found)

    def _saturated(self, found: Shares, beside: Peers) -> ThreadCause:
        ran = found.of[Went.RAN]
        called = "receive thread" if beside.role is ThreadRole.RECEIVE else "thread"
        words = f"{called} {self.thread} used {ran * 100:.0f} % of one CPU while it lost"
        cause = self._cause(Rule.SATURATED, words + beside.beside_saturated(), ran, found)
        one_flow = beside.role is ThreadRole.WORKER and beside.one_flow
        knob = beside.relief(self.knobs) if one_flow else cause.knob
        return replace(cause, evidence={**cause.evidence, **beside.evidence()}, knob=knob)

    def _own_pace(self, words: str, slept: float, found: Shares, beside: Peers) -> ThreadCause:
        cause = self._cause(Rule.OWN_PACE, words + beside.asleep_as_well, slept, found)
        if not beside.asleep_as_well:
            return cause
        knob = f"{cause.knob}; nodrop profile says where its threads wait (locks and conditions)"
        return replace(cause, evidence={**cause.evidence, **beside.evidence()}, knob=knob)

    def _workers_full(self, beside: Peers, full: PeerThread, found: Shares) -> ThreadCause:
        slept = found.of[Went.SLEPT]
        words = beside.waiting_for(full, self.thread, slept)
        cause = self._cause(Rule.WORKERS_FULL, words, slept, found)
        evidence = {**cause.evidence, **beside.evidence()}
        return replace(cause, evidence=evidence, knob=beside.relief(self.knobs))

    def _lock(self, beside: Peers, found: Shares) -> ThreadCause:
        slept = found.of[Went.SLEPT]
        words = (
            f"thread {self.thread} slept {slept * 100:.0f} % of the time in which it lost; "
            f"{beside.locked}"
        )
        cause = self._cause(Rule.LOCK, words, slept, found)
        return replace(cause, evidence={**cause.evidence, **beside.evidence()})

    def _burst(self, more: float, pace: ThreadPace, found: Shares) -> ThreadCause:
        ring = self.running.ring_packets
        assert ring is not None, "it does not hold them"
        words = (
            f"a burst brought thread {self.thread} {more:,.0f} packets more than it serves "
            f"meanwhile, and its ring holds {ring:,}"
        )
        numbers = {
            "burst_packets": more,
            "ring_packets": ring,
            "serves_pps": pace.at_least_pps,
            "mean_pps": self.queue.mean_pps,
        }
        cause = self._cause(Rule.BURST, words, None, found)
        return replace(cause, evidence={**cause.evidence, **numbers})

    def _cause(self, rule: Rule, words: str, share: float | None, found: Shares) -> ThreadCause:
        return ThreadCause(
            rule=rule,
            words=words,
            share=share,
            thread=self.thread,
            knob=knob_of(rule, self.knobs),
            evidence=_evidence(found),
        )


def _taken(running: Running, thread: str, found: Shares, knobs: Knobs) -> list[ThreadCause]:
    named = sorted((w for w in TAKEN if found.of[w] >= NAMED_SHARE), key=lambda w: -found.of[w])
    return [_taken_by(running, thread, found, knobs, went) for went in named]


def _taken_by(
    running: Running, thread: str, found: Shares, knobs: Knobs, went: Went
) -> ThreadCause:
    share, had = found.of[went], _HAD[went]
    if went is Went.OTHERS and not any(i.sender for i in running.timeline.intervals):
        had = "it waited for its CPU, which the sender or other programs had,"
    words = f"thread {thread}: {had} {share * 100:.0f} % of the time in which it lost"
    if went in (Went.STOPPED, Went.STILL):
        words += f" ({share * found.ns / 1e9:.1f} s)"
    if went is Went.THROTTLED:
        seconds = running.throttled[-1][1] if running.throttled else 0.0
        words = (
            f"the SUT was throttled for {seconds:.2f} s, summed over CPUs, by its CPU quota: "
            f"{share * 100:.0f} % of the time in which thread {thread} lost"
        )
    return ThreadCause(
        rule=Rule(went.value),
        words=words,
        share=share,
        thread=thread,
        knob=knob_of(Rule(went.value), knobs),
        evidence=_evidence(found),
    )


def _beside_its_own(cause: ThreadCause, found: Shares) -> ThreadCause:
    """The cause with the share of the thread itself beside it, whose pace is not known."""
    ran = found.of[Went.RAN]
    if ran < NAMED_SHARE:
        return cause
    words = f"it ran {ran * 100:.0f} %, and what it would serve alone is not known"
    return replace(cause, words=f"{cause.words}; {words}")


def _unknown(thread: str, why: str) -> ThreadCause:
    return ThreadCause(
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
    """Shares of the time by where it went, and the seconds that it lasted."""
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
