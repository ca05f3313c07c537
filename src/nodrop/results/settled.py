"""How closely the figures of a cell are known, and whether that is close enough to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from nodrop.config.repetitions import Repetitions, Until
from nodrop.results.trial import TrialRecord, count_once
from nodrop.stats.interval import Looks, by_start, half_width, of_hosts, relative_half_width

Sut = Literal["fresh", "standing"]


def _cpu_per_packet(record: TrialRecord) -> float | None:
    if record.sut_cpu_s is None or not record.offered.sent:
        return None
    return record.sut_cpu_s / record.offered.sent


METRICS: Mapping[str, Callable[[TrialRecord], float | None]] = {
    "loss_ratio": lambda record: record.packets.loss_ratio,
    "detection_loss_ratio": lambda record: record.detection_loss_ratio,
    "cpu_per_packet": _cpu_per_packet,
    "sut_cpu_s": lambda record: record.sut_cpu_s,
    "sut_rss_peak_bytes": lambda record: record.sut_rss_peak_bytes,
    "host_cpu_ratio": lambda record: record.host_cpu_ratio,
    "activation_s": lambda record: record.activation_s,
}
"""The metrics of `config.repetitions.UNITS`: name → its figure in a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One metric of one cell, held against its rule."""

    until: Until
    n: int
    """Measured runs; starts of the SUT if runs share one; hosts if several measured it."""
    hosts: bool
    """It is hosts that are counted."""
    half_width: float | None
    """In the unit of the rule; None if so few runs have no interval."""

    @property
    def reached(self) -> bool:
        return self.half_width is not None and self.half_width <= self.until.number


def known(records: Sequence[TrialRecord], asked: Repetitions, sut: Sut) -> tuple[Known, ...]:
    """One cell's metrics, each held against its rule. Failed and void trials have no figures."""
    return tuple(_known(records, until, looks(asked, sut)) for until in asked.rules)


def settled(records: Sequence[TrialRecord], asked: Repetitions, sut: Sut) -> bool:
    return all(one.reached for one in known(records, asked, sut))


def looks(asked: Repetitions, sut: Sut) -> Looks:
    each = asked.each_start(sut)
    return Looks(first=asked.min // each, last=-(-asked.max // each))


def rule_of(manifest: Mapping[str, Any]) -> tuple[Repetitions, Sut] | None:
    """By which a run was repeated; None if as often as a number said."""
    said = manifest.get("measure")
    said = said if isinstance(said, dict) else {}
    table = said.get("repetitions")
    if not isinstance(table, dict):
        return None
    try:
        return Repetitions.of(table), "standing" if said.get("sut") == "standing" else "fresh"
    except ValidationError:
        return None


def _known(records: Sequence[TrialRecord], until: Until, looks: Looks) -> Known:
    measured = [record for record in records if record.valid]
    found = zip(map(METRICS[until.metric], measured), count_once(measured), strict=True)
    having = [(value, start) for value, start in found if value is not None]
    hosts = of_hosts([start for _, start in having])
    values = by_start([value for value, _ in having], [start for _, start in having])
    interval = looks.interval(values)
    if interval is None:
        return Known(until=until, n=len(values), hosts=hosts, half_width=None)
    half = relative_half_width(values, interval) if until.relative else half_width(interval)
    # Rounded so that a half-width of just what is asked for is not missed by a float's last digit.
    half = round(half / until.factor, 9)
    return Known(until=until, n=len(values), hosts=hosts, half_width=half)
