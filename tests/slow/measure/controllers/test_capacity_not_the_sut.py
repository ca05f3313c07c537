"""A search is not misled if something else is the limit: the sender, the hypervisor or the lab."""

from __future__ import annotations

from random import Random

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.next_load import MethodInput, own
from nodrop.capacity.tried import Tried, tried
from nodrop.config.search import Search
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.results.trial import TrialRecord
from tests.depth import depth
from tests.simulated_sut import SimulatedSut, asked_for, cell, controller, run, searched, texts


@pytest.mark.parametrize("most", [1.5, 6.0, 20.0])
def test_the_generator_as_the_limit_is_never_the_capacity(most: float) -> None:
    for answer in searched(SimulatedSut(capacity=300, sender_most=most)).values():
        assert answer.limited_by == "generator" and answer.upper is None
        assert answer.lower and most / 1.2 <= answer.lower.value <= most
        assert "at least" in texts(answer) and "the generator was the limit" in texts(answer)


@pytest.mark.parametrize("most", [3.0, 18.0, 50.0])
@pytest.mark.parametrize("expected", [1.5, 4.0, 9.0])
def test_a_load_far_beyond_the_sender_costs_one_trial(most: float, expected: float) -> None:
    """Seen: a ramp expected 162X, the sender came to 20X, and the way down took 36 void trials."""
    sut = SimulatedSut(
        capacity=most * expected, sender_most=most, late_p99_us=90_000, cpu_ratio=0.9
    )
    search = Search(goals=(0.0,), rounds=1)
    done = run(controller(search, sut="standing"), sut.measure)
    (answer,) = answers(done, search)
    assert answer.limited_by == "generator" and answer.lower
    assert most / 1.4 <= answer.lower.value <= most
    assert sum(record.outcome == "void" for record in done) <= 8


@pytest.mark.parametrize(("good", "most"), [(8.03, 20.0), (1.0, 3.0), (4.0, 5.2)])
def test_a_sender_that_is_late_far_above_is_not_the_limit(good: float, most: float) -> None:
    """Seen: "at least 8.033X: the generator was the limit", though short trials of 16.5X had no
    loss. The budget had ended before longer ones were done."""
    sut, search = SimulatedSut(capacity=300, sender_most=most), Search(budget_s=60)
    long, short = search.final_trial_s, search.initial_trial_s
    wanted = [(good, long), (most * 0.95, short), *[(most * 1.2, short)] * 3]
    done = [sut.measure(asked_for(n, *asked)) for n, asked in enumerate(wanted, start=1)]
    for answer in answers(done, search):
        assert (answer.limited_by, answer.upper) == ("budget", None)
        assert answer.lower and answer.lower.value == good
        assert "the budget ended the search" in texts(answer) and answer.cut_rounds == 1


@pytest.mark.parametrize(("disturbed", "others"), [(8, 1), (5, 3), (2, 1)])
def test_trials_that_the_hypervisor_mostly_spoilt_are_not_the_generators(
    disturbed: int, others: int
) -> None:
    """Seen: one of nine void trials had 1.999 % of steal, and "the generator was the limit"."""
    search = Search(budget_s=60, goals=(0.0,))
    robbed = SimulatedSut(capacity=90, disturbed_ratio=1.0)
    late = SimulatedSut(capacity=90, sender_most=1.0, late_p99_us=90_000)
    suts = [*[robbed] * disturbed, *[late] * others]
    done = [
        sut.measure(asked_for(n, 40.0, search.final_trial_s)) for n, sut in enumerate(suts, start=1)
    ]
    assert answers(done, search)[0].limited_by == "hypervisor"
    done = [late.measure(asked_for(n, 40.0, search.final_trial_s)) for n in range(1, len(suts) + 1)]
    assert answers(done, search)[0].limited_by == "generator"


@pytest.mark.parametrize("disturbed", [0.3, 0.5, 0.6])
@pytest.mark.parametrize("capacity", [3.4, 20.0])
def test_trials_that_the_hypervisor_spoils_are_tried_again(
    disturbed: float, capacity: float
) -> None:
    """Three such trials were taken for the generator's limit, whatever the load."""
    for answer in searched(SimulatedSut(capacity=capacity, disturbed_ratio=disturbed)).values():
        assert answer.limited_by in ("sut", "not_known") and answer.lower and answer.upper
        assert answer.lower.value <= capacity * 1.01 and answer.upper.value >= capacity


@pytest.mark.parametrize(
    ("capacity", "ticks"),
    [
        (2.3, 0.15),
        (12.0, 0.4),
        depth(5.0, 0.15),
        depth(12.0, 0.15),
        depth(2.3, 0.4),
        depth(5.0, 0.4),
    ],
)
def test_a_tick_of_the_hypervisor_is_not_the_suts_loss(capacity: float, ticks: float) -> None:
    """Seen: a sink of 50,000 packets/s with a ring of 256 frames was said to carry 39,800, for two
    trials lost 17 and 62 packets in 10 ms that the hypervisor took."""
    seconds = {"initial_trial_s": 1.2, "final_trial_s": 1.5, "duration_sum_s": 12.0}
    found = []
    for seed in range(20):
        sut = SimulatedSut(capacity=capacity, ring_packets=100, ticks=ticks, random=Random(seed))
        found.append(searched(sut, relative_width=0.01, goals=(0.0,), rounds=1, **seconds)[0.0])
    right = [a for a in found if a.lower and 0.97 * capacity <= a.lower.value <= capacity]
    assert len(right) >= 18, [(a.lower, a.limited_by) for a in found if a not in right]


@pytest.mark.parametrize(
    ("capacity", "thefts"),
    [
        (2.3, 4.0),
        (12.0, 1.0),
        depth(12.0, 4.0),
        depth(2.3, 1.0),
        depth(2.3, 2.0),
        depth(12.0, 2.0),
    ],
)
def test_a_hypervisor_that_comes_all_the_time_gives_no_false_bounds(
    capacity: float, thefts: float
) -> None:
    """Seen: 3 % of the CPU taken, three trials of 38,340 packets/s lost each, and a sink of 50,000
    was said to carry 38,001, "limited by the SUT". Without the losses' times so were all of 20."""
    seconds = {"initial_trial_s": 1.2, "final_trial_s": 1.5, "duration_sum_s": 12.0}
    for seed in range(10):
        sut = SimulatedSut(
            capacity=capacity, ring_packets=100, thefts_per_s=thefts, random=Random(seed)
        )
        found = searched(sut, relative_width=0.01, goals=(0.0,), rounds=1, **seconds)[0.0]
        assert found.limited_by in ("sut", "hypervisor", "not_known")
        assert found.trials < 80
        if found.lower:
            assert found.lower.value <= capacity
        if found.upper:
            assert found.upper.value >= capacity
        if found.limited_by == "sut":
            assert found.lower and found.lower.value >= 0.95 * capacity


@pytest.mark.parametrize("lost", [0.002, 0.005])
def test_a_loss_of_every_trial_is_the_loads_whatever_the_hypervisor_took(lost: float) -> None:
    """A little CPU is taken all the time, and more than 5.0 loses a little."""
    sut = SimulatedSut(capacity=5.0, ring_packets=100_000, ticks=1.0)

    def measure(trial: TrialInput) -> TrialRecord:
        record = sut.measure(trial)
        if trial.searched is None or trial.searched.ramp or trial.searched.value <= 5.0:
            return record
        packets = round(lost * (record.offered.sent or 0))
        body = record.packets.model_copy(update={"loss_ratio": lost, "lost_packets": packets})
        return record.model_copy(update={"body": body})

    search = Search(relative_width=0.02, goals=(0.0,), rounds=1)
    (found,) = answers(run(controller(search), measure), search)
    assert found.limited_by == "sut"
    assert found.lower and 4.9 <= found.lower.value <= 5.0
    assert found.upper and found.upper.value <= 5.2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hypervisor_that_spoils_every_trial_is_not_the_generator(seed: int) -> None:
    sut = SimulatedSut(capacity=3.4, disturbed_ratio=1.0)
    search = Search()
    found = answers(run(controller(search, seed=seed, sut="standing"), sut.measure), search)
    for answer in found:
        assert (answer.limited_by, answer.lower, answer.upper) == ("hypervisor", None, None)
        assert "the hypervisor took too much of this host's CPU" in texts(answer)


@pytest.mark.parametrize(
    ("first", "reason"), [(1, "no_rules"), (2, "no_rules"), (1, "other_bits"), (4, "other_files")]
)
def test_what_is_void_at_any_load_ends_its_cell_and_no_other(first: int, reason: str) -> None:
    """Suricata that refuses 2 of 19,194 rules was asked again and again, at lower loads."""
    refused, fine = cell(factors={"sut.codes": "bad"}), cell(factors={"sut.codes": "none"})
    suts = {
        "bad": SimulatedSut(capacity=3.0, void_from=(first, reason)),
        "none": SimulatedSut(capacity=3.0),
    }
    search = Search()
    done = run(controller(search, refused, fine), lambda t: suts[t.cell["sut.codes"]].measure(t))
    void = [record for record in done if record.outcome == "void"]
    assert len(void) == 1
    found = {a.cell["sut.codes"]: a for a in answers(done, search)}
    if first == 1:
        assert f"no trial was measured that shows it; {void[0].verdict}" in texts(found["bad"])
    assert found["none"].upper is not None and found["none"].limited_by == "sut"


@pytest.mark.parametrize("budget_s", [None, 600.0])
@pytest.mark.parametrize("reason", ["nothing_arrived", "lab_problem"])
@pytest.mark.parametrize("first", [1, depth(2), 3])
def test_a_lab_that_is_out_ends_a_search_which_goes_on_once_it_is_mended(
    first: int, reason: str, budget_s: float | None
) -> None:
    """A cable that led elsewhere was "carries no load"."""
    out = SimulatedSut(capacity=3.0, void_from=(first, reason))
    search = Search(budget_s=budget_s)
    made = [cell(factors={"sut.threads": n}) for n in (1, 2)]

    def measure(trial: TrialInput) -> TrialRecord:
        record = out.measure(trial)
        if record.valid:
            return record
        more = ["sender_late"] if reason == "nothing_arrived" else []
        return record.model_copy(update={"invalid_reasons": [reason, *more]})

    done = run(controller(search, *made), measure)
    assert [record.valid for record in done] == [True] * (first - 1) + [False] * 3
    cut = answers(done, search)[0]
    assert cut.limited_by == "lab"
    assert f"as the lab failed; {done[-1].verdict}" in cut.findings[0].text
    fine = SimulatedSut(capacity=3.0)
    mended = [record for record in done if not record.failed_with_lab]
    while (trial := controller(search, *made).next(mended)) is not None:
        mended.append(fine.measure(trial))
    assert {answer.limited_by for answer in answers(mended, search)} == {"sut"}


def test_a_lab_that_fails_under_load_or_now_and_then_ends_no_search() -> None:
    now_and_then = SimulatedSut(capacity=3.0)

    def measure(trial: TrialInput) -> TrialRecord:
        out = SimulatedSut(capacity=3.0, void_from=(1, "nothing_arrived"))
        return (out if trial.index % 3 else now_and_then).measure(trial)

    search = Search(rounds=1)
    found = answers(run(controller(search), measure), search)[0]
    assert found.limited_by == "not_known" and found.upper, "two of three trials are void"

    def broke_down(trial: TrialInput) -> TrialRecord:
        record = SimulatedSut(capacity=3.0, void_from=(1, "lab_problem")).measure(trial)
        sent = record.offered.model_copy(update={"sent": 1000})
        return record.model_copy(update={"offered": sent})

    assert len(run(controller(search), broke_down)) > 3

    def of_a_fleet(trial: TrialInput) -> TrialRecord:
        out = SimulatedSut(capacity=3.0, void_from=(1, "nothing_arrived"))
        return out.measure(trial).model_copy(update={"pair": "rack7"})

    assert len(run(controller(search), of_a_fleet)) > 3


@pytest.mark.parametrize("times", [1.0, 3.7])
@pytest.mark.parametrize("lost", [0.28, 0.4])
def test_a_load_that_shows_no_limit_is_not_tried_again_and_again(times: float, lost: float) -> None:
    """Seen: other programs had the CPUs, and 17 trials in a row were of 4.17X, each of which lost
    too much to say where the limit is."""
    lossy = [(2.582, 0.0127), (2.555, 0.1557), (1.457, 0.0), (1.929, 0.1435), (1.676, 0.0)]
    done: list[Tried] = []

    def tried_at(value: float, ratio: float) -> None:
        sut = SimulatedSut(capacity=value * (1 - ratio) if ratio else 2 * value)
        done.append(tried(sut.measure(asked_for(len(done) + 1, value, 5.0))))

    for value, ratio in (*lossy, (2.582, 0.0)):
        tried_at(value * times, ratio)
    search, asked = Search(goals=(0.0,)), []
    while len(asked) < 40:
        ask = own(MethodInput(search=search, start=1.0, lowest=0.1, highest=64.0, tried=done))
        if ask is None:
            break
        asked.append(ask.value)
        tried_at(ask.value, lost if ask.value > 2.6 * times else 0.0)
    again = [value for value in asked if value > 2.6 * times]
    assert all(again.count(value) <= 3 for value in again), asked


@pytest.mark.parametrize("lossy", [(8,), (12,), (13,), (4, 6, 8), (12, 13)])
def test_a_loss_while_the_highest_load_is_proved_leaves_a_figure(lossy: tuple[int, ...]) -> None:
    sut = SimulatedSut(
        capacity=19.4,
        sender_most=19.0,
        cpu_ratio=0.5,
        drift=lambda index: 0.9 if index in lossy else 1.0,
    )
    answer = searched(sut, budget_s=120)[0.0]
    assert answer.limited_by == "generator"
    assert answer.lower is not None and answer.lower.value >= 17
