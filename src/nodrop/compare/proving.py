"""Effects of knobs: trials with each, and with none of them, from the same blocks.

One family holds all of them (compare/versus.py): if no knob does anything, the chance that any is
said to do something is at most 5 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodrop.compare.records import MetricRow, Side, SideCell
from nodrop.compare.sides import FAILED
from nodrop.compare.versus import versus
from nodrop.exit_codes import ANSWERED, NO_ANSWER
from nodrop.report.costs import FAILURES, LOSS
from nodrop.results.proved import Effect, Proved, Together

BASE = "without"
METRICS = {"loss": "loss_pct", "cpu": "cpu_us_per_packet"}
"""Exit code, as of `nodrop compare`."""
KNOB = "knob"
LOSES = "it loses packets: loss {}"
STATES: Mapping[str, str] = {"same": "does not", "cannot tell": "cannot tell yet"}


def effects(cells: Mapping[str, SideCell], metric: str, look: int | None) -> list[Effect]:
    """`cells`: by name, `BASE` among them; one effect for each of the others."""
    base = cells[BASE]
    names = [name for name in cells if name != BASE]
    here = [name for name in names if {metric, FAILED} & {*base.figures} & {*cells[name].figures}]
    rows: dict[str, MetricRow] = {}
    harm: dict[str, str] = {}
    if here:
        sides = (
            Side(name=side, identity=side, facts={}, cells=_named(here, cells, only))
            for side, only in (("without", BASE), ("with", None))
        )
        asked = [name for name in dict.fromkeys((metric, LOSS, FAILURES)) if _anywhere(name, cells)]
        found = versus(*sides, metrics=asked, look=look)
        rows = {row.cell: row for row in found.rows if row.metric == metric}
        # A SUT that loses packets, or dies, has less to do: that is no help.
        for row in found.rows:
            if row.worse and row.metric in (FAILED, LOSS, FAILURES) and row.metric != metric:
                words = "the SUT fails with it" if row.metric == FAILED else LOSES
                harm[row.cell] = words.format(row.words)
    return [_effect(name, metric, rows.get(name), cells, harm.get(name, "")) for name in names]


def _anywhere(metric: str, cells: Mapping[str, SideCell]) -> bool:
    return any(metric in cell.figures for cell in cells.values())


def _named(
    names: Sequence[str], cells: Mapping[str, SideCell], only: str | None = None
) -> list[SideCell]:
    return [
        cells[only or name].model_copy(update={"factors": {KNOB: name}, "label": name})
        for name in names
    ]


def _effect(
    name: str, metric: str, row: MetricRow | None, cells: Mapping[str, SideCell], harm: str
) -> Effect:
    void = cells[name].void
    if harm:
        return Effect(
            knob=name, metric=metric, unit="", state="makes it worse", without=None, by=None,
            interval=None, relative=None, trials=(0, 0), void=void, words=harm,
        )  # fmt: skip
    if row is None or metric not in cells[name].figures:
        why = "all of its trials are void; `nodrop report` says why" if void else "no trial has it"
        return Effect(
            knob=name, metric=metric, unit="", state="cannot tell yet", without=None, by=None,
            interval=None, relative=None, trials=(0, 0), void=void, words=why,
        )  # fmt: skip
    state = STATES.get(row.answer) or ("makes it worse" if row.worse else "helps")
    low, high = row.interval or (None, None)
    share = None
    if row.a_median and low is not None and high is not None:
        share = (max(low / row.a_median, -1.0), high / row.a_median)
    return Effect.model_validate(
        {
            "knob": name,
            "metric": metric,
            "unit": row.unit,
            "state": state,
            "without": row.a_median,
            "by": row.difference,
            "interval": row.interval,
            "relative": share,
            "trials": (row.a_n, row.b_n),
            "void": void,
            "words": row.words,
        }
    )


def told(found: Sequence[Effect]) -> bool:
    return all(effect.state != "cannot tell yet" for effect in found)


def helping(found: Sequence[Effect]) -> list[str]:
    return [effect.knob for effect in found if effect.state == "helps"]


def together(alone: Sequence[Effect], effect: Effect) -> Together:
    """`alone`: those that are in it. A sum of intervals holds whatever trials have in common."""
    intervals = [one.interval for one in alone if one.interval is not None]
    total = beyond = None
    if len(intervals) == len(alone):
        total = (sum(low for low, _ in intervals), sum(high for _, high in intervals))
    if total is not None and effect.interval is not None:
        beyond = (effect.interval[0] - total[1], effect.interval[1] - total[0])
    return Together(effect=effect, sum=total, beyond=beyond)


def proved(found: Sequence[Effect], both: Together | None, notes: Sequence[str]) -> Proved:
    unsure = not told(found) or (both is not None and not told([both.effect]))
    return Proved(
        effects=[*found], together=both, notes=[*notes], exit_code=NO_ANSWER if unsure else ANSWERED
    )


def lines(found: Proved) -> Iterator[str]:
    for effect in found.effects:
        yield line(effect)
    if (both := found.together) is not None:
        yield line(both.effect)
        if both.sum is not None and both.beyond is not None:
            low, high = both.sum
            more = "they add up, as far as can be told"
            if both.beyond[0] > 0 or both.beyond[1] < 0:
                more = "they interact"
            unit = both.effect.unit
            yield f"each alone sums up to [{low:+.3g}, {high:+.3g}] {unit}: {more}"
    yield from found.notes


def line(effect: Effect) -> str:
    words = f"{effect.knob}: {effect.state}"
    if effect.state == "does not":
        words = f"{effect.knob}: does not help or harm"
    if effect.interval is None or effect.by is None:
        said = effect.words.removeprefix(effect.state).strip()
        return f"{words} {said}" if said != effect.words else f"{words}: {said}"
    low, high = effect.interval
    if effect.state in ("helps", "makes it worse") and low <= 0 <= high:  # by how many lose
        return f"{words}: {effect.metric} {effect.words}"
    change = f"{effect.metric} {effect.by:+.3g} [{low:+.3g}, {high:+.3g}] {effect.unit}"
    if effect.relative is not None:
        change += f", {100 * effect.relative[0]:+.0f} to {100 * effect.relative[1]:+.0f} %"
    void = f", {effect.void} void" if effect.void else ""
    at = "" if effect.without is None else f" of {effect.without:.3g}"
    return f"{words}: {change}{at} (n = {effect.trials[0]} and {effect.trials[1]}{void})"
