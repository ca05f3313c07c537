"""The drawings of the capacity section: a knee and a way for each cell, bars for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodrop.findings.answer import Answer
from nodrop.findings.capacity_statements import writing
from nodrop.findings.load_words import value_words
from nodrop.report import numbers
from nodrop.report.capacity_words import goal_name
from nodrop.report.chart import Chart
from nodrop.report.charts import (
    Bar,
    CurvePoint,
    Held,
    Knee,
    Part,
    Step,
    search_plot,
    stacked_bars,
)
from nodrop.report.efficiency import Efficiency, efficiency, with_spread
from nodrop.report.fitted import deciding, fitted, fitted_words, stand_apart
from nodrop.report.knee import dots, voids
from nodrop.report.searched import SearchedCell
from nodrop.results.packed import Records
from nodrop.stats.loss_curve import NoCurve

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
    steps = [
        Step(dot=drawn[record.run], round=record.searched.round if record.searched else 1)
        for record in records
        if record.run in drawn
    ]
    return search_plot(f"The search of {searched.subject}, trial by trial", steps)


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
    cell, goal = searched.label or searched.subject, goal_name(answer.goal)
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
        return f"; 95 % interval {loads.span(interval.low, interval.high)}, {between.n} rounds"
    return f"; {loads.span(between.lowest, between.highest, up=False)} in {between.n} rounds"


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
