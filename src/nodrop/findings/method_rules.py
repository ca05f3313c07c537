"""Findings about the method: which runs a figure rests on, and in which order they were made."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from nodrop.findings.observations import (
    Cells,
    Finding,
    Observation,
    Severity,
    SpreadClaim,
    channels,
    in_words,
)
from nodrop.stats.interval import runs_needed

NEIGHBOUR_RATIO = 0.5
LEAST_RUNS_IN_ORDER = 12
HOURS_APART = 3.0
SPREAD_FACTOR = 1.5


def survivor_tail(cells: Cells) -> Iterator[Finding]:
    """The last rows of a curve rest on the few runs that lasted longest."""
    evidence: list[str] = []
    touched: dict[str, None] = {}
    for cell, runs in cells.items():
        for channel in channels(runs):
            lengths = [run.rows[channel] for run in runs if channel in run.rows]
            shortest, longest = min(lengths), max(lengths)
            if shortest < longest:
                last = sum(length == longest for length in lengths)
                evidence.append(
                    f"{cell}, {channel}: from row {shortest + 1} on fewer than {len(lengths)} runs,"
                    f" the last row ({longest}) on {last}"
                )
                touched[cell] = None
    if evidence:
        yield Finding(
            code="survivor-tail",
            severity=Severity.WARNING,
            title="The ends of curves rest on few runs",
            evidence=in_words(evidence),
            effect="The last points describe the runs that lasted longest, not the cell; sound"
            " curves end where the first run ends.",
            cells=tuple(touched),
        )


def unpaired_channels(cells: Cells) -> Iterator[Finding]:
    """A run was recorded in one channel and not in another."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        all_channels = channels(runs)
        lacks = Counter(c for run in runs for c in all_channels if c not in run.rows)
        if lacks:
            words = ", ".join(f"{channel} in {count}" for channel, count in lacks.items())
            evidence[cell] = f"{cell}: of {len(runs)} runs missing {words}"
    if evidence:
        yield Finding(
            code="unpaired-channels",
            severity=Severity.WARNING,
            title="Some runs lack a channel",
            evidence=in_words(evidence.values()),
            effect="Medians of different channels rest on different runs, and such a run's packet"
            " books cannot be made.",
            cells=tuple(evidence),
        )


def missing_samples(cells: Cells, planned: Mapping[str, int] | None = None) -> Iterator[Finding]:
    """Fewer runs than planned, or than the fullest cell has."""
    most = max((len(runs) for runs in cells.values()), default=0)
    wanted = {cell: max((planned or {}).get(cell, most), most) for cell in cells}
    short = {cell: len(runs) for cell, runs in cells.items() if len(runs) < wanted[cell]}
    if short:
        yield Finding(
            code="missing-samples",
            severity=Severity.NOTE,
            title="Cells have unequal numbers of runs",
            evidence=in_words(f"{cell}: {n} of {wanted[cell]}" for cell, n in short.items()),
            effect="Runs that failed may be missing for a reason that concerns the figure.",
            cells=tuple(short),
        )


def shared_starts(cells: Cells) -> Iterator[Finding]:
    """Trials of one start of the SUT are less independent than as many starts."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        starts = len({run.start for run in runs if run.start})
        if starts and starts < len(runs):
            evidence[cell] = f"{cell}: {len(runs)} trials of {starts} starts"
    if evidence:
        yield Finding(
            code="shared-starts",
            severity=Severity.WARNING,
            title="Trials share starts of the SUT",
            evidence=in_words(evidence.values()),
            effect="What is inferred counts each start once: a median by that of its trials (an"
            f" interval needs {runs_needed()} starts), a loss if any of them lost. Whether loads"
            " contradict each other still counts trials, as if each were a start.",
            cells=tuple(evidence),
        )


def fixed_run_order(cells: Cells) -> Iterator[Finding]:
    """Runs of one cell stand next to each other far more often than in a random order."""
    timed = _timed(cells)
    if len(cells) < 2 or len(timed) < LEAST_RUNS_IN_ORDER:
        return
    together = sum(a.cell == b.cell for a, b in pairwise(timed))
    sizes = Counter(run.cell for run in timed).values()
    expected = sum(n * (n - 1) for n in sizes) / len(timed)
    follows = _fixed_successors(timed)
    blocked = together > expected + 3 * math.sqrt(expected + 1) and together > NEIGHBOUR_RATIO * (
        len(timed) - 1
    )
    if not blocked and not follows:
        return
    evidence = (
        f"{together} of {len(timed) - 1} neighbours in time are of the same cell,"
        f" {expected:.0f} are expected of a random order"
    )
    if follows:
        evidence += "; the cells follow each other in the same order: " + " → ".join(follows)
    yield Finding(
        code="fixed-run-order",
        severity=Severity.WARNING,
        title="Runs were not made in random order",
        evidence=evidence,
        effect="What drifted with time (temperature, other users, updates) is mixed with the"
        " difference between cells.",
        cells=tuple(cells),
    )


def time_of_day(cells: Cells) -> Iterator[Finding]:
    """Cells that were measured at different hours of the day."""
    hours: dict[str, float] = {}
    for cell, runs in cells.items():
        mean = _mean_hour([run.started_s for run in runs if run.started_s is not None])
        if mean is not None:
            hours[cell] = mean
    apart = max((_hours_between(a, b) for a in hours.values() for b in hours.values()), default=0)
    if apart >= HOURS_APART:
        listed = in_words(f"{cell}: about {hour:04.1f} h" for cell, hour in hours.items())
        yield Finding(
            code="time-of-day",
            severity=Severity.WARNING,
            title="Cells were measured at different hours of the day",
            evidence=f"mean start (UTC) {listed}",
            effect="A daily rhythm of the network or the hosts would look like a difference"
            " between cells.",
            cells=tuple(hours),
        )


def spread_over_time(spreads: Iterable[SpreadClaim]) -> Iterator[Finding]:
    """A printed sigma that is spread over time and no spread between runs."""
    wrong = [
        claim
        for claim in spreads
        if abs(claim.printed - claim.over_time) < abs(claim.printed - claim.between_runs)
        and _apart(claim.over_time, claim.between_runs)
    ]
    if wrong:
        yield Finding(
            code="spread-over-time",
            severity=Severity.SERIOUS,
            title="A spread over time stands where a spread between runs is expected",
            evidence=in_words(
                f"{claim.label}: {claim.printed:.2f} printed, {claim.over_time:.2f} over time,"
                f" {claim.between_runs:.2f} between runs"
                for claim in wrong
            ),
            effect="It says how the load varies within a run, and nothing about whether two"
            " setups differ.",
            cells=tuple(claim.label for claim in wrong),
        )


def _timed(cells: Cells) -> list[Observation]:
    every = [run for runs in cells.values() for run in runs if run.started_s is not None]
    return sorted(every, key=lambda run: run.started_s or 0.0)


def _fixed_successors(timed: Sequence[Observation]) -> list[str]:
    """The cycle of cells, if nearly always the same other one follows each."""
    after: dict[str, Counter[str]] = defaultdict(Counter)
    for a, b in pairwise(timed):
        if a.cell != b.cell:
            after[a.cell][b.cell] += 1
    usual = {cell: counts.most_common(1)[0] for cell, counts in after.items()}
    if len(usual) < 3 or any(
        count < 3 or count < 0.8 * after[cell].total() for cell, (_, count) in usual.items()
    ):
        return []
    order = [timed[0].cell]
    while len(order) <= len(usual) and order[-1] in usual and usual[order[-1]][0] not in order:
        order.append(usual[order[-1]][0])
    return order


def _mean_hour(starts_s: Sequence[float]) -> float | None:
    """Mean on the clock's circle; None if starts are spread all round it."""
    if len(starts_s) < 2:
        return None
    turns = [2 * math.pi * (start % 86_400) / 86_400 for start in starts_s]
    x, y = (sum(map(part, turns)) / len(turns) for part in (math.cos, math.sin))
    if math.hypot(x, y) < 0.5:
        return None
    return math.atan2(y, x) % (2 * math.pi) / (2 * math.pi) * 24


def _hours_between(a: float, b: float) -> float:
    return min((a - b) % 24, (b - a) % 24)


def _apart(a: float, b: float) -> bool:
    low, high = sorted((a, b))
    return high > SPREAD_FACTOR * low
