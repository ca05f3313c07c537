"""The drawings of the capacity section: a knee and a way for each cell, bars for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from nodrop.answer.finding import Finding, render
from nodrop.capacity.dots import Dot, dots, voids
from nodrop.capacity.load_words import value_words
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.words import (
    between_words,
    deciding,
    fitted_words,
    goal_name,
    shown_fit,
    stand_apart,
)
from nodrop.ledger.worker_threads import SATURATED_SHARE
from nodrop.report import numbers
from nodrop.report.chart import (
    OUTCOMES,
    Bar,
    BarPart,
    Chart,
    KeyEntry,
    Mark,
    Pane,
    Plot,
    Scale,
    outcome_key,
    stacked_bars,
)
from nodrop.report.story import by_key
from nodrop.report.tables import Field, Table, interval_fields, number, table_of, words
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
    """Packets for each second of CPU time, one value for each start of the SUT."""
    bits: Summary | None
    """Bits of Ethernet frames for each second of CPU time."""
    packet_us: Summary
    """CPU time of a packet."""
    busiest_ratio: float | None
    """Largest share of one CPU that a thread of the SUT had in a measured trial, at any load; None
    = not measured."""

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
    carried = [r for r in measured if r.packets.loss_ratio == 0 and r.offered.pps]
    most = max((r.offered.pps or 0.0 for r in carried), default=0.0)
    near = [r for r in carried if (r.offered.pps or 0.0) >= LEAST_SHARE * most]
    found = [(record, work) for record in near if (work := _work(record)) is not None]
    counted = count_once([record for record, _ in found])
    starts = by_key(zip(counted, (work for _, work in found), strict=True))
    busy_s = {start: sum(w.cpu_s for w in some) for start, some in starts.items()}
    each = [sum(w.packets for w in some) / busy_s[start] for start, some in starts.items()]
    packets = summarize(each, starts=[*starts])
    packet_us = summarize([1e6 / per_s for per_s in each], starts=[*starts])
    bits = {
        start: sum(w.bits or 0.0 for w in some) / busy_s[start]
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
    )


def _work(record: TrialRecord) -> _Work | None:
    """Packets, bits and CPU time of a trial, with all that works for the SUT; None if that is not
    known."""
    cpu_s = record.sut_cpu_s if record.setup_cpu_s is None else record.setup_cpu_s
    sent, offered = record.offered.sent, record.offered
    if not cpu_s or not sent or record.cpu_not_valid:
        return None
    known = offered.bps is not None and offered.duration_s is not None
    bits = (offered.bps or 0.0) * (offered.duration_s or 0.0) if known else None
    return _Work(packets=sent, bits=bits, cpu_s=cpu_s)


def efficiency_words(subject: str, found: Efficiency | None) -> str:
    """Words on an efficiency; empty if no trial shows it."""
    if found is None:
        return ""
    busiest, bits = found.busiest_ratio, found.bits
    code = "unknown" if busiest is None else "full" if found.core_is_full else "idle"
    values = {
        "cost": with_spread(found.packet_us, numbers.micros, " µs"),
        "busiest": busiest,
        "packets": with_spread(found.packets, numbers.count, " packets"),
        "bits": f" and {with_spread(bits, numbers.megabits, ' Mbit')}" if bits else "",
    }
    return render(Finding(code=f"efficiency.{code}", subject=subject, values=values))


def with_spread(summary: Summary, shown: numbers.Shown, unit: str = "") -> str:
    """The median with its interval between starts of the SUT or, without one, with their range."""
    among = f"in {summary.n} {'hosts' if summary.hosts else 'starts'}"
    alone, alike = "one start of the SUT", f"the same {among}"
    return numbers.with_spread(summary, shown, unit, f" {among}", one=alone, alike=alike)


Named = tuple[str, Efficiency]
"""A cell's name and what it shows."""


def _if_full(of: Callable[[Efficiency], Summary | None]) -> Callable[[Named], Summary | None]:
    return lambda named: of(named[1]) if named[1].core_is_full else None


FIELDS: tuple[Field[Named], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    *interval_fields(
        ("cpu_us_per_packet", "cpu_us_low", "cpu_us_high"),
        ("CPU time of a packet, µs", "from", "to"), lambda x: x[1].packet_us, numbers.micros),
    number("busiest_thread_pct", "Busiest thread, %", lambda x: x[1].busiest_ratio,
           numbers.whole_percent, scale=100, help="of one CPU, in any measured trial"),
    *interval_fields(
        ("packets_per_cpu_s", "packets_low", "packets_high"),
        ("Packets per busy core-second", "from", "to"), _if_full(lambda work: work.packets),
        numbers.count, help="not known unless a thread was near a full CPU"),
    *interval_fields(
        ("bits_per_cpu_s", "bits_low", "bits_high"), ("Mbit per busy core-second", "from", "to"),
        _if_full(lambda work: work.bits), numbers.megabits),
    number("starts", "Starts", lambda x: x[1].packets.n, str, help="of the SUT; each counts once"),
)  # fmt: skip


def efficiency_table(found: Iterable[Named]) -> Table:
    """A row for each cell that shows it."""
    return table_of("efficiency", "What a packet costs", FIELDS, found)


STYLE = "p-decoded"
CURVE_POINTS = 60
HELD_FROM = 1.05
"""Rings that held less beside what was lost cannot be seen in a drawing."""


class CurvePoint(NamedTuple):
    """A fitted curve at one load, with its band."""

    pps: float
    loss_pct: float
    low_pct: float
    high_pct: float


class Held(NamedTuple):
    """A trial that ended before what the rings held could be lost."""

    pps: float
    lost_pct: float
    unserved_pct: float


NEAR = 3.0
"""Width of the drawn range on each side of the answer, in widths of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KneePicture:
    title: str
    dots: tuple[Dot, ...]
    voids: tuple[Dot, ...] = ()
    carried_pps: float | None = None
    too_much_pps: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    held: tuple[Held, ...] = ()
    """Trials among those that the curve rests on."""
    by_detections: bool = False
    """Losses are parts of the expected detections."""

    @property
    def near(self) -> tuple[Dot, ...]:
        """Trials that are drawn large: all, or those near the answer."""
        if self.carried_pps is None or self.too_much_pps is None:
            return self.dots
        low, high = sorted((self.carried_pps, self.too_much_pps))
        room = NEAR * max(high - low, 0.01 * high)
        return tuple(d for d in self.dots if low - room <= d.pps <= high + room) or self.dots


def knee_of(searched: SearchedCell) -> KneePicture:
    """Every trial of it, where its first goal's answer lies, and the loss curve of its trials."""
    records = Records(trial.packed for trial in searched.trials)
    curve = tuple(_curve(searched))
    first = searched.answers[0] if searched.answers else None
    return KneePicture(
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
    """The fitted curve over the loads of its trials, and no further."""
    found = shown_fit(searched)
    if isinstance(found, NoCurve):
        return
    offered = [pps for one in deciding(searched) if (pps := one.record.offered.pps)]
    low, high = min(offered), max(offered)
    evenly = {low + (high - low) * n / CURVE_POINTS for n in range(CURVE_POINTS + 1)}
    bends = {found.low_pps, found.capacity_pps, found.high_pps}
    for pps in sorted(evenly | {bend for bend in bends if low < bend < high}):
        least, most = found.band(pps)
        yield CurvePoint(pps, found.loss_ratio(pps) * 100, least * 100, most * 100)


def _held(searched: SearchedCell) -> Iterator[Held]:
    """Trials that were not good, by goal 0."""
    for one in deciding(searched):
        offered, lost, served = one.record.offered.pps, one.loss_ratio, one.served_ratio
        if offered is None or lost is None or served is None or one.good(0.0) is not False:
            continue
        if 1 - served > HELD_FROM * lost:
            yield Held(offered, lost * 100, (1 - served) * 100)


def knee_plot(knee: KneePicture) -> Chart:
    """Loss near the answer over its zones, the busiest worker below it, and all loads, small."""
    if not knee.dots:
        return Chart(knee.title, tuple(_all_loads(knee, None)), outcome_key(["void"]))
    near = knee.near
    bounds = [b for b in (knee.carried_pps, knee.too_much_pps) if b is not None]
    reached = [*(d.pps for d in near), *bounds]
    if knee.too_much_pps is not None:  # room for its label
        reached.append(min(reached) + (knee.too_much_pps - min(reached)) / 0.78)
    x = Scale.near(reached, wanted=6)
    curve = [point for point in knee.curve if x.holds(point.pps)]
    held = [one for one in knee.held if x.holds(one.pps)]
    tops = [(d.loss_ratio or 0.0) * 100 for d in near]
    tops += [*(one.unserved_pct for one in held), *(point.loss_pct for point in curve)]
    y = Scale.over(tops, wanted=4)
    what = "Missed detections" if knee.by_detections else "Lost packets"
    plot = Plot(f"{what} over the offered load", x, y, height=250)
    zones(plot, knee.carried_pps, knee.too_much_pps, named=True)
    plot.axes("offered load, packets/s", numbers.count, _plain)
    plot.area([(p.pps, p.high_pct) for p in curve], [(p.pps, p.low_pct) for p in curve], "fit")
    plot.line([(p.pps, p.loss_pct) for p in curve], "fit")
    for one in held:
        plot.rise(one.pps, one.lost_pct, one.unserved_pct, "held")
    _outcomes(plot, _by_loss(near, y.high))
    marks = outcome_key((d.mark for d in (*near, *knee.voids)), detections=knee.by_detections)
    others: tuple[tuple[KeyEntry, bool], ...] = (
        (("line", "fit", "fitted"), bool(curve)),
        (("area", "fit", "its 95 % band"), bool(curve)),
        (("bar", "held", "still in the rings at the end"), bool(held)),
        (("halo", "apart", "stands apart from the others"), any(d.apart for d in near)),
    )
    key = (*marks, *(entry for entry, there in others if there))
    named = ("Missed", "% of expected") if knee.by_detections else ("Lost", "% of sent")
    panes = (Pane((plot,), *named), *_workers(near, x), *_all_loads(knee, x))
    return Chart(knee.title, panes, key, "knee")


def _plain(value: float) -> str:
    return f"{value:.3g}"


def zones(plot: Plot, low: float | None, high: float | None, *, named: bool = False) -> None:
    """Blue ground: carried. Orange ground: too much. Between them: not known."""
    x = plot.x
    if low is not None:
        said, anchor = f"carried {numbers.count(low)}", "start" if x.at(low) < 0.25 else "end"
        plot.band(x.low, low, "z-carried").upright(low, "carried", said if named else "", anchor)
    if high is not None and (low is None or high > low):
        said = f"too much {numbers.count(high)}"
        anchor = "end" if low is None and x.at(high) >= 0.75 else "start"
        plot.band(high, x.high, "z-lost").upright(high, "lost", said if named else "", anchor)


def _by_loss(dots: Sequence[Dot], unknown: float) -> list[tuple[Dot, Mark]]:
    """Trials at their loads and their losses in per cent; `unknown`: where those stand that have
    none."""
    losses = [unknown if d.loss_ratio is None else d.loss_ratio * 100 for d in dots]
    return [(d, Mark(d.pps, y, d.says, d.run)) for d, y in zip(dots, losses, strict=True)]


def _outcomes(plot: Plot, dots: Sequence[tuple[Dot, Mark]]) -> None:
    """Marks trials by the signs of their outcomes, with a ring if one stands apart."""
    by_outcome(plot, [(dot.mark, mark) for dot, mark in dots])
    plot.marks([Mark(mark.x, mark.y) for dot, mark in dots if dot.apart], "halo", "apart")


def by_outcome(plot: Plot, marks: Sequence[tuple[str, Mark]]) -> None:
    for outcome, (shape, style, _) in OUTCOMES.items():
        plot.marks([mark for name, mark in marks if name == outcome], shape, style)


def _workers(near: Sequence[Dot], x: Scale) -> Iterator[Pane]:
    """Time of the worker that lost most or, if none lost, of the busiest."""
    known = [(d.pps, w) for d in near if (w := d.worker) is not None]
    if not known:
        return
    plot = Plot("The worker that lost most, over the offered load", Scale(x.low, x.high),
                Scale(0, 100, (0, 50, 100)), height=64, pad="bare")  # fmt: skip
    plot.axes(y_shown=_plain)
    ran = [Mark(pps, w.cpu_ratio * 100, f"{w.name} ran {w.cpu_ratio * 100:.0f} % of the trial")
           for pps, w in known if w.cpu_ratio is not None]  # fmt: skip
    waited = [Mark(pps, w.wait_ratio * 100,
                   f"{w.name} waited for a CPU {w.wait_ratio * 100:.0f} % of the trial")
              for pps, w in known if w.wait_ratio is not None]  # fmt: skip
    plot.marks(ran, "box", "s-ran").marks(waited, "box", "s-wait hollow")
    key: list[KeyEntry] = [("box", "s-ran", "ran")]
    key += [("box", "s-wait hollow", "waited for its CPU")] if waited else []
    yield Pane((plot,), "The worker that lost most", "% of the trial, same loads", tuple(key))


def _all_loads(knee: KneePicture, shown: Scale | None) -> Iterator[Pane]:
    """Every trial, void ones above the others; none if all are drawn already."""
    every = [*knee.dots, *knee.voids]
    if not every or (shown is not None and all(shown.holds(d.pps) for d in every)
                     and not knee.voids):  # fmt: skip
        return
    top = max((d.loss_ratio or 0.0 for d in every), default=0.0) * 100 or 1.0
    plot = Plot("All loads", Scale.over([d.pps for d in every], 6), Scale(0, top * 1.3),
                height=46, pad="flat")  # fmt: skip
    if shown is not None:
        plot.band(max(shown.low, plot.x.low), min(shown.high, plot.x.high), "window")
    plot.axes("", numbers.short, None, grid="")
    _outcomes(plot, _by_loss(every, top * 1.15))
    yield Pane((plot,), "All loads", "packets/s; the frame is the part above" if shown
               else "packets/s")  # fmt: skip


def way_of(searched: SearchedCell) -> Chart:
    """Each trial's load in the order measured, with the round that it belongs to. Empty if fewer
    than two trials have one."""
    title = f"The search of {searched.subject}, trial by trial"
    records = Records(trial.packed for trial in searched.trials)
    known = {dot.run: dot for dot in (*dots(records, stand_apart(searched)), *voids(records))}
    drawn = [(known[record.run], record) for record in records if record.run in known]
    if len(drawn) < 2:
        return Chart()
    rounds = [(r.index, r.searched.round if r.searched else 1) for _, r in drawn]
    first, last = rounds[0][0], rounds[-1][0]
    steps = Scale.near([first, last], 6).steps
    x = Scale(first - 0.8, last + 0.8, tuple(s for s in steps if s == int(s)))
    plot = Plot(title, x, Scale.over([d.pps for d, _ in drawn], 3), height=150)
    plot.axes("trial", _plain, numbers.short)
    plot.line([(r.index, d.pps) for d, r in drawn], "path")
    begun = [next(own) for _, own in groupby(rounds, key=lambda one: one[1])]
    if len(begun) > 1:
        ends = [*(i for i, _ in begun[1:]), last + 1]
        for (i, number), end in zip(begun, ends, strict=True):
            room = x.at(end - 0.5) - x.at(i - 0.5)
            words = f"round {number}" if room > 0.24 else f"{number}" if room > 0.05 else ""
            plot.upright(i - 0.5, "moment", words, "start")
    _outcomes(plot, [(d, Mark(r.index, d.pps, f"trial {r.index}, {d.says}", d.run))
                     for d, r in drawn])  # fmt: skip
    key = outcome_key((d.mark for d, _ in drawn), detections=any(d.of_detections for d, _ in drawn))
    return Chart(title, (Pane((plot,), "Load", "packets/s"),), key)


def caption_of(searched: SearchedCell, knee: KneePicture) -> str:
    parts: Mapping[str, object] = {
        "every": True,
        "void": knee.voids,
        "worker": any(dot.worker is not None for dot in knee.dots),
        "ground": knee.carried_pps and knee.too_much_pps,
        "fitted": True,
        "curve": knee.curve,
        "held": knee.held,
        "apart": any(dot.apart for dot in knee.dots),
    }
    known = {"fitted": fitted_words(shown_fit(searched))}
    said = (Finding(code=f"caption.{c}", subject=searched.subject, values=known) for c in parts)
    return " ".join(one.text for one, there in zip(said, parts.values(), strict=True) if there)


def capacity_bars(cells: Sequence[SearchedCell]) -> Chart:
    if len(cells) < 2 or not any(answer.lower for cell in cells for answer in cell.answers):
        return Chart()
    return stacked_bars(
        "Capacity, cell by cell",
        "packets/s that were carried; the line: up to the load that was not",
        [_bar(cell, answer) for cell in cells for answer in cell.answers],
    )


def _bar(searched: SearchedCell, answer: Answer) -> Bar:
    pps = answer.lower.pps if answer.lower else None
    not_carried = answer.upper.pps if answer.upper else None
    cell, goal = searched.label or searched.subject, goal_name(answer)
    words = "none found" if pps is None else f"{numbers.count(pps)} packets/s"
    if answer.lower is not None and answer.by != "pps":
        words = f"{words} ({value_words(answer.by, answer.lower.value)})"
    if answer.lower is not None and answer.upper is None:
        words = f"at least {words}"
    if answer.between is not None and answer.between.n > 1:
        words += f"; {between_words(answer)}"
    part = BarPart(kind="carried", value=pps or 0.0, says=f"{cell}, {goal}: {words}", style=STYLE)
    several = len(searched.answers) > 1
    return Bar(
        name=goal if several else cell,
        group=cell if several else "",
        parts=(part,),
        words=words,
        # Within the search: from the load that was carried to the next one that was not.
        interval=None
        if pps is None or not_carried is None
        else (min(pps, not_carried), max(pps, not_carried)),
    )
