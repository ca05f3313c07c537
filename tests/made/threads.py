"""A made-up SUT over time, as a sampler sees it: what its threads did, and who had their CPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from nodrop.ledger.imbalance import Arrivals, FlowShares, Running, ThreadRole
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.thread_times import timeline
from nodrop.protocol import SampleRow

TICK_NS = 100_000_000
BEGIN_NS = 50 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A thread from one moment to another, in seconds from the beginning; shares of its time."""

    begin_s: float = 0.0
    end_s: float = 1e9
    ran: float = 0.0
    waited: float = 0.0
    state: str = "S"
    sleeps_in: str | None = None
    cpu: int = 0


@dataclass(slots=True, kw_only=True)
class World:
    """Threads of the SUT and of the sender, and what else CPUs did (shares of their time)."""

    seconds: float = 3.0
    threads: dict[str, Sequence[Made]] = field(default_factory=dict)
    sender: Sequence[Made] = ()
    softirq: dict[int, float] = field(default_factory=dict)
    """CPU → softirq time beyond that in the threads' own time."""
    softirq_in_threads: dict[int, float] = field(default_factory=dict)
    others: dict[int, float] = field(default_factory=dict)
    stolen: dict[int, float] = field(default_factory=dict)
    cpus: int = 2
    late_wait: bool = False
    """Each wait is one, and the kernel adds it when it is over."""

    def rows(self) -> list[SampleRow]:
        """Samples of a tenth of a second each, with the fields that a timeline reads."""
        return [cast(SampleRow, self._row(n)) for n in range(round(self.seconds * 10) + 1)]

    def _row(self, n: int) -> dict[str, Any]:
        at_s = n / 10
        sut = [self._thread(i, name, parts, at_s)
               for i, (name, parts) in enumerate(self.threads.items(), 100)]  # fmt: skip
        sender = [self._thread(900, "replay", self.sender, at_s)] if self.sender else []
        return {
            "mono_ns": BEGIN_NS + n * TICK_NS,
            "processes": [{"pid": 100, "threads": sut}],
            "beside": [{"pid": 900, "threads": sender}],
            "cpus": [self._cpu(cpu, at_s) for cpu in range(self.cpus)],
        }

    def _thread(self, tid: int, name: str, parts: Sequence[Made], at_s: float) -> dict[str, Any]:
        spent = [(made, max(0.0, min(made.end_s, at_s) - made.begin_s)) for made in parts]
        now = [made for made in parts if made.begin_s <= at_s <= made.end_s]
        return {
            "tid": tid,
            "name": name,
            "cpu_ns": round(sum(s * made.ran for made, s in spent) * 1e9),
            "wait_ns": round(
                sum(s * made.waited for made, s in spent if not self.late_wait or at_s > made.end_s)
                * 1e9
            ),
            "slices": round(sum(s * 1000 for made, s in spent if made.ran)),
            "state": now[-1].state if now else "S",
            "wait_channel": now[-1].sleeps_in or "" if now else "",
            "last_cpu": now[-1].cpu if now else 0,
        }

    def _cpu(self, cpu: int, at_s: float) -> dict[str, int]:
        every = [made for parts in [*self.threads.values(), self.sender] for made in parts]
        ran = sum(
            made.ran * max(0.0, min(made.end_s, at_s) - made.begin_s)
            for made in every
            if made.cpu == cpu
        )
        within = self.softirq_in_threads.get(cpu, 0.0) * at_s
        threads = ran - within + self.others.get(cpu, 0.0) * at_s
        return {
            "cpu": cpu,
            "user_ns": round(threads * 1e9),
            **dict.fromkeys(("nice_ns", "system_ns", "guest_ns", "guest_nice_ns", "irq_ns"), 0),
            "softirq_ns": round((within + self.softirq.get(cpu, 0.0) * at_s) * 1e9),
            "steal_ns": round(self.stolen.get(cpu, 0.0) * at_s * 1e9),
        }

    def running(
        self,
        *losses: tuple[str, float, float, int],
        pps: float | Sequence[int] = 10_000,
        steady: bool = False,
        served: dict[str, int] | None = None,
        throttled: Sequence[tuple[float, float]] = (),
        ring_packets: int | None = 1000,
        over_time: Mapping[str, Sequence[Served]] | None = None,
        peaks: Sequence[tuple[int, int]] = (),
        roles: Mapping[str, ThreadRole] | None = None,
        flow_sizes: FlowShares | None = None,
    ) -> Running:
        """`losses`: (thread, from, to, packets); `pps`: a rate, or packets per 0.1 s; `throttled`:
        (at, seconds so far)."""
        ticks = round(self.seconds * 10)
        seen = timeline(self.rows())
        packets = [round(pps / 10)] * ticks if isinstance(pps, int | float) else pps
        return Running(
            offered_ns=(BEGIN_NS, BEGIN_NS + ticks * TICK_NS),
            timeline=seen,
            roles={tid: (roles or {})[n] for tid, n in seen.names.items() if n in (roles or {})},
            losses=[
                Losses(thread=t, begin_mono_ns=_at(b), end_mono_ns=_at(e), packets=n)
                for t, b, e, n in losses
            ],
            served=served or {},
            over_time=over_time or {},
            throttled=[(_at(at), s) for at, s in throttled],
            arrivals=Arrivals(
                first_ns=BEGIN_NS,
                interval_ns=TICK_NS,
                packets=packets,
                steady=steady,
                peaks=peaks,
            ),
            ring_packets=ring_packets,
            flow_sizes=flow_sizes,
        )


def made_up(*, lost: int, ran: float) -> Running:
    """One thread that did the same all the time, and lost."""
    world = World(threads={"W#01": [Made(ran=ran)]})
    return world.running(("W#01", 0, world.seconds, lost))


def _at(seconds: float) -> int:
    return BEGIN_NS + round(seconds * 1e9)


STEP_S = 0.0005
READ_S = 0.5
"""Time between two questions for its losses while packets come."""


@dataclass(slots=True, kw_only=True)
class Queue:
    """`rate(s)`: packets per second that come at that moment."""

    rate: Callable[[float], float]
    serves_pps: float
    ring_packets: int
    seconds: float = 3.0
    stalls: Callable[[float], bool] = lambda _: False
    """Whether it is kept off its CPU at that moment."""
    phase_s: float = 0.0
    """Time from the first packet to the first reading."""
    came: list[int] = field(init=False)
    """Per tick of 0.1 s."""
    over_time: list[Served] = field(init=False)
    losses: list[tuple[float, float, int]] = field(init=False)
    """(from, to, packets)"""
    served: int = field(init=False)

    def __post_init__(self) -> None:
        self.over_time, ticks = [], [0.0] * round(self.seconds * 10)
        waiting = served = lost = 0.0
        lost_by = [0.0]
        per_tick, per_look = round(0.1 / STEP_S), round(READ_S / STEP_S)
        steps, phase = round((self.seconds + 1) / STEP_S), round(self.phase_s / STEP_S)
        for n in range(steps + 1):
            if n % per_tick == phase:
                at_ns = BEGIN_NS + round(n * STEP_S * 1e9)
                self.over_time.append(
                    Served(mono_ns=at_ns, served=int(served), lost=int(lost), waiting=int(waiting))
                )
            if n and n % per_look == 0:
                lost_by.append(lost)
            came = self.rate(n * STEP_S) * STEP_S if n * STEP_S < self.seconds else 0.0
            if n < len(ticks) * per_tick:
                ticks[n // per_tick] += came
            can = 0.0 if self.stalls(n * STEP_S) else self.serves_pps * STEP_S
            done = min(waiting + came, can)
            over = max(0.0, waiting + came - done - self.ring_packets)
            waiting, served, lost = waiting + came - done - over, served + done, lost + over
        self.came, self.served = [round(packets) for packets in ticks], round(served)
        self.losses = [
            (n * READ_S, (n + 1) * READ_S, round(now - then))
            for n, (then, now) in enumerate(pairwise(lost_by))
            if round(now - then)
        ]


def bursts(
    every_s: float, lasts_s: float, pps: float, *, between: float = 0.0
) -> Callable[[float], float]:
    """`between`: packets per second that always come."""

    def rate(at_s: float) -> float:
        # Half a step of room: floats.
        within = (at_s + STEP_S / 2) % every_s < lasts_s
        return between + (pps if within else 0.0)

    return rate
