"""The trial under way, read about twice a second from the thread that waits for the sender."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from nodrop.ledger.over_time import Busy, DropReading, Losses, losses
from nodrop.ledger.running import BusyThread
from nodrop.load.seam import OfferedLoad, Offerer
from nodrop.measure.sampling import Sampler, busiest_thread
from nodrop.protocol.events import SampleRow
from nodrop.results.live import Live
from nodrop.suts.seam import SutCounters

WINDOW_S = 2.0
"""A counter that is renewed often is averaged over this: its steps and our looks beat."""
STALE_S = 4.5
"""Suricata's decoders hand over every 3 s, and what gathers them looks once a second: a counter
that does not move for longer stands still."""


class SteppedRate:
    """Per second, over the time between changes and not between looks."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()
        self._rate: float | None = None

    def at(self, now_s: float, count: int | None) -> float | None:
        """None until the counter has moved once, or has stood still for long enough."""
        if count is None:
            return None
        if not self._changes:
            self._changes.append((now_s, count))
            return None
        changed_s, last = self._changes[-1]
        if count == last:
            if now_s - changed_s >= STALE_S:
                self._rate = 0.0
            return self._rate
        while len(self._changes) > 1 and self._changes[1][0] <= now_s - WINDOW_S:
            self._changes.popleft()
        since_s, before = self._changes[0]
        self._changes.append((now_s, count))
        self._rate = (count - before) / (now_s - since_s) if now_s > since_s else self._rate
        return self._rate


Tell = Callable[[Live], None]
COUNTED = ("sent", "received", "captured", "dropped", "decoded")


class Feed:
    """Joins what the sender, the sampler and the SUT say of now.

    None of this enters the books: those are read at rest. A reading costs the SUT one answer on
    its command socket. It costs the thread that sends nothing.
    """

    def __init__(
        self,
        sut: Callable[[], SutCounters | None],
        sampler: Sampler,
        offerer: Offerer,
        *,
        nics: Sequence[str],
        cpus: int,
        received_before: int,
        tell: Tell,
    ) -> None:
        self._sut, self._sampler, self._offerer = sut, sampler, offerer
        self._nics, self._received_before, self._tell = nics, received_before, tell
        self._cpus = cpus
        self._rates = {name: SteppedRate() for name in COUNTED}
        self._began_ns = 0
        self._row: SampleRow | None = None
        self._busiest: BusyThread | None = None
        self._drops: list[DropReading] = []
        self.busy: list[Busy] = []
        """CPU use of the SUT between readings, from the first packet on."""

    def begin(self) -> None:
        """The first reading: what the counters stand at before the first packet."""
        self._began_ns = time.monotonic_ns()
        self.tick(0)

    def tick(self, sent_packets: int | None) -> None:
        self._look_at_threads()
        self._say("offer", time.monotonic_ns(), sent_packets, self._sut())

    def at_rest(self, counters: SutCounters, offered: OfferedLoad, mono_ns: int | None) -> None:
        """The last reading: the final counters, which have stood since the drain."""
        self._look_at_threads()
        at_ns = time.monotonic_ns() if mono_ns is None else mono_ns
        self._say("drained", at_ns, offered.sent_packets, counters)

    def losses(self, *, begin_ns: int, end_ns: int) -> tuple[Losses, ...] | None:
        """When packets were lost, from all readings; the one at rest has been taken."""
        return losses(self._drops, begin_ns=begin_ns, end_ns=end_ns)

    def _say(
        self, phase: str, now_ns: int, sent_packets: int | None, sut: SutCounters | None
    ) -> None:
        received = self._received()
        counts = {
            "sent": sent_packets,
            "received": None if received is None else received - self._received_before,
            "captured": sut.captured_packets if sut else None,
            "dropped": sut.dropped_ring_full_packets if sut else None,
            "decoded": sut.decoded_packets if sut else None,
        }
        if sut is not None:
            self._drops.append(_drop_reading(sut, asked_mono_ns=now_ns))
        now_s = now_ns / 1e9
        # Rows come up to a second after they were taken.
        taken_s = {"received": self._row["mono_ns"] / 1e9} if self._row else {}
        rates = {
            name: self._rates[name].at(taken_s.get(name, now_s), counts[name])
            if phase == "offer"
            else None
            for name in COUNTED
        }
        self._tell(
            Live(
                mono_ns=now_ns,
                phase=phase,
                offering_s=(now_ns - self._began_ns) / 1e9,
                intended_s=self._offerer.intended_duration_s,
                intended_packets=self._offerer.intended_packets,
                sent_packets=counts["sent"],
                received_packets=counts["received"],
                captured_packets=counts["captured"],
                dropped_packets=counts["dropped"],
                dropped_by_thread=_dropped_by_thread(sut),
                decoded_packets=counts["decoded"],
                sent_pps=rates["sent"],
                received_pps=rates["received"],
                captured_pps=rates["captured"],
                dropped_pps=rates["dropped"],
                decoded_pps=rates["decoded"],
                busiest_thread=self._busiest,
            )
        )

    def _look_at_threads(self) -> None:
        row = self._sampler.newest()
        if row is None or (self._row is not None and row["mono_ns"] <= self._row["mono_ns"]):
            return
        if self._row is not None:
            self._busiest = busiest_thread((self._row, row))
            if self._busiest is not None:
                before_ns, now_ns = self._row["mono_ns"], row["mono_ns"]
                used_ns = row["tree"]["cpu_ns"] - self._row["tree"]["cpu_ns"]
                share = used_ns / (now_ns - before_ns) / self._cpus
                full = max(share, self._busiest.cpu_ratio)
                self.busy.append(Busy(mono_ns=(before_ns + now_ns) // 2, cpu_ratio=full))
        self._row = row

    def _received(self) -> int | None:
        links = self._row.get("links", {}) if self._row else {}
        if not all(nic in links for nic in self._nics):
            return None
        return sum(links[nic]["rx_packets"] for nic in self._nics)


def _drop_reading(sut: SutCounters, *, asked_mono_ns: int) -> DropReading:
    """Reading of the SUT's drops, from counters that have been answered by now."""
    answered_ns = time.monotonic_ns()
    asking_ns = answered_ns - asked_mono_ns
    return DropReading(
        mono_ns=answered_ns,
        dropped=sut.dropped_ring_full_packets,
        lag_ns=round(sut.lag_s * 1e9) + asking_ns,
        by_thread=_dropped_by_thread(sut),
        by_thread_lag_ns=round(sut.per_thread_lag_s * 1e9) + asking_ns,
    )


def _dropped_by_thread(sut: SutCounters | None) -> dict[str, int]:
    each = {} if sut is None else sut.per_thread
    name = "dropped_ring_full_packets"
    return {thread: counted[name] for thread, counted in each.items() if name in counted}
