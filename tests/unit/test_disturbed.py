"""A disturbed test is done again; one that fails by itself is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.disturbed import Disturbances, Disturbed, disturbance

UNDISTURBED = [
    {"run": "0001", "invalid_reasons": [], "verdict": "no loss"},
    {"run": "0002", "invalid_reasons": ["residual"], "verdict": "void: 3 packets are in no class"},
    {"run": "0003", "invalid_reasons": ["sut_died"], "verdict": "failed: it was killed"},
]
DISTURBED = [
    {"run": "0004", "invalid_reasons": ["sender_late"], "verdict": "void: the sender was late"},
    {"run": "0005", "invalid_reasons": ["no_books", "cpu_stolen"], "verdict": "void: stolen"},
    {"run": "0006", "invalid_reasons": [], "verdict": "7 lost: waited for what other programs had"},
]


def told(folder: Path, *records: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_what_nodrop_says_of_the_machine_is_a_disturbance(tmp_path: Path) -> None:
    for number, record in enumerate(DISTURBED):
        said = disturbance(told(tmp_path / str(number) / "runs", *UNDISTURBED, record))
        assert said == f"trial {record['run']}: {record['verdict']}"


def test_nothing_else_is(tmp_path: Path) -> None:
    assert disturbance(tmp_path) is None
    assert disturbance(told(tmp_path / "a", *UNDISTURBED)) is None
    assert disturbance(told(tmp_path / "b", [], 7, {"run": "hypervisor"}, "torn")) is None


@pytest.mark.parametrize("record, raised", [(DISTURBED[0], Disturbed), (UNDISTURBED[1], KeyError)])
def test_only_a_failure_beside_one_is_another_error(
    tmp_path: Path, record: object, raised: type[Exception], request: pytest.FixtureRequest
) -> None:
    told(tmp_path, record)
    call = Disturbances().pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(raised):
        call.throw(KeyError("outcome"))


def test_a_test_that_passes_beside_one_has_passed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    told(tmp_path, DISTURBED[0])
    call = Disturbances().pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(StopIteration):
        call.send(True)
    (tmp_path / "trials.jsonl").unlink()
