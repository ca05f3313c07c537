"""A trial over time: from rows of the host sampler (docs/reference/counters.md) to panels.

Counters in the rows are since boot, so rates between any two rows are exact, however many rows
between them were left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from nodrop.report import escape
from nodrop.report.story import StorySource
from nodrop.report.tables import Field, ItemT, Table, number, table_of, words
from nodrop.report.trials import StoredTrial
from nodrop.untrusted.json_text import table_in, value_in

RECEIVED, OFFERED = "Offered and received", "offered"

Point = tuple[float, float]
FROM_S = -1.0
"""Seconds before the first packet from which several trials are drawn side by side."""
LARGEST = 2.0**64
"""No counter holds more, and no clock: what says so was damaged."""


@dataclass(frozen=True, slots=True)
class TimelineSeries:
    name: str
    points: tuple[Point, ...]
    """Seconds since the first packet, value."""
    style: int
    """Number of its colour and dashes: always the same, whatever is drawn beside it."""

    @property
    def is_more(self) -> bool:
        return any(value > 0.05 for _, value in self.points)


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    series: tuple[TimelineSeries, ...]
    stacked: bool = False
    high: float | None = None
    """Upper end of the axis, if it is known beforehand."""

    @property
    def lines(self) -> list[list[Point]]:
        """Points of each line that is drawn. They are cumulative in a stacked panel, whose series
        have the same times."""
        if not self.stacked:
            return [list(one.points) for one in self.series]
        sums: dict[float, float] = {}
        found = []
        for one in self.series:
            for at, value in one.points:
                sums[at] = sums.get(at, 0.0) + value
            found.append([(at, sums[at]) for at, _ in one.points])
        return found


@dataclass(frozen=True, slots=True)
class TrialTimeline:
    panels: tuple[Panel, ...]
    marks: tuple[tuple[str, float], ...]
    """Moments of the trial, in seconds since the first packet."""

    @property
    def under_load(self) -> TrialTimeline:
        """The timeline without what came before the load: a guest's discarded load, which others
        have not."""

        def since(one: TimelineSeries) -> TimelineSeries:
            return replace(one, points=tuple(point for point in one.points if point[0] >= FROM_S))

        panels = (replace(panel, series=tuple(map(since, panel.series))) for panel in self.panels)
        return TrialTimeline(tuple(panels), tuple(mark for mark in self.marks if mark[1] >= FROM_S))


Drawn = tuple[str, Panel, TimelineSeries, float, float]


def numbers_of(lines: Mapping[str, TrialTimeline]) -> Table:
    """The numbers that are drawn, of each trial by its name."""
    points = (
        (name, panel, series, *point)
        for name, line in lines.items()
        for panel in line.panels
        for series in panel.series
        for point in series.points
    )
    return table_of("time", "Over time", FIELDS, points)


FIELDS: tuple[Field[Drawn], ...] = (
    words("panel", "Panel", lambda x: x[1].title),
    words("unit", "Unit", lambda x: x[1].unit),
    words("series", "Series", lambda x: x[2].name),
    number("seconds", "Seconds since the first packet", lambda x: round(x[3], 6), "{:g}".format),
    number("value", "Value", lambda x: round(x[4], 6), "{:g}".format),
    words("trial", "Trial", lambda x: x[0]),
)

MOST_POINTS = 120
"""Points of a line: more cannot be distinguished on the page."""
SHORTEST = 0.2
"""Shortest last interval that is drawn, as a part of a whole one: a shorter one has no rate worth
drawing."""


def sent_over_time(offered: object, start_ns: int) -> tuple[Panel, Panel]:
    """Offered rate and largest schedule error; panels without series if the sender did not say.

    From offered.json, whose intervals begin with the first packet.
    """
    rates: list[Point] = []
    late: list[Point] = []
    try:
        assert isinstance(offered, Mapping)
        achieved = offered["achieved"]
        first, last = int(offered["first_sent_mono_ns"]), int(offered["last_sent_mono_ns"])
        step = int(achieved["interval_ns"])
        packets = [float(n) for n in achieved["packets"]]
        errors = [float(n) for n in achieved.get("largest_error_ns") or ()]
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        step, packets, errors, first, last = 0, [], [], 0, 0
    if step > 0 and all(abs(n) <= LARGEST for n in (first, last, step, *packets, *errors)):
        whole = (last - first) / step
        if packets and whole < len(packets) - 1 + SHORTEST:
            packets, errors = packets[:-1], errors[: len(packets) - 1]
        together = max(1, -(-len(packets) // MOST_POINTS))
        for n in range(0, len(packets), together):
            end = min(n + together, len(packets))
            # The last interval may be cut short.
            until = min(float(end), whole)
            at, took = (first - start_ns + until * step) / 1e9, until - n
            if took > 0:
                rates.append((at, sum(packets[n:end]) / (took * step / 1e9)))
            if n < len(errors):
                late.append((at, max(errors[n:end]) / 1e6))
    return (
        Panel(RECEIVED, "packets/s", series_of({OFFERED: rates})),
        Panel("Schedule error, largest", "ms", series_of({"sent after due": late})),
    )


COUNTED = ("sent", "captured", "decoded", "dropped")
WAITING = "in progress"
ANSWERED = {"started": "sent_packets", "completed": "completed", WAITING: "in_progress"}
"""Series of a load that is answered, and the fields of its rows."""


def counted_over_time(rows: Iterable[Mapping[str, Any]], start_ns: int) -> Iterable[Panel]:
    """The SUT's counters in steps, as it reported them: what it did in between is not known."""
    kept = _evenly([row for row in rows if "intended_packets" in row])
    answered = any(row.get("unit") == "transactions" for row in kept)
    fields = ANSWERED if answered else {name: f"{name}_packets" for name in COUNTED}
    told: dict[str, list[Point]] = {}
    for name, field in fields.items():
        steps = told[name] = []
        for row in kept:
            value, at_ns = row.get(field), row.get("mono_ns")
            if all(isinstance(one, int) and abs(one) <= LARGEST for one in (value, at_ns)):
                at = (row["mono_ns"] - start_ns) / 1e9
                if steps and steps[-1][1] != value:
                    steps.append((at, steps[-1][1]))
                steps.append((at, float(row[field])))
    waiting = series_of({name: told.pop(name) for name in (WAITING,) if name in told})
    if series := series_of(told):
        unit = "transactions" if answered else "packets"
        yield Panel("Counted, as reported while it ran", unit, series)
    if waiting:
        yield Panel("Started and not ended", "transactions", waiting)


MOST_RINGS = 4
"""Rings that are drawn; of more, the fullest."""


def levels_over_time(looks: Iterable[tuple[int, int, float]], start_ns: int) -> Iterable[Panel]:
    """How full each capture ring was: the highest level within each place of a line."""
    kept: dict[int, list[Point]] = {}
    together: dict[int, int] = {}
    last: dict[int, int] = {}
    for mono_ns, ring, level in looks:
        if abs(mono_ns) > LARGEST or not 0 <= level <= 1:
            continue
        line, at = kept.setdefault(ring, []), (mono_ns - start_ns) / 1e9
        if line and last[ring] % together[ring]:
            line[-1] = max(line[-1], (at, 100 * level), key=lambda point: point[1])
        else:
            line.append((at, 100 * level))
        last[ring] = last.get(ring, 0) + 1
        together.setdefault(ring, 1)
        if len(line) >= 4 * MOST_POINTS:
            pairs = zip(line[::2], line[1::2], strict=True)
            kept[ring] = [max(pair, key=lambda point: point[1]) for pair in pairs]
            together[ring] *= 2
    fullest = sorted(kept, key=lambda ring: -max(level for _, level in kept[ring]))[:MOST_RINGS]
    named = {"in use" if len(kept) == 1 else f"ring {n}": kept[n] for n in sorted(fullest)}
    if series := series_of(named):
        yield Panel("Capture ring", "% in use", series, high=100)


def series_of(
    told: Mapping[str, Sequence[Point]], first: int = 0, least: int = 2
) -> tuple[TimelineSeries, ...]:
    """Lines of at least `least` points, in the styles from `first` on."""
    numbered = enumerate(told.items(), first)
    return tuple(
        TimelineSeries(k, tuple(p), style) for style, (k, p) in numbered if len(p) >= least
    )


Json = dict[str, Any]

MOST_CPUS = 4
"""CPUs that are drawn one by one; of more, the mean is shown."""
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


def timeline(source: StorySource, trial: StoredTrial) -> TrialTimeline | None:
    """Timeline of the first host that left rows; None if there are none, or they cannot be read."""
    # Machines in the SUT's place that were sampled by their own kernels.
    inside = sorted(table_in(trial.details, "inside"))
    hosts = source.run.sampled_hosts(trial.name)
    told = table_in(trial.details, "usage", "marks_mono_ns")
    marks = {name: at for name, at in told.items() if isinstance(at, int)}
    found = {host: _rows(source, trial, host) for host in hosts}
    known = {host: seen for host, seen in found.items() if len(seen[0]) > 1}
    outside = next((host for host in known if host not in inside), None)
    if outside is None:
        return None
    start = marks.get("offer", known[outside][1][0])
    seen = {
        host: _Sampled(rows, [(at - start) / 1e9 for at in read_ns])
        for host, (rows, read_ns) in known.items()
    }
    sampled = list(_drawn(OUTSIDE, seen[outside]))
    arrived = [series for p in sampled if p.title == RECEIVED for series in p.series]
    offered, late = sent_over_time(source.run.detail(trial.name, "offered"), start)
    received = replace(offered, series=(*arrived, *offered.series))
    filled = levels_over_time(source.run.levels(trial.name, outside), start)
    counted = counted_over_time(source.run.live(trial.name), start)
    others = (p for p in sampled if p.title != RECEIVED)
    # On the same axis. Its CPU time is the emulator's on the host, as seen from within: never to be
    # added to the host's.
    within = (
        replace(panel, title=f"{panel.title} inside ({escape.plain(name, longest=24)})")
        for name in inside
        if name in seen
        for panel in _drawn(INSIDE, seen[name])
    )
    panels = (received, late, *filled, *counted, *others, *within)
    moments = ((said, (marks[name] - start) / 1e9) for name, said in MARKS.items() if name in marks)
    return TrialTimeline(tuple(panel for panel in panels if panel.series), tuple(moments))


def _rows(
    source: StorySource, trial: StoredTrial, host: str
) -> tuple[Sequence[Json], Sequence[int]]:
    """Rows of a host, and when each was read, by our clock."""
    rows = thinned(source.run.samples(trial.name, host))
    offset = value_in(trial.details, "clock_offsets_ns", host)
    ours = offset if isinstance(offset, int) else 0
    return rows, [row["mono_ns"] + ours for row in rows]


def thinned(rows: Iterable[Json]) -> Sequence[Json]:
    """Evenly fewer rows, first and last kept, in bounded memory however long the trial was."""
    kept: list[Json] = []
    stride, last = 1, None
    # Without its CPUs a row holds only what is read once a second, taken late and by itself.
    usable = (row for row in rows if isinstance(row.get("mono_ns"), int) and "cpus" in row)
    for n, row in enumerate(usable):
        last = row
        if n % stride == 0:
            kept.append(row)
            if len(kept) > 2 * MOST_POINTS:
                kept, stride = kept[::2], stride * 2
    if last is not None and kept[-1] is not last:
        kept.append(last)
    return _evenly(kept)


def _evenly(rows: Sequence[ItemT]) -> Sequence[ItemT]:
    """A point for each place of a line, the first and the last row among them."""
    return [*rows[: -1 : max(1, -(-len(rows) // MOST_POINTS))], *rows[-1:]]


Rising = Callable[[Json], float | None]


@dataclass(frozen=True, slots=True)
class _Sampled:
    rows: Sequence[Json]
    times: Sequence[float]
    """Seconds since the first packet, one for each row."""

    def rates(self, counter: Rising) -> list[Point]:
        """Rates per second, at the end of each interval; intervals in which a counter was absent
        are left out."""
        points = []
        for (was, row), (begun, at) in zip(pairwise(self.rows), pairwise(self.times), strict=True):
            before, after = counter(was), counter(row)
            if before is not None and after is not None and at > begun:
                points.append((at, max(after - before, 0) / (at - begun)))
        return points

    def series(self, named: Mapping[str, Rising], first: int = 0) -> tuple[TimelineSeries, ...]:
        return series_of({name: self.rates(one) for name, one in named.items()}, first, least=0)


Make = Callable[[_Sampled], Iterable[Panel]]


def _drawn(makers: Iterable[Make], of: _Sampled) -> Iterator[Panel]:
    for make in makers:
        try:
            for panel in make(of):
                points = (number for s in panel.series for point in s.points for number in point)
                if panel.series and all(abs(number) <= LARGEST for number in points):
                    yield panel
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
            # Rows of another version: what they do not have is not drawn.
            continue


def _received(of: _Sampled) -> Iterable[Panel]:
    def packets(port: str) -> Rising:
        return lambda row: float(row["links"][port]["rx_packets"]) if port in row["links"] else None

    ports = sorted({port for row in of.rows for port in row["links"]})[:4]
    named = {escape.plain(f"received by {port}", longest=40): packets(port) for port in ports}
    # What was offered is drawn beside them in style 0.
    yield Panel(RECEIVED, "packets/s", of.series(named, first=1))


def _cpu(of: _Sampled) -> Iterable[Panel]:
    cpus = [cpu["cpu"] for cpu in of.rows[0]["cpus"]]
    yield _all_cpus(of, cpus, CPU_TITLE)
    if 1 < len(cpus) <= MOST_CPUS:
        yield from (_all_cpus(of, [cpu], f"CPU {cpu}") for cpu in cpus)


def _all_cpus(of: _Sampled, cpus: Sequence[int], title: str) -> Panel:
    wanted = set(cpus)

    def spent(fields: Sequence[str]) -> Rising:
        return lambda row: (
            float(sum(cpu[f] for cpu in row["cpus"] if cpu["cpu"] in wanted for f in fields)) / 1e7
        )

    series = [
        replace(one, points=tuple((t, value / len(cpus)) for t, value in one.points))
        for one in of.series({name: spent(fields) for name, fields in CPU_KINDS})
    ]
    used = tuple(s for s in series if s.name in ("user", "system", "interrupts") or s.is_more)
    return Panel(title, "%", used, stacked=True, high=100)


def _threads(of: _Sampled) -> Iterable[Panel]:
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

    def percent(tid: int) -> Rising:
        return lambda row: at[id(row)].get(tid)

    series = (
        TimelineSeries(
            escape.plain(spent[tid][0], longest=24), tuple(of.rates(percent(tid))), style
        )
        for style, tid in enumerate(busiest)
    )
    yield Panel("SUT threads", "% of one CPU", tuple(series), high=100)


def _memory(wanted: Mapping[str, Rising]) -> Make:
    def panels(of: _Sampled) -> Iterable[Panel]:
        told = {
            name: [
                (t, v / 2**20)
                for t, row in zip(of.times, of.rows, strict=True)
                if (v := value(row)) is not None
            ]
            for name, value in wanted.items()
        }
        yield Panel(MEMORY_TITLE, "MiB", series_of(told, least=1))

    return panels


def _softnet(of: _Sampled) -> Iterable[Panel]:
    """Panels of the backlog, if it was under pressure: else it is a flat line for every trial."""

    def total(field: str) -> Rising:
        return lambda row: float(sum(cpu[field] for cpu in row["softnet"]))

    kinds = {"backlog full": total("dropped"), "poll cut short": total("time_squeeze")}
    under_pressure = tuple(one for one in of.series(kinds) if one.is_more)
    yield Panel("Softnet, whole host", "events/s", under_pressure)


OUTSIDE: tuple[Make, ...] = (
    _received,
    _cpu,
    _threads,
    _memory(
        {
            RESIDENT: lambda row: row["tree"]["rss_bytes"],
            "its cgroup: anonymous": lambda row: (row.get("cgroup") or {}).get("anon_bytes"),
            "its cgroup: file": lambda row: (row.get("cgroup") or {}).get("file_bytes"),
        }
    ),
    _softnet,
)
INSIDE: tuple[Make, ...] = (
    lambda of: [_all_cpus(of, [cpu["cpu"] for cpu in of.rows[0]["cpus"]], CPU_TITLE)],
    _memory(
        {
            RESIDENT: lambda row: row["tree"]["rss_bytes"] or None,
            USED: lambda row: row["memory"]["total_bytes"] - row["memory"]["available_bytes"],
            "anonymous": lambda row: row["memory"]["anon_bytes"],
        }
    ),
)
