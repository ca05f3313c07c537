"""A search by rate finds the service time of a SUT that answers its load, whatever that is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.controller import load_of
from nodrop.capacity.next_load import Ask
from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.ledger.sender import SenderLimits, Sending
from nodrop.ledger.transactions import Latency, Transactions, judge_transactions, sustained
from nodrop.measure.controllers.blocks import AskedCell, TrialInput
from nodrop.results.transaction_books import TransactionBooks
from nodrop.results.trial import Offered, TrialRecord
from tests.made.judged import judged
from tests.simulated_sut import controller, run

SEARCH = Search(by="rate", goals=(0.0,), relative_width=0.02, rounds=1)
OWN_S = 0.0003


@dataclass
class SimulatedMme:
    """Works off what comes in turn, `work_s` for each, and turns none away."""

    work_s: float
    noise: float = 0.0
    timeout_s: float = 15.0
    _dice: Random = field(default_factory=lambda: Random(7))

    def measure(self, asked: TrialInput) -> TrialRecord:
        rate, lasts_s = float(asked.load["rate"]), float(asked.load["duration_s"])
        count = round(rate * lasts_s)
        work_s = self.work_s * self._dice.uniform(1 - self.noise, 1 + self.noise)
        free_s, last_s, completed = 0.0, 0.0, 0
        for n in range(count):
            free_s = max(free_s, n / rate) + work_s
            if free_s - n / rate <= self.timeout_s:
                completed, last_s = completed + 1, free_s + OWN_S
        seen = Transactions(
            name="attach",
            started=count,
            completed=completed,
            timed_out=count - completed,
            latency=Latency(count=completed, p50_us=1, p90_us=1, p99_us=1, max_us=1),
            last_completed_s=last_s,
        )
        verdict = judge_transactions(
            seen, Sending(intended_packets=count, sent_packets=count), bounds=SenderLimits()
        )
        return judged(
            verdict,
            cell=dict(asked.cell),
            repetition=asked.repetition,
            index=asked.index,
            run=asked.run_name,
            took_s=lasts_s + 1,
            world=asked.index,
            searched=asked.searched,
            offered=Offered(
                unit="transactions", intended=count, sent=count, unsent=0,
                duration_s=lasts_s, intended_duration_s=lasts_s, per_s=rate,
            ),
            body=TransactionBooks.of(seen, sustained=sustained(seen, lasts_s)),
        )  # fmt: skip


def cell(rate: float) -> AskedCell:
    return AskedCell(factors={}, load={"kind": "attach", "rate": rate, "count": 4000})


@pytest.mark.parametrize("work_ms", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("begins", [0.2, 0.9, 5.0])
@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_the_service_time_is_found_within_two_per_cent(
    work_ms: float, begins: float, noise: float
) -> None:
    capacity = 1e3 / work_ms
    done = run(
        controller(SEARCH, cell(begins * capacity), sut="fresh"),
        SimulatedMme(work_ms / 1e3, noise).measure,
    )
    (found,) = answers(done, SEARCH)
    assert found.lower is not None and found.upper is not None
    lower, upper = found.lower.value, found.upper.value
    assert 0.96 * capacity <= lower <= 1.01 * capacity
    assert lower < upper <= 1.04 * capacity
    assert 1 / math.sqrt(lower * upper) == pytest.approx(work_ms / 1e3, rel=0.02)
    assert found.lower.pps is None, "no packet was counted"
    assert len(done) <= 25


def test_each_trial_lasts_as_long_as_it_is_asked_to() -> None:
    asked = load_of(cell(400), SEARCH, Ask(value=97.5, seconds=5.0))
    assert asked == {"kind": "attach", "rate": 97.5, "duration_s": 5.0}


def test_a_scale_that_the_load_does_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match=r'search\.by = "rate"'):
        controller(Search(by="pps"), cell(400))
    with pytest.raises(BadInput, match="has none"):
        controller(SEARCH, AskedCell(factors={}, load={"kind": "replay", "trace": "x"}))
