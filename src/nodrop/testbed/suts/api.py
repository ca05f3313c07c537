"""WHAT is measured: how to start it, when it is ready, what it counted."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from nodrop.config.replay import REPLAYING
from nodrop.detections import By, FoundDetections
from nodrop.errors import BadKey
from nodrop.ledger.hops import Place
from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.outcome import Problem
from nodrop.ledger.over_time import Served
from nodrop.ledger.transactions import Latency, Messages
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.images.sut_bits import Version
from nodrop.testbed.setups.api import Env, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The proof that the SUT listens."""

    ready_mono_ns: int
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Parts of the activation time, e.g. load_rules, open_capture."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Observations that prove readiness: threads by name, capture sockets with their fanout
    flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SutCounters:
    """The SUT's own count of what it saw since its start. None = it does not say; 0 = zero."""

    captured_packets: int | None
    """The kernel had for its sockets, ring-full drops included (tp_packets)."""
    dropped_ring_full_packets: int | None
    """Captured packets for which the ring had no room (tp_drops)."""
    decoded_packets: int | None
    own_dropped_packets: int | None = None
    """Dropped packets as the SUT says, where `dropped_ring_full_packets` are the kernel's count of
    a ring that it does not see."""
    decoded_bytes: int | None = None
    counts_wire_bytes: bool = False
    """`decoded_bytes` are of whole frames as they were on the wire, VLAN tags included; else of
    what the kernel handed over, without the outermost tag and what was cut off."""
    cut_packets: int | None = None
    """Decoded ones that the kernel cut to the room in the ring, as far as the SUT says so."""
    invalid_packets: int | None = None
    """Decoded packets that the SUT calls broken."""
    invalid_by: Mapping[str, int] = field(default_factory=dict)
    """Fault, in the SUT's own words → packets; one packet may have several faults."""
    checksum_packets: int | None = None
    """Decoded ones that the SUT left out of its streams for their checksum."""
    checksum_knob: str = ""
    """The setting that has it take them."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Further places of the SUT's own, by name → packets that died there, of those that it took
    from its ring."""
    problems: Sequence[Problem] = ()
    """Why these figures are no measurement: they contradict each other, or the kernel's."""
    results: Mapping[str, int] = field(default_factory=dict)
    """Named decoder results, alerts, flows: `decoder.ipv4`, `decoder.invalid`, `detect.alert` …"""
    per_thread: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counters of each thread, by the kernel's name of the thread (its first 15 bytes); `flows`:
    begun by that thread."""
    per_port: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """`captured_packets` and `dropped_ring_full_packets` by the port they came in at."""
    lag_s: float = 0.0
    """How old the figures for all threads together may be; 0 at rest."""
    per_thread_lag_s: float = 0.0
    over_time: Mapping[str, Sequence[Served]] = field(default_factory=dict)
    """Packets served over time, by thread, as the SUT noted them on the controller's clock; only at
    the end."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name above → where it was read, e.g. "eve.json stats.capture.kernel_packets"."""


NOTHING_SAID = SutCounters(
    captured_packets=None, dropped_ring_full_packets=None, decoded_packets=None
)
COUNTS = (
    *("captured_packets", "dropped_ring_full_packets", "decoded_packets", "decoded_bytes"),
    *("cut_packets", "invalid_packets", "checksum_packets", "own_dropped_packets"),
)
"""Fields of SutCounters that hold one number."""
NAMED_COUNTS = ("invalid_by", "lost", "results")
"""Fields that hold numbers by name."""


def less(after: SutCounters, before: SutCounters) -> SutCounters:
    """Counts between two readings; a counter that either reading lacks is not known."""
    found: dict[str, Any] = {}
    for name in COUNTS:
        then, now = getattr(before, name), getattr(after, name)
        found[name] = None if then is None or now is None else now - then
    for name in NAMED_COUNTS:
        found[name] = _less(getattr(after, name), getattr(before, name))
    for name in ("per_thread", "per_port"):
        earlier = getattr(before, name)
        found[name] = {
            one: _less(counted, earlier.get(one, {}))
            for one, counted in getattr(after, name).items()
        }
    return replace(after, **found)


def _less(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: value - before.get(name, 0) for name, value in after.items()}


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Sum of the values; None if one of them is not known."""
    each = [*values]
    known = [value for value in each if value is not None]
    return sum(known) if len(known) == len(each) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The time at which the SUT came to rest, as narrowly as it was seen, on the controller's
    CLOCK_MONOTONIC."""

    rested_mono_ns: int
    """The time from which on, at the latest, the SUT had nothing left."""
    busy_mono_ns: int | None = None
    """The last time at which the SUT was seen at work; None = it was not seen at work."""
    left_packets: int | None = None
    """Packets that waited at the first look after the last packet; None = not known."""


class RunningSut(Protocol):
    """One launched SUT, from launch to its last word; with `close`, if it holds a job beside it."""

    process: Process

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        """An event with a deadline. TrialFailed in the SUT's own words if it dies or is late."""
        ...

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        """Waits until the counters rest (or account for all expected packets)."""
        ...

    def counted(self) -> SutCounters:
        """Exact counters of a SUT that goes on; at rest, after a drain."""
        ...

    def mark(self) -> None:
        """Marks the counters at rest, after a warm-up or a trial: what was counted so far is not
        the next trial's; `counted`, `finish` and the next `drain` leave it out."""
        ...

    def live(self) -> SutCounters | None:
        """Counters right now for a progress line; cheap; None if unknown."""
        ...

    def finish(self, *, timeout_s: float) -> SutCounters:
        """Stops the SUT and reads the final counters."""
        ...

    def facts(self) -> Json:
        """The SUT's real version, runmode, threads and effective capture settings."""
        ...


@runtime_checkable
class AnsweringSut(Protocol):
    """A RunningSut that answers its load."""

    lies_outside: bool
    """The SUT is no part of the lab: the load reaches it by this machine's own network."""
    messages: Messages | None
    """Messages that it counted, once it has finished; None if it counts none."""
    round_trips: Mapping[str, Latency]
    """Time from its questions to programs behind it to their answers, by name, once it has
    finished."""

    def server(self, address: str) -> str:
        """The server, for the load, if its place has this address: `sctp:198.18.0.2:36412`."""
        ...


class SinceMark:
    """The part of a RunningSut that leaves out what was counted before its mark."""

    _base: SutCounters | None = None

    def _since_mark(self, found: SutCounters) -> SutCounters:
        return found if self._base is None else less(found, self._base)

    def _base_packets(self) -> int:
        return 0 if self._base is None else self._base.captured_packets or 0


SMALLEST_V3_BYTES = 128
"""Least room that a packet takes in a ring of version 3, which packs one behind the other: its
header and 60 bytes of frame."""


def end_words(status: int) -> str:
    """The exit status of a program; negative = by this signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


class Sut(ABC):
    """Built from the experiment's [sut] table by its entry point: `Suricata(options, base)`.

    Its defaults are those of a program that takes packets from one port of the kernel.
    """

    name: str
    answers: str = ""
    """Kind of load that it answers; empty for a SUT that only receives packets."""
    defrag: bool = False
    """Capture sockets join a fanout group with PACKET_FANOUT_FLAG_DEFRAG."""
    ports: int = 1
    """NIC ports that it captures on."""
    polls: bool = False
    """Workers run whether packets come or not."""
    drives_device: bool = False
    """Able to have a NIC to itself, by its PCI address."""
    cpus: str | None = None
    """CPU list that it is pinned to, in the numbers of its place; None leaves it to the limits."""
    cpu_sets: Mapping[str, str] = {}
    """Key of the experiment → CPU list that it pins a role to."""
    places: Sequence[Place] = ()
    """The places it adds: its capture ring, with its own names for its settings. A verdict uses
    neutral words for a SUT that names no places."""
    holds_packets: int | None = None
    """Most packets that its rings hold, by its options; None = not known before it runs."""
    rest_seen_s: float | None = None
    """How late it is seen that it has nothing left, on a quiet host; None = not known."""
    version: Version | None = None
    """Arguments with which its program says its version, and the pattern of what it says; None = as
    its image or package says."""
    remarks: Sequence[str] = ()
    """Remarks on its own settings, before it runs."""

    @property
    def unit(self) -> Literal["packets", "transactions"]:
        """Unit of the loads that it can be offered."""
        return "transactions" if self.answers else "packets"

    @property
    def pins(self) -> Mapping[str, str]:
        """Key of the experiment → CPU list that it pins to: its roles' or, without these, all of
        it."""
        return self.cpu_sets or ({} if self.cpus is None else {"sut.cpus": self.cpus})

    def needs_bits(self) -> str | None:
        """The image recipe that can supply it ("suricata"); None if the node is enough."""
        return None

    @abstractmethod
    def problems(self, bits: Bits | None) -> Sequence[str]:
        """Everything wrong with its options, files and rules that can be known before launch."""

    def misplaced(self, setup: str, *, mtu: int | None, standing: bool) -> str:
        """Why it cannot be measured so, in words; "" if it can. `mtu`: that of the lab's ports,
        None if they are the user's; `standing`: it is to go on between trials."""
        del setup, mtu, standing
        return ""

    def files(self) -> Mapping[str, Path]:
        """Files of the host that it is shown, rules above all, by their names in its work folder:
        each trial compares what it really sees with what they held when the run began."""
        return {}

    def inputs_sha256(self) -> Mapping[str, str]:
        """Content of each file that was read when it was built, by the key that names it."""
        return {}

    @abstractmethod
    def launch(self, env: Env) -> RunningSut: ...

    def role(self, thread: str) -> ThreadRole | None:
        """Role of the thread with that kernel name; None if it is none of the SUT's own."""
        del thread
        return None

    @abstractmethod
    def facts(self) -> Json:
        """Facts for the manifest: hashes of rules and configuration."""


@runtime_checkable
class Detecting(Protocol):
    """A Sut whose detections can be asked for (`measure.outcome`)."""

    event_log: str
    """Name in the work folder."""
    alert_counter: str
    """Name of its own count of alerts among the results of its counters."""
    roomy: Mapping[str, Any]
    """Keys of its table with which it loses nothing at a low load."""

    def detecting(self, outcome: Sequence[str]) -> Sut:
        """A copy of this SUT that also logs these: alerts, flows, http, dns, tls."""
        ...

    def limits(self) -> Mapping[str, By]:
        """Rules that limit their alerts, and by what: `gid:sid` → by_src."""
        ...

    def clocks(self) -> frozenset[str]:
        """Rules that find otherwise if the same packets come at another speed: `gid:sid`."""
        ...

    def remembers(self) -> str:
        """Why, in words, the alerts of one load change those of the next, although each has other
        addresses; "" if they do not."""
        ...

    def offline(self, bits: Bits | None, trace: Path, *, standing: bool) -> FoundDetections:
        """Units that it finds when it reads the trace itself, with the same rules, settings and
        runmode. `standing`: of one that stays up. LabProblem if it cannot."""
        ...

    def detection_key(self, bits: Bits | None) -> Json:
        """Key of everything but the trace that decides what it finds, by content."""
        ...


def must_be_detectable(sut: Sut, load: Mapping[str, Any], *, standing: bool) -> Sequence[str]:
    """BadInput if it cannot be said which detections a load should bring. `standing`: to a SUT that
    had other loads before."""
    if not isinstance(sut, Detecting):
        raise BadKey("measure.outcome", f'sut "{sut.name}" logs no detections: leave it out')
    if what := _undetectable(load):
        raise BadKey("measure.outcome", f"it cannot be said what to expect of {what}")
    if standing and (load.get("kind") != "replay" or load.get("flows") == "same"):
        raise BadKey(
            "measure.outcome",
            "this load sends the same flows to a SUT that stays up, and it alerts on each once: "
            'set measure.sut = "fresh", or load.kind = "replay" with load.flows = "distinct"',
        )
    if standing and (why := sut.remembers()):
        raise BadKey("measure.outcome", f'{why}: set measure.sut = "fresh"')
    return ()


def _undetectable(load: Mapping[str, Any]) -> str:
    """Property of a load that leaves open which detections it should bring, and what to do."""
    if load.get("kind") not in REPLAYING or (
        isinstance(load.get("trace"), list | tuple) and not load.get("joined")
    ):
        return "this load: replay one trace"
    if load.get("flows") == "same" and load.get("multiplier", 1) != 1:
        return 'load.flows = "same": identical copies raise alerts of their own; leave it out'
    if load.get("loops", 1) != 1:
        return "load.loops, which sends a trace again: give a longer trace"
    if load.get("duration_s") is not None:
        return "load.duration_s, which ends a trace early: use load.window"
    return ""
