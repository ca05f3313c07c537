"""Ports at which no loss would be seen, in the words of audit and drops."""

from __future__ import annotations

from collections.abc import Mapping

from nodrop.results.other_records import Blind

BLIND: Mapping[Blind, str] = {
    "no_program": "no program captures there",
    "down": "it is down: no packet comes in",
    "no_carrier": "it has no carrier: its cable, or the port at its other end, is off",
    "stopped": "a program there is stopped, and has not said what it lost",
    "ring_not_visible": "what its programs lost is not visible to this user",
    "counters_read": "a program there reads the counters of its sockets itself, which sets them to "
    "zero, and does not say them",
    "frames_cut": "its longest frames are cut in the slots of a program there, and no counter has "
    "them",
}
"""Reasons why a port is blind: no loss there would be seen."""
