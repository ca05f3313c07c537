"""A disturbed test is done again; one that fails by itself is not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.disturbed import WORDS, Disturbances, Disturbed, Spent, said_by_nodrop

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


SPENT = Spent(mono_s=100.0, stolen_s=3.0, busy_s=500.0, own_s=40.0)


def told(folder: Path, *records: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def disturbance(folder: Path) -> str | None:
    return said_by_nodrop(sorted(folder.rglob("trials.jsonl")))


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


def later(*, elapsed_s: float, stolen_s: float, others_s: float, own_s: float) -> Spent:
    return Spent(
        mono_s=SPENT.mono_s + elapsed_s,
        stolen_s=SPENT.stolen_s + stolen_s,
        busy_s=SPENT.busy_s + others_s + own_s,
        own_s=SPENT.own_s + own_s,
    )


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("stolen_s, said", [(0.0, False), (0.04, False), (0.06, True), (5.0, True)])
def test_a_cpu_that_the_hypervisor_took_is_a_disturbance(
    stolen_s: float, said: bool, alone: bool
) -> None:
    now = later(elapsed_s=10.0, stolen_s=stolen_s, others_s=0.1, own_s=12.0)
    words = now.disturbance_since(SPENT, alone=alone)
    assert (words == f"the hypervisor gave {stolen_s:.2f} s of the CPUs to others") is said


@pytest.mark.parametrize(
    "elapsed_s, others_s, own_s", [(10.0, 3.0, 0.0), (0.5, 0.2, 0.8), (60.0, 110.0, 9.0)]
)
def test_other_programs_disturb_who_is_to_be_alone(
    elapsed_s: float, others_s: float, own_s: float
) -> None:
    now = later(elapsed_s=elapsed_s, stolen_s=0.0, others_s=others_s, own_s=own_s)
    said = f"other programs had {others_s:.2f} s of the CPUs"
    assert now.disturbance_since(SPENT, alone=True) == said
    assert now.disturbance_since(SPENT, alone=False) is None, "others run beside it on purpose"
    mine = later(elapsed_s=elapsed_s, stolen_s=0.0, others_s=0.0, own_s=others_s + own_s)
    assert mine.disturbance_since(SPENT, alone=True) is None


@pytest.mark.parametrize(
    "elapsed_s, stolen_s, robbed",
    [(10.0, 0.4, False), (10.0, 0.6, True), (0.2, 0.04, False), (0.2, 0.06, True)],
)
@pytest.mark.parametrize("tries", [1, 3, 4])
@pytest.mark.parametrize("before", [["'outcome'"] * 3, ["7 == 0", "9 == 0", "'outcome'"]])
def test_the_last_try_is_inconclusive_if_the_kernel_says_so(
    elapsed_s: float,
    stolen_s: float,
    robbed: bool,
    tries: int,
    before: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    told(tmp_path, DISTURBED[0])
    now = later(elapsed_s=elapsed_s, stolen_s=stolen_s, others_s=0.0, own_s=0.0)
    looks = iter([SPENT, now])
    monkeypatch.setattr(Spent, "now", lambda: next(looks))
    monkeypatch.setattr(request.node, "execution_count", tries)
    request.node.stash[WORDS] = list(before)
    call = Disturbances().pytest_pyfunc_call(request.node)
    next(call)
    inconclusive = robbed and tries == 4 and len({*before}) > 1
    with pytest.raises(pytest.skip.Exception if inconclusive else Disturbed):
        call.throw(KeyError("outcome"))
    monkeypatch.undo()


@pytest.mark.parametrize("count, fails", [(0, False), (12, False), (13, True), (40, True)])
def test_many_inconclusive_tests_are_a_failure(
    count: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.conftest import SkipLedger

    monkeypatch.setenv("CI", "1")
    writer = SimpleNamespace(line=lambda *_words, **_how: None)
    config = SimpleNamespace(get_terminal_writer=lambda: writer)
    session: Any = SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)
    ledger = SkipLedger()
    said = "inconclusive: the hypervisor took 0.60 s of the CPUs in 2.0 s in the last of its tries"
    ledger.reasons = [said] * count
    ledger.pytest_sessionfinish(session)
    assert (session.exitstatus == pytest.ExitCode.TESTS_FAILED) is fails


def test_the_kernel_is_asked() -> None:
    before = Spent.now()
    end = before.own_s + 0.1
    while (now := Spent.now()).own_s < end:
        pass
    assert now.mono_s > before.mono_s and now.busy_s > before.busy_s
    assert now.stolen_s >= before.stolen_s
