"""Several instances or ports of a SUT: their places, what each was given, its part of the books.

Each part is balanced as well as the sum, because a sum can hide two errors that make up for each
other, and because how unevenly the work fell is half of the answer.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Account, Class, Hop, Place
from nodrop.ledger.outcome import Reason
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Branched, Reading, Readings, Received
from nodrop.protocol import Counters
from nodrop.results.packet_books import Port
from nodrop.testbed.hosts.api import (
    Host,
    HostProcess,
    Json,
    LabPort,
    Link,
    UndoJournal,
    counters_at,
    counters_of,
    rise,
)
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.split import CopySplit, HookSplit, Split, Splitter, split, split_to_ports
from nodrop.testbed.load.api import OfferedLoad, TraceFacts
from nodrop.testbed.setups.api import Env, Limits, Proof, SamplesInside, Setup
from nodrop.testbed.suts.api import (
    COUNTS,
    NAMED_COUNTS,
    NOTHING_SAID,
    Drained,
    Readiness,
    RunningSut,
    Sut,
    SutCounters,
    sum_of_known,
)

# The SUT in all of its places: ready when the last is, counting what all count together.
#
# One is the ordinary case, and is asked directly.

T = TypeVar("T")
STOP_TIMEOUT_S = 30.0
DRAIN_POLL_S = 0.1
AT_REST_S = 5.0
"""Longer than a SUT's counters may lie behind."""

Each = Sequence[RunningSut]
"""The running SUT, one in each place."""


def launch(sut: Sut, envs: Sequence[Env], stack: ExitStack) -> Each:
    """One in each place; each is on the way to its end as soon as it runs. Its place has
    journalled what must not outlive us: its PID here may be that of a machine of the user's."""
    running = []
    for env in envs:
        running.append(sut.launch(env))
        stack.push(partial(_end, running[-1]))
    return tuple(running)


def _end(running: RunningSut, error: type[BaseException] | None, *_: object) -> None:
    if (close := getattr(running, "close", None)) is not None:
        close()
    if running.process.poll() is not None:
        return
    if error is not None and not issubclass(error, Exception):
        running.process.signal(signal.SIGKILL)  # Ctrl-C: no one reads its last words
    running.process.stop(timeout_s=STOP_TIMEOUT_S)


def roots(each: Each) -> Sequence[HostProcess]:
    """Roots of the process trees that are the SUT."""
    return tuple(one.process.root for one in each)


def programs(each: Each) -> Sequence[HostProcess]:
    """Programs of the SUT that run, on the hosts whose kernels run them."""
    return tuple(found for one in each if (found := one.process.inside()) is not None)


def servants(each: Each) -> Sequence[HostProcess]:
    """Servants of all instances, each once: one daemon serves every container."""
    return tuple(dict.fromkeys(servant for one in each for servant in one.process.servants()))


def proof(each: Each) -> Proof | None:
    """Proof of the first instance; LabProblem if the instances do not run the same."""
    first, *others = [one.process.proof() for one in each]
    if any(p and first and p != first for p in others):
        raise LabProblem("the instances do not run the same program and rules")
    return first


def facts(each: Each) -> Json:
    found = [one.facts() for one in each]
    return found[0] if len(found) == 1 else {**found[0], "instances": found}


def wait_ready(each: Each, *, timeout_s: float) -> Readiness:
    deadline = time.monotonic() + timeout_s
    found = [one.wait_ready(timeout_s=deadline - time.monotonic()) for one in each]
    if len(found) == 1:
        return found[0]
    last = max(found, key=lambda ready: ready.ready_mono_ns)
    return replace(last, evidence={"instances": [dict(ready.evidence) for ready in found]})


def live(each: Each) -> SutCounters | None:
    found = [one.live() for one in each]
    known = [one for one in found if one is not None]
    return total(known) if len(known) == len(found) else None


def finish(each: Each, *, timeout_s: float) -> Sequence[SutCounters]:
    """Last counters of each instance; an instance takes a second or two to end."""
    return _of_each(each, lambda one: one.finish(timeout_s=timeout_s))


def counted(each: Each) -> Sequence[SutCounters]:
    """Counters of each instance at rest; what comes from now on is the next trial's."""
    found = _of_each(each, lambda one: one.counted())
    for one in each:
        one.mark()
    return found


def drain(each: Each, *, expected_packets: int | None, timeout_s: float) -> Drained:
    if len(each) == 1:
        return each[0].drain(expected_packets=expected_packets, timeout_s=timeout_s)
    seen = None if any(one.process.quiet for one in each) else live(each)
    if seen is None or seen.captured_packets is None:
        # Must not be asked while they are measured, or cannot be seen by this user. Each knows when
        # it is at rest, though not how many packets are its share.
        return _the_last(
            _of_each(each, lambda one: one.drain(expected_packets=None, timeout_s=timeout_s))
        )
    return _drained_together(each, expected_packets=expected_packets, timeout_s=timeout_s)


def _drained_together(each: Each, *, expected_packets: int | None, timeout_s: float) -> Drained:
    """None knows its share, so their sum has to come to rest."""
    unchanged_since = time.monotonic()
    last: tuple[int | None, ...] = ()
    for _ in looks(timeout_s, every_s=DRAIN_POLL_S):
        seen, now = live(each), time.monotonic()
        # Of packets alone: what a SUT says of its own housekeeping never rests.
        counted = () if seen is None else _packets(seen)
        if counted != last:
            unchanged_since, last = now, counted
        rests = seen is not None and seen.captured_packets == expected_packets
        rests = rests or now - unchanged_since >= AT_REST_S
        if rests and seen is not None and _balanced(seen):
            return Drained(rested_mono_ns=int(unchanged_since * 1e9))
        if any(one.process.poll() is not None for one in each):
            raise TrialFailed("an instance ended before it was stopped")
    raise TrialFailed(
        f"the counters of {len(each)} instances do not come to rest within {timeout_s:g} s",
        reason=Reason.NOT_DRAINED,
    )


def _of_each(each: Each, asked: Callable[[RunningSut], T]) -> list[T]:
    """All at once. The pool waits for its threads, and they for the SUTs: if one fails, or
    Ctrl-C ends the trial, nothing is worth waiting for, and the SUTs are killed."""
    if len(each) == 1:
        return [asked(each[0])]
    with ThreadPoolExecutor(len(each)) as pool:
        try:
            answers = [pool.submit(asked, one) for one in each]
            return [answer.result() for answer in answers]
        except BaseException:
            for one in each:
                one.process.signal(signal.SIGKILL)
            raise


def _the_last(each: Sequence[Drained]) -> Drained:
    """Rest of all instances: they rest when the last of them does."""
    busy = [one.busy_mono_ns for one in each if one.busy_mono_ns is not None]
    return Drained(
        rested_mono_ns=max(one.rested_mono_ns for one in each),
        busy_mono_ns=max(busy, default=None),
        left_packets=sum_of_known(one.left_packets for one in each),
    )


def _packets(seen: SutCounters) -> tuple[int | None, ...]:
    return seen.captured_packets, seen.dropped_ring_full_packets, seen.decoded_packets


def _balanced(seen: SutCounters) -> bool:
    captured, dropped = seen.captured_packets, seen.dropped_ring_full_packets
    return captured is not None and captured - (dropped or 0) == seen.decoded_packets


def total(each: Sequence[SutCounters]) -> SutCounters:
    """The sum; what one does not say is not known of all."""
    if len(each) == 1:
        return each[0]

    def of_each(name: str) -> list[Any]:
        return [getattr(one, name) for one in each]

    sums: dict[str, Any] = {name: sum_of_known(of_each(name)) for name in COUNTS}
    sums |= {name: _added(of_each(name)) for name in NAMED_COUNTS}
    return SutCounters(
        **sums,
        counts_wire_bytes=all(one.counts_wire_bytes for one in each),
        checksum_knob=each[0].checksum_knob,
        per_thread=_numbered([one.per_thread for one in each]),
        over_time=_numbered([one.over_time for one in each]),
        lag_s=max(one.lag_s for one in each),
        per_thread_lag_s=max(one.per_thread_lag_s for one in each),
        sources={k: f"{v}, all instances" for k, v in each[0].sources.items()},
    )


def _added(each: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found = Counter[str]()
    for one in each:
        found.update(one)
    return dict(found)


def _numbered(each: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """Values by thread, each after its instance: `0:W#01` is a thread of the first."""
    return {f"{i}:{name}": value for i, one in enumerate(each) for name, value in one.items()}


# Where the SUT runs: a sequence of places. One is the ordinary case; several share the packets.
#
# Behind a split each instance has a place and a NIC of its own, or one SUT has several ports.
# `Places` is what the measurer sees of all of them: what is before the split, what each place
# counts, and how to undo it.

BY_CABLE = "a cable to each port, the sender shares flows among them"


class Places:
    """Provisioned places, in the order of the instances."""

    def __init__(
        self, link: Link, envs: Sequence[Env], parts: Split | None, *, ports: bool = False
    ) -> None:
        self.envs = tuple(envs)
        self.split = parts
        """The split that shares the packets; None in front of a port that gets them all."""
        self.ports: Sequence[LabPort] = link.rx_ports if link.further else ()
        """Ports of the one SUT, if several share the packets."""
        if parts is not None and ports:
            self.ports = parts.nics
        self.link = link if parts is None else _led(link, parts)
        """The link with the addresses that a sender has to write into its frames."""

    @property
    def instances(self) -> Sequence[Env]:
        """Places of several instances; () if there is but one instance."""
        return () if self.split is None or self.ports else self.envs

    @property
    def nics(self) -> Sequence[LabPort]:
        """The receiving NICs, ahead of any split, one for each cable; known once the SUT is
        launched. () if no driver of the kernel has it."""
        if self.split is not None or self.link.further:
            return self.link.rx_ports
        nic = self.envs[0].nic
        return () if nic is None else (nic,)

    @property
    def nic_host(self) -> Host:
        """The host of the NICs, or of the link if no driver of the kernel has them."""
        return next((nic.host for nic in self.nics), self.link.rx.host)

    @property
    def capture(self) -> Sequence[LabPort]:
        """The last ports on the way of all packets: of several instances, the one before them."""
        if self.ports or not self.nics:
            return self.ports
        return (capture_port(self.envs[0]),) if self.split is None else self.nics

    @property
    def keeps_frames(self) -> bool:
        """A split hands each frame to one of several, as it came."""
        return isinstance(self.split, HookSplit) and not self.copies

    @property
    def copies(self) -> bool:
        """Each of several instances gets all packets. No trace says what the kernel puts together
        of copies."""
        return isinstance(self.split, CopySplit)

    @property
    def cold(self) -> bool:
        return any(env.cold for env in self.envs)

    @property
    def delivers_at_once(self) -> bool:
        return all(env.delivers_at_once for env in self.envs)

    def read(self) -> Reading:
        tx, split = counters_of(self.link.tx_ports), self.split
        nic = counters_at(self.nic_host, self.nics)
        return Reading(
            tx=tx,
            nic=nic,
            capture=nic if self.capture == self.nics else counters_of(self.capture),
            place={} if split is not None else self.envs[0].read(),
            branched=None if split is None else self._branched(split),
        )

    def _branched(self, split: Split) -> Branched:
        return Branched(split=split.read(), instances=[_counted_at(env) for env in self.instances])

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        """Samples of machines inside the places, by name; with several instances, the instance's
        number ends the name."""
        return {
            f"{name}-{i}" if self.instances else name: samples
            for i, env in enumerate(self.envs)
            for name, samples in env.samples_inside().items()
        }

    def facts(self) -> Json:
        first = self.envs[0].facts()
        shared = {"ports": len(self.ports)} if self.ports else {"instances": len(self.envs)}
        if self.link.further:
            return {**first, **shared, "split": BY_CABLE}
        return first if self.split is None else {**first, **shared, "split": self.split.words}


@contextmanager
def provision(
    setup: Setup,
    instances: int,
    link: Link,
    *,
    ports: int = 1,
    splitter: Splitter,
    bits: Bits | None,
    limits: Limits,
    work: Path,
    journal: UndoJournal,
) -> Iterator[Places]:
    """Provisions as many places as there are instances. A SUT of one port has the first cable."""
    if ports == 1:
        link = replace(link, further=())
    with ExitStack() as stack:
        if instances == 1:
            shared = None
            if link.further:
                link = replace(link, capture_ports=[port.name for port in link.rx_ports])
            elif ports > 1:
                shared = stack.enter_context(split_to_ports(link, ports, splitter))
                link = replace(link, capture_ports=[port.name for port in shared.nics])
            envs = place_on(setup, [link], bits, limits, work, journal, stack)
            yield Places(link, envs, shared, ports=shared is not None)
            return
        parts = stack.enter_context(split(link, instances, splitter, journal))
        links = [Link(tx=link.tx, rx=nic) for nic in parts.nics]
        yield Places(link, place_on(setup, links, bits, limits, work, journal, stack), parts)


def place_on(
    setup: Setup,
    links: Sequence[Link],
    bits: Bits | None,
    limits: Limits,
    work: Path,
    journal: UndoJournal,
    stack: ExitStack,
) -> Sequence[Env]:
    """A place on each link, with a folder of its own if there are several."""
    envs = []
    for i, link in enumerate(links):
        folder = work if len(links) == 1 else work / f"instance-{i}"
        folder.mkdir(parents=True, exist_ok=True)
        place = setup.provision(link, bits=bits, limits=limits, work=folder, journal=journal)
        envs.append(stack.enter_context(place))
    return envs


def _led(link: Link, parts: Split) -> Link:
    return replace(link, dst_macs=parts.dst_macs, dst_macs_by=parts.dst_macs_by)


def capture_port(env: Env) -> LabPort:
    return LabPort(host=env.host, name=env.capture_interfaces[0])


def _counted_at(env: Env) -> Received:
    assert env.nic is not None, "a setup whose places stand alone"
    nic, capture = env.nic.counters(), capture_port(env)
    return Received(
        nic=nic, capture=nic if capture == env.nic else capture.counters(), place=env.read()
    )


def ports_hop(places: Places, before: Reading, after: Reading) -> Hop:
    names = [port.name for port in places.ports]
    return Hop(
        name="ports",
        packets=sum(_received(name, before, after) for name in names),
        counter=f"rx_packets of {', '.join(names)} (rtnl_link_stats64)",
        wire=True,
    )


def each_port(
    places: Places,
    before: Reading,
    after: Reading,
    counters: SutCounters,
    traces: Sequence[TraceFacts] = (),
) -> Sequence[Port]:
    """Empty if one port gets all packets. `traces`: of each port, if they share none."""
    found = []
    for number, name in enumerate(port.name for port in places.ports):
        said = counters.per_port.get(name, {})
        found.append(
            Port(
                port=name,
                trace=str(traces[number].path) if traces else None,
                received_packets=_received(name, before, after),
                captured_packets=said.get("captured_packets"),
                dropped_packets=said.get("dropped_ring_full_packets"),
            )
        )
    return found


def _received(port: str, before: Reading, after: Reading) -> int:
    return rise(before.capture, after.capture, port, "rx_packets")


_NOTHING_OFFERED = OfferedLoad(
    intended_packets=0,
    sent_packets=0,
    sent_bytes=0,
    duration_s=0,
    intended_duration_s=None,
    schedule_error_us=None,
    cpu_s=None,
    first_sent_mono_ns=None,
    last_sent_mono_ns=None,
)
_NOT_READ = Readings(before=cast(Counters, {}), after=cast(Counters, {}))
"""No sender is aimed at one instance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance's own part of the books, where several share the packets."""

    received_packets: int | None
    captured_packets: int | None
    decoded_packets: int | None
    lost_packets: int
    residual_packets: int | None
    closed: bool


def between(
    places: Places, before: Reading, after: Reading, each: Sequence[SutCounters], *, ring: Place
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """Hops and accounts of what the places put between the NIC and the sockets. With several
    instances: the split, the instances' NICs, what their places put in between, and what is taken
    out before each one's sockets, as sums. With several ports: the split and the SUT's ports.
    `each`: the instances' own counters, once known."""
    then, now = before.branched, after.branched
    if places.split is None or then is None or now is None:
        return places.envs[0].hops(before.place, after.place)
    if places.ports:
        hops = [places.split.hop(then.split, now.split), ports_hop(places, before, after)]
        return hops, places.split.accounts(then.split, now.split)
    found = parts(places, then, now, each, ring=ring)
    hops = [
        places.split.hop(then.split, now.split),
        Hop(
            name="instance_nic",
            packets=sum(part.nic.link(part.nic_ports, "rx_packets") for part in found),
            counter="rx_packets of the instances' NICs",
            wire=True,
        ),
        *_summed_hops([part.between[0] for part in found]),
    ]
    accounts = [*places.split.accounts(then.split, now.split)]
    for part in found:
        accounts += [*part.between[1], *books.into_socket(part)]
    return hops, _summed(a for a in accounts if a.packets)


def parts(
    places: Places, before: Branched, after: Branched, each: Sequence[SutCounters], *, ring: Place
) -> list[books.Observed]:
    """Counts of each instance; without its SUT's own counters while it is measured."""
    found = []
    for i, env in enumerate(places.envs):
        then, now = before.instances[i], after.instances[i]
        found.append(
            books.Observed(
                tx_ports=(),
                nic_ports=[nic.name for nic in (env.nic,) if nic is not None],
                capture_ports=env.capture_interfaces[:1],
                offered=_NOTHING_OFFERED,
                tx=_NOT_READ,
                nic=Readings(before=then.nic, after=now.nic),
                capture=Readings(before=then.capture, after=now.capture),
                between=env.hops(then.place, now.place),
                sut=each[i] if each else NOTHING_SAID,
                defrag=True,  # if the kernel does none, it has counted none
                fragments=None,
                ring=ring,
            )
        )
    return found


def instance_books(
    places: Places, before: Reading, after: Reading, each: Sequence[SutCounters], *, ring: Place
) -> list[Instance]:
    """Each instance's own part of the way, balanced; [] if there is but one."""
    if before.branched is None or after.branched is None or places.ports:
        return []
    found = []
    for part in parts(places, before.branched, after.branched, each, ring=ring):
        nic, *further = books.received_hops(part)
        # The split hands a VLAN tag over beside the frame: the veth then counts without it.
        hops = [replace(nic, bytes=None), *further]
        accounts = [*part.between[1], *books.into_socket(part), *books.into_decoded(part)]
        ledger = balance(hops, accounts)
        found.append(
            Instance(
                received_packets=hops[0].packets,
                captured_packets=part.sut.captured_packets,
                decoded_packets=part.sut.decoded_packets,
                lost_packets=ledger.total(Class.LOST),
                residual_packets=ledger.residual_packets,
                closed=ledger.closed,
            )
        )
    return found


def imbalance_ratio(parts: Sequence[Instance]) -> float | None:
    """How much more than its share the busiest instance received: 0 = all the same."""
    received = [part.received_packets or 0 for part in parts]
    if not received or not sum(received):
        return None
    return max(received) * len(received) / sum(received) - 1


def _summed_hops(each: Sequence[Sequence[Hop]]) -> list[Hop]:
    return [
        replace(together[0], packets=sum_of_known(hop.packets for hop in together))
        for together in zip(*each, strict=True)
    ]


def _summed(accounts: Iterator[Account]) -> list[Account]:
    """One account per class and counter, whichever instance it was counted at."""
    found: dict[tuple[str, str], Account] = {}
    for account in accounts:
        key = (account.into, account.name)
        earlier = found.get(key)
        if earlier is not None:
            account = replace(
                account, packets=earlier.packets + account.packets, evidence="", details=()
            )
        found[key] = account
    return list(found.values())
