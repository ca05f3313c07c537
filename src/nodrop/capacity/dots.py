"""Trials at different loads as dots of one picture: offered load, loss, and the busiest thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nodrop.answer.finding import WORDS
from nodrop.capacity.tried import by_detections, judged_ratio
from nodrop.ledger.imbalance import SutThread, ThreadRole
from nodrop.report import escape, numbers
from nodrop.results.trial import TrialRecord, mark_of


def workers_of(record: TrialRecord) -> list[SutThread]:
    """Capture threads, the one that lost most first, else the busiest."""
    found = [t for t in record.threads if t.role in (ThreadRole.WORKER, ThreadRole.RECEIVE)]
    found.sort(key=lambda t: (t.dropped_packets or 0, t.cpu_ratio or 0.0), reverse=True)
    return [replace(t, name=escape.plain(t.name, longest=60)) for t in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A trial in the picture."""

    run: str
    pps: float
    """Offered, as it was reached; if the trial ended before that was known, what was asked for."""
    loss_ratio: float | None
    """None: the SUT failed or the trial is void, so that its loss is not known."""
    mark: str
    """`good`, `absorbed` (no loss, but not seen to keep the pace), `loss`, `failed` or `void`."""
    of_detections: bool = False
    """The loss ratio is the part of the expected detections that was missed."""
    busiest_cpu_ratio: float | None = None
    worker: SutThread | None = None
    apart: str = ""
    """Words if it stands apart from the others; else empty."""

    @property
    def words(self) -> str:
        return str(WORDS["marks"]["detections" if self.of_detections else "packets"][self.mark])

    @property
    def says(self) -> str:
        load = f"{self.run}: {numbers.count(self.pps)} packets/s"
        lost = self.words
        if self.loss_ratio:
            missed = "of detections missed" if self.of_detections else "lost"
            lost = f"{numbers.percent(self.loss_ratio)} % {missed}"
        busy = self.busiest_cpu_ratio
        thread = "" if busy is None else f", busiest thread {busy * 100:.0f} % of a CPU"
        return f"{load}, {lost}{thread}{self.apart and f', {self.apart}'}"


def dots(records: Iterable[TrialRecord], apart: Mapping[str, str] = {}) -> tuple[Dot, ...]:
    """Void trials say nothing of the SUT, and are none. `apart`: run → words."""
    found = ((record, _dot(record)) for record in records)
    return tuple(
        replace(dot, apart=apart.get(record.run, "")) for record, dot in found if dot is not None
    )


def voids(records: Iterable[TrialRecord]) -> tuple[Dot, ...]:
    """Void trials, at the load that the sender reached or was asked for."""
    return tuple(
        Dot(run=record.run, pps=pps, loss_ratio=None, mark="void")
        for record in records
        if mark_of(record) == "void" and (pps := _pps(record)) is not None
    )


def _dot(record: TrialRecord) -> Dot | None:
    pps, mark, loss = _pps(record), mark_of(record), judged_ratio(record)
    if by_detections(record) and mark in ("good", "loss"):
        mark = "loss" if loss else "good"
    if mark == "good" and not record.packets.sustained:
        mark = "absorbed"
    if pps is None or mark == "void" or (loss is None and mark != "failed"):
        return None
    return Dot(
        run=record.run,
        pps=pps,
        loss_ratio=None if mark == "failed" else loss,
        mark=mark,
        of_detections=by_detections(record),
        busiest_cpu_ratio=record.busiest_thread.cpu_ratio if record.busiest_thread else None,
        worker=next(iter(workers_of(record)), None),
    )


def _pps(record: TrialRecord) -> float | None:
    offered = record.offered
    if offered.pps is None and offered.intended and offered.intended_duration_s:
        return offered.intended / offered.intended_duration_s
    return offered.pps
