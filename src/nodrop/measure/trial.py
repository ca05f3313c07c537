"""One trial from provisioning to closed books: the lifecycle is one function.

provision → prepare load → launch → ready → sample → read counters → offer → drain → read counters →
stop → balance → judge → undo in reverse. A failure at any step still undoes everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, field

from nodrop.errors import NodropError
from nodrop.hosts.seam import Json, Link, Port, UndoJournal
from nodrop.images.bits import Bits
from nodrop.images.image import must_be_there
from nodrop.labs.seam import Lab
from nodrop.labs.split import Splitter
from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.over_time import Losses
from nodrop.ledger.places import ring_of
from nodrop.ledger.reasons import Problem, Reason
from nodrop.ledger.running import Running
from nodrop.ledger.sender import Bounds
from nodrop.ledger.sustained import WorkedOff
from nodrop.ledger.verdict import Verdict, judge
from nodrop.load.seam import Fragments, LoadGenerator, OfferedLoad
from nodrop.measure.instances import between, instance_books, launch, led, pids, several
from nodrop.measure.live import Feed, Tell
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Readings
from nodrop.measure.packets.suspect import sending
from nodrop.measure.proof import prove
from nodrop.measure.running import (
    allowed_cpus,
    choose,
    foreign_ratio,
    peaks,
    read_timeline,
    steal_ratio,
)
from nodrop.measure.running import running as how_it_ran
from nodrop.measure.sampling import Sampler, Usage, usage_inside
from nodrop.measure.servants import Servants
from nodrop.measure.throttling import Throttling
from nodrop.results.rundir import TrialFolder
from nodrop.setups.seam import Env, Limits, Process, Setup
from nodrop.suts.seam import Drained, Readiness, RunningSut, Sut, SutCounters

OFFER_GRACE_S = 60.0
"""Beyond the intended duration: a sender that is later than this is ended."""
STOP_TIMEOUT_S = 30.0
TSC_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What one trial is made of."""

    lab: Lab
    setup: Setup
    sut: Sut
    load: LoadGenerator
    bits: Bits | None
    limits: Limits
    fragments: Fragments | None
    never_at_tap_packets: int
    longest_frame_bytes: int
    warmup_s: float
    ready_timeout_s: float
    drain_timeout_s: float
    sample_interval_ms: int
    bounds: Bounds
    instances: int = 1
    """Of the SUT, each in a place of its own; they share the packets."""
    asks_tsc: bool = False
    """Once per setup: what reading a clock, cpuid and a system call cost in its place."""
    splitter: Splitter = field(default_factory=Splitter)
    files_sha256: Mapping[str, str] = field(default_factory=dict)
    """Of the files that the SUT is shown, by their names there, when the run began."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a trial has seen so far; a field is None until its step was reached."""

    readiness: Readiness | None = None
    activation_s: float | None = None
    offered: OfferedLoad | None = None
    counters: SutCounters | None = None
    readings: dict[str, Json] = field(default_factory=dict)
    drained: Drained | None = None
    decoded_when_offered: int | None = None
    """As the SUT last counted before the last packet had come: the counter may lag behind."""
    worked_off: WorkedOff | None = None
    usage: Usage | None = None
    inside: dict[str, Usage] = field(default_factory=dict)
    """Of the machines inside the SUT's place, as their own kernels count."""
    clock_offsets_ns: dict[str, int] = field(default_factory=dict)
    """Add to the clock of such a machine's rows to get the controller's."""
    servants: list[Json] | None = None
    """What worked for the SUT outside its process tree, from the first packet until the drain."""
    throttled_s: float | None = None
    """Not let run for want of a CPU quota, from the first packet until the drain; all CPUs."""
    steal_ratio: float | None = None
    """Of the CPUs that the SUT may use or of the sender's, while the load was offered."""
    foreign_cpu_ratio: float | None = None
    """Of the CPUs that the SUT may use, what neither it nor the sender used."""
    sut_cpus: tuple[int, ...] = ()
    """That it may use."""
    running: Running | None = None
    losses: tuple[Losses, ...] | None = None
    """When the SUT's threads lost packets, by its own counters; None = not known."""
    ledger: Ledger | None = None
    instances: list[Json] = field(default_factory=list)
    """Each one's own part of the books, where several share the packets."""
    verdict: Verdict | None = None
    facts: Json = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    timings_s: dict[str, float] = field(default_factory=dict)


Watch = Callable[[str, Measured], None]
"""Told each step's name as it begins; the progress display and the tests listen."""


def run_trial(
    of: Ingredients,
    *,
    folder: TrialFolder,
    journal: UndoJournal,
    watch: Watch,
    tell: Tell,
    seen: Measured,
) -> None:
    """Fills `seen` step by step, so that a trial that dies halfway still tells what it saw."""
    step = _Steps(watch, seen)
    with ExitStack() as stack:
        step("provision")
        must_be_there(of.bits)
        link = stack.enter_context(of.lab.up(journal))
        env = stack.enter_context(_place(of, link, folder, journal))
        link = led(link, env)
        # Also where a step fails: what the place says then may be why (out of memory).
        stack.callback(_look_around, env, seen)
        step("prepare load")
        offerer = stack.enter_context(of.load.prepare(link, work=folder.path, journal=journal))
        step("launch")
        running = launch(of.sut, env, stack)
        step("ready")
        seen.readiness = running.wait_ready(timeout_s=of.ready_timeout_s)
        launched_ns = running.process.launched_mono_ns
        seen.activation_s = (seen.readiness.ready_mono_ns - launched_ns) / 1e9
        _prove(of, running.process, seen)
        step("sample")
        sampler = stack.enter_context(
            Sampler(
                env.nic,
                pids(running.process),
                own_cgroup=running.process.own_cgroup,
                path=folder.samples(link.rx.host.name),
                interval_ms=of.sample_interval_ms,
                beside_pids=offerer.pids,
            )
        )
        inside = {
            name: stack.enter_context(samples) for name, samples in env.samples_inside().items()
        }
        if env.cold:
            step("warm up the guest")
            seen.facts["warm_up"] = _first_load(of, link, running, folder, journal)
        if of.warmup_s:
            step("warm up")
            time.sleep(of.warmup_s)  # the quiet time that the experiment asks for
        step("read counters")
        before = _read(link, env)
        step("offer")
        feed = Feed(
            running,
            sampler,
            offerer,
            nic=env.nic.name,
            received_before=int(before["nic"]["links"][env.nic.name]["stats"]["rx_packets"]),
            tell=tell,
        )
        feed.begin()
        servants = Servants(running.process.servants())
        throttling = Throttling(pids(running.process))
        sut_cpus = allowed_cpus(pids(running.process))
        sender_cpus = allowed_cpus(offerer.pids)
        offer_ns = sampler.mark("offer")
        intended_s = offerer.intended_duration_s or 0.0

        def tick(sent_packets: int | None) -> None:
            feed.tick(sent_packets)
            throttling.look()

        seen.offered = offerer.offer(timeout_s=intended_s * 2 + OFFER_GRACE_S, tick=tick)
        offered_ns = sampler.mark("offered")
        throttling.look()
        counted = running.live()
        seen.decoded_when_offered = None if counted is None else counted.decoded_packets
        step("drain")
        arrived = _read(link, env)
        seen.facts["sut"] = running.facts()
        observed = _observe(of, link, env, running, seen, (before, arrived), _NOTHING_SAID)
        seen.drained = running.drain(
            expected_packets=observed.expected_captured_packets, timeout_s=of.drain_timeout_s
        )
        drained_ns = sampler.mark("drained")
        seen.servants = servants.used()
        seen.throttled_s = throttling.look()
        step("read counters after")
        after = _read(link, env)
        seen.usage = sampler.finish()
        for name, samples in inside.items():
            marks = seen.usage.marks_mono_ns
            seen.inside[name] = usage_inside(samples, folder.samples(name), marks)
            seen.clock_offsets_ns[name] = samples.clock_offset_ns
        step("stop")
        seen.counters = running.finish(timeout_s=STOP_TIMEOUT_S)
        feed.at_rest(seen.counters, seen.offered, drained_ns)
        seen.losses = feed.losses(
            begin_ns=offer_ns, end_ns=offered_ns if env.delivers_at_once else drained_ns
        )
        seen.readings = {"before": before, "after": after}
        if _moved(env.nic, after["nic"]):
            words = f"{env.nic.name} received more packets after the drain"
            seen.problems.append(Problem(code=Reason.COUNTERS_MOVED, words=words))
        _look_back(of, link, folder, seen, (sut_cpus, sender_cpus), throttling)
        seen.instances = instance_books(env, running, seen.readings)
        if of.asks_tsc:
            step("probe tsc")
            seen.facts["tsc"] = _costs(env)
        step("balance")
        _look_around(env, seen)
        if killed := out_of_memory(seen):
            seen.problems.append(Problem(code=Reason.SUT_DIED, words=killed))
        observed = _observe(of, link, env, running, seen, (before, after), seen.counters)
        seen.worked_off = _worked_off(link, env, seen)
        _balance(of, observed, seen)
        step("undo")
    step("")


def _look_back(
    of: Ingredients,
    link: Link,
    folder: TrialFolder,
    seen: Measured,
    cpus: tuple[frozenset[int], frozenset[int]],
    throttling: Throttling,
) -> None:
    """How the SUT ran, and what others took of its CPUs and of the sender's."""
    assert seen.offered is not None and seen.usage is not None and seen.counters is not None
    marks = seen.usage.marks_mono_ns
    offered_ns = marks["offer"], marks["offered"]
    host = read_timeline(folder.samples(link.rx.host.name))
    guests = [read_timeline(folder.samples(n), off) for n, off in seen.clock_offsets_ns.items()]
    seen.sut_cpus = tuple(sorted(cpus[0]))
    seen.steal_ratio = steal_ratio(host, offered_ns, *cpus)
    seen.foreign_cpu_ratio = foreign_ratio(host, offered_ns, cpus[0], seen.offered.cpu_s)
    seen.running = how_it_ran(
        choose(host, guests, seen.losses),
        seen.offered,
        offered_ns=offered_ns,
        losses=seen.losses,
        counters=seen.counters,
        throttled=((offered_ns[0], 0.0), *throttling.readings),
        holds_packets=seen.facts["sut"].get("holds_packets"),
        constant_rate=of.load.constant_rate,
        clock_offset_ns=link.tx.host.clock_offset_ns,
        steal_ratio=seen.steal_ratio,
        peaks=peaks(of.load.trace_facts(), seen.offered),
    )


def _costs(env: Env) -> Json:
    """Of instructions that a hypervisor may trap, asked where the SUT ran, now that it is quiet
    there. No figure of the trial rests on it, so a place that cannot answer only says why."""
    try:
        with closing(env.job({"job": "probe", "what": ["tsc"]})) as job:
            found: Json = job.result(timeout_s=TSC_TIMEOUT_S)["tsc"]
    except (NodropError, OSError, LookupError) as failed:
        return {"not_asked": str(failed)}
    return found


def out_of_memory(seen: Measured) -> str:
    """In words, where the kernel killed processes of the SUT to keep its memory limit."""
    memory = seen.facts.get("env", {}).get("memory") or {}
    kills = memory.get("oom_kills")
    if not kills:
        return ""
    processes = "process" if kills == 1 else "processes"
    limit = memory.get("limit_bytes")
    within = "" if limit is None else f" to keep its limit of {limit / 2**20:,.0f} MiB"
    return f"the kernel killed {kills} {processes} of the SUT{within} (out of memory)"


def _first_load(
    of: Ingredients, link: Link, running: RunningSut, folder: TrialFolder, journal: UndoJournal
) -> Json:
    """The trial's own load, once, to be discarded: it runs code that is translated or paged in."""
    with of.load.prepare(link, work=folder.path, journal=journal) as offerer:
        intended_s = offerer.intended_duration_s or 0.0
        offered = offerer.offer(timeout_s=intended_s * 2 + OFFER_GRACE_S, tick=lambda _sent: None)
    running.drain(expected_packets=None, timeout_s=of.drain_timeout_s)
    running.mark()
    return {"offered_packets": offered.sent_packets, "discarded": True}


def _place(
    of: Ingredients, link: Link, folder: TrialFolder, journal: UndoJournal
) -> AbstractContextManager[Env]:
    if of.instances == 1:
        return of.setup.provision(
            link, bits=of.bits, limits=of.limits, work=folder.sut, journal=journal
        )
    return several(
        of.setup,
        of.instances,
        link,
        splitter=of.splitter,
        bits=of.bits,
        limits=of.limits,
        work=folder.sut,
        journal=journal,
        ring=ring_of(of.sut),
    )


class _Steps:
    """Names the step that begins and keeps how long the one before took."""

    def __init__(self, watch: Watch, seen: Measured) -> None:
        self._watch, self._seen = watch, seen
        self._name, self._began = "", time.monotonic()

    def __call__(self, name: str) -> None:
        now = time.monotonic()
        if self._name:
            self._seen.timings_s[self._name] = round(now - self._began, 4)
        self._name, self._began = name, now
        if name:
            self._watch(name, self._seen)


_NOTHING_SAID = SutCounters(
    captured_packets=None, dropped_ring_full_packets=None, decoded_packets=None
)


def _read(link: Link, env: Env) -> dict[str, Json]:
    """Every place that counts, from the sender to the capture sockets, at a quiet moment."""
    capture = Port(host=env.host, name=env.capture_interfaces[0])
    nic = _counters(env.nic)
    return {
        "tx": _counters(link.tx),
        "nic": nic,
        "capture": nic if capture == env.nic else _counters(capture),
        "place": env.read(),
    }


def _counters(port: Port) -> Json:
    found: Json = port.host.probe("counters", ports=[port.name])["counters"]
    return found


def _prove(of: Ingredients, process: Process, seen: Measured) -> None:
    facts, problems = prove(process.proof(), of.bits, of.files_sha256)
    if facts is not None:
        seen.facts["proof"] = facts
    seen.problems.extend(problems)


def _observe(
    of: Ingredients,
    link: Link,
    env: Env,
    running: RunningSut,
    seen: Measured,
    readings: tuple[dict[str, Json], dict[str, Json]],
    counters: SutCounters,
) -> books.Observed:
    assert seen.offered is not None
    before, after = readings
    counted = {
        place: Readings(before=before[place], after=after[place])
        for place in ("tx", "nic", "capture")
    }
    # What the capture really set up overrules what was asked: one socket alone merges nothing.
    effective = seen.facts["sut"].get("defrag_effective")
    return books.Observed(
        tx_port=link.tx.name,
        nic_port=env.nic.name,
        capture_port=env.capture_interfaces[0],
        offered=seen.offered,
        **counted,
        between=between(env, running, before["place"], after["place"]),
        sut=counters,
        defrag=of.sut.defrag if effective is None else bool(effective),
        fragments=of.fragments,
        never_at_tap_packets=of.never_at_tap_packets,
        longest_frame_bytes=of.longest_frame_bytes,
        ring=ring_of(of.sut),
        several=of.instances > 1,
    )


def _moved(nic: Port, then: Json) -> bool:
    return Readings(before=then, after=_counters(nic)).link(nic.name, "rx_packets") != 0


def _worked_off(link: Link, env: Env, seen: Measured) -> WorkedOff | None:
    """What was left for after the last packet. The SUT's rings bound it only if nothing waits
    before them."""
    if seen.offered is None or seen.drained is None or seen.counters is None:
        return None
    offered, decoded = seen.offered, seen.counters.decoded_packets
    if decoded is None or offered.last_sent_mono_ns is None:
        return None
    last_ns = offered.last_sent_mono_ns + link.tx.host.clock_offset_ns
    busy_ns = seen.drained.busy_mono_ns or last_ns
    holds = seen.facts["sut"].get("holds_packets") if env.delivers_at_once else None
    before = seen.decoded_when_offered
    at_most = [decoded - before] if before is not None else []
    at_most += [holds] if holds is not None else []
    return WorkedOff(
        packets=decoded,
        offered_s=offered.duration_s,
        drain_at_least_s=max(0, busy_ns - last_ns) / 1e9,
        drain_at_most_s=max(0, seen.drained.rested_mono_ns - last_ns) / 1e9,
        backlog_at_least_packets=seen.drained.left_packets or 0,
        backlog_at_most_packets=min(at_most, default=None),
    )


def _balance(of: Ingredients, observed: books.Observed, seen: Measured) -> None:
    offered = observed.offered
    try:
        seen.ledger = balance(
            books.hops(observed),
            books.accounts(observed),
            longest_frame_bytes=observed.longest_frame_bytes,
        )
    except ValueError as nonsense:
        # A counter that ran backwards, or was reset by somebody: no books, no figure.
        words = f"the books make no sense: {nonsense}"
        seen.problems.append(Problem(code=Reason.NO_BOOKS, words=words))
    seen.verdict = judge(
        seen.ledger,
        sending(
            offered,
            handed_packets=observed.handed_packets,
            constant_rate=of.load.constant_rate,
            sut=seen.facts.get("sut", {}),
            usage=seen.usage,
        ),
        bounds=of.bounds,
        problems=seen.problems,
        running=seen.running,
        worked_off=seen.worked_off,
        losses=seen.losses,
    )


def _look_around(env: Env, seen: Measured) -> None:
    with suppress(NodropError, OSError):
        seen.facts["env"] = env.facts()
