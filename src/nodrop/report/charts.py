"""Charts of streams and of cells: packets from hop to hop, a trial over time, every run a dot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from nodrop.ledger.balance import HopStep, Ledger
from nodrop.ledger.hops import ADDING, Account, Hop
from nodrop.report import chart, numbers
from nodrop.report.chart import Chart, Mark, Pane, Plot, Scale, cut, number, tag, ticks
from nodrop.report.costs import LOSS_FIGURE, minus
from nodrop.report.loads import percent_with_interval
from nodrop.report.repeats import MOST_CELLS, Repeated, outlying_in
from nodrop.report.sentences import TITLES, hop_title, meaning
from nodrop.report.story import RunCell
from nodrop.report.timeline import Panel, TrialTimeline

STREAM, TOP, ROW = 56.0, 34, 30
"""Height of the widest stream; room for the hops' texts; height of a branch's label, in px."""
THINNEST = 1.5
"""A single lost packet must still be seen, so nothing is drawn thinner than this."""
CROWDED = 6
"""Number of hops from which on their texts stand in two rows."""


def flow(ledger: Ledger, title: str, most: int | None = None) -> Chart:
    """The books as a stream: every width is packets, of `most` at the widest. Hops that were not
    read are named; the stream passes them."""
    seen = [hop for hop in ledger.hops if hop.packets is not None]
    widest = max((hop.packets or 0 for hop in seen), default=0)
    if len(seen) < 2 or not widest:
        return Chart()
    plot = _Route(ledger, seen, STREAM / (most or widest)).plot(title)
    return Chart(title, (Pane((plot,)),), (), "route", other=tuple(_route_list(ledger, seen)))


def _leaving(step: HopStep) -> list[Account]:
    """Accounts that change the stream on the way to the next hop, the least first."""
    return sorted((a for a in step.accounts if a.packets), key=lambda a: a.packets)


class _Route:
    """The drawing of one ledger, built from left to right."""

    def __init__(self, ledger: Ledger, seen: Sequence[Hop], scale: float) -> None:
        self._ledger, self._seen, self._scale = ledger, seen, scale
        self._crowded = len(seen) >= CROWDED
        self._top = TOP + (30 if self._crowded else 0)
        wide = [2.4 if _leaving(step) else 1.0 for step in ledger.steps]
        ends = [seen[0].name, *(step.end.name for step in ledger.steps)]
        self._x = {name: sum(wide[:n]) / sum(wide) * 100 for n, name in enumerate(ends)}

    def plot(self, title: str) -> Plot:
        branches = [
            (step, own, n)
            for step in reversed(self._ledger.steps)
            for own in (_leaving(step),)
            for n in reversed(range(len(own)))
        ]
        notes = list(_notes(self._ledger))
        rows = len(branches) + len(notes)
        height = int(self._top + STREAM + (14 + ROW * rows if rows else 8))
        plot = Plot(title, Scale(0, 100), Scale(height, 0), height, "full")
        for step in self._ledger.steps:
            x0, x1 = self._x[step.start.name], self._x[step.end.name]
            box = {"x": f"{number(x0)}%", "y": self._top, "width": f"{number(x1 - x0)}%"}
            high = self._high(step.end.packets)
            plot.behind.append(tag("rect", **box, height=high, class_="stream"))
        for row, branch in enumerate(branches):
            self._branch(plot, self._row_y(row), *branch)
        for row, words in enumerate(notes, len(branches)):
            plot.front.append(tag("text", words, x="0", y=self._row_y(row), class_="fate failed b"))
        for n, hop in enumerate(self._seen):
            self._hop(plot, n, hop)
        return plot

    def _row_y(self, row: int) -> float:
        """Position of a row below the stream, in px."""
        return self._top + STREAM + 14 + ROW * row + 12

    def _high(self, packets: int | None) -> float:
        return max((packets or 0) * self._scale, THINNEST)

    def _branch(self, plot: Plot, y: float, step: HopStep, own: Sequence[Account], n: int) -> None:
        """The n-th of those that leave at a step, from the stream down to its label."""
        x0, x1 = self._x[step.start.name], self._x[step.end.name]
        x = x0 + (x1 - x0) * (0.12 + 0.1 * (len(own) - 1 - n))
        above = [step.end.packets, *(a.packets for a in own[:n])]
        edge = self._top + sum(map(self._high, above))
        account, thick, down = own[n], self._high(own[n].packets), y - edge
        kind, packets, name = account.kind.value, account.packets, account.name
        ribbon = f"M-22 {number(thick / 2)}h8q14 0 14 14v{number(max(down - 14 - thick / 2, 1))}"
        tail = tag("path", d=ribbon, stroke_width=thick, class_=f"drop k-{kind}")
        said = _count(account)
        if kind == "lost" and (sent := self._seen[0].packets):
            said += f" · {numbers.percent(packets / sent)} %"
        title = tag("tspan", cut(f" {TITLES.get(name, name)}", 260))
        far = x > 60
        side = {"x": -thick / 2 - 8 if far else thick / 2 + 8, "y": down + 2}
        style = f"fate k-{kind}{' a-end' if far else ''}"
        label = tag("text", tag("tspan", said, class_="b"), title, **side, class_=style)
        moved = {"x": f"{number(x)}%", "y": edge, "overflow": "visible"}
        plot.front.append(tag("svg", tail, label, **moved))
        says = f"{name}: {numbers.count_of(packets, 'packet')} {kind}; counter: {account.counter}"
        more = ("evidence", account.evidence), ("knob", account.knob), ("meaning", meaning(name))
        says += "".join(f"; {what}: {words}" for what, words in more if words)
        plot.told.append((round(x * 10), round(y / plot.height * 1000), says, ""))

    def _hop(self, plot: Plot, n: int, hop: Hop) -> None:
        x, high, title = self._x[hop.name], self._high(hop.packets), hop_title(hop.name)
        anchor = "start" if n == 0 else "end" if n == len(self._seen) - 1 else "middle"
        at, y = f"{number(x)}%", self._top - 23 - (30 if self._crowded and n % 2 == 0 else 0)
        ends = {"x1": at, "x2": at, "y1": self._top - 3, "y2": self._top + high + 3}
        plot.front += [
            tag("line", **ends, class_="gate"),
            tag("text", title, x=at, y=y, class_=f"place a-{anchor}"),
            tag("text", numbers.count(hop.packets), x=at, y=y + 15, class_=f"n a-{anchor}"),
        ]
        middle = round((self._top + high / 2) / plot.height * 1000)
        seen = f"{title}: {numbers.count_of(hop.packets, 'packet')}; counter: {hop.counter}"
        says = "; ".join(filter(None, (seen, meaning(hop.name))))
        plot.told.append((round(x * 10), middle, says, ""))


def _notes(ledger: Ledger) -> Iterator[str]:
    """Hops without a counter, and packets without a class. The drawing shows no branch for them."""
    for step in ledger.steps:
        if step.over:
            yield f"{', '.join(map(hop_title, step.over))}: not visible"
        if step.residual_packets:
            residual, end = numbers.signed(step.residual_packets), hop_title(step.end.name)
            yield f"residual {residual} on the way to {end}"


def _count(account: Account) -> str:
    return f"{'+' if account.kind in ADDING else '−'}{numbers.count(account.packets)}"


def _route_list(ledger: Ledger, seen: Sequence[Hop]) -> Iterator[tuple[str, str, str]]:
    """Style, name and packets of each hop, and before it of what happened on the way to it."""
    ways = ((step.accounts, step.end) for step in ledger.steps)
    for accounts, hop in (((), seen[0]), *ways):
        for account in (one for one in accounts if one.packets):
            title = TITLES.get(account.name, account.name)
            yield f"fate k-{account.kind.value}", title, _count(account)
        yield "", hop_title(hop.name), numbers.count(hop.packets)


TIME_HEIGHT = 64
QUIET = 5.0
"""Threads that never ran more (% of a CPU) are counted, not drawn, beside busier ones."""


def time_chart(timelines: Sequence[TrialTimeline], title: str, heads: Sequence[str] = ()) -> Chart:
    """A row per figure and a column per trial: one scale per row, one axis of time. Empty if no
    trial left two points."""
    times = [at for t in timelines for p in t.panels for s in p.series for at, _ in s.points]
    times += [at for t in timelines for _, at in t.marks]
    first, last = min(times, default=0.0), max(times, default=0.0)
    if first >= last:
        return Chart()
    x = Scale(first, last, tuple(s for s in ticks(last, 6, min(first, 0.0)) if first <= s <= last))
    names = list(dict.fromkeys(p.title for t in timelines for p in t.panels))
    panes = tuple(_time_row(name, timelines, x, final=name == names[-1]) for name in names)
    if len(timelines) > 1:
        return Chart(title, panes, (), "times sides", tuple(heads))
    moments = ((name, numbers.seconds(at)) for name, at in timelines[0].marks)
    key = tuple(("bar", "moment", f"{name} {at} s") for name, at in moments)
    return Chart(title, panes, key, "times", tuple(heads))


def _time_row(name: str, timelines: Sequence[TrialTimeline], x: Scale, *, final: bool) -> Pane:
    panels = [next((p for p in t.panels if p.title == name), None) for t in timelines]
    known = [p for p in panels if p is not None]
    tops = [v for p in known for points in p.lines for _, v in points]
    # CPU times step by a tick (4 ms), and a sampler that waits for its turn reads them late: an
    # interval may seem to hold more than itself. What cannot be more is drawn as all there is.
    high = next((p.high for p in known if p.high is not None), None)
    y = Scale.over([max(tops, default=0.0) if high is None else high], 2)
    threads = [s for p in known for s in p.series] if "thread" in name.lower() else []
    loud = {s.name for s in threads if any(v >= QUIET for _, v in s.points)}
    quiet = {s.name for s in threads if loud} - loud
    plots = []
    for panel, timeline in zip(panels, timelines, strict=True):
        plot = Plot(f"{name} over time", x, y, TIME_HEIGHT, "flat" if final else "bare")
        plot.axes("", (lambda v: f"{v:g} s".replace("-", "−")) if final else None, numbers.short)
        if panel is not None:
            _draw(plot, panel, quiet)
        for _, at in timeline.marks:
            plot.upright(at, "moment")
        plots.append(plot)
    drawn = dict.fromkeys((s.style, s.name) for p in known for s in p.series if s.name not in quiet)
    stacked = any(p.stacked for p in known)
    key = [("zone" if stacked else "line", f"s{n % 8}{' solid' if stacked else ''}", said)
           for n, said in drawn]  # fmt: skip
    note = f"{len(quiet)} others below {QUIET:g} %" if quiet else ""
    return Pane(tuple(plots), name, known[0].unit, tuple(key), note)


def _draw(plot: Plot, panel: Panel, quiet: set[str]) -> None:
    below: list[tuple[float, float]] = []
    for series, points in zip(panel.series, panel.lines, strict=True):
        style = f"s{series.style % 8}"
        if panel.stacked:
            plot.area(points, below or [(at, 0.0) for at, _ in points], f"{style} solid")
            below = points
        elif series.name not in quiet:
            plot.line(points, style)


ASIDE = 0.011
"""Distance between series, as a part of the axis: at the same load their marks would hide each
other."""


def _plain(value: float) -> str:
    return minus(f"{value:,.6g}")


def loss_plot(cells: Sequence[RunCell]) -> Chart:
    """Loss over offered load. Empty unless some measured trial has both."""
    shown = [c for c in cells if c.loss is not None and c.offered_pps is not None]
    if not shown:
        return Chart()
    groups = groupby(shown, key=lambda c: (c.source, c.group))
    drawn = [[*found] for _, found in groups][: chart.MOST_SERIES]
    failed = [(c, pps) for c in cells if c.failed and (pps := c.offered_pps or c.asked_pps)]
    rates = [pps for _, pps in failed]
    rates += [t.offered_pps for c in shown for t in c.valid if t.offered_pps is not None]
    y = Scale.over(c.loss.high * 100 for c in shown if c.loss)
    plot = Plot("Loss over offered load", Scale.over(rates), y)
    plot.axes("offered load, packets/s", numbers.short, _plain)
    for n, group in enumerate(drawn):
        aside = (n - (len(drawn) - 1) / 2) * ASIDE * plot.x.high
        _series(plot, group, n, aside, strips=len(shown))
    crosses = [
        Mark(pps, y.high, f"{c.label}: failed in {len(c.failed)} of {len(c.failed) + len(c.valid)}")
        for c, pps in failed
    ]
    plot.marks(crosses, "cross", "failed")
    key = [(*chart.series_of(n), g[0].group or "median of a load") for n, g in enumerate(drawn)]
    key += [chart.OUTCOMES["failed"]] if failed else []
    return Chart(plot.says, (Pane((plot,), "Lost", "% of sent"),), tuple(key))


def _series(plot: Plot, group: Sequence[RunCell], n: int, aside: float, *, strips: int) -> None:
    shape, style = chart.series_of(n)
    medians = []
    known = [(c, c.loss, c.offered_pps + aside) for c in group if c.loss and c.offered_pps]
    for cell, loss, pps in sorted(known, key=lambda one: one[2]):
        told = [
            Mark(t.offered_pps + aside, t.loss_ratio * 100)
            for t in cell.valid
            if t.offered_pps is not None and t.loss_ratio is not None
        ]
        plot.marks(told, "small", f"{style} faint", strips=strips)
        apart = [
            Mark(offered + aside, one.found.value,
                 f"{one.trial.name} stands apart: {one.words}", one.trial.anchor)
            for one in outlying_in(cell, LOSS_FIGURE)
            if (offered := one.trial.offered_pps) is not None
        ]  # fmt: skip
        plot.marks(apart, "halo", "apart", strips=strips)
        if loss.interval:
            plot.rise(pps, loss.interval.low * 100, loss.interval.high * 100, f"{style} median")
        says = f"{cell.label}: {percent_with_interval(loss)} lost, n = {loss.n}"
        medians.append(Mark(pps, loss.median * 100, says, cell.typical.anchor))
    plot.line([(m.x, m.y) for m in medians], style)
    plot.marks(medians, shape, style)


def runs_plot(found: Sequence[Repeated]) -> Chart:
    """A row per cell, a pane per figure. The band about a median is what cannot be told from it."""
    cells = list(dict.fromkeys(r.cell for r in found))[:MOST_CELLS]
    figures = list(dict.fromkeys(r.figure.name for r in found))
    strips = len(cells) * len(figures)
    panes = [
        _strips([r for r in found if r.figure.name == name and r.cell in cells], strips)
        for name in figures
    ]
    return Chart("Every run of each cell", tuple(panes), (), "panels") if cells else Chart()


def _strips(found: Sequence[Repeated], strips: int) -> Pane:
    figure = found[0].figure
    x = Scale.over((end for r in found for end in (*r.values, r.median + (r.sees or 0.0))), 4)
    plot = Plot(f"{figure.title} of each cell's runs", x, Scale.rows(len(found)),
                height=(chart.ROW - 4) * len(found), pad="rows")  # fmt: skip
    plot.axes("", _plain, None, "x")
    for row, one in enumerate(found):
        plot.named(row, one.cell.label)
        if (sees := one.sees) is not None:
            plot.bar(one.median - sees, one.median + sees, row, 13, "unseen", dy=7.5)
        dots = [Mark(value, row) for value in one.values]
        plot.marks(dots, "small", "s0 faint", strips=strips, dy=7)
        plot.marks([dots[n] for n in one.apart], "halo", "apart", strips=strips, dy=7)
        if (summary := one.figure.summary(one.cell)) and (interval := summary.interval):
            plot.span(interval.low, interval.high, row, "s0 median", dy=7)
        plot.marks([Mark(one.median, row, one.words)], "tick", "s0 strong", dy=7)
    return Pane((plot,), figure.title, figure.unit)
