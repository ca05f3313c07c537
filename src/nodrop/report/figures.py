"""The report's tables: cells, trials, and the books hop by hop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodrop.ledger.balance import Ledger
from nodrop.ledger.byte_books import ByteStep
from nodrop.ledger.hops import ADDING, NO_PACKETS, Account, Class
from nodrop.report import bounded, escape, numbers
from nodrop.report.costs import Figure
from nodrop.report.repeats import outlying, words_of_trials
from nodrop.report.sections import figures_of_others
from nodrop.report.senders import counted
from nodrop.report.story import Cell, Story, once
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, scaled, text
from nodrop.report.trials import Trial
from nodrop.stats.interval import Summary

CELL_COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("valid_trials", "n", "measured trials; only these enter the figures"),
    numeric("failed_trials", "Failed", "the SUT died, hung or was killed: a result about it"),
    numeric("void_trials", "Void", "instrument or sender: they say nothing about the SUT"),
    Column(name="invalid_reasons", title="Why failed or void"),
    numeric("offered_pps_median", "Offered, packets/s", "really sent; median of the trials"),
    numeric("offered_mbps_median", "Offered, Mbit/s"),
    numeric("lossy_trials", "Trials with loss", "measured trials that lost at least one packet"),
    numeric("loss_pct_median", "Loss, %", "lost of sent packets; median of the measured trials"),
    numeric("loss_pct_low", "Loss from, %", "lower end of the 95 % interval"),
    numeric("loss_pct_high", "Loss to, %", "upper end of the 95 % interval"),
    Column(name="interval", title="95 % interval"),
    numeric("loss_pct_smallest", "Smallest run, %"),
    numeric("loss_pct_largest", "Largest run, %"),
    Column(name="loss_place", title="Lost in"),
    numeric("schedule_error_p99_us_worst", "Late p99, µs", "worst trial's p99 schedule error"),
    numeric("activation_s_median", "Activation, s", "launch call to SUT ready"),
    numeric("sut_cpu_s_median", "SUT CPU, s"),
    numeric("setup_cpu_s_median", "Setup CPU, s", "the SUT, and what works for it on the host"),
    numeric("host_cpu_pct_median", "Host CPU, %"),
    numeric("sut_rss_peak_mib_median", "Peak memory, MiB"),
)


CELL_PAGE_COLUMNS = (
    "cell",
    "loss_pct_median",
    "interval",
    "loss_place",
    "lossy_trials",
    "valid_trials",
    "failed_trials",
    "void_trials",
    "offered_pps_median",
    "offered_mbps_median",
    "schedule_error_p99_us_worst",
    "activation_s_median",
    "sut_cpu_s_median",
    "setup_cpu_s_median",
    "host_cpu_pct_median",
    "sut_rss_peak_mib_median",
)
"""Columns of the page's table of cells; those that decide stand first."""


@once
def cells_table(story: Story) -> Table:
    fleet, others = _fleet(story), figures_of_others()
    return Table(
        name="cells",
        title="Cells: medians over measured trials",
        columns=(*CELL_COLUMNS, *([PAIRS] if fleet else []), *_columns_of_others()),
        rows=tuple(_cell_row(cell, fleet=fleet, others=others) for cell in story.cells),
    )


PAIRS = Column(name="pairs", title="Pair", help="of the fleet, or the host: which measured it")


def _cell_row(cell: Cell, *, fleet: bool, others: Sequence[Figure]) -> Row:
    loss = cell.loss
    interval = loss.interval if loss else None
    mark = "failed" if cell.failed else "loss" if cell.lossy else "good" if cell.valid else "void"
    return Row(
        anchor=cell.typical.anchor,
        mark=mark,
        values=(
            text(cell.label),
            _count(len(cell.valid)),
            _count(len(cell.failed)),
            _count(len(cell.void)),
            text(_codes((*cell.failed, *cell.void))),
            _median(cell.summary("offered_pps"), numbers.count),
            _median(cell.summary("offered_bps"), numbers.megabits, 1e-6),
            _count(len(cell.lossy)),
            _percent(loss.median if loss else None),
            _percent(interval.low if interval else None),
            _percent(interval.high if interval else None),
            text("" if interval else loss.why_no_interval if loss else "no measured trial"),
            _percent(loss.low if loss else None),
            _percent(loss.high if loss else None),
            text(cell.loss_place or ""),
            _worst_lateness(cell),
            _median(cell.summary("activation_s"), numbers.seconds),
            _median(cell.summary("sut_cpu_s"), numbers.seconds),
            _median(cell.summary("setup_cpu_s"), numbers.seconds),
            _median(cell.summary("host_cpu_ratio"), _whole_percent, 100),
            _median(cell.summary("sut_rss_peak_bytes"), numbers.mebibytes, 2**-20),
            *([text(escape.plain(", ".join(cell.pairs)))] if fleet else []),
            *(_median_of(figure, cell) for figure in others),
        ),
    )


def _columns_of_others() -> tuple[Column, ...]:
    return tuple(
        numeric(f"{one.name}_median", f"{one.title}, {one.unit}", one.help)
        for one in figures_of_others()
    )


def _median_of(figure: Figure, cell: Cell) -> Value:
    found = figure.summary(cell)
    if found is None:
        return Value(raw=None, shown=numbers.NOT_MEASURED)
    return Value(raw=found.median, shown=figure.shown(found.median))


def _codes(trials: Sequence[Trial]) -> str:
    found = counted(trials)
    if set(found.values()) == {len(trials)}:
        return ", ".join(sorted(found))  # each of them
    return ", ".join(f"{code} ({n})" for code, n in sorted(found.items()))


def cells_page_table(story: Story) -> Table:
    """Table of cells for the page: the interval stands beside its median."""
    wide = cells_table(story)
    at = {column.name: i for i, column in enumerate(wide.columns)}
    others = [column.name for column in _columns_of_others()]
    keep = [at[name] for name in (*CELL_PAGE_COLUMNS, *others)]
    keep[1:1] = [at[PAIRS.name]] if PAIRS.name in at else []
    rows = []
    for cell, row in zip(story.cells, wide.rows, strict=True):
        values = list(row.values)
        loss = cell.loss
        if loss and loss.interval:
            shown = numbers.between(loss.interval.low, loss.interval.high, numbers.percent)
            values[at["interval"]] = Value(raw=loss.interval.low, shown=shown)
        for name, trials in (("failed_trials", cell.failed), ("void_trials", cell.void)):
            if trials:
                shown = f"{len(trials)}: {_codes(trials)}"
                values[at[name]] = Value(raw=len(trials), shown=shown)
        rows.append(Row(values=tuple(values[i] for i in keep), anchor=row.anchor, mark=row.mark))
    in_words = ("failed_trials", "void_trials")
    columns = tuple(
        replace(c, numeric=False) if c.name in in_words else c
        for c in (wide.columns[i] for i in keep)
    )
    return bounded.shortened(replace(wide, columns=columns, rows=rows))


TRIAL_COLUMNS = (
    Column(name="run_directory", title="Run directory"),
    Column(name="run", title="Run"),
    Column(name="cell", title="Cell"),
    numeric("repetition", "Repetition"),
    numeric("index", "Order", "place in the random order of the plan"),
    Column(name="outcome", title="Outcome"),
    Column(name="invalid_reasons", title="Why failed or void"),
    numeric("intended_packets", "Intended"),
    numeric("offered_packets", "Sent"),
    numeric("captured_packets", "Captured"),
    numeric("decoded_packets", "Decoded"),
    numeric("lost_packets", "Lost"),
    numeric("merged_packets", "Merged", "taken out by fanout defragmentation"),
    numeric("cut_packets", "Cut", "decoded, but cut to the room in the ring"),
    numeric("invalid_packets", "Invalid", "decoded, and called broken by the decoder"),
    numeric("residual_packets", "Residual", "packets in no class"),
    numeric("residual_bytes", "Residual, bytes", "beyond what packets in classes can have had"),
    numeric("loss_pct", "Loss, %"),
    Column(name="loss_place", title="Lost in"),
    numeric("offered_pps", "Offered, packets/s"),
    numeric("schedule_error_p50_us", "Late p50, µs"),
    numeric("schedule_error_p99_us", "Late p99, µs"),
    numeric("schedule_error_max_us", "Late max, µs"),
    numeric("activation_s", "Activation, s"),
    numeric("sut_cpu_s", "SUT CPU, s"),
    numeric("setup_cpu_s", "Setup CPU, s", "the SUT, and what works for it on the host"),
    numeric("host_cpu_pct", "Host CPU, %"),
    numeric("sut_rss_peak_mib", "Peak memory, MiB"),
    numeric("imbalance_pct", "Imbalance, %", "what the busiest instance got beyond its share"),
    Column(name="verdict", title="Verdict"),
)


def trials_table(story: Story) -> Table:
    columns = (*TRIAL_COLUMNS, replace(PAIRS, name="pair")) if _fleet(story) else TRIAL_COLUMNS
    rows = Made(lambda: _trial_rows(story, story.trials))
    return Table(name="trials", title="Trials", columns=columns, rows=rows)


def _fleet(story: Story) -> bool:
    return any(cell.pairs for cell in story.cells)


@once
def trials_told_table(story: Story) -> Table:
    """In a long run, those that are on the page."""
    told = bounded.told(story)
    rows = tuple(_trial_rows(story, [t for t in story.trials if t.anchor in told]))
    more = bounded.more_words(len(story.trials) - len(rows), "trials.csv")
    return replace(trials_table(story), rows=rows, more=more)


def _trial_rows(story: Story, trials: Sequence[Trial]) -> Iterator[Row]:
    labels = {t.anchor: cell.label for cell in story.cells for t in cell.trials}
    fleet = _fleet(story)
    for trial in trials:
        row = _trial_row(trial, story.sources[trial.source].name, labels[trial.anchor])
        pair = [text(escape.plain(trial.pair or ""))] if fleet else []
        yield replace(row, values=(*row.values, *pair))


def _trial_row(trial: Trial, source: str, label: str) -> Row:
    r = trial.record
    late = r.offered.schedule_error_us
    return Row(
        anchor=trial.anchor,
        mark=trial.mark,
        values=(
            text(source),
            text(r.run),
            text(label),
            _count(r.repetition),
            _count(r.index),
            text(r.outcome),
            text(", ".join(r.invalid_reasons)),
            _count(r.offered.intended),
            _count(r.offered.sent),
            _count(r.packets.captured_packets),
            _count(r.packets.decoded_packets),
            _count(r.packets.lost_packets),
            _count(r.packets.merged_packets),
            _count(r.packets.cut_packets),
            _count(r.packets.invalid_packets),
            _signed(r.packets.residual_packets),
            _signed(r.packets.residual_bytes),
            _percent(r.packets.loss_ratio),
            text(r.packets.loss_place or ""),
            Value(raw=r.offered.per_s, shown=numbers.count(r.offered.per_s)),
            _micros(late.p50 if late else None),
            _micros(late.p99 if late else None),
            _micros(late.max if late else None),
            Value(raw=r.activation_s, shown=numbers.seconds(r.activation_s)),
            Value(raw=r.sut_cpu_s, shown=numbers.seconds(r.sut_cpu_s)),
            Value(raw=r.setup_cpu_s, shown=numbers.seconds(r.setup_cpu_s)),
            scaled(r.host_cpu_ratio, _whole_percent, 100),
            scaled(r.sut_rss_peak_bytes, numbers.mebibytes, 2**-20),
            scaled(r.packets.imbalance_ratio, _whole_percent, 100),
            text(r.verdict),
        ),
    )


def trials_page_table(story: Story) -> Table:
    """Table of trials for the page, without what each trial's own block says."""
    hidden = {"invalid_reasons", "schedule_error_p50_us", "schedule_error_max_us", "verdict"}
    if not story.several:
        hidden.add("run_directory")
    wide = trials_told_table(story)
    for name in ("cut_packets", "invalid_packets", "residual_bytes"):
        at = [column.name for column in wide.columns].index(name)
        if all(row.values[at].raw is None for row in wide.rows):
            hidden.add(name)
    trials = {trial.anchor: trial for trial in story.trials}
    keep = [i for i, column in enumerate(wide.columns) if column.name not in hidden]
    outcome = next(i for i, column in enumerate(wide.columns) if column.name == "outcome")
    rows = []
    for row in wide.rows:
        values, trial = list(row.values), trials[row.anchor]
        if trial.invalid_reasons:
            why = ", ".join(trial.invalid_reasons)
            values[outcome] = text(f"{trial.outcome}: {why}")
        rows.append(Row(values=tuple(values[i] for i in keep), anchor=row.anchor, mark=row.mark))
    columns = tuple(wide.columns[i] for i in keep)
    if apart := words_of_trials(outlying(story)):
        columns = (*columns, Column(name="apart", title="Stands apart", help="from its cell"))
        rows = [replace(r, values=(*r.values, text(apart.get(r.anchor, "")))) for r in rows]
    return replace(wide, columns=columns, rows=tuple(rows))


SPREAD_FIGURES = (
    ("offered_pps", "Offered, packets/s", numbers.count),
    ("loss_ratio", "Loss, %", numbers.percent),
    ("activation_s", "Activation, s", numbers.seconds),
    ("sut_cpu_s", "SUT CPU, s", numbers.seconds),
)


def spread_table(story: Story) -> Table:
    """Smallest to largest run of each cell, with its middle half."""
    columns = [Column(name="cell", title="Cell"), numeric("n", "n")]
    for name, title, _ in SPREAD_FIGURES:
        columns.append(Column(name=f"{name}_range", title=f"{title}: all runs"))
        columns.append(
            Column(name=f"{name}_quartiles", title="middle half", help="from quartile to quartile")
        )
    rows = []
    for cell in story.cells:
        values = [text(cell.label), _count(len(cell.valid))]
        for name, _, shown in SPREAD_FIGURES:
            found = cell.summary(name)
            quartiles = found.quartiles if found else None
            for ends in ((found.low, found.high) if found else None, quartiles):
                values.append(text(f"{shown(ends[0])} to {shown(ends[1])}" if ends else "–"))
        rows.append(Row(values=tuple(values), mark=""))
    return bounded.shortened(
        Table(name="spread", title="Spread between runs", columns=tuple(columns), rows=tuple(rows)),
        file="cells",
    )


LEDGER_COLUMNS = (
    Column(name="run_directory", title="Run directory"),
    Column(name="run", title="Run"),
    Column(name="step", title="Step"),
    Column(name="entry", title="Entry"),
    Column(name="class", title="Class"),
    numeric(
        "packets",
        "Packets",
        "signed: what it does to the stream; without a sign: packets that went on with other "
        "bytes, or that the decoder calls invalid",
    ),
    numeric("bytes", "Bytes", "of their frames, signed; the least, if that is all that is known"),
    numeric("bytes_most", "at most", "of the bytes, if they are not exactly known"),
    Column(name="counter", title="Counter"),
    Column(name="evidence", title="Evidence"),
    Column(name="knob", title="Knob"),
)


def ledger_table(story: Story) -> Table:
    rows = Made(lambda: _ledger_rows(story))
    return Table(name="ledger", title="Ledger", columns=LEDGER_COLUMNS, rows=rows)


def _ledger_rows(story: Story) -> Iterator[Row]:
    for trial in story.trials:
        head = (text(story.sources[trial.source].name), text(trial.name))
        for line in ledger_lines(trial.ledger):
            yield Row(values=(*head, *line))


def ledger_lines(ledger: Ledger | None) -> list[tuple[Value, ...]]:
    """Hop, then what happened on the way to the next one, then the step's residual."""
    if ledger is None:
        return []
    lines: list[tuple[Value, ...]] = []
    into = {step.end.name: step for step in ledger.steps}
    of_bytes = {step.end.name: step for step in ledger.byte_steps}
    for hop in ledger.hops:
        if step := into.get(hop.name):
            name = text(f"{step.start.name} → {step.end.name}")
            ways = {step.end.name, *step.over}
            aside = [a for a in ledger.accounts if a.into in ways and a.kind in NO_PACKETS]
            for a in (*step.accounts, *(a for a in aside if a.kind is not Class.NOT_FOR_US)):
                head = name, text(a.name), text(a.kind.value), _moved(a), *_moved_bytes(a)
                lines.append((*head, text(a.counter), text(a.evidence), text(a.knob)))
            bytes = of_bytes.get(hop.name)
            lines.append(
                (
                    name,
                    *[text("residual")] * 2,
                    _signed(step.residual_packets),
                    *_no_more(_signed(bytes.residual_bytes) if bytes else NOTHING),
                    text(""),
                    text(_slack_words(bytes)),
                    text(""),
                )
            )
        seen = Value(raw=hop.packets, shown=numbers.count(hop.packets))
        blind = "" if hop.packets is not None else "not visible from the host"
        counted_bytes = NOTHING if hop.bytes is None else _count(hop.bytes)
        lines.append(
            (
                *[text(hop.name)] * 2,
                text("hop"),
                seen,
                *_no_more(counted_bytes),
                text(hop.counter),
                text(blind),
                text(""),
            )
        )
    return lines


NOTHING = Value(raw=None, shown="")


def _no_more(bytes: Value) -> tuple[Value, Value]:
    return bytes, NOTHING


def _moved(account: Account) -> Value:
    n = account.packets
    if account.kind in NO_PACKETS:
        return _count(n)
    return _signed(n if account.kind in ADDING else -n)


def _moved_bytes(account: Account) -> tuple[Value, Value]:
    sign = 1 if account.kind in ADDING or account.kind is Class.PADDED else -1
    if account.bytes is not None:
        return _no_more(_signed(sign * account.bytes))
    if account.bytes_between is None:
        return NOTHING, NOTHING
    least, most = (_signed(sign * bytes) for bytes in account.bytes_between)
    return least, most


def _slack_words(step: ByteStep | None) -> str:
    if step is None or step.residual_bytes is None or step.slack_bytes == 0:
        return ""
    if step.slack_bytes is None:
        return "bytes: packets in classes may have had any length"
    return f"bytes: exact to {step.slack_bytes:,}, for packets in classes may be long or short ones"


def _signed(value: int | None) -> Value:
    return Value(raw=value, shown=numbers.signed(value))


def _count(value: int | None) -> Value:
    return Value(raw=value, shown=numbers.count(value))


def _micros(value: float | None) -> Value:
    return Value(raw=value, shown=numbers.micros(value))


def _percent(ratio: float | None) -> Value:
    return Value(raw=None if ratio is None else ratio * 100, shown=numbers.percent(ratio))


def _whole_percent(ratio: float | None) -> str:
    return numbers.NOT_MEASURED if ratio is None else f"{ratio * 100:.0f}"


def _median(summary: Summary | None, shown: numbers.Shown, scale: float = 1) -> Value:
    return scaled(summary.median if summary else None, shown, scale)


def _worst_lateness(cell: Cell) -> Value:
    found = [t.record.offered.schedule_error_us for t in cell.valid]
    return _micros(max((late.p99 for late in found if late), default=None))
