"""Rules that find what is suspicious in a set of runs.

Measured runs and imported ones are judged by the same rules; nodrop-studies has further ones for
what nodrop itself never records. Every rule looks at `RunObservation`s only; a rule that needs a
figure that was not measured stays silent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from statistics import median

from nodrop.answer.finding import Finding
from nodrop.findings.contradiction import Contradiction, LoadResult, contradiction, pairs
from nodrop.findings.observations import (
    SEVERITIES,
    Cells,
    Rule,
    RunObservation,
    captured_below_decoded,
    found,
    known_median,
    loss_per_replica,
    no_schedule,
    of_each_cell,
    offered_below_nominal,
)
from nodrop.stats.interval import runs_needed

NEIGHBOUR_RATIO = 0.5
LEAST_RUNS_IN_ORDER = 12
HOURS_APART = 3.0
SLOWED_RATIO = 0.05


def missing_samples(cells: Cells, planned: Mapping[str, int] | None = None) -> Iterator[Finding]:
    """Fewer runs than planned, or than the fullest cell has."""
    most = max((len(runs) for runs in cells.values()), default=0)
    wanted = {cell: max((planned or {}).get(cell, most), most) for cell in cells}
    short = {cell: len(runs) for cell, runs in cells.items() if len(runs) < wanted[cell]}
    yield from found(
        "missing-samples", (f"{cell}: {n} of {wanted[cell]}" for cell, n in short.items()), short
    )


@of_each_cell("shared-starts", needed=runs_needed())
def shared_starts(runs: Sequence[RunObservation]) -> str:
    """Trials of one start of the SUT are less independent than as many starts."""
    starts = len({run.start for run in runs if run.start})
    return f"{len(runs)} trials of {starts} starts" if 0 < starts < len(runs) else ""


@of_each_cell("repeated-flows")
def repeated_flows(runs: Sequence[RunObservation]) -> str:
    """A SUT that stays up knows flows that come again."""
    again = sum(run.repeats_flows for run in runs)
    return f"{again} of {len(runs)} trials" if again else ""


@of_each_cell("slowed-cpu")
def slowed_cpus(runs: Sequence[RunObservation]) -> str:
    """A core that others use as well, which no counter of the kernel shows: packets cost more in
    some runs than in others."""
    slow = [s for run in runs if (s := run.slowed) and s.lost_ratio >= SLOWED_RATIO]
    if len(slow) < 2 or 2 * len(slow) < len(runs):
        return ""
    return (
        f"in {len(slow)} of {len(runs)} trials CPU {slow[0].cpu} ran at "
        f"{median(s.slow_speed_ratio for s in slow):.0%} of its speed for "
        f"{min(s.slow_ratio for s in slow):.0%} to {max(s.slow_ratio for s in slow):.0%} of "
        "the time"
    )


def fixed_run_order(cells: Cells) -> Iterator[Finding]:
    """Runs of one cell stand next to each other far more often than in a random order."""
    every = [run for runs in cells.values() for run in runs if run.started_s is not None]
    timed = sorted(every, key=lambda run: run.started_s or 0.0)
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
    yield from found("fixed-run-order", [evidence], cells)


def time_of_day(cells: Cells) -> Iterator[Finding]:
    """Cells that were measured at different hours of the day."""
    begun = {c: [r.started_s for r in runs if r.started_s is not None] for c, runs in cells.items()}
    hours = {cell: mean for cell, s in begun.items() if (mean := _mean_hour(s)) is not None}
    # On the clock's circle, the shorter way of the two.
    ways = ((a - b) % 24 for a, b in product(hours.values(), repeat=2))
    apart = max((min(way, 24 - way) for way in ways), default=0)
    if apart >= HOURS_APART:
        starts = (f"{cell}: about {hour:04.1f} h" for cell, hour in hours.items())
        yield from found("time-of-day", starts, hours)


def _fixed_successors(timed: Sequence[RunObservation]) -> list[str]:
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


@of_each_cell("sut-failed")
def sut_failed(runs: Sequence[RunObservation]) -> str:
    """A finding if the SUT died, hung or was killed: a result, and no trial that counts."""
    outcomes = Counter(run.outcome for run in runs)
    failed, told = outcomes["failed"], outcomes.total() - outcomes["void"]
    return f"{failed} of {told} trials" if failed else ""


def loads_contradict(cells: Cells) -> Iterator[Finding]:
    """A lower load lost or failed more than a higher one, and chance does not explain it."""
    ladders = _ladders(cells)
    looks = pairs(list(ladders.values()))
    every = [c for ladder in ladders.values() if (c := contradiction(ladder, looks=looks))]
    sure = [c for c in every if c.sure]
    yield from found(
        "loads-contradict",
        map(_words, sure),
        (name for c in sure for name in (c.lower.name, c.higher.name)),
    )


@of_each_cell("not-as-asked")
def not_as_asked(runs: Sequence[RunObservation]) -> str:
    """Suricata caps its threads and does not say so: a figure for 4 threads may be one for 2."""
    return "; ".join(dict.fromkeys(words for run in runs for words in run.not_as_asked))


@of_each_cell("detections-without-loss")
def detections_without_loss(runs: Sequence[RunObservation]) -> str:
    """The SUT decoded every packet and missed detections: a memcap, a timeout or a depth, which no
    packet counter shows."""
    lossless = [run.detections for run in runs if run.loss_ratio == 0 and run.detections]
    missed = [counted for counted in lossless if counted[0]]
    if not missed:
        return ""
    seen, (most, expected) = f"{len(missed)} of {len(lossless)}", max(missed)
    return f"{seen} trials without loss, up to {most:,} of {expected:,} detections"


@of_each_cell("idle-port")
def idle_ports(runs: Sequence[RunObservation]) -> str:
    """The load is shared by flow: a trace of few flows leaves a port, and its threads, without
    work, and the cell measures fewer ports than its name says."""
    ports = {port: None for run in runs for port in run.port_packets}
    idle = [port for port in ports if not any(run.port_packets.get(port) for run in runs)]
    if not idle or len(idle) == len(ports):
        return ""
    runs_words = "its run" if len(runs) == 1 else f"all {len(runs)} runs"
    return f"{len(idle)} of {len(ports)} ports ({', '.join(idle)}) received nothing in {runs_words}"


def _ladders(cells: Cells) -> Mapping[str, Sequence[LoadResult]]:
    curves: dict[str, list[LoadResult]] = {}
    for cell, runs in cells.items():
        told = [run for run in runs if run.outcome != "void"]
        if not told:
            continue
        result = LoadResult(
            name=cell,
            losses=tuple(r.loss_ratio for r in told if r.loss_ratio is not None),
            failed=sum(run.outcome == "failed" for run in told),
            pps=known_median(run.offered_pps for run in told),
            rates=told[0].rates,
        )
        curves.setdefault(told[0].curve or told[0].group, []).append(result)
    return {curve: _rising(results) for curve, results in curves.items()}


def _rising(results: Sequence[LoadResult]) -> Sequence[LoadResult]:
    """Results sorted by the packets/s that were offered. If that is not known of all, they are
    sorted by the one setting that makes the load larger, if there is one; else they are not
    compared."""
    if all(result.pps is not None for result in results):
        return sorted(results, key=lambda result: (result.pps or 0.0, *result.rates.values()))
    scales = {tuple(result.rates) for result in results}
    if len(scales) != 1 or len(scales.pop()) != 1:
        return []
    return sorted(results, key=lambda result: [*result.rates.values()])


def _words(found: Contradiction) -> str:
    lower, higher = found.lower, found.higher
    if found.by_amount:
        return (
            f"{lower.name}: each trial lost {min(lower.losses):.2%} and more; {higher.name}: "
            f"at most {max(higher.losses):.2%}"
        )
    return (
        f"{lower.name}: {lower.bad} of {lower.trials} trials lost packets or failed; "
        f"{higher.name}: {higher.bad} of {higher.trials}"
    )


OF_ALL: tuple[Rule, ...] = (sut_failed, loads_contradict, time_of_day)
OF_MEASURED: tuple[Rule, ...] = (
    not_as_asked,
    detections_without_loss,
    idle_ports,
    shared_starts,
    repeated_flows,
    slowed_cpus,
    no_schedule,
    loss_per_replica,
    offered_below_nominal,
    captured_below_decoded,
)


def find(
    observations: Iterable[RunObservation],
    *,
    planned: Mapping[str, int] | None = None,
    more: Iterable[Finding] = (),
) -> list[Finding]:
    """All findings, the serious first. `planned`: cell → runs there should be; `more`: of data that
    nodrop did not measure."""
    by_cell: dict[str, list[RunObservation]] = defaultdict(list)
    for run in observations:
        by_cell[run.cell].append(run)
    # What was void, or what a dead SUT left behind, is no figure to be judged.
    measured = {c: [r for r in of if r.outcome == "measured"] for c, of in by_cell.items()}
    # When and how often a search tries a load follows from what it found.
    given = [cell for cell, of in by_cell.items() if not of[0].searched]
    said = (
        *more,
        *(finding for rule in OF_ALL for finding in rule(by_cell)),
        *fixed_run_order({cell: by_cell[cell] for cell in given}),
        *(finding for rule in OF_MEASURED for finding in rule(measured)),
        *missing_samples({cell: measured[cell] for cell in given}, planned),
    )
    return sorted(said, key=lambda finding: SEVERITIES.index(finding.values["severity"]))
