"""Differences that a report names, held against known worlds (worlds.py)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from nodrop.stats.comparison import (
    MOST_APART,
    Comparison,
    ComparisonRule,
    Relation,
    compare,
    median_ends,
)
from nodrop.stats.interval import Family, median_rank, summarize
from tests.known_answers.worlds import (
    ALONE,
    DIFFERENT,
    SAME,
    WORLDS,
    Runs,
    World,
    drawn,
    judged,
    rate,
    repeated,
    seeded,
    sometimes,
)

SIZES = ((4, 4), (6, 6), (8, 8), (8, 40), (12, 9), (20, 8), (20, 20), (40, 13), (40, 40))


def losses(family: Family = ALONE, margin: float = 0.1) -> ComparisonRule:
    return ComparisonRule(absolute=margin, losses=True, family=family)


def found(base: list[float], other: list[float], asked: ComparisonRule) -> Comparison:
    comparison = compare(base, other, asked)
    assert comparison is not None
    return comparison


class TestSame:
    """ "Same" is about the runs, not about the medians alone."""

    @pytest.mark.parametrize(
        ("base", "other"),
        [
            ([0.0] * 20, [50.0] * 6 + [0.0] * 14),
            ([0.0] * 20, [0.2] * 3 + [0.0] * 17),
            ([0.0] * 30, [80.0] * 4 + [0.0] * 26),
            ([0.0] * 12 + [30.0] * 8, [0.0] * 20),
            # every run of both loses something, a third of them far more
            ([0.01] * 20, [50.0] * 6 + [0.01] * 14),
            ([12.0] * 25, [12.0] * 20 + [0.0] * 5),
            # rare in both, but not equally rare
            ([0.0] * 19 + [5.0], [0.0] * 12 + [5.0] * 8),
        ],
    )
    def test_runs_that_lose_are_never_hidden_by_a_median(
        self, base: list[float], other: list[float]
    ) -> None:
        comparison = found(base, other, losses())
        assert comparison.shift == 0
        assert comparison.answer is not Relation.SAME
        assert comparison.apart > MOST_APART

    @pytest.mark.parametrize("n", [20, 40, 200])
    def test_enough_runs_that_agree_are_the_same(self, n: int) -> None:
        assert found([0.0] * n, [0.0] * n, losses()).answer is Relation.SAME
        assert found(
            [10.0] * n, [10.2] * n, ComparisonRule(relative=0.05, family=ALONE)
        ).answer is (Relation.SAME)

    @pytest.mark.parametrize("n", [4, 6, 10, 16])
    def test_few_runs_without_loss_may_hide_many_that_lose(self, n: int) -> None:
        comparison = found([0.0] * n, [0.0] * n, losses())
        assert comparison.answer is Relation.CANNOT_TELL
        assert comparison.apart == pytest.approx(1 - (1 - 0.95**0.5) ** (1 / n))

    @pytest.mark.parametrize("n", [40, 100])
    def test_runs_that_lose_often_enough_differ_though_their_medians_agree(self, n: int) -> None:
        lossy = [50.0] * (3 * n // 10) + [0.0] * (n - 3 * n // 10)
        for comparison in (found([0.0] * n, lossy, losses()), found(lossy, [0.0] * n, losses())):
            assert (comparison.shift, comparison.answer) == (0, Relation.DIFFERENT)
            assert comparison.by_share

    @pytest.mark.parametrize("n", [17, 20, 30, 40, 80])
    @pytest.mark.parametrize(
        ("base", "other"),
        [((0.0, 50), (0.205, 50)), ((0.1, 9), (0.305, 9)), ((0.5, 1), (0.705, 1))],
    )
    def test_wrong_at_most_in_5_of_100_if_the_shares_differ(
        self, n: int, base: tuple[float, float], other: tuple[float, float]
    ) -> None:
        rng, times = seeded("shares", n, base, other), repeated(2000)
        b, o = (np.sort(sometimes(*world)(rng, (times, n)), axis=1) for world in (base, other))
        assert rate("false same, shares", judged(b, o, losses()) == SAME) <= 0.05

    @pytest.mark.parametrize("n", [17, 20, 40, 200])
    @pytest.mark.parametrize("spread", [0.001, 0.02, 0.1, 1.0])
    @pytest.mark.parametrize("absolute", [True, False])
    def test_wrong_at_most_in_5_of_100_if_the_medians_differ(
        self, n: int, spread: float, absolute: bool
    ) -> None:
        """The difference is just over the margin; a relative one is of the true median, which is
        not known."""
        rng, times = seeded("medians", n, spread, absolute), repeated(1000)
        b = np.sort(rng.normal(10, spread, (times, n)), axis=1)
        o = np.sort(rng.normal(10.501, spread, (times, n)), axis=1)
        asked = (
            ComparisonRule(absolute=0.5, family=ALONE)
            if absolute
            else ComparisonRule(relative=0.05, family=ALONE)
        )
        assert rate("false same, medians", judged(b, o, asked) == SAME) <= 0.05


class TestInterval:
    @pytest.mark.parametrize("world", WORLDS)
    def test_covers_in_every_world(self, world: str) -> None:
        """The interval is of the difference of the medians, whatever the other cell is like and
        however many runs it has; with too few there is none."""
        times = repeated(500)
        for other, size in product(WORLDS, SIZES):
            rng = seeded(world, other, size)
            truth = WORLDS[other][1] - WORLDS[world][1]
            b = median_ends(drawn(world, rng, times, size[0]), ALONE)
            o = median_ends(drawn(other, rng, times, size[1]), ALONE)
            if b is None or o is None:
                assert min(size) < ALONE.runs_needed()
                continue
            covered = rate(
                f"coverage, {world} and {other}, {size}",
                (o[0] - b[1] <= truth) & (truth <= o[1] - b[0]),
            )
            assert covered >= 0.94, (world, other, size, covered)

    @pytest.mark.parametrize("world", ["skewed", "normal", "wide", "few values", "two humps"])
    def test_the_relative_one_covers_too(self, world: str) -> None:
        """The base's median is not known either."""
        middle = 20.0 - WORLDS[world][1]
        for other, n in product(("normal", "skewed", "few values"), (10, 25)):
            rng, times = seeded("relative", world, other, n), repeated(150, most=2000)
            truth = (30.0 + WORLDS[other][1]) / 20.0 - 1
            hits = missing = 0
            for b, o in zip(
                drawn(world, rng, times, n) + middle, drawn(other, rng, times, n) + 30, strict=True
            ):
                interval = found(b.tolist(), o.tolist(), ComparisonRule(family=ALONE)).relative
                missing += interval is None
                hits += interval is not None and interval.low <= truth <= interval.high
            assert missing < times or world == "wide"
            if missing < times:
                assert rate("coverage, relative", hits / (times - missing)) >= 0.94

    @pytest.mark.parametrize("world", WORLDS)
    @pytest.mark.parametrize("n", [6, 7, 10, 23, 40])
    def test_a_single_median_is_covered_too(self, world: str, n: int) -> None:

        runs = drawn(world, seeded("median", world, n), repeated(2000), n)
        rank, _ = median_rank(n, 0.05)
        low, high = runs[:, rank - 1], runs[:, n - rank]
        truth = WORLDS[world][1]
        assert rate("coverage of one median", (low <= truth) & (truth <= high)) >= 0.94

    def test_what_is_compared_is_what_was_simulated(self) -> None:
        rng = seeded("one by one")
        for world, other in product(("normal", "mostly zero", "two humps"), repeat=2):
            b, o = drawn(world, rng, 5, 23), drawn(other, rng, 5, 31) + 1
            ends_b, ends_o = median_ends(b, ALONE), median_ends(o, ALONE)
            assert ends_b is not None and ends_o is not None
            told = judged(b, o, losses())
            for row in range(5):
                one = found(b[row].tolist(), o[row].tolist(), losses())
                assert one.interval is not None
                assert one.interval.low == ends_o[0][row] - ends_b[1][row]
                assert one.interval.high == ends_o[1][row] - ends_b[0][row]
                assert tuple(Relation)[told[row]] is one.answer


def _report(
    rng: np.random.Generator, setups: int, figures: int, times: int, n: int, shared: float
) -> list[list[Runs]]:
    """Setup → figure → runs of all reports. Figures of a run hang together by `shared`; the last is
    a loss; setups have the same medians, but not the same spread."""
    told = []
    for setup in range(setups):
        common = rng.normal(0, 1, (times, n, 1))
        own = rng.normal(0, 1, (times, n, figures))
        values = (shared * common + (1 - shared**2) ** 0.5 * own) * (1 + setup)
        values[:, :, -1] = np.where(values[:, :, -1] > 0.5 * (1 + setup), 1.0, 0.0)
        told.append([np.sort(values[:, :, figure], axis=1) for figure in range(figures)])
    return told


def _family(setups: int, figures: int) -> Family:
    return Family(parts=setups * figures + setups * (setups - 1) // 2)


def _any_different(told: list[list[Runs]], family: Family, bases: int) -> float:
    """The share of reports that say "different" of anything, each of `bases` cells the base."""
    wrong = np.zeros(len(told[0][0]), dtype=bool)
    for base in range(bases):
        for other in range(base + 1, len(told)):
            for figure in range(len(told[0])):
                asked = ComparisonRule(
                    relative=0.05, losses=figure == len(told[0]) - 1, family=family
                )
                wrong |= judged(told[base][figure], told[other][figure], asked) == DIFFERENT
    return rate("reports with a false different", wrong)


class TestManyFigures:
    @pytest.mark.parametrize(
        ("setups", "figures", "n"),
        [(4, 7, 10), (4, 7, 12), (4, 7, 20), (2, 3, 9), (3, 2, 40), (9, 7, 14), (12, 4, 25)],
    )
    @pytest.mark.parametrize("shared", [0.0, 0.7, 1.0])
    @pytest.mark.parametrize("every_base", [False, True])
    def test_nothing_different_is_said_in_95_of_100_reports(
        self, setups: int, figures: int, n: int, shared: float, every_base: bool
    ) -> None:
        rng = seeded("report", setups, figures, n, shared)
        told = _report(rng, setups, figures, repeated(100 if every_base else 200), n, shared)
        bases = setups if every_base else 1
        assert _any_different(told, _family(setups, figures), bases) <= 0.05

    @pytest.mark.parametrize(("setups", "figures", "n"), [(2, 1, 8), (4, 7, 13), (5, 7, 20)])
    def test_nor_if_the_base_never_varies(self, setups: int, figures: int, n: int) -> None:
        """The worst case: all the error is the others'."""
        told = _report(seeded("flat", setups, n), setups, figures, repeated(1000), n, 0.0)
        told[0] = [np.zeros_like(runs) for runs in told[0]]
        for runs in (row[-1] for row in told[1:]):
            runs[:] = 0.0
        assert _any_different(told, _family(setups, figures), 1) <= 0.05

    @pytest.mark.parametrize(("setups", "figures", "n"), [(4, 7, 12), (2, 1, 8), (12, 4, 14)])
    def test_what_is_far_apart_is_still_seen(self, setups: int, figures: int, n: int) -> None:
        told = _report(seeded("apart", n), setups, figures, 200, n, 0.5)
        for figure in range(figures):
            asked = ComparisonRule(relative=0.05, family=_family(setups, figures))
            moved = told[1][figure] + 100.0
            assert np.all(judged(told[0][figure], moved, asked) == DIFFERENT)


STARTS: dict[str, World] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "heavy tails": lambda rng, shape: rng.standard_cauchy(shape),
    "two humps": lambda rng, shape: rng.normal(0, 1, shape) + rng.choice([-5.0, 5.0], shape),
}


@pytest.mark.parametrize("drawn", STARTS)
@pytest.mark.parametrize("within", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("trials", [(7,) * 6, (2, 3, 3) * 4, (1, 9) * 5], ids=str)
def test_an_interval_over_trials_that_share_starts_covers(
    drawn: str, within: float, trials: tuple[int, ...]
) -> None:
    """Each start draws something that its trials share. What starts come to in the median is 0."""
    rng, covered = seeded("starts", drawn, within, trials), []
    starts = [start for start, n in enumerate(trials) for _ in range(n)]
    shared = STARTS[drawn](rng, (repeated(400), len(trials)))
    for row in shared:
        values = row[starts] + rng.normal(0, within, len(starts))
        summary = summarize(list(values), starts=starts)
        assert summary is not None and summary.interval is not None
        covered.append(summary.interval.low <= 0 <= summary.interval.high)
    found = rate(f"cover, starts {drawn}, within {within}, {trials}", covered)
    assert found >= 0.94


@pytest.mark.parametrize("trials", [(7,) * 6, (4,) * 10, (7, 7, 6)], ids=str)
def test_as_if_trials_were_independent_it_would_not(trials: tuple[int, ...]) -> None:
    """Starts differed by 3 times as much as trials of one start do: counted over trials, the
    interval of the median is far too narrow."""
    rng, covered = seeded("no starts", trials), []
    starts = [start for start, n in enumerate(trials) for _ in range(n)]
    for row in rng.normal(0, 3, (repeated(400), len(trials))):
        summary = summarize(list(row[starts] + rng.normal(0, 1, len(starts))))
        assert summary is not None and summary.interval is not None
        covered.append(summary.interval.low <= 0 <= summary.interval.high)
    assert rate(f"cover, counted over trials, {trials}", covered) < 0.8
