"""How long a cell offers its load, if that is long enough, and what no clock can have meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.config.experiment import Experiment
from nodrop.config.search import SHORTEST_S
from nodrop.config.units import format_seconds
from nodrop.errors import BadInput, LabProblem
from nodrop.ledger.sustained import least_duration_s
from nodrop.load.seam import LoadGenerator, Planned, TraceFacts
from nodrop.measure.controllers.seam import Factors
from nodrop.results.window import LoadWindow
from nodrop.suts.seam import Sut

LONGEST_LOAD_S = 24 * 3600.0
LONGEST_GAP_S = 3600.0
"""Beyond these a wrong timestamp is likelier than a wish, so `run` asks for --yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLength:
    """How long one trial of a cell offers its load, and what it takes to see that it is carried."""

    cell: Factors
    offered_s: float | None
    """None if it is not known beforehand, as at top speed."""
    least_s: float | None
    """Long enough to show that a SUT keeps the pace (ledger/sustained.py); None = not known."""
    planned: Planned | None = None
    """Packets, bytes and flows that are sent in that time; None if the trace could not be read."""
    trace_packets: int | None = None
    """Packets of its trace, or of its window if it has one; None = not known."""
    window: LoadWindow | None = None
    """None if the load names none."""
    effective_flows: float | None = None
    """So many flows of one size would be spread alike; None = not known."""

    @property
    def ends_early(self) -> bool:
        """Before the trace, or its window, does."""
        if self.planned is None or self.trace_packets is None:
            return False
        return self.planned.window_packets < self.trace_packets

    @property
    def too_short(self) -> bool:
        if self.offered_s is None or self.least_s is None:
            return False
        return self.offered_s < self.least_s


def offer_length(
    experiment: Experiment, cell: Factors, sut: Sut, load: LoadGenerator, *, instances: int
) -> OfferLength:
    offered_s = _duration_s(experiment, load)
    pps = None if offered_s is None else experiment.blaming(load.mean_pps)
    holds = sut.holds_packets
    least_s = None
    if pps:
        least_s = least_duration_s(
            pps,
            holds_packets=None if holds is None else holds * instances,
            rest_seen_s=sut.rest_seen_s,
        )
    elif offered_s is not None:  # all packets at one moment have no rate
        least_s = 0.0
    facts = next(traces_of([load]), None)
    sizes = None if facts is None else facts.flow_sizes
    return OfferLength(
        cell=cell,
        offered_s=offered_s,
        least_s=None if least_s is None else max(SHORTEST_S, least_s),
        planned=None if facts is None else facts.planned,
        trace_packets=None if facts is None else facts.packets,
        window=None if facts is None or facts.source is None else facts.source.window,
        effective_flows=None if sizes is None else sizes.effective_flows,
    )


def _duration_s(experiment: Experiment, load: LoadGenerator) -> float | None:
    try:
        return experiment.blaming(load.duration_s)
    except LabProblem:
        # Reading the trace takes the node; a plan can be looked at before it is built.
        return None


def implausible(experiment: Experiment, loads: Sequence[LoadGenerator]) -> tuple[str, ...]:
    """A wrong timestamp makes years of a short trace."""
    found: dict[str, None] = {}
    for load in loads:
        if words := _gap_around_window(load):
            found[words] = None
        duration_s = _duration_s(experiment, load)
        if duration_s is None or duration_s <= LONGEST_GAP_S:
            continue
        facts = load.trace_facts()
        if facts is None:
            continue
        path, gap_ns, after = _longest_gap(facts)
        gap_s = 0.0 if load.constant_rate else gap_ns / 1e9
        if duration_s <= LONGEST_LOAD_S and gap_s <= LONGEST_GAP_S:
            continue
        words = f"load.trace: {path}: one trial of it takes {format_seconds(duration_s)}"
        if gap_s > LONGEST_GAP_S:
            words += (
                f"; {format_seconds(gap_s)} pass without a packet after packet {after}; --set "
                "load.longest_gap_s=1 closes such a gap"
            )
        found[words] = None
    return tuple(found)


def _longest_gap(facts: TraceFacts) -> tuple[Path, int, int]:
    """The capture, its longest gap in ns, and the packet before it by its number in that file."""
    if facts.captured is None or facts.source is not None:
        gap = facts.raw["longest_gap"]
        return facts.path, gap["ns"], gap["after_packet"]
    counts = facts.captured.counts
    return facts.captured.path, counts["longest_gap_ns"], counts["longest_gap_after_packet"]


def _gap_around_window(load: LoadGenerator) -> str:
    """In words, if most of the time of a capture that a window is cut from is one long gap: the
    window may be on its wrong side."""
    facts = next(traces_of([load]), None)
    if facts is None or facts.source is None or facts.captured is None:
        return ""
    counts = facts.captured.counts
    gap_s = counts["longest_gap_ns"] / 1e9
    if gap_s <= max(LONGEST_GAP_S, facts.source.window.trace_s / 2):
        return ""
    return (
        f"load.trace: {facts.captured.path}: {format_seconds(gap_s)} of its "
        f"{format_seconds(facts.source.window.trace_s)} pass without a packet after packet "
        f"{counts['longest_gap_after_packet']}; --set load.longest_gap_s=1 closes such a gap"
    )


def traces_of(loads: Iterable[LoadGenerator]) -> Iterator[TraceFacts]:
    for load in loads:
        # No plan fails for want of it: whoever runs the plan hears what is wrong with the trace.
        with suppress(BadInput, LabProblem):
            if (facts := load.trace_facts()) is not None:
                yield facts
