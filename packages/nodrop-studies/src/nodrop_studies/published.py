"""Imported published data: the studies' tables made again, their curves, what to hold against them.

All of it is read from imported.json and findings.json of a run directory; what does not fit the
format is left out and named, as any file of a run directory may be damaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from nodrop.report import escape, numbers
from nodrop.report.chart import MOST_SERIES, Chart, Pane, Plot, Scale
from nodrop.report.sections import Picture as Figure
from nodrop.report.sections import Section, rendered
from nodrop.report.story import Story, StorySource, once
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.report.timeline import TimelineSeries
from nodrop.results.rundir import Damage
from nodrop.untrusted.json_text import tables_in


def figure(value: float | None, *, whole: bool = False) -> Value:
    return Value(raw=value, shown=_shown(value, whole))


def _shown(value: float | None, whole: bool) -> str:
    if value is None:
        return numbers.NOT_MEASURED
    return numbers.count(value) if whole else f"{value:.2f}"


def _between(low: float | None, high: float | None, whole: bool) -> str:
    if low is None or high is None:
        return ""
    return f"{_shown(low, whole)} to {_shown(high, whole)}"


def _slug(name: object) -> str:
    return "".join(c for c in str(name).lower() if c.isascii() and c.isalnum())[:20] or "table"


def published_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    for name, table in content.items():
        over_time = bool(table["over_time"])
        title = f"Table {name}" if over_time else str(name)
        cells = table["cells"]
        columns = [
            column
            for column in (_MEANS if over_time else _COUNTS)
            if not (column.only_if_varied or column.only_if_any) or _tells(cells, column)
        ]
        yield Table(
            name=f"published-{_slug(name)}",
            title=escape.plain(f"{title}: {table['title']}{_window_words(cells)}"),
            columns=tuple(column.column for column in columns),
            rows=tuple(
                Row(
                    values=tuple(column.value(cell) for column in columns),
                    mark="loss" if cell["published_disagrees"] else "",
                )
                for cell in cells
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableColumn:
    column: Column
    value: Callable[[Mapping[str, Any]], Value]
    only_if_varied: bool = False
    only_if_any: bool = False
    """Shown if at least one cell has something to say."""


def _tells(cells: Sequence[Mapping[str, Any]], column: _TableColumn) -> bool:
    found = {column.value(cell).raw for cell in cells} - {None}
    return bool(found - {""}) if column.only_if_any else len(found) > 1


def _window_words(cells: Sequence[Mapping[str, Any]]) -> str:
    windows = {(cell["published_setup"], *cell["window_s"]) for cell in cells if cell["window_s"]}
    spans = {window[1:] for window in windows}
    if len(spans) == 1:
        low, high = spans.pop()
        return f"; uptimes {low:g} to {high:g} s"
    said = (f"{setup} {low:g} to {high:g} s" for setup, low, high in sorted(windows))
    return f"; uptimes {', '.join(said)}" if windows else ""


def _text_of(name: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda cell: text(cell[name] or "")


def _number_of(
    *keys: str, whole: bool = False, divide: float = 1
) -> Callable[[Mapping[str, Any]], Value]:
    def value(cell: Mapping[str, Any]) -> Value:
        found: Any = cell
        for key in keys:
            found = found[key] if found is not None else None
        return figure(None if found is None else found / divide, whole=whole)

    return value


def _between_of(low: str, high: str, *, whole: bool) -> Callable[[Mapping[str, Any]], Value]:
    def value(cell: Mapping[str, Any]) -> Value:
        sound = cell["sound"] or {}
        return text(_between(sound.get(low), sound.get(high), whole))

    return value


def _left(*, whole: bool) -> tuple[_TableColumn, ...]:
    return (
        _TableColumn(column=Column(name="setup", title="Setup"), value=_text_of("published_setup")),
        _TableColumn(column=numeric("load_x", "Load, X"), value=_number_of("load", whole=True)),
        _TableColumn(
            column=numeric("memory_limit_mib", "Memory limit, MiB"),
            value=_number_of("memory_bytes", whole=True, divide=2**20),
            only_if_varied=True,
        ),
        _TableColumn(
            column=Column(name="part", title="Part"), value=_text_of("part"), only_if_varied=True
        ),
        _TableColumn(
            column=Column(name="column", title="Column"),
            value=_text_of("column"),
            only_if_varied=True,
        ),
        _TableColumn(
            column=numeric(
                "paper", "Paper", "The authors' arithmetic: means over time, or one record"
            ),
            value=_number_of("mean", whole=whole),
        ),
    )


def _right(*, whole: bool) -> tuple[_TableColumn, ...]:
    return (
        _TableColumn(
            column=numeric("sound", "Sound", "One figure per run, then the median over runs"),
            value=_number_of("sound", "median", whole=whole),
        ),
        _TableColumn(
            column=Column(name="sound_interval", title="95 % interval"),
            value=_between_of("interval_low", "interval_high", whole=whole),
        ),
        _TableColumn(
            column=Column(name="between_runs", title="All runs", help="Smallest to largest"),
            value=_between_of("smallest_run", "largest_run", whole=whole),
        ),
        _TableColumn(column=numeric("runs", "Runs"), value=_number_of("samples", whole=True)),
    )


_MEANS = (
    *_left(whole=False),
    _TableColumn(
        column=numeric("sigma_over_time", "σ over time", "Over checkpoints, not between runs"),
        value=_number_of("sigma"),
    ),
    _TableColumn(
        column=numeric("checkpoints", "n", "Checkpoints in the window"),
        value=_number_of("n", whole=True),
    ),
    _TableColumn(column=numeric("printed", "Printed"), value=_number_of("published_mean")),
    _TableColumn(column=numeric("printed_sigma", "Printed σ"), value=_number_of("published_sigma")),
    *_right(whole=False),
    _TableColumn(
        column=Column(name="flag", title="Print against files"),
        value=_text_of("published_disagrees"),
        only_if_any=True,
    ),
)
_COUNTS = (
    *_left(whole=True),
    _TableColumn(
        column=Column(name="record", title="Record"), value=_text_of("row"), only_if_varied=True
    ),
    *_right(whole=True),
)


SEVERITY_WORDS = {"serious": "✗ serious", "warning": "▼ warning", "note": "· note"}

# What is drawn: column → what its axis says.
PLOTTED = {
    "%CPU": "CPU of the host, % of one core",
    "%MEM": "memory of the host, %",
    "capture.kernel_packets": "packets captured",
    "capture.kernel_drops": "packets dropped",
    "decoder.pkts": "packets decoded",
}
_FILE_NAMES = {
    "%CPU": "cpu",
    "%MEM": "memory",
    "capture.kernel_packets": "captured",
    "capture.kernel_drops": "dropped",
    "decoder.pkts": "decoded",
}
MOST_CHARTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPicture:
    title: str
    drawing: Chart
    caption: str
    name: str
    """Name for files."""
    table: Table
    """Data of the drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One imported run directory."""

    source: str
    mode: str
    findings: Table
    tables: tuple[Table, ...]
    charts: tuple[PublishedPicture, ...]
    skipped: Table
    damage: str = ""


@once
def published(story: Story) -> list[Published]:
    """Empty if nothing was imported."""
    return [found for source in story.sources if (found := _of_source(source)) is not None]


def published_files(story: Story) -> list[Table]:
    """The tables as files; of several imports each has its own names."""
    return [
        replace(table, name=f"{table.name}-{number}" if number > 1 else table.name)
        for number, found in enumerate(published(story), 1)
        for table in (found.findings, *found.tables)
    ]


def _of_source(source: StorySource) -> Published | None:
    content = source.run.beside("imported")
    if content is None:
        return None
    damage = ""
    tables: tuple[Table, ...] = ()
    charts: tuple[PublishedPicture, ...] = ()
    skipped = _skipped_table([])
    mode = "sound"
    if isinstance(content, Damage):
        damage = f"{content.where} cannot be read: {content.words}"
    else:
        mode = "paper" if content.get("mode") == "paper" else "sound"
        try:
            tables = tuple(published_tables(content["tables"]))
            charts = tuple(_charts(content["curves"], mode))
            skipped = _skipped_table(content["skipped"])
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as failed:
            damage = f"imported.json makes no sense: {failed!r}"
    return Published(
        source=source.name,
        mode=mode,
        findings=_findings_table(source),
        tables=tables,
        charts=charts,
        skipped=skipped,
        damage=escape.plain(damage),
    )


def _findings_table(source: StorySource) -> Table:
    return Table(
        name="findings",
        title="What to hold against these figures",
        columns=(
            Column(name="severity", title="Severity"),
            Column(name="finding", title="Finding"),
            Column(name="evidence", title="Evidence"),
            Column(name="effect", title="What it does to a conclusion"),
            Column(name="code", title="Code"),
        ),
        rows=tuple(
            _finding_row(item) for item in tables_in(source.run.beside("findings"), "findings")
        ),
    )


def _finding_row(item: Mapping[str, Any]) -> Row:
    severity = str(item.get("severity"))
    said = (item.get(name) or "" for name in ("title", "evidence", "effect", "code"))
    return Row(
        values=(
            text(SEVERITY_WORDS.get(severity, severity)),
            *(Value(raw=str(v), shown=escape.plain(v, longest=2000)) for v in said),
        ),
        mark="loss" if severity == "serious" else "",
    )


def _charts(curves: Sequence[Mapping[str, Any]], mode: str) -> Iterator[PublishedPicture]:
    """One drawing per column and load, the setups in it."""
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for curve in curves:
        if curve["mode"] == mode and curve["column"] in PLOTTED:
            groups.setdefault((curve["column"], float(curve["load"])), []).append(curve)
    order = list(PLOTTED)
    for column, load in sorted(groups, key=lambda k: (order.index(k[0]), k[1]))[:MOST_CHARTS]:
        found = groups[column, load]
        title = f"{PLOTTED[column]} at {load:g}X"
        lines = [
            TimelineSeries(
                name=escape.plain(curve["group"], longest=60),
                style=n,
                points=tuple(
                    (float(x), float(y))
                    for x, y in zip(curve["at_s"], curve["values"], strict=True)
                    if x >= 0 and math.isfinite(x) and math.isfinite(y)
                ),
            )
            for n, curve in enumerate(found)
        ]
        name = f"published-{_FILE_NAMES[column]}-{load:g}x"
        yield PublishedPicture(
            name=name,
            table=_curve_table(name, title, lines),
            title=title,
            drawing=_curves(title, _time_name(column, mode), PLOTTED[column], lines),
            caption=_caption(title, found, mode),
        )


def _curves(title: str, x_name: str, y_name: str, lines: Sequence[TimelineSeries]) -> Chart:
    """Empty if there is no point."""
    shown = [line for line in lines if line.points][:MOST_SERIES]
    if not shown:
        return Chart()
    x = Scale.over(x for line in shown for x, _ in line.points)
    y = Scale.over(y for line in shown for _, y in line.points)
    plot = Plot(title, x, y).axes(x_name, numbers.short, numbers.short)
    for line in shown:
        plot.line(line.points, f"s{line.style % MOST_SERIES}")
    key = tuple(("line", f"s{line.style % MOST_SERIES}", line.name) for line in shown)
    return Chart(title, (Pane((plot,), y_name),), key)


def _curve_table(name: str, title: str, lines: Sequence[TimelineSeries]) -> Table:
    return Table(
        name=name,
        title=title,
        columns=(
            Column(name="setup", title="Setup"),
            numeric("at_s", "Time, s"),
            numeric("value", title),
        ),
        rows=tuple(
            Row(values=(text(line.name), figure(x), figure(y)))
            for line in lines
            for x, y in line.points
        ),
    )


def _time_name(column: str, mode: str) -> str:
    if mode == "paper":
        return "median uptime of the row, s"
    return "since the first packet, s" if column.startswith("%") else "since the IDS started, s"


def _caption(title: str, curves: Sequence[Mapping[str, Any]], mode: str) -> str:
    cut = sum(int(curve["cut_points"]) for curve in curves)
    kind = "median by row index" if mode == "paper" else "median of runs at equal times"
    words = f"{title}: {kind}."
    if mode == "paper" and any(len(set(curve["samples"])) > 1 for curve in curves):
        words += " The last points rest on fewer runs than the others."
    if cut:
        words += f" Cut at the end of the first run ({cut} points)."
    return words


def _skipped_table(skipped: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        name="skipped",
        title="What was not imported",
        columns=(
            Column(name="reason", title="Reason"),
            numeric("count", "How often"),
            Column(name="first", title="Where first"),
        ),
        rows=tuple(
            Row(values=(text(i["reason"]), figure(i["count"], whole=True), text(i["first"])))
            for i in skipped
        ),
    )


def _figures(story: Story) -> Iterator[Figure]:
    for number, found in enumerate(published(story), 1):
        for chart in found.charts:
            name = f"{chart.name}-{number}" if number > 1 else chart.name
            yield Figure(name=name, chart=chart.drawing, table=chart.table)


def _page(story: Story) -> Markup:
    found = published(story)
    if not found:
        return Markup("")
    return rendered("nodrop_studies", "published.html.j2", story, published=found)


SECTION = Section(
    id="published", title="Published", tables=published_files, pictures=_figures, page=_page,
    place=50, with_search=False,
)  # fmt: skip
