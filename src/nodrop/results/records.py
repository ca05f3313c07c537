"""Bodies and base of all records: strict models, formats of a line, a load's window, packets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from nodrop.config.units import count_of
from nodrop.ledger.hops import CUT, Class
from nodrop.ledger.level import QueueLevel
from nodrop.ledger.quantities import Count, NotNegative, Packets, Seconds, Signed
from nodrop.ledger.verdict import Remark, Verdict

if TYPE_CHECKING:
    from nodrop.ledger.balance import Ledger

FORMAT: Final[Literal[2]] = 2
"""Format of a line of trials.jsonl: an envelope with a body by kind."""
RUN_FORMAT = 1
"""Format of manifest.json."""

FLAT: Mapping[str, tuple[str, str]] = {
    "intended_packets": ("offered", "intended"),
    "offered_packets": ("offered", "sent"),
    "unsent_packets": ("offered", "unsent"),
    "duration_s": ("offered", "duration_s"),
    "intended_duration_s": ("offered", "intended_duration_s"),
    "offered_pps": ("offered", "per_s"),
    "offered_bps": ("offered", "bps"),
    "schedule_error_us": ("offered", "schedule_error_us"),
    "asked_schedule_error_us": ("offered", "asked_schedule_error_us"),
    "shaped_pps": ("offered", "shaped_per_s"),
    "late_burst_packets": ("offered", "sent_late"),
    "largest_late_burst": ("offered", "largest_late_burst"),
    **{
        name: ("body", name)
        for name in (
            "captured_packets",
            "decoded_packets",
            "lost_packets",
            "merged_packets",
            "merged_detail",
            "foreign_packets",
            "copied_packets",
            "answered_packets",
            "residual_packets",
            "residual_bytes",
            "own_dropped_packets",
            "cut_packets",
            "invalid_packets",
            "checksum_packets",
            "remarks",
            "books_closed",
            "loss_ratio",
            "loss_place",
            "lost_by_place",
            "analysis_lost",
            "lost_before_sut_packets",
            "loss_evidence",
            "loss_cause",
            "loss_causes",
            "knob",
            "backlog_packets",
            "sustained",
            "sustained_evidence",
            "service_pps_at_least",
            "imbalance_ratio",
        )
    },
}
"""Names of tables for figures and columns → the part of a record, and the field there."""


class UnknownFormat(Exception):
    """The line is of no format that this nodrop reads; says so in words."""


def current(line: dict[str, Any]) -> dict[str, Any]:
    """The line, if it is of this format."""
    found = line.get("format")
    if found != FORMAT or not isinstance(found, int):
        newer = isinstance(found, int) and found > FORMAT
        words = f"{found} is of a newer nodrop; this one reads" if newer else "must be"
        raise UnknownFormat(f"{words} {FORMAT}")
    return line


class Model(BaseModel):
    # Unknown fields are ignored: one may read what a newer nodrop wrote.
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        strict=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        defer_build=True,  # most starts need few of the models
    )

    def model_post_init(self, _: Any) -> None:
        # Which fields a line gave is never asked, and its set is half the memory of a record.
        object.__setattr__(self, "__pydantic_fields_set__", _all_fields(type(self)))


@cache
def _all_fields(model: type[BaseModel]) -> set[str]:
    """Shared by all its objects, which are frozen; a changed copy gets a set of its own."""
    return set(model.model_fields)


BEGUN_LEAST = 0.95
"""Packets in flows that begin in the window. Of a window with 92 % Suricata took a third less CPU
per packet than if it skips nothing (docs/methodology.md)."""


class LoadWindow(Model):
    span: str
    """`12..17`: seconds after the first packet of the trace, exactly. As `load.window` it sends the
    same packets."""
    from_s: Seconds
    to_s: Seconds
    packets: Count
    frame_bytes: Count
    pps: NotNegative | None
    """Rate at the trace's own speed, as all that follows; null if the trace takes no time."""
    bps: NotNegative | None
    """Bits of Ethernet frames."""
    trace_packets: Count
    """Packets of the whole trace."""
    trace_bytes: Count
    trace_s: Seconds
    mean_pps: NotNegative | None
    """Mean rate of the whole trace; the peaks are of the whole trace too."""
    mean_bps: NotNegative | None
    peak_pps: NotNegative
    """The most packets within any second."""
    peak_bps: NotNegative
    begun_packet_ratio: NotNegative | None
    """Share of the window's packets that lie in flows which begin in it, of those that belong to a
    flow; null if none does."""
    begun_byte_ratio: NotNegative | None

    @property
    def is_whole(self) -> bool:
        return self.packets == self.trace_packets

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s

    @property
    def name(self) -> str:
        """`seconds 10.0 to 15.0 of the trace`."""
        if self.is_whole:
            ms = f"{1e3 * self.trace_s:.3g} ms"
            return f"the whole trace ({ms if self.trace_s < 0.1 else f'{self.trace_s:,.1f} s'})"
        digits = 1 if self.length_s >= 1 else 3
        return f"seconds {self.from_s:,.{digits}f} to {self.to_s:,.{digits}f} of the trace"

    @property
    def rate_words(self) -> str:
        """`3,000 packets/s, 12.1 Mbit/s`."""
        if self.pps is None or self.bps is None:
            packets = count_of(self.packets, "packet")
            return f"{packets} at one moment, so it has no rate of its own and no NX"
        return f"{self.pps:,.0f} packets/s, {_digits(self.bps / 1e6)} Mbit/s"

    @property
    def beside_trace(self) -> str:
        """How it stands to the whole trace; empty if it is all of it."""
        if self.is_whole:
            return ""
        said = f"{_share(self.packets, self.trace_packets)} of its packets, "
        said += f"{_share(self.frame_bytes, self.trace_bytes)} of its bytes and "
        said += f"{_share(self.length_s, self.trace_s)} of its {self.trace_s:,.1f} s"
        if self.pps is None or self.mean_pps is None:
            return said
        return (
            f"{said}; the whole trace has {self.mean_pps:,.0f} packets/s on average and "
            f"{self.peak_pps:,.0f} in its busiest second"
        )

    @property
    def sentence(self) -> str:
        """`the load sends seconds 10.0 to 15.0 of the trace: 3,000 packets/s, …`."""
        return "; ".join(filter(None, (self.sent_words, self.begun_words)))

    @property
    def sent_words(self) -> str:
        said = f"the load sends {self.name}: {self.rate_words}"
        return "; ".join(filter(None, (said, self.beside_trace)))

    @property
    def begun_words(self) -> str:
        """Empty if nothing belongs to a flow."""
        if self.begun_packet_ratio is None or self.begun_byte_ratio is None:
            return ""
        return (
            f"{_share(self.begun_packet_ratio, 1)} of its packets and "
            f"{_share(self.begun_byte_ratio, 1)} of its bytes are in flows that begin in it"
        )

    @property
    def begun_warning(self) -> str:
        """Empty if most of it begins in the window."""
        ratio = self.begun_packet_ratio
        if ratio is None or ratio >= BEGUN_LEAST:
            return ""
        longer = "" if self.is_whole else "; a longer window has more of its flows whole"
        return (
            f"{self.begun_words}: an IDS may skip what it did not see begin, and then looks faster "
            f"than it is{longer}"
        )


def _share(part: float, whole: float) -> str:
    return f"{_digits(100 * part / whole)} %" if whole else "all"


def _digits(value: float) -> str:
    """The value with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The body of a trial whose load is packets: what became of each of them.


class MergedDetail(Model):
    """Packets that fanout defragmentation took out of the stream."""

    absorbed_packets: Packets
    """Fragments of whole datagrams, less the datagrams put back in their place."""
    held_packets: Packets
    """Fragments of datagrams that never became whole: kept, then thrown away, by the kernel."""


class LossCause(Model):
    rule: str
    """Rule by which the cause is named (docs/methodology.md)."""
    words: str
    share: NotNegative | None = None
    """Share of the time in which packets were lost; null if the cause is not about time."""
    thread: str = ""
    """The thread that lost most, as the SUT names it."""
    evidence: dict[str, float] = Field(default_factory=dict)
    """Shares of `loss_time_s` that say where the time went, or the numbers of a burst."""


class Port(Model):
    """One port of the SUT; null = the SUT does not give this figure for each port."""

    port: str
    trace: str | None = None
    """The file that was sent to it alone; null if the ports share a trace."""
    received_packets: Packets
    captured_packets: Packets | None = None
    dropped_packets: Packets | None = None
    """Captured packets that found no room in a ring of this port."""


class PacketBooks(Model):
    """Packet books. With nothing foreign: sent + copied + answered = decoded + lost + merged +
    residual. In bytes: those of the frames sent = decoded + taken off on the way (VLAN tags,
    headers of fragments, what was cut) + those of the packets that were lost, merged or held +
    residual."""

    kind: Literal["packets"] = "packets"
    captured_packets: Packets | None = None
    """Packets that the kernel had for the SUT's sockets, ring-full drops included."""
    decoded_packets: Packets | None = None
    lost_packets: Packets | None = None
    merged_packets: Packets | None = None
    """All that fanout defragmentation took out: absorbed and held."""
    merged_detail: MergedDetail | None = None
    foreign_packets: Packets | None = None
    copied_packets: Packets | None = None
    """Packets handed on once more on the way, to another receiver (setup.splitter = "copy")."""
    answered_packets: Packets | None = None
    """Packets sent by the receiving host as part of the load, and captured on their way out
    (iperf3). Null in older runs."""
    residual_packets: Signed | None = None
    """Packets in no class, signed, summed over the hops."""
    residual_bytes: Signed | None = None
    """The residual in bytes, if hops count the bytes of frames: not 0 = not the packets that were
    sent, or not whole. Null unless two hops do."""
    residual_bytes_slack: Packets | None = None
    """Bytes that could lack without a residual, because lost packets may have been long or short
    ones; 0 = exact. Null if nothing bounds it."""
    decoded_bytes: Packets | None = None
    """Bytes of the frames as the SUT was handed them; null if they cannot be compared with those
    sent."""
    cut_packets: Packets | None = None
    """Packets decoded, and cut to the room in the SUT's ring; at the least, if packets were lost.
    Null if that is not known."""
    cut_bytes: Packets | None = None
    """Bytes cut off the `cut_packets`; null if not exactly known."""
    invalid_packets: Packets | None = None
    """Packets decoded, and called broken by the SUT; null if it says nothing of that."""
    checksum_packets: Packets | None = None
    """Packets decoded, and left out of its streams by the SUT for a wrong checksum; null if it says
    nothing of that, and in older runs."""
    books_closed: bool | None = None
    """No hop has a residual, in packets or in bytes, and both ends could be read."""

    loss_ratio: NotNegative | None = None
    """Share of the sent, copied and answered packets that was lost; null if the books do not close.
    """
    lost_beyond_bursts_packets: Packets | None = None
    """Lost packets that late bursts of the sender cannot explain: an on-time sender would have lost
    them too. Null if the loss is not known, the generator cannot say, and in older runs."""
    loss_place: str | None = None
    lost_by_place: dict[str, Packets] = Field(default_factory=dict)
    own_dropped_packets: Packets | None = None
    """Dropped packets as the SUT says, where the kernel counts a ring that the SUT does not see;
    else null."""
    lost_before_sut_packets: Packets | None = None
    """Lost packets that never arrived at the SUT's sockets."""
    loss_evidence: str = ""
    """The counter that shows it."""
    loss_cause: str = ""
    """Further evidence of the cause, in words: what the thread that lost did meanwhile."""
    loss_causes: list[LossCause] = Field(default_factory=list)
    """The causes in `loss_cause`, one for each rule, the largest share first."""
    knob: str = ""
    """The setting that affects the loss."""
    remarks: list[Remark] = Field(default_factory=list)
    """Remarks beside the loss, which are no loss."""

    backlog_packets: Packets | None = None
    """Packets that it had still to decode when the last one was sent, at most."""
    sustained: bool | None = None
    """True: the SUT kept the pace of the load. False: it was behind at its end, and its rings held
    the rest. Null: neither is shown; a loss of 0 then says that a burst was absorbed, no more."""
    sustained_evidence: str = ""
    """Packets, seconds, backlog and drain in words; empty if nothing was watched."""
    service_pps_at_least: NotNegative | None = None
    """The least that the SUT served: the better bound of those that backlog and drain show."""
    analysis_lost: dict[str, Packets] = Field(default_factory=dict)
    """Counters of the SUT that rose because it lost analysis without losing a packet; empty if none
    did, if it has none, and in older runs."""
    queue: QueueLevel | None = None
    """Level of the SUT's capture ring; null if none could be read."""
    imbalance_ratio: NotNegative | None = None
    """How much more than its share the busiest of several instances received; 0 = all received the
    same."""
    ports: list[Port] = Field(default_factory=list)
    """Ports of the SUT, if several share the packets (sut.ports)."""

    @classmethod
    def of(
        cls,
        ledger: Ledger | None,
        verdict: Verdict,
        *,
        captured_packets: int | None = None,
        own_dropped_packets: int | None = None,
        backlog_packets: int | None = None,
        analysis_lost: Mapping[str, int] = MappingProxyType({}),
        queue: QueueLevel | None = None,
        imbalance_ratio: float | None = None,
        ports: Sequence[Port] = (),
    ) -> Self:
        """Figures of a trial's books and verdict. Without books no count is known but
        `captured_packets`, which the books have as well."""
        counted: Counted
        counted = {"captured_packets": captured_packets} if ledger is None else counted_in(ledger)
        pace = verdict.pace
        return cls(
            loss_ratio=verdict.loss_ratio,
            lost_beyond_bursts_packets=verdict.lost_beyond_bursts,
            loss_place=verdict.place.name if verdict.place else None,
            lost_by_place={place.name: packets for place, packets in verdict.lost_at.items()},
            lost_before_sut_packets=None
            if verdict.loss_ratio is None
            else sum(n for place, n in verdict.lost_at.items() if not place.within_sut),
            loss_evidence=verdict.evidence,
            loss_cause=verdict.cause,
            loss_causes=[
                LossCause(
                    rule=str(cause.rule),
                    words=cause.words,
                    share=cause.share,
                    thread=cause.thread,
                    evidence=dict(cause.evidence),
                )
                for cause in verdict.causes
            ],
            knob=verdict.knob,
            remarks=[*verdict.remarks],
            sustained=None if pace is None else pace.sustained,
            sustained_evidence="" if pace is None else pace.evidence,
            service_pps_at_least=None if pace is None else pace.service_pps_at_least,
            own_dropped_packets=own_dropped_packets,
            backlog_packets=backlog_packets,
            analysis_lost=dict(analysis_lost),
            queue=queue,
            imbalance_ratio=imbalance_ratio,
            ports=[*ports],
            **counted,
        )


class Counted(TypedDict, total=False):
    """Figures of a record that its books hold."""

    cut_packets: int | None
    cut_bytes: int | None
    invalid_packets: int | None
    checksum_packets: int | None
    decoded_bytes: int | None
    captured_packets: int | None
    decoded_packets: int | None
    lost_packets: int
    merged_packets: int
    merged_detail: MergedDetail
    foreign_packets: int
    copied_packets: int
    answered_packets: int
    residual_packets: int | None
    residual_bytes: int | None
    residual_bytes_slack: int | None
    books_closed: bool


def counted_in(ledger: Ledger) -> Counted:
    absorbed, held = ledger.total(Class.MERGED), ledger.total(Class.HELD)
    cut = next((a for a in ledger.accounts if a.name == CUT), None)
    invalid = next((a for a in ledger.accounts if a.kind is Class.INVALID), None)
    checksum = next((a for a in ledger.accounts if a.kind is Class.CHECKSUM), None)
    return {
        "cut_packets": None if cut is None else cut.packets,
        "cut_bytes": None if cut is None else cut.bytes,
        "invalid_packets": None if invalid is None else invalid.packets,
        "checksum_packets": None if checksum is None else checksum.packets,
        "decoded_bytes": next((h.bytes for h in ledger.hops if h.name == "decoded"), None),
        "captured_packets": ledger.packets_at("socket"),
        "decoded_packets": ledger.packets_at("decoded"),
        "lost_packets": ledger.total(Class.LOST),
        "merged_packets": absorbed + held,
        "merged_detail": MergedDetail(absorbed_packets=absorbed, held_packets=held),
        "foreign_packets": ledger.total(Class.FOREIGN),
        "copied_packets": ledger.total(Class.COPIED),
        "answered_packets": ledger.total(Class.ANSWERED),
        "residual_packets": ledger.residual_packets,
        "residual_bytes": ledger.residual_bytes,
        "residual_bytes_slack": ledger.slack_bytes,
        "books_closed": ledger.closed,
    }


Ratio = Annotated[float, Field(ge=0, le=1)]

LEAST_UNITS = 20
"""Fewest expected units for a ratio: of fewer, each would be 5 % or more."""
MOST_NAMED = 20


class DetectionClass(Model):
    """Signatures of one class, as the SUT names it."""

    name: str
    expected: Count
    missed: Count


FlowOfMissed = Literal["lost packets", "whole", "not seen"]
"""State of a missed unit's flow: the SUT's own record of it has fewer packets than in lossless
trials, has all of them, or there is none."""


class MissedUnit(Model):
    """A unit that was expected and not seen."""

    sid: str
    """`gid:sid`"""
    name: str
    """Name of the signature."""
    where: str
    """The flow, or the address that the rule tracks."""
    flow: FlowOfMissed | None = None
    """Null if the trial has no flows (measure.outcome), and of an address."""


class MissedByFlow(Model):
    """Missed units by the state of their flows; units of addresses have none."""

    lost_packets: Count
    """Missed units whose flows have fewer packets than in lossless trials."""
    whole: Count
    """Missed units whose flows have all packets: the SUT missed them all the same."""
    not_seen: Count
    """The SUT has no record of their flows."""


class Detections(Model):
    """Units of detection: a signature in a flow, or for the address that it tracks if it limits its
    alerts. One is seen or not, however many alerts it gave (docs/methodology.md)."""

    detection_loss_ratio: Ratio | None = None
    """Share of the expected units that was missed. Null if the trial is not measured, nothing says
    what was to be expected, or that are fewer than 20; 0 = none was missed."""
    no_ratio: str = ""
    """Reason why the ratio is null, in words."""
    baseline: Literal["offline", "live"] | None = None
    """live: the expected units are those of lossless trials. offline: those that the SUT finds when
    it reads the trace itself. Null: nothing is expected."""
    baseline_words: str = ""
    """How lossless trials and the SUT's own reading of the trace compare."""
    expected: Count | None = None
    expected_flows: Count | None = None
    """Flows in which the expected alerts lie; alerts of rules that limit their number lie in none.
    """
    seen: Count
    """All units of the trial, expected or not."""
    missed: Count | None = None
    missed_by_flow: MissedByFlow | None = None
    """Null if the trial or its baseline has no flows: name "flows" in measure.outcome."""
    surplus: Count | None = None
    """Units that were seen, and are neither expected nor uncertain. They are never set off against
    missed ones."""
    uncertain: Count | None = None
    """Units of the baseline seen in some of its trials and not in all. They are in no ratio."""
    clocked: Count = 0
    """Units, expected or seen, of rules that count in some seconds, or ask for bits that expire. In
    a trial at another speed than the trace's they are left out of all other numbers."""
    clocked_rules: list[str] = Field(default_factory=list)
    """`gid:sid` of these rules, at most 20."""
    classes: list[DetectionClass] = Field(default_factory=list)
    """Classes with expected units; most missed first."""
    missed_first: list[MissedUnit] = Field(default_factory=list)
    """Missed units, at most 20; all of them stand in the trial's detections.json."""
    alerts: Count
    """Lines with an alert. They vary without any loss: no figure is made of them."""
    events: dict[str, Count] = Field(default_factory=dict)
    """Lines of the event log by type."""
    unread: dict[str, Count] = Field(default_factory=dict)
    """Lines that could not be used, by reason."""
