"""The Universal Scalability Law against a published fit and laws that are known."""

from __future__ import annotations

import random

import pytest

from nodrop.profile.scaling import fit
from tests.depth import depth

SPEC_SDM91 = {1: 64.9, 18: 995.9, 36: 1652.4, 72: 1853.2, 108: 1828.9, 144: 1775.0, 216: 1702.2}
"""CPUs → throughput of a SPARCcenter 2000, as the R package usl 3.0 prints it with its fit."""


def test_a_published_fit() -> None:
    law = fit(list(SPEC_SDM91), list(SPEC_SDM91.values()))
    assert law is not None
    assert law.alpha == pytest.approx(0.0277285, rel=1e-3)
    assert law.beta == pytest.approx(0.0001044, rel=1e-3)
    assert law.gamma == pytest.approx(89.995, rel=1e-3)
    # Standard errors 0.0091217, 0.0000199 and 14.21; Student's t of 4 degrees of freedom is 2.776.
    assert law.alpha_interval.high - law.alpha == pytest.approx(2.776 * 0.0091217, rel=0.02)
    assert law.beta_interval.high - law.beta == pytest.approx(2.776 * 0.0000199, rel=0.02)
    assert law.gamma_interval.high - law.gamma == pytest.approx(2.776 * 14.2134894, rel=0.02)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        (0.02, 0.01),
        (0.4, 0.001),
        *(depth(*both) for both in ((0.02, 0.001), (0.4, 0.01), (0.1, 0.001), (0.1, 0.01))),
    ],
)
def test_the_interval_holds_the_law_as_often_as_it_says(alpha: float, beta: float) -> None:
    draw, held, trials = random.Random(7), 0, 200
    counts = [1, 2, 3, 4, 6, 8]
    for _ in range(trials):
        capacities = [
            100 * n / (1 + alpha * (n - 1) + beta * n * (n - 1)) * draw.gauss(1, 0.01)
            for n in counts
        ]
        law = fit(counts, capacities)
        assert law is not None and law.most_threads == 8
        held += law.alpha_interval.low <= alpha <= law.alpha_interval.high
    assert held >= 0.88 * trials


@pytest.mark.parametrize("counts", [[1], [1, 2, 3], [1, 1, 2, 2, 3, 3]])
def test_fewer_than_four_counts_give_no_law(counts: list[int]) -> None:
    assert fit(counts, [100.0 * n for n in counts]) is None
