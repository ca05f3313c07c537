"""One line of trials.jsonl: everything most reports need to know of a trial.

An envelope that fits any kind of load, and a body by kind: `packets` (results/packet_books.py) and
`transactions` (results/transaction_books.py). `None` means not measured and `0` means zero.
schema/trial.schema.json is made from these models.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema

from nodrop.config.units import parse_cpus
from nodrop.errors import NodropError
from nodrop.ledger.imbalance import BusyThread, FlowShares, SutThread
from nodrop.ledger.outcome import FAILURES, Reason
from nodrop.ledger.quantities import Count, NotNegative, Packets, Seconds
from nodrop.ledger.sender import Quota
from nodrop.results.detection_books import Detections
from nodrop.results.load_window import LoadWindow
from nodrop.results.model import FORMAT, Model, UnknownFormat, current
from nodrop.results.packet_books import FLAT, PacketBooks
from nodrop.results.transaction_books import TransactionBooks
from nodrop.stats.interval import HostCluster
from nodrop.untrusted.json_text import NotJson, decode_object, shown


class RecordError(NodropError):
    """A line that is not a trial record."""


class ScheduleErrorUs(Model):
    """|sent − due| over all that was sent."""

    p50: NotNegative
    p99: NotNegative
    max: NotNegative


class LateBurst(Model):
    """The sender stood still, and then let leave at once what was asked for apart."""

    at_s: NotNegative
    """Time from the first packet of the trial to the first of the burst."""
    late_us: NotNegative
    """The largest schedule error in it."""
    sent: Count


class Unscheduled(Model):
    """Figures of a load that asks for no packet at any time (iperf3): it cannot be late, and does
    not come again. Null = not known."""

    generator: str
    flows: Count
    mean_frame_bytes: NotNegative | None = None
    longest_on_wire_bytes: Count
    """MTU and Ethernet header: a longer frame is many segments that cross as one packet."""
    least_pps: NotNegative | None = None
    """The slowest window of 100 ms at the sending port."""
    most_pps: NotNegative | None = None
    spread_ratio: NotNegative | None = None
    """Standard deviation of those windows over their mean."""
    said_lost_packets: Count | None = None
    """Loss that the generator itself reports: what its own receiver did not read."""
    socket_full_packets: Count | None = None
    """Datagrams for which the generator's own receiving socket had no room (Udp RcvbufErrors)."""


class Offered(Model):
    """The load, in its unit: asked for, and really sent."""

    unit: Literal["packets", "transactions"] = "packets"
    """Unit of `intended`, `sent`, `unsent`, `per_s`, `shaped_per_s` and the late bursts."""
    intended: Count | None = None
    sent: Count | None = None
    unsent: Count | None = None
    withheld: Count | None = None
    """Packets of the trace left out on purpose (load.withhold); no part of `intended`. Null in
    older runs."""
    duration_s: Seconds | None = None
    """From the first to the last packet sent."""
    intended_duration_s: Seconds | None = None
    per_s: NotNegative | None = None
    bps: NotNegative | None = None
    """Bits of Ethernet frames, without preamble, gap and FCS."""
    schedule_error_us: ScheduleErrorUs | None = None
    """Behind the feasible schedule: the trace's own, shaped at `shaped_per_s`. Null if the
    generator cannot say, or has no schedule."""
    asked_schedule_error_us: ScheduleErrorUs | None = None
    """Behind the schedule that was asked for."""
    shaped_per_s: NotNegative | None = None
    """The sender's top speed, as measured while the trace asked for more; null if it never does."""
    spun_share: NotNegative | None = None
    """Share of its time in which the generator spun, on a CPU of its own, while it waited for due
    times; the rest it slept. Null at top speed, or if the generator cannot say."""
    sent_late: Count | None = None
    """Sent at once because the sender was late, though asked for apart; null if the generator
    cannot say."""
    largest_late_burst: LateBurst | None = None
    """Null if there is none, or the generator cannot say."""
    unscheduled: Unscheduled | None = None
    """Null if the load has a schedule, or asks for top speed."""
    repeats_flows: bool | None = None
    """The SUT had seen flows of the load in an earlier trial of the same start; null if each trial
    has a start of its own."""

    @property
    def pps(self) -> float | None:
        """Packets a second; null of a load of transactions."""
        return self.per_s if self.unit == "packets" else None


class Ramp(Model):
    """Findings of a trial whose load grew by equal factors in equal times. They are on the scale of
    the search, as nearly as packets/s say it; null = not seen. A ramp decides nothing."""

    start: NotNegative
    """Where it began; it ended at `value`."""
    clean_to: NotNegative | None = None
    """Load up to which nothing was lost, and the SUT's busiest thread had time left."""
    lossy_from: NotNegative | None = None
    """Here at the latest packets were lost."""
    full_from: NotNegative | None = None
    """Here its busiest thread had no time left."""
    sender_to: NotNegative | None = None
    """The most that the sender sent, if it fell short of `value`."""
    expects: NotNegative | None = None
    """A guess at what it carries: where the search looks next."""
    expects_by: Literal["served", "cpu"] | None = None
    """From what was served of the load that was too much, or from CPU per packet."""


class Soak(Model):
    """A long trial after the search, at the load that was carried. It decides nothing."""

    lossy_from_s: NotNegative | None = None
    """Time from the first packet to the first loss; null if none was seen, or nobody saw when."""


class Searched(Model):
    """Which load of a search a trial offered."""

    by: Literal["multiplier", "speed", "pps", "rate"]
    """The key of [load] that the search varies."""
    value: NotNegative
    duration_s: Seconds
    """Seconds for which the trial was asked to offer the load."""
    round: Annotated[int, Field(ge=1)]
    """1-based: each is a whole search with a new start of the SUT."""
    ramp: Ramp | None = None
    """Null if the load was the same all the time."""
    soak: Soak | None = None
    """Null if the trial is one of the search itself."""
    need: NotNegative | None = None
    """The load that has to be carried (`search.need`), on the search's scale."""
    goals_of: Literal["packets", "detections"] = "packets"
    """Packets or detections: the trial is judged by the loss ratio of these."""


class Program(Model):
    """One that is no part of the trial, as the kernel names it."""

    name: str
    pid: Count
    cpu_s: Seconds
    """CPU time, with that of its children which ended meanwhile."""
    by_children: bool = False
    """Ended children used most of `cpu_s`, as the compilers of a build do."""


STEAL, OTHERS, QUOTA = 0.05, 0.25, 0.05
"""Parts of the CPUs, of the CPUs and of the time beyond which a trial counts as disturbed."""


class Slowed(Model):
    """The CPU of the SUT that was slowed most: another guest or program had a part of its core, of
    which the kernel counts nothing, or its clock changed."""

    cpu: Count
    slow_ratio: NotNegative
    """Part of the time at less than four fifths of its speed."""
    slow_speed_ratio: NotNegative
    """Speed of the CPU in that time, as a part of its full speed."""

    @property
    def lost_ratio(self) -> float:
        """Part of what it could have done that it did not."""
        return self.slow_ratio * (1 - self.slow_speed_ratio)


class Disturbed(Model):
    """Who else had the CPUs while the load was offered."""

    cpus: list[Count] = Field(default_factory=list)
    """CPUs that the SUT or a sender of this host may use."""
    others_ratio: NotNegative | None = None
    """Share of the SUT's CPUs, or of the sender's, that other programs used: the larger of the
    two."""
    programs: list[Program] = Field(default_factory=list)
    """Programs that used most of the whole host, threads of the kernel left out."""
    quota: Quota | None = None
    """Null if none held nodrop back."""
    slowed: Slowed | None = None
    """Null if no CPU of the SUT was, or their speed was not watched."""


def _cpu_list(text: str) -> str:
    try:
        parse_cpus(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is no CPU list, such as 0-2,5") from None
    return text


CpuList = Annotated[str, AfterValidator(_cpu_list)]


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is no time of ISO 8601") from None
    return text


Moment = Annotated[str, AfterValidator(_moment)]

Body = Annotated[PacketBooks | TransactionBooks, Field(discriminator="kind")]
"""The books of the load, by its unit."""
NO_PACKETS = PacketBooks()
"""Packet books of a load that was none of packets: nothing was counted."""


class TrialRecord(Model):
    """One trial."""

    format: Literal[2] = FORMAT
    """Grows when a reader of the old format would misread the new one."""
    cell: dict[str, JsonValue]
    """The factors of the matrix: dotted path of the experiment file → value."""
    repetition: Annotated[int, Field(ge=1)]
    index: Annotated[int, Field(ge=0)]
    """Place in the order of the plan."""
    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Folder below runs/."""
    started_utc: Moment | None = None
    """ISO 8601; null if the trial ended before its first packet."""
    took_s: Seconds | None = None
    """All of it, from the first step until everything was undone; of a SUT that stays up, until
    its books were closed."""
    reset_s: Seconds | None = None
    """Before it, and no part of `took_s`: until the receiver had booted, or the driver of its port
    was loaded anew, and all was as before. Null if nothing was reset for this trial."""
    world: Packets | None = None
    """The index of the first trial that its SUT was offered: trials with the same number share one
    start of the SUT. Null if the SUT did not get ready, and in older runs, where each was new."""

    pair: str | None = None
    """The pair of the fleet that measured it, by the name of its lab; null if it was no fleet."""
    host: str | None = None
    """The host that measured it, by its name in `sittings` of the manifest; null if it is the one
    that the run began on."""

    searched: Searched | None = None
    """Null if the trial is of no search: its cell then says which load it offered."""

    outcome: Literal["measured", "failed", "void"]
    """measured: its books stand. failed: the SUT died, hung or was killed under this load, which is
    a result about it. void: instrument or sender, which says nothing about the SUT."""
    valid: bool
    """outcome is measured."""
    invalid_reasons: list[str] = Field(default_factory=list)
    """Stable codes (docs/results-format.md); `verdict` says them in words."""
    verdict: str
    error: str | None = None
    """The error that ended the trial early, if one did."""

    offered: Offered = Offered()

    activation_s: Seconds | None = None
    """Launch call to SUT ready."""
    drain_s: Seconds | None = None
    """At most so long after the last packet sent, the SUT had nothing left to do."""

    effective: dict[str, str | int | bool] = Field(default_factory=dict)
    """Settings that the SUT really ran with, by the names of its table (of several instances: the
    first). A setting that it was not seen to have is missing."""
    not_as_asked: list[str] = Field(default_factory=list)
    """Words on each setting that it really ran with and that is not what was asked for."""
    generator_cpus: CpuList | None = None
    """CPU list that it was pinned to; null: to none, or it cannot say."""
    sut_cpus: CpuList | None = None
    """CPU list that its threads might use (of a guest: QEMU's), as this host's kernel says."""
    cpus_parted: bool | None = None
    """The experiment names none of these CPUs: nodrop parted generator and SUT."""
    cpus_in_common: bool | None = None
    """False: the generator was on a machine of its own, and its CPUs are none of the SUT's."""

    accelerator: str | None = None
    """The accelerator of the SUT's virtual machine: `kvm`, or `tcg`, which is emulation. Null if
    the SUT ran in none."""
    sut_cpu_s: Seconds | None = None
    """From the first packet to the end of the drain."""
    setup_cpu_s: Seconds | None = None
    """`sut_cpu_s` with all that works for the SUT on this host: a container's shim and daemons
    (other work of theirs too), a guest's emulator and vhost threads. Guest time counts once."""
    steal_ratio: NotNegative | None = None
    """Share of the CPUs that the SUT may use, or of the sender's, that the hypervisor gave to
    others while the load was offered: the larger of the two."""
    lost_beyond_steal_packets: Packets | None = None
    """Losses within the SUT that the hypervisor's steal does not explain: packets lost when it had
    taken nothing, or more than came in twice that time."""
    disturbed: Disturbed | None = None
    """Null if nobody looked."""
    host_cpu_ratio: NotNegative | None = None
    """Share of all CPUs of the receiving host that was used while the load was offered."""
    cpu_not_valid: str = ""
    """Why the SUT's CPU time says nothing of its load (its workers poll); empty if it does. Then
    `busiest_thread`, `cpu_ratio` of its workers and its CPU time for a packet are null."""
    sut_rss_peak_bytes: Packets | None = None
    busiest_thread: BusyThread | None = None
    threads: list[SutThread] = Field(default_factory=list)
    """Threads of the SUT that count packets or flows, and others that have a role."""
    threads_unexplained_packets: Packets | None = None
    """Packets that do not close in each thread's books, and by which the threads do not add up to
    the SUT's figures; 0 = all agree. Null if the SUT does not count by thread."""

    detections: Detections | None = None
    """Null if the experiment does not ask for them (measure.outcome)."""
    flow_sizes: FlowShares | None = None
    """Flow sizes of the load; null if it sent only a part of the trace's flows."""
    window: LoadWindow | None = None
    """The stretch of the trace that was sent; null if the load names none."""

    body: Body = NO_PACKETS

    @property
    def packets(self) -> PacketBooks:
        """The body of a trial whose load is packets; without a figure if it is not."""
        return self.body if isinstance(self.body, PacketBooks) else NO_PACKETS

    @property
    def transactions(self) -> TransactionBooks | None:
        """The body of a trial whose load is transactions."""
        return self.body if isinstance(self.body, TransactionBooks) else None

    @property
    def loss_ratio(self) -> float | None:
        """Part of the load that did not get through: packets lost, transactions failed. Null if the
        books do not close."""
        found = self.transactions
        return self.packets.loss_ratio if found is None else found.failed_ratio

    @property
    def lost(self) -> int | None:
        """Packets lost, or transactions failed."""
        found = self.transactions
        return self.packets.lost_packets if found is None else found.failed

    @property
    def factors(self) -> dict[str, JsonValue]:
        """Cell, and of a search the load that was tried: trials that agree in this were offered the
        same."""
        tried = self.searched
        if tried is None:
            return self.cell
        ramp = {} if tried.ramp is None else {"load.ramp": tried.ramp.start}
        soak = {} if tried.soak is None else {"load.soak_s": tried.duration_s}
        return {**self.cell, f"load.{tried.by}": tried.value, **ramp, **soak}

    @property
    def sut_cpu_s_per_packet(self) -> float | None:
        """CPU time for a packet that was sent; None if it was not measured, or is not valid."""
        if self.sut_cpu_s is None or not self.offered.sent or self.cpu_not_valid:
            return None
        return self.sut_cpu_s / self.offered.sent

    @property
    def detection_loss_ratio(self) -> float | None:
        return None if self.detections is None else self.detections.detection_loss_ratio

    def figure(self, name: str) -> Any:
        """Figure that has this name in tables."""
        if name in ("loss_ratio", "lost_packets"):
            return self.loss_ratio if name == "loss_ratio" else self.lost
        part, now = FLAT.get(name, ("", name))
        if self.transactions is not None and name in OF_PACKETS:
            return None
        where = self.packets if part == "body" else getattr(self, part) if part else self
        return getattr(where, now)

    @property
    def measured_on(self) -> str | None:
        """The pair of a fleet, or the host; None: the one that the run began on."""
        return self.pair or self.host

    @property
    def start(self) -> int | str:
        """Names the start of its SUT, which other trials of the run may share."""
        return self.run if self.world is None else self.world

    @property
    def host_was_busy(self) -> bool:
        """The hypervisor, other programs or a CPU quota had much of its CPUs, or of its time."""
        seen, stolen = self.disturbed, (self.steal_ratio or 0.0) >= STEAL
        if stolen or seen is None:
            return stolen
        held_s = seen.quota.throttled_s if seen.quota else 0.0
        duration_s = self.offered.duration_s or 0.0
        return (seen.others_ratio or 0.0) >= OTHERS or 0 < QUOTA * duration_s <= held_s

    @property
    def failures(self) -> list[str]:
        """Codes of what the SUT did in a failed trial. What follows from that is no reason of its
        own."""
        failed = self.outcome == "failed"
        return [code for code in self.invalid_reasons if failed and code in FAILURES]

    @property
    def failed_with_lab(self) -> bool:
        """Void, and not by its load: no packet came over the cable, or none was sent as a host or
        a port was not there."""
        nothing_sent = self.offered.sent is None and Reason.LAB_PROBLEM in self.invalid_reasons
        return self.outcome == "void" and (
            nothing_sent or Reason.NOTHING_ARRIVED in self.invalid_reasons
        )

    @model_validator(mode="after")
    def _reasons_fit(self) -> Self:
        if self.valid != (self.outcome == "measured"):
            raise ValueError(f"outcome {self.outcome} does not fit valid {self.valid}")
        if self.valid and (self.invalid_reasons or self.error):
            raise ValueError("a valid trial has neither invalid_reasons nor an error")
        if not self.valid and not self.invalid_reasons:
            raise ValueError("an invalid trial names at least one of invalid_reasons")
        return self

    @property
    def why(self) -> str:
        """Verdict without its outcome."""
        return self.verdict.removeprefix(f"{self.outcome}: ")

    def to_line(self) -> str:
        """One line of JSON without its newline, the fields always in this order."""
        found = type(self).model_validate(self.model_dump())
        return json.dumps(found.model_dump(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        """A record from a line. RecordError,
        naming the first field at fault, if the line is no trial record."""
        try:
            return cls.model_validate(current(decode_object(line)))
        except NotJson as failed:
            raise RecordError(f"line: {failed}") from failed
        except UnknownFormat as failed:
            raise RecordError(f"format: {failed}") from failed
        except ValidationError as failed:
            first = failed.errors(include_url=False)[0]
            where = _where(first["loc"], first["type"])
            said = first["msg"].removeprefix("Value error, ")
            raise RecordError(f"{where}: {said}") from failed


def _where(parts: Sequence[str | int], kind: str) -> str:
    """The field at fault; the kind of a body is no part of its path."""
    said = [str(part) for part in parts]
    if kind == "union_tag_invalid":
        said.append("kind")
    elif said[:1] == ["body"]:
        del said[1:2]
    return ".".join(said) or "line"


OF_PACKETS = frozenset(
    {"intended_packets", "offered_packets", "unsent_packets", "offered_pps", "offered_bps"}
)
"""Figures of what was offered that only a load of packets has."""
MARKS = {"good": "●", "loss": "▼", "failed": "✗", "void": "◇"}
"""For the eye, beside the words."""
SIGNS = {"different": "≠ different", "same": "= same", "unknown": "? cannot tell yet"}
"""Signs of a comparison's verdicts, with their words."""


def mark_of(record: TrialRecord) -> str:
    """One of `MARKS`."""
    if record.outcome != "measured":
        return record.outcome
    return "loss" if record.lost else "good"


class Accelerated(Protocol):
    @property
    def accelerator(self) -> str | None: ...


def count_once(records: Sequence[TrialRecord]) -> list[Hashable]:
    """The unit that the inferences of a cell count once, for each of its trials: the start of the
    SUT; the host, if several pairs of a fleet measured them."""
    if len({record.measured_on for record in records if record.valid}) > 1:
        return [HostCluster(0, record.measured_on or "") for record in records]
    return [record.start for record in records]


def accelerator_words(trials: Iterable[Accelerated]) -> str:
    """For every row and heading of a virtual machine: emulation never passes for KVM."""
    names = sorted({trial.accelerator for trial in trials if trial.accelerator})
    return "/".join("tcg (emulated)" if name == "tcg" else name for name in names)


@cache
def trial_schema(by: type[GenerateJsonSchema] = GenerateJsonSchema) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a line, as a writer makes it."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:nodrop:trial:{FORMAT}",
        **TrialRecord.model_json_schema(mode="serialization", schema_generator=by),
    }
    schema["title"] = "nodrop trial record"
    return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A reading of a trial under way: a row of live.jsonl; None = not known, or not known yet.

    The SUT's counters are as old as it makes them: Suricata's kernel counters 1 s, its decoder's up
    to 4 s. So a rate is taken over the time between two changes of its counter.
    """

    mono_ns: int
    phase: str
    offering_s: float | None = None
    """Since the first packet was due."""
    intended_s: float | None = None
    intended_packets: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None
    """Packets that the receiving NIC counted."""
    captured_packets: int | None = None
    dropped_packets: int | None = None
    dropped_by_thread: Mapping[str, int] = field(default_factory=dict)
    decoded_packets: int | None = None
    sent_pps: float | None = None
    received_pps: float | None = None
    captured_pps: float | None = None
    dropped_pps: float | None = None
    decoded_pps: float | None = None
    unit: str = "packets"
    """Unit of `intended_packets` and `sent_packets`: of transactions, those that were started."""
    completed: int | None = None
    """Transactions that completed."""
    in_progress: int | None = None
    """Transactions that were started and have not ended."""
    busiest_thread: BusyThread | None = None
    """The SUT's busiest thread between this reading and the one before."""


@cache
def live_rows() -> TypeAdapter[Live]:
    """Rows of live.jsonl that have figures; fields of a later version are left out."""
    return TypeAdapter(Live)
