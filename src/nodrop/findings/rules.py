"""Rules that find what is suspicious in a set of runs.

Measured runs and imported ones are judged by the same rules. Every rule looks at `RunObservation`s
only; a rule that needs a figure that was not measured stays silent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from nodrop.answer.finding import Finding
from nodrop.findings.load_words import Contradiction, LoadResult, contradiction, pairs
from nodrop.findings.observations import (
    SEVERITIES,
    Cells,
    RunObservation,
    SpreadClaim,
    alert_explosion,
    captured_below_decoded,
    channels,
    found,
    guest_time_counted_twice,
    known_median,
    loss_per_replica,
    no_schedule,
    offered_below_nominal,
    start_up_race,
)
from nodrop.stats.interval import runs_needed

NEIGHBOUR_RATIO = 0.5
LEAST_RUNS_IN_ORDER = 12
HOURS_APART = 3.0
SPREAD_FACTOR = 1.5
SLOWED_RATIO = 0.05


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
    yield from found("survivor-tail", evidence, touched)


def unpaired_channels(cells: Cells) -> Iterator[Finding]:
    """A run was recorded in one channel and not in another."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        all_channels = channels(runs)
        lacks = Counter(c for run in runs for c in all_channels if c not in run.rows)
        if lacks:
            words = ", ".join(f"{channel} in {count}" for channel, count in lacks.items())
            evidence[cell] = f"{cell}: of {len(runs)} runs missing {words}"
    yield from found("unpaired-channels", evidence.values(), evidence)


def missing_samples(cells: Cells, planned: Mapping[str, int] | None = None) -> Iterator[Finding]:
    """Fewer runs than planned, or than the fullest cell has."""
    most = max((len(runs) for runs in cells.values()), default=0)
    wanted = {cell: max((planned or {}).get(cell, most), most) for cell in cells}
    short = {cell: len(runs) for cell, runs in cells.items() if len(runs) < wanted[cell]}
    yield from found(
        "missing-samples", (f"{cell}: {n} of {wanted[cell]}" for cell, n in short.items()), short
    )


def shared_starts(cells: Cells) -> Iterator[Finding]:
    """Trials of one start of the SUT are less independent than as many starts."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        starts = len({run.start for run in runs if run.start})
        if starts and starts < len(runs):
            evidence[cell] = f"{cell}: {len(runs)} trials of {starts} starts"
    yield from found("shared-starts", evidence.values(), evidence, needed=runs_needed())


def repeated_flows(cells: Cells) -> Iterator[Finding]:
    """A SUT that stays up knows flows that come again."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        if again := sum(run.repeats_flows for run in runs):
            evidence[cell] = f"{cell}: {again} of {len(runs)} trials"
    yield from found("repeated-flows", evidence.values(), evidence)


def slowed_cpus(cells: Cells) -> Iterator[Finding]:
    """A core that others use as well, which no counter of the kernel shows: packets cost more in
    some runs than in others."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        slow = [s for run in runs if (s := run.slowed) and s.lost_ratio >= SLOWED_RATIO]
        if len(slow) < 2 or 2 * len(slow) < len(runs):
            continue
        evidence[cell] = (
            f"{cell}: in {len(slow)} of {len(runs)} trials CPU {slow[0].cpu} ran at "
            f"{median(s.slow_speed_ratio for s in slow):.0%} of its speed for "
            f"{min(s.slow_ratio for s in slow):.0%} to {max(s.slow_ratio for s in slow):.0%} of "
            "the time"
        )
    yield from found("slowed-cpu", evidence.values(), evidence)


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
    yield from found("fixed-run-order", [evidence], cells)


def time_of_day(cells: Cells) -> Iterator[Finding]:
    """Cells that were measured at different hours of the day."""
    hours: dict[str, float] = {}
    for cell, runs in cells.items():
        mean = _mean_hour([run.started_s for run in runs if run.started_s is not None])
        if mean is not None:
            hours[cell] = mean
    apart = max((_hours_between(a, b) for a in hours.values() for b in hours.values()), default=0)
    if apart >= HOURS_APART:
        starts = (f"{cell}: about {hour:04.1f} h" for cell, hour in hours.items())
        yield from found("time-of-day", starts, hours)


def spread_over_time(spreads: Iterable[SpreadClaim]) -> Iterator[Finding]:
    """A printed sigma that is spread over time and no spread between runs."""
    wrong = [
        claim
        for claim in spreads
        if abs(claim.printed - claim.over_time) < abs(claim.printed - claim.between_runs)
        and _apart(claim.over_time, claim.between_runs)
    ]
    yield from found(
        "spread-over-time",
        (
            f"{claim.label}: {claim.printed:.2f} printed, {claim.over_time:.2f} over time,"
            f" {claim.between_runs:.2f} between runs"
            for claim in wrong
        ),
        (claim.label for claim in wrong),
    )


def _timed(cells: Cells) -> list[RunObservation]:
    every = [run for runs in cells.values() for run in runs if run.started_s is not None]
    return sorted(every, key=lambda run: run.started_s or 0.0)


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


def _hours_between(a: float, b: float) -> float:
    return min((a - b) % 24, (b - a) % 24)


def _apart(a: float, b: float) -> bool:
    low, high = sorted((a, b))
    return high > SPREAD_FACTOR * low


def sut_failed(cells: Cells) -> Iterator[Finding]:
    """A finding if the SUT died, hung or was killed: a result, and no trial that counts."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        failed = sum(run.outcome == "failed" for run in runs)
        told = sum(run.outcome != "void" for run in runs)
        if failed:
            evidence[cell] = f"{cell}: {failed} of {told} trials"
    yield from found("sut-failed", evidence.values(), evidence)


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


def not_as_asked(cells: Cells) -> Iterator[Finding]:
    """Suricata caps its threads and does not say so: a figure for 4 threads may be one for 2."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        words = dict.fromkeys(words for run in runs for words in run.not_as_asked)
        if words:
            evidence[cell] = f"{cell}: {'; '.join(words)}"
    yield from found("not-as-asked", evidence.values(), evidence)


def detections_without_loss(cells: Cells) -> Iterator[Finding]:
    """The SUT decoded every packet and missed detections: a memcap, a timeout or a depth, which no
    packet counter shows."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        lossless = [run for run in runs if run.loss_ratio == 0 and run.detections]
        missed = [run.detections for run in lossless if run.detections and run.detections[0]]
        if missed:
            most, expected = max(missed)
            evidence[cell] = (
                f"{cell}: {len(missed)} of {len(lossless)} trials without loss, up to {most:,} of "
                f"{expected:,} detections"
            )
    yield from found("detections-without-loss", evidence.values(), evidence)


def idle_ports(cells: Cells) -> Iterator[Finding]:
    """The load is shared by flow: a trace of few flows leaves a port, and its threads, without
    work, and the cell measures fewer ports than its name says."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        ports = {port: None for run in runs for port in run.port_packets}
        idle = [port for port in ports if not any(run.port_packets.get(port) for run in runs)]
        if idle and len(idle) < len(ports):
            runs_words = "its run" if len(runs) == 1 else f"all {len(runs)} runs"
            evidence[cell] = (
                f"{cell}: {len(idle)} of {len(ports)} ports ({', '.join(idle)}) received nothing "
                f"in {runs_words}"
            )
    yield from found("idle-port", evidence.values(), evidence)


def _ladders(cells: Cells) -> Mapping[str, Sequence[LoadResult]]:
    curves: dict[str, list[tuple[Sequence[RunObservation], LoadResult]]] = {}
    for cell, runs in cells.items():
        told = [run for run in runs if run.outcome != "void"]
        if not told:
            continue
        result = LoadResult(
            name=cell,
            losses=tuple(r.loss_ratio for r in told if r.loss_ratio is not None),
            failed=sum(run.outcome == "failed" for run in told),
            pps=known_median(run.offered_pps for run in told),
            rates=dict(zip(told[0].scales, told[0].rates, strict=True)),
        )
        curves.setdefault(told[0].curve or told[0].group, []).append((told, result))
    return {curve: [*_rising(found)] for curve, found in curves.items()}


def _rising(
    found: Sequence[tuple[Sequence[RunObservation], LoadResult]],
) -> Iterator[LoadResult]:
    """Results sorted by the packets/s that were offered. If that is not known of all, they are
    sorted by the one setting that makes the load larger, if there is one; else they are not
    compared."""
    offered = [result.pps for _, result in found]
    scales = {runs[0].scales for runs, _ in found}
    if None not in offered:
        ranks = [
            (pps or 0.0, *runs[0].rates) for pps, (runs, _) in zip(offered, found, strict=True)
        ]
    elif len(scales) == 1 and len(next(iter(scales))) == 1:
        ranks = [runs[0].rates for runs, _ in found]
    else:
        return
    for _, (_, result) in sorted(zip(ranks, found, strict=True), key=lambda item: item[0]):
        yield result


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


Rule = Callable[[Cells], Iterator[Finding]]
OF_ALL: tuple[Rule, ...] = (sut_failed, loads_contradict, time_of_day)
OF_MEASURED: tuple[Rule, ...] = (
    not_as_asked,
    detections_without_loss,
    idle_ports,
    shared_starts,
    repeated_flows,
    slowed_cpus,
    start_up_race,
    no_schedule,
    loss_per_replica,
    guest_time_counted_twice,
    alert_explosion,
    offered_below_nominal,
    captured_below_decoded,
    survivor_tail,
    unpaired_channels,
)


def find(
    observations: Iterable[RunObservation],
    *,
    planned: Mapping[str, int] | None = None,
    spreads: Iterable[SpreadClaim] = (),
) -> list[Finding]:
    """All findings, the serious first. `planned`: cell → runs there should be."""
    runs = list(observations)
    by_cell: dict[str, list[RunObservation]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell].append(run)
    # What was void, or what a dead SUT left behind, is no figure to be judged.
    measured = {c: [r for r in of if r.outcome == "measured"] for c, of in by_cell.items()}
    said = [finding for rule in OF_ALL for finding in rule(by_cell)]
    # When and how often a search tries a load follows from what it found.
    said += fixed_run_order({c: of for c, of in by_cell.items() if not of[0].searched})
    said += [finding for rule in OF_MEASURED for finding in rule(measured)]
    of_plan = {c: of for c, of in measured.items() if not by_cell[c][0].searched}
    said += missing_samples(of_plan, planned)
    said += spread_over_time(spreads)
    return sorted(said, key=lambda finding: SEVERITIES.index(finding.values["severity"]))
