"""Rules that find what is suspicious in a set of runs.

Measured runs and imported ones are judged by the same rules. Every rule looks at `Observation`s
only; a rule that needs a figure that was not measured stays silent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nodrop.findings.load_words import Contradiction, LoadResult, contradiction, pairs
from nodrop.findings.method_rules import (
    fixed_run_order,
    missing_samples,
    shared_starts,
    spread_over_time,
    survivor_tail,
    time_of_day,
    unpaired_channels,
)
from nodrop.findings.observations import (
    Cells,
    Finding,
    Observation,
    Severity,
    SpreadClaim,
    in_words,
    known_median,
)
from nodrop.findings.traffic_rules import (
    alert_explosion,
    captured_below_decoded,
    guest_time_counted_twice,
    loss_per_replica,
    no_schedule,
    offered_below_nominal,
    start_up_race,
)


def sut_failed(cells: Cells) -> Iterator[Finding]:
    """It died, hung or was killed: that is a result, and not one of the trials that count."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        failed = sum(run.outcome == "failed" for run in runs)
        told = sum(run.outcome != "void" for run in runs)
        if failed:
            evidence[cell] = f"{cell}: {failed} of {told} trials"
    if evidence:
        yield Finding(
            code="sut-failed",
            severity=Severity.SERIOUS,
            title="The SUT failed under some loads",
            evidence=in_words(evidence.values()),
            effect="Figures of these cells are those of the trials that it survived; a load under"
            " which it fails is not carried.",
            cells=tuple(evidence),
        )


def loads_contradict(cells: Cells) -> Iterator[Finding]:
    """A lower load lost or failed more than a higher one, and chance does not explain it."""
    ladders = _ladders(cells)
    looks = pairs(list(ladders.values()))
    found = [c for ladder in ladders.values() if (c := contradiction(ladder, looks=looks))]
    sure = [c for c in found if c.sure]
    if sure:
        yield Finding(
            code="loads-contradict",
            severity=Severity.SERIOUS,
            title="More load lost less",
            evidence=in_words(map(_words, sure)),
            effect="Something other than the load decides what is lost, so no highest load can be"
            " named.",
            cells=tuple(name for c in sure for name in (c.lower.name, c.higher.name)),
        )


def not_as_asked(cells: Cells) -> Iterator[Finding]:
    """Suricata caps its threads and does not say so: a figure for 4 threads may be one for 2."""
    evidence: dict[str, str] = {}
    for cell, runs in cells.items():
        words = dict.fromkeys(words for run in runs for words in run.not_as_asked)
        if words:
            evidence[cell] = f"{cell}: {'; '.join(words)}"
    if evidence:
        yield Finding(
            code="not-as-asked",
            severity=Severity.WARNING,
            title="The SUT ran with other settings than were asked for",
            evidence=in_words(evidence.values()),
            effect="Figures of these cells are those of what ran; cells that differ only in such a"
            " setting may be one and the same.",
            cells=tuple(evidence),
        )


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
    if evidence:
        yield Finding(
            code="detections-without-loss",
            severity=Severity.SERIOUS,
            title="Detections were missed where no packet was lost",
            evidence=in_words(evidence.values()),
            effect="That a load loses no packet does not say that the SUT sees all it should:"
            " memcaps, timeouts and stream depth cost detections that no packet counter shows.",
            cells=tuple(evidence),
        )


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
    if evidence:
        yield Finding(
            code="idle-port",
            severity=Severity.WARNING,
            title="A port of the SUT stood idle",
            evidence=in_words(evidence.values()),
            effect="Its threads and rings had no work: the figures are those of fewer ports.",
            cells=tuple(evidence),
        )


def _ladders(cells: Cells) -> Mapping[str, Sequence[LoadResult]]:
    curves: dict[str, list[tuple[Sequence[Observation], LoadResult]]] = {}
    for cell, runs in cells.items():
        told = [run for run in runs if run.outcome != "void"]
        if not told:
            continue
        result = LoadResult(
            name=cell,
            losses=tuple(r.loss_ratio for r in told if r.loss_ratio is not None),
            failed=sum(run.outcome == "failed" for run in told),
            pps=known_median(run.offered_pps for run in told),
        )
        curves.setdefault(told[0].curve or told[0].group, []).append((told, result))
    return {curve: [*_rising(found)] for curve, found in curves.items()}


def _rising(
    found: Sequence[tuple[Sequence[Observation], LoadResult]],
) -> Iterator[LoadResult]:
    """By what was offered in packets/s. If that is not known of all: by the one setting that makes
    the load larger, if there is one; else they are not compared."""
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
    observations: Iterable[Observation],
    *,
    planned: Mapping[str, int] | None = None,
    spreads: Iterable[SpreadClaim] = (),
) -> list[Finding]:
    """All findings, the serious first. `planned`: cell → runs there should be."""
    runs = list(observations)
    by_cell: dict[str, list[Observation]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell].append(run)
    # What was void, or what a dead SUT left behind, is no figure to be judged.
    measured = {c: [r for r in of if r.outcome == "measured"] for c, of in by_cell.items()}
    found = [finding for rule in OF_ALL for finding in rule(by_cell)]
    # When and how often a search tries a load follows from what it found.
    found += fixed_run_order({c: of for c, of in by_cell.items() if not of[0].searched})
    found += [finding for rule in OF_MEASURED for finding in rule(measured)]
    of_plan = {c: of for c, of in measured.items() if not by_cell[c][0].searched}
    found += missing_samples(of_plan, planned)
    found += spread_over_time(spreads)
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))
