"""A line of trials.jsonl keeps its promises when written and when read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodrop.ledger.transactions import Transactions
from nodrop.results.model import FORMAT
from nodrop.results.transaction_books import TransactionBooks
from nodrop.results.trial import RecordError, TrialRecord, trial_schema
from tests.made.outcome_runs import trial

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
WHOLE: dict[str, Any] = {
    "cell": {"setup": "bare", "load.multiplier": 4},
    "repetition": 1,
    "index": 0,
    "run": "0001-bare-4x-r01",
    "outcome": "measured",
    "valid": True,
    "verdict": "no loss",
}


def test_the_schema_is_a_schema_and_accepts_what_is_written() -> None:
    schema = trial_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    line = trial(**WHOLE, offered_packets=7, merged_detail=None).to_line()
    jsonschema.Draft202012Validator(schema).validate(json.loads(line))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("valid", None),
        ("repetition", 0),
        ("offered.sent", -1),
        ("offered.sent", 1.5),
        ("offered.sent", "7"),
        ("offered.unit", "litres"),
        ("run", "../escape"),
        ("offered.schedule_error_us", {"p50": 1.0}),
        ("body.lost_packets", -1),
        ("body.kind", "something new"),
        ("body", None),
        ("format", FORMAT + 1),
    ],
)
def test_schema_and_reader_refuse_the_same(field: str, value: object) -> None:
    found = json.loads(TrialRecord(**WHOLE).to_line())
    part, _, name = field.rpartition(".")
    (found[part] if part else found)[name] = value
    with pytest.raises(RecordError, match=field):
        TrialRecord.from_line(json.dumps(found))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(trial_schema()).validate(found)


@pytest.mark.parametrize("field", ["valid", "offered", "body", "host_cpu_ratio"])
def test_a_writer_leaves_no_field_of_the_envelope_out(field: str) -> None:
    found = json.loads(TrialRecord(**WHOLE).to_line())
    del found[field]
    with pytest.raises(jsonschema.ValidationError, match=field):
        jsonschema.Draft202012Validator(trial_schema()).validate(found)


def test_what_is_written_is_what_is_read() -> None:
    record = trial(**WHOLE, loss_ratio=0.031, residual_packets=-3, lost_by_place={"path": 3})
    assert TrialRecord.from_line(record.to_line()) == record


def test_not_measured_is_null_and_stays_apart_from_zero() -> None:
    found = json.loads(trial(**WHOLE, lost_packets=0).to_line())["body"]
    assert found["lost_packets"] == 0
    assert found["decoded_packets"] is None


def test_an_unknown_field_of_a_newer_nodrop_is_ignored() -> None:
    line = json.dumps(WHOLE | {"format": FORMAT, "from_the_future": 1})
    assert TrialRecord.from_line(line) == TrialRecord(**WHOLE)


@pytest.mark.parametrize(
    "change",
    [
        {"valid": False},
        {"invalid_reasons": ["residual"]},
        {"error": "Suricata died"},
        {"body": {"loss_ratio": float("nan")}},
        {"host_cpu_ratio": float("inf")},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TrialRecord(**(WHOLE | change))


@pytest.mark.parametrize("found", [0, 1, -1, 3, 99, "2", 2.0, True, None, [2]])
def test_a_format_that_is_not_known_is_named(found: object) -> None:
    with pytest.raises(RecordError, match=r"^format: "):
        TrialRecord.from_line(json.dumps({**WHOLE, "format": found}))


def test_a_name_of_tables_leads_to_its_field() -> None:
    line = json.loads(TrialRecord(**WHOLE).to_line())
    line["offered"] |= {"intended": 9, "sent": 7, "unsent": 2, "sent_late": 1, "shaped_per_s": 4.5}
    line["body"] |= {"captured_packets": 6, "lost_packets": 3, "loss_place": "path"}
    record = TrialRecord.from_line(json.dumps(line))
    named = {
        "intended_packets": 9, "offered_packets": 7, "unsent_packets": 2, "late_burst_packets": 1,
        "shaped_pps": 4.5, "captured_packets": 6, "lost_packets": 3, "loss_place": "path",
        "decoded_packets": None, "run": WHOLE["run"],
    }  # fmt: skip
    assert {name: record.figure(name) for name in named} == named


# --- another kind of body ------------------------------------------------------------------------


@pytest.mark.parametrize(("completed", "timed_out"), [(90, 4), (94, 0), (0, 94)])
def test_an_envelope_fits_a_body_of_another_kind(completed: int, timed_out: int) -> None:
    seen = Transactions(
        started=100,
        completed=completed,
        rejected={"22": 5},
        timed_out=timed_out,
        aborted={"reset": 1},
    )
    offered = {"unit": "transactions", "intended": 100, "sent": 100, "unsent": 0, "per_s": 50.0}
    record = TrialRecord(**WHOLE, offered=offered, body=TransactionBooks.of(seen))
    found = TrialRecord.from_line(record.to_line())
    assert found == record
    assert (found.loss_ratio, found.lost) == (seen.failed / 100, seen.failed)
    assert found.packets.lost_packets is found.figure("offered_pps") is None
    assert found.figure("lost_packets") == seen.failed
    jsonschema.validate(json.loads(record.to_line()), trial_schema())
    jsonschema.validate(json.loads(TrialRecord(**WHOLE).to_line()), trial_schema())
