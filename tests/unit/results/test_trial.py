"""A line of trials.jsonl keeps its promises when written and when read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodrop.results.trial import RecordError, TrialRecord, trial_schema

SCHEMA_FILE = Path(__file__).parents[3] / "schema" / "trial.schema.json"
WHOLE: dict[str, Any] = {
    "cell": {"setup": "bare", "load.multiplier": 4},
    "repetition": 1,
    "index": 0,
    "run": "0001-bare-4x-r01",
    "valid": True,
    "verdict": "no loss",
}


def test_the_committed_schema_is_the_models() -> None:
    """After a change of the models: python -m nodrop.results > schema/trial.schema.json"""
    assert json.loads(SCHEMA_FILE.read_text()) == trial_schema()


def test_the_schema_is_a_schema_and_accepts_what_is_written() -> None:
    schema = trial_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    line = TrialRecord(**WHOLE, offered_packets=7, merged_detail=None).to_line()
    jsonschema.Draft202012Validator(schema).validate(json.loads(line))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("valid", None),
        ("repetition", 0),
        ("offered_packets", -1),
        ("offered_packets", 1.5),
        ("offered_packets", "7"),
        ("run", "../escape"),
        ("schedule_error_us", {"p50": 1.0}),
        ("format", 2),
    ],
)
def test_schema_and_reader_refuse_the_same(field: str, value: object) -> None:
    found = json.loads(TrialRecord(**WHOLE).to_line()) | {field: value}
    with pytest.raises(RecordError, match=field):
        TrialRecord.from_line(json.dumps(found))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(trial_schema()).validate(found)


def test_lines_of_earlier_releases_still_fit_the_schema() -> None:
    """A field that came later cannot be demanded of a run directory that was there before it."""
    lines = [
        line
        for run in sorted((Path(__file__).parents[2] / "fixtures" / "runs").iterdir())
        for line in (run / "trials.jsonl").read_text().splitlines()
    ]
    assert any("accelerator" not in json.loads(line) for line in lines)
    for line in lines:
        jsonschema.Draft202012Validator(trial_schema()).validate(json.loads(line))
        assert TrialRecord.from_line(line).format == 1


@pytest.mark.parametrize("field", ["valid", "loss_ratio", "host_cpu_ratio"])
def test_a_line_without_a_field_of_the_first_release_is_none(field: str) -> None:
    found = json.loads(TrialRecord(**WHOLE).to_line())
    del found[field]
    with pytest.raises(jsonschema.ValidationError, match=field):
        jsonschema.Draft202012Validator(trial_schema()).validate(found)


def test_what_is_written_is_what_is_read() -> None:
    record = TrialRecord(**WHOLE, loss_ratio=0.031, residual_packets=-3, lost_by_place={"path": 3})
    assert TrialRecord.from_line(record.to_line()) == record


def test_not_measured_is_null_and_stays_apart_from_zero() -> None:
    found = json.loads(TrialRecord(**WHOLE, lost_packets=0).to_line())
    assert found["lost_packets"] == 0
    assert found["decoded_packets"] is None


def test_an_unknown_field_of_a_newer_nodrop_is_ignored() -> None:
    line = json.dumps(WHOLE | {"from_the_future": 1})
    assert TrialRecord.from_line(line) == TrialRecord(**WHOLE)


@pytest.mark.parametrize(
    "change",
    [
        {"valid": False},
        {"invalid_reasons": ["residual"]},
        {"error": "Suricata died"},
        {"loss_ratio": float("nan")},
        {"host_cpu_ratio": float("inf")},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TrialRecord(**(WHOLE | change))
