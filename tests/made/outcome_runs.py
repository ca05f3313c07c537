"""Run directories made from what became of each trial: `0.0` lost nothing, `died`, `late` ….

For sentences: the least of books, no samples, but every outcome in any mixture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import CUT, SOCKET_RING, Account, Class, Hop
from nodrop.ledger.outcome import Outcome, outcome_of
from nodrop.results.ledger_file import ledger_to_json
from nodrop.results.packet_books import FLAT
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter, plan_sha256


def trial(**figures: Any) -> TrialRecord:
    """A record from fields by the names of tables; its outcome follows from its reasons, and what
    was lost before the SUT from the places."""
    found: dict[str, Any] = {"offered": {"unit": "packets"}, "body": {"kind": "packets"}}
    for name, value in figures.items():
        part, now = FLAT.get(name, ("", name))
        (found[part] if part else found)[now] = value
    places = figures.get("lost_by_place")
    if places and "lost_before_sut_packets" not in figures:
        before = [n for place, n in places.items() if place not in ("socket ring", "SUT")]
        found["body"]["lost_before_sut_packets"] = sum(before)
    if "outcome" not in figures and "valid" in figures:
        reasons = figures.get("invalid_reasons", ())
        found["outcome"] = str(Outcome.MEASURED if figures["valid"] else outcome_of(reasons))
    return TrialRecord.model_validate(found)


STARTED = datetime(2026, 11, 21, 20, 53, tzinfo=UTC)
FAILED = {
    "died": ["sut_died", "residual"],
    "not ready": ["sut_not_ready"],
    "hung": ["not_drained", "counters_moved_after_drain"],
}
VOID = {
    "late": ["sender_late"],
    "short": ["sender_short"],
    "residual": ["residual"],
    "lab": ["lab_problem"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The trials of one cell."""

    cell: Mapping[str, Any]
    trials: Sequence[float | str]
    """A loss ratio, or a key of `FAILED` or `VOID`."""
    pps: float = 10_000.0
    duration_s: float = 2.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every measured record."""
    each: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Repetition → fields of that record alone."""


SEARCH = {"goals": [0.0, 0.005], "duration_sum_s": 5.0, "rounds": 3}
"""One trial decides a load."""


def tried(
    value: float,
    trials: Sequence[float | str],
    *,
    by: str = "multiplier",
    pps: float = 1000.0,
    cell: Mapping[str, Any] = {},
) -> Load:
    """A load of a search, `pps` at a value of 1: its trials are those of the rounds."""
    seen = {
        "sustained": True,
        "busiest_thread": {"name": "W#01", "cpu_ratio": min(0.99, value / 64)},
        "sut_cpu_s": value / 16,
        "offered_bps": value * pps * 2400,
        "knob": "sut.ring_size" if any(trials) else "",
    }
    rounds = {
        number: {"searched": {"by": by, "value": value, "duration_s": 5.0, "round": number}}
        for number in range(1, len(trials) + 1)
    }
    return Load(cell=cell, trials=trials, pps=value * pps, duration_s=5.0, fields=seen, each=rounds)


def windowed(load: Load, **more: Any) -> Load:
    """Its trials sent 5 of 20 s of their trace."""
    window = {
        "span": "10..15", "from_s": 10.0, "to_s": 15.0, "packets": 15_000, "frame_bytes": 6_000_000,
        "pps": 3_000.0, "bps": 9.6e6, "trace_packets": 31_000, "trace_bytes": 12_400_000,
        "trace_s": 20.0, "mean_pps": 1_550.0, "mean_bps": 4.96e6, "peak_pps": 3_001.0,
        "peak_bps": 9.61e6, "begun_packet_ratio": 0.97, "begun_byte_ratio": 0.98, **more,
    }  # fmt: skip
    return replace(load, fields={**load.fields, "window": window})


def outcome_search(
    out: Path,
    loads: Sequence[Load],
    *,
    search: Mapping[str, Any] = {},
    manifest: Mapping[str, Any] = {},
    **more: Any,
) -> Path:
    """A run whose manifest says what was searched for."""
    kept = {**manifest, "search": {"by": "multiplier", **SEARCH, **search}}
    return outcome_run(out, loads, manifest=kept, **more)


def outcome_run(
    out: Path, loads: Sequence[Load], *, sut: str = "suricata", manifest: Mapping[str, Any] = {}
) -> Path:
    """The trials in blocks of one per cell, as a plan has them."""
    most = max(len(load.trials) for load in loads)
    plan = [(load, r) for r in range(most) for load in loads if r < len(load.trials)]
    writer = RunWriter.create(
        out,
        "told",
        experiment='name = "told"\n',
        lab='name = "netns"\n',
        plan_sha256=plan_sha256([dict(load.cell) for load, _ in plan]),
        manifest={"name": "told", "sut": {"name": sut}, "seed": 1, **manifest},
        started=STARTED,
    )
    with writer:
        for index, (load, repetition) in enumerate(plan, 1):
            record = _record(load, repetition, index)
            folder = writer.trial(record.run)
            if record.outcome == "measured":
                folder.write("ledger", ledger_to_json(_books(record)))
            writer.finish(record, {})
    return writer.path


def _books(record: TrialRecord) -> Ledger:
    """A record's packets as hops with a loss; books that do not close lack a packet."""
    told = record.packets
    sent, decoded = record.offered.sent or 0, told.decoded_packets or 0
    kinds = {Class.LOST: told.lost_packets, Class.FOREIGN: told.foreign_packets}
    return balance(
        [
            Hop(name="sent", packets=sent, counter="told"),
            Hop(name="decoded", packets=decoded, counter="told"),
        ],
        [
            Account(into="decoded", kind=kind, name=f"told_{kind}", packets=n, counter="told")
            for kind, n in kinds.items()
            if n
        ]
        + [
            Account(into="decoded", kind=kind, name=name, packets=n, counter="told")
            for kind, name, n in (
                (Class.SHORTENED, CUT, told.cut_packets),
                (Class.INVALID, "rx_invalid", told.invalid_packets),
                (Class.CHECKSUM, "rx_checksum", told.checksum_packets),
            )
            if n is not None
        ],
    )


def _record(load: Load, repetition: int, index: int) -> TrialRecord:
    told = load.trials[repetition]
    packets = round(load.pps * load.duration_s)
    found: dict[str, Any] = {
        "cell": dict(load.cell),
        "repetition": repetition + 1,
        "index": index,
        "run": f"{index:04}-r{repetition + 1:02}",
        "started_utc": STARTED.isoformat(timespec="seconds"),
        "intended_packets": packets,
        "intended_duration_s": load.duration_s,
    }
    if isinstance(told, str):
        outcome = "failed" if told in FAILED else "void"
        reasons = FAILED.get(told) or VOID[told]
        found |= {"valid": False, "outcome": outcome, "invalid_reasons": reasons, "verdict": told}
    else:
        lost = round(packets * told)
        found |= {
            "valid": True,
            "outcome": "measured",
            "verdict": f"{told:.2%} lost" if told else "no loss",
            "offered_packets": packets,
            "decoded_packets": packets - lost,
            "lost_packets": lost,
            "residual_packets": 0,
            "books_closed": True,
            "loss_ratio": lost / packets,
            "loss_place": SOCKET_RING.name if lost else None,
            "lost_by_place": {SOCKET_RING.name: lost} if lost else {},
            "duration_s": load.duration_s,
            "offered_pps": load.pps,
            "schedule_error_us": {"p50": 0.2, "p99": 20.0, "max": 90.0},
            **load.fields,
        }
    found |= load.each.get(repetition + 1, {})
    if found.get("books_closed") is False and not found["residual_packets"]:
        gone = (found["lost_packets"] or 0) + 1
        found |= {"residual_packets": 1, "decoded_packets": found["offered_packets"] - gone}
    if foreign := found.get("foreign_packets"):
        found["decoded_packets"] += foreign
    return trial(**found)
