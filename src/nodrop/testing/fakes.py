"""A setup, a SUT and a load without a machine: each step of a trial leaves a word, in order.

    world = World(fails_at="launch")
    ... run a trial with FakeLab(world), FakeSetup(world), FakeSut(world), FakeLoad(world) ...
    assert world.words == ["lab up", "provision", "prepare load", "launch", ...]

The packets go the whole way: intended → sent → arrived → captured → decoded, as `FakeWorld` says.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import is_typeddict

from nodrop.errors import TrialFailed
from nodrop.ledger.hops import Account, Hop
from nodrop.protocol import ProbeResult, SampleRow, TraceResult
from nodrop.testbed.hosts.api import (
    AnyJob,
    Completed,
    Host,
    HostProcess,
    Json,
    LabPort,
    Link,
    SpawnRequest,
    UndoAction,
    UndoJournal,
)
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.api import Lab
from nodrop.testbed.load.api import (
    Fragments,
    LoadGenerator,
    OfferedFlows,
    OfferedLoad,
    Planned,
    ScheduleError,
    Tick,
    TraceFacts,
)
from nodrop.testbed.setups.api import (
    Env,
    Limits,
    PlaceReading,
    Process,
    ProcessSpec,
    Proof,
    SamplesInside,
    Setup,
)
from nodrop.testbed.setups.contained import LocalView
from nodrop.testbed.suts.api import Drained, Readiness, Sut, SutCounters

# A lab, its hosts and their jobs without a machine, all of one `FakeWorld` that notes each step.

Event = TypeVar("Event")


def whole(kind: type[Event], said: Mapping[str, Any]) -> Event:
    """An event with nothing (0, "", [], None) in each field that must be there and is not said."""
    hints = get_type_hints(kind, include_extras=True)
    filled = {
        name: _filled(_plain(hint), said.get(name))
        for name, hint in hints.items()
        if name in said or get_origin(hint) is not NotRequired
    }
    return cast(Event, {**said, **filled})


def _plain(hint: Any) -> Any:
    while get_origin(hint) in (NotRequired, Annotated):
        hint = get_args(hint)[0]
    return hint


def _filled(hint: Any, value: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(one for one in map(_plain, get_args(hint)) if one is not type(None))
    if is_typeddict(hint):
        return whole(hint, value or {})
    inner = get_args(hint)
    match get_origin(hint):
        case builtin if builtin is list:
            return [_filled(_plain(inner[0]), one) for one in value or ()]
        case builtin if builtin is dict:
            return {key: _filled(_plain(inner[1]), one) for key, one in (value or {}).items()}
        case builtin if builtin is Literal:
            return inner[0] if value is None else value
    return hint() if value is None else value


TX_PORT, RX_PORT = "ndtx0", "ndrx0"


@dataclass(slots=True, kw_only=True)
class FakeWorld:
    """State that the fakes share."""

    intended_packets: int = 1000
    unsent_packets: int = 0
    lost_on_the_way_packets: int = 0
    ring_full_packets: int = 0
    late_packets: int = 0
    """Packets counted by the receiving NIC once the SUT has been stopped."""
    fails_at: str | None = None
    """The step with this word raises TrialFailed, after the word is said."""
    dies_at: BaseException | None = None
    """Error raised there instead, such as Interrupted."""
    words: list[str] = field(default_factory=list)
    offers: int = 0
    """Number of loads that were offered; every counter of the world goes on."""

    def say(self, word: str) -> None:
        self.words.append(word)
        if word == self.fails_at:
            raise self.dies_at or TrialFailed(f"{word}: failed on purpose")

    @property
    def sent_packets(self) -> int:
        return self.intended_packets - self.unsent_packets

    @property
    def arrived_packets(self) -> int:
        return self.sent_packets - self.lost_on_the_way_packets


class FakeJournal:
    """An UndoJournal that only remembers."""

    label = "fake"

    def __init__(self, world: FakeWorld) -> None:
        self._world = world
        self.entries: list[tuple[str, tuple[str, ...]]] = []

    def push(self, *, what: str, action: UndoAction, arguments: Sequence[str] = ()) -> None:
        self.entries.append((what, (action, *arguments)))

    def process(self, pid: int, what: str) -> None:
        self.entries.append((what, (str(pid),)))

    def undo(self) -> Sequence[str]:
        self._world.say("journal undone")
        return []


class FakeJob:
    """A NodeJob; a sampler writes the two rows that a short trial would have."""

    pid = far_pid = 0

    def __init__(self, world: FakeWorld, spec: Mapping[str, Any]) -> None:
        self.ready: Json = {}
        self._world = world
        self._spec = dict(spec)
        self._name = spec["job"]
        self._world.say(f"{self._name} job")

    def again(self, spec: Mapping[str, Any], *, timeout_s: float) -> None:
        self._spec = dict(spec)
        self._world.say(f"{self._name} job again")

    def start(self, *, at_mono_ns: int | None = None) -> None:
        self._row()

    def stop(self) -> None:
        self._row()

    def samples(self) -> Sequence[Json]:
        return []

    def result(self, *, timeout_s: float, tick: Callable[[], None] | None = None) -> Json:
        return {"type": "result", **{word: {"ns": {}} for word in self._spec.get("what", ())}}

    def ended(self) -> bool:
        return False

    def close(self) -> None:
        self._world.say(f"{self._name} job closed")

    def _row(self) -> None:
        if path := self._spec.get("path"):
            row: Json = {
                "mono_ns": time.monotonic_ns(),
                "cpus": [],
                "tree": {},
                "processes": [],
            }
            with Path(path).open("a") as file:
                file.write(json.dumps(whole(SampleRow, row)) + "\n")


class FakeHost:
    """A Host whose counters are the world's."""

    clock_offset_ns = 0
    here = True

    def __init__(self, world: FakeWorld, name: str) -> None:
        self.name = name
        self._world = world

    def reads(self, file: Path) -> str:
        return str(file)

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, stdin: str = ""
    ) -> Completed:
        self._world.say(f"run {argv[0]}")
        return Completed(argv=tuple(argv), returncode=0, stdout="", stderr="", seconds=0.0)

    def spawn(self, request: SpawnRequest) -> subprocess.Popen[bytes]:
        raise NotImplementedError("nothing runs in a fake world")

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> FakeJob:
        return FakeJob(self._world, spec)

    def probe(
        self,
        *what: str,
        ports: Sequence[str] = (),
        pids: Sequence[int] = (),
        files: Sequence[str] = (),
        timeout_s: float = 30,
    ) -> ProbeResult:
        counters = {
            "links": {port: self._link(port) for port in ports},
            "snmp": defaultdict(int),
            "softnet": [],
            "reassembly": dict.fromkeys(("queues", "memory_bytes", "high_thresh_bytes")),
        }
        said = {word: counters if word == "counters" else {} for word in what}
        return cast(ProbeResult, said)

    def _link(self, port: str) -> Json:
        stats: dict[str, int] = defaultdict(int)
        world = self._world
        stats |= {
            "tx_packets": world.offers * world.sent_packets if port == TX_PORT else 0,
            "rx_packets": world.offers * world.arrived_packets if port == RX_PORT else 0,
        }
        if port == RX_PORT and "stop" in world.words:
            stats["rx_packets"] += world.late_packets
        return {"stats": stats, "ethtool": {}, "xdp": None}


class FakeLab(Lab):
    name = "fake"
    ports = (TX_PORT, RX_PORT)

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def carrying(self, frame_bytes: int) -> FakeLab:
        return self

    def problems(self) -> Sequence[str]:
        return []

    def cpus_in_common(self) -> AbstractSet[int]:
        return {0, 1}

    @contextmanager
    def up(self, journal: UndoJournal) -> Iterator[Link]:
        self._world.say("lab up")
        try:
            yield Link(
                tx=LabPort(host=FakeHost(self._world, "tx"), name=TX_PORT),
                rx=LabPort(host=FakeHost(self._world, "rx"), name=RX_PORT),
            )
        finally:
            self._world.say("lab down")

    def facts(self) -> Json:
        return {"name": self.name}


if TYPE_CHECKING:  # mypy holds the fakes to the seams they stand in for
    _LAB: Lab = FakeLab(FakeWorld())
    _JOURNAL: UndoJournal = FakeJournal(FakeWorld())


FRAME_BYTES = 100
NO_FRAGMENTS = Fragments(offered_packets=0, absorbed_packets=0, datagrams=0, held_packets=0)


class FakeProcess(LocalView):
    """A Process; its PID is the test's own."""

    def __init__(self, world: FakeWorld, near: Host, work: Path) -> None:
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

    def __init__(self, world: FakeWorld, nic: LabPort, bits: Bits | None, work: Path) -> None:
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


class FakeSetup(Setup):
    """A Setup."""

    name = "fake"

    def __init__(self, world: FakeWorld) -> None:
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

    def __init__(self, world: FakeWorld, process: Process) -> None:
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


class FakeSut(Sut):
    """A Sut."""

    name = "fake"

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def problems(self, bits: Bits | None) -> Sequence[str]:
        return []

    def launch(self, env: Env) -> FakeRunning:
        return FakeRunning(self._world, env.launch(ProcessSpec(argv=("fake",))))

    def facts(self) -> Json:
        return {"name": self.name}


class FakeOfferer:
    """An Offerer; what it sent has arrived when it returns."""

    intended_duration_s: float | None = 0.0
    processes: Sequence[HostProcess] = ()
    flows: OfferedFlows = "new"

    def __init__(self, world: FakeWorld) -> None:
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


class FakeLoad(LoadGenerator):
    """A LoadGenerator."""

    name = "fake"
    late_ratio = 0.05
    constant_rate = False
    senders = 0

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def problems(self) -> Sequence[str]:
        return []

    def duration_s(self) -> float | None:
        return 0.0

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
    _SETUP: Setup = FakeSetup(FakeWorld())
    _SUT: Sut = FakeSut(FakeWorld())
    _LOAD: LoadGenerator = FakeLoad(FakeWorld())
