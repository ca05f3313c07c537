"""A world stands up for a cell, and is offered one load after another.

A trial's `Seen` fills step by step: a trial that dies halfway still says what it saw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from nodrop.detections import Baseline, FoundDetections
from nodrop.ledger.balance import Ledger
from nodrop.ledger.imbalance import FlowShares, Running, SutThread
from nodrop.ledger.level import QueueLevel
from nodrop.ledger.outcome import Problem
from nodrop.ledger.over_time import Busy, Losses, WorkedOff
from nodrop.ledger.sender import Quota
from nodrop.ledger.transactions import Latency, Messages
from nodrop.ledger.verdict import Verdict
from nodrop.measure.busy import Tell
from nodrop.measure.cells import Cell, Table
from nodrop.measure.packets.instances import Instance
from nodrop.measure.packets.readings import Reading
from nodrop.measure.sampling import Usage
from nodrop.results.layout import TrialFolder
from nodrop.results.load_window import LoadWindow
from nodrop.results.packet_books import Port
from nodrop.results.trial import Program
from nodrop.testbed.hosts.api import HostProcess, Json
from nodrop.testbed.hosts.processes import usage
from nodrop.testbed.load.api import OfferedLoad
from nodrop.testbed.suts.api import Drained, Readiness, SutCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Servant:
    """CPU time that one such process used."""

    pid: int
    name: str
    cpu_s: float | None
    """None if it has ended."""


class Servants:
    """Watched from now on. A daemon's other work counts as well: it cannot be separated."""

    def __init__(self, processes: Sequence[HostProcess]) -> None:
        self._before = usage(processes)

    def used(self) -> Sequence[Servant]:
        """CPU of each since then; None of one that has ended."""
        now = usage(self._before)
        found = []
        for process, before in self._before.items():
            after = now.get(process)
            lives = after is not None and after["start_ticks"] == before["start_ticks"]
            used = round((after["cpu_ns"] - before["cpu_ns"]) / 1e9, 2) if after and lives else None
            found.append(Servant(pid=process.pid, name=before["name"], cpu_s=used))
        return found


def setup_cpu_s(sut_cpu_s: float | None, servants: Sequence[Servant] | None) -> float | None:
    """The SUT and its servants together. A guest's time is within its emulator's, which is the
    SUT's process on this host, and is added to nothing. None if a part is not known."""
    if sut_cpu_s is None or servants is None:
        return None
    parts = [servant.cpu_s for servant in servants if servant.cpu_s is not None]
    return sut_cpu_s + sum(parts) if len(parts) == len(servants) else None


@dataclass(slots=True, kw_only=True)
class PacketsSeen:
    """A field is None until its step was reached."""

    readings: tuple[Reading, Reading] | None = None
    """Readings before the first packet and after the drain."""
    each: Sequence[SutCounters] = ()
    """Counters of the SUT in each of its places."""
    counters: SutCounters | None = None
    """Counters of all places together."""
    decoded_when_offered: int | None = None
    """Decoded packets, last counted before the last packet had come: the counter may lag behind."""
    drained: Drained | None = None
    worked_off: WorkedOff | None = None
    losses: tuple[Losses, ...] | None = None
    """Intervals in which the SUT's threads lost packets, by its own counters; None = not known."""
    threads: Sequence[SutThread] | None = None
    """Books of the SUT's threads."""
    flow_sizes: FlowShares | None = None
    """Flow sizes of the load."""
    withheld_packets: int | None = None
    window: LoadWindow | None = None
    """Window of the trace that was sent; None if the load names none."""
    running: Running | None = None
    level: QueueLevel | None = None
    """Level of the SUT's fullest capture ring; None = no ring could be read."""
    ledger: Ledger | None = None
    instances: Sequence[Instance] = ()
    """Own part of the books of each instance, if several share the packets."""
    ports: Sequence[Port] = ()
    """Packets of each of the SUT's ports, if several share the packets."""


@dataclass(slots=True, kw_only=True)
class AnswersSeen:
    """Findings about the SUT that answered a load; the load's own view is in what it offered.
    A field is None until its step was reached."""

    each: Sequence[SutCounters] = ()
    """Counters of the SUT in each of its places."""
    messages: Messages | None = None
    """Messages of all together; None if it counts none."""
    round_trips: Mapping[str, Latency] = field(default_factory=dict)
    """Times from a SUT of one place to the programs behind it, and back."""
    rss_before_bytes: int | None = None
    """Resident memory before the first transaction."""


@dataclass(slots=True, kw_only=True)
class WorldSeen:
    """The standing world that carries the trial."""

    first_trial: int | None = None
    """Index of the first trial that the world carried; None if the SUT did not get ready."""
    repeats_flows: bool | None = None
    """The SUT had been offered flows of this trial before; None if it does not stay up."""
    reset_s: float | None = None
    """Seconds that the reset before the trial took; None if there was none here."""
    readiness: Readiness | None = None
    """None also if the SUT stood already, as is the activation time."""
    activation_s: float | None = None


@dataclass(slots=True, kw_only=True)
class ResourcesSeen:
    """CPU and memory, whatever is counted."""

    usage: Usage | None = None
    inside: dict[str, Usage] = field(default_factory=dict)
    """Usage of the machines inside the SUT's place, as their own kernels count."""
    clock_offsets_ns: dict[str, int] = field(default_factory=dict)
    """Add to the clock of such a machine's rows to get the controller's."""
    servants: Sequence[Servant] | None = None
    """Processes that worked for the SUT outside its tree, from the first packet until the drain."""
    throttled_s: float | None = None
    """Time for which it was not let run for want of a CPU quota, from the first packet until the
    drain; all CPUs."""
    steal_ratio: float | None = None
    """Stolen part of the CPUs that the SUT may use or of the sender's: the larger, while the load
    was offered."""
    lost_beyond_steal: int | None = None
    """Packets lost within the SUT that this does not explain."""
    quota: Quota | None = None
    """CPU quota around nodrop itself that held it back while the load was offered."""
    programs: Sequence[Program] = ()
    """Other programs of this host with the most CPU time meanwhile."""
    others_ratio: float | None = None
    """Share of the CPU time that programs other than the SUT and the sender used, on the CPUs of
    the SUT or on those of the sender: the larger. None = not known."""
    cpus: tuple[int, ...] = ()
    """CPUs that the SUT or a sender of this host may use."""
    foreign_cpu_ratio: float | None = None
    """Part of the time of the SUT's CPUs used by programs other than the SUT and the sender."""
    busy: Sequence[Busy] = ()
    """CPU use of the SUT between readings, while the load was offered."""
    sut_cpus: tuple[int, ...] = ()
    """CPUs that the SUT may use."""
    polls: bool = False
    """The SUT's workers run whether packets come or not."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """Results that a trial has seen so far; a field is None until its step was reached."""

    world: WorldSeen = field(default_factory=WorldSeen)
    offered: OfferedLoad | None = None
    resources: ResourcesSeen = field(default_factory=ResourcesSeen)
    packets: PacketsSeen = field(default_factory=PacketsSeen)
    answers: AnswersSeen | None = None
    """None of a load of packets."""
    found: FoundDetections | None = None
    """Detections of the SUT; None if nobody asked."""
    clocks: frozenset[str] = frozenset()
    """Rules whose detections depend on the trace's own speed, if the load has another one."""
    no_ratio: str = ""
    """Why something else than its load may have cost detections, in words."""
    baseline: Baseline | None = None
    """Detections that the SUT was to make; None if nobody asked."""
    verdict: Verdict | None = None
    facts: Json = field(default_factory=dict)
    """Facts of plugins about themselves, as they say them; they go into trial.json unread."""
    problems: list[Problem] = field(default_factory=list)
    timings_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Trial:
    """One trial under way: the folder for its files, what watches it, and what was seen."""

    index: int
    folder: TrialFolder
    watch: Callable[[str], None]
    """Listener to each step's name as it begins: the progress display and the tests."""
    tell: Tell
    seen: Measured = field(default_factory=Measured)
    asks_tsc: bool = False
    """The trial asks, once per setup, what reading a clock, cpuid and a system call cost in its
    place."""
    reached: str = ""
    """The step under way, or the last."""
    _began: float = 0.0

    def step(self, name: str) -> None:
        """Names the step that begins and keeps how long the one before took; "" is the end."""
        now = time.monotonic()
        if self._began:
            self.seen.timings_s[self.reached] = round(now - self._began, 4)
        self._began = now if name else 0.0
        if name:
            self.reached = name
            self.watch(name)


class Standing(Protocol):
    """A standing world: hosts, places, SUT ready."""

    @property
    def worn(self) -> str:
        """Why it must not be offered another load; "" while it may be."""
        ...

    def spent(self, load: Table, trial: Trial) -> str:
        """Why the flows of this load, the next one's, would not be new to the SUT though a new
        start of it would see new ones; "" if they are, or cannot be."""
        ...

    def measure(self, load: Table, trial: Trial) -> Measured:
        """Offers the load of this [load] table, drains, reads at rest, balances, judges."""
        ...


class Measurer(Protocol):
    def stand(self, cell: Cell, trial: Trial) -> AbstractContextManager[Standing]:
        """A world for this cell, undone on every way out. Its beginning is part of `trial`, the
        first that it is to carry."""
        ...
