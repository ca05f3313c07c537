"""Sentences of a run on one curve over load: what was carried or lost, what failed or was void."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nodrop.config.units import noun
from nodrop.findings.load_words import LEAST_KNOWN, Contradiction, LoadResult, contradiction, pairs
from nodrop.report import escape, numbers
from nodrop.report.senders import counted, why
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Cell, starts_of
from nodrop.report.trials import Trial
from nodrop.stats.interval import Summary, share_interval, upper_bound

_NUMBERS = re.compile(r"[\d.,\u202f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A sign that points at a cause, in one or several lossy trials."""

    rule: str
    words: str
    """Words of the first of the trials."""
    alike: bool
    """The words are the same in all of them."""
    trials: tuple[Trial, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "words": self.words,
            "runs": [t.name for t in self.trials],
        }


def places_words(cell: Cell) -> str:
    """` in the socket ring`, ` mostly in the socket ring in 4 of 6 lossy trials, …`."""
    places = places_of(cell)
    if not places:
        return ""
    mostly = (
        "mostly in" if any(len(t.record.packets.lost_by_place) > 1 for t in cell.lossy) else "in"
    )
    if len(places) == 1:
        return f" {mostly} the {escape.plain(next(iter(places)))}"
    listed = [f"{mostly} the {escape.plain(place)} in {n}" for place, n in places.items()]
    return f" {listed[0]} of {len(cell.lossy)} lossy trials, " + ", ".join(listed[1:])


def places_of(cell: Cell) -> dict[str, int]:
    """Lossy trials by the place where each lost most, the commonest first."""
    found: dict[str, int] = {}
    for trial in cell.lossy:
        if place := trial.record.packets.loss_place:
            found[place] = found.get(place, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def pointers(cell: Cell) -> list[Pointer]:
    """The commonest first."""
    gathered: dict[str, list[tuple[str, Trial]]] = {}
    for trial in cell.lossy:
        for rule, words in _causes(trial):
            gathered.setdefault(rule, []).append((words, trial))
    found = [
        Pointer(
            rule=rule,
            words=told[0][0],
            alike=len({words for words, _ in told}) == 1,
            trials=tuple(trial for _, trial in told),
        )
        for rule, told in gathered.items()
    ]
    return sorted(found, key=lambda p: -len(p.trials))


def _causes(trial: Trial) -> list[tuple[str, str]]:
    """Rule and words of each; of older runs the words alone, which differ in their numbers."""
    found = trial.record.packets.loss_causes
    words = trial.record.packets.loss_cause
    old = [(_NUMBERS.sub("#", words), words)] if words else []
    return [(cause.rule, cause.words) for cause in found] or old


def causes_words(cell: Cell) -> str:
    """`; what points at the cause in 5 of 6 lossy trials: …; in 1 nothing does`."""
    found = pointers(cell)
    if not found:
        return ""
    lossy, parts = len(cell.lossy), []
    for n, pointer in enumerate(found):
        of = f" of {lossy} lossy trials" if n == 0 and lossy > 1 else ""
        where = f"in {len(pointer.trials)}{of}" if lossy > 1 else ""
        such = "" if pointer.alike else " (so in the first of them)"
        parts.append(f"{where}: {escape.plain(pointer.words)}{such}".removeprefix(": "))
    unknown = sum(1 for t in cell.lossy if not _causes(t))
    if unknown:
        parts.append(f"in {unknown} nothing does")
    return "; what points at the cause" + (" " if lossy > 1 else ": ") + "; ".join(parts)


def knob_words(cell: Cell) -> str:
    """The knob that touches most of the losses, and in how many trials, if not in all; empty if
    there is none."""
    knobs: dict[str, int] = {}
    for trial in cell.lossy:
        if trial.record.packets.knob:
            knobs[trial.record.packets.knob] = knobs.get(trial.record.packets.knob, 0) + 1
    if not knobs:
        return ""
    knob, n = max(knobs.items(), key=lambda item: item[1])
    said = escape.plain(knob)
    return said if n == len(cell.lossy) else f"{said} (in {n} of {len(cell.lossy)} lossy trials)"


def rising(cells: Sequence[Cell]) -> list[Cell]:
    """By what was offered in packets/s, or, of void loads, asked for: 4X and twice the speed have
    no other scale in common. By the factor that makes the load larger if some have no rate."""
    rates = [_pps(cell) for cell in cells]
    if None not in rates:
        return sorted(cells, key=lambda c: (_pps(c) or 0.0, c.rank))
    return sorted(cells, key=lambda c: (c.rank, _pps(c) or 0.0))


def groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that differ only in how much load there is."""
    by_group = groupby(cells, key=lambda c: (c.source, c.group))
    return [list(found) for _, found in by_group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Cells that differ only in how much load there is, the least first."""

    cells: tuple[Cell, ...]
    """In the order of the experiment."""
    loads: tuple[Cell, ...]
    told: tuple[Cell, ...]
    """Loads that say something."""
    bad: Cell | None
    """The first that lost packets or failed."""
    clash: Contradiction | None

    @property
    def top(self) -> Cell | None:
        """The highest load below the first bad one."""
        below = self.told[: self.told.index(self.bad)] if self.bad else self.told
        return below[-1] if below else None


def ladders(cells: Sequence[Cell]) -> list[Ladder]:
    """Among all pairs of their loads contradictions are looked for."""
    found = groups(cells)
    looks = pairs([_results(each) for each in found])
    return [_ladder(each, looks) for each in found]


def _ladder(cells: Sequence[Cell], looks: int) -> Ladder:
    loads = tuple(rising(cells))
    told = tuple(cell for cell in loads if cell.known or cell.failed)
    bad = next((cell for cell in told if cell.lossy or cell.failed), None)
    clash = contradiction(_results(cells), looks=looks)
    return Ladder(cells=tuple(cells), loads=loads, told=told, bad=bad, clash=clash)


def _results(cells: Sequence[Cell]) -> list[LoadResult]:
    return [
        LoadResult(
            name=cell.label,
            losses=tuple(map(_loss_ratio, cell.known)),
            failed=len(cell.failed),
            pps=cell.offered_pps,
        )
        for cell in rising(cells)
    ]


def _loss_ratio(trial: Trial) -> float:
    """If the books do not close: what was counted, at the least."""
    if trial.loss_ratio is not None:
        return trial.loss_ratio
    return (trial.lost_packets or 0) / max(trial.record.offered.sent or 1, 1)


def sentences_of(subject: str, ladder: Ladder) -> Iterator[Sentence]:
    clash, by_name = ladder.clash, {cell.label: cell for cell in ladder.loads}
    if clash and clash.sure:
        yield _clash(subject, clash, by_name)
    if ladder.top:
        yield _not_lost(subject, ladder.top)
    yield from _bad(subject, ladder.told)
    if clash and not clash.sure:
        yield _clash(subject, clash, by_name)
    yield from _not_told(subject, ladder.loads)


def _bad(subject: str, told: Sequence[Cell]) -> Iterator[Sentence]:
    """The lowest lossy load and all under which the SUT failed, the lower first."""
    lossy = next((c for c in told if c.lossy), None)
    failing = [c for c in told if c.failed]
    if failing and (lossy is None or told.index(failing[0]) <= told.index(lossy)):
        yield _failed(subject, failing)
        failing = []
    if lossy:
        yield _lost(subject, lossy, lowest=lossy is told[0] and len(told) > 1)
    if failing:
        yield _failed(subject, failing)


def nothing_above(cells: Sequence[Cell]) -> Cell | None:
    """The highest load if no trial lost or failed: no higher one was asked for, even in vain."""
    loads = rising(cells)
    bad = any(c.lossy or c.failed for c in loads)
    return loads[-1] if loads[-1].known and not bad else None


def load_words(cell: Cell) -> str:
    """`99 970 packets/s (4X)`."""
    return _named(cell, _pps(cell))


def _pps(cell: Cell) -> float | None:
    return cell.asked_pps if cell.offered_pps is None else cell.offered_pps


def _two_loads(lower: Cell, higher: Cell) -> tuple[str, str]:
    """With as many digits as tell them apart."""
    found, known = (load_words(lower), load_words(higher)), numbers.SMALL_RATE
    while found[0] == found[1] and known > LEAST_KNOWN:
        known /= 10
        found = _named(lower, _pps(lower), known), _named(higher, _pps(higher), known)
    return found


def percent_with_interval(loss: Summary) -> str:
    return numbers.with_spread(loss, numbers.percent, " %", f" in {loss.n} runs")


def share(ratio: float) -> str:
    """A share of runs in words: `39 %`."""
    return f"{ratio * 100:.0f} %" if ratio >= 0.1 else f"{ratio * 100:.2g} %"


def _not_lost(subject: str, cell: Cell) -> Sentence:
    n, load, unknown = len(cell.known), load_words(cell), len(cell.unknown)
    # Each of those may have lost some.
    bound = upper_bound(starts_of(cell.unknown), starts_of((*cell.known, *cell.unknown)))
    lost = f"0 of {plural(n, 'trial')} lost a packet"
    lost += f", of {unknown} more it is not known" if unknown else ""
    lost += f", so fewer than {share(bound)} of such {cell.independent_name} do (95 % confidence)"
    kept = [t.record.packets.sustained for t in cell.known]
    if all(kept):
        rule, text = "carries", f"{subject} carries {load} without loss: {lost}{_shown(cell)}."
    elif False in kept:
        rule = "absorbed"
        text = f"{subject} absorbed a burst of {_burst(cell)}: {lost}; it is not shown to carry"
        text += f" {load}: in {kept.count(False)} of {n} trials it was behind at the end."
    else:
        rule = "no-loss"
        shown = f" (shown in {kept.count(True)} of {n} trials)" if True in kept else ""
        text = f"{subject}, {load}: {lost}; whether it can keep this up for longer than "
        text += f"{_burst(cell)} is not known{shown}."
    return Sentence(
        rule,
        text,
        {
            **_facts(cell),
            "lossy_share_below": bound,
            "confidence": 0.95,
            "sustained": {"yes": kept.count(True), "no": kept.count(False)},
            "packets_median": _median(cell, "offered_packets"),
            "duration_s_median": _median(cell, "duration_s"),
            "backlog_packets": [t.record.packets.backlog_packets for t in cell.known],
            "drain_s": [t.record.drain_s for t in cell.known],
        },
        cell.known,
        subject=subject,
    )


def _shown(cell: Cell) -> str:
    """A pace is shown to within some packets: a SUT slower by less than that looks the same."""
    served = [t.record.packets.service_pps_at_least for t in cell.known]
    known = [pps for pps in served if pps is not None]
    least = min(known, default=None)
    if least is None or (cell.offered_pps is not None and least >= cell.offered_pps):
        return ""
    return f"; it is shown to serve at least {numbers.count(least)} packets/s"


def _median(cell: Cell, figure: str) -> float | None:
    found = cell.summary(figure)
    return found.median if found else None


def _burst(cell: Cell) -> str:
    """`50 000 packets in 1.0 s (50 002 packets/s)`."""
    packets, seconds = _median(cell, "offered_packets"), _median(cell, "duration_s")
    said = (
        f"{numbers.count(packets)} {noun(packets, 'packet')}"
        if packets is not None
        else "unknown size"
    )
    return f"{said} in {numbers.seconds(seconds)} s" if seconds is not None else said


def _lost(subject: str, cell: Cell, *, lowest: bool) -> Sentence:
    loss, n, k = cell.loss, len(cell.known), len(cell.lossy)
    where, causes = places_words(cell), causes_words(cell)
    at = f"{subject}: at {load_words(cell)}" + (", the lowest load measured" if lowest else "")
    evidence = {
        **_facts(cell),
        "places": places_of(cell),
        "causes": [p.as_json() for p in pointers(cell)],
    }
    if loss is None or k == n:
        every = f"{k} of {plural(n, 'trial')} {'loses' if k == 1 else 'lose'} packets{where}"
        middle = f": {percent_with_interval(loss)}" if loss else ""
        middle += " in the median" if loss and n > 1 else ""
        rule, text = "loses", f"{at}, {every}{middle}{causes}."
    else:
        among = share_interval(starts_of(cell.lossy), starts_of(cell.known))
        evidence |= {"lossy_share": [among.low, among.high], "confidence": among.coverage}
        rule = "loses-sometimes"
        text = (
            f"{at}, {k} of {n} trials {'loses' if k == 1 else 'lose'} packets{where}, so "
            f"{share(among.low)} to {share(among.high)} of such {cell.independent_name} do (95 % "
            f"confidence); the worst of the {n} lost {numbers.percent(loss.high)} %{causes}."
        )
    return Sentence(rule, text, evidence, cell.known, subject=subject, knob=knob_words(cell))


def _failed(subject: str, cells: Sequence[Cell]) -> Sentence:
    parts = []
    for cell in cells:
        tried = len(cell.failed) + len(cell.valid)
        said = f"in {len(cell.failed)} of {plural(tried, 'trial')} at {load_words(cell)}"
        parts.append(f"{said} ({why(cell.failed)}{_others(cell)})")
    return Sentence(
        "failed",
        f"{subject} failed " + "; ".join(parts) + ".",
        {"loads": [_facts(cell) for cell in cells]},
        tuple(t for cell in cells for t in cell.failed),
        subject=subject,
    )


def _others(cell: Cell) -> str:
    if not cell.known:
        return ""
    others = len(cell.known)
    rest = "the other one" if others == 1 else f"the other {others}"
    if not cell.lossy:
        return f"; {rest} lost nothing"
    if len(cell.lossy) == others:
        return f"; {rest} lost packets"
    return f"; of {rest}, {len(cell.lossy)} lost packets"


def _clash(subject: str, clash: Contradiction, cells: dict[str, Cell]) -> Sentence:
    lower, higher = cells[clash.lower.name], cells[clash.higher.name]
    low, high = _two_loads(lower, higher)
    evidence = {
        "lower": _facts(lower),
        "higher": _facts(higher),
        "probability": clash.probability,
        "by_amount": clash.by_amount,
    }
    if clash.by_amount:
        seen = (
            f"at {low} every trial lost at least "
            f"{numbers.percent(min(clash.lower.losses))} %, at the higher {high} at "
            f"most {numbers.percent(max(clash.higher.losses))} %"
        )
    else:
        seen = (
            f"at {low} {clash.lower.bad} of {clash.lower.trials} trials lost packets "
            f"or failed, at the higher {high} {clash.higher.bad} of "
            f"{clash.higher.trials}"
        )
    if clash.sure:
        rule = "loads-contradict"
        text = (
            f"{subject}: the loads contradict each other: {seen}. Something other than the load "
            "decides, so no highest load can be named."
        )
    else:
        rule = "loads-out-of-order"
        text = f"{subject}: {seen}. That can be chance, so the higher load is not called carried."
    return Sentence(
        rule,
        text,
        evidence,
        (*lower.known, *lower.failed, *higher.known, *higher.failed),
        subject=subject,
    )


def _not_told(subject: str, loads: Sequence[Cell]) -> Iterator[Sentence]:
    """Loads, or trials, that say nothing, and why."""
    for cell in loads:
        void, n = cell.void, len(cell.trials)
        if void and len(void) == n:
            times = {1: "once", 2: "twice"}.get(n, f"{n} times")
            text = f"{subject}: {asked_words(cell)} was asked for {times}, and "
            text += "the trial is void" if n == 1 else "every trial is void"
            yield _said("load-void", subject, f"{text} ({why(void)}).", cell, void)
        elif void:
            are = "is" if len(void) == 1 else "are"
            text = f"{subject}: {len(void)} of {n} trials at {load_words(cell)} {are} void"
            yield _said("some-void", subject, f"{text} ({why(void)}).", cell, void)
        if unknown := cell.unknown:
            text = (
                f"{subject}: in {len(unknown)} of {plural(n, 'trial')} at {load_words(cell)} the "
                "loss is not known, for the packet books do not close."
            )
            yield _said("loss-not-known", subject, text, cell, unknown)


def asked_words(cell: Cell) -> str:
    """The load that was asked for in a void cell: `5 000 000 packets/s`."""
    return _named(cell, cell.asked_pps)


def _named(cell: Cell, pps: float | None, known: float = numbers.SMALL_RATE) -> str:
    rate = f"{numbers.rate(pps, known)} packets/s" if pps is not None else ""
    if cell.load_label and not (rate and cell.load_label.endswith(" pps")):
        return f"{rate} ({cell.load_label})" if rate else cell.load_label
    return rate or "the load"


def _said(rule: str, subject: str, text: str, cell: Cell, trials: tuple[Trial, ...]) -> Sentence:
    reasons = {escape.plain(code): n for code, n in counted(trials).items()}
    evidence = {**_facts(cell), "reasons": reasons}
    return Sentence(rule, text, evidence, trials, subject=subject)


def _facts(cell: Cell) -> dict[str, Any]:
    return {
        "load": cell.load_label,
        "offered_pps": cell.offered_pps,
        "trials": len(cell.trials),
        "measured": len(cell.valid),
        "loss_known": len(cell.known),
        "lossy": len(cell.lossy),
        "failed": len(cell.failed),
        "void": len(cell.void),
        "loss_ratios": [t.loss_ratio for t in cell.known],
    }
