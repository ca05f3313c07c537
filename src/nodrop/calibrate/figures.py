"""Figures of a certificate that no fault is needed for: pace, A/A spread, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nodrop import plugins
from nodrop.calibrate import traces
from nodrop.calibrate.case import OF_THE_SENDER, Case, Site
from nodrop.hosts.journal import DiskJournal
from nodrop.hosts.node import NodeProcess
from nodrop.report.comparison import compared
from nodrop.report.costs import DIFFERENCES
from nodrop.report.setups import compared_at_once
from nodrop.report.story import read_story
from nodrop.results.other_records import Clock, Pace, Spread
from nodrop.results.trial import TrialRecord

RATES = (10_000, 30_000, 100_000, 200_000, 400_000, 800_000, 1_600_000)
PACED_S = 0.5
RUNS = 10
"""Runs of each of the two cells that differ in nothing: from fewer, no difference could be seen."""


def steady(site: Site, pps: int, packets: int) -> list[str]:
    """So many packets of 128 bytes at a constant rate."""
    path = site.work / "steady.pcap"
    if not path.exists():
        traces.write(path, traces.steady(1000))
    return [f"load.trace={path}", f"load.loops={packets // 1000}", f"load.pps={pps}"]


def pace_case(site: Site) -> Case:
    return Case(
        name="pace",
        put_in=f"{RATES[0]:,} to {RATES[-1]:,} packets/s, {PACED_S:g} s each",
        settings=[
            *steady(site, RATES[0], int(RATES[-1] * PACED_S)),
            f"load.duration_s={PACED_S}",
            f"matrix.load.pps={list(RATES)}",
            "measure.repetitions=1",
        ],
        about_s=13,
    )


def pace(records: Sequence[TrialRecord]) -> Pace:
    """By the sender's own bounds; what the sink lost of it is another matter."""
    reached: float | None = None
    for record in sorted(records, key=_rate):
        if any(reason.startswith(OF_THE_SENDER) for reason in record.invalid_reasons):
            break
        reached = _rate(record)
    return Pace(largest_pps=reached, tried_pps=sorted(map(_rate, records)))


def _rate(record: TrialRecord) -> float:
    value = record.cell["load.pps"]
    assert isinstance(value, int | float)
    return float(value)


def spread_case(site: Site) -> Case:
    """The seed chooses the addresses of replicas, and there are none."""
    return Case(
        name="a-a",
        put_in=f"two cells that differ in nothing, {RUNS} runs of each, 40 % lost",
        settings=[
            *steady(site, 20_000, 10_000),
            "sut.service_rate_pps=10000",
            "sut.ring_frames=1000",
            "matrix.load.seed=[1,2]",
            f"measure.repetitions={RUNS}",
            "measure.late_p99_us=100000",
        ],
        judge=_differ,
        about_s=28,
    )


def _differ(directory: Path, records: Sequence[TrialRecord]) -> Sequence[str]:
    if not all(record.valid for record in records):
        return [f"{sum(not r.valid for r in records)} of {len(records)} trials are not valid"]
    said = spread(directory, records).verdicts
    return [f"{name}: {words}" for name, words in said.items() if words.startswith("different")]


def spread(directory: Path, records: Sequence[TrialRecord]) -> Spread:
    story = read_story([directory])
    base, other = story.cells
    family = compared_at_once(story)
    found = {f.name: compared(base, other, f, family).verdict for f in DIFFERENCES}
    return Spread(
        verdicts=found,
        loss_ratio=_range([r.packets.loss_ratio for r in records]),
        sut_cpu_s=_range([r.sut_cpu_s for r in records]),
        runs=len(records),
    )


def _range(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def clocks(site: Site) -> list[Clock]:
    """Both ends of the lab, asked as a trial would ask them."""
    found = []
    with DiskJournal.create() as journal, plugins.build_lab(site.lab).up(journal) as link:
        for port in (link.tx, link.rx):
            spool = site.work / f"clock-{port.host.name}.jsonl"
            spec = {"job": "sample", "interval_ms": 1000, "path": str(spool)}
            with closing(port.host.job(spec)) as job:
                assert isinstance(job, NodeProcess)
                fix = job.clock()
                found.append(
                    Clock(host=port.host.name, offset_ns=fix.offset_ns, bound_ns=fix.bound_ns)
                )
    return found
