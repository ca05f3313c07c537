"""The studies' tables and figures, made again from the samples, paper and sound side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodrop.stats.interval import Summary, summarize
from nodrop_studies import workbooks
from nodrop_studies.dataset import DatasetCell
from nodrop_studies.samples import (
    UPTIME,
    Channel,
    Figures,
    RowSpan,
    Sample,
    Samples,
    Skip,
    StudyCondition,
    Traffic,
    figures_of,
    missing_columns,
    traffic,
)
from nodrop_studies.study_2016 import PUBLISHED
from nodrop_studies.workbooks import PLOTTED, MedianCurve, Mode, paper_series, sound_series

# All that is kept of one cell: its runs' figures, its tables' figures, its curves, its gaps.
#
# Channels are read one after the other and only their figures are kept: the import needs no more
# memory than the largest workbook.

Window = tuple[float, float]
"""Uptime in seconds, both ends included."""

SURICATA_WINDOW: Window = (16, 308)
SNORT_WINDOW: Window = (248, 544)
SNORT_VM_WINDOW: Window = (488, 784)

# The rows behind figure 7: the last one plotted.
FIGURE_RECORD = 45

EVE_FIGURES = (
    "capture.kernel_packets",
    "capture.kernel_drops",
    "decoder.pkts",
    "decoder.bytes",
)
SNORT_FIGURES = (
    "pkts_total.recv_pkts",
    "pkts_total.dropped_pkts",
    "pkts_total.analyzed_pkts",
)

# Traffic is looked for first: it says which rows of the others count.
_READ_ORDER = (
    Channel.NIC_OUT,
    Channel.NIC_IN,
    Channel.GUEST_NIC,
    *(c for c in Channel if c not in (Channel.NIC_OUT, Channel.NIC_IN, Channel.GUEST_NIC)),
)
_SENDER_SIDE = {Channel.NIC_OUT, Channel.SENDER}
_GUEST_SIDE = {
    Channel.GUEST_NIC,
    Channel.GUEST,
    Channel.GUEST_SURICATA,
    Channel.GUEST_SNORT,
}


@dataclass(slots=True, kw_only=True)
class SampleRun:
    """One run: what each channel of one sample says."""

    epoch_s: int
    figures: Figures = field(default_factory=dict)
    rows: dict[Channel, int] = field(default_factory=dict)
    """Length of each channel's table; a channel that is not here has no such sample."""


@dataclass(slots=True, kw_only=True)
class CellResult:
    cell: DatasetCell
    window: Window
    runs: dict[int, SampleRun] = field(default_factory=dict)
    windows: dict[tuple[str, Window], workbooks.WindowFigure] = field(default_factory=dict)
    """The authors' figures of the receiving host, by column and window."""
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    """The authors' figures of the IDS: column → record 45, plateau, last record or run value."""
    series: list[MedianCurve] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)

    @property
    def condition(self) -> StudyCondition:
        return self.cell.condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Channels and windows to read, and the mode of reading."""

    mode: Mode = "sound"
    window: Window | None = None
    """Given by the user: instead of the traffic's own time and of the tables' windows."""
    windows: Collection[Window] = ()
    """More windows of the receiving host, for tables."""
    channels: Collection[Channel] = tuple(Channel)
    curves: bool = True


def default_window(cell: DatasetCell) -> Window:
    """The uptimes that fit what the studies printed for such cells."""
    if cell.sut == "suricata":
        return SURICATA_WINDOW
    return SNORT_VM_WINDOW if cell.condition.engine == "vm" else SNORT_WINDOW


def reduce_cell(cell: DatasetCell, wanted: Wanted) -> CellResult:
    """Reads the cell's channels, one at a time."""
    result = CellResult(cell=cell, window=wanted.window or default_window(cell))
    flows: dict[Channel, dict[int, Traffic]] = {}
    for channel in _READ_ORDER:
        if channel not in wanted.channels:
            continue
        read = cell.read(channel)
        result.skips += read.skips
        if not read.samples:
            continue
        if channel in (Channel.NIC_OUT, Channel.NIC_IN, Channel.GUEST_NIC):
            flows[channel] = _flows(channel, read)
        _reduce_runs(result, channel, read, flows, wanted)
        _reduce_paper(result, channel, read, wanted)
        if wanted.curves:
            _reduce_curves(result, channel, read, flows)
    there = cell.channels()
    for channel in cell.expected_channels:
        if channel in wanted.channels and channel not in there:
            result.skips.append(Skip(reason="missing channel", where=cell.part, detail=channel))
    return result


def _flows(channel: Channel, read: Samples) -> dict[int, Traffic]:
    column = "sent.pkts" if channel is Channel.NIC_OUT else "recv.pkts"
    found: dict[int, Traffic] = {}
    for sample in read.samples:
        try:
            flow = traffic(sample, column)
        except KeyError:
            flow = None
        if flow is not None:
            found[sample.epoch_s] = flow
    return found


def _reduce_runs(
    result: CellResult,
    channel: Channel,
    read: Samples,
    flows: Mapping[Channel, Mapping[int, Traffic]],
    wanted: Wanted,
) -> None:
    fixed = wanted.mode == "paper" or wanted.window is not None
    for sample in read.samples:
        run = result.runs.setdefault(sample.epoch_s, SampleRun(epoch_s=sample.epoch_s))
        run.rows[channel] = sample.rows
        for column in missing_columns(channel, sample):
            where = f"{channel}, sample {sample.epoch_s}"
            result.skips.append(Skip(reason="missing column", where=where, detail=column))
        flow = _flow_of(channel, sample.epoch_s, flows)
        span = flow.busy if flow else None
        if fixed:
            span = RowSpan(column=UPTIME, first_s=result.window[0], last_s=result.window[1])
        run.figures |= figures_of(channel, sample, span, flow)


def _flow_of(
    channel: Channel, epoch_s: int, flows: Mapping[Channel, Mapping[int, Traffic]]
) -> Traffic | None:
    """The traffic as seen on this channel's own clock, or on the nearest one there is."""
    if channel in _SENDER_SIDE:
        nearest = (Channel.NIC_OUT, Channel.NIC_IN)
    elif channel in _GUEST_SIDE:
        nearest = (Channel.GUEST_NIC, Channel.NIC_IN)
    else:
        # With the NIC passed through the host sees no packet: the sender's clock must do.
        nearest = (Channel.NIC_IN, Channel.NIC_OUT)
    for source in nearest:
        if epoch_s in flows.get(source, {}):
            return flows[source][epoch_s]
    return None


def _reduce_paper(result: CellResult, channel: Channel, read: Samples, wanted: Wanted) -> None:
    if channel is Channel.RECEIVER:
        for column in ("%CPU", "%MEM"):
            for lo_s, hi_s in {result.window, *wanted.windows}:
                try:
                    figure = workbooks.window(read.samples, column, lo_s=lo_s, hi_s=hi_s)
                except workbooks.NoValueError as error:
                    result.skips.append(_no_value(channel, error))
                else:
                    result.windows[column, (lo_s, hi_s)] = figure
    elif channel.cumulative_counts:
        columns = EVE_FIGURES if channel is Channel.EVE else SNORT_FIGURES
        for column in columns:
            result.counts[column] = _counts(result, channel, read.samples, column)


def _counts(
    result: CellResult, channel: Channel, samples: tuple[Sample, ...], column: str
) -> dict[str, float]:
    found: dict[str, float] = {}
    try:
        if channel is Channel.SNORT_EXIT:
            found["run_value"] = workbooks.run_value(samples, column, floor=True)
            return found
        found["last_record"] = workbooks.last_record(samples, column, floor=True)
        found["plateau"] = workbooks.plateau(samples, column, floor=True)
        if max(sample.rows for sample in samples) >= FIGURE_RECORD:
            found["record_45"] = workbooks.record(samples, column, FIGURE_RECORD, floor=True)
    except workbooks.NoValueError as error:
        result.skips.append(_no_value(channel, error))
    return found


def _reduce_curves(
    result: CellResult,
    channel: Channel,
    read: Samples,
    flows: Mapping[Channel, Mapping[int, Traffic]],
) -> None:
    nearest = flows.get(Channel.NIC_IN) or flows.get(Channel.NIC_OUT) or {}
    starts = {epoch: flow.first_s for epoch, flow in nearest.items()}
    for column in PLOTTED.get(channel, ()):
        found = (
            paper_series(read.samples, channel, column),
            sound_series(
                read.samples,
                channel,
                column,
                step_s=result.condition.interval_s,
                starts=starts,
            ),
        )
        result.series += [series for series in found if series is not None]


def _no_value(channel: Channel, error: workbooks.NoValueError) -> Skip:
    return Skip(reason="figure cannot be made", where=str(channel), detail=str(error))


BIGFLOWS = "bigFlows.pcap"
SNORTLOG = "snort.log"
TWO_GIB = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Which cells a table is about, and which window fits what was printed."""

    name: str
    title: str
    sut: str
    trace: str
    columns: tuple[str, ...]
    window: Window | None = None
    """None = counters: their last record, not a mean over time."""
    vm_window: Window | None = None
    loads: frozenset[int] | None = None
    """None = all there are."""
    memory_bytes: int | None = TWO_GIB
    """Memory of the setups that have a limit; None = all there are."""

    def holds(self, cell: DatasetCell) -> bool:
        condition = cell.condition
        return (
            cell.sut == self.sut
            and condition.trace.startswith(self.trace)
            and (self.loads is None or condition.workers in self.loads)
            and (self.memory_bytes is None or condition.memory_bytes in (None, self.memory_bytes))
            and condition.cpuset in (None, "0-3")
        )

    def window_of(self, cell: DatasetCell) -> Window | None:
        return self.vm_window if self.vm_window and cell.condition.engine == "vm" else self.window


_SURICATA_WINDOW = (16, 308)
# Which of CPU and memory tables V and VI printed is not known here, so both are computed.
_HOST = ("%MEM", "%CPU")

TABLES: Mapping[str, TableSpec] = {
    spec.name: spec
    for spec in (
        TableSpec(
            name="II",
            title="Memory of the host, Suricata at 1X (%)",
            sut="suricata",
            trace=BIGFLOWS,
            columns=("%MEM",),
            window=_SURICATA_WINDOW,
            loads=frozenset({1}),
        ),
        TableSpec(
            name="III",
            title="CPU of the host, Suricata at 1X (% of one core)",
            sut="suricata",
            trace=BIGFLOWS,
            columns=("%CPU",),
            window=_SURICATA_WINDOW,
            loads=frozenset({1}),
        ),
        TableSpec(
            name="IV",
            title="CPU of the host, Suricata at 2X (% of one core)",
            sut="suricata",
            trace=BIGFLOWS,
            columns=("%CPU",),
            window=_SURICATA_WINDOW,
            loads=frozenset({2}),
        ),
        TableSpec(
            name="V",
            title="The host while Snort is under load",
            sut="snort",
            trace=BIGFLOWS,
            columns=_HOST,
            window=(248, 544),
            vm_window=(488, 784),
        ),
        TableSpec(
            name="VI",
            title="The host over the whole of Snort's run",
            sut="snort",
            trace=BIGFLOWS,
            columns=_HOST,
            window=(24, 600),
            vm_window=(264, 840),
        ),
        TableSpec(
            name="fig7",
            title="Packets and bytes at Suricata by load, 2 GB",
            sut="suricata",
            trace=BIGFLOWS,
            columns=EVE_FIGURES,
        ),
        TableSpec(
            name="fig8",
            title="Packets and bytes at Suricata by memory limit, 4X",
            sut="suricata",
            trace=BIGFLOWS,
            columns=EVE_FIGURES,
            loads=frozenset({4}),
            memory_bytes=None,
        ),
        TableSpec(
            name="snortlog",
            title="Packets and bytes at Suricata by load, trace snort.log",
            sut="suricata",
            trace=SNORTLOG,
            columns=EVE_FIGURES,
            memory_bytes=None,
        ),
    )
}

PUBLISHED_PART = "experiments/suricata/data"
PRINTED_PRECISION = 0.0051

# One figure per run that stands for a column of the authors'.
SOUND_FIGURE: Mapping[str, str] = {
    "%CPU": "host_cpu_pct",
    "%MEM": "host_mem_pct",
    "capture.kernel_packets": "captured_packets",
    "capture.kernel_drops": "dropped_packets",
    "decoder.pkts": "decoded_packets",
    "decoder.bytes": "decoded_bytes",
    "pkts_total.recv_pkts": "captured_packets",
    "pkts_total.dropped_pkts": "dropped_packets",
    "pkts_total.analyzed_pkts": "decoded_packets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One figure of one table, made both ways."""

    table: str
    part: str
    setup: str
    published_setup: str
    load: int
    memory_bytes: int | None
    column: str
    samples: int
    """Runs that have this channel."""
    window: Window | None
    mean: float | None
    """Paper: mean of the median curve over the window; of a counter, the value at `row`."""
    sigma: float | None
    """Paper: over time. Not a spread between runs."""
    n: int | None
    """Paper: checkpoints in the window."""
    row: str
    """Which record a counter was taken from: `record_45`, `last_record`, `plateau`, `run_value`."""
    rows: Mapping[str, float]
    """All of them."""
    published_mean: float | None
    published_sigma: float | None
    sound: Summary | None
    """Median over runs of one figure per run, with its interval and the between-run spread."""

    @property
    def flag(self) -> str:
        """Words if the printed figure is not what the files give; else empty."""
        wrong = [
            f"{what} printed {printed:.2f}, files give {ours:.2f}"
            for what, printed, ours in (
                ("mean", self.published_mean, self.mean),
                ("sigma", self.published_sigma, self.sigma),
            )
            if printed is not None and ours is not None and abs(printed - ours) > PRINTED_PRECISION
        ]
        return "; ".join(wrong)

    def as_json(self) -> dict[str, Any]:
        """The figure for machines; numbers are not rounded."""
        return {
            "table": self.table,
            "part": self.part,
            "setup": self.setup,
            "published_setup": self.published_setup,
            "load": self.load,
            "memory_bytes": self.memory_bytes,
            "column": self.column,
            "mean": self.mean,
            "sigma": self.sigma,
            "n": self.n,
            "samples": self.samples,
            "window_s": list(self.window) if self.window else None,
            "row": self.row or None,
            "rows": dict(self.rows),
            "published_mean": self.published_mean,
            "published_sigma": self.published_sigma,
            "published_disagrees": self.flag or None,
            "sound": _summary_json(self.sound),
        }


def make_table(
    spec: TableSpec, cells: Iterable[DatasetCell], *, mode: Mode, window: Window | None = None
) -> tuple[list[TableCell], list[CellResult]]:
    """Reads only the channels the table needs."""
    channels = {Channel.EVE, Channel.SNORT_EXIT}
    if spec.window is not None:
        channels = {Channel.RECEIVER, Channel.NIC_IN, Channel.NIC_OUT}
    made: list[TableCell] = []
    results: list[CellResult] = []
    for cell in cells:
        if not spec.holds(cell):
            continue
        wanted_window = window or spec.window_of(cell)
        wanted = Wanted(
            mode=mode,
            window=window,
            windows=[wanted_window] if wanted_window else [],
            channels=channels,
            curves=False,
        )
        result = reduce_cell(cell, wanted)
        results.append(result)
        made += table_cells(spec, result, window)
    return made, results


def table_cells(
    spec: TableSpec, result: CellResult, window: Window | None = None
) -> Iterator[TableCell]:
    """The table's figures of one cell that is already read."""
    window = window or spec.window_of(result.cell)
    condition = result.condition
    for column in spec.columns:
        sound_figures = _values(result.runs.values(), SOUND_FIGURE[column])
        figure = result.windows.get((column, window)) if window else None
        rows = result.counts.get(column, {})
        row = next((r for r in ("record_45", "last_record", "run_value") if r in rows), "")
        if figure is None and not row:
            continue
        printed: tuple[float | None, float | None] = (None, None)
        if result.cell.part.endswith(PUBLISHED_PART):
            printed = PUBLISHED.get((spec.name, condition.setup), printed)
        yield TableCell(
            table=spec.name,
            part=result.cell.part,
            setup=condition.setup,
            published_setup=condition.published_setup,
            load=condition.workers,
            memory_bytes=condition.memory_bytes,
            column=column,
            samples=len(sound_figures),
            window=window,
            mean=figure.mean if figure else rows[row],
            sigma=figure.sigma if figure else None,
            n=figure.checkpoints if figure else None,
            row="" if figure else row,
            rows={} if figure else rows,
            published_mean=printed[0],
            published_sigma=printed[1],
            sound=summarize(sound_figures),
        )


def _values(runs: Iterable[Any], name: str) -> Sequence[float]:
    found: list[Figures] = [run.figures for run in runs]
    return [figures[name] for figures in found if name in figures]


def _summary_json(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    interval = summary.interval
    return {
        "median": summary.median,
        "n": summary.n,
        "interval_low": interval.low if interval else None,
        "interval_high": interval.high if interval else None,
        "coverage": interval.coverage if interval else None,
        "smallest_run": summary.low,
        "largest_run": summary.high,
    }
