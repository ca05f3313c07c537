"""The report's tables: cells, trials, and the books hop by hop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap

from nodrop.ledger.balance import ByteStep, Ledger
from nodrop.ledger.hops import ADDING, NO_PACKETS, Account, Class
from nodrop.report import bounded, escape, numbers
from nodrop.report.costs import Figure
from nodrop.report.repeats import outlying, words_of_trials
from nodrop.report.sections import figures_of_others
from nodrop.report.senders import counted
from nodrop.report.story import Cell, Story, once
from nodrop.report.tables import (
    Column,
    Field,
    Made,
    Row,
    Table,
    Value,
    columns_of,
    number,
    numeric,
    scaled,
    table_of,
    text,
    values_of,
    words,
)
from nodrop.report.trials import Trial
from nodrop.results.trial import ScheduleErrorUs, TrialRecord
from nodrop.stats.interval import Summary


def _median(
    name: str, title: str, figure: str, shown: numbers.Shown, scale: float = 1, help: str = ""
) -> Field[Cell]:
    return number(
        name, title, lambda c: s.median if (s := c.summary(figure)) else None, shown,
        scale=scale, help=help,
    )  # fmt: skip


def _of_loss(
    name: str, title: str, of: Callable[[Summary], float | None], help: str = ""
) -> Field[Cell]:
    return number(
        name, title, lambda c: of(c.loss) if c.loss else None, numbers.percent,
        scale=100, help=help,
    )  # fmt: skip


def _no_interval(cell: Cell) -> str:
    if cell.loss is None:
        return "no measured trial"
    return "" if cell.loss.interval else cell.loss.why_no_interval


CELL_FIELDS: tuple[Field[Cell], ...] = (
    words("cell", "Cell", lambda c: c.label),
    number("valid_trials", "n", lambda c: len(c.valid),
           help="measured trials; only these enter the figures"),
    number("failed_trials", "Failed", lambda c: len(c.failed),
           help="the SUT died, hung or was killed: a result about it"),
    number("void_trials", "Void", lambda c: len(c.void),
           help="instrument or sender: they say nothing about the SUT"),
    words("invalid_reasons", "Why failed or void", lambda c: _codes((*c.failed, *c.void))),
    _median("offered_pps_median", "Offered, packets/s", "offered_pps", numbers.count,
            help="really sent; median of the trials"),
    _median("offered_mbps_median", "Offered, Mbit/s", "offered_bps", numbers.megabits, 1e-6),
    number("lossy_trials", "Trials with loss", lambda c: len(c.lossy),
           help="measured trials that lost at least one packet"),
    _of_loss("loss_pct_median", "Loss, %", lambda s: s.median,
             "lost of sent packets; median of the measured trials"),
    _of_loss("loss_pct_low", "Loss from, %", lambda s: s.interval.low if s.interval else None,
             "lower end of the 95 % interval"),
    _of_loss("loss_pct_high", "Loss to, %", lambda s: s.interval.high if s.interval else None,
             "upper end of the 95 % interval"),
    words("interval", "95 % interval", _no_interval),
    _of_loss("loss_pct_smallest", "Smallest run, %", lambda s: s.low),
    _of_loss("loss_pct_largest", "Largest run, %", lambda s: s.high),
    words("loss_place", "Lost in", lambda c: c.loss_place or ""),
    number("schedule_error_p99_us_worst", "Late p99, µs", lambda c: _worst_lateness(c),
           numbers.micros, help="worst trial's p99 schedule error"),
    _median("activation_s_median", "Activation, s", "activation_s", numbers.seconds,
            help="launch call to SUT ready"),
    _median("sut_cpu_s_median", "SUT CPU, s", "sut_cpu_s", numbers.seconds),
    _median("setup_cpu_s_median", "Setup CPU, s", "setup_cpu_s", numbers.seconds,
            help="the SUT, and what works for it on the host"),
    _median("host_cpu_pct_median", "Host CPU, %", "host_cpu_ratio", numbers.whole_percent, 100),
    _median("sut_rss_peak_mib_median", "Peak memory, MiB", "sut_rss_peak_bytes",
            numbers.mebibytes, 2**-20),
)  # fmt: skip
PAIRS: Field[Cell] = words(
    "pairs",
    "Pair",
    lambda c: escape.plain(", ".join(c.pairs)),
    "of the fleet, or the host: which measured it",
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
    fields = (*CELL_FIELDS, *([PAIRS] if _fleet(story) else []), *_fields_of_others())
    return Table(
        name="cells",
        title="Cells: medians over measured trials",
        columns=columns_of(fields),
        rows=tuple(
            Row(values_of(fields, cell), cell.typical.anchor, _mark(cell)) for cell in story.cells
        ),
    )


def _mark(cell: Cell) -> str:
    return "failed" if cell.failed else "loss" if cell.lossy else "good" if cell.valid else "void"


def _fields_of_others() -> tuple[Field[Cell], ...]:
    return tuple(map(_of_figure, figures_of_others()))


def _of_figure(figure: Figure) -> Field[Cell]:
    return number(
        f"{figure.name}_median", f"{figure.title}, {figure.unit}",
        lambda c: s.median if (s := figure.summary(c)) else None, figure.shown, help=figure.help,
    )  # fmt: skip


def _codes(trials: Sequence[Trial]) -> str:
    found = counted(trials)
    if set(found.values()) == {len(trials)}:
        return ", ".join(sorted(found))  # each of them
    return ", ".join(f"{code} ({n})" for code, n in sorted(found.items()))


def cells_page_table(story: Story) -> Table:
    """Table of cells for the page: the interval stands beside its median."""
    wide = cells_table(story)
    at = {column.name: i for i, column in enumerate(wide.columns)}
    others = [field.column.name for field in _fields_of_others()]
    keep = [at[name] for name in (*CELL_PAGE_COLUMNS, *others)]
    keep[1:1] = [at[PAIRS.column.name]] if PAIRS.column.name in at else []
    rows = []
    for cell, row in zip(story.cells, wide.rows, strict=True):
        values = list(row.values)
        loss = cell.loss
        if loss and loss.interval:
            shown = numbers.between(loss.interval.low, loss.interval.high, numbers.percent)
            values[at["interval"]] = Value(loss.interval.low, shown)
        for name, trials in (("failed_trials", cell.failed), ("void_trials", cell.void)):
            if trials:
                shown = f"{len(trials)}: {_codes(trials)}"
                values[at[name]] = Value(len(trials), shown)
        rows.append(Row(tuple(values[i] for i in keep), row.anchor, row.mark))
    in_words = ("failed_trials", "void_trials")
    columns = tuple(
        replace(c, numeric=False) if c.name in in_words else c
        for c in (wide.columns[i] for i in keep)
    )
    return bounded.shortened(replace(wide, columns=columns, rows=rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A trial beside its run directory and its cell; its record is unpacked once."""

    trial: Trial
    r: TrialRecord
    source: str
    label: str


def _late(name: str, title: str, of: Callable[[ScheduleErrorUs], float]) -> Field[_Line]:
    return number(
        name, title,
        lambda x: of(late) if (late := x.r.offered.schedule_error_us) else None, numbers.micros,
    )  # fmt: skip


TRIAL_FIELDS: tuple[Field[_Line], ...] = (
    words("run_directory", "Run directory", lambda x: x.source),
    words("run", "Run", lambda x: x.r.run),
    words("cell", "Cell", lambda x: x.label),
    number("repetition", "Repetition", lambda x: x.r.repetition),
    number("index", "Order", lambda x: x.r.index, help="place in the random order of the plan"),
    words("outcome", "Outcome", lambda x: x.r.outcome),
    words("invalid_reasons", "Why failed or void", lambda x: ", ".join(x.r.invalid_reasons)),
    number("intended_packets", "Intended", lambda x: x.r.offered.intended),
    number("offered_packets", "Sent", lambda x: x.r.offered.sent),
    number("captured_packets", "Captured", lambda x: x.r.packets.captured_packets),
    number("decoded_packets", "Decoded", lambda x: x.r.packets.decoded_packets),
    number("lost_packets", "Lost", lambda x: x.r.packets.lost_packets),
    number("merged_packets", "Merged", lambda x: x.r.packets.merged_packets,
           help="taken out by fanout defragmentation"),
    number("cut_packets", "Cut", lambda x: x.r.packets.cut_packets,
           help="decoded, but cut to the room in the ring"),
    number("invalid_packets", "Invalid", lambda x: x.r.packets.invalid_packets,
           help="decoded, and called broken by the decoder"),
    number("residual_packets", "Residual", lambda x: x.r.packets.residual_packets, numbers.signed,
           help="packets in no class"),
    number("residual_bytes", "Residual, bytes", lambda x: x.r.packets.residual_bytes,
           numbers.signed, help="beyond what packets in classes can have had"),
    number("loss_pct", "Loss, %", lambda x: x.r.packets.loss_ratio, numbers.percent, scale=100),
    words("loss_place", "Lost in", lambda x: x.r.packets.loss_place or ""),
    number("offered_pps", "Offered, packets/s", lambda x: x.r.offered.per_s),
    _late("schedule_error_p50_us", "Late p50, µs", lambda late: late.p50),
    _late("schedule_error_p99_us", "Late p99, µs", lambda late: late.p99),
    _late("schedule_error_max_us", "Late max, µs", lambda late: late.max),
    number("activation_s", "Activation, s", lambda x: x.r.activation_s, numbers.seconds),
    number("sut_cpu_s", "SUT CPU, s", lambda x: x.r.sut_cpu_s, numbers.seconds),
    number("setup_cpu_s", "Setup CPU, s", lambda x: x.r.setup_cpu_s, numbers.seconds,
           help="the SUT, and what works for it on the host"),
    number("host_cpu_pct", "Host CPU, %", lambda x: x.r.host_cpu_ratio, numbers.whole_percent,
           scale=100),
    number("sut_rss_peak_mib", "Peak memory, MiB", lambda x: x.r.sut_rss_peak_bytes,
           numbers.mebibytes, scale=2**-20),
    number("imbalance_pct", "Imbalance, %", lambda x: x.r.packets.imbalance_ratio,
           numbers.whole_percent, scale=100, help="what the busiest instance got beyond its share"),
    words("verdict", "Verdict", lambda x: x.r.verdict),
)  # fmt: skip
PAIR: Field[_Line] = words(
    "pair",
    "Pair",
    lambda x: escape.plain(x.trial.pair or ""),
    "of the fleet, or the host: which measured it",
)


def _trial_fields(story: Story) -> Sequence[Field[_Line]]:
    return (*TRIAL_FIELDS, PAIR) if _fleet(story) else TRIAL_FIELDS


def trials_table(story: Story) -> Table:
    rows = Made(lambda: _trial_rows(story, story.trials))
    columns = columns_of(_trial_fields(story))
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
    fields = _trial_fields(story)
    for trial in trials:
        source, label = story.sources[trial.source].name, labels[trial.anchor]
        line = _Line(trial=trial, r=trial.record, source=source, label=label)
        yield Row(values_of(fields, line), trial.anchor, trial.mark)


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
        rows.append(Row(tuple(values[i] for i in keep), row.anchor, row.mark))
    columns = tuple(wide.columns[i] for i in keep)
    if apart := words_of_trials(outlying(story)):
        columns = (*columns, Column("apart", "Stands apart", help="from its cell"))
        rows = [replace(r, values=(*r.values, text(apart.get(r.anchor, "")))) for r in rows]
    return replace(wide, columns=columns, rows=tuple(rows))


SPREAD_FIGURES = (
    ("offered_pps", "Offered, packets/s", numbers.count),
    ("loss_ratio", "Loss, %", numbers.percent),
    ("activation_s", "Activation, s", numbers.seconds),
    ("sut_cpu_s", "SUT CPU, s", numbers.seconds),
)


def _spread(name: str, title: str, shown: numbers.Shown) -> Iterator[Field[Cell]]:
    def ends(of: Callable[[Summary], tuple[float, float] | None]) -> Callable[[Cell], str]:
        def said(cell: Cell) -> str:
            found = cell.summary(name)
            both = of(found) if found else None
            return f"{shown(both[0])} to {shown(both[1])}" if both else "–"

        return said

    yield words(f"{name}_range", f"{title}: all runs", ends(lambda found: (found.low, found.high)))
    quartiles = ends(lambda found: found.quartiles)
    yield words(f"{name}_quartiles", "middle half", quartiles, "from quartile to quartile")


def spread_table(story: Story) -> Table:
    """Smallest to largest run of each cell, with its middle half."""
    fields: list[Field[Cell]] = [
        words("cell", "Cell", lambda cell: cell.label),
        number("n", "n", lambda cell: len(cell.valid)),
        *chain.from_iterable(starmap(_spread, SPREAD_FIGURES)),
    ]
    table = table_of("spread", "Spread between runs", fields, story.cells)
    return bounded.shortened(table, file="cells")


LEDGER_COLUMNS = (
    Column("run_directory", "Run directory"),
    Column("run", "Run"),
    Column("step", "Step"),
    Column("entry", "Entry"),
    Column("class", "Class"),
    numeric(
        "packets",
        "Packets",
        "signed: what it does to the stream; without a sign: packets that went on with other "
        "bytes, or that the decoder calls invalid",
    ),
    numeric("bytes", "Bytes", "of their frames, signed; the least, if that is all that is known"),
    numeric("bytes_most", "at most", "of the bytes, if they are not exactly known"),
    Column("counter", "Counter"),
    Column("evidence", "Evidence"),
    Column("knob", "Knob"),
)


def ledger_table(story: Story) -> Table:
    rows = Made(lambda: _ledger_rows(story))
    return Table(name="ledger", title="Ledger", columns=LEDGER_COLUMNS, rows=rows)


def _ledger_rows(story: Story) -> Iterator[Row]:
    for trial in story.trials:
        head = (text(story.sources[trial.source].name), text(trial.name))
        for line in ledger_lines(trial.ledger):
            yield Row((*head, *line))


Line = tuple[Value, ...]


def ledger_lines(ledger: Ledger | None) -> list[Line]:
    """Hop, then what happened on the way to the next one, then the step's residual."""
    lines: list[Line] = []
    into = {step.end.name: step for step in ledger.steps} if ledger else {}
    of_bytes = {step.end.name: step for step in ledger.byte_steps} if ledger else {}
    for hop in ledger.hops if ledger else ():
        if ledger and (step := into.get(hop.name)):
            name = f"{step.start.name} → {step.end.name}"
            ways = {step.end.name, *step.over}
            aside = [a for a in ledger.accounts if a.into in ways and a.kind in NO_PACKETS]
            for a in (*step.accounts, *(a for a in aside if a.kind is not Class.NOT_FOR_US)):
                said = (a.counter, a.evidence, a.knob)
                lines.append(
                    _ledger_line(name, a.name, a.kind.value, _moved(a), _moved_bytes(a), *said)
                )
            bytes = of_bytes.get(hop.name)
            residual = _no_more(_signed(bytes.residual_bytes) if bytes else NOTHING)
            packets, slack = _signed(step.residual_packets), _slack_words(bytes)
            lines.append(_ledger_line(name, "residual", "residual", packets, residual, "", slack))
        blind = "" if hop.packets is not None else "not visible from the host"
        counted = _no_more(NOTHING if hop.bytes is None else _count(hop.bytes))
        seen = _count(hop.packets)
        lines.append(_ledger_line(hop.name, hop.name, "hop", seen, counted, hop.counter, blind))
    return lines


def _ledger_line(
    step: str, entry: str, kind: str, packets: Value, bytes: tuple[Value, Value],
    counter: str, evidence: str = "", knob: str = "",
) -> Line:  # fmt: skip
    said = (text(counter), text(evidence), text(knob))
    return (text(step), text(entry), text(kind), packets, *bytes, *said)


NOTHING = Value(None, "")


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
    return scaled(value, numbers.signed)


def _count(value: int | None) -> Value:
    return scaled(value, numbers.count)


def _worst_lateness(cell: Cell) -> float | None:
    found = [t.record.offered.schedule_error_us for t in cell.valid]
    return max((late.p99 for late in found if late), default=None)
