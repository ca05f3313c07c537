"""Detections beside packets: what each load cost of both, and which signatures suffered first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from nodrop.report import numbers
from nodrop.report.costs import DETECTION_FIGURE
from nodrop.report.story import Cell, Story
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, scaled, text, with_ends
from nodrop.results.records import Detections, MissedByFlow

WORDS = (
    "A unit is a signature in a flow, or for the address that it tracks if it limits its alerts: "
    "seen or not, however many alerts it gave. Surplus is never set off against missed ones"
)

COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("valid_trials", "n", "measured trials with detections"),
    numeric("loss_pct_median", "Packet loss, %"),
    numeric("detection_loss_pct_median", "Detection loss, %", "missed of expected units; median"),
    numeric("detection_loss_pct_low", "from, %", "lower end of the 95 % interval"),
    numeric("detection_loss_pct_high", "to, %", "upper end of the 95 % interval"),
    numeric("detection_loss_pct_smallest", "Smallest run, %"),
    numeric("detection_loss_pct_largest", "Largest run, %"),
    numeric("expected", "Expected", "units that lossless trials see"),
    numeric("missed_median", "Missed"),
    numeric("missed_in_lossy_flows", "… flow lost packets", "missed units by their flows, median"),
    numeric("missed_in_whole_flows", "… flow whole", "missed though no packet of the flow lacks"),
    numeric("missed_in_unseen_flows", "… flow not seen"),
    numeric("surplus_largest", "Surplus, at most", "seen and not expected"),
    numeric("uncertain", "Uncertain", "of the baseline: seen in some of its trials; in no ratio"),
    Column(name="no_ratio", title="Why no ratio"),
)
CLASS_COLUMNS = (
    Column(name="cell", title="Cell"),
    Column(name="class", title="Class of signatures"),
    numeric("expected", "Expected"),
    numeric("missed_median", "Missed, median"),
    numeric("missed_largest", "Missed, at most"),
    numeric("missed_pct_median", "Missed, %"),
)
MOST_CLASSES = 20


def detection_tables(story: Story) -> Sequence[Table]:
    """None, if no experiment asked for detections."""
    cells = [cell for cell in story.cells if any(_known(cell))]
    if not cells:
        return ()
    said = dict.fromkeys(one.baseline_words for cell in cells for one in _known(cell))
    first = Table(
        name="detections",
        title="Lost detections",
        columns=COLUMNS,
        rows=Made(lambda: map(_row, cells)),
        words=(WORDS, *(f"Baseline: {words}" for words in said if words)),
    )
    lossy = [cell for cell in cells if any(one.missed for one in _known(cell))]
    if not lossy:
        return (first,)
    classes = Table(
        name="detection-classes",
        title="Which detections are lost first",
        columns=CLASS_COLUMNS,
        rows=Made(lambda: (row for cell in lossy for row in _class_rows(cell))),
    )
    return first, classes


def _known(cell: Cell) -> Iterator[Detections]:
    yield from (trial.detections for trial in cell.valid if trial.detections)


def _row(cell: Cell) -> Row:
    found, loss = [*_known(cell)], cell.loss
    ratio = DETECTION_FIGURE.summary(cell)
    low, high = (ratio.low, ratio.high) if ratio else (None, None)
    return Row(
        anchor=cell.typical.anchor,
        values=(
            text(cell.label),
            _count(len(found)),
            scaled(loss.median if loss else None, numbers.percent, 100),
            *(_percent(value.raw) for value in with_ends(ratio, numbers.percent)),
            _percent(low),
            _percent(high),
            _largest(one.expected for one in found),
            _median([one.missed for one in found if one.missed is not None]),
            *(
                _median([getattr(by, kind) for one in found if (by := one.missed_by_flow)])
                for kind in MissedByFlow.model_fields
            ),
            _largest(one.surplus for one in found),
            _largest(one.uncertain for one in found),
            text("; ".join(dict.fromkeys(one.no_ratio for one in found if one.no_ratio))),
        ),
    )


def _class_rows(cell: Cell) -> Iterator[Row]:
    """Most missed first; by the signatures' own classes."""
    by_class: dict[str, list[tuple[int, int]]] = {}
    for one in _known(cell):
        for kind in one.classes:
            by_class.setdefault(kind.name, []).append((kind.expected, kind.missed))
    worst = sorted(by_class.items(), key=lambda item: (-_share(item[1]), item[0]))
    for name, counted in worst[:MOST_CLASSES]:
        expected, missed = max(e for e, _ in counted), [m for _, m in counted]
        yield Row(
            values=(
                text(cell.label),
                text(name or "(none)"),
                _count(expected),
                _median(missed),
                _largest(missed),
                _percent(_share(counted) * 100),
            )
        )


def _share(counted: Sequence[tuple[int, int]]) -> float:
    return median(missed / expected if expected else 0.0 for expected, missed in counted)


def _percent(value: object) -> Value:
    """Value of a figure that is in per cent already."""
    known = float(value) if isinstance(value, int | float) else None
    return scaled(known, DETECTION_FIGURE.shown)


def _count(value: float | None) -> Value:
    return scaled(value, numbers.count)


def _median(values: Sequence[int]) -> Value:
    return _count(median(values) if values else None)


def _largest(values: Iterable[int | None]) -> Value:
    known = [value for value in values if value is not None]
    return _count(max(known, default=None))
