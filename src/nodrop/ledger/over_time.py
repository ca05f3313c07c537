"""When packets were lost, and when the sender was late: what must be held side by side in time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Packets that one thread of the SUT lost between two readings of its counter."""

    thread: str
    """As the SUT names it; empty if its counters are not told apart by thread."""
    begin_mono_ns: int
    """Earliest moment at which they can have been lost: what the counter lags is taken off."""
    end_mono_ns: int
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateBurst:
    """The sender was late and caught up: packets left back to back that were asked for apart."""

    begin_mono_ns: int
    """When the first of them left, on the controller's CLOCK_MONOTONIC."""
    end_mono_ns: int
    late_ns: int
    """The largest schedule error among them."""
    packets: int
    """Beyond what the schedule asked for within that time."""
