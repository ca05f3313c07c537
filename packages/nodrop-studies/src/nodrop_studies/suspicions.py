"""Suspicions that only published samples can raise: races at the start, time that is booked twice,
samples that end early, and sigmas over time. A run that nodrop measured has no such figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodrop.answer.finding import Finding
from nodrop.findings.observations import (
    RunObservation,
    by_load_words,
    cell_names,
    found,
    known_median,
    load_groups,
    of_each_cell,
    span,
)

MISSING_RATIO = 0.001
"""Below one packet in a thousand a gap may be counters read at different moments."""
SAME_FRACTION = 0.002
"""Fractions of different loads that are this close are one fraction."""
DOUBLE_COUNT_RATIO = 0.10
"""Guest time booked twice adds 20 % and more; the hypervisor's host threads cost a few percent."""
SATURATED_RATIO = 0.97
ALERT_FACTOR = 3.0
LEAST_ALERTS = 100
SPREAD_FACTOR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun(RunObservation):
    """A published sample. None = not recorded."""

    virtual: bool = False
    """The SUT runs in a guest."""
    alerts: float | None = None
    sender_cpu_ratio: float | None = None
    """Share of all CPUs of the sending host."""
    host_cores: float | None = None
    """CPU the receiving host says it used, in cores."""
    process_cores: float | None = None
    """CPU the SUT's processes on that host (the hypervisor) say they used, in cores."""
    cpus: float | None = None
    """CPUs of the receiving host."""
    threads_at_first_packet: float | None = None
    threads_final: float | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    """Channel → checkpoints this run has in it; a missing channel is not in it."""


Cells = Mapping[str, Sequence[ImportedRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadClaim:
    """A figure that was given with a spread, and what that spread could be."""

    label: str
    printed: float
    over_time: float
    """Spread within one median run, over its checkpoints."""
    between_runs: float


def suspicions(
    runs: Iterable[ImportedRun], spreads: Iterable[SpreadClaim] = ()
) -> Iterator[Finding]:
    cells: dict[str, list[ImportedRun]] = defaultdict(list)
    for run in runs:
        cells[run.cell].append(run)
    for rule in (
        start_up_race,
        guest_time_counted_twice,
        alert_explosion,
        sender_saturated,
        survivor_tail,
        unpaired_channels,
    ):
        yield from rule(cells)
    yield from spread_over_time(spreads)


def arrived_ratio(run: ImportedRun) -> float | None:
    sent, arrived = run.sent_packets, run.arrived_packets
    return None if not sent or arrived is None else arrived / sent


def channels(runs: Sequence[ImportedRun]) -> list[str]:
    return list(dict.fromkeys(channel for run in runs for channel in run.rows))


def start_up_race(cells: Cells) -> Iterator[Finding]:
    """Packets came before the SUT listened: a fixed part of the trace is missing at every load."""
    for group, by_load in load_groups(cells).items():
        fractions = {
            load: fraction
            for load, runs in by_load.items()
            if (fraction := known_median(map(arrived_ratio, runs))) is not None
        }
        early = [
            run
            for runs in by_load.values()
            for run in runs
            if run.threads_at_first_packet is not None
            and run.threads_final is not None
            and run.threads_at_first_packet < run.threads_final
        ]
        total = sum(len(runs) for runs in by_load.values())
        seen = len(early) > total / 2
        # A SUT that listened with all it has before the first packet came.
        whole = not seen and any(
            run.threads_at_first_packet == run.threads_final is not None
            for runs in by_load.values()
            for run in runs
        )
        short = bool(fractions) and max(fractions.values()) < 1 - MISSING_RATIO
        steady = len(fractions) > 1 and span(fractions.values()) <= SAME_FRACTION
        if whole or not ((seen and short) or (short and steady)):
            continue
        parts = [f"arrived of sent at {by_load_words(fractions, '{:.2%}')}"]
        if seen:
            first = known_median(run.threads_at_first_packet for run in early)
            final = known_median(run.threads_final for run in early)
            parts.append(
                f"in {len(early)} of {total} runs the SUT had {first:g} of its {final:g} threads"
                " when packets were already arriving"
            )
        yield from found(
            "start-up-race",
            parts,
            cell_names(by_load),
            subject=group,
            severity="serious" if seen else "warning",
        )


@of_each_cell("guest-time-twice")
def guest_time_counted_twice(runs: Sequence[ImportedRun]) -> str:
    """Linux books guest time as user time as well; adding all fields counts it twice."""
    host = known_median(run.host_cores for run in runs if run.virtual)
    own = known_median(run.process_cores for run in runs if run.virtual)
    cpus = known_median(run.cpus for run in runs)
    if host is None or own is None or (cpus and host >= SATURATED_RATIO * cpus):
        return ""
    twice = host - own > max(DOUBLE_COUNT_RATIO * own, 0.05)
    return f"the host says {host:.2f} cores, the hypervisor {own:.2f}" if twice else ""


def alert_explosion(cells: Cells) -> Iterator[Finding]:
    """Identical copies of a trace are one flow to an IDS, retransmitting and overlapping itself."""
    evidence: dict[str, str] = {}
    for by_load in load_groups(cells).values():
        alerts = {
            load: count
            for load, runs in by_load.items()
            if (count := known_median(run.alerts for run in runs)) is not None
        }
        if len(alerts) < 2:
            continue
        base = min(alerts)
        for load, count in alerts.items():
            expected = alerts[base] * load / base
            if count > ALERT_FACTOR * expected and count - expected > LEAST_ALERTS:
                cell = by_load[load][0].cell
                evidence[cell] = f"{cell}: {count:,.0f} alerts, {expected:,.0f} in proportion"
    yield from found("alert-explosion", evidence.values(), evidence)


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


@of_each_cell("unpaired-channels")
def unpaired_channels(runs: Sequence[ImportedRun]) -> str:
    """A run was recorded in one channel and not in another."""
    all_channels = channels(runs)
    lacks = Counter(c for run in runs for c in all_channels if c not in run.rows)
    words = ", ".join(f"{channel} in {count}" for channel, count in lacks.items())
    return f"of {len(runs)} runs missing {words}" if lacks else ""


def spread_over_time(spreads: Iterable[SpreadClaim]) -> Iterator[Finding]:
    """A printed sigma that is spread over time and no spread between runs."""
    wrong = [
        claim
        for claim in spreads
        if abs(claim.printed - claim.over_time) < abs(claim.printed - claim.between_runs)
        and SPREAD_FACTOR * min(claim.over_time, claim.between_runs)
        < max(claim.over_time, claim.between_runs)
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


@of_each_cell("sender-saturated")
def sender_saturated(runs: Sequence[ImportedRun]) -> str:
    cpu = known_median(run.sender_cpu_ratio for run in runs)
    full = cpu is not None and cpu >= SATURATED_RATIO
    return f"{cpu:.0%} of the sender's CPUs" if full else ""
