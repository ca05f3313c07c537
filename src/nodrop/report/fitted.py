"""The loss curve of a searched cell, fitted to the trials that decide, and what stands apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nodrop.findings.searched import Tried, tried
from nodrop.report import numbers
from nodrop.report.searched import SearchedCell
from nodrop.report.sentences import plural
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.results.trial import count_once
from nodrop.stats.loss_curve import LossCurve, NoCurve, Offer, loss_curve
from nodrop.stats.outliers import outliers

LEAST_APART = 0.01
"""Share of the rate that the other trials served. Trials of a SUT without any noise differ by less,
and that says nothing."""


def fitted(searched: SearchedCell) -> LossCurve | NoCurve:
    return loss_curve(list(_offers(searched)))


def deciding(searched: SearchedCell) -> list[Tried]:
    """Measured trials of the final length."""
    found = [tried(trial.record) for trial in searched.trials]
    longest = max((one.seconds for one in found), default=0.0)
    return [
        one
        for one in found
        if one.seconds == longest and one.outcome == "measured" and one.record.offered.per_s
    ]


def _offers(searched: SearchedCell) -> Iterator[Offer]:
    """A trial of which it is not shown whether it kept the pace is none."""
    decided = [*deciding(searched)]
    starts = count_once([one.record for one in decided])
    for one, start in zip(decided, starts, strict=True):
        good, served, offered = one.good(0.0), one.served_ratio, one.record.offered
        if good is None or served is None or not offered.per_s or not offered.sent:
            continue
        yield Offer(
            pps=offered.per_s,
            loss_ratio=0.0 if good else 1 - served,
            packets=offered.sent,
            start=start,
        )


def stand_apart(searched: SearchedCell) -> Mapping[str, str]:
    """Run → in words: trials that came to a limit of their own far from those of the others."""
    shown = [
        (one.record, limit)
        for one in deciding(searched)
        if not one.good(0.0) and (limit := _limit(one))
    ]
    found = outliers([math.log(limit) for _, limit in shown])
    return {
        shown[one.index][0].run: f"stands apart: it served {numbers.count(shown[one.index][1])} "
        f"packets/s, the others about {numbers.count(math.exp(one.median))}"
        for one in found
        if abs(math.expm1(one.value - one.median)) > LEAST_APART
    }


def _limit(one: Tried) -> float | None:
    pps, served = one.record.offered.per_s, one.served_ratio
    return None if pps is None or served is None else pps * served


def fitted_words(found: LossCurve | NoCurve) -> str:
    if isinstance(found, NoCurve):
        return f"No loss curve is fitted: {found.why}."
    interval = numbers.between(found.low_pps, found.high_pps, numbers.count)
    whose = "one start of the SUT" if found.starts == 1 else f"{found.starts} {found.counted}"
    return (
        f"The median trial takes {numbers.count(found.capacity_pps)} packets/s {interval}, by a "
        f"curve fitted to {plural(found.n, 'trial')} of {whose}, {found.lossy} of which "
        f"were offered too much; from trial to trial that differs by "
        f"{numbers.percent(found.scatter)} %."
    )


COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("capacity_pps", "Median trial takes, packets/s"),
    numeric("low_pps", "from", "lower end of the 95 % interval"),
    numeric("high_pps", "to", "upper end of the 95 % interval"),
    numeric("scatter_pct", "Scatter, %", "from trial to trial"),
    numeric("trials", "Trials"),
    numeric("too_much", "Too much", "of these trials"),
    numeric("starts", "Starts", "of the SUT; hosts if several did"),
    Column(name="why_none", title="Why there is none"),
)


def curves_table(found: Sequence[SearchedCell]) -> Table:
    rows = tuple(_curve_row(one.subject, fitted(one)) for one in found)
    return Table(name="loss-curves", title="Fitted loss curves", columns=COLUMNS, rows=rows)


def _curve_row(name: str, found: LossCurve | NoCurve) -> Row:
    if isinstance(found, NoCurve):
        none = Value(raw=None, shown=numbers.NOT_MEASURED)
        return Row(values=(text(name), *[none] * 7, text(found.why)))
    rates = (found.capacity_pps, found.low_pps, found.high_pps)
    return Row(
        values=(
            text(name),
            *(Value(raw=rate, shown=numbers.count(rate)) for rate in rates),
            Value(raw=found.scatter * 100, shown=numbers.percent(found.scatter)),
            *(Value(raw=n, shown=f"{n}") for n in (found.n, found.lossy, found.starts)),
            text(""),
        )
    )
