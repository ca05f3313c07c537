"""The page of one search: its card, the knee, the trials that decide, every trial, and trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from markupsafe import Markup

from nodrop.answer.finding import WORDS as TABLES
from nodrop.capacity.answer_cards import cards, given_cards, ordered
from nodrop.capacity.dots import workers_of
from nodrop.capacity.findings import ramp_findings
from nodrop.capacity.load_words import UNITS
from nodrop.capacity.pictures import by_outcome, zones
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.section import efficiencies
from nodrop.capacity.tried import judged_ratio
from nodrop.capacity.words import shown_fit
from nodrop.config.units import parse_cpus
from nodrop.ledger.imbalance import SutThread
from nodrop.report import escape, numbers
from nodrop.report.bounded import MOST_ROWS, more_words, told
from nodrop.report.chart import OUTCOMES, Chart, Mark, Pane, Plot, Scale, cut, outcome_key, sign
from nodrop.report.charts import flow, time_chart
from nodrop.report.loads import Ladder, ladders
from nodrop.report.story import Story
from nodrop.report.timeline import timeline
from nodrop.report.trials import StoredTrial
from nodrop.results.capacity import Card, Sure
from nodrop.stats.loss_curve import LossCurve, NoCurve

ROW = 24
MOST_ROUNDS = 8
MOST_SIGNS = 24
WORD_OF = {"loss": "lost", "absorbed": "no loss"}
"""Words of outcomes in the table, if not the usual ones."""
WORDS: Mapping[str, tuple[str, str]] = TABLES["glossary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    trial: StoredTrial
    number: int
    mark: str
    word: str
    load: str
    bar: float
    """Length of the loss bar, 0 to 64 px."""
    worker: SutThread | None
    decides: str
    """`carried` or `lost` if the answer rests on it."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    """An answer card as a page shows it."""

    card: Card
    sure: Chart
    facts: tuple[tuple[str, str, str], ...]
    broke: str
    """Anchor of the trial that shows what breaks; empty if the page has no block of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPage:
    bounds: tuple[tuple[str, str, str, str], ...]
    """Lost at most, carried, too much, apart: one row per goal."""
    answers: tuple[Answer, ...]
    sides: tuple[tuple[Markup, str, Chart], ...]
    """Heading, words and flow of each trial that decides."""
    over_time: Chart
    rows: tuple[TrialRow, ...]
    more: str
    lede: str
    """Words above the table of trials: their order, and the place of loss if all lossy trials share
    it."""


def capacity_page(story: Story) -> CapacityPage | None:
    """None unless the report is of one search of one cell alone."""
    cells = searches(story)
    if story.several or len(cells) != 1 or any(not cell.searched for cell in story.cells):
        return None
    (searched,), (card,) = cells, cards(story)
    sides = _deciding(searched, card)
    most = max((t.record.offered.sent or 0 for t, _, _ in sides), default=0)
    rows = tuple(_rows(searched, card))
    return CapacityPage(
        bounds=tuple(_bounds(searched)),
        answers=searched.answers,
        sides=tuple(_side(trial, mark, words, most) for trial, mark, words in sides),
        over_time=_over_time(story, sides),
        rows=rows[:MOST_ROWS],
        more=more_words(len(rows) - MOST_ROWS, "trials.csv"),
        lede=_lede(rows),
    )


def card_views(story: Story) -> Iterator[CardView]:
    """The card of each search, and of each group of given loads."""
    for searched, card in zip(searches(story), cards(story), strict=True):
        yield CardView(
            card=card,
            sure=_sure(searched, card),
            facts=tuple(_facts(searched, card)),
            broke=_broke(story, card, searched.trials),
        )
    for ladder, card in zip(ladders(story), given_cards(story), strict=True):
        yield CardView(
            card=card,
            sure=_given_sure(ladder, card),
            facts=(
                ("Loads", f"{len(ladder.told)} of {len(ladder.loads)}", "say something"),
                *_counted(card.sure),
                ("Valid for", "these loads", "on this host, in this setup"),
            ),
            broke=_broke(story, card, [trial for cell in ladder.cells for trial in cell.trials]),
        )


def _broke(story: Story, card: Card, trials: Sequence[StoredTrial]) -> str:
    found = (t.anchor for t in trials if t.name == card.breaks.run and t.anchor in told(story))
    return next(found, "")


def _deciding(searched: SearchedCell, card: Card) -> list[tuple[StoredTrial, str, str]]:
    """The trial that was carried and the one that was too much, as far as there are such."""
    trials = {t.name: t for t in searched.trials}
    carried = [trials[r] for r in (card.carried.runs if card.carried else ()) if r in trials]
    good = [t for t in carried if t.valid and (searched.by_detections or not t.lost_packets)]
    found, run = [(t, "good", "Carried") for t in (good or carried)[:1]], card.breaks.run
    if run in trials and card.too_much is not None:
        found.append((trials[run], trials[run].mark, "Too much"))
    return found


def _side(trial: StoredTrial, mark: str, words: str, most: int) -> tuple[Markup, str, Chart]:
    sent = numbers.count_of(trial.record.offered.sent, "packet")
    drawn = flow(trial.ledger, f"Packets of {trial.name}", most) if trial.ledger else Chart()
    head = sign(*OUTCOMES[mark][:2]) + f" {words}"
    return head, f"{sent} at {_load(trial)} · {trial.name}", drawn


def _load(trial: StoredTrial) -> str:
    asked = trial.record.searched
    if asked is None:
        return ""
    unit = {"multiplier": "\u202f×", "speed": "\u202f× speed"}.get(asked.by, UNITS[asked.by])
    grows = "to " if asked.ramp is not None else ""
    return grows + f"{asked.value:,.4g}" + unit


def _over_time(story: Story, sides: Sequence[tuple[StoredTrial, str, str]]) -> Chart:
    found = [
        (line, sign(*OUTCOMES[mark][:2]) + f" {words}: {_load(trial)}")
        for trial, mark, words in sides
        if (line := timeline(story.sources[trial.source], trial))
    ]
    heads = [head for _, head in found]
    return time_chart([line for line, _ in found], "Over time, the trials that decide", heads)


def _sure(searched: SearchedCell, card: Card) -> Chart:
    """Rounds as spans from carried to too much, and the fitted load with its interval."""
    answer = searched.answers[0]
    rounds = answer.rounds[:MOST_ROUNDS]
    ends = [b.pps for r in rounds for b in (r.lower, r.upper) if b is not None and b.pps]
    if not ends:
        return Chart()
    low = card.carried.pps if card.carried else None
    high = card.too_much.pps if card.too_much else None
    x = Scale.near([*ends, *(e for e in (low, high) if e is not None)], 4, 0.16)
    curve = _curve(searched)
    n = len(rounds) + (curve is not None)
    plot = Plot("How sure: the bounds of each round, packets/s", x, Scale.rows(n), ROW * n, "named")
    zones(plot, low, high)
    plot.axes("", numbers.short if x.high >= 1e6 else numbers.count, None, grid="")
    for row, one in enumerate(rounds):
        plot.words(x.low, row, name := f"round {one.number}", "row", dx=-8)
        lower = one.lower.pps if one.lower else None
        upper = one.upper.pps if one.upper else None
        if lower is not None and upper is not None:
            plot.span(lower, upper, row, "gap")
        for pps, did, shape, style in (
            (lower, "carried", "dot", "carried"), (upper, "did not carry", "down", "lost"),
        ):  # fmt: skip
            if pps is not None:
                says = f"{name} {did} {numbers.count(pps)} packets/s"
                plot.marks([Mark(pps, row, says)], shape, style)
    if curve is not None:
        row = len(rounds)
        plot.words(x.low, row, "fitted", "row", dx=-8)
        plot.span(max(curve.low_pps, x.low), min(curve.high_pps, x.high), row, "fit", caps=True)
        spread = numbers.between(curve.low_pps, curve.high_pps, numbers.count)
        says = f"The median trial takes {numbers.count(curve.capacity_pps)} {spread} packets/s"
        plot.marks([Mark(curve.capacity_pps, row, says)], "box", "fit")
    return Chart(plot.says, (Pane((plot,)),), (), "sure")


def _given_sure(ladder: Ladder, card: Card) -> Chart:
    """The trials of each load beside the answer, a row per load, the least first."""
    at = ladder.loads.index(ladder.bad or ladder.loads[-1])
    first = max(0, at - MOST_ROUNDS + 3)
    loads = ladder.loads[first : at + 3]
    most = min(max(len(cell.trials) for cell in loads), MOST_SIGNS)
    plot = Plot("How sure: the trials of each load", Scale(0.5, most + 0.5),
                Scale.rows(len(loads)), ROW * len(loads), "bare")  # fmt: skip
    agree = ladder.clash is None or not ladder.clash.sure
    found = [(row, n, trial) for row, cell in enumerate(loads)
             for n, trial in enumerate(cell.trials[:MOST_SIGNS], 1)]  # fmt: skip
    for row, cell in enumerate(loads):
        pps = cell.offered_pps or cell.asked_pps
        name = cell.load_label if pps is None else _short(pps)
        plot.words(plot.x.low, row, cut(name, 52), "row", dx=-8)
        if agree and cell is ladder.top and not card.only_seen:
            plot.ground(0, row, "z-carried")
        if agree and cell is ladder.bad:
            plot.ground(row, len(loads) - 1, "z-lost")
    marks = [
        (trial.mark, Mark(n, row, f"{loads[row].label}, {trial.name}: {trial.record.verdict}",
                          trial.anchor))
        for row, n, trial in found
    ]  # fmt: skip
    by_outcome(plot, marks)
    return Chart(plot.says, (Pane((plot,)),), outcome_key(mark for mark, _ in marks), "sure")


def _short(pps: float) -> str:
    return numbers.short(pps) if pps >= 1e5 else numbers.rate(pps)


def _curve(searched: SearchedCell) -> LossCurve | None:
    return None if isinstance(found := shown_fit(searched), NoCurve) else found


def _facts(searched: SearchedCell, card: Card) -> Iterator[tuple[str, str, str]]:
    sure = card.sure
    yield "Rounds", f"{sure.rounds - sure.cut} of {sure.rounds_asked}", "complete"
    yield from _counted(sure)
    if (curve := _curve(searched)) is not None:
        spread = numbers.between(curve.low_pps, curve.high_pps, numbers.count)
        yield "Median trial takes", f"{numbers.count(curve.capacity_pps)}/s", spread
    for _, work in efficiencies([searched]):
        if work.core_is_full:
            value = f"{numbers.count(work.packets.median)}/s"
            yield "A busy core carries", value, numbers.count_of(work.packets.n, "start")
        else:
            yield "A packet costs", f"{numbers.micros(work.packet_us.median)} µs", "CPU time"
    for soak in searched.soaks:
        words = "held" if soak.valid and not soak.lost_packets else soak.mark
        yield "Soak", words, f"{numbers.seconds(soak.record.offered.duration_s)} s"
    part = "this trace" if searched.window is None else searched.window.name
    yield "Valid for", part.removesuffix(" of the trace"), "on this host, in this setup"


def _counted(sure: Sure) -> Iterator[tuple[str, str, str]]:
    lost = [f"{n} {word}" for n, word in ((sure.void, "void"), (sure.failed, "failed")) if n]
    yield "Trials", f"{sure.trials}", ", ".join([f"{sure.measured} measured", *lost])
    yield "Books closed", f"{sure.books_closed} of {sure.trials}", "residual 0"


def _bounds(searched: SearchedCell) -> Iterator[tuple[str, str, str, str]]:
    """A row for all goals that share their bounds."""
    goals: dict[tuple[str, str, str], list[str]] = {}
    for answer in searched.answers:
        low, high = (
            numbers.NOT_MEASURED if end is None else numbers.rate(end.pps)
            for end in (answer.lower, answer.upper)
        )
        goal = "none" if answer.goal == 0 else f"{numbers.percent(answer.goal)} %"
        goals.setdefault((low, high, numbers.percent(answer.reached_width)), []).append(goal)
    yield from ((", ".join(said), *ends) for ends, said in goals.items())


def _rows(searched: SearchedCell, card: Card) -> Iterator[TrialRow]:
    top = max((t.loss_ratio or 0.0 for t in searched.trials if t.valid), default=0.0)
    for trial in ordered(searched):
        record, asked = trial.record, trial.record.searched
        ramp = asked is not None and asked.ramp is not None
        mark = "void" if trial.outcome == "void" else trial.mark
        loss = trial.loss_ratio if trial.valid else None
        met = (judged_ratio(record) or 0.0) <= card.goal if searched.by_detections else (
            not trial.lost_packets
        )  # fmt: skip
        carries = card.carried is not None and trial.name in card.carried.runs and met
        breaks = card.too_much is not None and trial.name in card.too_much.runs
        decides = "carried" if carries else "lost" if breaks else ""
        yield TrialRow(
            trial=trial,
            number=record.index,
            mark=mark,
            word="ramp" if ramp else WORD_OF.get(mark, OUTCOMES[mark][2]),
            load=_load(trial),
            bar=max(min(loss / (top or loss), 1.0) * 64, 1.2) if loss else 0.0,
            worker=next(iter(workers_of(record)), None),
            decides=decides,
            says=_says(trial, card, decides),
        )


def _says(trial: StoredTrial, card: Card, decides: str) -> str:
    """Words of exception, at most 8."""
    record = trial.record
    if record.searched is not None and record.searched.ramp is not None:
        first = next(ramp_findings(record.searched.by, record.searched.ramp))
        return escape.plain(first.text, longest=70)
    if record.searched is not None and record.searched.soak is not None:
        return "soak: decides nothing"
    if trial.outcome != "measured":
        return escape.plain(shorten(record.why, 60, placeholder=" …"))
    if decides:
        return {"carried": "the answer: carried", "lost": "the answer: too much"}[decides]
    if trial.name not in card.sure.disagree or record.searched is None:
        return ""
    above = card.too_much is not None and record.searched.value >= (card.too_much.value or 0.0)
    return f"disagrees: {'too much for others' if above else 'others carried it'}"


def _lede(rows: Sequence[TrialRow]) -> str:
    """Said once if it holds for all lossy trials."""
    lossy = [r.trial for r in rows if r.mark == "loss" and r.word != "ramp"]
    places = {t.record.packets.loss_place for t in lossy}
    said = "In the order measured."
    if len(lossy) > 1 and len(places) == 1 and (place := places.pop()):
        said += f" Every lossy trial lost in the {escape.plain(place, longest=40)}."
    return said


def _ran(story: Story) -> Iterator[tuple[str, str]]:
    """CPUs and effective settings that all measured trials of the page had."""
    records = [trial.record for cell in story.cells for trial in cell.valid]
    cpus = {record.sut_cpus for record in records}
    if len(cpus) == 1 and (only := cpus.pop()):
        yield ("CPU" if len(parse_cpus(only)) == 1 else "CPUs"), only
    for name in ("threads", "ring_size"):
        values = {record.effective.get(name) for record in records}
        if len(values) == 1 and (value := values.pop()) is not None:
            yield name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)


def who(story: Story) -> list[tuple[str, str]]:
    """Entries of the rail: run, host, SUT and how it ran, and when it was measured."""
    source, names = story.sources[0], [source.name for source in story.sources]
    manifest: Mapping[str, Any] = source.run.manifest
    host, bits = manifest.get("host"), manifest.get("bits")
    named = host.get("hostname") if isinstance(host, dict) else None
    sut = ", ".join(source.run.sut_names)
    if len(source.run.sut_names) == 1 and isinstance(bits, list) and len(bits) == 1:
        version = bits[0].get("version") if isinstance(bits[0], dict) else None
        sut = f"{sut} {version}" if version else sut
    run = "runs" if story.several else "run"
    started = manifest.get("started_utc")
    utc = started[:16].replace("T", " ") if isinstance(started, str) else ""
    found = [(run, ", ".join(names)), ("host", named), ("sut", sut), *_ran(story),
             ("measured, UTC", utc)]  # fmt: skip
    return [(key, escape.plain(value, longest=80)) for key, value in found if value]
