"""Findings about loads: the SUT failed under some, and some lost less than a lower one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodrop.findings.finding import Finding, Severity, in_words
from nodrop.findings.ladder import Contradiction, LoadResult, contradiction, pairs
from nodrop.findings.observations import Cells, Observation, known_median


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
