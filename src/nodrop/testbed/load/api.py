"""LOAD: what is offered, and the proof of what was really sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from nodrop.ledger.balance import Lengths
from nodrop.ledger.imbalance import FlowShares
from nodrop.ledger.over_time import SenderBurst
from nodrop.ledger.sent_flows import SentFlows
from nodrop.ledger.transactions import Transactions
from nodrop.protocol import Achieved, SentProfile, TraceResult
from nodrop.results.load_window import LoadWindow
from nodrop.results.trial import ScheduleErrorUs
from nodrop.results.trial import Unscheduled as Unscheduled
from nodrop.testbed.hosts.api import HostProcess, Json, Link, UndoJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """The effect of fanout defragmentation on the packets of one trial (simulated), if the kernel
    refuses none of them: the traffic's own part, at any load."""

    offered_packets: int
    """Fragments that enter reassembly (Ip ReasmReqds)."""
    absorbed_packets: int
    """Fragments of datagrams that become whole, among `offered_packets`."""
    datagrams: int
    """Whole datagrams put back into the stream (Ip ReasmOKs)."""
    held_packets: int
    """Fragments of datagrams that never become whole; the kernel throws them away uncounted."""
    fails: int = 0
    """The count that the fragments add to Ip ReasmFails: `timeouts`, `overlaps`, and other faults
    of the trace."""
    timeouts: int = 0
    overlaps: int = 0
    merged_bytes: int | None = None
    """Bytes of the absorbed fragments' frames at the tap, less those of the datagrams; None = not
    known."""
    held_bytes: int | None = None
    """Bytes of the held fragments' frames at the tap."""

    @property
    def missing_packets(self) -> int:
        return self.offered_packets - self.datagrams


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTap:
    """Frames of the whole trial by their length at a capture socket: without the outermost VLAN
    tag, which the kernel takes off before."""

    arriving: Lengths
    defragmented: Lengths | None
    """Lengths with whole datagrams in place of their fragments; None without a fragment."""
    tagged_packets: int
    """Frames that had such a tag."""
    cut_packets: int
    """Frames that are sent as short as the capture cut them (load.cut)."""
    joined: bool
    """Frames longer than a usual wire carries are sent as they are (load.offloaded)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakDemand:
    """The most packets that a load asks for within a short time, whenever that begins."""

    packets_in_1_ms: int
    packets_in_10_ms: int


def lasting(span_s: float, packets: int) -> float:
    """Seconds that packets are offered for, if the first and the last are `span_s` apart. The last
    one has its time as well, so that one packet a second is one a second (RFC 2544: frames offered
    in the time of a trial)."""
    return span_s * packets / (packets - 1) if packets > 1 else span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The load that one trial will send; an upper bound if it is at top speed and ends by the
    clock."""

    packets: int
    """Packets of all passes and replicas; a replica that is not whole adds those of its flows."""
    frame_bytes: int
    flows: int
    """Flows, those of replicas with addresses of their own included."""
    duration_s: float | None
    """Seconds, as `lasting` counts them; None at top speed."""
    window_packets: int
    """Packets of the trace up to the last one that is sent: all, unless the trial ends before."""
    window_s: float
    """Time of that one after the first, in the trace's own time."""

    @property
    def pps(self) -> float | None:
        return self.packets / self.duration_s if self.duration_s else None

    @property
    def bps(self) -> float | None:
        """Bits of frames per second."""
        return 8 * self.frame_bytes / self.duration_s if self.duration_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """Facts about the capture file that is sent; for a load with a window, about that window."""

    path: Path
    sha256: str
    packets: int
    frame_bytes: int
    duration_s: float
    longest_frame_bytes: int
    planned: Planned
    fragments: Fragments
    """Fragments of the whole trial: loops and replicas included."""
    at_tap: AtTap | None
    """None = not known."""
    never_at_tap_packets: int
    """Frames of the whole trial that are too short for what their header announces. send() refuses
    those without a whole Ethernet header, the receiving kernel throws cut VLAN tags away."""
    peak_demand: PeakDemand | None
    """Demand at the most, at the speed and of all the replicas asked for: each replica peaks once,
    and they need not do so at one time. None at a rate or at top speed, which have no bursts."""
    flow_sizes: FlowShares | None
    """Flow sizes of the whole load; None if it sends only a part of the trace's flows."""
    raw: TraceResult
    """Everything the node said, for the manifest."""
    parts: Sequence[TraceFacts] = ()
    """The traces that it was made of, one for each port, each alone at its own timing; () = it is
    not made of several."""

    withheld: Sequence[int] = ()
    """Numbers, from 1, of packets that are left out on purpose (load.withhold)."""
    source: WindowSource | None = None
    """Trace that the window was cut from; None if the load has no window."""
    captured: Captured | None = None
    """The capture that the user named; None if nodrop made the trace, or lays several together."""
    silence_s: float = 0.0
    """Time at the end of each pass without a packet: of a window that lasts longer than its
    packets take. A load that sends whole passes at their own timing offers its packets in that
    time as well."""

    @property
    def pass_s(self) -> float:
        """Time of one pass over what is sent, at its own speed."""
        return lasting(self.duration_s, self.packets) + self.silence_s

    @property
    def memory_bytes(self) -> int:
        """The most memory that our sender takes while it makes its index: the capture as a file (16
        bytes a packet beside the frames) and 24 bytes a packet, which a growing list takes thrice.
        Replicas are written as they are sent and take none."""
        return self.frame_bytes + self.packets * (16 + 3 * 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A capture file, and what was changed of it before it was sent."""

    path: Path
    changed: bool
    counts: Mapping[str, Any]
    """Counts of changes and oddities, by the names in crates/trace/src/prepare.rs."""
    words: Sequence[str]
    """Changes and oddities, a sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSource:
    """The trace of a load with a window."""

    path: Path
    sha256: str
    window: LoadWindow


ScheduleError = ScheduleErrorUs
"""|sent − due| in µs over all packets sent; the field that holds it names the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """Intended and offered, side by side. The sender is a suspect. Counts are in the load's unit:
    of a load of transactions, those that were to be started, and were."""

    intended_packets: int
    sent_packets: int
    sent_bytes: int
    refused_packets: Mapping[str, int] = field(default_factory=dict)
    """errno name → packets the kernel would not take."""
    duration_s: float
    """Seconds, as `lasting` counts them; so is the intended duration."""
    intended_duration_s: float | None
    """None at top speed."""
    schedule_error_us: ScheduleError | None
    """Delay behind the feasible schedule: what the trace asks for at once, shaped at the sender's
    measured top speed. None if the generator cannot say (top speed, tcpreplay)."""
    asked_schedule_error_us: ScheduleError | None = None
    """Delay behind what was asked for; None as above."""
    shaped_packets: int | None = None
    """Packets asked for closer to the one before than the sender sends."""
    shaped_pps: float | None = None
    """The rate at which those could leave; None if there are none."""
    spun_share: float | None = None
    """Share of its time in which the sender waited by spinning; in the rest it slept. None if the
    generator cannot say, or waits for nothing (top speed)."""
    late_bursts: tuple[SenderBurst, ...] | None = None
    """The largest, in the order of time; None if the generator cannot say."""
    late_burst_packets: int | None = None
    """Packets of all late bursts, those not kept included."""
    answered_packets: int | None = None
    """Packets that the receiving host sent back as part of the load: its capture sockets see them
    as well. None if it is to send none."""
    unscheduled: Unscheduled | None = None
    """None if the load has a schedule, or asks for top speed."""
    cpu_s: float | None
    first_sent_mono_ns: int | None
    """Time on the sender's CLOCK_MONOTONIC; None if nothing was sent."""
    last_sent_mono_ns: int | None
    facts: Mapping[str, object] = field(default_factory=dict)
    """backend, realtime, version, argv."""
    achieved: Achieved | None = None
    """`interval_ns`, and per interval from the first packet on `packets`, `bytes` and
    `largest_error_ns`; None if the generator cannot say."""
    sent_profile: SentProfile | None = None
    """Packets that left in each bin of about a millisecond; None as above."""
    transactions: Transactions | None = None
    """Classes and times of a load that was answered; None of a load of packets."""

    @property
    def unsent_packets(self) -> int:
        return self.intended_packets - self.sent_packets


Tick = Callable[[int | None], None]
"""Call with the packets sent so far; None if the generator does not say."""


OfferedFlows = Literal["new", "repeated", "used up"]
"""Flows of an offer beside those of the offers before it: all new; some the same, as the generator
or its settings have it; some the same since there are no more addresses."""


class Offerer(Protocol):
    """Prepared: trace in RAM, sockets open. It offers as often as it is asked to, and each time
    flows that it has not sent before, if it can."""

    flows: OfferedFlows
    """Flows of the next offer."""

    @property
    def intended_packets(self) -> int | None:
        """Packets of the next offer; None if it asks for no number."""
        ...

    intended_duration_s: float | None
    """Seconds of the next offer."""
    processes: Sequence[HostProcess]
    """Processes that will send; () if none runs yet."""

    def aim(self, load: LoadGenerator, *, work: Path) -> None:
        """Makes another load the next to be offered: of the same generator, at another pace or
        length or with other replicas. What both have in common, the trace above all, stays in
        memory. `work` takes its logs. All that takes time is done here, before anything is
        read or sent; `prepare` has aimed at its own load."""
        ...

    def offer(self, *, timeout_s: float, tick: Tick) -> OfferedLoad:
        """Sends what was aimed at, once, and returns when the last packet left; aim again before
        the next offer. Calls `tick` about twice a second while it waits, never from the thread or
        process that sends."""
        ...


@runtime_checkable
class OffersTransactions(Protocol):
    """An Offerer whose load is answered."""

    completed: int | None
    """Transactions that have ended so far; None if the load does not say."""
    in_progress: int | None
    """Transactions that were started and have not ended."""


class LoadGenerator(ABC):
    """Built from the experiment's [load] table by its entry point.

    Its defaults are those of a part of nodrop that sends no capture.
    """

    name: str
    program: str = ""
    """The program that the sender must have; the Debian package has the same name."""
    unit: Literal["packets", "transactions"] = "packets"
    late_ratio: float
    """Sending may take this much longer than asked: a generator that does not publish its schedule
    error is judged by its duration alone."""
    constant_rate: bool
    """The load asked for packets per second, and not for the trace's own timing."""
    writes_dst_macs: bool = False
    """The generator heeds `Link.dst_macs`."""
    senders: int
    """Threads or processes that send at once and that key `cpu` of its table pins; 0 = none."""

    @abstractmethod
    def problems(self) -> Sequence[str]: ...

    def misplaced(self, setup: str, *, mtu: int | None, alone: bool) -> str:
        """Why it cannot send to a SUT in such a setup, in words; "" if it can. `mtu`: that of the
        lab's ports, None if they are the user's; `alone`: one instance captures one port."""
        del setup, mtu, alone
        return ""

    def files(self) -> Sequence[Path]:
        """Files that the sender reads, the trace above all."""
        return ()

    def inputs_sha256(self) -> Mapping[str, str]:
        """Content of each file that was read when it was built, by the key that names it."""
        return {}

    @abstractmethod
    def duration_s(self) -> float | None:
        """How long one offer is meant to take, for the plan's estimate; None if that is only
        known once the trace was read. Touches nothing."""

    def mean_pps(self) -> float | None:
        """Packets per second that one offer is meant to have; None as for `duration_s`."""
        return None

    def trace_facts(self) -> TraceFacts | None:
        """Read once, whole; None if it sends no capture. BadInput if the trace cannot be used."""
        return None

    def sent_flows(self) -> SentFlows | None:
        """Flow of each packet that one offer sends, in the order of sending; None if that is not
        known, or too much."""
        return None

    @abstractmethod
    def prepare(
        self, link: Link, *, work: Path, journal: UndoJournal
    ) -> AbstractContextManager[Offerer]: ...

    @abstractmethod
    def facts(self) -> Json: ...
