"""Formats of a line of trials.jsonl, and how the older ones are read.

| format | what it is | how it is read |
|---|---|---|
| 1 | all fields beside each other | `_from_1`: to the envelope, its `offered` and its `body` |
| 2 | an envelope with a body by kind | as it is |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from nodrop.ledger.reasons import Outcome, outcome_of

FORMAT: Final[Literal[2]] = 2
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
            "cut_packets",
            "invalid_packets",
            "remarks",
            "books_closed",
            "loss_ratio",
            "loss_place",
            "lost_by_place",
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
"""Where the fields of format 1 stand now. Tables name their figures and columns so."""

WITHIN_SUT = ("socket ring", "SUT")
"""Packets lost here had arrived at the SUT; the other places of format 1 lay before it."""

NEVER_COUNTED = "duplicated_packets"
"""A class of format 1 that nothing ever counted: a copy shows as foreign."""


class UnknownFormat(Exception):
    """The line is of no format that this nodrop reads; says so in words."""


def _from_1(line: Mapping[str, Any]) -> dict[str, Any]:
    """Lines from before there were three outcomes say theirs by their reasons; what was lost before
    the SUT, lines from before that was counted say by the names of the places."""
    found: dict[str, Any] = {"offered": {"unit": "packets"}, "body": {"kind": "packets"}}
    for name, value in line.items():
        if name in FLAT:
            part, now = FLAT[name]
            found[part][now] = value
        elif name not in found and name != NEVER_COUNTED:
            found[name] = value
    burst, places = line.get("largest_late_burst"), line.get("lost_by_place")
    if isinstance(burst, dict):
        rest = {name: value for name, value in burst.items() if name != "packets"}
        found["offered"]["largest_late_burst"] = rest | {"sent": burst.get("packets")}
    if "lost_before_sut_packets" not in line and isinstance(places, dict) and places:
        before = [n for place, n in places.items() if place not in WITHIN_SUT]
        if all(isinstance(n, int) for n in before):
            found["body"]["lost_before_sut_packets"] = sum(before)
    if "outcome" not in line and "valid" in line:
        reasons = line.get("invalid_reasons")
        codes = [code for code in reasons or () if isinstance(code, str)]
        found["outcome"] = str(Outcome.MEASURED if line["valid"] else outcome_of(codes))
    return found | {"format": 2}


READ: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {1: _from_1}
"""Format → what makes a line of the next one of it."""


def current(line: dict[str, Any]) -> dict[str, Any]:
    """A line of any format, as this format has it."""
    while (found := line.get("format", 1)) != FORMAT:
        if isinstance(found, bool) or not isinstance(found, int) or found not in READ:
            raise UnknownFormat(_words(found))
        line = READ[found](line)
    return line


def _words(found: object) -> str:
    if isinstance(found, int) and found > FORMAT:
        return f"{found} is of a newer nodrop; this one reads up to {FORMAT}"
    return f"is no number of a trial record's format (1 to {FORMAT})"
