"""The queue of one thread of the SUT, and the threads beside one that lost: who had time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodrop.ledger.hops import Knobs
from nodrop.ledger.imbalance import (
    Arrivals,
    FlowShares,
    Imbalance,
    Makes,
    Running,
    ThreadRole,
    what_makes,
)
from nodrop.ledger.over_time import Served
from nodrop.ledger.thread_times import Asleep, Shares, Spans, ThreadInterval, Went, shares

SHORTEST_NS = 50_000_000
"""Packets are counted some at a time: a shorter interval says little."""
WAITING_PART = 0.25
"""Least part of a ring that shows waiting: packets that wait at both ends of an interval waited in
between as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPace:
    """Packets that a thread serves per second."""

    at_least_pps: float
    at_most_pps: float | None
    """None: never seen while packets waited all the time, so it may be able to serve more."""


def fastest_pps(readings: Sequence[Served]) -> float | None:
    """Rate served in the best interval, in packets/s; None without an interval that is long enough.
    A host that keeps the thread from nothing lets it serve that all the time, or more. It may have
    been catching up then, and be no faster alone."""
    rates = [
        (now.served - then.served) / (now.mono_ns - then.mono_ns) * 1e9
        for then, now in pairwise(readings)
        if now.mono_ns - then.mono_ns >= SHORTEST_NS
    ]
    return max(rates, default=None)


def pace_of(readings: Sequence[Served], ring_packets: int) -> ThreadPace | None:
    """None if nothing was read over time."""
    fastest = served = ns = 0.0
    for n, (then, now) in enumerate(pairwise(readings)):
        took_ns = now.mono_ns - then.mono_ns
        if took_ns < SHORTEST_NS:
            continue
        packets = now.served - then.served
        fastest = max(fastest, packets / took_ns * 1e9)
        # The counter of losses may be a reading late.
        later = readings[min(n + 2, len(readings) - 1)]
        waiting = min(then.waiting, now.waiting)
        if later.lost > then.lost and waiting >= max(2, WAITING_PART * ring_packets):
            served, ns = served + packets, ns + took_ns
    if ns:
        return ThreadPace(at_least_pps=served / ns * 1e9, at_most_pps=served / ns * 1e9)
    return ThreadPace(at_least_pps=fastest, at_most_pps=None) if fastest else None


SATURATED_SHARE = 0.9
"""The tick in which the kernel accounts is 4 ms; a busy thread shows a little less than all."""
SLEEPS_SHARE = 0.25
"""Share of the time of loss: a thread that sleeps that much had time left."""
PACE_MARGIN = 1.05
"""A pace is known no better than that, and a host is not cleared by what may be its noise."""
LEAST_RAN_S = 0.1
"""CPU time from which on it is known what a thread serves at most: it begins with cold caches."""
LONE_STALL_NS = 500_000_000
"""Time without the thread that overflows any ring; it counts if the size of the ring is not known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQueue:
    running: Running
    thread: str
    tid: int
    lost: int

    @property
    def share(self) -> float:
        """Share of all packets that came to this thread; 1 if that is not known."""
        served, losses = self.running.served, self.running.losses or ()
        every = sum(served.values()) + sum(window.packets for window in losses)
        mine = served.get(self.thread, 0) + self.lost
        return mine / every if served and every else 1.0

    @property
    def mean_pps(self) -> float:
        arrivals = self.running.arrivals
        return self.share * arrivals.mean_pps if arrivals else 0.0

    def holds(self, together: Sequence[ThreadInterval]) -> float | None:
        """Packets that the ring holds of those that come meanwhile; None if that could be all."""
        if self.running.ring_packets is not None:
            return self.running.ring_packets
        return 0.0 if sum(i.ns for i in together) >= LONE_STALL_NS else None

    def shares(self, spans: Spans) -> Shares | None:
        """Shares of the thread's time within spans; None if it was not seen there."""
        return shares(self.running.timeline, self.tid, spans, self.running.throttled_ns(spans))

    def capacity_pps(self, *, least_ran_s: float = LEAST_RAN_S) -> float | None:
        """Served per second on a CPU. None if it had one for a shorter time, or polls."""
        if self.running.polls:
            return None
        whole = self.shares((self.running.offered_ns,))
        ran_s = whole.of[Went.RAN] * whole.ns / 1e9 if whole else 0.0
        served = self.running.served.get(self.thread)
        return served / ran_s if served and ran_s and ran_s >= least_ran_s else None

    def pace(self) -> ThreadPace | None:
        """Measured; of a SUT that is not read often enough, by the CPU time that a packet takes:
        then it must not sleep while packets wait."""
        readings, ring = self.running.over_time.get(self.thread), self.running.ring_packets
        if readings:
            return pace_of(readings, ring) if ring is not None else None
        capacity = self.capacity_pps(least_ran_s=0.0)
        return (
            ThreadPace(at_least_pps=SATURATED_SHARE * capacity, at_most_pps=None)
            if capacity
            else None
        )

    def alone_pps(self, found: Shares) -> float | None:
        """Packets/s that the thread would serve if nothing kept it off its CPU, rather too many
        than too few: by its readings if it sleeps while packets wait, else by its CPU time. None =
        not known."""
        if found.of[Went.SLEPT] >= SLEEPS_SHARE:
            return fastest_pps(self.running.over_time.get(self.thread, ()))
        return self.capacity_pps()

    def lost_anyway(self, found: Shares, spans: Spans) -> tuple[float, float] | None:
        """(part, packets/s): of what it lost, the part that it would have lost with its CPU for
        itself, and what it would have served then. None if that pace is not known."""
        serves, arrivals = self.alone_pps(found), self.running.arrivals
        if serves is None or arrivals is None or not self.lost:
            return None
        overflow = self._overflow_packets(PACE_MARGIN * serves, arrivals, spans)
        return min(1.0, overflow / self.lost), serves

    def _overflow_packets(self, serves_pps: float, arrivals: Arrivals, spans: Spans) -> float:
        """Packets that overflow the ring of a server of that pace, counted from the first packet.
        If it is not known what the ring holds: the excess of what came in the windows of loss."""
        ring = self.running.ring_packets
        if ring is None:
            came = self.share * sum(arrivals.within(begin, end) for begin, end in spans)
            seconds = sum(end - begin for begin, end in spans) / 1e9
            return max(0.0, came - serves_pps * seconds)
        waiting = overflow = 0.0
        for packets in arrivals.packets:
            served = serves_pps * arrivals.interval_ns / 1e9
            waiting = max(0.0, waiting + self.share * packets - served)
            overflow += max(0.0, waiting - ring)
            waiting = min(waiting, ring)
        return overflow

    def more_at_once(self, pace: ThreadPace, spans: Spans) -> float | None:
        """Packets that came at once beyond those that the thread served meanwhile; None if its ring
        holds them."""
        arrivals, ring = self.running.arrivals, self.running.ring_packets
        if arrivals is None or ring is None or arrivals.steady:
            return None
        serves = pace.at_least_pps / 1e9
        over = most = 0.0
        for n, packets in enumerate(arrivals.packets):
            at = arrivals.first_ns + n * arrivals.interval_ns
            came = self.share * packets
            if any(b < at + arrivals.interval_ns and e > at for b, e in spans):
                over = max(over + came - serves * arrivals.interval_ns, 0.0)
                most = max(most, over)
        for ns, packets in arrivals.peaks:
            most = max(most, self.share * packets - serves * ns)
        return most if most > ring else None


NOT_SEEN = Asleep()
IDLE_SHARE = 0.5
"""A worker that had so little to do could have done twice its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerThread:
    name: str
    ran: float
    """Share of the time of loss in which the thread ran."""
    taken: float
    """Share in which the thread was kept off its CPU."""
    asleep: Asleep = NOT_SEEN

    @property
    def busy(self) -> float:
        return self.ran + self.taken

    def __str__(self) -> str:
        waited = f" and was kept off it {self.taken * 100:.0f} %" if self.taken >= 0.1 else ""
        return f"worker {self.name} used {self.ran * 100:.0f} % of one CPU{waited}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Workers of the same process, without the thread itself, the busiest first."""

    role: ThreadRole | None
    """Role of the thread that lost."""
    workers: Sequence[PeerThread]
    own_ran: float = 0.0
    """Share of the time of loss in which the thread that lost ran itself."""
    own_asleep: Asleep = NOT_SEEN
    """Looks at the thread that lost."""
    flow_sizes: FlowShares | None = None

    @property
    def full(self) -> PeerThread | None:
        """A worker without time left, if the thread that lost hands its packets to workers."""
        if self.role is not ThreadRole.RECEIVE or not self.workers:
            return None
        return self.workers[0] if self.workers[0].busy >= SATURATED_SHARE else None

    @property
    def one_alone(self) -> bool:
        """The busiest of several workers has the work, and all others had time left."""
        return len(self.workers) > 1 and self.workers[1].busy < IDLE_SHARE

    @property
    def have_work(self) -> int:
        """Workers that have the work while others had time left; 0 if all have it. Several have it
        alone if the load spreads like fewer equal flows than there are workers."""
        if self.one_alone:
            return 1
        busy = sum(worker.busy >= IDLE_SHARE for worker in self.workers)
        few = self.flow_sizes is not None and self.flow_sizes.effective_flows < len(self.workers)
        return busy if few and self.uneven is not None and busy < len(self.workers) else 0

    @property
    def uneven(self) -> Imbalance | None:
        """The imbalance that gives one worker the work; None if the sizes of flows do not explain
        it."""
        if self.flow_sizes is None:
            return None
        own = [self.own_ran] if self.role is ThreadRole.WORKER else []
        cpu = [*own, *(worker.ran for worker in self.workers)]
        imbalance = what_makes((), cpu, self.flow_sizes)
        by_flows = (Makes.ONE_FLOW, Makes.SAME_FLOWS, Makes.FEW_FLOWS)
        return imbalance if imbalance is not None and imbalance.makes in by_flows else None

    @property
    def one_flow(self) -> bool:
        """One flow makes the load uneven: a worker is full beside the thread, or the thread itself
        is, which has no worker behind it."""
        return self.uneven is not None and self.uneven.makes is Makes.ONE_FLOW

    def waiting_for(self, full: PeerThread, thread: str, slept: float) -> str:
        words = (
            f"{full} while receive thread {thread}, which lost, slept {slept * 100:.0f} % of the "
            "time: it waits until workers give packets back"
        )
        if have_work := self.have_work:
            others = len(self.workers) - have_work
            rest = "the other one was" if others == 1 else f"the other {others} were"
            words += f"; {have_work} workers have the work, " if have_work > 1 else "; "
            words += f"{rest} at most {self.workers[have_work].busy * 100:.0f} % busy"
            words += self._by_flows()
        return words

    @property
    def locked(self) -> str:
        """Words if the thread slept for others and not for packets, and no worker was full."""
        own = self.own_asleep
        if not (own.enough and own.for_others) or self.full is not None:
            return ""
        slept = f"{own.in_futex} of {own.looks} looks found it asleep in a futex"
        if self.role is not ThreadRole.RECEIVE:
            return f"{slept}: it waits for another thread, as for a lock, and not for packets"
        together = sum((worker.asleep for worker in self.workers), NOT_SEEN)
        waiting = together.enough and all(worker.asleep.for_others for worker in self.workers)
        if len(self.workers) < 2 or not waiting:
            return ""
        return (
            f"{slept}: it waits until workers give packets back; and they, the busiest "
            f"{self.workers[0]}, slept in a futex as well, though they had packets: a lock that "
            "they share"
        )

    @property
    def asleep_as_well(self) -> str:
        """Workers behind a receive thread that sleeps, and none of them is full."""
        if self.role is not ThreadRole.RECEIVE or not self.workers or self.full is not None:
            return ""
        if len(self.workers) == 1:
            busy = self.workers[0].busy >= IDLE_SHARE
            return f"; or it waits for its worker: {self.workers[0]}" if busy else ""
        return (
            f"; its workers had time left as well: the busiest, {self.workers[0]}. A lock that "
            "they share would look like this, but what they waited for was not seen"
        )

    def _by_flows(self) -> str:
        return "" if self.uneven is None else f" ({self.uneven.words})"

    def relief(self, knobs: Knobs) -> str:
        """The settings that relieve a worker that is full."""
        if self.one_flow:
            return (
                f"{knobs.less_work}, or less load of the largest flow; a larger ring does not "
                "help, nor do more workers: one flow stays on its worker"
            )
        if have_work := self.have_work:
            whose = "one worker has" if have_work == 1 else f"{have_work} workers have"
            several = "those are several flows" if have_work == 1 else "those are more flows"
            return (
                f"{knobs.less_work}, or less load of the flows that {whose}; a larger ring does "
                f"not help, and more workers only if {several}: one flow stays on its worker"
            )
        return (
            f"{knobs.workers}, {knobs.less_work}, or less load; a larger ring only moves the burst"
        )

    def beside_saturated(self) -> str:
        """The work of the other workers while the thread that lost was at its limit, in words;
        empty if one of them was full too."""
        if not self.workers or self.workers[0].busy >= SATURATED_SHARE:
            return ""
        whose = "its workers" if self.role is ThreadRole.RECEIVE else "the other workers"
        words = f"; {whose} had at most {self.workers[0].busy * 100:.0f} % of one CPU to do"
        one_has_it = self.role is ThreadRole.WORKER and self.workers[0].busy < IDLE_SHARE
        return words + self._by_flows() if one_has_it else words

    def evidence(self) -> Mapping[str, float]:
        if not self.workers:
            return {}
        busiest = self.workers[0]
        found = {"workers": len(self.workers), "busiest_worker_ran_ratio": round(busiest.ran, 3)}
        if self.own_asleep.looks:
            found["in_futex_ratio"] = round(self.own_asleep.in_futex / self.own_asleep.looks, 3)
        return found


def peers(running: Running, tid: int, spans: Spans) -> Peers:
    seen = running.timeline
    found = []
    for other, role in running.roles.items():
        same = seen.processes.get(other) == seen.processes.get(tid)
        if other == tid or role is not ThreadRole.WORKER or not same:
            continue
        went = shares(seen, other, spans, running.throttled_ns(spans))
        if went is not None:
            ran = went.of[Went.RAN]
            # A worker without work does not run at all either: nothing holds that one.
            taken = went.taken - went.of[Went.STILL]
            found.append(
                PeerThread(
                    name=seen.names[other],
                    ran=ran,
                    taken=taken,
                    asleep=seen.asleep(other, spans),
                )
            )
    found.sort(key=lambda peer: -peer.busy)
    own = shares(seen, tid, spans, running.throttled_ns(spans))
    return Peers(
        role=running.roles.get(tid),
        workers=found,
        own_ran=0.0 if own is None else own.of[Went.RAN],
        own_asleep=seen.asleep(tid, spans),
        flow_sizes=running.flow_sizes,
    )
