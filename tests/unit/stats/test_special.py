"""nodrop's own special functions against scipy's."""

from __future__ import annotations

from itertools import product

import pytest
from scipy import optimize, special, stats

from nodrop.stats import special as own

NEAR = {"rel": 1e-10, "abs": 1e-300}


@pytest.mark.parametrize("x", [-300, -40, -20.1, -20, -19.9, -8, -1, -0.0, 0.3, 5, 9, 40])
def test_log_ndtr(x: float) -> None:
    assert own.log_ndtr(x) == pytest.approx(special.log_ndtr(x), **NEAR)


@pytest.mark.parametrize("y", [1e-6, 0.005, 0.025, 0.05, 0.5, 0.95, 0.975, 0.9987, 1 - 1e-6])
def test_inverse_beta_and_students_t(y: float) -> None:
    for a, b in product((1, 2, 3, 17, 500, 1280), repeat=2):
        assert own.betaincinv(a, b, y) == pytest.approx(special.betaincinv(a, b, y), **NEAR)
        assert own.betainc(a, b, y) == pytest.approx(special.betainc(a, b, y), **NEAR)
    for free in (1, 2, 3, 7, 30, 1000):
        assert own.stdtrit(free, y) == pytest.approx(special.stdtrit(free, y), **NEAR)
        assert own.fdtrc(free, 5, 3 * y) == pytest.approx(special.fdtrc(free, 5, 3 * y), **NEAR)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.9])
def test_binomial(share: float) -> None:
    for n in (1, 2, 10, 300):
        for hits in {0, 1, n // 3, n - 1, n}:
            near = {"rel": 1e-9, "abs": 1e-14}
            assert own.bdtr(hits, n, share) == pytest.approx(special.bdtr(hits, n, share), **near)
            assert own.bdtrc(hits, n, share) == pytest.approx(special.bdtrc(hits, n, share), **near)
    assert own.bdtrc(-1, 5, share) == 1


def test_root() -> None:
    for f, low, high in (
        (lambda x: x**3 - 2, 0.0, 9.0),
        (lambda x: own.log_ndtr(x) + 3, -30.0, 3.0),
        (lambda x: x - 1, 1.0, 2.0),
    ):
        found = own.root(f, low, high, xtol=1e-12)
        assert found == optimize.brentq(f, low, high, xtol=1e-12)
    with pytest.raises(ValueError, match="no root"):
        own.root(lambda x: x + 1, 0, 1, xtol=1e-9)


def test_fisher() -> None:
    for m, n in ((1, 1), (6, 6), (12, 7), (40, 60)):
        for b, o in product({0, 1, m // 2, m}, {0, 1, n // 3, n}):
            expected = stats.fisher_exact([[b, m - b], [o, n - o]]).pvalue
            assert own.fisher_exact(b, m, o, n) == pytest.approx(expected, **NEAR)
