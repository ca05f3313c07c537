"""Detections of a trial: units expected, missed and surplus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nodrop.ledger.quantities import Count
from nodrop.results.model import Model

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
    """Units of the baseline seen in some of its trials and not in all, or only at the end of a flow
    if the SUT stays up. They are in no ratio."""
    clocked: Count = 0
    """Units, expected or seen, of rules that count in some seconds, or ask for bits that expire. In
    a trial at another speed than the trace's, or of a SUT that stays up, they are left out of all
    other numbers."""
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
