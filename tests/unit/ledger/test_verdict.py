"""Losses are blamed on the right place; what cannot be judged is invalid, never lossy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodrop.ledger import hops as places
from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.sender import SenderLimits, Sending
from nodrop.ledger.verdict import judge, percent
from nodrop.testbed.suts.suricata.sut import RING
from tests.made.threads import made_up

SENT = 101_171
SENDING = Sending(
    intended_packets=SENT,
    sent_packets=SENT,
    duration_s=2.0,
    intended_duration_s=2.0,
    schedule_error_p99_us=12.0,
)


def books(
    *, sent: int = SENT, rx: int | None = None, ring_full: int = 0, decoded: int | None = -1
) -> Ledger:
    rx = sent if rx is None else rx
    hops = [
        Hop(name="intended", packets=SENT, counter="the plan"),
        Hop(name="sent", packets=sent, counter="send() results"),
        Hop(name="tx_nic", packets=sent, counter="tx_packets of tx0"),
        Hop(name="rx_nic", packets=rx, counter="rx_packets of rx0", wire=True),
        Hop(name="socket", packets=rx, counter="tp_packets"),
        Hop(name="decoded", packets=rx - ring_full if decoded == -1 else decoded, counter="pkts"),
    ]
    accounts = [
        Account(into="sent", kind=Class.UNSENT, name="u", packets=SENT - sent, counter="errno"),
        Account(
            into="decoded",
            kind=Class.LOST,
            name="rx_dropped_ring_full",
            packets=ring_full,
            counter="tp_drops",
            place=RING,
        ),
    ]
    return balance(hops, accounts)


def codes(ledger: Ledger | None, sending: Sending | None = SENDING, **more: object) -> list[str]:
    verdict = judge(ledger, sending, **more)  # type: ignore[arg-type]
    assert verdict.valid == (not verdict.invalid_reasons)
    assert verdict.words.startswith(("void: ", "failed: ")) != verdict.valid
    return [problem.code for problem in verdict.invalid_reasons]


def test_no_loss() -> None:
    verdict = judge(books(), SENDING)
    assert (verdict.valid, verdict.loss_ratio, verdict.words) == (True, 0.0, "no loss")
    assert verdict.place is None


def test_a_full_ring_is_blamed_on_the_ring() -> None:
    verdict = judge(books(ring_full=3120), SENDING)
    assert verdict.valid
    assert verdict.loss_ratio == pytest.approx(3120 / SENT)
    assert str(verdict.place) == "socket ring"
    assert verdict.evidence == "tp_drops 3,120 of 101,171 sent"
    assert verdict.words.startswith(
        "3.08 % lost in the socket ring (3,120 of 101,171 sent): sut.ring_size"
    )


def test_a_cause_stands_beside_the_counter_and_brings_its_knob() -> None:
    full = judge(books(ring_full=9), SENDING, running=made_up(lost=9, ran=0.99))
    assert full.cause == "thread W#01 used 99 % of one CPU while it lost"
    assert full.knob.startswith("sut.threads, fewer rules")
    assert full.words == (
        "0.0089 % lost in the socket ring (9 of 101,171 sent; "
        f"thread W#01 used 99 % of one CPU while it lost): {full.knob}"
    )
    # With time left, and no burst shown, the ring is not blamed by elimination.
    idle = judge(books(ring_full=9), SENDING, running=made_up(lost=9, ran=0.4))
    assert idle.cause.startswith("cause not known")


@pytest.mark.parametrize(("lost", "stolen", "void"), [
    (3000, 0.098, True), (3000, 0.04, False), (60_000, 0.098, False), (9000, 0.051, True),
])  # fmt: skip
def test_losses_that_stolen_time_explains_are_no_measurement(
    lost: int, stolen: float, void: bool
) -> None:
    running = replace(made_up(lost=lost, ran=0.9), steal_ratio=stolen)
    verdict = judge(books(ring_full=lost), SENDING, running=running)
    assert ([p.code for p in verdict.invalid_reasons] == [Reason.CPU_STOLEN]) is void
    assert judge(books(), SENDING, running=running).valid, "nothing was lost"
    on_the_path = judge(books(rx=SENT - lost), SENDING, running=running)
    assert on_the_path.valid, "no packet waits for a CPU on a cable"
    patient = judge(
        books(ring_full=lost), SENDING, running=running, bounds=SenderLimits(steal_ratio=1)
    )
    assert patient.valid


def test_a_lossy_path_is_blamed_on_the_path() -> None:
    verdict = judge(books(rx=SENT - 500, ring_full=20), SENDING)
    assert verdict.valid
    assert str(verdict.place) == "path"
    assert verdict.lost_at == {places.PATH: 500, RING: 20}
    assert "mostly in the path (tx_nic 101,171, rx_nic 100,671 of 101,171 sent)" in verdict.words


def test_a_loss_with_a_residual_is_invalid_and_has_no_ratio() -> None:
    ledger = books(ring_full=3120, decoded=SENT - 3120 - 7)
    assert codes(ledger) == [Reason.RESIDUAL]
    verdict = judge(ledger, SENDING)
    assert verdict.loss_ratio is None
    assert verdict.words == "void: +7 packets unexplained between socket and decoded"


def test_received_more_than_sent_is_invalid() -> None:
    assert codes(books(rx=SENT + 3)) == [Reason.RECEIVED_MORE_THAN_SENT]


def test_a_counter_nobody_could_read_is_not_zero() -> None:
    ledger = books(decoded=None)
    assert codes(ledger) == [Reason.NOT_READ]
    assert judge(ledger, SENDING).loss_ratio is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"schedule_error_p99_us": 5_000.0}, []),
        ({"schedule_error_p99_us": 5_001.0}, [Reason.SENDER_LATE]),
        ({"schedule_error_p99_us": None}, []),
        ({"schedule_error_p99_us": None, "duration_s": 2.11}, [Reason.SENDER_LATE]),
        ({"schedule_error_p99_us": None, "duration_s": 2.09}, []),
        ({"intended_duration_s": None, "duration_s": 99.0}, []),
    ],
)
def test_a_late_sender_makes_the_trial_invalid(
    change: dict[str, float | None], expected: list[Reason]
) -> None:
    assert codes(books(), replace(SENDING, **change)) == expected  # type: ignore[arg-type]


def test_a_short_trial_has_grace_for_one_hiccup() -> None:
    short = replace(SENDING, intended_duration_s=0.1, duration_s=0.14, schedule_error_p99_us=None)
    assert codes(books(), short) == []


@pytest.mark.parametrize(
    ("asked_s", "took_s", "expected"),
    [
        (2e-14, 0.04, [Reason.SENDER_LATE]),  # 20,000 packets at 10^18 per second
        (0.02, 0.041, [Reason.SENDER_LATE]),
        (0.02, 0.039, []),
        (2.0, 2.11, [Reason.SENDER_LATE]),
        (2.0, 2.09, []),
    ],
)
def test_a_rate_is_not_forgiven_by_the_grace_of_a_short_trial(
    asked_s: float, took_s: float, expected: list[Reason]
) -> None:
    short = replace(SENDING, constant_rate=True, intended_duration_s=asked_s, duration_s=took_s)
    assert codes(books(), short) == expected


def test_a_short_sender_makes_the_trial_invalid() -> None:
    few = SENT - 1
    assert codes(books(sent=few), replace(SENDING, sent_packets=few)) == [Reason.SENDER_SHORT]
    assert codes(books(sent=0), replace(SENDING, sent_packets=0)) == [Reason.NOTHING_SENT]


def test_a_short_sender_says_what_was_refused() -> None:
    said = judge(books(sent=SENT - 1), replace(SENDING, sent_packets=SENT - 1)).words
    assert said == f"void: only {SENT - 1:,} of {SENT:,} packets were sent (1: errno)"


def test_bounds_are_the_experiments() -> None:
    few = replace(SENDING, sent_packets=SENT - 100)
    ledger = books(sent=SENT - 100)
    assert codes(ledger, few, bounds=SenderLimits(unsent_ratio=0.001)) == []
    assert codes(ledger, few, bounds=SenderLimits(unsent_ratio=0.0009)) == [Reason.SENDER_SHORT]


def test_a_trial_that_never_got_to_its_books() -> None:
    dead = Problem(code=Reason.SUT_NOT_READY, words="Suricata was not ready after 30 s")
    assert codes(None, None, problems=[dead]) == [Reason.SUT_NOT_READY]
    assert judge(None, None, problems=[dead]).words == "failed: Suricata was not ready after 30 s"
    assert codes(None, None) == [Reason.NO_BOOKS]


def test_percent_never_hides_a_loss() -> None:
    assert [percent(r) for r in (0, 1e-6, 0.031, 1)] == ["0 %", "0.0001 %", "3.10 %", "100.00 %"]
