"""The body of a trial whose load is packets: what became of each of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nodrop.results.records import Count, Model, NotNegative, Packets, Signed


class MergedDetail(Model):
    """Packets that fanout defragmentation took out of the stream."""

    absorbed_packets: Packets
    """Fragments of whole datagrams, less the datagrams put back in their place."""
    held_packets: Packets
    """Fragments of datagrams that never became whole: kept, then thrown away, by the kernel."""


class LossCause(Model):
    rule: str
    """By which it is named (docs/methodology.md)."""
    words: str
    share: NotNegative | None = None
    """Share of the time in which packets were lost; null if the cause is not about time."""
    thread: str = ""
    """The thread that lost most, as the SUT names it."""
    evidence: dict[str, float] = Field(default_factory=dict)
    """Where the time went, as ratios of `loss_time_s`, or the numbers of a burst."""


class Port(Model):
    """One port of the SUT; null = the SUT does not give this figure for each port."""

    port: str
    trace: str | None = None
    """The file that was sent to it alone; null if the ports share a trace."""
    received_packets: Packets
    captured_packets: Packets | None = None
    dropped_packets: Packets | None = None
    """Captured packets that found no room in a ring of this port."""


class Remark(Model):
    """Packets that the SUT decoded, but not whole, or that it calls broken."""

    about: Literal["cut", "invalid"]
    words: str
    knob: str = ""
    """The setting that affects these packets."""


class PacketBooks(Model):
    """With nothing foreign: sent + copied + answered = decoded + lost + merged + residual. In
    bytes: those of the frames sent = decoded + taken off on the way (VLAN tags, headers of
    fragments, what was cut) + those of the packets that were lost, merged or held + residual."""

    kind: Literal["packets"] = "packets"
    captured_packets: Packets | None = None
    """The kernel had for the SUT's sockets, ring-full drops included."""
    decoded_packets: Packets | None = None
    lost_packets: Packets | None = None
    merged_packets: Packets | None = None
    """All that fanout defragmentation took out: absorbed and held."""
    merged_detail: MergedDetail | None = None
    foreign_packets: Packets | None = None
    copied_packets: Packets | None = None
    """Handed on once more on the way, to another receiver (setup.splitter = "copy")."""
    answered_packets: Packets | None = None
    """Sent by the receiving host as part of the load, and captured on their way out (iperf3). Null
    in older runs."""
    residual_packets: Signed | None = None
    """Packets in no class, signed, summed over the hops."""
    residual_bytes: Signed | None = None
    """The residual in bytes, if hops count the bytes of frames: not 0 = not the packets that were
    sent, or not whole. Null unless two hops do."""
    residual_bytes_slack: Packets | None = None
    """So many bytes could lack without a residual, because lost packets may have been long or
    short ones; 0 = exact. Null if nothing bounds it."""
    decoded_bytes: Packets | None = None
    """Bytes of the frames as the SUT was handed them; null if they cannot be compared with those
    sent."""
    cut_packets: Packets | None = None
    """Decoded, and cut to the room in the SUT's ring; at the least, if packets were lost. Null if
    that is not known."""
    cut_bytes: Packets | None = None
    """Bytes cut off the `cut_packets`; null if not exactly known."""
    invalid_packets: Packets | None = None
    """Decoded, and called broken by the SUT; null if it says nothing of that."""
    books_closed: bool | None = None
    """No hop has a residual, in packets or in bytes, and both ends could be read."""

    loss_ratio: NotNegative | None = None
    """Lost of sent, copied and answered packets; null if the books do not close."""
    lost_beyond_bursts_packets: Packets | None = None
    """Lost packets that late bursts of the sender cannot explain: an on-time sender would have lost
    them too. Null if the loss is not known, the generator cannot say, and in older runs."""
    loss_place: str | None = None
    lost_by_place: dict[str, Packets] = Field(default_factory=dict)
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
    """Beside the loss, and no loss."""

    backlog_packets: Packets | None = None
    """At most so many packets it had still to decode when the last one was sent."""
    sustained: bool | None = None
    """True: the SUT kept the pace of the load. False: it was behind at its end, and its rings held
    the rest. Null: neither is shown; a loss of 0 then says that a burst was absorbed, no more."""
    sustained_evidence: str = ""
    """Packets, seconds, backlog and drain in words; empty if nothing was watched."""
    service_pps_at_least: NotNegative | None = None
    """It served at least so many packets a second: what backlog or drain, the better one, shows."""
    imbalance_ratio: NotNegative | None = None
    """How much more than its share the busiest of several instances received; 0 = all received the
    same."""
    ports: list[Port] = Field(default_factory=list)
    """Ports of the SUT, if several share the packets (sut.ports)."""


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
    """One that was expected and not seen."""

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
    """Their flows have fewer packets than in lossless trials."""
    whole: Count
    """Their flows have all packets, and the SUT missed the units all the same."""
    not_seen: Count
    """The SUT has no record of their flows."""


class Detections(Model):
    """Units of detection: a signature in a flow, or for the address that it tracks if it limits its
    alerts. One is seen or not, however many alerts it gave (docs/methodology.md)."""

    detection_loss_ratio: Ratio | None = None
    """Missed of expected units. Null if the trial is not measured, nothing says what was to be
    expected, or that are fewer than 20; 0 = none was missed."""
    no_ratio: str = ""
    """Why it is null, in words."""
    baseline: Literal["offline", "live"] | None = None
    """live: the expected units are those of lossless trials. offline: those that the SUT finds when
    it reads the trace itself. Null: nothing is expected."""
    baseline_words: str = ""
    """How lossless trials and the SUT's own reading of the trace compare."""
    expected: Count | None = None
    expected_flows: Count | None = None
    """In so many flows they lie; those of rules that limit their alerts lie in none."""
    seen: Count
    """All units of the trial, expected or not."""
    missed: Count | None = None
    missed_by_flow: MissedByFlow | None = None
    """Null if the trial or its baseline has no flows: name "flows" in measure.outcome."""
    surplus: Count | None = None
    """Seen, and neither expected nor uncertain. It is never set off against missed ones."""
    uncertain: Count | None = None
    """Units of the baseline seen in some of its trials and not in all. They are in no ratio."""
    classes: list[DetectionClass] = Field(default_factory=list)
    """Classes with expected units; most missed first."""
    missed_first: list[MissedUnit] = Field(default_factory=list)
    """At most 20; all of them stand in the trial's detections.json."""
    alerts: Count
    """Lines. They vary without any loss: no figure is made of them."""
    events: dict[str, Count] = Field(default_factory=dict)
    """Lines of the event log by type."""
    unread: dict[str, Count] = Field(default_factory=dict)
    """Lines that could not be used, by why."""
