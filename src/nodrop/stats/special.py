"""The special functions, root finder and exact tests that nodrop's statistics need.

scipy has them all, and takes 145 MB; tests hold each of these against it. A far host has no numpy,
so nothing here needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

LOG_ROOT = 0.5 * math.log(2 * math.pi)
FAR = -20.0
"""Value below which the tail of the normal is taken from its series: it loses less than erfc's
logarithm."""
MOST_STEPS = 10_000
EPSILON = 2.0**-52
TINY = 1e-300


def log_ndtr(x: float) -> float:
    """Logarithm of the distribution function of the standard normal."""
    if x > 0:
        return math.log1p(-0.5 * math.erfc(x / math.sqrt(2)))
    if x > FAR:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    term, total = 1.0, 1.0
    for i in range(1, 20):
        term *= -(2 * i - 1) / (x * x)
        total += term
    return -x * x / 2 - math.log(-x) - LOG_ROOT + math.log(total)


def betainc(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function, by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _front(b, a, 1 - x, x) * _fraction(b, a, 1 - x) / b
    return _front(a, b, x, 1 - x) * _fraction(a, b, x) / a


def _front(a: float, b: float, x: float, rest: float) -> float:
    return math.exp(a * math.log(x) + b * math.log(rest) - _log_beta(a, b))


@lru_cache(maxsize=4096)
def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, MOST_STEPS):
        for up in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + up * d)
            c = _apart(1 + up / c)
            value *= c * d
        if abs(c * d - 1) <= EPSILON:
            break
    return value


def _apart(x: float) -> float:
    """Far enough from 0 to divide by."""
    return x if abs(x) > TINY else TINY


@lru_cache(maxsize=65_536)
def betaincinv(a: float, b: float, y: float) -> float:
    """The x at which `betainc` is y."""
    if y <= 0 or y >= 1:
        return float(y >= 1)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        off = betainc(a, b, x) - y
        low, high = (x, high) if off < 0 else (low, x)
        slope = math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - _log_beta(a, b))
        new = x - off / slope if slope > 0 else low
        if not low < new < high:  # or it would leave what is known
            new = (low + high) / 2
        if abs(new - x) <= 4 * EPSILON * x or new in (low, high):
            return new
        x = new
    return x


def bdtr(hits: int, n: int, share: float) -> float:
    """Probability of at most that many hits of n."""
    return 1.0 if hits >= n else betainc(n - hits, hits + 1, 1 - share)


def bdtrc(hits: int, n: int, share: float) -> float:
    """Probability of more hits of n."""
    if hits < 0:
        return 1.0
    return 0.0 if hits >= n else betainc(hits + 1, n - hits, share)


def stdtrit(free: float, quantile: float) -> float:
    """Quantile of Student's t."""
    if quantile < 0.5:
        return -stdtrit(free, 1 - quantile)
    inside = betaincinv(0.5, free / 2, 2 * quantile - 1)
    if inside < 0.5:
        return math.sqrt(free * inside / (1 - inside))
    beyond = betaincinv(free / 2, 0.5, 2 * (1 - quantile))
    return math.sqrt(free * (1 - beyond) / beyond)


def fdtrc(between: float, within: float, ratio: float) -> float:
    """Probability that F is larger; the first two are the degrees of freedom."""
    return betainc(within / 2, between / 2, within / (within + between * ratio))


def root(f: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
    """The place where f is 0, by Brent's method. Its values at both ends must differ in sign."""
    before, now, f_before, f_now = low, high, f(low), f(high)
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if (f_before < 0) == (f_now < 0):
        raise ValueError(f"no root between {low} and {high}")
    other, f_other = before, f_before
    step = last = now - before
    for _ in range(100):
        if (f_before < 0) != (f_now < 0):
            other, f_other = before, f_before
            step = last = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        delta = (xtol + 4 * EPSILON * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0 or abs(half) < delta:
            return now
        if abs(last) > delta and abs(f_now) < abs(f_before):
            if before == other:
                new = -f_now * (now - before) / (f_now - f_before)
            else:
                a = (f_before - f_now) / (before - now)
                b = (f_other - f_now) / (other - now)
                new = -f_now * (f_other * b - f_before * a) / (b * a * (f_other - f_before))
            good = 2 * abs(new) < min(abs(last), 3 * abs(half) - delta)
            last, step = (step, new) if good else (half, half)
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > delta else math.copysign(delta, half)
        f_now = f(now)
    return now


@lru_cache(maxsize=65_536)
def fisher_exact(b: int, m: int, o: int, n: int) -> float:
    """Two-sided probability: as much or more apart than b of m and o of n, with the same number of
    hits."""
    hits = b + o
    ways = [
        math.comb(m, i) * math.comb(n, hits - i) for i in range(max(0, hits - n), min(m, hits) + 1)
    ]
    seen = math.comb(m, b) * math.comb(n, o)
    return sum(way for way in ways if way <= seen) / sum(ways)
