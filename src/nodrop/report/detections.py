"""Detections beside packets: what each load cost of both, and which signatures suffered first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from nodrop.report import numbers
from nodrop.report.costs import DETECTION_FIGURE
from nodrop.report.story import Cell, Story
from nodrop.report.tables import Field, Made, Table, number, table_of, words
from nodrop.results.records import Detections, MissedByFlow
from nodrop.stats.interval import Summary

WORDS = (
    "A unit is a signature in a flow, or for the address that it tracks if it limits its alerts: "
    "seen or not, however many alerts it gave. Surplus is never set off against missed ones"
)

MOST_CLASSES = 20


def detection_tables(story: Story) -> Sequence[Table]:
    """None, if no experiment asked for detections."""
    cells = [cell for cell in story.cells if any(_known(cell))]
    if not cells:
        return ()
    said = dict.fromkeys(one.baseline_words for cell in cells for one in _known(cell))
    first = table_of(
        "detections", "Lost detections", FIELDS, Made(lambda: iter(cells)),
        anchor=lambda cell: cell.typical.anchor,
        words=(WORDS, *(f"Baseline: {words}" for words in said if words)),
    )  # fmt: skip
    lossy = [cell for cell in cells if any(one.missed for one in _known(cell))]
    if not lossy:
        return (first,)
    title, classes = "Which detections are lost first", Made(lambda: _classes(lossy))
    return first, table_of("detection-classes", title, CLASS_FIELDS, classes)


def _known(cell: Cell) -> Iterator[Detections]:
    yield from (trial.detections for trial in cell.valid if trial.detections)


def _classes(cells: Sequence[Cell]) -> Iterator[Class]:
    """Most missed first; by the signatures' own classes."""
    for cell in cells:
        by_class: dict[str, list[tuple[int, int]]] = {}
        for one in _known(cell):
            for kind in one.classes:
                by_class.setdefault(kind.name, []).append((kind.expected, kind.missed))
        worst = sorted(by_class.items(), key=lambda item: (-_share(item[1]), item[0]))
        yield from ((cell, name, counted) for name, counted in worst[:MOST_CLASSES])


def _share(counted: Sequence[tuple[int, int]]) -> float:
    return median(missed / expected if expected else 0.0 for expected, missed in counted)


Of = Callable[[Detections], float | None]


def _over(
    name: str, title: str, whole: Callable[[Sequence[float]], float], of: Of, help: str = ""
) -> Field[Cell]:
    """The middle or the largest of all trials of a cell."""

    def value(cell: Cell) -> float | None:
        known = [value for one in _known(cell) if (value := of(one)) is not None]
        return whole(known) if known else None

    return number(name, title, value, help=help)


def _ratio(
    name: str, title: str, of: Callable[[Summary], float | None], help: str = ""
) -> Field[Cell]:
    """A figure that is in per cent already."""

    def value(cell: Cell) -> float | None:
        found = DETECTION_FIGURE.summary(cell)
        return of(found) if found else None

    return number(name, title, value, DETECTION_FIGURE.shown, help=help)


def _by_flow(
    name: str, title: str, of: Callable[[MissedByFlow], int], help: str = ""
) -> Field[Cell]:
    def value(one: Detections) -> float | None:
        return of(one.missed_by_flow) if one.missed_by_flow else None

    return _over(name, title, median, value, help)


FIELDS: tuple[Field[Cell], ...] = (
    words("cell", "Cell", lambda cell: cell.label),
    number("valid_trials", "n", lambda cell: len([*_known(cell)]),
           help="measured trials with detections"),
    number("loss_pct_median", "Packet loss, %",
           lambda cell: cell.loss.median if cell.loss else None, numbers.percent, scale=100),
    _ratio("detection_loss_pct_median", "Detection loss, %", lambda s: s.median,
           "missed of expected units; median"),
    _ratio("detection_loss_pct_low", "from, %", lambda s: s.interval.low if s.interval else None,
           "lower end of the 95 % interval"),
    _ratio("detection_loss_pct_high", "to, %", lambda s: s.interval.high if s.interval else None,
           "upper end of the 95 % interval"),
    _ratio("detection_loss_pct_smallest", "Smallest run, %", lambda s: s.low),
    _ratio("detection_loss_pct_largest", "Largest run, %", lambda s: s.high),
    _over("expected", "Expected", max, lambda one: one.expected, "units that lossless trials see"),
    _over("missed_median", "Missed", median, lambda one: one.missed),
    _by_flow("missed_in_lossy_flows", "… flow lost packets", lambda by: by.lost_packets,
             "missed units by their flows, median"),
    _by_flow("missed_in_whole_flows", "… flow whole", lambda by: by.whole,
             "missed though no packet of the flow lacks"),
    _by_flow("missed_in_unseen_flows", "… flow not seen", lambda by: by.not_seen),
    _over("surplus_largest", "Surplus, at most", max, lambda one: one.surplus,
          "seen and not expected"),
    _over("uncertain", "Uncertain", max, lambda one: one.uncertain,
          "of the baseline: seen in some of its trials; in no ratio"),
    words("no_ratio", "Why no ratio", lambda cell: "; ".join(
        dict.fromkeys(one.no_ratio for one in _known(cell) if one.no_ratio))),
)  # fmt: skip
Class = tuple[Cell, str, Sequence[tuple[int, int]]]
"""Expected and missed units of a class of signatures, trial by trial."""
CLASS_FIELDS: tuple[Field[Class], ...] = (
    words("cell", "Cell", lambda x: x[0].label),
    words("class", "Class of signatures", lambda x: x[1] or "(none)"),
    number("expected", "Expected", lambda x: max(expected for expected, _ in x[2])),
    number("missed_median", "Missed, median", lambda x: median(missed for _, missed in x[2])),
    number("missed_largest", "Missed, at most", lambda x: max(missed for _, missed in x[2])),
    number("missed_pct_median", "Missed, %", lambda x: _share(x[2]) * 100, DETECTION_FIGURE.shown),
)
