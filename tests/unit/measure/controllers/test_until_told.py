"""Two cells until it can tell: looks where they belong, each once, and an end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodrop.measure.controllers.blocks import LOOKS, Asked, AskedCell, Blocks, UntilTold
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import trial


class Answers:
    """Notes the looks; can tell at one of them, or never."""

    def __init__(self, at: int | None) -> None:
        self.at, self.looks = at, list[tuple[int, int]]()

    def __call__(self, done: Sequence[TrialRecord], look: int) -> bool:
        self.looks.append((look, len(done)))
        return look == self.at


def controller(
    told: Answers,
    *,
    most: int = 80,
    budget_s: float | None = None,
    seed: int = 1,
    names: str = "ab",
) -> UntilTold:
    cells = [AskedCell(factors={"cell": name}, load={}) for name in names]
    asked = Asked(cells=cells, repetitions=most, seed=seed, sut="fresh", guess_s=1.0)
    return UntilTold(Blocks(asked), most=most, told=told, budget_s=budget_s, cells=len(names))


def measured(
    asked: UntilTold, *, void: Sequence[int] = (), mute: str = "", done: Sequence[TrialRecord] = ()
) -> list[TrialRecord]:
    records = [*done]
    while (wanted := asked.next(records)) is not None:
        assert len(records) < 1000
        silent = wanted.index in void or wanted.cell["cell"] == mute
        outcome = "void" if silent else "measured"
        records.append(
            trial(
                run=wanted.run_name,
                index=wanted.index,
                cell=dict(wanted.cell),
                repetition=wanted.repetition,
                started_utc="2026-11-23T00:00:00.000",
                valid=outcome == "measured",
                outcome=outcome,
                invalid_reasons=["late"] if outcome == "void" else [],
                verdict=outcome,
                took_s=2.0,
            )
        )
    return records


@pytest.mark.parametrize("look", range(len(LOOKS)))
def test_it_ends_at_the_look_that_tells(look: int) -> None:
    told = Answers(look)
    asked = controller(told)
    done = measured(asked)
    assert len(done) == 2 * LOOKS[look] and asked.look_at_the_end(done) == look
    assert told.looks == [(i, 2 * n) for i, n in enumerate(LOOKS[: look + 1])]


@pytest.mark.parametrize("most", [12, 21, 33, 80])
def test_if_nothing_tells_there_is_one_look_more_at_the_end(most: int) -> None:
    told = Answers(None)
    asked = controller(told, most=most)
    done = measured(asked)
    before = [n for n in LOOKS if n < most]
    assert len(done) == 2 * most and asked.look_at_the_end(done) == len(before)
    assert [look for look, _ in told.looks] == [*range(len(before))]


@pytest.mark.parametrize(("budget_s", "trials"), [(1.0, 1), (50.0, 25), (100.0, 50)])
def test_no_trial_begins_after_the_budget(budget_s: float, trials: int) -> None:
    assert len(measured(controller(Answers(None), budget_s=budget_s))) == trials


@pytest.mark.parametrize("void", [[3], [1, 2, 9], [*range(5, 15)]])
def test_void_trials_count_for_no_look(void: list[int]) -> None:
    told = Answers(0)
    done = measured(controller(told), void=void)
    judged = [r.cell["cell"] for r in done if r.outcome == "measured"]
    assert min(judged.count("a"), judged.count("b")) == LOOKS[0] and len(told.looks) == 1


@pytest.mark.parametrize("void", [[3], [4, 5], [5, 9, 10, 11], [3, 8, 13, 18, 23], [2, 20]])
@pytest.mark.parametrize(("seed", "names"), [(1, "ab"), (2, "ab"), (3, "abc"), (4, "abcd")])
def test_void_trials_are_measured_again_before_other_cells_go_on(
    void: list[int], seed: int, names: str
) -> None:
    """Seen: four of the base's fourteen were void, the three knobs had fourteen each, and no look
    was reached."""
    done = measured(controller(Answers(0), seed=seed, names=names), void=void)
    judged = [r.cell["cell"] for r in done if r.outcome == "measured"]
    assert {judged.count(name) for name in names} == {LOOKS[0]}


@pytest.mark.parametrize("mute", ["a", "b"])
def test_a_cell_that_is_always_void_does_not_use_up_the_budget(mute: str) -> None:
    done = measured(controller(Answers(None), budget_s=80.0), mute=mute)
    cells = [r.cell["cell"] for r in done]
    assert len(cells) == 40 and cells.count(mute) - cells.count("ab".replace(mute, "")) <= 4


@pytest.mark.parametrize("cut", [1, 23, 24, 25, 39, 40, 47])
def test_a_resumed_run_goes_on_with_the_same_trials_and_takes_no_look_again(cut: int) -> None:
    whole = measured(controller(Answers(2)))
    told = Answers(2)
    assert measured(controller(told), done=whole[:cut]) == whole
    assert told.looks == [(i, 2 * n) for i, n in enumerate(LOOKS[:3]) if 2 * n >= cut]


def test_cells_alternate_in_blocks() -> None:
    done = measured(controller(Answers(1)))
    pairs = [{a.cell["cell"], b.cell["cell"]} for a, b in zip(done[::2], done[1::2], strict=True)]
    assert pairs == [{"a", "b"}] * LOOKS[1]
    assert len({r.cell["cell"] for r in done[::2]}) == 2  # neither is always first


@pytest.mark.parametrize("budget_s", [31.0, 50.0, 100.0])
def test_the_outlook_ends_with_the_budget(budget_s: float) -> None:
    """Seen: "at most 9 min left" of a budget of two."""
    asked = controller(Answers(None), budget_s=budget_s)
    done = measured(asked)
    for n in range(2, len(done) + 1):
        seen = asked.outlook(done[:n])
        assert seen.at_most is not None and seen.at_most.trials == len(done) - n
        assert seen.at_least.trials <= seen.at_most.trials


@pytest.mark.parametrize(("void", "names"), [([1, 2, 9], "ab"), ([3, 4, 5, 20, 21, 22, 30], "abc")])
def test_a_void_trial_brings_the_end_no_nearer(void: list[int], names: str) -> None:
    """Seen: "[125/125-156]" and no time left, for 30 trials: void ones counted for the look."""
    asked = controller(Answers(0), names=names)
    done = measured(asked, void=void)
    for n in range(1, len(done)):
        so_far = sum(record.outcome != "void" for record in done[:n])
        assert asked.outlook(done[:n]).at_least.trials == len(names) * LOOKS[0] - so_far > 0
