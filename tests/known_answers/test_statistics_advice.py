"""Advice on runs that were not made: how many more, and what they could show."""

from __future__ import annotations

import numpy as np
import pytest

from nodrop.stats.comparison import (
    POWER,
    ComparisonRule,
    detectable,
    earlier_needed,
    more_runs,
    resolution,
    runs_to_see,
)
from nodrop.stats.interval import Family
from tests.depth import depth
from tests.known_answers.worlds import (
    ALONE,
    CANNOT_TELL,
    DIFFERENT,
    drawn,
    judged,
    rate,
    repeated,
    seeded,
)


class TestFurtherRuns:
    """The advice is a guess from the runs so far; to follow it and look again costs no truth."""

    @pytest.mark.parametrize(
        "world", ["normal", "mostly zero", *map(depth, ("skewed", "few values", "two humps"))]
    )
    @pytest.mark.parametrize(
        ("margin", "fresh"),
        [
            (0.0, False),
            (2.0, True),
            depth(0.0, True),
            depth(2.0, False),
            depth(0.5, True),
            depth(0.5, False),
        ],
    )
    def test_followed_to_an_answer_it_is_seldom_false(
        self, world: str, fresh: bool, margin: float
    ) -> None:
        """Nothing is different; each look has other runs, or more of the same."""
        times = repeated(40, most=2000)
        told = [
            _followed(seeded(world, fresh, margin, k), world, world, margin, fresh)
            for k in range(times)
        ]
        assert rate("false different, followed", [t[-1] == DIFFERENT for t in told]) <= 0.05

    @pytest.mark.parametrize("fresh", [True, False])
    def test_not_even_if_the_base_never_varies(self, fresh: bool) -> None:
        times = repeated(150, most=4000)
        told = [
            _followed(seeded("flat", fresh, k), "constant", "normal", 0.1, fresh)
            for k in range(times)
        ]
        assert rate("false different, followed", [t[-1] == DIFFERENT for t in told]) <= 0.05

    @pytest.mark.parametrize(
        ("world", "shift", "margin"),
        [
            ("normal", 1.5, 0.1),
            ("normal", 3.0, 0.1),
            ("normal", 0.0, 2.0),
            ("few values", 1.5, 0.1),
            ("mostly zero", 1.0, 0.1),
        ],
    )
    def test_followed_once_it_mostly_answers(self, world: str, shift: float, margin: float) -> None:
        """The cells are surely the same or clearly apart. If they only seem to be apart, a number
        is seldom named, and then it is too small: that is what makes it a guess."""
        answered = []
        for k in range(repeated(60, most=1000)):
            rng = seeded("once", world, shift, margin, k)
            told = _followed(rng, world, world, margin, True, shift=shift, looks=2, n=12)
            answered += [told[1] != CANNOT_TELL] if len(told) > 1 else []
        assert len(answered) > 5
        assert rate("an answer, followed once", answered) >= 0.75

    @pytest.mark.parametrize("shift", [0.0, 0.3, 0.6])
    def test_what_would_take_very_many_runs_is_seldom_promised(self, shift: float) -> None:
        promised = 0
        times = repeated(60, most=1000)
        for k in range(times):
            rng = seeded("seldom", shift, k)
            told = _followed(rng, "normal", "normal", 0.1, True, shift=shift, looks=2, n=12)
            promised += len(told) > 1
        assert rate("a promise", promised / times) <= 0.15

    @pytest.mark.parametrize("have", [2, 5, 7])
    def test_with_too_few_runs_it_only_says_how_many_it_takes(self, have: int) -> None:
        advice = more_runs([1.0] * have, [9.0] * have, ComparisonRule(family=ALONE))
        assert (advice.more_runs, advice.only_least) == (8 - have, True)

    @pytest.mark.parametrize("n", [8, 12, 30])
    def test_no_number_is_named_for_what_runs_cannot_answer(self, n: int) -> None:
        """Nothing between two cells that are alike, and no margin."""
        values = [float(k) for k in range(n)]
        assert more_runs(values, values, ComparisonRule(family=ALONE)).more_runs is None


def _followed(
    rng: np.random.Generator,
    world: str,
    other: str,
    margin: float,
    fresh: bool,
    *,
    shift: float = 0.0,
    looks: int = 6,
    n: int = 8,
) -> list[int]:
    """Answers look by look, until one decides or no more runs are advised."""
    asked = ComparisonRule(absolute=margin, losses=world == "mostly zero", family=Family(parts=3))
    b, o = np.empty((1, 0)), np.empty((1, 0))
    said, wanted = [], n
    for _ in range(looks):
        more = wanted if fresh else wanted - b.shape[1]
        new_b, new_o = drawn(world, rng, 1, more), drawn(other, rng, 1, more) + shift
        b = new_b if fresh else np.sort(np.concatenate([b, new_b], axis=1), axis=1)
        o = new_o if fresh else np.sort(np.concatenate([o, new_o], axis=1), axis=1)
        said.append(int(judged(b, o, asked)[0]))
        if said[-1] != CANNOT_TELL:
            break
        advice = more_runs(b[0].tolist(), o[0].tolist(), asked)
        if advice.more_runs is None:
            break
        wanted = b.shape[1] + advice.more_runs
    return said


class TestWhatCanBeSeen:
    @pytest.mark.parametrize(
        "world", ["normal", "skewed", "heavy tails", "two humps", "wide", "few values"]
    )
    @pytest.mark.parametrize(
        ("n", "parts"), [(20, 2), (40, 300), depth(15, 2), depth(40, 2), depth(24, 40)]
    )
    def test_is_seen_in_four_of_five(self, world: str, n: int, parts: int) -> None:
        """Two further cells, apart by what a first one said that could be seen."""
        times, family = repeated(200, most=4000), Family(parts=parts)
        rng = seeded("seen", world, n, parts)
        sees = [resolution(runs.tolist(), family) for runs in drawn(world, rng, times, n)]
        b, o = drawn(world, rng, times, n), drawn(world, rng, times, n)
        known = [k for k, x in enumerate(sees) if x is not None]
        apart = np.array([[sees[k]] for k in known], dtype=np.float64) * (1 + 1e-9)
        told = judged(b[known], o[known] + apart, ComparisonRule(family=family))
        assert rate("power", told == DIFFERENT) >= POWER - 3 * (0.16 / len(known)) ** 0.5

    @pytest.mark.parametrize(
        "values",
        [[0.0] * 5, [0.0] * 40, [3.0] * 20, [0.0] * 11 + [50.0], [0.0] * 19 + [50.0], [1.0, 2, 3]],
    )
    def test_is_not_known_from_few_runs_or_from_runs_without_spread(
        self, values: list[float]
    ) -> None:
        assert resolution(values, ALONE) is None

    @pytest.mark.parametrize("parts", [2, 35, 300])
    def test_nor_from_fewer_than_it_says(self, parts: int) -> None:
        family = Family(parts=parts)
        enough = [float(k) for k in range(runs_to_see(family))]
        assert resolution(enough, family) is not None
        assert resolution(enough[1:], family) is None

    @pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
    def test_grows_with_the_spread_and_shrinks_with_the_runs(self, scale: float) -> None:
        few, many = ([scale * k / n for k in range(n)] for n in (15, 100))
        sees_few, sees_many = resolution(few, ALONE), resolution(many, ALONE)
        assert sees_few is not None and sees_many is not None
        assert 0 < sees_many < sees_few < 2 * scale


class TestWhatAPlanWouldShow:
    @pytest.mark.parametrize(
        "world", ["normal", "skewed", "heavy tails", "two humps", "wide", "few values"]
    )
    @pytest.mark.parametrize(
        ("parts", "planned"),
        [
            (2, 0),
            (300, 80),
            *(
                depth(p, n)
                for p in (2, 35, 300)
                for n in (0, 40, 80)
                if (p, n) not in {(2, 0), (300, 80)}
            ),
        ],
    )
    def test_is_shown_in_four_of_five(self, world: str, parts: int, planned: int) -> None:
        """Two further cells with as many runs as are planned (0: as few as can be), apart by what
        the fewest earlier runs said."""
        times, family = repeated(100, most=2000), Family(parts=parts)
        n, earlier = max(planned, runs_to_see(family)), earlier_needed(family)
        rng = seeded("planned", world, parts, planned)
        said = [detectable(runs.tolist(), n, family) for runs in drawn(world, rng, times, earlier)]
        b, o = drawn(world, rng, times, n), drawn(world, rng, times, n)
        known = [k for k, x in enumerate(said) if x is not None]
        apart = np.array([[said[k]] for k in known], dtype=np.float64) * (1 + 1e-9)
        told = judged(b[known], o[known] + apart, ComparisonRule(family=family))
        assert rate("power, planned", told == DIFFERENT) >= POWER - 3 * (0.16 / len(known)) ** 0.5

    @pytest.mark.parametrize("parts", [2, 35, 300])
    def test_too_few_or_equal_runs_say_nothing(self, parts: int) -> None:
        family = Family(parts=parts)
        least, earlier = runs_to_see(family), earlier_needed(family)
        spread = [float(k) for k in range(earlier)]
        assert detectable(spread, least, family) is not None
        assert detectable(spread[1:], least, family) is None
        assert detectable(spread, least - 1, family) is None
        assert detectable([7.0] * earlier, least, family) is None

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_more_runs_show_less(self, scale: float) -> None:
        earlier = [scale * float(k) for k in range(12)]
        few, many = detectable(earlier, 15, ALONE), detectable(earlier, 150, ALONE)
        assert few is not None and many is not None and 0 < many < few
