"""Reservations about an answer: a SUT that changed, trials set aside, trials that missed the
goal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodrop.findings.answer import Answer, Missed, Statement
from nodrop.findings.capacity_statements import writing
from nodrop.findings.searched import Aside, Picture, Tried


def reservations(answer: Answer, views: Sequence[Picture]) -> Iterator[Statement]:
    """`views`: of each round, for the goal of the answer."""
    yield from changed(answer, views)
    if answer.missed is not None:
        yield _noise(answer, answer.missed)
    if aside := _set_aside(answer, views):
        yield aside


def changed(answer: Answer, views: Sequence[Picture]) -> Iterator[Statement]:
    """In rounds whose trials fall apart into phases; if it served less and less, in all."""
    words, runs, loads = [], [], writing(answer)
    for number, view in zip((r.number for r in answer.rounds), views, strict=True):
        trials = [t for phase in (*view.earlier, view.trials) for t in phase]
        served = [(t, at) for t in trials if (at := t.reaches(answer.goal)) is not None]
        served = [(t, at) for t, at in served if not t.good(answer.goal)]
        if len(served) < 2 or not (view.earlier or answer.limited_by == "changes"):
            continue
        (first, most), (last, least) = served[0], served[-1]
        began = view.earlier[0] if view.earlier else trials
        since = "" if len(view.earlier) != 1 else f", less from trial {len(began) + 1} on"
        words.append(
            f"in round {number} it served {loads.at(most)} of too much at first and "
            f"{loads.at(least)} at last{since}"
        )
        runs += [first.record.run, last.record.run]
    if not words:
        return
    counts = "" if answer.limited_by == "changes" else "; its last trials count"
    yield Statement(
        rule="capacity-changed",
        text=f"the SUT served less as it went on: {'; '.join(words)}{counts}",
        evidence={"rounds": len(words)},
        runs=tuple(runs),
    )


def _noise(answer: Answer, found: Missed) -> Statement:
    assert answer.lower is not None
    where = writing(answer).span(found.least, answer.lower.value, up=False)
    what = "lost packets or fell behind" if answer.goal == 0 else "missed the goal"
    many = f"{found.missed} of {found.trials} trial{'s' if found.trials > 1 else ''}"
    return Statement(
        rule="capacity-noise",
        text=f"{many} at {where} {what}; up to {100 * found.share_at_most:.0f} % of such trials "
        "may (95 % confidence)",
        evidence={
            "trials": found.trials,
            "missed": found.missed,
            "share_at_most": found.share_at_most,
        },
    )


_WHY = {
    Aside.STOLEN: "lost no more than came while the hypervisor had the CPU, or in late bursts",
    Aside.PACE: "lost nothing, but were too short to show the pace",
    Aside.FAR: "carried less than 80 % of their load, and speak of no other",
    Aside.REFUTED: "promised more than a lower load then carried",
    Aside.CHANGED: "were before the SUT began to serve less",
}


def _set_aside(answer: Answer, views: Sequence[Picture]) -> Statement | None:
    loads = writing(answer)
    found: dict[Aside, list[Tried]] = {why: [] for why in Aside}
    for view in views:
        for why, trials in view.aside().items():
            found[why] += trials
    words = []
    for why, trials in found.items():
        if trials:
            least = loads.at(min(t.value for t in trials), up=False)
            words.append(f"{len(trials)} {_WHY[why]} (the lowest at {least})")
    if not words:
        return None
    return Statement(
        rule="capacity-set-aside",
        text=f"trials set aside: {'; '.join(words)}",
        evidence={why.value: len(trials) for why, trials in found.items()},
        runs=tuple(t.record.run for trials in found.values() for t in trials),
    )
