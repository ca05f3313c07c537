"""Runs as findings see them, measured or imported: one `RunObservation` each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from sys import intern
from typing import Any, TypeVar

from nodrop.answer.finding import WORDS, Finding, render
from nodrop.config.units import count_of
from nodrop.results.trial import Slowed, TrialRecord, Unscheduled

MOST_EVIDENCE = 12


def in_words(evidence: Iterable[str]) -> str:
    """The pieces of evidence one after the other, and how many more there are."""
    every = list(evidence)
    more = len(every) - MOST_EVIDENCE
    return "; ".join(every[:MOST_EVIDENCE]) + (f"; and {more} more" if more > 0 else "")


SEVERITIES = ("serious", "warning", "note")
"""A conclusion from these figures would be wrong; it needs more care; good to know."""


def found(
    code: str,
    evidence: Iterable[str],
    cells: Iterable[str],
    *,
    subject: str = "",
    **values: object,
) -> Iterator[Finding]:
    """A suspicion, if anything shows it; docs/reference/findings.md has the codes."""
    if words := in_words(evidence):
        severity = WORDS[code]["severity"]
        known = {"severity": severity, "evidence": words, "cells": [*cells], **values}
        yield Finding(code=code, subject=subject, values=known)


def suspicion_json(finding: Finding) -> dict[str, Any]:
    """Code, severity, title, evidence, effect and cells."""
    said = {form: render(finding, form) for form in ("title", "effect")}
    known = {key: finding.values[key] for key in ("severity", "evidence", "cells")}
    return {"code": finding.code, **known, **said}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObservation:
    """One run, as far as findings look at it. None = not measured."""

    run: str
    cell: str
    """Name of the cell, in words."""
    group: str
    """The cell but for its load: cells of one group are one curve over load."""
    load: float | None = None
    """Replicas of the trace that were sent at once."""
    curve: str = ""
    """The cell but for whatever makes its load larger; empty if that is the group."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Settings that make the load larger, such as `load.pps`."""
    searched: bool = False
    """A search chose its load from the runs before it."""
    outcome: str = "measured"
    """`measured`, `failed` or `void`."""
    loss_ratio: float | None = None
    started_s: float | None = None
    sent_packets: float | None = None
    captured_packets: float | None = None
    dropped_packets: float | None = None
    decoded_packets: float | None = None
    detections: tuple[int, int] | None = None
    """Missed and expected; None = nothing says what was to be expected."""
    offered_pps: float | None = None
    unscheduled: Unscheduled | None = None
    """None if the load has a schedule, or asks for top speed."""
    not_as_asked: tuple[str, ...] = ()
    """Settings with which the SUT ran though others were asked for, in words."""
    port_packets: Mapping[str, int] = field(default_factory=dict)
    """Packets that came in at each port of a SUT that captures on several."""
    repeats_flows: bool = False
    """The SUT had seen flows of the load before."""
    slowed: Slowed | None = None
    """The CPU of the SUT that was slowed most; None = none was, or that was not watched."""
    start: int | str = ""
    """Names the start of its SUT; empty if that is not known, as of imported runs."""
    explained_packets: float = 0
    """Packets taken out on the way by something known: merged by defragmentation."""

    @property
    def arrived_packets(self) -> float | None:
        """Packets that reached the SUT's sockets: the larger sum, as the two counters are read
        apart."""
        accounted = (
            None
            if self.decoded_packets is None
            else self.decoded_packets + (self.dropped_packets or 0)
        )
        known = [n for n in (self.captured_packets, accounted) if n is not None]
        return max(known) + self.explained_packets if known else None


Cells = Mapping[str, Sequence[RunObservation]]
"""Cell → its runs."""
Rule = Callable[[Cells], Iterator[Finding]]
RunT = TypeVar("RunT", bound=RunObservation)


def of_each_cell(
    code: str, **values: Any
) -> Callable[
    [Callable[[Sequence[RunT]], str]], Callable[[Mapping[str, Sequence[RunT]]], Iterator[Finding]]
]:
    """A rule whose evidence is words on the runs of each cell; empty if nothing is suspicious."""

    def made(
        words_on: Callable[[Sequence[RunT]], str],
    ) -> Callable[[Mapping[str, Sequence[RunT]]], Iterator[Finding]]:
        def rule(cells: Mapping[str, Sequence[RunT]]) -> Iterator[Finding]:
            said = {cell: words for cell, runs in cells.items() if (words := words_on(runs))}
            return found(code, (f"{cell}: {words}" for cell, words in said.items()), said, **values)

        return rule

    return made


RATES = ("load.multiplier", "load.speed", "load.pps", "load.top_speed")
"""Factors by which a load only grows. Another trace or another packet size is no higher load."""


def rates_of(cell: Mapping[str, Any]) -> tuple[float, ...]:
    """Key that sorts loads by what was asked for, whatever was then offered."""
    found = [cell[factor] for factor in RATES if factor in cell]
    return tuple(float(v) if isinstance(v, int | float) else 0.0 for v in found)


def observations_of(records: Iterable[TrialRecord]) -> list[RunObservation]:
    """Trials of a run directory, as findings see them."""
    observations: list[RunObservation] = []
    for record in records:
        factors = record.factors
        rest = {k: v for k, v in factors.items() if k != "load.multiplier"}
        curve = {k: v for k, v in factors.items() if k not in RATES}
        load = factors.get("load.multiplier")
        observations.append(
            RunObservation(
                run=record.run,
                cell=intern(_words(factors)),
                group=intern(_words(rest)),
                load=float(load) if isinstance(load, int | float) else None,
                curve=intern(_words(curve)),
                rates=dict(zip((f for f in RATES if f in factors), rates_of(factors), strict=True)),
                searched=record.searched is not None,
                outcome=record.outcome,
                loss_ratio=record.packets.loss_ratio,
                detections=_detections(record),
                started_s=_epoch_s(record.started_utc),
                sent_packets=record.offered.sent,
                captured_packets=record.packets.captured_packets,
                dropped_packets=None
                if record.packets.lost_packets is None
                else record.packets.lost_packets - (record.packets.lost_before_sut_packets or 0),
                explained_packets=record.packets.merged_packets or 0,
                decoded_packets=record.packets.decoded_packets,
                offered_pps=record.offered.pps,
                unscheduled=record.offered.unscheduled,
                not_as_asked=tuple(record.not_as_asked),
                port_packets={p.port: p.received_packets for p in record.packets.ports},
                repeats_flows=record.offered.repeats_flows or False,
                slowed=None if record.disturbed is None else record.disturbed.slowed,
                start="" if record.searched else record.start,  # a search counts its rounds
            )
        )
    return observations


def _words(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in cell.items()) or "all"


def _epoch_s(iso: str | None) -> float | None:
    try:
        return None if iso is None else datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return None


def load_groups(cells: Mapping[str, Sequence[RunT]]) -> dict[str, dict[float, list[RunT]]]:
    groups: dict[str, dict[float, list[RunT]]] = {}
    for runs in cells.values():
        for run in runs:
            groups.setdefault(run.group, {}).setdefault(run.load or 0.0, []).append(run)
    return {group: dict(sorted(by_load.items())) for group, by_load in groups.items()}


def cell_names(by_load: Mapping[float, Sequence[RunObservation]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.cell for runs in by_load.values() for run in runs))


def missing_packets(run: RunObservation) -> float | None:
    sent, arrived = run.sent_packets, run.arrived_packets
    return None if sent is None or arrived is None else sent - arrived


def known_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def span(values: Iterable[float]) -> float:
    known = list(values)
    return max(known) - min(known)


def by_load_words(by_load: Mapping[float, float], form: str) -> str:
    return ", ".join(f"{load:g}X " + form.format(value) for load, value in by_load.items())


def _detections(record: TrialRecord) -> tuple[int, int] | None:
    found = record.detections
    if found is None or found.missed is None or found.expected is None:
        return None
    return found.missed, found.expected


# Findings about the load and what it cost: what arrived, what was sent, whose CPU it was.

# A count per replica that differs by no more than this is the same count.
SAME_COUNT_RATIO = 0.02
SAME_COUNT_PACKETS = 2
LEAST_LOST_PER_REPLICA = 5
NOMINAL_RATIO = 0.97


def loss_per_replica(cells: Cells) -> Iterator[Finding]:
    """A finding if the same number of packets per replica is missing at every load: something on
    the path causes it, not too much load."""
    for group, by_load in load_groups(cells).items():
        missing = {
            load: count / load
            for load, runs in by_load.items()
            if load and (count := known_median(map(missing_packets, runs))) is not None
        }
        if len(missing) < 2 or min(missing.values()) < LEAST_LOST_PER_REPLICA:
            continue
        middle = median(missing.values())
        if span(missing.values()) > max(SAME_COUNT_RATIO * middle, SAME_COUNT_PACKETS):
            continue
        yield from found(
            "loss-per-replica",
            [f"not arrived, per replica, at {by_load_words(missing, '{:,.0f}')}"],
            cell_names(by_load),
            subject=group,
        )


def offered_below_nominal(cells: Cells) -> Iterator[Finding]:
    """The sender is a suspect: NX is a wish, the offered rate a measurement."""
    short: dict[str, str] = {}
    for by_load in load_groups(cells).values():
        rates = {
            load: rate
            for load, runs in by_load.items()
            if load and (rate := known_median(run.offered_pps for run in runs))
        }
        for load, runs in by_load.items():
            if load not in rates or load == min(rates):
                continue
            nominal = rates[min(rates)] * load / min(rates)
            if rates[load] < NOMINAL_RATIO * nominal:
                cell = runs[0].cell
                short[cell] = (
                    f"{cell}: {rates[load]:,.0f} packets/s, {nominal:,.0f} are nominal"
                    f" ({rates[load] / nominal:.0%})"
                )
    yield from found("offered-below-nominal", short.values(), short)


@of_each_cell("no-schedule")
def no_schedule(runs: Sequence[RunObservation]) -> str:
    """The generator asks for no packet at any time: what it offered was decided by the receiver's
    stack, the CPU that both share, and chance."""
    loads = [run.unscheduled for run in runs if run.unscheduled is not None]
    return "; ".join(_unscheduled(loads, runs)) if loads else ""


def _unscheduled(loads: Sequence[Unscheduled], runs: Sequence[RunObservation]) -> Iterator[str]:
    one = loads[0]
    yield f"{one.generator}, {count_of(one.flows, 'flow')}"
    means = [run.offered_pps for run in runs if run.offered_pps]
    if len(means) > 1:
        apart = (max(means) - min(means)) / median(means)
        yield (
            f"mean rate {min(means):,.0f} to {max(means):,.0f} packets/s in {len(means)} trials"
            f" ({apart:.0%} apart)"
        )
    least = [load.least_pps for load in loads if load.least_pps is not None]
    most = [load.most_pps for load in loads if load.most_pps is not None]
    if least and most:
        spread = known_median(load.spread_ratio for load in loads)
        deviation = "" if spread is None else f", standard deviation {spread:.1%}"
        yield (
            f"{min(least):,.0f} to {max(most):,.0f} packets/s in windows of 100 ms within a trial"
            f"{deviation}"
        )
    if (mean := known_median(load.mean_frame_bytes for load in loads)) is not None:
        joined = mean > one.longest_on_wire_bytes
        segments = " on a link that carries {:,}: segments cross glued together (GSO)"
        longer = segments.format(one.longest_on_wire_bytes) if joined else ""
        yield f"{mean:,.0f} bytes a frame{longer}"
    if lost := sum(load.said_lost_packets or 0 for load in loads):
        full = sum(load.socket_full_packets or 0 for load in loads)
        yield (
            f"it reports {lost:,} lost: its own server's socket was full {full:,} times, for"
            " datagrams that came as far as the capture socket"
        )


@of_each_cell("captured-below-decoded")
def captured_below_decoded(runs: Sequence[RunObservation]) -> str:
    """More packets decoded than captured: the two were not read at the same moment."""
    counted = [(run.decoded_packets, run.captured_packets) for run in runs]
    known = [(more, less) for more, less in counted if more is not None and less is not None]
    gaps = [more - less for more, less in known if more > less]
    return f"{len(gaps)} of {len(runs)} runs, by up to {max(gaps):,.0f}" if gaps else ""
