"""All that is kept of one cell: its runs' figures, its tables' figures, its curves, its gaps.

Channels are read one after the other and only their figures are kept: the import needs no more
memory than the largest workbook.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from nodrop.studies import paper
from nodrop.studies.dataset import Cell
from nodrop.studies.figures import (
    UPTIME,
    Figures,
    Sample,
    Samples,
    Skip,
    Span,
    Traffic,
    figures_of,
    missing_columns,
    traffic,
)
from nodrop.studies.names import Channel, Condition
from nodrop.studies.workbooks import PLOTTED, Mode, Series, paper_series, sound_series

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
class Run:
    """One run: what each channel of one sample says."""

    epoch_s: int
    figures: Figures = field(default_factory=dict)
    rows: dict[Channel, int] = field(default_factory=dict)
    """Length of each channel's table; a channel that is not here has no such sample."""


@dataclass(slots=True, kw_only=True)
class CellResult:
    cell: Cell
    window: Window
    runs: dict[int, Run] = field(default_factory=dict)
    windows: dict[tuple[str, Window], paper.WindowFigure] = field(default_factory=dict)
    """The authors' figures of the receiving host, by column and window."""
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    """The authors' figures of the IDS: column → record 45, plateau, last record or run value."""
    series: list[Series] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)

    @property
    def condition(self) -> Condition:
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


def default_window(cell: Cell) -> Window:
    """The uptimes that fit what the studies printed for such cells."""
    if cell.sut == "suricata":
        return SURICATA_WINDOW
    return SNORT_VM_WINDOW if cell.condition.engine == "vm" else SNORT_WINDOW


def reduce_cell(cell: Cell, wanted: Wanted) -> CellResult:
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
        run = result.runs.setdefault(sample.epoch_s, Run(epoch_s=sample.epoch_s))
        run.rows[channel] = sample.rows
        for column in missing_columns(channel, sample):
            where = f"{channel}, sample {sample.epoch_s}"
            result.skips.append(Skip(reason="missing column", where=where, detail=column))
        flow = _flow_of(channel, sample.epoch_s, flows)
        span = flow.busy if flow else None
        if fixed:
            span = Span(column=UPTIME, first_s=result.window[0], last_s=result.window[1])
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
                    figure = paper.window(read.samples, column, lo_s=lo_s, hi_s=hi_s)
                except paper.NoValueError as error:
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
            found["run_value"] = paper.run_value(samples, column, floor=True)
            return found
        found["last_record"] = paper.last_record(samples, column, floor=True)
        found["plateau"] = paper.plateau(samples, column, floor=True)
        if max(sample.rows for sample in samples) >= FIGURE_RECORD:
            found["record_45"] = paper.record(samples, column, FIGURE_RECORD, floor=True)
    except paper.NoValueError as error:
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


def _no_value(channel: Channel, error: paper.NoValueError) -> Skip:
    return Skip(reason="figure cannot be made", where=str(channel), detail=str(error))
