"""A standing world: what a trial needs of lab, place, SUT and generator, whatever is counted.

read before → offer → drain → read after → look back → balance: what these steps read and judge is
that of the load's unit (packets/capturing.py, transactions/exchange.py).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from nodrop.config.experiment import Measure
from nodrop.detections import FoundDetections, SentCopies, read_found
from nodrop.errors import NodeRefused, NodropError
from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.outcome import Problem, Reason
from nodrop.measure import sampling
from nodrop.measure.api import Measured, Trial
from nodrop.measure.cells import Cell, Table, core_of, may_spin
from nodrop.measure.packets import instances
from nodrop.measure.packets.instances import Places
from nodrop.measure.preflight import Parts
from nodrop.measure.sampling import Sampler, usage_inside
from nodrop.results.layout import PROFILE
from nodrop.testbed.hosts.api import AnyJob, HostProcess, Json, Link, UndoJournal
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits, first_difference
from nodrop.testbed.load.api import LoadGenerator, Offerer
from nodrop.testbed.setups.api import Env, Proof, SamplesInside
from nodrop.testbed.suts.api import Detecting, SutCounters
from nodrop.untrusted.json_text import counted


def prove(
    proof: Proof | None, bits: Bits | None, files_sha256: Mapping[str, str]
) -> tuple[Json | None, Sequence[Problem]]:
    """Facts that the trial keeps of a proof, and problems: whatever is not as the run says it is.

    `files_sha256`: hashes of the host's files that the SUT is shown (rules), from when the run
    began.
    """
    found = []
    if other_bits := first_difference(bits):
        found.append(Problem(code=Reason.OTHER_BITS, words=f"the image changed: {other_bits}"))
    if proof is None:
        return None, found
    facts: Json = {**asdict(proof), "expected_files": dict(files_sha256)}
    if bits is not None:
        wanted = bits.sha256 if bits.kind == "binary" else _sha256_in(bits.path, proof.exe)
        facts["expected_exe_sha256"] = wanted
        if why := _other(proof.exe_sha256, wanted):
            words = f"what runs is not the {bits.kind}'s: {proof.exe} {why}"
            found.append(Problem(code=Reason.OTHER_BITS, words=words))
    if bits is not None and bits.kind == "image" and not other_bits:
        loaded = {path: _sha256_in(bits.path, path) for path in proof.libraries}
        found += [
            Problem(code=Reason.OTHER_BITS, words=f"a library is not the image's: {path} {why}")
            for path, sha256 in proof.libraries.items()
            if (why := _other(sha256, loaded[path]))
        ]
    other = [name for name, sha256 in files_sha256.items() if proof.files.get(name) != sha256]
    if other:
        words = (
            f"{', '.join(other)}: what the SUT was shown is not the file that the run began with "
            "(another sha256 where it runs)"
        )
        found.append(Problem(code=Reason.OTHER_FILES, words=words))
    return facts, found


def _other(sha256: str | None, wanted: str | None) -> str:
    if wanted is None:
        return "is not in it"
    return "" if sha256 == wanted else "has another sha256"


@cache
def _sha256_in(image: Path, program: str) -> str | None:
    """SHA-256 of a program of the unpacked image; None if it is not in it. `program` is its path
    inside, or on the host.

    /proc/PID/exe of another mount namespace is a path from its root: if nodrop itself runs in a
    chroot, the path begins with whatever lies outside of it. The kernel shows the path with its
    links resolved, so ours may have no links.
    """
    image = image.resolve()
    within = program.rpartition(f"{image}/")[2]
    path = image / within.lstrip("/")
    return file_sha256(path) if path.is_file() else None


READY_TIMEOUT_S = 120.0
"""Time enough for a node that reads the names of the kernel and of every library, under emulation
too."""
RESULT_TIMEOUT_S = 60.0
INTERVAL_IN_GUEST_MS = 400
"""Each look into the rings and /proc takes time that an emulated guest does not have; the rings
hold half a second."""


class Unseen(Exception):
    """Why there is no profile, in words."""


def unseen(why: str) -> Json:
    """A profile without a sample."""
    return {
        "began_mono_ns": 0,
        "ended_mono_ns": 0,
        "own_cpu_ns": 0,
        "missing": [{"what": "functions", "why": why}],
        "functions": [],
        "stacks": [],
        "threads": [],
        "concurrency": None,
    }


class Profiling:
    """Profile of running programs. It has read all names when it is made. As a context manager it
    is ended on every way out.

    Unseen if the kernel that runs these programs does not show them.
    """

    def __init__(self, programs: Sequence[HostProcess], *, hardware: bool) -> None:
        if not programs:
            raise Unseen("the SUT has ended")
        self._host = programs[0].host
        if any(program.host is not self._host and not program.host.here for program in programs):
            raise Unseen("several guests, each with a kernel of its own: profile one of them")
        pids = [process.pid for process in programs]
        spec: Json = {"job": "profile", "pids": pids, "hardware": hardware}
        if not self._host.here:
            spec["interval_ms"] = INTERVAL_IN_GUEST_MS
        try:
            self._job: AnyJob = self._host.job(spec, timeout_s=READY_TIMEOUT_S)
        except NodeRefused as refused:
            if refused.kind not in ("permission", "unsupported"):
                raise
            raise Unseen(refused.said) from None

    def begin(self) -> None:
        self._job.start()

    def stop(self) -> None:
        """Ends the profile. Its result waits on its own side: to fetch it now would take time from
        the drain."""
        self._job.stop()

    def found(self, role: Callable[[str], ThreadRole | None]) -> Json:
        """The profile between `begin` and `stop`, each thread with its role; times by our clock."""
        found: Json = dict(self._job.result(timeout_s=RESULT_TIMEOUT_S))
        found.pop("type", None)
        for moment in ("began_mono_ns", "ended_mono_ns"):
            found[moment] += self._host.clock_offset_ns
        for thread in found["threads"]:
            known = role(thread["name"])
            thread["role"] = None if known is None else str(known)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()


STOP_TIMEOUT_S = 30.0
LOG_TIMEOUT_S = 10.0
LOG_POLL_S = 0.2
TSC_TIMEOUT_S = 30.0


class StandingWorld(ABC):
    """A `Standing`."""

    provision: Callable[..., AbstractContextManager[Places]]
    answers = False
    """The load talks to the SUT, so that it can only be prepared once that is ready."""

    trial: Trial
    """The trial under way, or the last."""
    each: instances.Each = ()

    def __init__(
        self, parts: Parts, settings: Measure, journal: UndoJournal, cell: Cell, places: Places
    ) -> None:
        self.places = places
        self._parts, self._settings, self._journal, self._cell = parts, settings, journal, cell
        self._stack: ExitStack
        self._load: LoadGenerator
        self._offerer: Offerer
        self._first: int | None = None
        """The index of its first trial, once the SUT is ready."""
        self._offers = 0
        self._proof: tuple[Json | None, Sequence[Problem]] = None, ()
        self._worn = ""
        self._logs_end: Sequence[int] = ()
        """Where the next reading of each event log begins."""
        self._unwritten = 0
        """Alerts that were counted and not read; below zero: read and not yet counted."""
        self._aimed: Table | None = None
        """Load that the next offer sends; None after an offer."""

    def prepare(self, load: Table, stack: ExitStack) -> None:
        self._load, self._aimed, self._stack = self._parts.load(load), load, stack
        work = self.trial.folder.path
        self._offerer = stack.enter_context(
            self._load.prepare(self._link(load), work=work, journal=self._journal)
        )

    def _link(self, load: Table) -> Link:
        spins = may_spin(
            load,
            self._cell.sut_cpus,
            self._cell.limits.cpus,
            in_common=self._parts.lab.cpus_in_common(),
            core_of=core_of,
        )
        return replace(self.places.link, sender_may_spin=spins)

    def spent(self, load: Table, trial: Trial) -> str:
        if not self._stays:
            return ""
        self._aim(load, trial)
        if self._offerer.flows != "used up":
            return ""
        return (
            "its flows would repeat: the trace's addresses have no more room for flows of their own"
        )

    def _aim(self, load: Table, trial: Trial) -> None:
        if self._aimed == load:
            return
        asked = self._parts.load(load)
        if asked.name != self._load.name:
            self.prepare(load, self._stack)
            return
        self._offerer.aim(asked, work=trial.folder.path)
        self._load, self._aimed = asked, load

    def wait_ready(self) -> None:
        seen, processes = self.trial.seen, [one.process for one in self.each]
        ready = instances.wait_ready(self.each, timeout_s=self._settings.ready_timeout_s)
        launched_ns = min(process.launched_mono_ns for process in processes)
        seen.world.readiness = ready
        seen.world.activation_s = (ready.ready_mono_ns - launched_ns) / 1e9
        proof, bits = instances.proof(self.each), self._parts.bits(self._cell)
        self._proof = prove(proof, bits, self._parts.files_sha256(self._cell))
        self._first = self.trial.index

    @property
    def worn(self) -> str:
        ended = any(one.process.poll() is not None for one in self.each)
        return self._worn or ("the SUT has ended" if ended else "")

    def measure(self, load: Table, trial: Trial) -> Measured:
        self.trial = trial
        seen, step = trial.seen, trial.step
        seen.world.first_trial, (facts, problems) = self._first, self._proof
        seen.facts |= {} if facts is None else {"proof": facts}
        seen.problems.extend(problems)
        self._offers += 1
        self._aim(load, trial)
        self._aimed = None
        with ExitStack() as stack:
            step("sample")
            sampler, inside = self._samplers(stack)
            self._warm_up()
            # Not before: its rings would overflow with what a cold place does.
            profiling = self._profiling(stack)
            step("read counters")
            self._read_before(sampler)
            sender = self.places.link.tx.host
            clock = sampling.fix(sender)
            step("offer")
            if profiling:
                profiling.begin()
            self._offer()
            if profiling:
                profiling.stop()
            step("drain")
            self._drain()
            sampler.mark("drained")
            if profiling:
                role = self._parts.sut(self._cell).role
                trial.folder.write(PROFILE, profiling.found(role))
            if clock and (later := sampling.fix(sender)):
                seen.facts["clocks"] = [sampling.facts(sender, clock, later)]
                seen.problems += sampling.moved(sender, clock, later)
            self._rested()
            step("read counters after")
            self._read_after()
            self._end_samplers(sampler, inside)
            self._count()
            self._look_back()
            self._find(load)
            if trial.asks_tsc:
                step("probe tsc")
                seen.facts["tsc"] = _costs(self.places.envs[0])
            step("balance")
            self._balance()
        closed = self._closed() and not seen.problems
        self._worn = self._worn or (self._full_memory() if closed else "its books do not close")
        step("undo" if self._worn else "")
        return seen

    @abstractmethod
    def _read_before(self, sampler: Sampler) -> None: ...

    @abstractmethod
    def _offer(self) -> None: ...

    @abstractmethod
    def _drain(self) -> None: ...

    @abstractmethod
    def _rested(self) -> None:
        """Reads what the SUT and what serves it used until now."""

    @abstractmethod
    def _read_after(self) -> None: ...

    @abstractmethod
    def _keep(self, each: Sequence[SutCounters]) -> None:
        """Keeps the SUT's own counters, of each of its places."""

    @abstractmethod
    def _look_back(self) -> None:
        """Says how the SUT ran, from what the samplers wrote."""

    @abstractmethod
    def _balance(self) -> None:
        """Closes the books and judges."""

    @abstractmethod
    def _closed(self) -> bool: ...

    def _full_memory(self) -> str:
        """Names the SUT's memory that was full in this trial, and would be in the next; "" if none
        was."""
        return ""

    @abstractmethod
    def _warm_up_cold(self) -> Json:
        """Offers the trial's own load once to a place that is cold; says what was discarded."""

    @property
    def _stays(self) -> bool:
        return self._settings.sut == "standing"

    def _count(self) -> None:
        """The SUT's last word, or its counters at rest if it is to go on."""
        seen = self.trial.seen
        if self._stays:
            self.trial.step("read at rest")
            found = instances.counted(self.each)
        else:
            self.trial.step("stop")
            found = instances.finish(self.each, timeout_s=STOP_TIMEOUT_S)
            self._worn = "the SUT was ended to read its last counters"
        seen.problems += [problem for one in found for problem in one.problems]
        self._keep(found)

    def _find(self, load: Table) -> None:
        """Reads what the SUT detected, from the log that it wrote for the trial."""
        outcome = self._settings.outcome
        if outcome and isinstance(sut := self._parts.sut(self._cell), Detecting):
            self.trial.step("read detections")
            seen, clocks = self.trial.seen, sut.clocks()
            in_time = own_speed(load) and not self._stays
            timed = seen.baseline.timed(clocks) if seen.baseline and in_time else None
            if timed is None:
                seen.clocks = clocks
            else:
                seen.baseline = timed
            seen.found = self._log_going_on(sut, load) if self._stays else self._log(sut)

    def _log(self, sut: Detecting, **more: Any) -> FoundDetections:
        logs = [one.process.fetch(sut.event_log) for one in self.each]
        with_flows = "flows" in self._settings.outcome
        return read_found(logs, sut.limits(), with_flows=with_flows, **more)

    def _log_going_on(self, sut: Detecting, load: Table) -> FoundDetections:
        """The log since the last reading, once it has every alert that the SUT counts."""
        seen, begins = self.trial.seen, self._logs_end or [0] * len(self.each)
        counters = seen.packets.counters
        alerts = 0 if counters is None else counters.results.get(sut.alert_counter, 0)
        for _ in looks(LOG_TIMEOUT_S, every_s=LOG_POLL_S):
            found = self._log(sut, sent=self._sent(load), begins=begins)
            unwritten = self._unwritten + alerts - found.events.get("alert", 0)
            if unwritten <= 0:
                break
        else:
            seen.no_ratio = f"its log lacks {unwritten:,} of the alerts that it counted"
        if self._offers > 1 and (full := self._full_memory()):
            seen.no_ratio = f"{full}, which earlier trials of its start had a part in"
        self._logs_end, self._unwritten = found.ends, unwritten
        return found

    def _sent(self, load: Table) -> SentCopies:
        offered, trace = self.trial.seen.offered, self._load.trace_facts()
        assert offered is not None and trace is not None, "must_be_detectable wants a trace"
        return SentCopies(
            trace=trace.path,
            first=counted(offered.facts, "first_copy"),
            count=counted(offered.facts, "copies"),
            tolerate_truncated=bool(load.get("tolerate_truncated")),
        )

    def _samplers(self, stack: ExitStack) -> tuple[Sampler, Mapping[str, SamplesInside]]:
        places, first = self.places, self.each[0].process
        sampler = Sampler(
            places.nic_host,
            places.nics,
            instances.roots(self.each),
            own_cgroup=first.own_cgroup and len(self.each) == 1,
            path=self.trial.folder.samples(places.link.rx.host.name),
            interval_ms=self._settings.sample_interval_ms,
            levels_path=self.trial.folder.levels(places.link.rx.host.name),
            level_ms=self._cell.level_interval_ms,
            beside=(*self._offerer.processes, *instances.servants(self.each)),
        )
        stack.enter_context(sampler)
        inside = {n: stack.enter_context(s) for n, s in places.samples_inside().items()}
        return sampler, inside

    def _profiling(self, stack: ExitStack) -> Profiling | None:
        if not self._cell.profile:
            return None
        programs, hardware = instances.programs(self.each), self._settings.hardware
        try:
            return stack.enter_context(Profiling(programs, hardware=hardware))
        except Unseen as why:
            self.trial.folder.write(PROFILE, unseen(str(why)))
            return None

    def _end_samplers(self, sampler: Sampler, inside: Mapping[str, SamplesInside]) -> None:
        seen, folder = self.trial.seen, self.trial.folder
        used = seen.resources
        used.usage = sampler.finish()
        for name, samples in inside.items():
            marks = used.usage.marks_mono_ns
            used.inside[name] = usage_inside(samples, folder.samples(name), marks)
            used.clock_offsets_ns[name] = samples.clock_offset_ns

    def _warm_up(self) -> None:
        """A cold place (code is translated or paged in) first gets the trial's own load, once; what
        it counts is discarded. Then the quiet time that the experiment asks for."""
        step = self.trial.step
        if self.places.cold and self._offers == 1:
            step("warm up the guest")
            self.trial.seen.facts["warm_up"] = {**self._warm_up_cold(), "discarded": True}
        if self._settings.warmup_s:
            step("warm up")
            time.sleep(self._settings.warmup_s)

    def look_around(self) -> None:
        with suppress(NodropError, OSError):
            self.trial.seen.facts["env"] = self.places.facts()


def own_speed(load: Table) -> bool:
    """Packets leave at the times that they have in the trace."""
    others = any(load.get(name) for name in ("pps", "top_speed", "ramp"))
    return not others and float(load.get("speed") or 1.0) == 1.0


def _costs(env: Env) -> Json:
    """Costs of instructions that a hypervisor may trap, asked where the SUT ran, now that it is
    quiet there. No figure of the trial rests on them, so a place that cannot answer only says
    why."""
    try:
        with closing(env.job({"job": "probe", "what": ["tsc"]})) as job:
            found: Json = job.result(timeout_s=TSC_TIMEOUT_S)["tsc"]
    except (NodropError, OSError, LookupError) as failed:
        return {"not_asked": str(failed)}
    return found


def out_of_memory(seen: Measured) -> str:
    """Words if the kernel killed processes of the SUT to keep its memory limit; else empty."""
    memory = seen.facts.get("env", {}).get("memory") or {}
    kills = memory.get("oom_kills")
    if not kills:
        return ""
    processes = "process" if kills == 1 else "processes"
    limit = memory.get("limit_bytes")
    within = "" if limit is None else f" to keep its limit of {limit / 2**20:,.0f} MiB"
    return f"the kernel killed {kills} {processes} of the SUT{within} (out of memory)"
