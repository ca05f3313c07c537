"""A trial as a report takes it: its record, held against its own books."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nodrop.ledger.balance import Ledger
from nodrop.ledger.imbalance import SutThread, ThreadRole
from nodrop.report import escape
from nodrop.results.detection_books import Detections
from nodrop.results.ledger_file import ledger_from_json
from nodrop.results.packet_books import counted_in
from nodrop.results.rundir import Damage, Json, RunDir, pack, unpack
from nodrop.results.summary import first_host
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import HostCluster
from nodrop.untrusted.json_text import list_in, table_in, tables_in, value_in

BOOKS_DIFFER = "books_differ"
BOOKS_MISSING = "books_missing"
"""Reasons that only a report finds."""
COUNTED = (
    "offered_packets", "decoded_packets", "lost_packets", "merged_packets", "foreign_packets",
    "copied_packets", "answered_packets", "residual_packets", "cut_packets", "invalid_packets",
    "checksum_packets", "books_closed",
)  # fmt: skip
"""Figures of a record that its books hold as well."""

KEPT = (
    "repetition", "world", "outcome", "accelerator", "loss_ratio", "lost_packets", "offered_pps",
    "activation_s", "sut_cpu_s", "setup_cpu_s", "host_cpu_ratio", "sut_rss_peak_bytes",
    "detections",
)  # fmt: skip
"""Figures of a record that are asked of every trial."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredTrial:
    """A trial record beside what its run folder says of it. A long run has no room for all records,
    books and details at once: here are the figures that are asked of every trial, and the others
    are made or read again when they are shown."""

    source: int
    """Number of its run directory."""
    packed: bytes
    """The record as results/rundir.py packs it."""
    name: str
    """Folder below runs/."""
    repetition: int
    world: int | None
    outcome: str
    invalid_reasons: tuple[str, ...]
    pair: str | None
    accelerator: str | None
    loss_ratio: float | None
    lost_packets: int | None
    offered_pps: float | None
    activation_s: float | None
    sut_cpu_s: float | None
    setup_cpu_s: float | None
    host_cpu_ratio: float | None
    sut_rss_peak_bytes: int | None
    detections: Detections | None = None
    run: RunDir | None = None
    """None: only the record is known."""
    ledger_problem: str = ""
    """Why there are no books to show; empty if there are."""
    closed: bool = False
    """The books were balanced again, and closed."""
    aside: TrialDetails = field(default_factory=lambda: TrialDetails())
    among_hosts: bool = False
    """Several hosts of a fleet measured its cell."""

    @classmethod
    def of(
        cls,
        record: TrialRecord,
        packed: bytes,
        *,
        source: int,
        first_host: str | None = None,
        **more: Any,
    ) -> StoredTrial:
        """`packed`: the record. `first_host`: of trials that name none, if others name one."""
        return cls(
            source=source,
            packed=packed,
            name=record.run,
            invalid_reasons=tuple(record.invalid_reasons),
            pair=record.measured_on or first_host,
            **{name: record.figure(name) for name in KEPT},
            **more,
        )

    @property
    def record(self) -> TrialRecord:
        return unpack(self.packed)

    def figure(self, name: str) -> Any:
        return getattr(self, name) if name in StoredTrial.__slots__ else self.record.figure(name)

    @property
    def valid(self) -> bool:
        return self.outcome == "measured"

    @property
    def has_books(self) -> bool:
        return self.run is not None and not self.ledger_problem

    @property
    def ledger(self) -> Ledger | None:
        return _ledger(self.run, self.record)[0] if self.run and self.has_books else None

    @property
    def details(self) -> Json:
        """Details from trial.json; empty if it cannot be read."""
        return table_in(self.run.detail(self.name, "trial"), "details") if self.run else {}

    @property
    def anchor(self) -> str:
        return f"t{self.source}-{self.name}"

    @property
    def start(self) -> tuple[int, int | str] | HostCluster:
        """The unit that inferences count once: the start of the SUT, among all run directories; for
        a cell that several hosts measured, the host."""
        if self.among_hosts:
            return HostCluster(self.source, self.pair or "")
        return self.source, self.name if self.world is None else self.world

    @property
    def mark(self) -> str:
        """`good`, `loss`, `failed` or `void`; it colours, and stands in words beside."""
        if not self.valid:
            return self.outcome
        return "loss" if self.lost_packets else "good"


def count_once(trials: Sequence[StoredTrial]) -> list[Hashable]:
    """The unit that inferences count once, for each of the trials of several cells together: its
    start, or its host if there are several."""
    if len({trial.pair for trial in trials}) > 1:
        return [HostCluster(trial.source, trial.pair or "") for trial in trials]
    return [trial.start for trial in trials]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetails:
    """Values read from every trial's details; None = not measured."""

    anonymous_bytes: int | None = None
    cpus: int | None = None
    foreign_cpu_ratio: float | None = None
    """Share of the CPUs that the SUT may use: what others used under load."""
    phases_s: Mapping[str, Any] = field(default_factory=dict)
    """Phases of the activation, in seconds."""
    asks_clock: bool = False
    """The cost of reading a clock was asked for: the answer is among the facts of its details."""
    warm_up: Mapping[str, Any] | None = None
    """Facts on the load that was sent to warm the SUT up and discarded; None if there was none."""
    sensor: ReportedSensor | None = None
    """Rules and configuration as the SUT took them; None without rules and without a configuration
    of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSensor:
    """Rules as the SUT reported them, and keys that nodrop replaced in a user's yaml."""

    rules_loaded: int | None
    rules_failed: int | None
    rules_skipped: int | None
    failed_first: tuple[str, ...]
    rules_lacking: tuple[str, ...]
    yaml: str | None
    replaced: tuple[tuple[str, str | None, str | None], ...]
    """Key, what it was, what it was run with; None = not there."""


def read_trial(source: int, run: RunDir, packed: bytes) -> StoredTrial:
    record = found = unpack(packed)
    kept, imported = table_in(run.detail(record.run, "trial")), run.manifest.get("imported_from")
    if record.transactions is None:
        ledger, problem = _ledger(run, record)
        closed = ledger is not None and ledger.closed
        if ledger is not None:
            found = _by_its_files(record, ledger, kept)
        elif not imported and record.outcome == "measured":
            # The record alone proves no figure.
            found = _void(record, BOOKS_MISSING, f"its books are not there: {problem}")
    else:  # its books are the classes of its transactions
        wrong = _transactions_problem(run, record)
        problem, closed = "its load was transactions", not wrong
        if record.outcome == "measured" and wrong:
            found = _void(record, BOOKS_DIFFER, wrong)
    return StoredTrial.of(
        found,
        packed if record is found else pack(found),
        source=source,
        first_host=first_host(run.manifest),
        run=run,
        ledger_problem=problem,
        closed=closed,
        aside=_aside(table_in(kept, "details")),
    )


def _transactions_problem(run: RunDir, record: TrialRecord) -> str:
    """Why its books prove nothing, in words; empty if they close and say what the record says."""
    said = table_in(run.detail(record.run, "transactions"))
    books = record.transactions
    counts = [said.get("started"), said.get("completed"), said.get("timed_out")]
    counts += [count for name in ("rejected", "aborted") for count in table_in(said, name).values()]
    numbers = [count for count in counts if isinstance(count, int)]
    if books is None or len(numbers) < len(counts):
        return "its books are not there: transactions.json cannot be read"
    started, completed, *failed = numbers
    if started != completed + sum(failed):
        return "its books do not close"
    if (started, completed) != (books.started, books.completed):
        return "the record says otherwise than transactions.json"
    return ""


def _aside(details: Json) -> TrialDetails:
    facts, phases = table_in(details, "facts"), table_in(details, "readiness", "phases_s")
    anonymous = value_in(details, "usage", "cgroup", "anon_peak_bytes")
    cpus = list_in(details, "usage", "sampler", "first", "cpus")
    foreign = details.get("foreign_cpu_ratio")
    warm_up = table_in(facts, "warm_up")
    return TrialDetails(
        anonymous_bytes=anonymous if isinstance(anonymous, int) else None,
        cpus=len(cpus) or None,
        foreign_cpu_ratio=float(foreign) if isinstance(foreign, int | float) else None,
        phases_s={sys.intern(name): took for name, took in phases.items()},
        asks_clock=isinstance(facts.get("tsc"), dict),
        warm_up=warm_up if warm_up.get("discarded") else None,
        sensor=_sensor(table_in(facts, "sut")),
    )


def _sensor(said: Json) -> ReportedSensor | None:
    sensor = ReportedSensor(
        rules_loaded=_count(said.get("rules_loaded")),
        rules_failed=_count(said.get("rules_failed")),
        rules_skipped=_count(said.get("rules_skipped")),
        failed_first=_texts(said.get("rules_failed_first")),
        rules_lacking=_texts(said.get("rules_lacking")),
        yaml=_text(said.get("yaml")),
        replaced=tuple(
            (key, _text(row.get("was")), _text(row.get("now")))
            for row in tables_in(said, "yaml_replaced")
            if (key := _text(row.get("key")))
        ),
    )
    return _shared(sensor) if sensor.rules_loaded is not None or sensor.yaml else None


@lru_cache(maxsize=256)
def _shared(sensor: ReportedSensor) -> ReportedSensor:
    """One object for all trials that say the same."""
    return sensor


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in list_in(value) if isinstance(one, str))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _by_its_files(record: TrialRecord, books: Ledger, kept: Json) -> TrialRecord:
    """A record that says otherwise than its own books, or than trial.json, which has the same
    record, vouches for nothing."""
    held = {"offered_packets": books.packets_at("sent"), **counted_in(books)}
    recorded = {name: record.figure(name) for name in COUNTED}
    differ = [n for n, v in recorded.items() if v is not None and v != held[n]]
    ratio, by_books = record.packets.loss_ratio, books.loss_ratio
    if ratio is not None and by_books is not None and abs(ratio - by_books) > 1e-9:
        differ.append("loss_ratio")
    if kept.get("outcome", record.outcome) != record.outcome:
        differ.append("outcome")
    if not differ:
        return record
    said = f"{', '.join(differ)}: the record says otherwise than its books or trial.json"
    return _void(record, BOOKS_DIFFER, said)


def _void(record: TrialRecord, reason: str, words: str) -> TrialRecord:
    found = {"outcome": "void", "valid": False, "verdict": f"void: {words}"}
    return record.model_copy(update={**found, "invalid_reasons": [reason]})


def _ledger(run: RunDir, record: TrialRecord) -> tuple[Ledger | None, str]:
    found = run.detail(record.run, "ledger")
    if found is None:
        if run.manifest.get("imported_from"):
            return None, "an imported run says only what was sent, dropped and decoded"
        missing = "the trial ended before its books could be balanced"
        return None, missing if record.error else "ledger.json is missing"
    if isinstance(found, Damage):
        return None, escape.plain(f"{found.where} cannot be read: {found.words}")
    try:
        return ledger_from_json(found), ""
    except ValueError as failed:
        return None, escape.plain(f"ledger.json makes no sense: {failed}")


def threads_of(record: TrialRecord, role: ThreadRole) -> list[SutThread]:
    return [thread for thread in record.threads if thread.role == role]


def work_of(record: TrialRecord) -> list[float]:
    """Work of each of the threads that do the same: packets that it captured, or, if they are
    workers behind receive threads, flows that it began."""
    workers = threads_of(record, ThreadRole.WORKER)
    if threads_of(record, ThreadRole.RECEIVE):
        return [float(t.flows) for t in workers if t.flows is not None]
    return [float(t.captured_packets) for t in workers if t.captured_packets is not None]
