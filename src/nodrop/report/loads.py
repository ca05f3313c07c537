"""Sentences of a run on one curve over load: what was carried or lost, what failed or was void.

Cells whose trials are void for one reason, always or nearly so, are a finding: what to change is
said with it.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nodrop.answer.finding import WORDS
from nodrop.capacity.load_words import LEAST_KNOWN
from nodrop.capacity.searched_cells import given_cells, searches, subject
from nodrop.config.units import count_of
from nodrop.findings.contradiction import Contradiction, LoadResult, contradiction, pairs
from nodrop.findings.observations import RATES
from nodrop.ledger.outcome import Reason
from nodrop.report import escape, numbers
from nodrop.report.sentences import Sentence, counted, phrase, reason_words, sentence_of, why
from nodrop.report.story import RunCell, Story, by_key, once, starts_of
from nodrop.report.trials import StoredTrial
from nodrop.stats.interval import Summary, share_interval, upper_bound
from nodrop.untrusted.json_text import table_in, tables_in


def places_words(cell: RunCell) -> str:
    """` in the socket ring`, ` mostly in the socket ring in 4 of 6 lossy trials, …`."""
    places = places_of(cell)
    if not places:
        return ""
    several = any(len(t.record.packets.lost_by_place) > 1 for t in cell.lossy)
    named = [f"{'mostly ' if several else ''}in the {escape.plain(place)}" for place in places]
    if len(named) == 1:
        return f" {named[0]}"
    first, *others = (f"{name} in {n}" for name, n in zip(named, places.values(), strict=True))
    return f" {first} of {len(cell.lossy)} lossy trials, {', '.join(others)}"


def places_of(cell: RunCell) -> dict[str, int]:
    """Lossy trials by the place where each lost most, the commonest first."""
    places = (trial.record.packets.loss_place for trial in cell.lossy)
    return dict(Counter(place for place in places if place).most_common())


def pointers(cell: RunCell) -> list[tuple[str, list[tuple[str, StoredTrial]]]]:
    """Rules that point at a cause, the commonest first: their words in each lossy trial."""
    causes = (
        (cause.rule, (cause.words, t)) for t in cell.lossy for cause in t.record.packets.loss_causes
    )
    return sorted(by_key(causes).items(), key=lambda found: -len(found[1]))


def causes_words(cell: RunCell) -> str:
    """`; what points at the cause in 5 of 6 lossy trials: …; in 1 nothing does`."""
    found = pointers(cell)
    if not found:
        return ""
    lossy, parts = len(cell.lossy), []
    for n, (_, told) in enumerate(found):
        of = f" of {lossy} lossy trials" if n == 0 else ""
        where = f"in {len(told)}{of}: " if lossy > 1 else ""
        such = " (so in the first of them)" if len({words for words, _ in told}) > 1 else ""
        parts.append(f"{where}{escape.plain(told[0][0])}{such}")
    if unknown := sum(not t.record.packets.loss_causes for t in cell.lossy):
        parts.append(f"in {unknown} nothing does")
    return "; what points at the cause" + (" " if lossy > 1 else ": ") + "; ".join(parts)


def knob_words(cell: RunCell) -> str:
    """The commonest knob of the lossy trials, with their number; empty without one."""
    every = len(cell.lossy)
    knobs = Counter(knob for trial in cell.lossy if (knob := trial.record.packets.knob))
    for knob, n in knobs.most_common(1):
        return escape.plain(knob) + ("" if n == every else f" (in {n} of {every} lossy trials)")
    return ""


def rising(cells: Sequence[RunCell]) -> list[RunCell]:
    """Cells by what was offered in packets/s or, of void loads, asked for: 4X and twice the speed
    have no other scale in common. If some have no rate, the factor that makes the load larger sorts
    them."""
    by_rate = all(_pps(cell) is not None for cell in cells)
    by_factor = sorted(cells, key=lambda c: (c.rank, _pps(c) or 0.0))
    return sorted(by_factor, key=lambda c: _pps(c) or 0.0) if by_rate else by_factor


@dataclass(frozen=True, slots=True)
class Ladder:
    """Cells that differ only in how much load there is, the least first."""

    cells: tuple[RunCell, ...]
    """Cells in the order of the experiment."""
    loads: tuple[RunCell, ...]
    told: tuple[RunCell, ...]
    """Loads that say something."""
    bad: RunCell | None
    """The first load that lost packets or failed."""
    clash: Contradiction | None
    subject: str
    """Words that a sentence about it begins with."""

    @property
    def top(self) -> RunCell | None:
        """The highest load below the first bad one."""
        below = self.told[: self.told.index(self.bad)] if self.bad else self.told
        return below[-1] if below else None

    @property
    def nothing_above(self) -> RunCell | None:
        """The highest load if none lost or failed: no higher one was asked for, even in vain."""
        return self.loads[-1] if self.loads[-1].known and not self.bad else None


@once
def ladders(story: Story) -> tuple[Ladder, ...]:
    """Ladders of the loads of packets that the experiment gives. Contradictions are looked for in
    all pairs of them together."""
    given = (cell for cell in given_cells(story) if not cell.answered)
    groups = [[*g] for _, g in groupby(given, key=lambda c: (c.source, c.group))]
    looks, found = pairs([_results(cells) for cells in groups]), []
    for cells in groups:
        loads = tuple(rising(cells))
        told = tuple(cell for cell in loads if cell.known or cell.failed)
        bad = next((cell for cell in told if cell.lossy or cell.failed), None)
        clash, name = contradiction(_results(cells), looks=looks), subject(story, cells[0])
        found.append(Ladder(tuple(cells), loads, told, bad, clash, name))
    return tuple(found)


def _results(cells: Sequence[RunCell]) -> list[LoadResult]:
    def loss_ratio(trial: StoredTrial) -> float:
        """The counted loss, a lower bound, if the books do not close."""
        if trial.loss_ratio is not None:
            return trial.loss_ratio
        return (trial.lost_packets or 0) / max(trial.record.offered.sent or 1, 1)

    return [
        LoadResult(
            name=cell.label,
            losses=tuple(map(loss_ratio, cell.known)),
            failed=len(cell.failed),
            pps=cell.offered_pps,
            rates={f: v for f in RATES if isinstance(v := cell.factors.get(f), int | float)},
        )
        for cell in rising(cells)
    ]


def sentences_of(ladder: Ladder) -> Iterator[Sentence]:
    subject, clash = ladder.subject, ladder.clash
    by_name = {cell.label: cell for cell in ladder.loads}
    if clash and clash.sure:
        yield _clash(subject, clash, by_name)
    if ladder.top:
        yield _not_lost(subject, ladder.top)
    yield from _bad(subject, ladder.told)
    if clash and not clash.sure:
        yield _clash(subject, clash, by_name)
    yield from _not_told(subject, ladder.loads)


def _bad(subject: str, told: Sequence[RunCell]) -> Iterator[Sentence]:
    """The lowest lossy load and all under which the SUT failed, the lower first."""
    lossy = next((c for c in told if c.lossy), None)
    failing = [c for c in told if c.failed]
    for cell in told:
        if failing and cell is failing[0]:
            yield _failed(subject, failing)
        if cell is lossy:
            yield _lost(subject, cell, lowest=cell is told[0] and len(told) > 1)


def load_words(cell: RunCell, *, asked: bool = False, known: float = numbers.SMALL_RATE) -> str:
    """`99,970 packets/s (4X)`; in a void cell, as `asked` for: `5,000,000 packets/s`."""
    pps = cell.asked_pps if asked else _pps(cell)
    rate = "" if pps is None else f"{numbers.rate(pps, known)} packets/s"
    if cell.load_label and not (rate and cell.load_label.endswith(" pps")):
        return f"{rate} ({cell.load_label})" if rate else cell.load_label
    return rate or "the load"


def _pps(cell: RunCell) -> float | None:
    return cell.asked_pps if cell.offered_pps is None else cell.offered_pps


def percent_with_interval(loss: Summary) -> str:
    return numbers.with_spread(loss, numbers.percent, " %", f" in {loss.n} runs")


def share(ratio: float) -> str:
    """A share of runs in words: `39 %`."""
    return f"{ratio * 100:.0f} %" if ratio >= 0.1 else f"{ratio * 100:.2g} %"


def _not_lost(subject: str, cell: RunCell) -> Sentence:
    n, unknown = len(cell.known), len(cell.unknown)
    # Each of those may have lost some.
    bound = upper_bound(starts_of(cell.unknown), starts_of((*cell.known, *cell.unknown)))
    more = f", of {unknown} more it is not known" if unknown else ""
    fewer = f"so fewer than {share(bound)} of such {cell.independent_name} do (95 % confidence)"
    lost = f"0 of {count_of(n, 'trial')} lost a packet{more}, {fewer}"
    books = [t.record.packets for t in cell.known]
    kept = [packets.sustained for packets in books]
    packets, seconds = cell.median("offered_packets"), cell.median("duration_s")
    size = "unknown size" if packets is None else numbers.count_of(packets, "packet")
    burst = size if seconds is None else f"{size} in {numbers.seconds(seconds)} s"
    # A pace is shown to within some packets: a SUT slower by less than that looks the same.
    served = [pps for book in books if (pps := book.service_pps_at_least) is not None]
    if all(kept) and served and (cell.offered_pps is None or min(served) < cell.offered_pps):
        lost += f"; it is shown to serve at least {numbers.count(min(served))} packets/s"
    shown = f" (shown in {kept.count(True)} of {count_of(n, 'trial')})" if True in kept else ""
    rule = "carries" if all(kept) else "absorbed" if False in kept else "no-loss"
    evidence = {
        **_facts(cell),
        "lossy_share_below": bound,
        "confidence": 0.95,
        "sustained": {"yes": kept.count(True), "no": kept.count(False)},
        "packets_median": packets,
        "duration_s_median": seconds,
        "backlog_packets": [book.backlog_packets for book in books],
        "drain_s": [t.record.drain_s for t in cell.known],
    }
    return sentence_of(
        rule, evidence, cell.known, subject, n=n, behind=kept.count(False),
        load=load_words(cell), lost=lost, burst=burst, shown=shown,
    )  # fmt: skip


def _lost(subject: str, cell: RunCell, *, lowest: bool) -> Sentence:
    loss, n, k = cell.loss, len(cell.known), len(cell.lossy)
    at = f"at {load_words(cell)}" + (", the lowest load measured" if lowest else "")
    words: dict[str, Any] = {
        "at": at, "k": k, "n": n, "where": places_words(cell), "causes": causes_words(cell),
    }  # fmt: skip
    evidence = {
        **_facts(cell),
        "places": places_of(cell),
        "causes": [
            {"rule": rule, "words": told[0][0], "runs": [t.name for _, t in told]}
            for rule, told in pointers(cell)
        ],
    }
    if loss is None or k == n:
        rule, middle = "loses", f": {percent_with_interval(loss)}" if loss else ""
        words["middle"] = f"{middle} in the median" if loss and n > 1 else middle
    else:
        among = share_interval(starts_of(cell.lossy), starts_of(cell.known))
        evidence |= {"lossy_share": [among.low, among.high], "confidence": among.coverage}
        rule = "loses-sometimes"
        words |= {"low": share(among.low), "high": share(among.high), "worst": loss.high}
        words["such"] = cell.independent_name
    return sentence_of(rule, evidence, cell.known, subject, knob_words(cell), **words)


def _failed(subject: str, cells: Sequence[RunCell]) -> Sentence:
    parts = []
    for cell in cells:
        lossy, known = len(cell.lossy), len(cell.known)
        rest = "the other one" if known == 1 else f"the other {known}"
        some = f"; of {rest}, {lossy} lost packets"
        alike = f"; {rest} lost {'packets' if lossy else 'nothing'}" if known else ""
        others = alike if lossy in (0, known) else some
        tried = len(cell.failed) + len(cell.valid)
        said = f"in {len(cell.failed)} of {count_of(tried, 'trial')} at {load_words(cell)}"
        parts.append(f"{said} ({why(cell.failed)}{others})")
    text = f"{subject} failed " + "; ".join(parts) + "."
    trials = tuple(t for cell in cells for t in cell.failed)
    return Sentence("failed", text, {"loads": [*map(_facts, cells)]}, trials, subject)


def _clash(subject: str, clash: Contradiction, cells: dict[str, RunCell]) -> Sentence:
    lower, higher = cells[clash.lower.name], cells[clash.higher.name]
    low, high, known = load_words(lower), load_words(higher), numbers.SMALL_RATE
    while low == high and known > LEAST_KNOWN:  # as many digits as tell them apart
        known /= 10
        low, high = (load_words(cell, known=known) for cell in (lower, higher))
    evidence = {
        "lower": _facts(lower),
        "higher": _facts(higher),
        "probability": clash.probability,
        "by_amount": clash.by_amount,
    }
    words: dict[str, Any] = {"low": low, "high": high, "clash": clash}
    if clash.by_amount:
        words |= {"least": min(clash.lower.losses), "most": max(clash.higher.losses)}
    seen = phrase("clash-of-losses" if clash.by_amount else "clash-of-trials", **words)
    trials = (*lower.known, *lower.failed, *higher.known, *higher.failed)
    rule = "loads-contradict" if clash.sure else "loads-out-of-order"
    return sentence_of(rule, evidence, trials, subject, seen=seen)


def _not_told(subject: str, loads: Sequence[RunCell]) -> Iterator[Sentence]:
    """Loads, or trials, that say nothing, and why."""

    def said(rule: str, load: str, trials: tuple[StoredTrial, ...]) -> Sentence:
        reasons = {escape.plain(code): n for code, n in counted(trials).items()}
        return sentence_of(
            rule, {**_facts(cell), "reasons": reasons}, trials, subject,
            load=load, said=len(trials), n=n, why=why(trials), times=times,
        )  # fmt: skip

    for cell in loads:
        n = len(cell.trials)
        times = {1: "once", 2: "twice"}.get(n, f"{n} times")
        if cell.void and len(cell.void) == n:
            yield said("load-void", load_words(cell, asked=True), cell.void)
        elif cell.void:
            yield said("some-void", load_words(cell), cell.void)
        if cell.unknown:
            yield said("loss-not-known", load_words(cell), cell.unknown)


def _facts(cell: RunCell) -> dict[str, Any]:
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


NEARLY_ALL = 0.8
FEWEST = 2
"""Void trials from which on there is a finding: one can be chance."""
MOST_LATE_US = 50_000.0
"""A later sender offers another load than was asked for; a bound is not what to change."""


@once
def always_void(story: Story) -> tuple[Sentence, ...]:
    given = (
        (c, subject(story, c), c.trials, f" at {load_words(c, asked=True)}")
        for c in given_cells(story)
    )
    searched = [(search.cells[0], search.subject, search.trials, "") for search in searches(story)]
    return tuple(s for one in (*given, *searched) for s in _always_void(story, *one))


def _always_void(
    story: Story, cell: RunCell, name: str, trials: Sequence[StoredTrial], at: str
) -> Iterator[Sentence]:
    void = tuple(t for t in trials if t.outcome == "void")
    code, n = next(iter(counted(void).most_common(1)), ("", 0))
    if n < FEWEST or n < NEARLY_ALL * len(trials):
        return
    same = tuple(t for t in void if code in t.invalid_reasons)
    every = "both" if n == 2 else f"all {n}"
    how_many = every if n == len(trials) else f"{n} of {len(trials)}"
    # The reason, and one trial's own words for it.
    words = reason_words(code)
    said = same[len(same) // 2].record.why.split("; ")[0]
    own = escape.plain(said, longest=200).rstrip(".")
    words += f" ({own})" if own and own != code else ""
    evidence = {"reason": escape.plain(code), "void": n, "trials": len(trials)}
    yield sentence_of(
        "always-void", evidence, same, name, to_do=_change(story, cell, code, same),
        how_many=how_many, at=at, words=words,
    )  # fmt: skip


Change = tuple[str, str]
"""A change in words and its setting, which is empty for a change without one."""


def _change(story: Story, cell: RunCell, code: str, trials: Sequence[StoredTrial]) -> str:
    """The first as a command to paste, the others as settings of the same."""
    changes = CHANGES.get(code)
    if changes is None:
        asks = f"what `nodrop doctor` names on this host (the trial's words: {trials[0].name})"
        return str(WORDS["remedies"].get(code, asks))
    found = changes(story, cell, trials)
    first, said = next((setting for _, setting in found if setting), ""), []
    for words, setting in found:
        alone = f"`{shlex.join(['--set', setting])}`"
        pasted = story.sources[cell.source].command_words(setting) if setting == first else alone
        said.append(f"{words}: {pasted}" if setting else words)
    return "; or ".join(said)


def _less_load(story: Story, cell: RunCell) -> str:
    """Half of what was asked for, as a setting; the other loads of a matrix stay. A search ends at
    half of its lowest void load."""
    if cell.searched:
        cells = (one for one in story.cells if one.searched and one.source == cell.source)
        void = (t.record.searched for one in cells for t in one.void)
        return f"search.max={min(one.value for one in void if one) / 2:g}"
    loads = tables_in(story.sources[cell.source].run.manifest, "loads") or [{}]
    for key in ("load.pps", "load.multiplier", "load.speed"):
        value = cell.factors.get(key, table_in(loads[0], "options").get(key[5:]))
        if isinstance(value, int | float) and value > 1:
            half = math.ceil(value / 2) if isinstance(value, int) else value / 2
            others = {c.factors.get(key) for c in story.cells if c.source == cell.source}
            kept = sorted({half, *(v for v in others - {value} if isinstance(v, int | float))})
            several = f'matrix."{key}"=[{", ".join(f"{v:g}" for v in kept)}]'
            return several if len(kept) > 1 else f"{key}={half:g}"
    return "load.speed=0.5"


def _late(story: Story, cell: RunCell, trials: Sequence[StoredTrial]) -> list[Change]:
    found = [("less load", _less_load(story, cell))]
    errors = [e.p99 for t in trials if (e := t.record.offered.schedule_error_us) and e.p99]
    worst = max(errors, default=None)
    if worst is not None and worst <= MOST_LATE_US:
        bound = math.ceil(worst * 1.2 / 1000) * 1000
        words = f"a sender that may be {bound / 1000:g} ms late"
        found.append((words, f"measure.late_p99_us={bound}"))
    if not any(t.record.generator_cpus for t in trials):
        found.append(("a CPU for the sender alone", "load.cpu=0"))
    return found


def _burst(story: Story, cell: RunCell, trials: Sequence[StoredTrial]) -> list[Change]:
    found = [("less load", _less_load(story, cell))]
    bursts = [b.sent or 0 for t in trials if (b := t.record.offered.largest_late_burst)]
    if (largest := max(bursts, default=0)) and "sut.ring_size" not in story.factors:
        room = 2 ** math.ceil(math.log2(largest * 4 + 1))
        found.insert(0, ("a ring that a late sender does not fill", f"sut.ring_size={room}"))
    lax = "all losses taken for the SUT's, whatever the sender did"
    return [*found, (lax, "measure.late_burst_max_ratio=1")]


def _stolen(_story: Story, _cell: RunCell, trials: Sequence[StoredTrial]) -> list[Change]:
    worst = max((t.record.steal_ratio or 0.0 for t in trials), default=0.0)
    bound = min(1.0, math.ceil(worst * 20 + 1) / 20)
    return [
        ("a host whose CPUs no other guest takes", ""),
        ("a higher bound", f"measure.steal_max_ratio={bound:g}"),
    ]


CHANGES: Mapping[str, Callable[[Story, RunCell, Sequence[StoredTrial]], list[Change]]] = {
    Reason.SENDER_LATE: _late,
    Reason.SENDER_BURST: _burst,
    Reason.SENDER_SHORT: lambda story, cell, _: [("less load", _less_load(story, cell))],
    Reason.CPU_STOLEN: _stolen,
}
