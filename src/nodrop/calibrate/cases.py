"""The known answers, one `Case` each (a fault of known size, and what must be said of it), and a
calibration, which tries them all."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import nodrop
from nodrop.calibrate import faults
from nodrop.calibrate.case import (
    Case,
    CaseOutcome,
    CaseResult,
    Expected,
    Site,
    Timed,
    bursts,
    clocks_of,
    every,
    fragments,
    pace_case,
    pace_of,
    seen_words,
    spread_case,
    spread_of,
    steady_load,
    write,
)
from nodrop.calibrate.faults import Inject, PutIn
from nodrop.config.experiment import load_experiment
from nodrop.errors import Interrupted, LabProblem, NodropError, NotReady, interrupts
from nodrop.ledger import hops
from nodrop.ledger.cause import Rule
from nodrop.ledger.outcome import Outcome, Reason
from nodrop.measure.baselines import certificate_folder, key_of, probe_here
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.report.story import read_story
from nodrop.report.write import report_json
from nodrop.results.calibration import Certificate, KnownAnswer, SmallestLoss
from nodrop.results.trial import TrialRecord
from nodrop.testbed.hosts.node import find_node_binary

# One calibration: every case as a run of its own, and the certificate of what came of them.

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
    """Listener to the begin and the end of every case, called by the thread that runs them."""

    def begins(self, case: Case, ahead: Sequence[Case]) -> None: ...
    def ended(self, tried: CaseResult) -> None: ...


def calibrate(site: Site, cases: Sequence[Case], watcher: Watcher, *, keep: bool) -> Certificate:
    """Runs the cases in their order. A lab that cannot be used at all is raised (NotReady)."""
    began = time.monotonic()
    made = datetime.now(UTC)
    host = probe_here("host")["host"]
    results: list[CaseResult] = []
    with interrupts() as gate:
        for number, case in enumerate(cases):
            gate.check()
            watcher.begins(case, cases[number + 1 :])
            tried = try_case(site, case)
            if tried.directory and (keep or tried.answer is CaseOutcome.MISSED):
                tried = replace(tried, directory=_kept(tried, site, made))
            results.append(tried)
            watcher.ended(tried)
        clocks = clocks_of(site)
    by_name = {tried.case.name: tried for tried in results}
    spread, pace = by_name.get("a-a"), by_name.get("pace")
    return Certificate(
        nodrop=nodrop.__version__,
        made_utc=made.isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began, 1),
        key=key_of(site.lab, site.setup, host, find_node_binary()),
        lab=site.lab.name,
        rootless=site.rootless,
        host={**host},
        known_answers=[_known(tried, keep=keep) for tried in results if tried.case.name != "pace"],
        smallest_loss=smallest_loss(results),
        pace=pace_of(pace.records) if pace and pace.records else None,
        spread=spread.spread if spread else None,
        clocks=clocks,
    )


def try_case(site: Site, case: Case) -> CaseResult:
    """Runs it; a host that makes the sender late is given further attempts."""
    began = time.monotonic()
    if case.not_possible:
        return CaseResult(
            case=case, answer=CaseOutcome.NOT_POSSIBLE, seen="", why=case.not_possible
        )
    for _ in range(ATTEMPTS):
        try:
            outcome = _run(site, case)
        except NotReady:
            raise
        except LabProblem as problem:
            answer, seen, why = CaseOutcome.NOT_POSSIBLE, "", str(problem)
            return CaseResult(case=case, answer=answer, seen=seen, why=why, took_s=_since(began))
        if not case.disturbed(outcome.records):
            return _judged(case, outcome, _since(began))
    return CaseResult(
        case=case,
        answer=CaseOutcome.NOT_POSSIBLE,
        seen=seen_words(outcome.records),
        why=f"the host made the sender late in {ATTEMPTS} of {ATTEMPTS} attempts",
        took_s=_since(began),
        records=outcome.records,
        directory=outcome.directory,
    )


def _judged(case: Case, outcome: RunOutcome, took_s: float) -> CaseResult:
    misses = case.misses(outcome.directory, outcome.records)
    spread = None
    if case.name == "a-a" and all(record.valid for record in outcome.records):
        spread = spread_of(outcome.directory, outcome.records)
    return CaseResult(
        case=case,
        answer=CaseOutcome.MISSED if misses else CaseOutcome.CAUGHT,
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


def smallest_loss(results: Sequence[CaseResult]) -> SmallestLoss | None:
    """Smallest share that was named to the packet, of losses of known size; None if none was."""
    named = [
        (record.packets.lost_packets, record.offered.sent)
        for tried in results
        for record, wanted in zip(tried.records, tried.case.expected, strict=False)
        if wanted.exact and record.packets.lost_packets and not wanted.mismatches(record)
    ]
    known = [(lost, of) for lost, of in named if lost and of]
    if not known:
        return None
    packets, of_packets = min(known, key=lambda pair: pair[0] / pair[1])
    return SmallestLoss(packets=packets, of_packets=of_packets)


def _known(tried: CaseResult, *, keep: bool) -> KnownAnswer:
    kept = tried.directory if keep or tried.answer is CaseOutcome.MISSED else None
    trials: list[dict[str, Any]] = [r.model_dump(mode="json") for r in tried.records]
    return KnownAnswer(
        name=tried.case.name,
        put_in=tried.case.put_in,
        answer=tried.answer.value,
        seen=tried.seen,
        why=tried.why,
        took_s=round(tried.took_s, 1),
        trials=trials if tried.answer is CaseOutcome.MISSED else [],
        run_directory=None if kept is None else str(kept),
    )


def _kept(tried: CaseResult, site: Site, made: datetime) -> Path:
    """Moves a run directory beside the certificates, for whoever looks into what was missed."""
    assert tried.directory is not None
    folder = certificate_folder() / f"{site.setup}-{made:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(tried.directory, folder / tried.directory.name))


def _since(began: float) -> float:
    return time.monotonic() - began


PACKETS = 100_000
"""Packets in the ladder of the smallest losses: 1 of 10^5."""
PATIENT = "measure.late_p99_us=100000"
"""A busy host may be late if packets are the question."""
RING = f"^{hops.SOCKET_RING}$"
PATH = f"^{hops.PATH}$"
NO_LOSS = Expected(lost=(0, 0))


def known_answers(site: Site) -> tuple[Case, ...]:
    made = [
        _nothing(site),
        _smallest(site),
        _path(site),
        _injected(site),
        _netted(site),
        _stall(site),
        _twice(site),
        _burst(site),
        _shared_cpu(site),
        _frozen(site),
        _mtu(site),
        _fragments(site),
        _crash(site),
        spread_case(site),
        pace_case(site),
    ]
    return tuple(made)


def _trace(site: Site, name: str, frames: Iterator[Timed]) -> str:
    path = site.work / f"{name}.pcap"
    if not path.exists():
        write(path, frames)
    return f"load.trace={path}"


def _nothing(site: Site) -> Case:
    return Case(
        name="nothing",
        put_in="nothing: 50,000 packets at 50,000/s, three times",
        settings=[*steady_load(site, 50_000, 50_000), "measure.repetitions=3", PATIENT],
        expected=[NO_LOSS] * 3,
        about_s=7,
    )


def _smallest(site: Site) -> Case:
    """The ladder: the smallest loss that the books name to the packet."""
    ladder = (100, 10, 1)
    return Case(
        name="lose-on-egress",
        put_in=f"a filter on the sender's way out drops 100, 10, 1 of {PACKETS:,}",
        settings=[
            *steady_load(site, 50_000, PACKETS),
            f"measure.repetitions={len(ladder)}",
            PATIENT,
        ],
        faults={
            "read counters": faults.per_trial(*(faults.egress_drops(site.tx, k) for k in ladder))
        },
        expected=[Expected(lost=(k, k), place=PATH, knob="egress") for k in ladder],
        not_possible=site.no_filter(),
        about_s=10,
    )


def _path(site: Site) -> Case:
    """A driver counts what its program drops. If the kernel runs the program, nothing counts it."""
    native, generic = (1000, 100, 1), 100
    drops = [
        *(faults.first_dropped_by_xdp(site.tx, site.rx, k, "drv") for k in native),
        faults.first_dropped_by_xdp(site.tx, site.rx, generic, "skb"),
    ]
    return Case(
        name="lose-on-path",
        put_in="XDP on the receiver's port drops 1,000, 100, 1 of 20,000; then 100 uncounted",
        settings=[*steady_load(site, 20_000, 20_000), f"measure.repetitions={len(drops)}", PATIENT],
        faults={"read counters": faults.per_trial(*drops)},
        expected=[
            *(Expected(lost=(k, k), place=PATH, knob="XDP") for k in native),
            Expected(outcome=Outcome.VOID, reasons=frozenset({Reason.RESIDUAL})),
        ],
        not_possible=site.no_xdp(),
        about_s=8,
    )


FOREIGN = Expected(
    outcome=Outcome.VOID, reasons=frozenset({Reason.RECEIVED_MORE_THAN_SENT, Reason.RESIDUAL})
)


def _injected(site: Site) -> Case:
    return Case(
        name="inject",
        put_in="500, then 1 frames that the generator did not send",
        settings=[*steady_load(site, 20_000, 10_000), "measure.repetitions=2", PATIENT],
        faults={"drain": faults.per_trial(*(faults.injected(site.tx, k) for k in (500, 1)))},
        expected=[FOREIGN] * 2,
        about_s=4,
    )


def _netted(site: Site) -> Case:
    """Lost packets and packets put in must not be set off against each other."""
    # The filter drops the first of the load; the foreign frames come after it and go by.
    drops = (faults.egress_drops(site.tx, lost) for lost in (200, 200))
    frames = (faults.injected(site.tx, put_in) for put_in in (200, 150))
    return Case(
        name="lose-and-inject",
        put_in="a filter drops 200, and 200, then 150 foreign frames go in",
        settings=[*steady_load(site, 20_000, 10_000), "measure.repetitions=2", PATIENT],
        faults={"read counters": faults.per_trial(*drops), "drain": faults.per_trial(*frames)},
        expected=[FOREIGN] * 2,
        not_possible=site.no_filter(),
        about_s=4,
    )


def _stall(site: Site) -> Case:
    """The second stall makes less than 1 % of the packets late: p99 does not see it."""
    return Case(
        name="sender-stall",
        put_in="the sender stands still for 500 ms, then for 30 ms; its burst overflows a ring",
        settings=[
            *steady_load(site, 50_000, 200_000),
            "measure.repetitions=2",
            "sut.service_rate_pps=60000",
            "sut.ring_frames=256",
        ],
        faults={
            "offer": faults.per_trial(
                faults.stopped("replay", after_s=0.8, for_s=0.5),
                faults.stopped("replay", after_s=0.8, for_s=0.03),
            )
        },
        expected=[
            Expected(outcome=Outcome.VOID, reasons=frozenset({Reason.SENDER_LATE, "sender_burst"}))
        ]
        * 2,
        about_s=12,
    )


def _twice(site: Site) -> Case:
    """The sink serves 20,000 of 40,000 in two seconds, and 1,000 wait in its queue at the end."""
    return Case(
        name="sink-at-twice-its-rate",
        put_in="20,000 packets/s into a sink that serves 10,000",
        settings=[
            *steady_load(site, 20_000, 40_000),
            "sut.service_rate_pps=10000",
            "sut.ring_frames=1000",
            "measure.repetitions=1",
            PATIENT,
        ],
        expected=[Expected(lost=(18_800, 19_200), place=RING, rules=frozenset({Rule.OWN_PACE}))],
        about_s=5,
    )


def _burst(site: Site) -> Case:
    """Half of what it serves, on average. Of a burst 2,000 are served meanwhile, and 1,000 wait."""
    trace = _trace(site, "bursts", bursts(4, packets=10_000, gap_s=1.0, apart_s=0.00001))
    return Case(
        name="burst-into-sink",
        put_in="bursts of 10,000 at 100,000/s, one a second, into a sink that serves 20,000/s",
        settings=[
            trace,
            "load.speed=1",
            "sut.service_rate_pps=20000",
            "sut.ring_frames=1000",
            *_apart(site),
            "measure.repetitions=1",
            PATIENT,
        ],
        expected=[
            Expected(lost=(27_000, 29_000), place=RING, knob="ring", rules=frozenset({Rule.BURST}))
        ],
        about_s=6,
    )


def _apart(site: Site) -> list[str]:
    """Settings that give the sink another CPU than the sender's. On one CPU the sink would wait for
    the sender during each burst, which is a second cause."""
    if site.no_shared_cpu() or len(site.cpus) < 2:
        return []
    return [f"load.cpu={site.cpus[0]}", f'limits.cpus="{site.cpus[-1]}"']


def _shared_cpu(site: Site) -> Case:
    """The queue of 128 is full after 0.9 ms, and a turn of the sender is longer."""
    cpu = site.cpus[-1]
    return Case(
        name="shared-cpu",
        put_in=f"sender and SUT on CPU {cpu} alone",
        settings=[
            *steady_load(site, 150_000, 300_000),
            f"load.cpu={cpu}",
            f'limits.cpus="{cpu}"',
            "sut.ring_frames=128",
            "measure.repetitions=1",
            PATIENT,
        ],
        expected=[Expected(lost=(1, 300_000), place=RING, rules=frozenset({Rule.SENDER}))],
        not_possible=site.no_shared_cpu(),
        about_s=4,
    )


def _frozen(site: Site) -> Case:
    held: list[str] = []
    return Case(
        name="frozen-thread",
        put_in="one of two threads of the SUT is held for 1 s",
        settings=[
            *steady_load(site, 20_000, 60_000),
            "sut.threads=2",
            "sut.ring_bytes=262144",
            "measure.repetitions=1",
            PATIENT,
        ],
        faults={"offer": faults.one_thread_frozen("sink", after_s=1.0, for_s=1.0, held=held)},
        expected=[
            Expected(
                # How many flows, and so packets, are its share is the kernel's hash.
                lost=(2_000, 18_000),
                place=RING,
                rules=frozenset({Rule.STOPPED, Rule.STILL}),
            )
        ],
        judge=lambda _, records: _other_thread(records[0], held),
        not_possible=site.no_frozen_thread(),
        about_s=6,
    )


def _mtu(site: Site) -> Case:
    """Every 50th of 10,000 frames has 1,400 bytes: 200 do not pass an MTU of 1,000."""
    trace = _trace(site, "two-sizes", every(50, 10_000, frame_bytes=1400))
    return Case(
        name="receiver-mtu",
        put_in="MTU 1,000 at the receiver's port: 200 of 10,000 frames are longer",
        settings=[trace, "load.pps=10000", "measure.repetitions=1", PATIENT],
        faults={"read counters": faults.receiver_mtu(site.rx, 1000)},
        expected=[Expected(lost=(200, 200), place="receiv|between", knob="(?i)mtu")],
        not_possible=site.no_sut_process(),
        about_s=4,
    )


def _fragments(site: Site) -> Case:
    """The kernel's memory for reassembly (4 MiB by default) is full of datagrams that never become
    whole, and what comes then is refused."""
    trace = _trace(site, "fragments", fragments(unfinished=8000, whole=1000))
    return Case(
        name="fragment-flood",
        put_in="8,000 datagrams that never become whole, then 1,000 that would",
        settings=[trace, "load.pps=20000", "sut.defrag=true", "measure.repetitions=1", PATIENT],
        expected=[Expected(lost=(1, 10_000), place="kernel", knob="ipfrag_high_thresh")],
        about_s=4,
    )


def _crash(site: Site) -> Case:
    kill = faults.killed("sink", after_s=0.3)
    failed = Expected(outcome=Outcome.FAILED, reasons=frozenset({Reason.SUT_DIED}))
    return Case(
        name="sut-crashes",
        put_in="the SUT is killed in 2 of 4 trials",
        settings=[*steady_load(site, 20_000, 20_000), "measure.repetitions=4", PATIENT],
        faults={"offer": faults.per_trial(faults.nothing, kill, faults.nothing, kill)},
        expected=[NO_LOSS, failed, NO_LOSS, failed],
        judge=lambda directory, _: _headline(directory, "2 of 4"),
        not_possible=site.no_sut_process(),
        about_s=8,
    )


def _other_thread(record: TrialRecord, held: Sequence[str]) -> Sequence[str]:
    blamed = [cause.thread for cause in record.packets.loss_causes[:1]]
    return [] if blamed == held[-1:] else [f"thread {blamed[0]}, not {held[-1]}"]


def _headline(directory: Path, words: str) -> Sequence[str]:
    sentences = report_json(read_story([directory]))["answer"]["sentences"]
    said = " ".join(sentence["text"] for sentence in sentences)
    return [] if words in said else [f"the headline does not say {words}: {said}"]


__all__ = ("PACKETS", "known_answers")
