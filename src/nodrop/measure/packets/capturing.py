"""The world of a load of packets: each is counted at every hop, and the books close to zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from nodrop.ledger.hops import ring_of
from nodrop.ledger.outcome import Problem, Reason
from nodrop.measure.offering import (
    Offering,
    close_books,
    moved,
    observe,
    offer,
    unjoined,
    worked_off,
)
from nodrop.measure.packets import instances
from nodrop.measure.packets.books import Observed
from nodrop.measure.packets.instances import Places, each_port, instance_books
from nodrop.measure.packets.readings import Reading
from nodrop.measure.sampling import Sampler
from nodrop.measure.standing import StandingWorld, out_of_memory
from nodrop.sensor.suricata_counters import lost_analysis
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.suts.api import SutCounters


class PacketsWorld(StandingWorld):
    """A `Standing`."""

    provision: Callable[..., AbstractContextManager[Places]] = staticmethod(instances.provision)

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._rest: Reading | None = None
        """Counters of every place when the last trial was at rest. The next trial begins there, so
        nothing falls between the two."""
        self._before: Reading
        self._offering: Offering

    def _read_before(self, sampler: Sampler) -> None:
        seen = self.trial.seen
        self._before = before = self._rest or self.places.read()
        if self._stays:
            held = before.capture["reassembly"]["queues"]
            seen.facts["offer"] = {
                "number": self._offers,
                "held_incomplete_datagrams": held,
            }
            seen.world.repeats_flows = self._offers > 1 and self._offerer.flows != "new"
        self._sampler = sampler

    def _offer(self) -> None:
        self._offering = Offering(
            self.trial,
            self.places,
            self.each,
            self._offerer,
            self._sampler,
            self._before,
            polls=self._parts.sut(self._cell).polls,
        )
        self._offering.offer()

    def _drain(self) -> None:
        seen = self.trial.seen
        arrived = self.places.read()
        seen.facts["sut"] = instances.facts(self.each)
        observed = self._observed(self._before, arrived)
        seen.packets.drained = instances.drain(
            self.each,
            expected_packets=observed.expected_captured_packets,
            timeout_s=self._settings.drain_timeout_s,
        )

    def _rested(self) -> None:
        self._offering.drained()

    def _read_after(self) -> None:
        self.trial.seen.packets.readings = self._before, self.places.read()

    def _keep(self, each: Sequence[SutCounters]) -> None:
        self.trial.seen.packets.each = each

    def _look_back(self) -> None:
        self._offering.look_back(self._parts.sut(self._cell), self._load)

    def _warm_up_cold(self) -> Json:
        work = self.trial.folder.path
        if self._stays:
            offered = offer(self._offerer, lambda _sent: None)
            self._offerer.aim(self._load, work=work)
        else:
            link = self._link(self._cell.load)
            with self._load.prepare(link, work=work, journal=self._journal) as first:
                offered = offer(first, lambda _sent: None)
        instances.drain(self.each, expected_packets=None, timeout_s=self._settings.drain_timeout_s)
        for one in self.each:
            one.mark()
        return {"offered_packets": offered.sent_packets}

    def _observed(self, before: Reading, after: Reading) -> Observed:
        sut = self._parts.sut(self._cell)
        return observe(self.places, self._load.trace_facts(), sut, self.trial.seen, before, after)

    def _balance(self) -> None:
        seen, measure, load = self.trial.seen, self._settings, self._load
        counted = seen.packets
        assert counted.readings is not None
        before, after = counted.readings
        self.look_around()
        seen.problems += moved(self.places, after)
        if killed := out_of_memory(seen):
            seen.problems.append(Problem(code=Reason.SUT_DIED, words=killed))
        observed = self._observed(before, after)
        counted.instances = instance_books(
            self.places, before, after, counted.each, ring=ring_of(self._parts.sut(self._cell))
        )
        if counted.counters is not None:
            facts = load.trace_facts()
            parts = () if facts is None else facts.parts
            counted.ports = each_port(self.places, before, after, counted.counters, parts)
        counted.worked_off = worked_off(self.places, seen)
        joined = self._parts.lab.mtu is not None  # by nodrop itself
        strangers = () if joined else unjoined(self.places, observed)
        close_books(observed, load, measure, seen, strangers)
        self._rest = after

    def _closed(self) -> bool:
        ledger = self.trial.seen.packets.ledger
        return ledger is not None and ledger.closed

    def _full_memory(self) -> str:
        counters = self.trial.seen.packets.counters
        counted = {} if counters is None else counters.results
        full = {row.setting for row, name in lost_analysis(counted) if row.memcap and counted[name]}
        return f"its memory was full ({', '.join(sorted(full))})" if full else ""
