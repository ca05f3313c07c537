"""A false verdict must not pass for a caught one: every field of an expectation, broken in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.calibrate import cases
from nodrop.calibrate.case import Case, CaseOutcome, CaseResult, Expected, Site, pace_of, seen_words
from nodrop.calibrate.cases import smallest_loss, try_case
from nodrop.calibrate.faults import at_once
from nodrop.config.lab_file import load_lab
from nodrop.errors import LabProblem, NotReady
from nodrop.ledger.outcome import Outcome
from nodrop.measure.manager import RunOutcome
from nodrop.results.calibration import Certificate, Key, KnownAnswer
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import trial


def record(**changes: Any) -> TrialRecord:
    """100 of 100,000 packets lost on the path, by a filter on egress."""
    fields: dict[str, Any] = {
        "cell": {},
        "repetition": 1,
        "index": 1,
        "run": "0001-r01",
        "verdict": "v",
        "outcome": "measured",
        "valid": True,
        "offered_packets": 100_000,
        "lost_packets": 100,
        "loss_place": "path",
        "loss_cause": "",
        "knob": "nft list ruleset; tc filter show dev ndtx0 egress",
    }
    return trial(**fields | changes)


def void(*reasons: str) -> TrialRecord:
    return record(outcome="void", valid=False, invalid_reasons=list(reasons))


LOST = Expected(lost=(100, 100), place="^path$", knob="egress")
CASE = Case(name="lose", put_in="100 of 100,000", settings=[], expected=[LOST])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(lab=load_lab(None), setup="bare", work=tmp_path, cpus=(0, 1), rootless=False)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[list[TrialRecord]]]:
    """The trials of each attempt; the last is said again and again."""

    def go(*attempts: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
        left = [list(attempt) for attempt in attempts]

        def run(*_: Any, progress: Any, **__: Any) -> RunOutcome:
            progress.phase("offer")
            found = left.pop(0) if len(left) > 1 else left[0]
            return RunOutcome(directory=tmp_path, records=tuple(found))

        monkeypatch.setattr(cases, "run_experiment", run)
        return left

    return go


def test_what_is_true_is_caught(site: Site, said: Any) -> None:
    said([record()])
    tried = try_case(site, CASE)
    assert (tried.answer, tried.why) == (CaseOutcome.CAUGHT, "")
    assert tried.seen == "lost 100 of 100,000, path"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"lost_packets": 99}, "lost 99, not 100"),
        ({"lost_packets": 0}, "lost 0, not 100"),
        ({"lost_packets": None}, "lost unknown, not 100"),
        ({"loss_place": "socket ring"}, "place 'socket ring'"),
        ({"loss_place": None}, "place 'not named'"),
        ({"knob": "sut.ring_size"}, "knob 'sut.ring_size'"),
        (
            {"outcome": "failed", "valid": False, "invalid_reasons": ["sut_died"]},
            "failed, not measured",
        ),
        (
            {"outcome": "void", "valid": False, "invalid_reasons": ["residual"]},
            "void, not measured",
        ),
    ],
)
def test_what_is_false_is_missed(site: Site, said: Any, broken: dict[str, Any], words: str) -> None:
    said([record(**broken)])
    tried = try_case(site, CASE)
    assert tried.answer is CaseOutcome.MISSED
    assert tried.why == words


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (["own_pace"], ""),
        (["still", "own_pace"], "cause 'words', not own_pace"),
        (["burst"], "cause 'words', not own_pace"),
        ([], "cause 'not named', not own_pace"),
    ],
)
def test_the_first_cause_is_the_one(site: Site, said: Any, rules: list[str], why: str) -> None:
    causes = [
        {"rule": rule, "words": "w", "share": None, "thread": "sink-0", "evidence": {}}
        for rule in rules
    ]
    wanted = Expected(lost=(100, 100), rules=frozenset({"own_pace"}))
    said([record(loss_causes=causes, loss_cause="words" if rules else "")])
    assert try_case(site, Case(name="c", put_in="", settings=[], expected=[wanted])).why == why


@pytest.mark.parametrize("reasons", [("not_drained",), ("sender_late",), ("residual", "lab")])
def test_void_for_another_reason_is_missed(site: Site, said: Any, reasons: tuple[str, ...]) -> None:
    wanted = Expected(outcome=Outcome.VOID, reasons=frozenset({"received_more_than_sent"}))
    said([void(*reasons)])
    tried = try_case(site, Case(name="c", put_in="", settings=[], expected=[wanted]))
    assert tried.answer is CaseOutcome.MISSED
    assert "not received_more_than_sent" in tried.why


def test_each_trial_is_held_against_its_own_expectation(site: Site, said: Any) -> None:
    case = Case(name="c", put_in="", settings=[], expected=[LOST, Expected(lost=(0, 0))])
    said([record(), record()])
    assert try_case(site, case).why == "trial 2: lost 100, not 0"
    said([record()])
    assert try_case(site, case).why == "1 trials, not 2"


@pytest.mark.parametrize("reason", ["sender_late", "sender_short", "sender_burst"])
def test_a_host_that_makes_the_sender_late_is_no_false_sentence(
    site: Site, said: Any, reason: str
) -> None:
    said([void(reason)], [void(reason)], [record()])
    assert try_case(site, CASE).answer is CaseOutcome.CAUGHT
    said([void(reason)])
    tried = try_case(site, CASE)
    assert tried.answer is CaseOutcome.NOT_POSSIBLE
    assert "3 of 3 attempts" in tried.why
    said([void(reason, "residual")])
    assert try_case(site, CASE).answer is CaseOutcome.MISSED


def test_a_fault_that_cannot_be_put_in(site: Site, said: Any) -> None:
    def refuse() -> None:
        raise LabProblem("fault: no nft here")

    said([record()])
    faulty = Case(
        name="c", put_in="", settings=[], expected=[LOST], faults={"offer": at_once(refuse)}
    )
    with pytest.raises(LabProblem):  # what the trial itself would do with it
        cases._run(site, faulty)
    tried = try_case(site, faulty)
    assert (tried.answer, tried.why) == (CaseOutcome.NOT_POSSIBLE, "fault: no nft here")


def test_a_lab_that_cannot_be_used_ends_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ready(*_: Any, **__: Any) -> None:
        raise NotReady("Docker's daemon does not answer")

    monkeypatch.setattr(cases, "run_experiment", not_ready)
    with pytest.raises(NotReady):
        try_case(site, CASE)


def test_what_was_said_in_a_line() -> None:
    assert seen_words([record()] * 2) == "lost 100, 100 of 100,000, path"
    many = [record(lost_packets=n) for n in (5, 3, 9, 4, 6)]
    assert seen_words(many) == "5 x lost 3 to 9 of 100,000, path"
    mixed = [record(lost_packets=0), void("residual"), void("residual")]
    assert seen_words(mixed) == "no loss in 100,000; 2 x void: residual"


def tried(*pairs: tuple[TrialRecord, Expected]) -> CaseResult:
    case = Case(name="c", put_in="", settings=[], expected=[wanted for _, wanted in pairs])
    return CaseResult(
        case=case, answer=CaseOutcome.CAUGHT, seen="", records=tuple(r for r, _ in pairs)
    )


def test_the_smallest_loss_is_one_that_was_named_to_the_packet() -> None:
    def exactly(packets: int) -> Expected:
        return Expected(lost=(packets, packets))

    assert smallest_loss([]) is None
    found = smallest_loss(
        [
            tried((record(), LOST), (record(lost_packets=10), exactly(10))),
            tried((record(lost_packets=2), exactly(1))),  # not what was put in
            tried((record(lost_packets=3), Expected(lost=(0, 50)))),  # no exact figure
            tried((record(lost_packets=0), exactly(0))),
        ]
    )
    assert found is not None and (found.packets, found.of_packets) == (10, 100_000)


def test_pace_ends_at_the_first_rate_that_is_late() -> None:
    def at(pps: float, *reasons: str) -> TrialRecord:
        changes: dict[str, Any] = {"cell": {"load.pps": pps}}
        if reasons:
            changes |= {"outcome": "void", "valid": False, "invalid_reasons": list(reasons)}
        return record(**changes)

    rates = [at(400.0), at(100.0), at(200.0, "sender_late")]
    assert pace_of(rates).largest_pps == 100
    assert pace_of(rates).tried_pps == [100, 200, 400]
    assert pace_of([at(100.0, "sender_short")]).largest_pps is None
    assert pace_of([at(100.0, "residual")]).largest_pps == 100


def certificate(*answers: str) -> Certificate:
    return Certificate(
        nodrop="0",
        made_utc="2026-11-22T16:00:00+00:00",
        took_s=1,
        key=Key(host="h", kernel="6", lab_sha256="l", setup="bare", node_sha256="n"),
        lab="netns",
        rootless=False,
        host={},
        known_answers=[
            KnownAnswer.model_validate(
                {"name": f"c{n}", "put_in": "p", "answer": a, "seen": "s", "took_s": 1}
            )
            for n, a in enumerate(answers)
        ],
        smallest_loss=None,
        pace=None,
        spread=None,
        clocks=[],
    )
