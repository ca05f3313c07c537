"""Loss over offered load as one curve: a SUT takes C of what it is offered, and loses the rest.

loss(x) = max(0, 1 - C / x), and each trial has a C of its own, log-normal around that of the SUT. A
trial that lost packets shows it: x (1 - loss). One that lost none says only that it is x or more.
So ln C is a normal sample, right-censored (Tobin 1958), whatever rule chose the loads: each was
chosen by what trials before it showed, and that leaves the likelihood as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nodrop.stats.interval import CONFIDENCE, of_hosts
from nodrop.stats.special import log_ndtr, root, stdtrit

FEWEST, FEWEST_LOSSY = 5, 3
"""Trials, and of those such that lost packets: one unknown beside the scatter needs three."""
MISFIT = 0.05
"""Largest difference in C from the lowest to the highest load that lost: with more, the trials are
not of one SUT."""
REFUSING = 0.99
"""... and if that is so sure: one in a hundred SUTs that do follow the curve is refused."""
DENSITY = 0.5 * math.log(2 * math.pi)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One measured trial."""

    pps: float
    """Rate that was really offered."""
    loss_ratio: float
    """Share of the packets offered that was not taken."""
    packets: int
    """Packets sent: one of them is the least that a loss ratio can show."""
    start: Hashable = 0
    """The start of the SUT that the trial belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    capacity_pps: float
    """The median trial loses nothing up to here."""
    low_pps: float
    high_pps: float
    """95 % interval: of the SUT, if each trial had a start of its own or there are several; else of
    this one start."""
    scatter: float
    """Standard deviation of ln C between trials of one start: 0.02 = 2 %."""
    n: int
    lossy: int
    starts: int
    """Starts that the interval rests on: n if each trial had its own."""
    counted: str = "starts of the SUT"
    """Name of what `starts` counts: hosts, if several measured the trials."""

    def loss_ratio(self, pps: float) -> float:
        """Loss ratio of the median trial."""
        return _loss(self.capacity_pps, pps)

    def band(self, pps: float) -> tuple[float, float]:
        """Band of the loss ratio, at all loads at once, since the curve has one unknown."""
        return _loss(self.high_pps, pps), _loss(self.low_pps, pps)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCurve:
    """The trials do not follow it, or are too few to say."""

    why: str


def loss_curve(offers: Sequence[Offer]) -> LossCurve | NoCurve:
    lossy = [offer for offer in offers if offer.loss_ratio > 0]
    if why := _unsuited(offers, lossy):
        return NoCurve(why=why)
    starts = sorted({offer.start for offer in offers}, key=str)
    if len(starts) == len(offers):
        starts = starts[:1]
    if len(starts) > 1 and {offer.start for offer in lossy} != set(starts):
        what = "host" if of_hosts(starts) else "start of the SUT"
        return NoCurve(why=f"a {what} lost nothing in any trial, so its limit is not seen")
    sample = _Sample.of(offers, starts)
    fit = _fit(sample, sample.member)
    if why := _not_one_capacity(sample, fit):
        return NoCurve(why=why)
    low, high = _between_starts(fit, sample) if len(starts) > 1 else _profile(fit, sample)
    return LossCurve(
        capacity_pps=math.exp(float(fit.means.mean())),
        low_pps=math.exp(low),
        high_pps=math.exp(high),
        scatter=fit.scatter,
        n=len(offers),
        lossy=len(lossy),
        starts=len(starts) if len(starts) > 1 else len({offer.start for offer in offers}),
        counted="hosts" if of_hosts([offer.start for offer in offers]) else "starts of the SUT",
    )


def _loss(capacity: float, pps: float) -> float:
    return max(0.0, 1 - capacity / pps) if pps > 0 else 0.0


def _unsuited(offers: Sequence[Offer], lossy: Sequence[Offer]) -> str:
    """Empty if a curve can be fitted."""
    if not lossy:
        return "no trial lost packets"
    if len(lossy) == len(offers):
        return "every trial lost packets, so that where loss begins was not seen"
    if len(offers) < FEWEST:
        return f"{len(offers)} trials, and it takes {FEWEST}"
    if len(lossy) < FEWEST_LOSSY:
        return f"{len(lossy)} of the trials lost packets, and it takes {FEWEST_LOSSY}"
    if any(offer.loss_ratio >= 1 for offer in lossy):
        return "a trial lost all that it was offered"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """ln C of each trial: seen, or known to be at least `at`."""

    at: Floats
    seen: NDArray[np.bool_]
    offered: Floats
    """ln of the load."""
    member: Floats
    """One column for each start: 1 in the rows of its trials."""
    least: float
    """Scatter below this cannot be seen: one packet more or less."""

    @classmethod
    def of(cls, offers: Sequence[Offer], starts: Sequence[Hashable]) -> _Sample:
        offered = np.log([offer.pps for offer in offers])
        lost = np.array([offer.loss_ratio for offer in offers])
        member = np.array([[float(o.start == start) for start in starts] for o in offers])
        return cls(
            at=offered + np.log1p(-lost),
            seen=lost > 0,
            offered=offered,
            member=member if len(starts) > 1 else np.ones((len(offers), 1)),
            least=1 / min(offer.packets for offer in offers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    middle: float
    shifts: Floats
    """Shift of each column, to be added to the middle."""
    scatter: float
    log_likelihood: float
    """Logarithm of the likelihood, but for a constant."""

    @property
    def means(self) -> Floats:
        return self.middle + self.shifts


def _fit(sample: _Sample, columns: Floats) -> _Fit:
    """The maximum, by Olsen's parameters (means / scatter, 1 / scatter): in them there is but one
    (Olsen 1978)."""
    seen, at = sample.seen, sample.at
    middle = float(at[seen].mean())
    beyond = float((at[~seen] - middle).max(initial=0.0))
    unit = max(float(at[seen].std()), beyond, sample.least)
    z = (at - middle) / unit

    rows = np.column_stack([columns, -z])
    """Weights of the unknowns in each trial's own cost; the last unknown is 1 / scatter."""

    def cost(at: Floats) -> float:
        above = rows @ at
        own = float(np.sum(above[seen] ** 2)) / 2 - float(np.sum(_log_ndtr(above[~seen])))
        return own - float(seen.sum()) * math.log(at[-1])

    found, least = _lowest(cost, rows, seen, most=unit / sample.least)
    precision = float(found[-1])
    return _Fit(
        middle=middle,
        shifts=unit * found[:-1] / precision,
        scatter=unit / precision,
        log_likelihood=-least - float(seen.sum()) * math.log(unit),
    )


MOST_STEPS, CLOSE = 200, 1e-13
FLATTEST = 1e-6


def _lowest(
    cost: Callable[[Floats], float], rows: Floats, seen: NDArray[np.bool_], *, most: float
) -> tuple[Floats, float]:
    """Unknowns of the least cost, and that cost, by Newton's steps: the cost is convex. The last
    unknown stays between FLATTEST and `most`."""
    lossy = float(seen.sum())
    at = np.zeros(rows.shape[1])
    at[-1] = min(1.0, most)
    value = cost(at)
    for _ in range(MOST_STEPS):
        above = rows @ at
        hazard = _hazard(above)
        slope = np.where(seen, above, -hazard) @ rows
        slope[-1] -= lossy / at[-1]
        bend = rows.T @ (np.where(seen, 1.0, hazard * (hazard + above))[:, None] * rows)
        bend[-1, -1] += lossy / at[-1] ** 2
        free = np.ones(len(at), dtype=bool)
        free[-1] = not (at[-1] >= most and slope[-1] < 0)
        step = np.zeros(len(at))
        step[free] = -np.linalg.lstsq(bend[np.ix_(free, free)], slope[free], rcond=None)[0]
        size, new, lower = 1.0, at, value
        while size > CLOSE:
            new = at + size * step
            new[-1] = min(max(new[-1], FLATTEST, at[-1] / 10), most)
            lower = cost(new)
            if lower <= value + 1e-4 * float(slope @ (new - at)):
                break
            size /= 2
        else:
            return at, value
        moved = float(np.max(np.abs(new - at)))
        at, value = new, lower
        if moved <= CLOSE * (1 + float(np.max(np.abs(at)))):
            break
    return at, value


def _log_ndtr(above: Floats) -> Floats:
    return np.array([log_ndtr(x) for x in above.tolist()])


def _hazard(above: Floats) -> Floats:
    """Density by distribution function of the standard normal."""
    ratio: Floats = np.exp(-(above**2) / 2 - DENSITY - _log_ndtr(above))
    return ratio


def _profile(fit: _Fit, sample: _Sample) -> tuple[float, float]:
    """Ends at which the likelihood has dropped as far as Student's t would allow it with as many
    trials as lost packets: exactly t's interval if all of them did."""
    lossy = int(sample.seen.sum())
    mean = float(fit.means[0])
    drop = _allowed(lossy, lossy - 1, (1 + CONFIDENCE) / 2)
    best = _at(sample, mean)

    def beyond(mu: float) -> float:
        return _at(sample, mu) - best + drop

    def end(sign: int) -> float:
        step = fit.scatter
        while beyond(mean + sign * step) > 0:
            step *= 2
        near, far = mean, mean + sign * step
        return root(beyond, near, far, xtol=1e-12)

    return end(-1), end(1)


def _allowed(n: int, free: int, quantile: float) -> float:
    """Fall of a log-likelihood that is allowed with `free` degrees of freedom."""
    return n / 2 * math.log1p(stdtrit(free, quantile) ** 2 / free)


def _at(sample: _Sample, mean: float) -> float:
    """The log-likelihood of this mean, with the scatter that suits it best."""
    squares = float(np.sum((sample.at[sample.seen] - mean) ** 2))
    above = mean - sample.at[~sample.seen]
    lossy = int(sample.seen.sum())

    def slope(log_precision: float) -> float:
        scaled = math.exp(log_precision) * above
        rest = math.exp(2 * log_precision) * squares
        return lossy - rest + float(scaled @ _hazard(scaled))

    least, most = -10.0, -math.log(sample.least)
    precise = most if slope(most) >= 0 else root(slope, least, most, xtol=1e-9)
    scaled = math.exp(precise) * above
    held = float(np.sum(_log_ndtr(scaled)))
    return lossy * precise - math.exp(2 * precise) * squares / 2 + held


def _between_starts(fit: _Fit, sample: _Sample) -> tuple[float, float]:
    """Student's t over the starts: trials of one have in common what it drew."""
    n = len(fit.means)
    error = max(float(fit.means.std(ddof=1)), sample.least) / math.sqrt(n)
    wide = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * error
    mean = float(fit.means.mean())
    return mean - wide, mean + wide


def _not_one_capacity(sample: _Sample, fit: _Fit) -> str:
    """Whether what is taken grows or falls with the load: ln C against ln x, each by its start."""
    own = sample.member @ fit.means
    load = sample.offered - own
    about = replace(sample, at=sample.at - own)
    free = int(sample.seen.sum()) - len(fit.means) - 1
    apart = float(np.ptp(load[sample.seen]))
    if free < 1 or apart < MISFIT:
        return ""  # of loads so near each other one wild trial would be a slope
    level = np.ones((len(load), 1))
    plain, sloped = _fit(about, level), _fit(about, np.column_stack([level, load]))
    more = float(sloped.shifts[1]) * apart
    gained = sloped.log_likelihood - plain.log_likelihood
    if abs(more) <= MISFIT or gained <= _allowed(free + 1, free, (1 + REFUSING) / 2):
        return ""
    if sloped.shifts[1] > 0.5:
        return "much the same share is lost at every load that lost"
    way = "more" if more > 0 else "less"
    return (
        f"of the highest load that lost, {abs(math.expm1(more)):.0%} {way} was taken than of the "
        "lowest: not one limit"
    )
