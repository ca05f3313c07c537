"""Imported published data: the studies' tables made again, their curves, what to hold against them.

All of it is read from imported.json and findings.json of a run directory; what does not fit the
format is left out and named, as any file of a run directory may be damaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodrop.report import escape
from nodrop.report.chart import Chart
from nodrop.report.charts import Curve, curve_plot
from nodrop.report.published_tables import figure, published_tables
from nodrop.report.stored import stored_findings
from nodrop.report.story import Source, Story, once
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.results.rundir import Damage

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
class Picture:
    title: str
    drawing: Chart
    caption: str
    name: str
    """For files."""
    table: Table
    """What is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One imported run directory."""

    source: str
    mode: str
    findings: Table
    tables: tuple[Table, ...]
    charts: tuple[Picture, ...]
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


def _of_source(source: Source) -> Published | None:
    content = source.run.beside("imported")
    if content is None:
        return None
    damage = ""
    tables: tuple[Table, ...] = ()
    charts: tuple[Picture, ...] = ()
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


def _findings_table(source: Source) -> Table:
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
        rows=tuple(_finding_row(item) for item in stored_findings(source)),
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


def _charts(curves: Sequence[Mapping[str, Any]], mode: str) -> Iterator[Picture]:
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
            Curve(
                name=escape.plain(curve["group"], longest=60),
                points=tuple(
                    (float(x), float(y))
                    for x, y in zip(curve["at_s"], curve["values"], strict=True)
                    if x >= 0 and math.isfinite(x) and math.isfinite(y)
                ),
            )
            for curve in found
        ]
        name = f"published-{_FILE_NAMES[column]}-{load:g}x"
        yield Picture(
            name=name,
            table=_curve_table(name, title, lines),
            title=title,
            drawing=curve_plot(title, _time_name(column, mode), PLOTTED[column], lines),
            caption=_caption(title, found, mode),
        )


def _curve_table(name: str, title: str, lines: Sequence[Curve]) -> Table:
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
