"""Several instances of one SUT share the packets of one NIC; to a trial they are one SUT.

The trial sees one place, one running SUT and one set of counters: the sums. Each instance's own
part of the books is balanced as well, because a sum can hide two errors that make up for each
other, and because how unevenly the work fell is half of the answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nodrop.errors import LabProblem, TrialFailed
from nodrop.hosts.seam import Host, Json, Link, NodeJob, Port, UndoJournal
from nodrop.images.bits import Bits
from nodrop.labs.branches import Split
from nodrop.labs.split import Splitter, split
from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.places import SOCKET_RING, Place
from nodrop.ledger.reasons import Reason
from nodrop.load.seam import OfferedLoad
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Readings
from nodrop.setups.local import LocalView
from nodrop.setups.seam import Env, Limits, Process, ProcessSpec, Proof, SamplesInside, Setup
from nodrop.suts.seam import Drained, Readiness, RunningSut, Sut, SutCounters

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
_NOTHING_SAID = SutCounters(
    captured_packets=None, dropped_ring_full_packets=None, decoded_packets=None
)
T = TypeVar("T")
STOP_TIMEOUT_S = 30.0
DRAIN_POLL_S = 0.1
AT_REST_S = 5.0
"""Longer than a SUT's counters may lie behind."""


@contextmanager
def several(
    setup: Setup,
    instances: int,
    link: Link,
    *,
    splitter: Splitter,
    bits: Bits | None,
    limits: Limits,
    work: Path,
    journal: UndoJournal,
    ring: Place = SOCKET_RING,
) -> Iterator[SeveralEnv]:
    """As many places as instances, each with a NIC of its own behind the split."""
    with ExitStack() as stack:
        parts = stack.enter_context(split(link, instances, splitter, journal))
        envs = []
        for i, nic in enumerate(parts.nics):
            folder = work / f"instance-{i}"
            folder.mkdir(parents=True, exist_ok=True)
            place = setup.provision(
                Link(tx=link.tx, rx=nic), bits=bits, limits=limits, work=folder, journal=journal
            )
            envs.append(stack.enter_context(place))
        yield SeveralEnv(link.rx, parts, envs, ring)


class SeveralEnv:
    """An Env (setups/seam.py) whose NIC is the one before the split."""

    work_inside = ""

    def __init__(self, nic: Port, parts: Split, envs: Sequence[Env], ring: Place) -> None:
        self.host: Host = nic.host
        self.nic = nic
        self.capture_interfaces: Sequence[str] = (nic.name,)
        self.bits = envs[0].bits
        self.cold = any(env.cold for env in envs)
        self.delivers_at_once = all(env.delivers_at_once for env in envs)
        self.envs = tuple(envs)
        self._split = parts
        self._ring = ring

    def launch(self, process: ProcessSpec) -> Process:
        raise LabProblem(f"instances are launched one by one, also of {process.argv[0]}")

    def job(self, spec: Mapping[str, Any]) -> NodeJob:
        raise LabProblem(f"instances are started one by one, also of job {spec['job']}")

    def read(self) -> Json:
        return {"split": self._split.read(), "instances": [_read(env) for env in self.envs]}

    @property
    def dst_macs(self) -> Sequence[str]:
        return self._split.dst_macs

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        return {
            f"{name}-{i}": samples
            for i, env in enumerate(self.envs)
            for name, samples in env.samples_inside().items()
        }

    def hops(self, before: Json, after: Json) -> tuple[Sequence[Hop], Sequence[Account]]:
        return self.way(before, after, None)

    def way(
        self, before: Json, after: Json, counters: Sequence[SutCounters] | None
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        """The split, the instances' NICs, what their places put in between, and what is taken out
        before each one's capture sockets: as sums."""
        parts = self.parts(before, after, counters)
        hops = [
            self._split.hop(before["split"], after["split"]),
            Hop(
                name="instance_nic",
                packets=sum(part.nic.link(part.nic_port, "rx_packets") for part in parts),
                counter="rx_packets of the instances' NICs",
                wire=True,
            ),
            *_summed_hops([part.between[0] for part in parts]),
        ]
        accounts = [*self._split.accounts(before["split"], after["split"])]
        for part in parts:
            accounts += [*part.between[1], *books.into_socket(part)]
        return hops, _summed(a for a in accounts if a.packets)

    def parts(
        self, before: Json, after: Json, counters: Sequence[SutCounters] | None = None
    ) -> list[books.Observed]:
        """What was counted of each instance; without its SUT's own counters while it runs."""
        found = []
        for i, env in enumerate(self.envs):
            then, now = before["instances"][i], after["instances"][i]
            found.append(
                books.Observed(
                    tx_port="",
                    nic_port=env.nic.name,
                    capture_port=env.capture_interfaces[0],
                    offered=_NOTHING_OFFERED,
                    tx=Readings(before={}, after={}),
                    nic=Readings(before=then["nic"], after=now["nic"]),
                    capture=Readings(before=then["capture"], after=now["capture"]),
                    between=env.hops(then["place"], now["place"]),
                    sut=counters[i] if counters else _NOTHING_SAID,
                    defrag=True,  # where none is done, the kernel has counted none
                    fragments=None,
                    ring=self._ring,
                )
            )
        return found

    def facts(self) -> Json:
        return {
            **self.envs[0].facts(),
            "instances": len(self.envs),
            "split": self._split.words,
        }


def _read(env: Env) -> Json:
    capture = Port(host=env.host, name=env.capture_interfaces[0])
    nic = _counters(env.nic)
    return {
        "nic": nic,
        "capture": nic if capture == env.nic else _counters(capture),
        "place": env.read(),
    }


def _counters(port: Port) -> Json:
    found: Json = port.host.probe("counters", ports=[port.name])["counters"]
    return found


def launch(sut: Sut, env: Env, stack: ExitStack) -> RunningSut:
    """One SUT, or one per instance; each is on the way to its end as soon as it runs. Its place has
    journalled what must not outlive us: its PID here may be that of a machine of the user's."""
    running = []
    for place in env.envs if isinstance(env, SeveralEnv) else (env,):
        running.append(sut.launch(place))
        stack.push(partial(_end, running[-1]))
    return running[0] if len(running) == 1 else RunningSeveral(running)


def _end(running: RunningSut, error: type[BaseException] | None, *_: object) -> None:
    if running.process.poll() is not None:
        return
    if error is not None and not issubclass(error, Exception):
        running.process.signal(signal.SIGKILL)  # Ctrl-C: nobody reads its last words
    running.process.stop(timeout_s=STOP_TIMEOUT_S)


def pids(process: Process) -> Sequence[int]:
    """Roots of the process trees that are the SUT."""
    return process.pids if isinstance(process, SeveralProcess) else (process.pid,)


class SeveralProcess(LocalView):
    """A Process (setups/seam.py) that stands for all of them."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._all = tuple(processes)
        first = self._all[0]
        self.pids = tuple(process.pid for process in processes)
        self.pid = first.pid
        self.work, self.stdout, self.stderr = first.work, first.stdout, first.stderr
        self.launched_mono_ns = min(process.launched_mono_ns for process in processes)
        self.phases_s = first.phases_s

    def poll(self) -> int | None:
        """The first that has ended speaks for all."""
        return next((s for s in (p.poll() for p in self._all) if s is not None), None)

    def proof(self) -> Proof | None:
        """Of the first; LabProblem where they do not run the same."""
        first, *others = [process.proof() for process in self._all]
        if any(p and first and p != first for p in others):
            raise LabProblem("the instances do not run the same program and rules")
        return first

    def servants(self) -> Sequence[int]:
        """Of all, each once: one daemon serves every container."""
        return tuple(dict.fromkeys(pid for one in self._all for pid in one.servants()))

    def cause_of_death(self) -> str | None:
        return next(filter(None, (process.cause_of_death() for process in self._all)), None)

    def signal(self, number: int) -> None:
        for process in self._all:
            process.signal(number)

    def stop(self, *, timeout_s: float) -> int:
        self.signal(signal.SIGTERM)
        return max(process.stop(timeout_s=timeout_s) for process in self._all)


class RunningSeveral:
    """A RunningSut (suts/seam.py): ready when the last is, counting what all count together."""

    def __init__(self, running: Sequence[RunningSut]) -> None:
        self.running = tuple(running)
        self.process: Process = SeveralProcess([one.process for one in running])
        self.counters: Sequence[SutCounters] = ()
        """Of each, once finished."""

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        deadline = time.monotonic() + timeout_s
        each = [one.wait_ready(timeout_s=deadline - time.monotonic()) for one in self.running]
        last = max(each, key=lambda ready: ready.ready_mono_ns)
        return replace(last, evidence={"instances": [dict(ready.evidence) for ready in each]})

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        if any(one.process.quiet for one in self.running):
            # Must not be asked while they are measured. Each knows when it is at rest, though not
            # how many packets are its share.
            return _the_last(
                self._of_each(lambda one: one.drain(expected_packets=None, timeout_s=timeout_s))
            )
        began = unchanged_since = time.monotonic()
        last: tuple[int | None, ...] = ()
        while True:
            seen, now = self.live(), time.monotonic()
            # Of packets alone: what a SUT says of its own housekeeping never rests.
            counted = () if seen is None else _packets(seen)
            if counted != last:
                unchanged_since, last = now, counted
            rests = seen is not None and seen.captured_packets == expected_packets
            rests = rests or now - unchanged_since >= AT_REST_S
            if rests and seen is not None and _balanced(seen):
                return Drained(rested_mono_ns=int(unchanged_since * 1e9))
            if now - began > timeout_s:
                raise TrialFailed(
                    f"the counters of {len(self.running)} instances do not come to rest "
                    f"within {timeout_s:g} s",
                    reason=Reason.NOT_DRAINED,
                )
            if self.process.poll() is not None:
                raise TrialFailed("an instance ended before it was stopped")
            time.sleep(DRAIN_POLL_S)

    def mark(self) -> None:
        for one in self.running:
            one.mark()

    def live(self) -> SutCounters | None:
        each = [one.live() for one in self.running]
        known = [one for one in each if one is not None]
        return _sum(known) if len(known) == len(each) else None

    def finish(self, *, timeout_s: float) -> SutCounters:
        # Each takes a second or two to end.
        self.counters = self._of_each(lambda one: one.finish(timeout_s=timeout_s))
        return _sum(self.counters)

    def facts(self) -> Json:
        each = [one.facts() for one in self.running]
        return {**each[0], "instances": each}

    def _of_each(self, asked: Callable[[RunningSut], T]) -> list[T]:
        """All at once. The pool waits for its threads, and they for the SUTs: where one fails, or
        Ctrl-C ends the trial, nothing is worth waiting for, and the SUTs are killed."""
        with ThreadPoolExecutor(len(self.running)) as pool:
            try:
                answers = [pool.submit(asked, one) for one in self.running]
                return [answer.result() for answer in answers]
            except BaseException:
                self.process.signal(signal.SIGKILL)
                raise


def between(
    env: Env, running: RunningSut, before: Json, after: Json
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """`env.hops`, with what each instance's own counters show once it has ended."""
    if isinstance(env, SeveralEnv) and isinstance(running, RunningSeveral):
        return env.way(before, after, running.counters or None)
    return env.hops(before, after)


def led(link: Link, env: Env) -> Link:
    """The link, with the addresses that a sender has to write into its frames."""
    return replace(link, dst_macs=env.dst_macs) if isinstance(env, SeveralEnv) else link


def instance_books(env: Env, running: RunningSut, readings: Mapping[str, Json]) -> list[Json]:
    """Each instance's own part of the way, balanced; [] where there is but one."""
    if not isinstance(env, SeveralEnv) or not isinstance(running, RunningSeveral):
        return []
    before, after = readings["before"]["place"], readings["after"]["place"]
    found = []
    for part in env.parts(before, after, running.counters):
        hops = books.received_hops(part)
        accounts = [*part.between[1], *books.into_socket(part), *books.into_decoded(part)]
        ledger = balance(hops, accounts)
        found.append(
            {
                "received_packets": hops[0].packets,
                "captured_packets": part.sut.captured_packets,
                "decoded_packets": part.sut.decoded_packets,
                "lost_packets": ledger.total(Class.LOST),
                "residual_packets": ledger.residual_packets,
                "closed": ledger.closed,
            }
        )
    return found


def imbalance_ratio(parts: Sequence[Json]) -> float | None:
    """How much more than its share the busiest instance received: 0 = all the same."""
    received = [int(part["received_packets"]) for part in parts]
    if not received or not sum(received):
        return None
    return max(received) * len(received) / sum(received) - 1


def _the_last(each: Sequence[Drained]) -> Drained:
    """At rest when the last of them is."""
    busy = [one.busy_mono_ns for one in each if one.busy_mono_ns is not None]
    left = [one.left_packets for one in each if one.left_packets is not None]
    return Drained(
        rested_mono_ns=max(one.rested_mono_ns for one in each),
        busy_mono_ns=max(busy, default=None),
        left_packets=sum(left) if len(left) == len(each) else None,
    )


def _packets(seen: SutCounters) -> tuple[int | None, ...]:
    return seen.captured_packets, seen.dropped_ring_full_packets, seen.decoded_packets


def _balanced(seen: SutCounters) -> bool:
    captured, dropped = seen.captured_packets, seen.dropped_ring_full_packets
    return captured is not None and captured - (dropped or 0) == seen.decoded_packets


def _sum(each: Sequence[SutCounters]) -> SutCounters:
    def total(value: Callable[[SutCounters], int | None]) -> int | None:
        values = [value(one) for one in each]
        known = [v for v in values if v is not None]
        return sum(known) if len(known) == len(values) else None

    results: dict[str, int] = {}
    for one in each:
        for name, number in one.results.items():
            results[name] = results.get(name, 0) + number
    return SutCounters(
        captured_packets=total(lambda c: c.captured_packets),
        dropped_ring_full_packets=total(lambda c: c.dropped_ring_full_packets),
        decoded_packets=total(lambda c: c.decoded_packets),
        decoded_bytes=total(lambda c: c.decoded_bytes),
        results=results,
        per_thread={
            f"{i}:{name}": thread
            for i, one in enumerate(each)
            for name, thread in one.per_thread.items()
        },
        over_time={
            f"{i}:{name}": readings
            for i, one in enumerate(each)
            for name, readings in one.over_time.items()
        },
        lag_s=max(one.lag_s for one in each),
        per_thread_lag_s=max(one.per_thread_lag_s for one in each),
        sources={k: f"{v}, all instances" for k, v in each[0].sources.items()},
    )


def _summed_hops(each: Sequence[Sequence[Hop]]) -> list[Hop]:
    found = []
    for together in zip(*each, strict=True):
        packets = [hop.packets for hop in together]
        known = [p for p in packets if p is not None]
        found.append(
            replace(together[0], packets=sum(known) if len(known) == len(packets) else None)
        )
    return found


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
