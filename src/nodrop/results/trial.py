"""One line of trials.jsonl: everything most reports need to know of a trial.

`None` means not measured and `0` means zero. schema/trial.schema.json is made from these models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from nodrop.errors import NodropError
from nodrop.ledger.reasons import FAILURES, Outcome, outcome_of
from nodrop.untrusted.json_text import NotJson, decode_object

Packets = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]


class RecordError(NodropError):
    """A line that is not a trial record."""


class _Model(BaseModel):
    # Unknown fields are ignored, so that an older nodrop reads what a newer one wrote.
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )


class ScheduleErrorUs(_Model):
    """|sent − due| over all packets sent."""

    p50: NotNegative
    p99: NotNegative
    max: NotNegative


class LateBurst(_Model):
    """The sender stood still, and then let leave at once what was asked for apart."""

    at_s: NotNegative
    """When the first of the packets left, after the first packet of the trial."""
    late_us: NotNegative
    """The largest schedule error among them."""
    packets: Packets


class MergedDetail(_Model):
    """What fanout defragmentation took out of the stream."""

    absorbed_packets: Packets
    """Fragments of whole datagrams, less the datagrams put back in their place."""
    held_packets: Packets
    """Fragments of datagrams that never became whole: kept, then thrown away, by the kernel."""


class Thread(_Model):
    name: str
    cpu_ratio: NotNegative
    """Of one CPU."""


class LossCause(_Model):
    rule: str
    """By which it is named (docs/methodology.md)."""
    words: str
    share: NotNegative | None = None
    """Of the time in which packets were lost; null where it is not about time."""
    thread: str = ""
    """That lost most, as the SUT names it."""
    evidence: dict[str, float] = {}
    """What the time went to, as ratios of `loss_time_s`, or the numbers of a burst."""


class TrialRecord(_Model):
    """One trial; with foreign and duplicated at 0: offered = decoded + lost + merged + residual."""

    format: Literal[1] = 1
    """Grows when a reader of the old format would misread the new one."""
    cell: dict[str, JsonValue]
    """The factors of the matrix: dotted path of the experiment file → value."""
    repetition: Annotated[int, Field(ge=1)]
    index: Annotated[int, Field(ge=0)]
    """Place in the order of the plan."""
    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Folder below runs/."""
    started_utc: str | None = None
    """ISO 8601; null where the trial ended before its first packet."""
    took_s: Seconds | None = None
    """All of it, from the first step until everything was undone; of a SUT that stays up, until
    its books were closed."""
    world: Packets | None = None
    """The index of the first trial that its SUT was offered: trials with the same number share one
    start of the SUT. Null if the SUT did not get ready, and in older runs, where each was new."""

    outcome: Literal["measured", "failed", "void"]
    """measured: its books stand. failed: the SUT died, hung or was killed under this load, which is
    a result about it. void: instrument or sender, which says nothing about the SUT."""
    valid: bool
    """outcome is measured."""
    invalid_reasons: list[str] = []
    """Stable codes (docs/results-format.md); `verdict` says them in words."""
    verdict: str
    error: str | None = None
    """What went wrong, where the trial ended early."""

    intended_packets: Packets | None = None
    offered_packets: Packets | None = None
    """Really sent."""
    unsent_packets: Packets | None = None
    captured_packets: Packets | None = None
    """The kernel had for the SUT's sockets, ring-full drops included."""
    decoded_packets: Packets | None = None
    lost_packets: Packets | None = None
    merged_packets: Packets | None = None
    """All that fanout defragmentation took out: absorbed and held."""
    merged_detail: MergedDetail | None = None
    duplicated_packets: Packets | None = None
    foreign_packets: Packets | None = None
    residual_packets: int | None = None
    """Packets in no class, signed, summed over the hops."""
    residual_bytes: int | None = None
    """The same of bytes, where hops count those of whole frames: not 0 = not the packets that were
    sent. Null where no two hops do."""
    books_closed: bool | None = None
    """No hop has a residual, in packets or in bytes, and both ends could be read."""

    loss_ratio: NotNegative | None = None
    """Lost of offered packets; null where the books do not close."""
    loss_place: str | None = None
    lost_by_place: dict[str, Packets] = {}
    lost_before_sut_packets: Packets | None = None
    """Of `lost_packets`, those that never arrived at the SUT's sockets."""
    loss_evidence: str = ""
    """The counter that shows it."""
    loss_cause: str = ""
    """What else points there: what the thread that lost did meanwhile."""
    loss_causes: list[LossCause] = []
    """The same by rule, the largest share first."""
    knob: str = ""
    """What touches it."""
    busiest_thread: Thread | None = None

    duration_s: Seconds | None = None
    """From the first to the last packet sent."""
    intended_duration_s: Seconds | None = None
    offered_pps: NotNegative | None = None
    offered_bps: NotNegative | None = None
    """Bits of Ethernet frames, without preamble, gap and FCS."""
    drain_s: Seconds | None = None
    """At most so long after the last packet sent, the SUT had nothing left to do."""
    backlog_packets: Packets | None = None
    """At most so many packets it had still to decode when the last one was sent."""
    sustained: bool | None = None
    """True: the SUT kept the pace of the load. False: it was behind at its end, and its rings held
    the rest. Null: neither is shown; a loss of 0 then says that a burst was absorbed, no more."""
    sustained_evidence: str = ""
    """Packets, seconds, backlog and drain in words; empty where nobody looked (older runs too)."""
    service_pps_at_least: NotNegative | None = None
    """It served at least so many packets a second: what backlog or drain, the better one, shows."""
    schedule_error_us: ScheduleErrorUs | None = None
    """Behind the feasible schedule: the trace's own, shaped at `shaped_pps`. Null where the
    generator cannot say, or has no schedule."""
    asked_schedule_error_us: ScheduleErrorUs | None = None
    """Behind the schedule that was asked for."""
    shaped_pps: NotNegative | None = None
    """The sender's top speed, as measured where the trace asks for more; null if it never does."""
    late_burst_packets: Packets | None = None
    """Sent at once because the sender was late, though asked for apart; null where the generator
    cannot say."""
    largest_late_burst: LateBurst | None = None
    """Null if there is none, or the generator cannot say."""

    effective: dict[str, str | int | bool] = {}
    """What the SUT really ran with, by the names of its table (of several instances: the first).
    What it was not seen to have is missing."""
    not_as_asked: list[str] = []
    """In words: if what it really ran with is not what was asked for."""
    generator_cpus: str | None = None
    """CPU list that it was pinned to; null: to none, or it cannot say."""
    sut_cpus: str | None = None
    """CPU list that its threads might use (of a guest: QEMU's), as this host's kernel says."""
    cpus_parted: bool | None = None
    """The experiment names none of these CPUs: nodrop parted generator and SUT."""

    imbalance_ratio: NotNegative | None = None
    """Of several instances: how much more than its share the busiest received, 0 = all the same."""
    accelerator: str | None = None
    """What ran the guest of a virtual machine: `kvm`, or `tcg`, which is emulation. Null where the
    SUT ran in none."""
    activation_s: Seconds | None = None
    """Launch call to SUT ready."""
    sut_cpu_s: Seconds | None = None
    """From the first packet to the end of the drain."""
    setup_cpu_s: Seconds | None = None
    """The same with all that works for the SUT on this host: a container's shim and daemons (other
    work of theirs too), a guest's emulator and vhost threads. Guest time counts once."""
    steal_ratio: NotNegative | None = None
    """Of the CPUs that the SUT may use, or of those of the sender, what the hypervisor gave to
    others while the load was offered: the larger of the two."""
    host_cpu_ratio: NotNegative | None = None
    """Of all CPUs of the receiving host, while the load was offered."""
    sut_rss_peak_bytes: Packets | None = None

    @property
    def failures(self) -> list[str]:
        """What the SUT did, of a failed trial: what follows from that is no reason of its own."""
        failed = self.outcome == "failed"
        return [code for code in self.invalid_reasons if failed and code in FAILURES]

    @model_validator(mode="before")
    @classmethod
    def _older_lines(cls, line: Any) -> Any:
        """Lines written before there were three outcomes say so by their reasons; what was lost
        before the SUT they say by the names of the places."""
        if not isinstance(line, dict):
            return line
        if "lost_before_sut_packets" not in line and (places := line.get("lost_by_place")):
            before = sum(
                n for place, n in dict(places).items() if place not in ("socket ring", "SUT")
            )
            line = {**line, "lost_before_sut_packets": before}
        if "outcome" in line or "valid" not in line:
            return line
        reasons = line.get("invalid_reasons") or []
        return {**line, "outcome": str(Outcome.MEASURED if line["valid"] else outcome_of(reasons))}

    @model_validator(mode="after")
    def _reasons_fit(self) -> Self:
        if self.valid != (self.outcome == "measured"):
            raise ValueError(f"outcome {self.outcome} does not fit valid {self.valid}")
        if self.valid and (self.invalid_reasons or self.error):
            raise ValueError("a valid trial has neither invalid_reasons nor an error")
        if not self.valid and not self.invalid_reasons:
            raise ValueError("an invalid trial names at least one of invalid_reasons")
        return self

    def to_line(self) -> str:
        """One line of JSON without its newline, the fields always in this order."""
        found = TrialRecord.model_validate(self.model_dump())
        return json.dumps(found.model_dump(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> TrialRecord:
        """RecordError, naming the first field at fault, where the line is no trial record."""
        try:
            return cls.model_validate(decode_object(line))
        except NotJson as failed:
            raise RecordError(f"line: {failed}") from failed
        except ValidationError as failed:
            first = failed.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            raise RecordError(f"{where}: {first['msg']}") from failed


MARKS = {"good": "✓", "loss": "▼", "failed": "✗", "void": "○"}
"""For the eye, beside the words."""


def mark_of(record: TrialRecord) -> str:
    """One of `MARKS`."""
    if record.outcome != "measured":
        return record.outcome
    return "loss" if record.lost_packets else "good"


def accelerator_words(records: Iterable[TrialRecord]) -> str:
    """For every row and heading of a virtual machine: emulation never passes for KVM."""
    names = sorted({record.accelerator for record in records if record.accelerator})
    return "/".join("tcg (emulated)" if name == "tcg" else name for name in names)


ADDED_LATER = frozenset(
    {
        "accelerator",
        "asked_schedule_error_us",
        "backlog_packets",
        "cpus_parted",
        "drain_s",
        "effective",
        "generator_cpus",
        "imbalance_ratio",
        "largest_late_burst",
        "late_burst_packets",
        "loss_cause",
        "loss_causes",
        "loss_evidence",
        "lost_before_sut_packets",
        "not_as_asked",
        "outcome",
        "residual_bytes",
        "service_pps_at_least",
        "setup_cpu_s",
        "shaped_pps",
        "steal_ratio",
        "sut_cpus",
        "sustained",
        "sustained_evidence",
        "took_s",
        "world",
    }
)
"""Fields that run directories of this format may lack: they came after its first lines were
written. A new field goes in here too."""


def trial_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a line, as a writer makes it."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:nodrop:trial:1",
        **TrialRecord.model_json_schema(mode="serialization"),
    }
    schema["title"] = "nodrop trial record"
    schema["required"] = [name for name in schema["required"] if name not in ADDED_LATER]
    return schema
