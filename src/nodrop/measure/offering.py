"""Offers a load while the SUT is watched; says afterwards how it ran, and when it lost.

Live counters and CPU time (`Feed`), what serves the SUT on the host, and whether its CPU was
throttled are read while packets come; the rest is made of samples once it is at rest.
"""

from __future__ import annotations

import os

from nodrop.hosts.control_groups import own_quotas
from nodrop.hosts.inside import allowed_cpus
from nodrop.ledger import quota
from nodrop.ledger.stolen import lost_beyond_steal
from nodrop.load.seam import LoadGenerator, OfferedLoad, Offerer, Tick
from nodrop.measure import together
from nodrop.measure.busy import Others
from nodrop.measure.live import Feed
from nodrop.measure.packets.readings import Reading
from nodrop.measure.packets.threads import thread_books
from nodrop.measure.places import Places
from nodrop.measure.running import (
    choose,
    foreign_ratio,
    peaks,
    read_timeline,
    running,
    steal_ratio,
)
from nodrop.measure.sampling import Sampler
from nodrop.measure.seam import Trial
from nodrop.measure.servants import Servants
from nodrop.measure.throttling import Throttling
from nodrop.suts.seam import Sut

OFFER_GRACE_S = 60.0
"""Beyond the intended duration: a sender that is later than this is ended."""


class Offering:
    """One load of one trial: begun, offered, drained, and looked back at, in this order."""

    def __init__(
        self,
        trial: Trial,
        places: Places,
        each: together.Each,
        offerer: Offerer,
        sampler: Sampler,
        before: Reading,
    ) -> None:
        self._trial, self._places, self._each, self._sampler = trial, places, each, sampler
        self._offerer, nics = offerer, [nic.name for nic in places.nics]
        roots = together.roots(each)
        senders = [one for one in offerer.processes if one.host.here]
        self._cpus = allowed_cpus(roots), allowed_cpus(senders)
        """Those that the SUT may use, and the sender, if it is on the same machine."""
        self._feed = Feed(
            lambda: together.live(each),
            sampler,
            offerer,
            nics=nics,
            cpus=max(1, len(self._cpus[0])),
            received_before=sum(before.nic["links"][nic]["stats"]["rx_packets"] for nic in nics),
            tell=trial.tell,
        )
        self._feed.begin()
        servants = together.servants(each)
        self._servants = Servants(servants)
        self._throttling = Throttling(roots)
        ours = (*roots, *senders, *servants)
        self._ours = {os.getpid(), *(one.pid for one in ours if one.host.here)}

    def offer(self) -> None:
        seen = self._trial.seen
        others, quotas = Others(self._ours), own_quotas()
        self._offer_ns = self._sampler.mark("offer")

        def tick(sent_packets: int | None) -> None:
            self._feed.tick(sent_packets)
            self._throttling.look()

        seen.offered = offer(self._offerer, tick)
        self._offered_ns = self._sampler.mark("offered")
        self._throttling.look()
        used = seen.resources
        used.programs, used.quota = others.used(), quota.rise(quotas, own_quotas())
        counted = together.live(self._each)
        seen.packets.decoded_when_offered = None if counted is None else counted.decoded_packets

    def drained(self) -> None:
        used = self._trial.seen.resources
        used.servants, used.throttled_s = self._servants.used(), self._throttling.look()

    def look_back(self, sut: Sut, load: LoadGenerator) -> None:
        """When packets were lost, how the SUT ran, and what others took of its CPUs and of the
        sender's."""
        seen, folder, link = self._trial.seen, self._trial.folder, self._places.link
        counted, used, cpus = seen.packets, seen.resources, self._cpus
        assert seen.offered is not None and used.usage is not None
        drained_ns = used.usage.marks_mono_ns["drained"]
        counters = counted.counters = together.total(counted.each)
        self._feed.at_rest(counters, seen.offered, drained_ns)
        offered_ns = self._offer_ns, self._offered_ns
        until_ns = self._offered_ns if self._places.delivers_at_once else drained_ns
        counted.losses = self._feed.losses(begin_ns=self._offer_ns, end_ns=until_ns)
        host = read_timeline(folder.samples(link.rx.host.name))
        guests = [read_timeline(folder.samples(n), off) for n, off in used.clock_offsets_ns.items()]
        used.busy = [b for b in self._feed.busy if offered_ns[0] <= b.mono_ns <= offered_ns[1]]
        used.sut_cpus = tuple(sorted(cpus[0]))
        used.steal_ratio = steal_ratio(host, offered_ns, *cpus)
        sender_cpu_s = seen.offered.cpu_s if link.tx.host.here else None
        each = [foreign_ratio(host, offered_ns, some, sender_cpu_s) for some in cpus]
        used.foreign_cpu_ratio = each[0]
        used.others_ratio = max((ratio for ratio in each if ratio is not None), default=None)
        used.cpus = tuple(sorted(cpus[0] | cpus[1]))
        facts = load.trace_facts()
        counted.flow_sizes = facts.flow_sizes
        counted.window = None if facts.source is None else facts.source.window
        counted.threads = thread_books(
            sut, counters, choose(host, guests, counters.per_thread), offered_ns
        )
        counted.running = running(
            choose(host, guests, {one.thread for one in counted.losses or () if one.thread}),
            seen.offered,
            offered_ns=offered_ns,
            losses=counted.losses,
            counters=counters,
            throttled=((self._offer_ns, 0.0), *self._throttling.readings),
            holds_packets=seen.facts["sut"].get("holds_packets"),
            constant_rate=load.constant_rate,
            clock_offset_ns=link.tx.host.clock_offset_ns,
            steal_ratio=used.steal_ratio,
            role=sut.role,
            flow_sizes=counted.flow_sizes,
            peaks=peaks(facts, seen.offered),
        )
        used.lost_beyond_steal = lost_beyond_steal(
            counted.running, host, frozenset().union(*cpus), until_ns
        )


def offer(offerer: Offerer, tick: Tick) -> OfferedLoad:
    intended_s = offerer.intended_duration_s or 0.0
    return offerer.offer(timeout_s=intended_s * 2 + OFFER_GRACE_S, tick=tick)
