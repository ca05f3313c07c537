"""The drawings of the capacity section: a knee and a way for each cell, bars for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodrop.capacity.answer import Answer
from nodrop.capacity.cells import SearchedCell
from nodrop.capacity.knee import dots, voids
from nodrop.capacity.statements import writing
from nodrop.capacity.words import deciding, fitted, fitted_words, goal_name, stand_apart
from nodrop.findings.load_words import value_words
from nodrop.ledger.worker_threads import SATURATED_SHARE
from nodrop.report import escape, numbers
from nodrop.report.chart import Chart
from nodrop.report.charts import (
    Bar,
    CurvePoint,
    Held,
    Knee,
    Part,
    search_plot,
    stacked_bars,
)
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.results.rundir import Records
from nodrop.results.trial import TrialRecord, count_once
from nodrop.stats.interval import Summary, summarize
from nodrop.stats.loss_curve import NoCurve

LEAST_SHARE = 0.5
"""Share of the highest load that was carried: far below that load a SUT's own wakeups are most of
its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    packets: Summary
    """For each second of CPU time, one value for each start of the SUT."""
    bits: Summary | None
    """Bits of Ethernet frames for each second of CPU time."""
    packet_us: Summary
    """CPU time of a packet."""
    busiest_ratio: float | None
    """Largest share of one CPU that a thread of the SUT had in a measured trial, at any load; None
    = not measured."""
    runs: tuple[str, ...]
    """Trials that it rests on."""

    @property
    def core_is_full(self) -> bool:
        """A thread was near a full CPU: only then is what a busy core carries more than a sum."""
        return self.busiest_ratio is not None and self.busiest_ratio >= SATURATED_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    packets: float
    bits: float | None
    cpu_s: float


def efficiency(records: Iterable[TrialRecord]) -> Efficiency | None:
    """Efficiency in the trials without loss, at no less than half of the highest load that was
    carried so."""
    measured = [record for record in records if record.valid]
    busiest = [r.busiest_thread.cpu_ratio for r in measured if r.busiest_thread is not None]
    carried = [r for r in measured if r.packets.loss_ratio == 0 and r.offered.per_s]
    most = max((r.offered.per_s or 0.0 for r in carried), default=0.0)
    near = [r for r in carried if (r.offered.per_s or 0.0) >= LEAST_SHARE * most]
    found = [(record, work) for record in near if (work := _work(record)) is not None]
    if not found:
        return None
    starts: dict[Hashable, list[_Work]] = {}
    for start, (_, work) in zip(count_once([r for r, _ in found]), found, strict=True):
        starts.setdefault(start, []).append(work)
    each = [_per_core_s([w.packets for w in some], some) for some in starts.values()]
    packets = summarize(each, starts=[*starts])
    packet_us = summarize([1e6 / per_s for per_s in each], starts=[*starts])
    bits = {
        start: _per_core_s([w.bits or 0.0 for w in some], some)
        for start, some in starts.items()
        if all(w.bits is not None for w in some)
    }
    if packets is None or packet_us is None:
        return None
    return Efficiency(
        packets=packets,
        bits=summarize([*bits.values()], starts=[*bits]),
        packet_us=packet_us,
        busiest_ratio=max(busiest, default=None),
        runs=tuple(record.run for record, _ in found),
    )


def _work(record: TrialRecord) -> _Work | None:
    """With all that works for the SUT, if that is known."""
    cpu_s = record.sut_cpu_s if record.setup_cpu_s is None else record.setup_cpu_s
    sent, offered = record.offered.sent, record.offered
    if not cpu_s or not sent:
        return None
    known = offered.bps is not None and offered.duration_s is not None
    bits = (offered.bps or 0.0) * (offered.duration_s or 0.0) if known else None
    return _Work(packets=sent, bits=bits, cpu_s=cpu_s)


def _per_core_s(amounts: Sequence[float], works: Sequence[_Work]) -> float:
    return sum(amounts) / sum(work.cpu_s for work in works)


def efficiency_words(subject: str, found: Efficiency | None) -> str:
    """Empty if no trial shows it."""
    if found is None:
        return ""
    cost = f"{subject}: CPU time of a packet {with_spread(found.packet_us, numbers.micros, ' µs')}."
    if found.busiest_ratio is None:
        return f"{cost} How busy its threads were is not known, so neither is what a core carries."
    if not found.core_is_full:
        busiest = f"{found.busiest_ratio * 100:.0f} %"
        return (
            f"{cost} No thread was near a full CPU (the busiest: {busiest}), so what a busy core "
            "would carry is not shown."
        )
    words = with_spread(found.packets, numbers.count, " packets")
    if found.bits is not None:
        words += f" and {with_spread(found.bits, numbers.megabits, ' Mbit')}"
    return f"{cost} A busy core carries {words} a second."


def with_spread(summary: Summary, shown: numbers.Shown, unit: str = "") -> str:
    """With the interval between starts of the SUT; without one, with their range."""
    said = f"{shown(summary.median)}{unit}"
    if summary.interval:
        return f"{said} {numbers.between(summary.interval.low, summary.interval.high, shown)}"
    if summary.n == 1:
        return f"{said} (one start of the SUT)"
    counted = "hosts" if summary.hosts else "starts"
    if shown(summary.low) == shown(summary.high):
        return f"{said} (the same in {summary.n} {counted})"
    return f"{said} ({shown(summary.low)} to {shown(summary.high)} in {summary.n} {counted})"


COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("cpu_us_per_packet", "CPU time of a packet, µs"),
    numeric("cpu_us_low", "from", "lower end of the 95 % interval"),
    numeric("cpu_us_high", "to", "upper end of the 95 % interval"),
    numeric("busiest_thread_pct", "Busiest thread, %", "of one CPU, in any measured trial"),
    numeric(
        "packets_per_cpu_s",
        "Packets per busy core-second",
        "not known unless a thread was near a full CPU",
    ),
    numeric("packets_low", "from", "lower end of the 95 % interval"),
    numeric("packets_high", "to", "upper end of the 95 % interval"),
    numeric("bits_per_cpu_s", "Mbit per busy core-second"),
    numeric("bits_low", "from", "lower end of the 95 % interval"),
    numeric("bits_high", "to", "upper end of the 95 % interval"),
    numeric("starts", "Starts", "of the SUT; each counts once"),
)


def efficiency_table(found: Iterable[tuple[str, Efficiency]]) -> Table:
    """Table of efficiencies: one row for each cell that shows it, with the cell's name."""
    rows = tuple(Row(values=(text(name), *_values(work))) for name, work in found)
    return Table(name="efficiency", title="What a packet costs", columns=COLUMNS, rows=rows)


def _values(work: Efficiency) -> Iterator[Value]:
    busiest = None if work.busiest_ratio is None else work.busiest_ratio * 100
    yield from with_ends(work.packet_us, numbers.micros)
    yield Value(raw=busiest, shown=numbers.count(busiest))
    yield from with_ends(work.packets if work.core_is_full else None, numbers.count)
    yield from with_ends(work.bits if work.core_is_full else None, numbers.megabits)
    yield Value(raw=work.packets.n, shown=f"{work.packets.n}")


STYLE = "p-decoded"
CURVE_POINTS = 60
HELD_FROM = 1.05
"""Rings that held less beside what was lost cannot be seen in a drawing."""


def knee_of(searched: SearchedCell) -> Knee:
    """Every trial of it, where its first goal's answer lies, and the loss curve of its trials."""
    records = Records(trial.packed for trial in searched.trials)
    curve = tuple(_curve(searched))
    first = searched.answers[0] if searched.answers else None
    return Knee(
        title=f"The knee of {searched.subject}",
        dots=dots(records, stand_apart(searched)),
        voids=voids(records),
        carried_pps=first.lower.pps if first and first.lower else None,
        too_much_pps=first.upper.pps if first and first.upper else None,
        curve=curve,
        held=tuple(_held(searched)) if curve else (),
        by_detections=searched.by_detections,
    )


def _curve(searched: SearchedCell) -> Iterator[CurvePoint]:
    """Over the loads of the trials that it was fitted to, and no further."""
    found = fitted(searched)
    if isinstance(found, NoCurve):
        return
    offered = [pps for one in deciding(searched) if (pps := one.record.offered.per_s)]
    low, high = min(offered), max(offered)
    evenly = {low + (high - low) * n / CURVE_POINTS for n in range(CURVE_POINTS + 1)}
    bends = {found.low_pps, found.capacity_pps, found.high_pps}
    for pps in sorted(evenly | {bend for bend in bends if low < bend < high}):
        least, most = found.band(pps)
        yield CurvePoint(
            pps=pps, loss_ratio=found.loss_ratio(pps), low_ratio=least, high_ratio=most
        )


def _held(searched: SearchedCell) -> Iterator[Held]:
    """Trials that were not good, by goal 0."""
    for one in deciding(searched):
        offered, lost, served = one.record.offered.per_s, one.loss_ratio, one.served_ratio
        if offered is None or lost is None or served is None or one.good(0.0) is not False:
            continue
        if 1 - served > HELD_FROM * lost:
            yield Held(pps=offered, lost_ratio=lost, unserved_ratio=1 - served)


def way_of(searched: SearchedCell) -> Chart:
    """Its trials in their order: load and outcome."""
    records = Records(trial.packed for trial in searched.trials)
    drawn = {dot.run: dot for dot in (*dots(records, stand_apart(searched)), *voids(records))}
    measured = [record for record in records if record.run in drawn]
    rounds = [record.searched.round if record.searched else 1 for record in measured]
    title = f"The search of {searched.subject}, trial by trial"
    return search_plot(title, [drawn[record.run] for record in measured], rounds)


def _interval_pps(answer: Answer) -> tuple[float, float] | None:
    """Within the search: from the load that was carried to the next one that was not."""
    low = answer.lower.pps if answer.lower else None
    high = answer.upper.pps if answer.upper else None
    return None if low is None or high is None else (min(low, high), max(low, high))


def caption_of(searched: SearchedCell, knee: Knee) -> str:
    said = [f"Every trial of {searched.subject}, at the load that was really sent."]
    if knee.voids:
        said.append("Above the plot: void ones, which say nothing of the SUT.")
    if any(dot.worker is not None for dot in knee.dots):
        said.append("Below: the worker that lost most.")
    if knee.carried_pps and knee.too_much_pps:
        said.append("Blue ground: carried. Orange ground: too much. Between them: not known.")
    said.append(fitted_words(fitted(searched)))
    if knee.curve:
        said.append("The curve says what is lost once the rings are full.")
    if knee.held:
        said.append("Bars above marks: what rings still held when the load ended.")
    if any(dot.apart for dot in knee.dots):
        said.append("What stands apart is marked, and is in every figure like the others.")
    return " ".join(said)


def capacity_bars(found: Sequence[SearchedCell]) -> Chart:
    if len(found) < 2 or not any(answer.lower for one in found for answer in one.answers):
        return Chart()
    return stacked_bars(
        "Capacity, cell by cell",
        "packets/s that were carried; the line: up to the load that was not",
        [_bar(one, answer) for one in found for answer in one.answers],
    )


def _bar(searched: SearchedCell, answer: Answer) -> Bar:
    pps = answer.lower.pps if answer.lower else None
    cell, goal = searched.label or searched.subject, goal_name(answer)
    words = "none found" if pps is None else f"{numbers.count(pps)} packets/s"
    if answer.lower is not None and answer.by != "pps":
        words = f"{words} ({value_words(answer.by, answer.lower.value)})"
    if answer.lower is not None and answer.upper is None:
        words = f"at least {words}"
    words += _between_rounds(answer)
    part = Part(kind="carried", value=pps or 0.0, says=f"{cell}, {goal}: {words}", style=STYLE)
    several = len(searched.answers) > 1
    return Bar(
        name=goal if several else cell,
        group=cell if several else "",
        parts=(part,),
        words=words,
        interval=_interval_pps(answer),
    )


def _between_rounds(answer: Answer) -> str:
    """`; 4,100 to 4,300 packets/s (61X to 62X) in 3 rounds`, or their interval if there are rounds
    enough."""
    between = answer.between
    if between is None or between.n < 2:
        return ""

    loads = writing(answer)
    if interval := between.interval:
        span = loads.span(interval.low, interval.high).replace(",", escape.THIN)
        return f"; 95 % interval {span}, {between.n} rounds"
    if between.lowest == between.highest:
        return f" in each of {between.n} rounds"
    span = loads.span(between.lowest, between.highest, up=False).replace(",", escape.THIN)
    return f"; {span} in {between.n} rounds"


def core_bars(found: Sequence[SearchedCell]) -> Chart:
    known = [
        (one, work)
        for one in found
        if (work := efficiency(t.record for t in one.trials)) is not None
    ]
    if len(known) < 2:
        return Chart()
    if all(work.core_is_full for _, work in known):
        title, unit = (
            "What a busy core carries, cell by cell",
            "packets for each second of CPU time",
        )
    else:
        title, unit = "CPU time of a packet, cell by cell", "µs"
    return stacked_bars(
        title,
        f"{unit}; the line: 95 % interval of the median start",
        [_core_bar(one.label or one.subject, work, unit) for one, work in known],
    )


def _core_bar(name: str, work: Efficiency, unit: str) -> Bar:
    found = work.packet_us if unit == "µs" else work.packets
    words = with_spread(found, numbers.micros if unit == "µs" else numbers.count)
    says = f"{name}: {words} {'µs' if unit == 'µs' else 'packets'}"
    part = Part(kind="packets", value=found.median, says=says, style=STYLE)
    between = (found.interval.low, found.interval.high) if found.interval else None
    return Bar(name=name, parts=(part,), words=words, interval=between)
