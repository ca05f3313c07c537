"""One calibration: every case as a run of its own, and the certificate of what came of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import nodrop
from nodrop.calibrate import case as figures
from nodrop.calibrate.case import Answer, Case, Site, Tried, seen_words
from nodrop.calibrate.faults import Inject, PutIn
from nodrop.config.experiment import load_experiment
from nodrop.errors import LabProblem, NodropError, NotReady
from nodrop.hosts.interrupts import Interrupted, interrupts
from nodrop.hosts.node import find_node_binary
from nodrop.measure.baselines import certificate_folder, key_of, probe_here
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.results.other_records import Certificate, KnownAnswer, SmallestLoss

ATTEMPTS = 3
"""Most attempts at a case whose sender the host made late."""
EXPERIMENT = """\
name = "calibrate-{name}"
[setup]
kind = "{setup}"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
[measure]
repetitions = 1
"""


class Watcher(Protocol):
    """Called as every case begins and ends, by the thread that runs them."""

    def begins(self, case: Case, ahead: Sequence[Case]) -> None: ...
    def ended(self, tried: Tried) -> None: ...


def calibrate(site: Site, cases: Sequence[Case], watcher: Watcher, *, keep: bool) -> Certificate:
    """Runs the cases in their order. A lab that cannot be used at all is raised (NotReady)."""
    began = time.monotonic()
    made = datetime.now(UTC)
    host = probe_here("host")["host"]
    found: list[Tried] = []
    with interrupts() as gate:
        for number, case in enumerate(cases):
            gate.check()
            watcher.begins(case, cases[number + 1 :])
            tried = try_case(site, case)
            if tried.directory and (keep or tried.answer is Answer.MISSED):
                tried = replace(tried, directory=_kept(tried, site, made))
            found.append(tried)
            watcher.ended(tried)
        clocks = figures.clocks(site)
    by_name = {tried.case.name: tried for tried in found}
    spread, pace = by_name.get("a-a"), by_name.get("pace")
    return Certificate(
        nodrop=nodrop.__version__,
        made_utc=made.isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began, 1),
        key=key_of(site.lab, site.setup, host, find_node_binary()),
        lab=site.lab.name,
        rootless=site.rootless,
        host={**host},
        known_answers=[_known(tried, keep=keep) for tried in found if tried.case.name != "pace"],
        smallest_loss=smallest_loss(found),
        pace=figures.pace(pace.records) if pace and pace.records else None,
        spread=spread.spread if spread else None,
        clocks=clocks,
    )


def try_case(site: Site, case: Case) -> Tried:
    """Runs it; a host that makes the sender late is given further attempts."""
    began = time.monotonic()
    if case.not_possible:
        return Tried(case=case, answer=Answer.NOT_POSSIBLE, seen="", why=case.not_possible)
    for _ in range(ATTEMPTS):
        try:
            outcome = _run(site, case)
        except NotReady:
            raise
        except LabProblem as problem:
            answer, seen, why = Answer.NOT_POSSIBLE, "", str(problem)
            return Tried(case=case, answer=answer, seen=seen, why=why, took_s=_since(began))
        if not case.disturbed(outcome.records):
            return _judged(case, outcome, _since(began))
    return Tried(
        case=case,
        answer=Answer.NOT_POSSIBLE,
        seen=seen_words(outcome.records),
        why=f"the host made the sender late in {ATTEMPTS} of {ATTEMPTS} attempts",
        took_s=_since(began),
        records=outcome.records,
        directory=outcome.directory,
    )


def _judged(case: Case, outcome: RunOutcome, took_s: float) -> Tried:
    misses = case.misses(outcome.directory, outcome.records)
    spread = None
    if case.name == "a-a" and all(record.valid for record in outcome.records):
        spread = figures.spread(outcome.directory, outcome.records)
    return Tried(
        case=case,
        answer=Answer.MISSED if misses else Answer.CAUGHT,
        seen=seen_words(outcome.records),
        why="; ".join(misses),
        took_s=took_s,
        records=outcome.records,
        directory=outcome.directory,
        spread=spread,
    )


def _run(site: Site, case: Case) -> RunOutcome:
    file = site.work / f"{case.name}.toml"
    file.write_text(EXPERIMENT.format(name=case.name, setup=site.setup))
    experiment = load_experiment(file, case.settings)
    failed: list[LabProblem] = []

    def guarded(put_in: PutIn) -> PutIn:
        """A fault that cannot be put in is not a trial that breaks by it."""

        def put() -> None:
            try:
                put_in()
            except LabProblem as problem:
                failed.append(problem)
                raise

        return put

    with ExitStack() as stack:
        entered = {
            step: guarded(stack.enter_context(fault())) for step, fault in case.faults.items()
        }
        try:
            outcome = run_experiment(
                experiment,
                site.lab,
                out=site.work / "runs",
                resume=False,
                progress=Inject(entered),
            )
        except (NodropError, Interrupted) as ended:
            ended.ended_run = None  # a run of a case is not to be gone on with
            raise
    if failed:
        raise failed[0]
    return outcome


def smallest_loss(found: Sequence[Tried]) -> SmallestLoss | None:
    """Smallest share that was named to the packet, of losses of known size; None if none was."""
    named = [
        (record.packets.lost_packets, record.offered.sent)
        for tried in found
        for record, wanted in zip(tried.records, tried.case.expected, strict=False)
        if wanted.exact and record.packets.lost_packets and not wanted.mismatches(record)
    ]
    known = [(lost, of) for lost, of in named if lost and of]
    if not known:
        return None
    packets, of_packets = min(known, key=lambda pair: pair[0] / pair[1])
    return SmallestLoss(packets=packets, of_packets=of_packets)


def _known(tried: Tried, *, keep: bool) -> KnownAnswer:
    kept = tried.directory if keep or tried.answer is Answer.MISSED else None
    trials: list[dict[str, Any]] = [r.model_dump(mode="json") for r in tried.records]
    return KnownAnswer(
        name=tried.case.name,
        put_in=tried.case.put_in,
        answer=tried.answer.value,
        seen=tried.seen,
        why=tried.why,
        took_s=round(tried.took_s, 1),
        trials=trials if tried.answer is Answer.MISSED else [],
        run_directory=None if kept is None else str(kept),
    )


def _kept(tried: Tried, site: Site, made: datetime) -> Path:
    """Beside the certificates, for whoever looks into what was missed."""
    assert tried.directory is not None
    folder = certificate_folder() / f"{site.setup}-{made:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(tried.directory, folder / tried.directory.name))


def _since(began: float) -> float:
    return time.monotonic() - began
