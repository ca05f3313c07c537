"""A run in a few rows: its cells, its sittings, how closely figures are known, the time left."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from nodrop.config.search import Repetitions, Until
from nodrop.config.units import count_of, format_seconds
from nodrop.ledger.outcome import Outcome
from nodrop.ledger.over_time import duration
from nodrop.ledger.verdict import INVALID_NAMED, percent
from nodrop.results.trial import TrialRecord, accelerator_words, count_once
from nodrop.stats.interval import (
    LookPlan,
    Summary,
    by_start,
    half_width,
    of_hosts,
    relative_half_width,
    summarize,
)

# How long the rest of a plan takes, from what the trials so far took.


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    trials: int
    seconds: float
    spread_s: float | None
    """Standard deviation; None if no cell has been measured twice."""

    @property
    def words(self) -> str:
        """`1 min 10 s ± 4 s`."""
        spread = f" ± {format_seconds(self.spread_s)}" if self.spread_s is not None else ""
        return f"{format_seconds(self.seconds)}{spread}"


@dataclass(slots=True)
class _Took:
    """The time that trials of one cell took. Sums only: a run of any length costs the same."""

    n: int = 0
    mean_s: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean (Welford)."""

    def add(self, seconds: float) -> None:
        self.n += 1
        before = seconds - self.mean_s
        self.mean_s += before / self.n
        self.squares += before * (seconds - self.mean_s)


@dataclass(slots=True, kw_only=True)
class Eta:
    """Trials of one cell take about the same time, trials of different cells need not."""

    guess_s: float
    """Seconds of a trial, until one has ended."""
    _took: dict[str, _Took] = field(default_factory=dict)
    _all: _Took = field(default_factory=_Took)

    def ended(self, cell: str, seconds: float) -> None:
        self._took.setdefault(cell, _Took()).add(seconds)
        self._all.add(seconds)

    def remaining(
        self, ahead: Mapping[str, int], *, begun: str | None = None, begun_s: float = 0.0
    ) -> Remaining:
        """Time for the trials ahead of each cell. The trial of cell `begun` began `begun_s` ago."""
        seconds = sum(n * self._each_s(cell) for cell, n in ahead.items())
        if begun is not None and ahead.get(begun):
            seconds -= min(begun_s, self._each_s(begun))
        repeated = [took for took in self._took.values() if took.n > 1]
        spread = None
        if repeated:
            variance = sum(t.squares for t in repeated) / sum(t.n for t in repeated)
            spread = math.sqrt(variance * sum(ahead.values()))
        return Remaining(trials=sum(ahead.values()), seconds=seconds, spread_s=spread)

    def _each_s(self, cell: str) -> float:
        if cell in self._took:
            return self._took[cell].mean_s
        return self._all.mean_s if self._all.n else self.guess_s


# Sittings of a run: each has a host of its own, and figures of two hosts are two hosts.
#
# A run directory can be copied to another machine and gone on with there, or its machine can have
# another kernel or node binary by then. The manifest then has several `sittings`, and trials of a
# host that is not the first one bear its name. They are taken as those of a pair of a fleet: each
# host counts once, and a comparison holds each cell against the hosts that measured it.

Json = dict[str, Any]

OF_A_HOST = ("nodrop", "node", "lab", "host", "self_test", "calibration", "bits", "parting")
"""Keys of a manifest: what each sitting, and each pair of a fleet, has of its own."""
SAME_HOST = ("hostname", "kernel", "machine", "cpu", "cpu_model", "cpus")
"""Keys of `host` that stay as they are from boot to boot."""


def begun_sitting(manifest: Mapping[str, Any], now: Json) -> list[Json]:
    """All sittings, the new one last. `now` has `machine_sha256`, `began_utc` and those of
    OF_A_HOST; it gets the name of its host."""
    earlier = sittings(manifest)
    names = {_place(one): str(one["name"]) for one in earlier}
    name = names.get(_place(now)) or _free_name(now, [*names.values()])
    return [*earlier, {"name": name, **now}]


def sittings(manifest: Mapping[str, Any]) -> list[Json]:
    """Empty for a fleet, and for a run that nodrop did not measure."""
    listed = manifest.get("sittings")
    found = listed if isinstance(listed, list) else []
    return [one for one in found if isinstance(one, dict) and one.get("name")]


def measured_on(manifest: Mapping[str, Any]) -> Mapping[str, Json]:
    """Name → what the manifest says of each pair of a fleet, or of each host of a run that went on
    elsewhere. Empty if one host measured all."""
    fleet = manifest.get("fleet")
    said = fleet.get("pairs") if isinstance(fleet, dict) else None
    if isinstance(said, dict):
        return {name: one for name, one in said.items() if isinstance(one, dict)}
    hosts = {str(sitting["name"]): sitting for sitting in reversed(sittings(manifest))}
    return dict(reversed(hosts.items())) if len(hosts) > 1 else {}


def first_host(manifest: Mapping[str, Any]) -> str | None:
    """The host of trials that name none; None if no other host measured any."""
    if isinstance(manifest.get("fleet"), dict):
        return None
    return next(iter(measured_on(manifest)), None)


def _place(sitting: Mapping[str, Any]) -> str:
    """A key that two sittings share if their figures are those of one host."""
    host, node = sitting.get("host"), sitting.get("node")
    host = host if isinstance(host, dict) else {}
    memory = host.get("memory")
    return json.dumps(
        [
            sitting.get("machine_sha256"),
            [host.get(key) for key in SAME_HOST],
            memory.get("total_bytes") if isinstance(memory, dict) else host.get("memory_bytes"),
            node.get("sha256") if isinstance(node, dict) else None,
        ],
        sort_keys=True,
    )


def _free_name(sitting: Mapping[str, Any], taken: Sequence[str]) -> str:
    host = sitting.get("host")
    name = str(host.get("hostname") or "") if isinstance(host, dict) else ""
    name, n = name or "first host", 2
    found = name
    while found in taken:
        found, n = f"{name} ({n})", n + 1
    return found


# How closely the figures of a cell are known, and whether that is close enough to stop.

Sut = Literal["fresh", "standing"]


METRICS: Mapping[str, Callable[[TrialRecord], float | None]] = {
    "loss_ratio": lambda record: record.loss_ratio,
    "detection_loss_ratio": lambda record: record.detection_loss_ratio,
    "cpu_per_packet": lambda record: record.sut_cpu_s_per_packet,
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
    """`n` counts hosts."""
    half_width: float | None
    """Half the width of the interval, in the unit of the rule; None if so few runs have no
    interval."""

    @property
    def reached(self) -> bool:
        return self.half_width is not None and self.half_width <= self.until.number


def known(records: Sequence[TrialRecord], asked: Repetitions, sut: Sut) -> tuple[Known, ...]:
    """One cell's metrics, each held against its rule. Failed and void trials have no figures."""
    return tuple(_known(records, until, looks(asked, sut)) for until in asked.rules)


def settled(records: Sequence[TrialRecord], asked: Repetitions, sut: Sut) -> bool:
    return all(one.reached for one in known(records, asked, sut))


def looks(asked: Repetitions, sut: Sut) -> LookPlan:
    each = asked.each_start(sut)
    return LookPlan(first=asked.min // each, last=-(-asked.max // each))


def rule_of(manifest: Mapping[str, Any]) -> tuple[Repetitions, Sut] | None:
    """Rule by which a run was repeated; None if a number said how often."""
    said = manifest.get("measure")
    said = said if isinstance(said, dict) else {}
    table = said.get("repetitions")
    if not isinstance(table, dict):
        return None
    try:
        return Repetitions.of(table), "standing" if said.get("sut") == "standing" else "fresh"
    except ValidationError:
        return None


def _known(records: Sequence[TrialRecord], until: Until, looks: LookPlan) -> Known:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    cell: Mapping[str, Any]
    """Factors, with the load if a search tried several."""
    accelerator: str
    """Words; empty if the SUT ran in no virtual machine."""
    measured: int
    failed: int
    """The SUT died, hung or was killed: a result about it."""
    void: int
    """Instrument or sender: these say nothing about the SUT."""
    unit: str
    """Packets or transactions."""
    lossy: int
    """Measured trials that lost packets, or in which transactions failed."""
    loss: Summary | None
    """Summary of loss_ratio over the measured trials; None without any."""
    detections: Summary | None
    """Summary of detection_loss_ratio over the measured trials; None without any."""
    places: Mapping[str, int]
    """Lossy trials by the place that killed most of their packets, the commonest first."""
    failures: Mapping[str, int]
    """Reasons for which trials failed, each with how many; the commonest first."""
    voids: Mapping[str, int]
    """Reasons for which trials are void, each with how many; the commonest first."""
    beside: Mapping[str, float]
    """Packets that were decoded though not whole: `cut`, `invalid` → their largest share of those
    that one measured trial decoded."""
    pairs: tuple[str, ...]
    """Pairs of a fleet, or hosts of a run that went on elsewhere, that measured it; empty if one
    host measured all."""


def summarize_cells(
    records: Iterable[TrialRecord], looks: LookPlan | None = None
) -> tuple[CellSummary, ...]:
    """One row per cell, in the order of the cells' values and not in that of the trials. `looks`:
    what was seen decided how often they were repeated."""
    cells: dict[str, list[TrialRecord]] = {}
    for record in records:
        cells.setdefault(cell_key(record.factors), []).append(record)
    rows = [_summary(cell, looks) for cell in cells.values()]
    return tuple(sorted(rows, key=lambda row: by_size(row.cell.values())))


def cell_key(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def record_words(record: TrialRecord) -> str:
    """A trial in a line: what was lost and where, or why it failed or is void."""
    if record.searched is not None and record.searched.ramp is not None:
        return f"a ramp, which decides nothing: {_words(record)}"
    return _words(record)


def _words(record: TrialRecord) -> str:
    books = record.packets
    if not record.valid or books.loss_ratio is None:
        return record.verdict  # of transactions, it says all
    if not books.loss_ratio:
        load = count_of(record.offered.sent or 0, "packet")
        if books.sustained_evidence and not books.sustained:
            took = duration(record.offered.duration_s or 0.0)
            return (
                f"absorbed a burst of {load} in {took} without loss{_beside(record)}{_on(record)}"
            )
        return f"no loss in {load}{_beside(record)}{_on(record)}"
    lost = f"{books.lost_packets or 0:,} of {record.offered.sent or 0:,}"
    where = books.loss_place or "place not known"
    return f"{percent(books.loss_ratio)} lost ({lost}), {where}{_beside(record)}{_on(record)}"


def not_whole(record: TrialRecord) -> dict[str, float]:
    """Shares of the packets that were decoded: `cut` to the room in the ring, `invalid` for the
    decoder, left out of streams for their `checksum`; what is not known, or none, is left out, and
    so are a few checksums, which are wrong in every real trace."""
    books = record.packets
    found = {"cut": books.cut_packets, "invalid": books.invalid_packets}
    decoded, wrong = books.decoded_packets, books.checksum_packets
    if decoded and wrong and wrong >= INVALID_NAMED * decoded:
        found["checksum"] = wrong
    return {name: n / decoded for name, n in found.items() if n and decoded}


_BESIDE = {"checksum": "with a wrong checksum"}


def _beside(record: TrialRecord) -> str:
    found = not_whole(record).items()
    named = [(n, share) for n, share in found if n == "cut" or share >= INVALID_NAMED]
    said = "".join(f", {percent(share)} {_BESIDE.get(name, name)}" for name, share in named)
    return said + (f", {detected_words(record)}" if record.detections else "")


def detected_words(record: TrialRecord) -> str:
    """The detections of a trial in words; empty if they were not asked for."""
    found = record.detections
    if found is None:
        return ""
    if found.expected is None or found.missed is None:
        return f"detections not judged ({found.no_ratio})"
    surplus = f", {found.surplus:,} not expected" if found.surplus else ""
    if not found.missed:
        return f"all {count_of(found.expected, 'expected detection')} seen{surplus}"
    share = found.detection_loss_ratio
    part = f"{percent(share)} of detections missed " if share is not None else "detections missed "
    return f"{part}({found.missed:,} of {found.expected:,}){surplus}"


def _on(record: TrialRecord) -> str:
    name = accelerator_words([record])
    idle = idle_ports([record])
    words = f", {' and '.join(idle)} received nothing" if idle else ""
    quota = record.disturbed.quota if record.disturbed else None
    held = f", nodrop held back {quota.throttled_s:.2f} s by its CPU quota" if quota else ""
    return words + (f", on {name}" if name else "") + held


def idle_ports(records: Sequence[TrialRecord]) -> Sequence[str]:
    """Ports of the SUT at which no packet came in in any of these, beside others that had some."""
    received: dict[str, int] = {}
    for record in records:
        for port in record.packets.ports:
            received[port.port] = received.get(port.port, 0) + port.received_packets
    idle = [port for port, packets in received.items() if not packets]
    return idle if len(idle) < len(received) else []


def _summary(records: Sequence[TrialRecord], looks: LookPlan | None) -> CellSummary:
    measured = [r for r in records if r.valid]
    return CellSummary(
        cell=records[0].factors,
        accelerator=accelerator_words(records),
        **outcomes(records),
        unit=records[0].offered.unit,
        lossy=sum(1 for r in measured if r.lost),
        loss=_ratios(measured, [r.loss_ratio for r in measured], looks),
        detections=_ratios(measured, [r.detection_loss_ratio for r in measured], looks),
        places=_counted(r.packets.loss_place for r in measured),
        failures=_counted(code for r in records for code in r.failures),
        voids=_counted(c for r in records if r.outcome == "void" for c in r.invalid_reasons),
        beside=_beside_loss(measured),
        pairs=_hosts(measured),
    )


def _beside_loss(measured: Sequence[TrialRecord]) -> dict[str, float]:
    found: dict[str, float] = {}
    for record in measured:
        for name, share in not_whole(record).items():
            words = _BESIDE.get(name, name)
            found[words] = max(share, found.get(words, 0.0))
    return found


def _ratios(
    measured: Sequence[TrialRecord], ratios: Sequence[float | None], looks: LookPlan | None
) -> Summary | None:
    found = zip(ratios, count_once(measured), strict=True)
    known = [(ratio, start) for ratio, start in found if ratio is not None]
    return summarize(
        [ratio for ratio, _ in known], starts=[start for _, start in known], looks=looks
    )


def outcomes(records: Sequence[TrialRecord]) -> dict[str, int]:
    """`measured`, `failed`, `void`: how many of each."""
    return {str(o): sum(1 for r in records if r.outcome == o) for o in Outcome}


def _counted(words: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(w for w in words if w).most_common())


def by_size(values: Iterable[object]) -> list[tuple[int, float, str]]:
    """Numbers by size, before everything else by its text."""
    return [
        (0, float(v), "")
        if isinstance(v, int | float) and not isinstance(v, bool)
        else (1, 0.0, str(v))
        for v in values
    ]


def _hosts(measured: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Pairs of a fleet, or hosts of a run that went on elsewhere; empty if one measured all."""
    hosts = {record.measured_on for record in measured}
    return () if hosts <= {None} else tuple(sorted(host or "first host" for host in hosts))
