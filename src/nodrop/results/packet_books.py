"""The body of a trial whose load is packets: what became of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self, TypedDict

from pydantic import Field

from nodrop.ledger.hops import CUT, Class
from nodrop.ledger.level import QueueLevel
from nodrop.ledger.quantities import NotNegative, Packets, Signed
from nodrop.ledger.verdict import Remark, Verdict
from nodrop.results.model import Model

if TYPE_CHECKING:
    from nodrop.ledger.balance import Ledger


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
