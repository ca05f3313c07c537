"""Charts of streams: packets from hop to hop, a trial over time, and calls above their callers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from nodrop.ledger.balance import Ledger, Step
from nodrop.ledger.hops import ADDING, Account, Hop
from nodrop.report import numbers
from nodrop.report.chart import Chart, KeyEntry, Pane, Plot, Scale, cut, number, tag, ticks
from nodrop.report.sentences import WORDS
from nodrop.report.timeline import Panel, Series, Timeline

DEFINITIONS: Mapping[str, str] = WORDS["definitions"]
"""Meaning of each hop and account, by name."""


def definition(name: str) -> str:
    """Empty if the page has none: an account of a plugin's own."""
    if name.startswith("tx_refused_"):
        name = "tx_refused_ERRNO"
    return DEFINITIONS.get(name, "")


STREAM, TOP, ROW = 56.0, 34, 30
"""Height of the widest stream; room for the hops' texts; height of a branch's label, in px."""
THINNEST = 1.5
"""A single lost packet must still be seen, so nothing is drawn thinner than this."""
CROWDED = 7
"""With so many hops their texts stand in two rows."""
TITLES: Mapping[str, str] = WORDS["titles"]


def hop_title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def flow(ledger: Ledger, title: str, most: int | None = None) -> Chart:
    """The books as a stream: every width is packets, of `most` at the widest. Hops that were not
    read are named; the stream passes them."""
    seen = [hop for hop in ledger.hops if hop.packets is not None]
    widest = max((hop.packets or 0 for hop in seen), default=0)
    if len(seen) < 2 or not widest:
        return Chart()
    return Chart(title, (Pane((_Route(ledger, seen, STREAM / (most or widest)).plot(title),)),), (),
                 "route", other=_route_list(ledger, seen))  # fmt: skip


class _Route:
    """The drawing of one ledger, built from left to right."""

    def __init__(self, ledger: Ledger, seen: Sequence[Hop], scale: float) -> None:
        self._ledger, self._seen, self._scale = ledger, seen, scale
        self._crowded = len(seen) >= CROWDED
        self._top = TOP + (30 if self._crowded else 0)
        wide = [2.4 if any(a.packets for a in step.accounts) else 1.0 for step in ledger.steps]
        self._x = {seen[0].name: 0.0}
        for n, step in enumerate(ledger.steps, 1):
            self._x[step.end.name] = sum(wide[:n]) / sum(wide) * 100
        self._branches = [
            (step, account)
            for step in ledger.steps
            for account in sorted(step.accounts, key=lambda a: a.packets)
            if account.packets
        ]
        self._notes = list(self._said())

    def plot(self, title: str) -> Plot:
        rows = len(self._branches) + len(self._notes)
        height = int(self._top + STREAM + (14 + ROW * rows if rows else 8))
        plot = Plot(title, Scale(0, 100), Scale(height, 0), height, "full")
        for step in self._ledger.steps:
            x0, x1 = self._x[step.start.name], self._x[step.end.name]
            box = {"x": f"{number(x0)}%", "y": self._top, "width": f"{number(x1 - x0)}%"}
            high = self._high(step.end.packets)
            plot.behind.append(tag("rect", **box, height=high, class_="stream"))
        for row, (step, account) in enumerate(reversed(self._branches)):
            self._branch(plot, row, step, account)
        for row, words in enumerate(self._notes, len(self._branches)):
            y = self._top + STREAM + 14 + ROW * row + 12
            plot.front.append(tag("text", words, x="0", y=y, class_="fate failed b"))
        for n, hop in enumerate(self._seen):
            self._hop(plot, n, hop)
        return plot

    def _said(self) -> Iterator[str]:
        """Notes on what is no branch: hops that nobody could read, and packets in no class."""
        for step in self._ledger.steps:
            if step.over:
                yield f"{', '.join(hop_title(name) for name in step.over)}: not visible"
            if step.residual_packets:
                residual, end = numbers.signed(step.residual_packets), hop_title(step.end.name)
                yield f"residual {residual} on the way to {end}"

    def _high(self, packets: int | None) -> float:
        return max((packets or 0) * self._scale, THINNEST)

    def _branch(self, plot: Plot, row: int, step: Step, account: Account) -> None:
        x0, x1 = self._x[step.start.name], self._x[step.end.name]
        own = [a for s, a in self._branches if s is step]
        place = own.index(account)
        high = self._high(step.end.packets) + sum(self._high(a.packets) for a in own[:place])
        edge = self._top + high
        x = x0 + (x1 - x0) * (0.12 + 0.1 * (len(own) - 1 - place))
        thick = self._high(account.packets)
        end = self._top + STREAM + 14 + ROW * row + 12
        down, kind = end - edge, account.kind.value
        ribbon = f"M-22 {number(thick / 2)}h8q14 0 14 14v{number(max(down - 14 - thick / 2, 1))}"
        tail = tag("path", d=ribbon, stroke_width=thick, class_=f"drop k-{kind}")
        share = ""
        if kind == "lost" and (sent := self._seen[0].packets):
            share = f" · {numbers.percent(account.packets / sent)} %"
        count = tag("tspan", f"{_count(account)}{share}", class_="b")
        name = tag("tspan", cut(f" {TITLES.get(account.name, account.name)}", 260))
        far = x > 60
        side = {"x": -thick / 2 - 8 if far else thick / 2 + 8, "y": down + 2}
        label = tag("text", count, name, **side, class_=f"fate k-{kind}{' a-end' if far else ''}")
        moved = {"x": f"{number(x)}%", "y": edge, "overflow": "visible"}
        plot.front.append(tag("svg", tail, label, **moved))
        packets = numbers.count_of(account.packets, "packet")
        said = f"{account.name}: {packets} {kind}; counter: {account.counter}"
        for what, words in (
            ("evidence", account.evidence),
            ("knob", account.knob),
            ("meaning", definition(account.name)),
        ):
            said += f"; {what}: {words}" if words else ""
        plot.told.append((round(x * 10), round(end / plot.height * 1000), said, ""))

    def _hop(self, plot: Plot, n: int, hop: Hop) -> None:
        x = self._x[hop.name]
        anchor = "start" if n == 0 else "end" if n == len(self._seen) - 1 else "middle"
        lift = 30 if self._crowded and n % 2 == 0 else 0
        at, high, title = f"{number(x)}%", self._high(hop.packets), hop_title(hop.name)
        ends = {"x1": at, "x2": at, "y1": self._top - 3, "y2": self._top + high + 3}
        y = self._top - 23 - lift
        plot.front += [
            tag("line", **ends, class_="gate"),
            tag("text", title, x=at, y=y, class_=f"place a-{anchor}"),
            tag("text", numbers.count(hop.packets), x=at, y=y + 15, class_=f"n a-{anchor}"),
        ]
        middle = round((self._top + high / 2) / plot.height * 1000)
        says = f"{title}: {numbers.count_of(hop.packets, 'packet')}; counter: {hop.counter}"
        meaning = definition(hop.name)
        plot.told.append((round(x * 10), middle, f"{says}; {meaning}" if meaning else says, ""))


def _count(account: Account) -> str:
    mark = "+" if account.kind in ADDING else "−"
    return f"{mark}{numbers.count(account.packets)}"


def _route_list(ledger: Ledger, seen: Sequence[Hop]) -> Markup:
    rows = []
    for hop in seen:
        into = [a for s in ledger.steps if s.end.name == hop.name for a in s.accounts if a.packets]
        for account in into:
            name = tag("span", TITLES.get(account.name, account.name))
            count = tag("b", _count(account))
            rows.append(tag("li", name, count, class_=f"fate k-{account.kind.value}"))
        name = tag("span", hop_title(hop.name))
        rows.append(tag("li", name, tag("b", numbers.count(hop.packets))))
    return tag("ol", *rows, class_="route-list")


TIME_HEIGHT = 64
QUIET = 5.0
"""Threads that never ran more (% of a CPU) are counted, not drawn, beside busier ones."""


def time_chart(timelines: Sequence[Timeline], title: str, heads: Sequence[Markup] = ()) -> Chart:
    """A row per figure and a column per trial: one scale per row, one axis of time. Empty if no
    trial left two points."""
    times = [at for t in timelines for p in t.panels for s in p.series for at, _ in s.points]
    times += [at for t in timelines for _, at in t.marks]
    first, last = min(times, default=0.0), max(times, default=0.0)
    if first >= last:
        return Chart()
    x = Scale(first, last, tuple(s for s in ticks(last, 6, min(first, 0.0)) if first <= s <= last))
    names = list(dict.fromkeys(p.title for t in timelines for p in t.panels))
    panes = []
    for name in names:
        panels = [next((p for p in t.panels if p.title == name), None) for t in timelines]
        panes.append(_time_row(name, panels, timelines, x, final=name == names[-1]))
    moments: list[KeyEntry] = []
    if len(timelines) == 1:
        moments = [("bar", "moment", f"{name} {numbers.seconds(at)} s")
                   for name, at in timelines[0].marks]  # fmt: skip
    kind = "times sides" if len(timelines) > 1 else "times"
    return Chart(title, tuple(panes), tuple(moments), kind, tuple(heads))


def _time_row(name: str, panels: Sequence[Panel | None], timelines: Sequence[Timeline], x: Scale,
              *, final: bool) -> Pane:  # fmt: skip
    known = [p for p in panels if p is not None]
    tops = [v for p in known for points in p.lines for _, v in points]
    # CPU times step by a tick (4 ms), and a sampler that waits for its turn reads them late: an
    # interval may seem to hold more than itself. What cannot be more is drawn as all there is.
    high = next((p.high for p in known if p.high is not None), None)
    y = Scale.over([max(tops, default=0.0) if high is None else high], 2)
    quiet: set[str] = set()
    if known and "thread" in known[0].title.lower():
        series = [s for p in known for s in p.series]
        loud = {s.name for s in series if any(v >= QUIET for _, v in s.points)}
        quiet = {s.name for s in series} - loud if loud else quiet
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


def overlay(series: Sequence[Series], title: str, unit: str, high: float | None) -> Chart:
    """One figure of several cells in one panel, their first packets at 0 s."""
    panel = Panel(title, unit, tuple(series), high=high)
    return time_chart([Timeline((panel,), ())], f"{title} of several cells")
