"""The threads beside the one that lost: who works behind it, and who had time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodrop.ledger.places import Knobs
from nodrop.ledger.running import Running
from nodrop.ledger.shares import Spans, Went, shares
from nodrop.ledger.thread_queue import SATURATED_SHARE
from nodrop.ledger.threads import Role

IDLE_SHARE = 0.5
"""A worker that had so little to do could have done twice its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    ran: float
    """Of the time of loss."""
    taken: float
    """Kept off its CPU."""

    @property
    def busy(self) -> float:
        return self.ran + self.taken

    def __str__(self) -> str:
        waited = f" and was kept off it {self.taken * 100:.0f} %" if self.taken >= 0.1 else ""
        return f"worker {self.name} used {self.ran * 100:.0f} % of one CPU{waited}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Workers of the same process, without the thread itself, the busiest first."""

    role: Role | None
    """Of the thread that lost."""
    workers: Sequence[Peer]

    @property
    def full(self) -> Peer | None:
        """A worker without time left, if the thread that lost hands its packets to workers."""
        if self.role is not Role.RECEIVE or not self.workers:
            return None
        return self.workers[0] if self.workers[0].busy >= SATURATED_SHARE else None

    @property
    def one_alone(self) -> bool:
        """Of several, the busiest has the work and all others had time left."""
        return len(self.workers) > 1 and self.workers[1].busy < IDLE_SHARE

    def waiting_for(self, full: Peer, thread: str, slept: float) -> str:
        words = (
            f"{full} while receive thread {thread}, which lost, slept {slept * 100:.0f} % of the "
            "time: it waits until workers give packets back"
        )
        others = len(self.workers) - 1
        if self.one_alone:
            words += f"; the other {others} had at most {self.workers[1].busy * 100:.0f} % to do"
        return words

    def relief(self, knobs: Knobs) -> str:
        """What touches a worker that is full."""
        if self.one_alone:
            return (
                f"{knobs.less_work}, or less load of the flows that one worker has; a larger ring "
                "does not help, and more workers only if those are several flows: one flow stays "
                "on its worker"
            )
        return (
            f"{knobs.workers}, {knobs.less_work}, or less load; a larger ring only moves the burst"
        )

    def beside_saturated(self) -> str:
        """What the others had to do while the thread that lost was at its limit."""
        if not self.workers or self.workers[0].busy >= SATURATED_SHARE:
            return ""
        whose = "its workers" if self.role is Role.RECEIVE else "the other workers"
        return f"; {whose} had at most {self.workers[0].busy * 100:.0f} % of one CPU to do"

    def evidence(self) -> Mapping[str, float]:
        if not self.workers:
            return {}
        busiest = self.workers[0]
        return {"workers": len(self.workers), "busiest_worker_ran_ratio": round(busiest.ran, 3)}


def peers(running: Running, tid: int, spans: Spans) -> Peers:
    seen = running.timeline
    found = []
    for other, role in running.roles.items():
        same = seen.processes.get(other) == seen.processes.get(tid)
        if other == tid or role is not Role.WORKER or not same:
            continue
        went = shares(seen, other, spans, running.throttled_ns(spans))
        if went is not None:
            ran = went.of[Went.RAN]
            # A worker without work does not run at all either: nothing holds that one.
            taken = went.taken - went.of[Went.STILL]
            found.append(Peer(name=seen.names[other], ran=ran, taken=taken))
    found.sort(key=lambda peer: -peer.busy)
    return Peers(role=running.roles.get(tid), workers=found)
