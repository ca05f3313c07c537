"""The report's tables: cells, trials, and the books hop by hop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap

from nodrop.ledger.balance import Ledger
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
from nodrop.results.trial import TrialRecord
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
    words("interval", "95 % interval",
          lambda c: "no measured trial" if c.loss is None
          else "" if c.loss.interval else c.loss.why_no_interval),
    _of_loss("loss_pct_smallest", "Smallest run, %", lambda s: s.low),
    _of_loss("loss_pct_largest", "Largest run, %", lambda s: s.high),
    words("loss_place", "Lost in", lambda c: c.loss_place or ""),
    number("schedule_error_p99_us_worst", "Late p99, µs",
           lambda c: max((e.p99 for t in c.valid if (e := t.record.offered.schedule_error_us)),
                         default=None), numbers.micros, help="worst trial's p99 schedule error"),
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
    "cell", "loss_pct_median", "interval", "loss_place", "lossy_trials", "valid_trials",
    "failed_trials", "void_trials", "offered_pps_median", "offered_mbps_median",
    "schedule_error_p99_us_worst", "activation_s_median", "sut_cpu_s_median",
    "setup_cpu_s_median", "host_cpu_pct_median", "sut_rss_peak_mib_median",
)  # fmt: skip
"""Columns of the page's table of cells; those that decide stand first."""


@once
def cells_table(story: Story) -> Table:
    fields = (*CELL_FIELDS, *([PAIRS] if _fleet(story) else []), *_of_others())

    def mark(cell: Cell) -> str:
        worst = "failed" if cell.failed else "loss" if cell.lossy else ""
        return worst or ("good" if cell.valid else "void")

    return table_of(
        "cells", "Cells: medians over measured trials", fields, story.cells,
        anchor=lambda cell: cell.typical.anchor, mark=mark,
    )  # fmt: skip


def _of_others() -> Iterator[Field[Cell]]:
    """Figures of plugins."""

    def middle(figure: Figure) -> Callable[[Cell], float | None]:
        return lambda cell: s.median if (s := figure.summary(cell)) else None

    for figure in figures_of_others():
        name, title = f"{figure.name}_median", f"{figure.title}, {figure.unit}"
        yield number(name, title, middle(figure), figure.shown, help=figure.help)


def _codes(trials: Sequence[Trial]) -> str:
    found = counted(trials)
    if set(found.values()) == {len(trials)}:
        return ", ".join(sorted(found))  # each of them
    return ", ".join(f"{code} ({n})" for code, n in sorted(found.items()))


def cells_page_table(story: Story) -> Table:
    """Table of cells for the page: the interval stands beside its median."""
    wide = cells_table(story)
    at = {column.name: i for i, column in enumerate(wide.columns)}
    pairs = [PAIRS.column.name] if PAIRS.column.name in at else []
    first, *others = (*CELL_PAGE_COLUMNS, *(field.column.name for field in _of_others()))
    keep = [at[name] for name in (first, *pairs, *others)]
    rows = []
    for cell, row in zip(story.cells, wide.rows, strict=True):
        values = list(row.values)
        if cell.loss and (found := cell.loss.interval):
            shown = numbers.between(found.low, found.high, numbers.percent)
            values[at["interval"]] = Value(found.low, shown)
        for name, trials in (("failed_trials", cell.failed), ("void_trials", cell.void)):
            if trials:
                values[at[name]] = Value(len(trials), f"{len(trials)}: {_codes(trials)}")
        rows.append(replace(row, values=tuple(values[i] for i in keep)))
    in_words = ("failed_trials", "void_trials")
    columns = [wide.columns[i] for i in keep]
    shown_as = (replace(c, numeric=False) if c.name in in_words else c for c in columns)
    return bounded.shortened(replace(wide, columns=tuple(shown_as), rows=rows))


@dataclass(frozen=True, slots=True)
class _Line:
    """A trial beside its run directory and its cell; its record is unpacked once."""

    trial: Trial
    r: TrialRecord
    source: str
    label: str

    def late(self, which: str) -> float | None:
        found = self.r.offered.schedule_error_us
        return getattr(found, which) if found else None


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
    number("schedule_error_p50_us", "Late p50, µs", lambda x: x.late("p50"), numbers.micros),
    number("schedule_error_p99_us", "Late p99, µs", lambda x: x.late("p99"), numbers.micros),
    number("schedule_error_max_us", "Late max, µs", lambda x: x.late("max"), numbers.micros),
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
        line = _Line(trial, trial.record, source, label)
        yield Row(values_of(fields, line), trial.anchor, trial.mark)


def trials_page_table(story: Story) -> Table:
    """Table of trials for the page, without what each trial's own block says."""
    hidden = {"invalid_reasons", "schedule_error_p50_us", "schedule_error_max_us", "verdict"}
    if not story.several:
        hidden.add("run_directory")
    wide = trials_told_table(story)
    at = {column.name: i for i, column in enumerate(wide.columns)}
    for name in ("cut_packets", "invalid_packets", "residual_bytes"):
        if all(row.values[at[name]].raw is None for row in wide.rows):
            hidden.add(name)
    trials = {trial.anchor: trial for trial in story.trials}
    apart = words_of_trials(outlying(story))
    keep = [i for name, i in at.items() if name not in hidden]
    rows = []
    for row in wide.rows:
        values, trial = list(row.values), trials[row.anchor]
        if why := ", ".join(trial.invalid_reasons):
            values[at["outcome"]] = text(f"{trial.outcome}: {why}")
        more = [text(apart.get(row.anchor, ""))] if apart else []
        rows.append(replace(row, values=(*(values[i] for i in keep), *more)))
    column = [Column("apart", "Stands apart", help="from its cell")] if apart else []
    return replace(wide, columns=(*(wide.columns[i] for i in keep), *column), rows=tuple(rows))


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
    def rows() -> Iterator[Row]:
        for trial in story.trials:
            head = (text(story.sources[trial.source].name), text(trial.name))
            yield from (Row((*head, *line)) for line in ledger_lines(trial.ledger))

    return Table(name="ledger", title="Ledger", columns=LEDGER_COLUMNS, rows=Made(rows))


Line = tuple[Value, ...]


def ledger_lines(ledger: Ledger | None) -> list[Line]:
    """Hop, then what happened on the way to the next one, then the step's residual."""
    lines: list[Line] = []

    def line(
        step: str, entry: str, kind: str, packets: Value, bytes: tuple[Value, Value], *said: str
    ) -> None:
        """`said`: counter, evidence and knob."""
        written = (*said, "", "")[:3]
        lines.append((*map(text, (step, entry, kind)), packets, *bytes, *map(text, written)))

    into = {step.end.name: step for step in ledger.steps} if ledger else {}
    of_bytes = {step.end.name: step for step in ledger.byte_steps} if ledger else {}
    for hop in ledger.hops if ledger else ():
        if ledger and (step := into.get(hop.name)):
            name = f"{step.start.name} → {step.end.name}"
            ways = {step.end.name, *step.over}
            aside = [a for a in ledger.accounts if a.into in ways and a.kind in NO_PACKETS]
            for a in (*step.accounts, *(a for a in aside if a.kind is not Class.NOT_FOR_US)):
                line(name, a.name, a.kind.value, *_moved(a), a.counter, a.evidence, a.knob)
            books = of_bytes.get(hop.name)
            residual = scaled(books.residual_bytes, numbers.signed) if books else NOTHING
            slack = ""
            if books and books.residual_bytes is not None and books.slack_bytes != 0:
                slack = "bytes: packets in classes may have had any length"
                if books.slack_bytes is not None:
                    slack = f"bytes: exact to {books.slack_bytes:,}, for packets in classes may be "
                    slack += "long or short ones"
            packets = scaled(step.residual_packets, numbers.signed)
            line(name, "residual", "residual", packets, (residual, NOTHING), "", slack)
        blind = "" if hop.packets is not None else "not visible from the host"
        counted = NOTHING if hop.bytes is None else scaled(hop.bytes, numbers.count)
        seen = scaled(hop.packets, numbers.count)
        line(hop.name, hop.name, "hop", seen, (counted, NOTHING), hop.counter, blind)
    return lines


NOTHING = Value(None, "")


def _moved(account: Account) -> tuple[Value, tuple[Value, Value]]:
    """Packets, and the least and the most of their bytes."""
    n = account.packets
    packets = scaled(n if account.kind in ADDING else -n, numbers.signed)
    if account.kind in NO_PACKETS:
        packets = scaled(n, numbers.count)
    sign = 1 if account.kind in ADDING or account.kind is Class.PADDED else -1
    if account.bytes is not None:
        return packets, (scaled(sign * account.bytes, numbers.signed), NOTHING)
    if account.bytes_between is None:
        return packets, (NOTHING, NOTHING)
    least, most = (scaled(sign * bytes, numbers.signed) for bytes in account.bytes_between)
    return packets, (least, most)
