"""Books of transactions: every one in one class, and a sender that must have been on time."""

from dataclasses import replace
from random import Random

import pytest

from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.sender import SenderLimits, Sending
from nodrop.ledger.transactions import (
    Latency,
    Messages,
    Transactions,
    judge_transactions,
    time_words,
    together,
    unmatched,
    words_of,
)

MESSAGES = Messages(sent={"initial_ue_message": 100}, received={"downlink_nas": 200})
ALL = Transactions(name="attach", started=100, completed=100, messages=MESSAGES)
ON_TIME = Sending(
    unit="attach", intended_packets=100, sent_packets=100, schedule_error_p99_us=80, duration_s=1
)


def codes(seen: Transactions | None, sending: Sending = ON_TIME, **more: object) -> list[str]:
    verdict = judge_transactions(seen, sending, bounds=SenderLimits(), **more)
    return [str(problem.code) for problem in verdict.invalid_reasons]


def test_all_completed_is_no_loss_and_failures_are_one_by_class() -> None:
    took = Latency(count=100, p50_us=140, p90_us=160, p99_us=4700, max_us=9000)
    assert judge_transactions(ALL, ON_TIME, bounds=SenderLimits()).loss_ratio == 0
    assert words_of(replace(ALL, latency=took)) == "all 100 attaches completed; p99 4.7 ms"
    failed = replace(
        ALL, completed=90, timed_out=2, rejected={"22": 5}, aborted={"association_lost": 3}
    )
    verdict = judge_transactions(failed, ON_TIME, bounds=SenderLimits())
    assert (verdict.outcome, verdict.loss_ratio) == ("measured", 0.1)
    assert verdict.words == (
        "10 of 100 attaches failed (10.00 %): 5 rejected (cause 22), 3 aborted (association lost), "
        "2 timed out"
    )


def test_a_transaction_in_no_class_leaves_nothing_known() -> None:
    lost = replace(ALL, completed=98)
    verdict = judge_transactions(lost, ON_TIME, bounds=SenderLimits())
    assert (verdict.outcome, verdict.loss_ratio) == ("void", None)
    assert "+2 attaches in no class" in verdict.words


def test_the_sender_is_a_suspect_here_too() -> None:
    assert codes(ALL, replace(ON_TIME, schedule_error_p99_us=5001)) == [Reason.SENDER_LATE]
    short = replace(ON_TIME, sent_packets=99)
    assert codes(replace(ALL, started=99, completed=99), short) == [Reason.SENDER_SHORT]
    verdict = judge_transactions(ALL, short, bounds=SenderLimits())
    assert "only 99 of 100 attaches were sent" in verdict.words
    assert codes(None) == [Reason.NO_BOOKS]
    died = Problem(code=Reason.SUT_DIED, words="it died")
    assert codes(None, problems=[died]) == [Reason.SUT_DIED]


def test_both_ends_must_count_the_same_messages_if_nothing_else_explains_it() -> None:
    same = Messages(
        sent={"downlink_nas": 200, "s1_setup_response": 1}, received={"initial_ue_message": 100}
    )
    assert unmatched(MESSAGES, same) == {}
    assert codes(ALL, of_sut=same) == []
    fewer = replace(same, received={"initial_ue_message": 99})
    assert unmatched(MESSAGES, fewer) == {"initial_ue_message": 1}
    assert codes(ALL, of_sut=fewer) == [Reason.RESIDUAL]
    assert codes(replace(ALL, completed=99, timed_out=1), of_sut=fewer) == []
    assert codes(replace(ALL, anomalies={"repeats": 1}), of_sut=fewer) == []
    assert codes(ALL, of_sut=None) == []


def test_messages_of_several_servers_add_up() -> None:
    found = together([MESSAGES, MESSAGES])
    assert (found.sent, found.received) == ({"initial_ue_message": 200}, {"downlink_nas": 400})


@pytest.mark.parametrize("seed", range(20))
def test_the_identity_holds_whatever_the_classes_are(seed: int) -> None:
    dice = Random(seed)
    classes = [dice.randrange(1000) for _ in range(4)]
    seen = Transactions(
        started=sum(classes),
        completed=classes[0],
        timed_out=classes[1],
        rejected={"8": classes[2]},
        aborted={"reset": classes[3]},
    )
    assert (seen.residual, seen.failed) == (0, sum(classes[1:]))
    assert replace(seen, started=seen.started + 1).failed_ratio is None


def test_times_have_three_digits() -> None:
    told = [time_words(us) for us in (140, 4_712, 4_212_000)]
    assert told == ["140 µs", "4.71 ms", "4.21 s"]
