"""The world of a load that the SUT answers: both have addresses, and talk once it is ready."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop.errors import BadKey
from nodrop.ledger import sender
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.sender import SenderLimits, Sending
from nodrop.ledger.transactions import judge_transactions, together
from nodrop.measure.api import Servants
from nodrop.measure.busy import Others
from nodrop.measure.cells import Table
from nodrop.measure.offering import Throttling, foreign_ratio, offer, read_timeline, steal_ratio
from nodrop.measure.packets import instances
from nodrop.measure.packets.instances import Places
from nodrop.measure.sampling import Sampler, rows_of_processes
from nodrop.measure.standing import StandingWorld, out_of_memory
from nodrop.results.trial import Live
from nodrop.testbed.hosts.api import Json, Link, UndoJournal
from nodrop.testbed.hosts.control_groups import own_quotas
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.processes import allowed_cpus
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.addresses import RECEIVER, addressed
from nodrop.testbed.labs.split import Splitter
from nodrop.testbed.load.api import OffersTransactions
from nodrop.testbed.setups.api import Limits, Setup
from nodrop.testbed.suts.api import AnsweringSut, SutCounters


@contextmanager
def provision_each(
    setup: Setup,
    number: int,
    link: Link,
    *,
    ports: int = 1,
    splitter: Splitter,
    bits: Bits | None,
    limits: Limits,
    work: Path,
    journal: UndoJournal,
) -> Iterator[Places]:
    """Places of several instances behind one address: no packet is shared among them, as each
    association leads to one."""
    del ports, splitter
    if number > 1 and setup.name != "bare":
        raise BadKey(
            "setup.instances",
            "instances that answer a load share the address of the "
            'receiving port, which setup.kind = "bare" alone leaves where it is; leave it out',
            given=str(number),
        )
    with ExitStack() as stack:
        envs = instances.place_on(setup, [link] * number, bits, limits, work, journal, stack)
        yield Places(replace(link, further=()), envs, None)


class TransactionsWorld(StandingWorld):
    """A `Standing`."""

    provision = staticmethod(provision_each)
    answers = True

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._has_addresses = False
        self._outside: LocalHost | None = None
        """Sender's host, if the SUT is no part of the lab."""
        self._sampler: Sampler
        self._throttling: Throttling
        self._servants: Servants
        self._span_ns = 0, 0
        """Begin and end of the time in which the load was offered."""

    def prepare(self, load: Table, stack: ExitStack) -> None:
        if not self._has_addresses:
            # The last port on the way: a container may have a macvtap on top of the NIC.
            rx = instances.capture_port(self.places.envs[0])
            stack.enter_context(addressed(self.places.link.tx, rx))
            self._has_addresses = True
            if any(sut.lies_outside for sut in self._answering()):
                here = LocalHost(
                    name="this host", node=find_node_binary(), label=self._journal.label
                )
                self._outside = stack.enter_context(closing(here))
        super().prepare(load, stack)

    def _link(self, load: Table) -> Link:
        link, answering = super()._link(load), self._answering()
        if self._outside is not None:
            # The lab's port is of no use: the lab's network ends in it.
            link = replace(link, tx=replace(link.tx, host=self._outside))
        return replace(link, servers=[one.server(RECEIVER) for one in answering])

    def _answering(self) -> Sequence[AnsweringSut]:
        return [one for one in self.each if isinstance(one, AnsweringSut)]

    def _read_before(self, sampler: Sampler) -> None:
        self._sampler = sampler
        roots, servants = instances.roots(self.each), instances.servants(self.each)
        senders = [process for process in self._offerer.processes if process.host.here]
        self._cpus = allowed_cpus(roots), allowed_cpus(senders)
        self._throttling, self._servants = Throttling(roots), Servants(servants)
        ours = (*roots, *senders, *servants)
        self._ours = {os.getpid(), *(one.pid for one in ours if one.host.here)}

    def _offer(self) -> None:
        seen = self.trial.seen
        others, quotas = Others(self._ours), own_quotas()
        begin_ns = self._sampler.mark("offer")

        def tick(started: int | None) -> None:
            self._throttling.look()
            now_ns, offerer = time.monotonic_ns(), self._offerer
            told = offerer if isinstance(offerer, OffersTransactions) else None
            self.trial.tell(
                Live(
                    mono_ns=now_ns,
                    phase="offer",
                    offering_s=(now_ns - begin_ns) / 1e9,
                    intended_s=self._offerer.intended_duration_s,
                    intended_packets=self._offerer.intended_packets,
                    sent_packets=started,
                    unit="transactions",
                    completed=None if told is None else told.completed,
                    in_progress=None if told is None else told.in_progress,
                )
            )

        seen.offered = offer(self._offerer, tick)
        self._span_ns = begin_ns, self._sampler.mark("offered")
        used = seen.resources
        used.programs, used.quota = others.used(), sender.rise(quotas, own_quotas())

    def _drain(self) -> None:
        seen = self.trial.seen
        seen.facts["sut"] = instances.facts(self.each)
        timeout_s = self._settings.drain_timeout_s
        instances.drain(self.each, expected_packets=None, timeout_s=timeout_s)

    def _rested(self) -> None:
        used = self.trial.seen.resources
        used.servants, used.throttled_s = self._servants.used(), self._throttling.look()

    def _read_after(self) -> None:
        """Reads nothing: no counter of the way says what became of a transaction."""

    def _keep(self, each: Sequence[SutCounters]) -> None:
        assert self.trial.seen.answers is not None
        self.trial.seen.answers.each = each

    def _look_back(self) -> None:
        seen, link = self.trial.seen, self.places.link
        used, answers = seen.resources, seen.answers
        assert seen.offered is not None and answers is not None
        answering = self._answering()
        messages = [sut.messages for sut in answering]
        known = [message for message in messages if message is not None]
        # A cold place counted the load that warmed it up, too.
        whole = len(known) == len(messages) and not seen.facts.get("warm_up")
        answers.messages = together(known) if whole else None
        if len(answering) == 1:
            answers.round_trips = answering[0].round_trips
        path = self.trial.folder.samples(link.rx.host.name)
        host = read_timeline(path)
        used.sut_cpus = tuple(sorted(self._cpus[0]))
        used.cpus = tuple(sorted(self._cpus[0] | self._cpus[1]))
        used.steal_ratio = steal_ratio(host, self._span_ns, *self._cpus)
        cpu_s = seen.offered.cpu_s if link.tx.host.here else None
        each = [foreign_ratio(host, self._span_ns, some, cpu_s) for some in self._cpus]
        used.foreign_cpu_ratio = each[0]
        used.others_ratio = max((ratio for ratio in each if ratio is not None), default=None)
        before = [row for row in rows_of_processes(path) if row["mono_ns"] <= self._span_ns[0]]
        if before:
            processes = before[-1]["processes"]
            answers.rss_before_bytes = sum(process["rss_bytes"] for process in processes)

    def _warm_up_cold(self) -> Json:
        work = self.trial.folder.path
        discarded = offer(self._offerer, lambda _sent: None)
        self._offerer.aim(self._load, work=work)
        return {"offered_transactions": discarded.sent_packets}

    def _balance(self) -> None:
        seen, offered = self.trial.seen, self.trial.seen.offered
        assert offered is not None and seen.answers is not None
        self.look_around()
        if killed := out_of_memory(seen):
            seen.problems.append(Problem(code=Reason.SUT_DIED, words=killed))
        error = offered.schedule_error_us
        sending = Sending(
            unit="transaction" if offered.transactions is None else offered.transactions.name,
            intended_packets=offered.intended_packets,
            sent_packets=offered.sent_packets,
            duration_s=offered.duration_s,
            intended_duration_s=offered.intended_duration_s,
            constant_rate=True,
            schedule_error_p99_us=None if error is None else error.p99,
            quota=seen.resources.quota if self.places.link.tx.host.here else None,
        )
        seen.verdict = judge_transactions(
            offered.transactions,
            sending,
            bounds=SenderLimits(
                schedule_error_p99_us=self._settings.late_p99_us,
                late_ratio=self._load.late_ratio,
                unsent_ratio=self._settings.unsent_max_ratio,
            ),
            problems=seen.problems,
            of_sut=seen.answers.messages,
        )

    def _closed(self) -> bool:
        offered = self.trial.seen.offered
        seen = None if offered is None else offered.transactions
        return seen is not None and not seen.residual
