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

RECEIVED, OFFERED = "Offered and received", "offered"


LARGEST = 2.0**64
"""No counter holds more, and no clock: what says so was damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the first packet, value."""
    style: int
    """Number of its colour and dashes: always the same, whatever is drawn beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
                    yield Row(values=(*head, text(series.name), *point))


COLUMNS = (
    Column(name="panel", title="Panel"),
    Column(name="unit", title="Unit"),
    Column(name="series", title="Series"),
    numeric("seconds", "Seconds since the first packet"),
    numeric("value", "Value"),
)


def _number(value: float) -> Value:
    return Value(raw=value, shown=f"{value:g}")


MOST_POINTS = 120
SHORTEST = 0.2
"""Shortest last interval that is drawn, as a part of a whole one: a shorter one has no rate worth
drawing."""


def sent_over_time(offered: object, start_ns: int) -> tuple[Panel, Panel]:
    """Offered rate and largest schedule error; panels without series if the sender did not say.

    From offered.json, whose intervals begin with the first packet.
    """
    rate = Panel(title=RECEIVED, unit="packets/s", series=())
    error = Panel(title="Schedule error, largest", unit="ms", series=())
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
        Panel(title=rate.title, unit=rate.unit, series=_named(OFFERED, rates, 0)),
        Panel(title=error.title, unit=error.unit, series=_named("sent after due", late, 0)),
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
        yield Panel(title="Counted, as reported while it ran", unit="packets", series=tuple(series))


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
    return (Series(name=name, points=tuple(points), style=style),) if len(points) > 1 else ()


Json = dict[str, Any]
Make = Callable[[Sequence[Json], Sequence[float]], Iterable[Panel]]

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
        sampled = list(_panels(rows, shifted))
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
        return Timeline(panels=panels, marks=named, own_cpu=_own_cpu(rows, shifted))
    return None


def _machines_inside(trial: Trial) -> tuple[str, ...]:
    """Names of the machines in the SUT's place that were sampled by their own kernels."""
    found = trial.details.get("inside")
    return tuple(sorted(found)) if isinstance(found, dict) else ()


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
    for panel in _drawn((_cpu_inside, _memory_inside), rows, times):
        yield replace(panel, title=f"{panel.title} inside ({where})")


def _cpu_inside(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    yield _cpu_panel(CPU_TITLE, rows, times, [cpu["cpu"] for cpu in rows[0]["cpus"]])


def _memory_inside(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    yield from _memory_panel(
        rows,
        times,
        (
            (RESIDENT, lambda row: row["tree"]["rss_bytes"] or None),
            (USED, lambda row: row["memory"]["total_bytes"] - row["memory"]["available_bytes"]),
            ("anonymous", lambda row: row["memory"]["anon_bytes"]),
        ),
    )


def _offset_ns(trial: Trial, host: str) -> int:
    found = trial.details.get("clock_offsets_ns")
    offset = found.get(host, 0) if isinstance(found, dict) else 0
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
    return Series(name=panel.title, points=tuple(sums.items()), style=0)


def _marks(trial: Trial) -> dict[str, int]:
    usage = trial.details.get("usage")
    found = usage.get("marks_mono_ns") if isinstance(usage, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name: at for name, at in found.items() if isinstance(at, int)}


def _panels(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    return _drawn((_received, _cpu, _threads, _memory, _softnet), rows, times)


def _drawn(makers: Iterable[Make], rows: Sequence[Json], times: Sequence[float]) -> Iterator[Panel]:
    for make in makers:
        try:
            yield from (panel for panel in make(rows, times) if panel.believable)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            # Rows of another version: what they do not have is not drawn.
            continue


def _rates(
    rows: Sequence[Json], times: Sequence[float], counter: Callable[[Json], float | None]
) -> tuple[tuple[float, float], ...]:
    """Per second, at the end of each interval; intervals in which a counter was absent are left
    out."""
    points = []
    for i in range(1, len(rows)):
        before, after = counter(rows[i - 1]), counter(rows[i])
        took = times[i] - times[i - 1]
        if before is not None and after is not None and took > 0:
            points.append((times[i], max(after - before, 0) / took))
    return tuple(points)


def _received(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    ports = sorted({port for row in rows for port in row["links"]})
    series = []
    for style, port in enumerate(ports[:4], 1):  # what was offered is drawn beside them as 0

        def packets(row: Json, port: str = port) -> float | None:
            found = row["links"].get(port)
            return None if found is None else float(found["rx_packets"])

        name = escape.plain(f"received by {port}", longest=40)
        series.append(Series(name=name, points=_rates(rows, times, packets), style=style))
    if series:
        yield Panel(title=RECEIVED, unit="packets/s", series=tuple(series))


def _cpu(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    cpus = [cpu["cpu"] for cpu in rows[0]["cpus"]]
    yield _cpu_panel(CPU_TITLE, rows, times, cpus)
    if 1 < len(cpus) <= MOST_CPUS:
        for cpu in cpus:
            yield _cpu_panel(f"CPU {cpu}", rows, times, [cpu])


def _cpu_panel(
    title: str, rows: Sequence[Json], times: Sequence[float], cpus: Sequence[int]
) -> Panel:
    wanted = set(cpus)
    series = []
    for style, (name, fields) in enumerate(CPU_KINDS):

        def busy(row: Json, fields: Sequence[str] = fields) -> float:
            total = sum(cpu[f] for cpu in row["cpus"] if cpu["cpu"] in wanted for f in fields)
            return float(total) / 1e7

        each = tuple((t, value / len(cpus)) for t, value in _rates(rows, times, busy))
        series.append(Series(name=name, points=each, style=style))
    used = tuple(s for s in series if s.name in ("user", "system", "interrupts") or _any(s))
    return Panel(title=title, unit="%", series=used, stacked=True, high=100)


def _any(series: Series) -> bool:
    return any(value > 0.05 for _, value in series.points)


def _own_cpu(rows: Sequence[Json], times: Sequence[float]) -> Series | None:
    try:
        points = _rates(rows, times, lambda row: float(row["tree"]["cpu_ns"]) / 1e7)
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    finite = all(math.isfinite(value) for _, value in points)
    return Series(name="SUT", points=points, style=0) if points and finite else None


def _threads(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    """The SUT's busiest threads."""
    spent: dict[int, tuple[str, float]] = {}
    readings: list[Mapping[int, float]] = []
    for row in rows:
        now = {
            thread["tid"]: (str(thread["name"]), float(thread["cpu_ns"]))
            for process in row["processes"]
            for thread in process["threads"]
        }
        spent.update(now)
        readings.append({tid: cpu for tid, (_, cpu) in now.items()})
    busiest = sorted(spent, key=lambda tid: (-spent[tid][1], tid))[:MOST_THREADS]
    at = {id(row): reading for row, reading in zip(rows, readings, strict=True)}
    series = []
    for style, tid in enumerate(busiest):

        def percent(row: Json, tid: int = tid) -> float | None:
            cpu = at[id(row)].get(tid)
            return None if cpu is None else cpu / 1e7

        points = _rates(rows, times, percent)
        name = escape.plain(spent[tid][0], longest=24)
        series.append(Series(name=name, points=points, style=style))
    if series:
        yield Panel(title="SUT threads", unit="% of one CPU", series=tuple(series), high=100)


def _memory(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    yield from _memory_panel(
        rows,
        times,
        (
            (RESIDENT, lambda row: row["tree"]["rss_bytes"]),
            ("its cgroup: anonymous", lambda row: (row.get("cgroup") or {}).get("anon_bytes")),
            ("its cgroup: file", lambda row: (row.get("cgroup") or {}).get("file_bytes")),
        ),
    )


def _memory_panel(
    rows: Sequence[Json],
    times: Sequence[float],
    wanted: Sequence[tuple[str, Callable[[Json], Any]]],
) -> Iterable[Panel]:
    series = []
    for style, (name, value) in enumerate(wanted):
        found = [(t, value(row)) for t, row in zip(times, rows, strict=True)]
        points = tuple((t, v / 2**20) for t, v in found if v is not None)
        if points:
            series.append(Series(name=name, points=points, style=style))
    if series:
        yield Panel(title=MEMORY_TITLE, unit="MiB", series=tuple(series))


def _softnet(rows: Sequence[Json], times: Sequence[float]) -> Iterable[Panel]:
    """Only if the backlog was under pressure: else it is a flat line for every trial."""
    series = []
    kinds = (("backlog full", "dropped"), ("poll cut short", "time_squeeze"))
    for style, (name, field) in enumerate(kinds):

        def total(row: Json, field: str = field) -> float:
            return float(sum(cpu[field] for cpu in row["softnet"]))

        found = Series(name=name, points=_rates(rows, times, total), style=style)
        if _any(found):
            series.append(found)
    if series:
        yield Panel(title="Softnet, whole host", unit="events/s", series=tuple(series))
