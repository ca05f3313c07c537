"""Runs as findings see them: one `Observation` each, measured or imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from statistics import median
from sys import intern
from typing import Any

from nodrop.results.trial import TrialRecord, Unscheduled


class Severity(StrEnum):
    SERIOUS = "serious"
    """A conclusion drawn from these figures would be wrong."""
    WARNING = "warning"
    """A conclusion needs more care than the figures suggest."""
    NOTE = "note"
    """Good to know."""


MOST_EVIDENCE = 12


def in_words(evidence: Iterable[str]) -> str:
    """One after the other, and how many more there are."""
    every = list(evidence)
    more = len(every) - MOST_EVIDENCE
    return "; ".join(every[:MOST_EVIDENCE]) + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str
    """Stable: docs/reference/findings.md."""
    severity: Severity
    title: str
    evidence: str
    effect: str
    """Effect on a conclusion."""
    cells: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "severity": str(self.severity), "cells": list(self.cells)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One run, as far as findings look at it. None = not measured."""

    run: str
    cell: str
    """In words that name it."""
    group: str
    """The cell but for its load: cells of one group are one curve over load."""
    load: float | None = None
    """Replicas of the trace that were sent at once."""
    curve: str = ""
    """The cell but for whatever makes its load larger; empty if that is the group."""
    rates: tuple[float, ...] = ()
    """The settings that make it larger."""
    scales: tuple[str, ...] = ()
    """Factors whose settings `rates` holds, such as `load.pps`."""
    searched: bool = False
    """A search chose its load from the runs before it."""
    outcome: str = "measured"
    """`measured`, `failed` or `void`."""
    loss_ratio: float | None = None
    started_s: float | None = None
    virtual: bool = False
    """The SUT runs in a guest."""
    sent_packets: float | None = None
    captured_packets: float | None = None
    dropped_packets: float | None = None
    decoded_packets: float | None = None
    alerts: float | None = None
    detections: tuple[int, int] | None = None
    """Missed and expected; None = nothing says what was to be expected."""
    offered_pps: float | None = None
    unscheduled: Unscheduled | None = None
    """None if the load has a schedule, or asks for top speed."""
    sender_cpu_ratio: float | None = None
    """Share of all CPUs of the sending host."""
    host_cores: float | None = None
    """CPU the receiving host says it used, in cores."""
    process_cores: float | None = None
    """CPU the SUT's processes on that host (the hypervisor) say they used, in cores."""
    cpus: float | None = None
    """CPUs of the receiving host."""
    not_as_asked: tuple[str, ...] = ()
    """In words: the settings with which the SUT ran though others were asked for."""
    port_packets: Mapping[str, int] = field(default_factory=dict)
    """Packets that came in at each port of a SUT that captures on several."""
    start: int | str = ""
    """Names the start of its SUT; empty if that is not known, as of imported runs."""
    ready_proved: bool = False
    """An event showed the SUT ready before the first packet."""
    threads_at_first_packet: float | None = None
    threads_final: float | None = None
    explained_packets: float = 0
    """Taken out on the way by something known: merged by defragmentation."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Channel → checkpoints this run has in it; a missing channel is not in it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadClaim:
    """A figure that was given with a spread, and what that spread could be."""

    label: str
    printed: float
    over_time: float
    """Within one median run, over its checkpoints."""
    between_runs: float


Cells = Mapping[str, Sequence[Observation]]
"""Cell → its runs."""


RATES = ("load.multiplier", "load.speed", "load.pps", "load.top_speed")
"""Factors by which a load only grows. Another trace or another packet size is no higher load."""


def rates_of(cell: Mapping[str, Any]) -> tuple[float, ...]:
    """It sorts loads by what was asked for, whatever was then offered."""
    found = [cell[factor] for factor in RATES if factor in cell]
    return tuple(float(v) if isinstance(v, int | float) else 0.0 for v in found)


def observations_of(records: Iterable[TrialRecord]) -> list[Observation]:
    """Trials of a run directory, as findings see them."""
    found: list[Observation] = []
    for record in records:
        factors = record.factors
        rest = {k: v for k, v in factors.items() if k != "load.multiplier"}
        curve = {k: v for k, v in factors.items() if k not in RATES}
        load = factors.get("load.multiplier")
        setup = str(factors.get("setup.kind", ""))
        found.append(
            Observation(
                run=record.run,
                cell=intern(_words(factors)),
                group=intern(_words(rest)),
                load=float(load) if isinstance(load, int | float) else None,
                curve=intern(_words(curve)),
                rates=rates_of(factors),
                scales=tuple(factor for factor in RATES if factor in factors),
                searched=record.searched is not None,
                outcome=record.outcome,
                loss_ratio=record.packets.loss_ratio,
                detections=_detections(record),
                started_s=_epoch_s(record.started_utc),
                virtual=record.accelerator is not None or setup.startswith("vm"),
                sent_packets=record.offered.sent,
                captured_packets=record.packets.captured_packets,
                dropped_packets=None
                if record.packets.lost_packets is None
                else record.packets.lost_packets - (record.packets.lost_before_sut_packets or 0),
                explained_packets=record.packets.merged_packets or 0,
                decoded_packets=record.packets.decoded_packets,
                offered_pps=record.offered.per_s,
                unscheduled=record.offered.unscheduled,
                not_as_asked=tuple(record.not_as_asked),
                port_packets={p.port: p.received_packets for p in record.packets.ports},
                start="" if record.searched else record.start,  # a search counts its rounds
                ready_proved=record.activation_s is not None or record.world is not None,
            )
        )
    return found


def _words(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in cell.items()) or "all"


def _epoch_s(iso: str | None) -> float | None:
    try:
        return None if iso is None else datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return None


def load_groups(cells: Cells) -> dict[str, dict[float, list[Observation]]]:
    groups: dict[str, dict[float, list[Observation]]] = {}
    for runs in cells.values():
        for run in runs:
            groups.setdefault(run.group, {}).setdefault(run.load or 0.0, []).append(run)
    return {group: dict(sorted(by_load.items())) for group, by_load in groups.items()}


def cell_names(by_load: Mapping[float, Sequence[Observation]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.cell for runs in by_load.values() for run in runs))


def missing_packets(run: Observation) -> float | None:
    if run.sent_packets is None or run.arrived_packets is None:
        return None
    return run.sent_packets - run.arrived_packets


def arrived_ratio(run: Observation) -> float | None:
    if not run.sent_packets or run.arrived_packets is None:
        return None
    return run.arrived_packets / run.sent_packets


def known_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def span(values: Iterable[float]) -> float:
    known = list(values)
    return max(known) - min(known)


def by_load_words(by_load: Mapping[float, float], form: str) -> str:
    return ", ".join(f"{load:g}X " + form.format(value) for load, value in by_load.items())


def channels(runs: Sequence[Observation]) -> list[str]:
    return list(dict.fromkeys(channel for run in runs for channel in run.rows))


def _detections(record: TrialRecord) -> tuple[int, int] | None:
    found = record.detections
    if found is None or found.missed is None or found.expected is None:
        return None
    return found.missed, found.expected
