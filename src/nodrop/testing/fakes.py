"""A setup, a SUT and a load without a machine: each step of a trial leaves a word, in order.

    world = World(fails_at="launch")
    ... run a trial with FakeLab(world), FakeSetup(world), FakeSut(world), FakeLoad(world) ...
    assert world.words == ["lab up", "provision", "prepare load", "launch", ...]

The packets go the whole way: intended → sent → arrived → captured → decoded, as `World` says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nodrop.hosts.seam import AnyJob, Host, HostProcess, Json, Link, Port, UndoJournal
from nodrop.images.image_tree import Bits
from nodrop.ledger.hops import Account, Hop, Place
from nodrop.ledger.running import Role
from nodrop.load.seam import (
    Fragments,
    LoadGenerator,
    OfferedLoad,
    Planned,
    ScheduleError,
    Tick,
    TraceFacts,
)
from nodrop.protocol.events import TraceResult
from nodrop.setups.local import LocalView
from nodrop.setups.seam import (
    Env,
    Limits,
    PlaceReading,
    Process,
    ProcessSpec,
    Proof,
    SamplesInside,
    Setup,
)
from nodrop.suts.seam import Drained, Readiness, Sut, SutCounters
from nodrop.testing.fake_hosts import RX_PORT, World, whole

FRAME_BYTES = 100
NO_FRAGMENTS = Fragments(offered_packets=0, absorbed_packets=0, datagrams=0, held_packets=0)


class FakeProcess(LocalView):
    """A Process; its PID is the test's own."""

    def __init__(self, world: World, near: Host, work: Path) -> None:
        self.root = HostProcess(near, os.getpid())
        self.work = work
        self.own_cgroup = False
        self.stdout, self.stderr = work / "stdout", work / "stderr"
        self.launched_mono_ns = time.monotonic_ns()
        self._world = world
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._status

    def proof(self) -> Proof | None:
        return None

    def cause_of_death(self) -> str | None:
        return None

    def signal(self, number: int) -> None:
        self._world.say(f"signal {number}")

    def stop(self, *, timeout_s: float) -> int:
        self._status = 0
        self._world.say("stop")
        return 0


class FakeEnv:
    """An Env."""

    cold = False
    delivers_at_once = True
    cpus: AbstractSet[int] = frozenset()

    capture_interfaces: Sequence[str] = (RX_PORT,)
    work_inside = "/run/nodrop"

    def __init__(self, world: World, nic: Port, bits: Bits | None, work: Path) -> None:
        self.nic = nic
        self.near = self.host = nic.host
        self.bits = bits
        self._world = world
        self._work = work

    def launch(self, process: ProcessSpec) -> FakeProcess:
        self._world.say("launch")
        return FakeProcess(self._world, self.near, self._work)

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        return self.host.job(spec)

    def read(self) -> PlaceReading:
        return {}

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        return {}

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        return (), ()

    def facts(self) -> Json:
        return {}


class FakeSetup:
    """A Setup."""

    name = "fake"
    places: Sequence[Place] = ()
    alone = ""
    heeds_cpus = True
    several_ports = False

    def __init__(self, world: World) -> None:
        self._world = world

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        return []

    def cpus(self, limits: Limits) -> AbstractSet[int]:
        return {0, 1}

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[FakeEnv]:
        self._world.say("provision")
        try:
            yield FakeEnv(self._world, link.rx, bits, work)
        finally:
            self._world.say("unprovision")


class FakeRunning:
    """A RunningSut that sees what arrived."""

    def __init__(self, world: World, process: Process) -> None:
        self.process = process
        self._world = world
        self._marked_offers = 0

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        self._world.say("ready")
        return Readiness(ready_mono_ns=time.monotonic_ns())

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        self._world.say("drain")
        return Drained(rested_mono_ns=time.monotonic_ns())

    def counted(self) -> SutCounters:
        self._world.say("count")
        return self._counted()

    def mark(self) -> None:
        self._world.say("mark")
        self._marked_offers = self._world.offers

    def live(self) -> SutCounters | None:
        return None

    def finish(self, *, timeout_s: float) -> SutCounters:
        self._world.say("finish")
        self.process.stop(timeout_s=timeout_s)
        return self._counted()

    def _counted(self) -> SutCounters:
        offers = self._world.offers - self._marked_offers
        captured = offers * self._world.arrived_packets
        dropped = offers * self._world.ring_full_packets
        return SutCounters(
            captured_packets=captured,
            dropped_ring_full_packets=dropped,
            decoded_packets=captured - dropped,
        )

    def facts(self) -> Json:
        return {}


class FakeSut:
    """A Sut."""

    name = "fake"
    places: Sequence[Place] = ()
    defrag = False
    cpus: str | None = None
    holds_packets: int | None = None
    rest_seen_s: float | None = None

    def __init__(self, world: World) -> None:
        self._world = world

    def needs_bits(self) -> str | None:
        return None

    def problems(self, bits: Bits | None) -> Sequence[str]:
        return []

    def files(self) -> Mapping[str, Path]:
        return {}

    def role(self, thread: str) -> Role | None:
        return None

    def launch(self, env: Env) -> FakeRunning:
        return FakeRunning(self._world, env.launch(ProcessSpec(argv=("fake",))))

    def facts(self) -> Json:
        return {"name": self.name}


class FakeOfferer:
    """An Offerer; what it sent has arrived when it returns."""

    intended_duration_s: float | None = 0.0
    processes: Sequence[HostProcess] = ()

    def __init__(self, world: World) -> None:
        self.intended_packets = world.intended_packets
        self._world = world

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        self._world.say("aim")

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        self._world.say("offer")
        self._world.offers += 1
        tick(self._world.sent_packets)
        now = time.monotonic_ns()
        return OfferedLoad(
            intended_packets=self.intended_packets,
            sent_packets=self._world.sent_packets,
            sent_bytes=self._world.sent_packets * FRAME_BYTES,
            duration_s=0.0,
            intended_duration_s=self.intended_duration_s,
            schedule_error_us=ScheduleError(p50=1.0, p99=2.0, max=3.0),
            cpu_s=0.0,
            first_sent_mono_ns=now,
            last_sent_mono_ns=now,
        )


class FakeLoad:
    """A LoadGenerator."""

    name = "fake"
    unit: Literal["packets", "transactions"] = "packets"
    late_ratio = 0.05
    constant_rate = False
    writes_dst_macs = False
    senders = 0

    def __init__(self, world: World) -> None:
        self._world = world

    def problems(self) -> Sequence[str]:
        return []

    def duration_s(self) -> float | None:
        return 0.0

    def mean_pps(self) -> float | None:
        return None

    def trace_facts(self) -> TraceFacts:
        return TraceFacts(
            path=Path("/fake.pcap"),
            sha256="0" * 64,
            packets=self._world.intended_packets,
            frame_bytes=self._world.intended_packets * FRAME_BYTES,
            duration_s=0.0,
            longest_frame_bytes=FRAME_BYTES,
            planned=Planned(
                packets=self._world.intended_packets,
                frame_bytes=self._world.intended_packets * FRAME_BYTES,
                flows=1,
                duration_s=None,
                window_packets=self._world.intended_packets,
                window_s=0.0,
            ),
            fragments=NO_FRAGMENTS,
            at_tap=None,
            never_at_tap_packets=0,
            peak_demand=None,
            flow_sizes=None,
            raw=whole(TraceResult, {}),
        )

    @contextmanager
    def prepare(self, link: Link, *, work: Path, journal: UndoJournal) -> Iterator[FakeOfferer]:
        self._world.say("prepare load")
        try:
            yield FakeOfferer(self._world)
        finally:
            self._world.say("put load away")

    def facts(self) -> Json:
        return {"name": self.name}


if TYPE_CHECKING:  # mypy holds the fakes to the seams they stand in for
    _SETUP: Setup = FakeSetup(World())
    _SUT: Sut = FakeSut(World())
    _LOAD: LoadGenerator = FakeLoad(World())
