"""The report's tables: cells, trials, the books hop by hop, and detections beside packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import ADDING, NO_PACKETS, Account, Class
from nodrop.ledger.level import QueueLevel
from nodrop.report import bounded, escape, numbers
from nodrop.report.costs import DETECTION_FIGURE
from nodrop.report.repeats import outlying
from nodrop.report.sections import figures_of_others
from nodrop.report.sentences import counted
from nodrop.report.story import RunCell, Story, by_key, once
from nodrop.report.tables import (
    Column,
    Field,
    Made,
    Row,
    Table,
    Value,
    empty,
    interval_fields,
    number,
    numeric,
    scaled,
    table_of,
    text,
    without,
    words,
)
from nodrop.report.trials import StoredTrial
from nodrop.results.detection_books import Detections
from nodrop.results.trial import TrialRecord


def _median(
    name: str, title: str, figure: str, shown: numbers.Shown, scale: float = 1, help: str = ""
) -> Field[RunCell]:
    return number(name, title, lambda c: c.median(figure), shown, scale=scale, help=help)


CELL_FIELDS: tuple[Field[RunCell], ...] = (
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
    *interval_fields(
        ("loss_pct_median", "loss_pct_low", "loss_pct_high"),
        ("Loss, %", "Loss from, %", "Loss to, %"), lambda c: c.loss, numbers.percent, scale=100,
        help="lost of sent packets; median of the measured trials"),
    words("interval", "95 % interval",
          lambda c: "no measured trial" if c.loss is None
          else "" if c.loss.interval else c.loss.why_no_interval),
    number("loss_pct_smallest", "Smallest run, %", lambda c: c.loss.low if c.loss else None,
           numbers.percent, scale=100),
    number("loss_pct_largest", "Largest run, %", lambda c: c.loss.high if c.loss else None,
           numbers.percent, scale=100),
    words("loss_place", "Lost in", lambda c: c.loss_place or ""),
    number("schedule_error_p99_us_worst", "Late p99, ms",
           lambda c: max((e.p99 for t in c.valid if (e := t.record.offered.schedule_error_us)),
                         default=None), numbers.millis, help="worst trial's p99 schedule error"),
    _median("activation_s_median", "Activation, s", "activation_s", numbers.seconds,
            help="launch call to SUT ready"),
    _median("sut_cpu_s_median", "SUT CPU, s", "sut_cpu_s", numbers.seconds),
    _median("setup_cpu_s_median", "Setup CPU, s", "setup_cpu_s", numbers.seconds,
            help="the SUT, and what works for it on the host"),
    _median("host_cpu_pct_median", "Host CPU, %", "host_cpu_ratio", numbers.whole_percent, 100),
    _median("sut_rss_peak_mib_median", "Peak memory, MiB", "sut_rss_peak_bytes",
            numbers.mebibytes, 2**-20),
)  # fmt: skip
ON = "of the fleet, or the host: which measured it"
PAIRS: Field[RunCell] = words("pairs", "Pair", lambda c: escape.plain(", ".join(c.pairs)), ON)

CELL_PAGE_COLUMNS = (
    "cell", "loss_pct_median", "interval", "loss_place", "lossy_trials", "valid_trials",
    "failed_trials", "void_trials", "offered_pps_median", "offered_mbps_median",
    "schedule_error_p99_us_worst", "activation_s_median", "sut_cpu_s_median",
    "setup_cpu_s_median", "host_cpu_pct_median", "sut_rss_peak_mib_median",
)  # fmt: skip
"""Columns of the page's table of cells; those that decide stand first."""


OF_PACKETS = {"loss_place", "offered_pps_median", "offered_mbps_median"}
"""Columns that the page leaves out if all loads were transactions."""
TRIAL_COLUMNS_OF_PACKETS = {
    *("captured_packets", "decoded_packets", "merged_packets", "residual_packets", "loss_place"),
    *("offered_pps", "imbalance_pct", "lost_packets", "loss_pct"),
}
TRIAL_COLUMNS_OF_TRANSACTIONS = {"failed_transactions", "failures_pct"}
IN_EACH_BLOCK = ("invalid_reasons", "schedule_error_p50_us", "schedule_error_max_us", "verdict")
OFTEN_EMPTY = {
    *("cut_packets", "invalid_packets", "residual_bytes", "apart"),
    *("ring_peak_pct", "ring_excess_pct"),
}
IN_WORDS = ("failed_trials", "void_trials")
"""Columns of cells that name the reasons beside the number, on the page."""
ANSWERED_TITLES = {"loss_pct_median": "Failed, %", "lossy_trials": "Trials with failures"}


@once
def cells_table(story: Story) -> Table:
    fields = (*CELL_FIELDS, *([PAIRS] if _fleet(story) else []), *_of_others(story))
    return table_of(
        "cells", "Cells: medians over measured trials", fields, story.cells,
        anchor=lambda cell: cell.typical.anchor, mark=lambda cell: cell.mark,
    )  # fmt: skip


def _of_others(story: Story) -> Iterator[Field[RunCell]]:
    """Figures that some cell has: one of transactions says nothing of packets."""
    found = [f for f in figures_of_others() if any(map(f.summary, story.cells))]
    yield from (
        number(f"{f.name}_median", f"{f.title}, {f.unit}", f.median, f.shown, help=f.help)
        for f in found
    )


def _again(table: Table, name: str, other: str) -> set[str]:
    """The first column, if every row has the second one's values there."""
    at = [[column.name for column in table.columns].index(one) for one in (name, other)]
    same = all(row.values[at[0]] == row.values[at[1]] for row in table.rows)
    return {name} if same else set()


def _codes(trials: Sequence[StoredTrial]) -> str:
    found = counted(trials)
    if set(found.values()) == {len(trials)}:
        return ", ".join(sorted(found))  # each of them
    return ", ".join(f"{code} ({n})" for code, n in sorted(found.items()))


def cells_page_table(story: Story) -> Table:
    """Table of cells for the page: the interval stands beside its median."""
    wide = cells_table(story)
    at = {column.name: i for i, column in enumerate(wide.columns)}
    pairs = [PAIRS.column.name] if PAIRS.column.name in at else []
    first, *others = (*CELL_PAGE_COLUMNS, *(field.column.name for field in _of_others(story)))
    again = _again(wide, "setup_cpu_s_median", "sut_cpu_s_median")
    hidden = again | OF_PACKETS if story.answered else again
    keep = [at[name] for name in (first, *pairs, *others) if name not in hidden]
    rows = []
    for cell, row in zip(story.cells, wide.rows, strict=True):
        values = list(row.values)
        if cell.loss and (found := cell.loss.interval):
            shown = numbers.between(found.low, found.high, numbers.percent)
            values[at["interval"]] = Value(found.low, shown)
        for name, trials in zip(IN_WORDS, (cell.failed, cell.void), strict=True):
            if trials:
                values[at[name]] = Value(len(trials), f"{len(trials)}: {_codes(trials)}")
        rows.append(replace(row, values=tuple(values[i] for i in keep)))
    titles = ANSWERED_TITLES if story.answered else {}
    columns = tuple(
        replace(c, title=titles.get(c.name, c.title), numeric=c.numeric and c.name not in IN_WORDS)
        for c in (wide.columns[i] for i in keep)
    )
    return bounded.shortened(replace(wide, columns=columns, rows=rows))


@dataclass(frozen=True, slots=True)
class _Line:
    """A trial beside its run directory and its cell; its record is unpacked once."""

    trial: StoredTrial
    r: TrialRecord
    source: str
    label: str

    @property
    def queue(self) -> QueueLevel | None:
        return self.r.packets.queue

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
    number("failed_transactions", "Failed",
           lambda x: None if (b := x.r.transactions) is None else b.failed,
           help="rejected, timed out or aborted"),
    number("failures_pct", "Failed, %",
           lambda x: None if (b := x.r.transactions) is None else b.failed_ratio,
           numbers.percent, scale=100),
    number("ring_peak_pct", "Ring at most, %",
           lambda x: x.queue.highest_ratio if x.queue else None,
           numbers.whole_percent, scale=100, help="the SUT's fullest capture ring at its fullest"),
    number("ring_excess_pct", "Ring and lost, %", lambda x: x.queue.excess if x.queue else None,
           numbers.whole_percent, scale=100,
           help="highest level and lost packets of what the ring holds: 100 at its limit"),
    number("offered_pps", "Offered, packets/s", lambda x: x.r.figure("offered_pps")),
    number("schedule_error_p50_us", "Late p50, ms", lambda x: x.late("p50"), numbers.millis),
    number("schedule_error_p99_us", "Late p99, ms", lambda x: x.late("p99"), numbers.millis),
    number("schedule_error_max_us", "Late max, ms", lambda x: x.late("max"), numbers.millis),
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
OUTCOME: Field[_Line] = words(
    "outcome", "Outcome", lambda x: ": ".join(filter(None, (
        x.trial.outcome, ", ".join(x.trial.invalid_reasons)))),
)  # fmt: skip
PAIR: Field[_Line] = words("pair", "Pair", lambda x: escape.plain(x.trial.pair or ""), ON)


def trials_table(story: Story) -> Table:
    return _trials(story, story.trials, _trial_fields(story))


def _trial_fields(story: Story) -> Sequence[Field[_Line]]:
    fields = (*TRIAL_FIELDS, PAIR) if _fleet(story) else TRIAL_FIELDS
    answered = any(cell.answered for cell in story.cells)
    hidden = set() if answered else TRIAL_COLUMNS_OF_TRANSACTIONS
    return [field for field in fields if field.column.name not in hidden]


def _trials(story: Story, trials: Sequence[StoredTrial], fields: Sequence[Field[_Line]]) -> Table:
    labels = {t.anchor: cell.label for cell in story.cells for t in cell.trials}

    def lines() -> Iterator[_Line]:
        for trial in trials:
            source, label = story.sources[trial.source].name, labels[trial.anchor]
            yield _Line(trial, trial.record, source, label)

    return table_of(
        "trials", "Trials", fields, Made(lines),
        anchor=lambda line: line.trial.anchor, mark=lambda line: line.trial.mark,
    )  # fmt: skip


def _fleet(story: Story) -> bool:
    return any(cell.pairs for cell in story.cells)


@once
def trials_page_table(story: Story) -> Table:
    """Table of trials for the page, without what each trial's own block says; in a long run, those
    that are told there."""
    told = bounded.told(story)
    apart = by_key((one.trial.anchor, one.words) for one in outlying(story))
    stands: Field[_Line] = words(
        "apart", "Stands apart", lambda x: "; ".join(apart.get(x.trial.anchor, ())), "from its cell"
    )
    fields = {field.column.name: field for field in (*_trial_fields(story), OUTCOME, stands)}
    trials = [trial for trial in story.trials if trial.anchor in told]
    table = _trials(story, trials, [*fields.values()])
    more = bounded.more_words(len(story.trials) - len(told), "trials.csv")
    table = replace(table, rows=tuple(table.rows), more=more)
    hidden = {
        *IN_EACH_BLOCK,
        *(OFTEN_EMPTY & empty(table)),
        *_again(table, "setup_cpu_s", "sut_cpu_s"),
        *(TRIAL_COLUMNS_OF_PACKETS if story.answered else ()),
        *(() if story.several else ("run_directory",)),
    }
    return without(table, hidden)


LEDGER_COLUMNS = (
    Column("run_directory", "Run directory"),
    Column("run", "Run"),
    Column("step", "Step"),
    Column("entry", "Entry"),
    Column("class", "Class"),
    numeric("packets", "Packets", "signed: what it does to the stream; without a sign: packets "
            "that went on with other bytes, or that the decoder calls invalid"),
    numeric("bytes", "Bytes", "of their frames, signed; the least, if that is all that is known"),
    numeric("bytes_most", "at most", "of the bytes, if they are not exactly known"),
    Column("counter", "Counter"),
    Column("evidence", "Evidence"),
    Column("knob", "Knob"),
)  # fmt: skip


def ledger_table(story: Story) -> Table:
    def rows() -> Iterator[Row]:
        for trial in story.trials:
            head = (text(story.sources[trial.source].name), text(trial.name))
            yield from (Row((*head, *line)) for line in ledger_lines(trial.ledger))

    return Table(name="ledger", title="Ledger", columns=LEDGER_COLUMNS, rows=Made(rows))


Line = tuple[Value, ...]


def ledger_lines(ledger: Ledger | None) -> Iterator[Line]:
    """Hop, then what happened on the way to the next one, then the step's residual."""

    def line(
        step: str, entry: str, kind: str, packets: Value, bytes: tuple[Value, Value], *said: str
    ) -> Line:
        """`said`: counter, evidence and knob."""
        written = (*said, "", "")[:3]
        return (*map(text, (step, entry, kind)), packets, *bytes, *map(text, written))

    into = {step.end.name: step for step in ledger.steps} if ledger else {}
    of_bytes = {step.end.name: step for step in ledger.byte_steps} if ledger else {}
    for hop in ledger.hops if ledger else ():
        if ledger and (step := into.get(hop.name)):
            name = f"{step.start.name} → {step.end.name}"
            ways = {step.end.name, *step.over}
            aside = [a for a in ledger.accounts if a.into in ways and a.kind in NO_PACKETS]
            for a in (*step.accounts, *(a for a in aside if a.kind is not Class.NOT_FOR_US)):
                yield line(name, a.name, a.kind.value, *_moved(a), a.counter, a.evidence, a.knob)
            books = of_bytes.get(hop.name)
            residual = scaled(books.residual_bytes, numbers.signed) if books else NOTHING
            slack = ""
            if books and books.residual_bytes is not None and books.slack_bytes != 0:
                slack = "bytes: packets in classes may have had any length"
                if (n := books.slack_bytes) is not None:
                    slack = (
                        f"bytes: exact to {n:,}, for packets in classes may be long or short ones"
                    )
            packets = scaled(step.residual_packets, numbers.signed)
            yield line(name, "residual", "residual", packets, (residual, NOTHING), "", slack)
        blind = "" if hop.packets is not None else "not visible from the host"
        counted = NOTHING if hop.bytes is None else scaled(hop.bytes, numbers.count)
        seen = scaled(hop.packets, numbers.count)
        yield line(hop.name, hop.name, "hop", seen, (counted, NOTHING), hop.counter, blind)


NOTHING = Value(None, "")


def _moved(account: Account) -> tuple[Value, tuple[Value, Value]]:
    """Packets, and the least and the most of their bytes."""
    n, adds = account.packets, account.kind in ADDING
    moved = scaled(n if adds else -n, numbers.signed)
    packets = scaled(n, numbers.count) if account.kind in NO_PACKETS else moved
    sign, one = 1 if adds or account.kind is Class.PADDED else -1, (account.bytes, None)
    ends = account.bytes_between if account.bytes is None and account.bytes_between else one
    least, most = (NOTHING if n is None else scaled(sign * n, numbers.signed) for n in ends)
    return packets, (least, most)


DETECTION_WORDS = (
    "A unit is a signature in a flow, or for the address that it tracks if it limits its alerts: "
    "seen or not, however many alerts it gave. Surplus is never set off against missed ones"
)
MOST_CLASSES = 20


def detection_tables(story: Story) -> Sequence[Table]:
    cells = [cell for cell in story.cells if any(_known(cell))]
    if not cells:
        return ()
    said = dict.fromkeys(one.baseline_words for cell in cells for one in _known(cell))
    first = table_of(
        "detections", "Lost detections", DETECTION_FIELDS, cells,
        anchor=lambda cell: cell.typical.anchor,
        words=(DETECTION_WORDS, *(f"Baseline: {words}" for words in said if words)),
    )  # fmt: skip
    lossy = [cell for cell in cells if any(one.missed for one in _known(cell))]
    if not lossy:
        return (first,)
    title, classes = "Which detections are lost first", Made(lambda: _classes(lossy))
    return first, table_of("detection-classes", title, CLASS_FIELDS, classes)


def _known(cell: RunCell) -> Iterator[Detections]:
    yield from (trial.detections for trial in cell.valid if trial.detections)


def _classes(cells: Sequence[RunCell]) -> Iterator[SignatureClass]:
    """Most missed first; by the signatures' own classes."""
    for cell in cells:
        kinds = (kind for one in _known(cell) for kind in one.classes)
        by_class = by_key((kind.name, (kind.expected, kind.missed)) for kind in kinds)
        worst = sorted(by_class.items(), key=lambda item: (-_share(item[1]), item[0]))
        yield from ((cell, name, counted) for name, counted in worst[:MOST_CLASSES])


def _share(counted: Sequence[tuple[int, int]]) -> float:
    return median(missed / expected if expected else 0.0 for expected, missed in counted)


Of = Callable[[Detections], float | None]


def _over(
    name: str, title: str, whole: Callable[[Sequence[float]], float], of: Of, help: str = ""
) -> Field[RunCell]:
    """The middle or the largest of all trials of a cell."""

    def value(cell: RunCell) -> float | None:
        known = [value for one in _known(cell) if (value := of(one)) is not None]
        return whole(known) if known else None

    return number(name, title, value, help=help)


DETECTION_FIELDS: tuple[Field[RunCell], ...] = (
    words("cell", "Cell", lambda cell: cell.label),
    number("valid_trials", "n", lambda cell: len([*_known(cell)]),
           help="measured trials with detections"),
    _median("loss_pct_median", "Packet loss, %", "loss_ratio", numbers.percent, 100),
    *interval_fields(
        ("detection_loss_pct_median", "detection_loss_pct_low", "detection_loss_pct_high"),
        ("Detection loss, %", "from, %", "to, %"), DETECTION_FIGURE.summary,
        DETECTION_FIGURE.shown, help="missed of expected units; median"),
    number("detection_loss_pct_smallest", "Smallest run, %",
           lambda cell: min(DETECTION_FIGURE.values(cell), default=None), DETECTION_FIGURE.shown),
    number("detection_loss_pct_largest", "Largest run, %",
           lambda cell: max(DETECTION_FIGURE.values(cell), default=None), DETECTION_FIGURE.shown),
    _over("expected", "Expected", max, lambda one: one.expected, "units that lossless trials see"),
    _over("missed_median", "Missed", median, lambda one: one.missed),
    _over("missed_in_lossy_flows", "… flow lost packets", median,
          lambda one: by.lost_packets if (by := one.missed_by_flow) else None,
          "missed units by their flows, median"),
    _over("missed_in_whole_flows", "… flow whole", median,
          lambda one: by.whole if (by := one.missed_by_flow) else None,
          "missed though no packet of the flow lacks"),
    _over("missed_in_unseen_flows", "… flow not seen", median,
          lambda one: by.not_seen if (by := one.missed_by_flow) else None),
    _over("surplus_largest", "Surplus, at most", max, lambda one: one.surplus,
          "seen and not expected"),
    _over("uncertain", "Uncertain", max, lambda one: one.uncertain,
          "of the baseline: seen in some of its trials; in no ratio"),
    _over("clocked", "With a clock", max, lambda one: one.clocked or None,
          "units of rules that count in seconds or ask for bits that expire; left out at other "
          "speeds than the trace's"),
    words("clocked_rules", "Rules with a clock", lambda cell: ", ".join(
        dict.fromkeys(rule for one in _known(cell) for rule in one.clocked_rules))),
    words("no_ratio", "Why no ratio", lambda cell: "; ".join(
        dict.fromkeys(one.no_ratio for one in _known(cell) if one.no_ratio))),
)  # fmt: skip
SignatureClass = tuple[RunCell, str, Sequence[tuple[int, int]]]
"""Expected and missed units of a class of signatures, trial by trial."""
CLASS_FIELDS: tuple[Field[SignatureClass], ...] = (
    words("cell", "Cell", lambda x: x[0].label),
    words("class", "Class of signatures", lambda x: x[1] or "(none)"),
    number("expected", "Expected", lambda x: max(expected for expected, _ in x[2])),
    number("missed_median", "Missed, median", lambda x: median(missed for _, missed in x[2])),
    number("missed_largest", "Missed, at most", lambda x: max(missed for _, missed in x[2])),
    number("missed_pct_median", "Missed, %", lambda x: _share(x[2]) * 100, DETECTION_FIGURE.shown),
)
