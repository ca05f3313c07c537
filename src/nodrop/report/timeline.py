"""A trial over time: from rows of the host sampler (docs/reference/counters.md) to panels.

Counters in the rows are since boot, so rates between any two rows are exact, however many rows
between them were left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodrop.report import escape
from nodrop.report.story import Source
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.report.trials import Trial
from nodrop.untrusted.json_text import table_in, value_in

RECEIVED, OFFERED = "Offered and received", "offered"


LARGEST = 2.0**64
"""No counter holds more, and no clock: what says so was damaged."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the first packet, value."""
    style: int
    """Number of its colour and dashes: always the same, whatever is drawn beside it."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    series: tuple[Series, ...]
    stacked: bool = False
    high: float | None = None
    """Upper end of the axis, if it is known beforehand."""

    @property
    def believable(self) -> bool:
        numbers = (number for s in self.series for point in s.points for number in point)
        return all(abs(number) <= LARGEST for number in numbers)


@dataclass(frozen=True, slots=True)
class Timeline:
    panels: tuple[Panel, ...]
    marks: tuple[tuple[str, float], ...]
    """Moments of the trial, in seconds since the first packet."""
    own_cpu: Series | None = None
    """CPU of the SUT with all its threads, % of one CPU: drawn if setups stand side by side."""

    def series(self, title: str) -> Series | None:
        """The first series of a panel about the receiving host."""
        of = (s for p in self.panels if p.title == title for s in p.series if s.name != OFFERED)
        return next(of, None)

    def table(self) -> Table:
        """The numbers that are drawn."""
        return Table(name="time", title="Over time", columns=COLUMNS, rows=tuple(self._rows()))

    def _rows(self) -> Iterator[Row]:
        for panel in self.panels:
            head = (text(panel.title), text(panel.unit))
            for series in panel.series:
                for at, value in series.points:
                    point = (_number(round(at, 6)), _number(round(value, 6)))
                    yield Row((*head, text(series.name), *point))


COLUMNS = (
    Column("panel", "Panel"),
    Column("unit", "Unit"),
    Column("series", "Series"),
    numeric("seconds", "Seconds since the first packet"),
    numeric("value", "Value"),
)


def _number(value: float) -> Value:
    return Value(value, f"{value:g}")


MOST_POINTS = 120
SHORTEST = 0.2
"""Shortest last interval that is drawn, as a part of a whole one: a shorter one has no rate worth
drawing."""


def sent_over_time(offered: object, start_ns: int) -> tuple[Panel, Panel]:
    """Offered rate and largest schedule error; panels without series if the sender did not say.

    From offered.json, whose intervals begin with the first packet.
    """
    rate = Panel(RECEIVED, "packets/s", ())
    error = Panel("Schedule error, largest", "ms", ())
    try:
        assert isinstance(offered, Mapping)
        achieved = offered["achieved"]
        first, last = int(offered["first_sent_mono_ns"]), int(offered["last_sent_mono_ns"])
        step = int(achieved["interval_ns"])
        packets = [float(n) for n in achieved["packets"]]
        errors = [float(n) for n in achieved.get("largest_error_ns") or ()]
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return rate, error
    if step <= 0 or not all(abs(n) <= LARGEST for n in (first, last, step, *packets, *errors)):
        return rate, error
    whole = (last - first) / step
    if packets and whole < len(packets) - 1 + SHORTEST:
        packets, errors = packets[:-1], errors[: len(packets) - 1]
    together = max(1, -(-len(packets) // MOST_POINTS))

    def at(n: int) -> float:
        """Seconds: the end of interval n, the last of which may be cut short."""
        return (first - start_ns + min(n + 1.0, whole) * step) / 1e9

    rates, late = [], []
    for n in range(0, len(packets), together):
        end = min(n + together, len(packets)) - 1
        took = (min(end + 1.0, whole) - n) * step / 1e9
        if took > 0:
            rates.append((at(end), sum(packets[n : end + 1]) / took))
        if n < len(errors):
            late.append((at(end), max(errors[n : end + 1]) / 1e6))
    return (
        Panel(rate.title, rate.unit, _named(OFFERED, rates, 0)),
        Panel(error.title, error.unit, _named("sent after due", late, 0)),
    )


COUNTED = {
    "sent": "sent_packets",
    "captured": "captured_packets",
    "decoded": "decoded_packets",
    "dropped": "dropped_packets",
}


def counted_over_time(rows: Iterable[Mapping[str, Any]], start_ns: int) -> Iterable[Panel]:
    """The SUT's counters in steps, as it reported them: what it did in between is not known."""
    readings = [row for row in rows if "intended_packets" in row]
    kept = readings[:: max(1, -(-len(readings) // MOST_POINTS))]
    if readings and kept[-1] is not readings[-1]:
        kept.append(readings[-1])
    series: list[Series] = []
    for style, (name, field) in enumerate(COUNTED.items()):
        told = [
            ((row["mono_ns"] - start_ns) / 1e9, float(row[field]))
            for row in kept
            if _counted(row.get(field)) and _counted(row.get("mono_ns"))
        ]
        series += _named(name, _steps(told), style)
    if series:
        yield Panel("Counted, as reported while it ran", "packets", tuple(series))


def _counted(value: object) -> bool:
    return isinstance(value, int) and abs(value) <= LARGEST


def _steps(told: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for at, value in told:
        if found and found[-1][1] != value:
            found.append((at, found[-1][1]))
        found.append((at, value))
    return found


def _named(name: str, points: list[tuple[float, float]], style: int) -> tuple[Series, ...]:
    return (Series(name, tuple(points), style),) if len(points) > 1 else ()


Json = dict[str, Any]
Counter = Callable[[Json], float | None]

MOST_ROWS = 120
"""Points of a line: more cannot be distinguished on the page."""
MOST_CPUS = 4
"""With more, their mean is shown."""
MOST_THREADS = 5

CPU_KINDS = (
    ("user", ("user_ns", "nice_ns")),
    ("system", ("system_ns",)),
    ("interrupts", ("irq_ns", "softirq_ns")),
    ("guests", ("guest_ns", "guest_nice_ns")),
    ("stolen", ("steal_ns",)),
)


MARKS = {"offer": "traffic starts", "offered": "traffic ends", "drained": "drained"}
CPU_TITLE = "CPU, all"
MEMORY_TITLE = "Memory"
RESIDENT, USED = "SUT resident", "used"


def timeline(source: Source, trial: Trial) -> Timeline | None:
    """Timeline of the first host that left rows; None if there are none, or they cannot be read."""
    inside = _machines_inside(trial)
    for host in source.run.sampled_hosts(trial.name):
        if host in inside:
            continue
        rows = thinned(source.run.samples(trial.name, host))
        offset = _offset_ns(trial, host)
        marks = _marks(trial)
        start = marks.get("offer", rows[0]["mono_ns"] + offset if rows else 0)
        shifted = [(row["mono_ns"] + offset - start) / 1e9 for row in rows]
        if len(rows) < 2:
            continue
        named = tuple(
            (words, (marks[name] - start) / 1e9) for name, words in MARKS.items() if name in marks
        )
        seen = _Sampled(rows, shifted)
        sampled = list(_drawn(OUTSIDE, seen))
        offered, *late = sent_over_time(source.run.detail(trial.name, "offered"), start)
        counted = counted_over_time(source.run.live(trial.name), start)
        received = [p for p in sampled if p.title == RECEIVED]
        if offered.series:
            arrived = received[0].series if received else ()
            received = [replace(offered, series=(*arrived, *offered.series))]
        others = [p for p in sampled if p.title != RECEIVED]
        for name in inside:
            others += _inside_panels(source, trial, name, start)
        panels = (*received, *late, *counted, *others)
        return Timeline(panels, named, own_cpu=_own_cpu(seen))
    return None


def _machines_inside(trial: Trial) -> tuple[str, ...]:
    """Names of the machines in the SUT's place that were sampled by their own kernels."""
    return tuple(sorted(table_in(trial.details, "inside")))


def _inside_panels(source: Source, trial: Trial, name: str, start_ns: int) -> Iterable[Panel]:
    """On the same axis, by the offset of its clock. Its CPU time is the emulator's on the host, as
    seen from within: never to be added to the host's."""
    if name not in source.run.sampled_hosts(trial.name):
        return
    rows = thinned(source.run.samples(trial.name, name))
    if len(rows) < 2:
        return
    offset = _offset_ns(trial, name)
    times = [(row["mono_ns"] + offset - start_ns) / 1e9 for row in rows]
    where = escape.plain(name, longest=24)
    for panel in _drawn(INSIDE, _Sampled(rows, times)):
        yield replace(panel, title=f"{panel.title} inside ({where})")


def _offset_ns(trial: Trial, host: str) -> int:
    offset = value_in(trial.details, "clock_offsets_ns", host)
    return offset if isinstance(offset, int) else 0


def thinned(rows: Iterable[Json]) -> list[Json]:
    """Evenly fewer rows, first and last kept, in bounded memory however long the trial was."""
    kept: list[Json] = []
    stride, last = 1, None
    # Without its CPUs a row holds only what is read once a second, taken late and by itself.
    usable = (row for row in rows if isinstance(row.get("mono_ns"), int) and "cpus" in row)
    for number, row in enumerate(usable):
        last = row
        if number % stride == 0:
            kept.append(row)
            if len(kept) > 2 * MOST_ROWS:
                kept, stride = kept[::2], stride * 2
    if last is not None and kept[-1] is not last:
        kept.append(last)
    step = -(-len(kept) // MOST_ROWS)
    return kept if step <= 1 else [*kept[:-1:step], kept[-1]]


def busy(panel: Panel) -> Series:
    """The sum of a stacked panel."""
    sums: dict[float, float] = {}
    for series in panel.series:
        for t, value in series.points:
            sums[t] = sums.get(t, 0.0) + value
    return Series(panel.title, tuple(sums.items()), 0)


def _marks(trial: Trial) -> dict[str, int]:
    found = table_in(trial.details, "usage", "marks_mono_ns")
    return {name: at for name, at in found.items() if isinstance(at, int)}


@dataclass(frozen=True, slots=True)
class _Sampled:
    rows: Sequence[Json]
    times: Sequence[float]
    """Seconds since the first packet, one for each row."""

    def rates(self, counter: Counter) -> tuple[tuple[float, float], ...]:
        """Per second, at the end of each interval; intervals in which a counter was absent are left
        out."""
        points = []
        for i in range(1, len(self.rows)):
            before, after = counter(self.rows[i - 1]), counter(self.rows[i])
            took = self.times[i] - self.times[i - 1]
            if before is not None and after is not None and took > 0:
                points.append((self.times[i], max(after - before, 0) / took))
        return tuple(points)

    def mebibytes(self, value: Counter) -> tuple[tuple[float, float], ...]:
        found = ((t, value(row)) for t, row in zip(self.times, self.rows, strict=True))
        return tuple((t, v / 2**20) for t, v in found if v is not None)

    def series(self, named: Iterable[tuple[str, Counter]], first: int = 0) -> tuple[Series, ...]:
        """Rates of counters, in the styles from `first` on."""
        return tuple(
            Series(name, self.rates(counter), style)
            for style, (name, counter) in enumerate(named, first)
        )


Make = Callable[[_Sampled], Iterable[Panel]]


def _drawn(makers: Iterable[Make], of: _Sampled) -> Iterator[Panel]:
    for make in makers:
        try:
            yield from (panel for panel in make(of) if panel.series and panel.believable)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            # Rows of another version: what they do not have is not drawn.
            continue


def _received(of: _Sampled) -> Iterable[Panel]:
    def packets(port: str) -> Counter:
        return lambda row: float(row["links"][port]["rx_packets"]) if port in row["links"] else None

    ports = sorted({port for row in of.rows for port in row["links"]})[:4]
    named = [(escape.plain(f"received by {port}", longest=40), packets(port)) for port in ports]
    # What was offered is drawn beside them in style 0.
    yield Panel(RECEIVED, "packets/s", of.series(named, first=1))


def _cpu(of: _Sampled) -> Iterable[Panel]:
    cpus = [cpu["cpu"] for cpu in of.rows[0]["cpus"]]
    yield _cpu_panel(of, CPU_TITLE, cpus)
    if 1 < len(cpus) <= MOST_CPUS:
        for cpu in cpus:
            yield _cpu_panel(of, f"CPU {cpu}", [cpu])


def _cpu_inside(of: _Sampled) -> Iterable[Panel]:
    yield _cpu_panel(of, CPU_TITLE, [cpu["cpu"] for cpu in of.rows[0]["cpus"]])


def _cpu_panel(of: _Sampled, title: str, cpus: Sequence[int]) -> Panel:
    wanted = set(cpus)

    def busy(fields: Sequence[str]) -> Counter:
        return lambda row: (
            float(sum(cpu[f] for cpu in row["cpus"] if cpu["cpu"] in wanted for f in fields)) / 1e7
        )

    series = [
        replace(one, points=tuple((t, value / len(cpus)) for t, value in one.points))
        for one in of.series((name, busy(fields)) for name, fields in CPU_KINDS)
    ]
    used = tuple(s for s in series if s.name in ("user", "system", "interrupts") or _any(s))
    return Panel(title, "%", used, stacked=True, high=100)


def _any(series: Series) -> bool:
    return any(value > 0.05 for _, value in series.points)


def _own_cpu(of: _Sampled) -> Series | None:
    try:
        points = of.rates(lambda row: float(row["tree"]["cpu_ns"]) / 1e7)
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    finite = all(math.isfinite(value) for _, value in points)
    return Series("SUT", points, 0) if points and finite else None


def _threads(of: _Sampled) -> Iterable[Panel]:
    """The SUT's busiest threads."""
    spent: dict[int, tuple[str, float]] = {}
    at: dict[int, Mapping[int, float]] = {}
    for row in of.rows:
        now = {
            thread["tid"]: (str(thread["name"]), float(thread["cpu_ns"]))
            for process in row["processes"]
            for thread in process["threads"]
        }
        spent.update(now)
        at[id(row)] = {tid: cpu / 1e7 for tid, (_, cpu) in now.items()}
    busiest = sorted(spent, key=lambda tid: (-spent[tid][1], tid))[:MOST_THREADS]

    def percent(tid: int) -> Counter:
        return lambda row: at[id(row)].get(tid)

    named = [(escape.plain(spent[tid][0], longest=24), percent(tid)) for tid in busiest]
    yield Panel("SUT threads", "% of one CPU", of.series(named), high=100)


def _memory(wanted: Sequence[tuple[str, Counter]]) -> Make:
    def panels(of: _Sampled) -> Iterable[Panel]:
        points = [(name, of.mebibytes(value)) for name, value in wanted]
        series = [Series(name, p, n) for n, (name, p) in enumerate(points) if p]
        yield Panel(MEMORY_TITLE, "MiB", tuple(series))

    return panels


def _softnet(of: _Sampled) -> Iterable[Panel]:
    """Only if the backlog was under pressure: else it is a flat line for every trial."""

    def total(field: str) -> Counter:
        return lambda row: float(sum(cpu[field] for cpu in row["softnet"]))

    kinds = (("backlog full", "dropped"), ("poll cut short", "time_squeeze"))
    series = of.series((name, total(field)) for name, field in kinds)
    under_pressure = tuple(filter(_any, series))
    yield Panel("Softnet, whole host", "events/s", under_pressure)


OUTSIDE: tuple[Make, ...] = (
    _received, _cpu, _threads,
    _memory((
        (RESIDENT, lambda row: row["tree"]["rss_bytes"]),
        ("its cgroup: anonymous", lambda row: (row.get("cgroup") or {}).get("anon_bytes")),
        ("its cgroup: file", lambda row: (row.get("cgroup") or {}).get("file_bytes")),
    )),
    _softnet,
)  # fmt: skip
INSIDE: tuple[Make, ...] = (
    _cpu_inside,
    _memory((
        (RESIDENT, lambda row: row["tree"]["rss_bytes"] or None),
        (USED, lambda row: row["memory"]["total_bytes"] - row["memory"]["available_bytes"]),
        ("anonymous", lambda row: row["memory"]["anon_bytes"]),
    )),
)  # fmt: skip
