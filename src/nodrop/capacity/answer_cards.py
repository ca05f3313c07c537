"""Answer cards: of a searched cell, made of what its search found, and of loads that were given."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from nodrop.answer.finding import WORDS, Finding, render, worded
from nodrop.capacity.card import breaks_words
from nodrop.capacity.dots import workers_of
from nodrop.capacity.findings import ends_of, needed_words, rate_words, writing
from nodrop.capacity.limited_by import loss_by
from nodrop.capacity.load_words import ends_words, written
from nodrop.capacity.predictions import Predicted, Predictions, beside_measured, predictions
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.tried import SENDER_REASONS, by_detections, judged_ratio, tried
from nodrop.capacity.words import bounds_words, causes_words, disagreeing, from_another_host
from nodrop.config.asked import SEARCHING, search_command
from nodrop.config.units import noun, parse_cpus
from nodrop.ledger.imbalance import SutThread
from nodrop.ledger.level import ROOMY_SLOTS
from nodrop.ledger.sent_flows import kind_of
from nodrop.report import escape
from nodrop.report.loads import Ladder, always_void, ladders, places_of, share
from nodrop.report.sentences import hop_title
from nodrop.report.story import RunCell, Story, StorySource, once, starts_of
from nodrop.report.trials import StoredTrial
from nodrop.results.capacity import (
    Action,
    Breaks,
    Card,
    CardLoad,
    CardThread,
    Confidence,
    LimitedBy,
    Sure,
)
from nodrop.results.proved import states
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import runs_needed, upper_bound
from nodrop.untrusted.json_text import table_in, tables_in, value_in

MOST_ACTIONS = 3
WAITED, FULL = 0.1, 0.9
"""Parts of the time from which a worker is said to have waited, and to have been busy."""
UNSTEADY = 1.08
"""Fastest trial's CPU over the slowest one's."""
IDLE = 0.2
"""Part of the time below which a worker is said to be idle."""
MOST_PATH = 6
SEARCH_S = 240.0
"""Budget of a search that is offered, as `nodrop capacity` has it."""
OUTCOMES = ("measured", "void", "failed")
KNOWN = 0.001
"""Relative: a load that was given is written in steps of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """The limit, by the trials above it."""

    by: LimitedBy
    above: Sequence[StoredTrial]
    place: str | None
    knob: str
    sut: str
    carried: bool = False
    """A load below the limit is carried."""
    crowded: bool = False
    """Other programs had the CPUs in most trials."""
    behind: bool = False
    """No trial above it lost packets: the SUT fell behind."""
    why: str | None = None
    """Words in the place of the usual reason."""
    predicted: Predictions = field(default_factory=Predictions)
    lost: Sequence[StoredTrial] = ()
    """Measured trials that lost packets, of a search that its budget ended."""


@once
def cards(story: Story) -> tuple[Card, ...]:
    """Cards of the searched cells, each for its first goal."""
    return tuple(_card(story, search) for search in searches(story))


def _card(story: Story, searched: SearchedCell) -> Card:
    answer, source = searched.answers[0], story.sources[searched.source]
    lower, upper = answer.lower, answer.upper
    too_much = None if upper is None else upper.value
    loads = ((t, asked.value) for t in searched.trials if (asked := t.record.searched))
    above = [trial for trial, value in loads if value == too_much]
    judged = {t: judged_ratio(t.record) for t in above if t.valid}
    known = {t: ratio for t, ratio in judged.items() if ratio is not None}
    lossy = {t: ratio for t, ratio in known.items() if ratio > answer.goal}
    which = "higher" if lower is not None else "lower" if upper is not None else "any"
    cut = answer.limited_by == "budget"
    silent = all(t.outcome == "void" for t in searched.trials)
    why = worded(f"undecided.{which}") if cut else worded("undecided.void") if silent else None
    lost = [t for t in searched.trials if cut and t.valid and t.lost_packets]
    limit = _Limit(
        by=answer.limited_by,
        lost=lost,
        above=[*lossy] or above,
        place=answer.place,
        knob=answer.knob or next((k for t in lost if (k := t.record.packets.knob)), ""),
        sut=escape.plain(searched.subject if not searched.label else "the SUT", longest=24),
        carried=lower is not None,
        predicted=predictions(searched, answer),
        crowded=_crowded(searched.trials),
        behind=bool(known) and not lossy,
        why=why,
    )
    again = _took_s((*searched.ramps, *searched.trials))
    ends = ends_of(answer)
    return _made(
        story, source, limit, again, _search_more(searched, source, again), ends, [*lossy.values()],
        subject=searched.subject, by=answer.by, goal=answer.goal, goals_of=answer.goals_of,
        headline=render(answer.findings[0], "title"), lossy=len(lossy), lossy_of=len(known),
        tolerated=_tolerated(searched.answers),
        needed="" if answer.needed is None else needed_words(answer.needed, answer.by),
        predicted=beside_measured(value_in(source.run.manifest, "search", "predicted"), answer),
        window="" if searched.window is None else searched.window.name,
        peak_pps=None if searched.window is None else searched.window.peak_pps,
        sure=_sure(searched, answer, source, ends),
    )  # fmt: skip


Ends = tuple[CardLoad | None, CardLoad | None]
"""The load that is carried, and the one that is too much."""


def _made(
    story: Story, source: StorySource, limit: _Limit, again: float | None, more: Iterable[Action],
    ends: Ends, losses: Sequence[float], **own: Any,
) -> Card:  # fmt: skip
    """`losses`: of the trials above the limit; `more`: actions beside those against it."""
    return Card(
        carried=ends[0], too_much=ends[1], lost=(min(losses), max(losses)) if losses else None,
        breaks=_breaks(limit), actions=_allowed(story, source, limit, again, more), **own,
    )  # fmt: skip


@once
def given_cards(story: Story) -> tuple[Card, ...]:
    """Cards of given loads: one for all cells that differ in nothing but the load that the
    experiment gives them."""
    return tuple(_given(story, ladder) for ladder in ladders(story))


def _given(story: Story, ladder: Ladder) -> Card:
    cells, bad = ladder.cells, ladder.bad
    contradicted = ladder.clash is not None and ladder.clash.sure
    top = None if contradicted else ladder.top
    kept = all(t.record.packets.sustained for t in top.known) if top else True
    source, trials = story.sources[cells[0].source], [t for cell in cells for t in cell.trials]
    losses = [t.loss_ratio for t in bad.lossy if t.loss_ratio is not None] if bad else []
    ends = _given_loads(top, bad)
    limit = _given_limit("the SUT" if cells[0].group else ladder.subject, ladder)
    again = _took_s(trials)
    code = "carried" if kept else "seen"
    code = "contradicted" if contradicted else code if ends[0] is not None else "none"
    said = Finding(code=f"given.{code}", values={"rate": ends[0] and rate_words(ends[0])})
    more = _given_more(source, ladder, again, only_seen=not kept)
    return _made(
        story, source, limit, again, more, ends, losses, subject=ladder.subject,
        by="given", goal=0.0, headline=render(said, "title"), only_seen=not kept, tolerated="",
        window="",
        lossy=len(bad.lossy) if bad else 0, lossy_of=len(bad.known) if bad else 0,
        sure=_given_sure(trials, top, ends, kept=kept),
    )  # fmt: skip


def _given_loads(top: RunCell | None, bad: RunCell | None) -> Ends:
    ends = [None if cell is None else cell.offered_pps for cell in (top, bad)]
    low, high = ends
    shown = ["" if pps is None else written(pps, KNOWN) for pps in ends]
    if low is not None and high is not None and low < high and shown[0] == shown[1]:
        shown = [*ends_words(low, high, KNOWN)]

    def load(cell: RunCell | None, said: str) -> CardLoad | None:
        if cell is None:
            return None
        bits, label = cell.summary("offered_bps"), cell.load_label
        return CardLoad(
            pps=cell.offered_pps,
            bps=bits.median if bits else None,
            value=None,
            runs=[t.name for t in cell.trials],
            shown_pps=said,
            shown_mbit=written(bits.median / 1e6, KNOWN) if bits else "",
            shown_value="" if said and label.endswith(" pps") else label,
        )

    return load(top, shown[0]), load(bad, shown[1])


def _given_limit(sut: str, ladder: Ladder) -> _Limit:
    told, bad = ladder.told, ladder.bad
    lossy = bad.lossy if bad else ()
    void_above = not told or ladder.loads[-1] is not told[-1]
    known = [] if bad or void_above else [t.record.packets.sustained for t in told[-1].known]
    behind = not (bad or void_above) and all(sustained is False for sustained in known)
    causes = Counter(loss_by(t.record) for t in lossy).most_common(1)
    ends: tuple[tuple[LimitedBy, bool], ...] = (
        (causes[0][0] if causes else "sut_failed", bad is not None),
        ("nothing_measured", not told),
        ("void_above", void_above),
        ("sut", behind),
        ("max", True),
    )
    by = next(name for name, holds in ends if holds)
    return _Limit(
        by=by, above=lossy or (bad.failed if bad else ()),
        place=next(iter(places_of(bad)), None) if bad else None,
        knob=next((knob for t in lossy if (knob := t.record.packets.knob)), ""),
        sut=escape.plain(sut, longest=24), behind=behind,
        why=worded("undecided.given") if by == "max" else None,
        crowded=_crowded([t for cell in told for t in cell.trials]),
    )  # fmt: skip


def _given_sure(
    trials: Sequence[StoredTrial], top: RunCell | None, ends: Ends, *, kept: bool
) -> Sure:
    counted, words, sure = _counted(trials), [], None
    busy = [t.record.host_was_busy for t in (top.trials if top else trials)]
    at = f" at {rate}" if ends[0] and (rate := rate_words(ends[0])) else ""
    if top is not None:
        bound = upper_bound(starts_of(top.unknown), starts_of((*top.known, *top.unknown)))
        words.append(worded("trials.lossless", trials=len(top.known), at=at))
        words += [] if kept else [worded("trials.unsustained")]
        queues = [t.record.packets.queue for t in top.known]
        words += _margin(max((q.highest_ratio for q in queues if q), default=None))
        values = {"share": share(bound), "starts": top.independent_name}
        sure = Confidence(
            level="low" if bound > 0.5 or not kept else "fair" if bound > 0.1 else "high",
            reason=Finding(code="sure.given", values=values), known_ratio=KNOWN,
        )  # fmt: skip
    if 2 * sum(busy) > len(busy):
        disturbed = {"busy": sum(busy), "trials": len(busy), "at": at}
        why = Finding(code="sure.given_disturbed", values=disturbed)
        sure = Confidence(level="low", reason=why, known_ratio=KNOWN)
    said = ", ".join(f"{n} {word}" for word in OUTCOMES if (n := counted[word]))
    alike = counted["measured"] == len(trials)
    words.append(worded("trials.counted", trials=len(trials), rest="" if alike else f": {said}"))
    low, high = (None if end is None else end.pps for end in ends)
    width = max(0.0, (high - low) / high) if high and low is not None else None
    return Sure(confidence=sure, width=width, rounds=0, rounds_asked=0, cut=0, disagree=[],
                words=words, **counted)  # fmt: skip


def _given_more(
    source: StorySource, ladder: Ladder, again: float | None, *, only_seen: bool
) -> Iterator[Action]:
    """Ways to see more by more trials."""
    if only_seen:
        yield _action("longer")
    if (top := ladder.nothing_above) is not None and (search := _search_from(source, top)):
        yield _action("search", search, SEARCH_S)
    needed, fewest = runs_needed(), min(len(cell.trials) for cell in ladder.cells)
    if fewest < needed and source.command:
        longer = again * needed / fewest if again else None
        repeated = source.command_with(f"measure.repetitions={needed}")
        yield _action("repeat", repeated, longer, n=needed)


def _search_from(source: StorySource, top: RunCell) -> str:
    """The command that searches in a given load's own cell; empty if none does."""
    try:
        asked = tomllib.loads(source.run.experiment)
    except tomllib.TOMLDecodeError:
        return ""
    budget = f"search.budget_s={SEARCH_S:.0f}"
    found = search_command(asked, top.factors, source.command, budget)
    return shlex.join(escape.plain(word, longest=200) for word in found)


def _took_s(trials: Sequence[StoredTrial]) -> float | None:
    return sum(t.record.took_s or 0.0 for t in trials) or None


def _tolerated(answers: Sequence[Answer]) -> str:
    """Goals with the same bounds share one line."""

    def ends(answer: Answer) -> list[float | None]:
        return [None if end is None else end.value for end in (answer.lower, answer.upper)]

    first, *others = answers
    said = []
    for one, lower in ((one, one.lower) for one in others if one.lower is not None):
        what = "missed detections" if one.goals_of == "detections" else "loss"
        values: dict[str, Any] = {"goal": one.goal, "what": what}
        if ends(one) == ends(first) and first.upper is not None:
            said.append(worded("tolerated.same", **values))
        elif ends(one)[0] == ends(first)[0]:
            said.append(worded("tolerated.unshown", **values))
        elif lower.pps is not None:
            # As many digits as the stricter goal has: with fewer it could look like less.
            known = min(writing(goal_of).known for goal_of in (first, one))
            if first.upper is not None and lower.value == first.upper.value:
                known = KNOWN  # it stands above, rounded up
            pps = written(lower.pps, known, up=False)
            said.append(worded("tolerated.more", pps=pps, **values))
    return " ".join(said)


def _breaks(limit: _Limit) -> Breaks:
    worst = sorted(limit.above, key=lambda t: judged_ratio(t.record) or 0.0)
    trial = worst[len(worst) // 2] if worst else None
    record = trial.record if trial else None
    workers = workers_of(record) if record else []
    place = escape.plain(limit.place, longest=40) if limit.place else None
    whole = record is not None and by_detections(record) and record.packets.lost_packets == 0
    verdict, why = breaks_words(limit.by, place, limit.sut, missed_alone=whole, behind=limit.behind)
    said = [why if limit.why is None else limit.why]
    said += [causes_words(limit.by, record)] if record else []
    said += _moment_words(record)
    said += _workers_words(workers, _cpus(record))
    # Stages that counted, by the names that losses have.
    hops = trial.ledger.hops if trial and trial.ledger else ()
    stages = [hop_title(hop.name) for hop in hops if hop.packets is not None]
    threads = [
        CardThread(name=w.name, ran=w.cpu_ratio, waited=w.wait_ratio, dropped=w.dropped_packets)
        for w in workers[:4]
    ]
    return Breaks(
        verdict=verdict, limited_by=limit.by, place=place, threads=threads,
        path=stages[max(1, len(stages) - MOST_PATH + 1) :], why=[*filter(None, said)],
        lost=record.packets.lost_packets if record else None,
        sent=record.offered.sent if record else None, run=trial.name if trial else None,
    )  # fmt: skip


def _moment_words(record: TrialRecord | None) -> Iterator[str]:
    """The moment at which packets cost so much, and whose they were."""
    causes = record.packets.loss_causes if record else ()
    seen = next(
        (c.evidence for c in causes if c.rule == "costly" and "moment_flows" in c.evidence), None
    )
    if seen is not None:
        yield worded(
            "moment_of_one" if seen["moment_flows"] == 1 else "moment",
            begin=seen["moment_begin_s"],
            end=seen["moment_end_s"],
            times=seen["moment_us_per_packet"] / max(1e-9, seen["usual_us_per_packet"]),
            flows=int(seen["moment_flows"]),
            packets=int(seen["moment_flow_packets"]),
            kind=kind_of(int(seen["moment_protocol"]), int(seen["moment_port"])),
        )


def _workers_words(workers: Sequence[SutThread], cpus: Sequence[int]) -> Iterator[str]:
    """How the worker that lost most spent its time, and who shared its CPUs."""
    one = workers[0] if workers else None
    if one and (one.dropped_packets or len(workers) == 1):
        waited, ran = one.wait_ratio or 0.0, one.cpu_ratio or 0.0
        if waited >= WAITED:
            yield worded("worker.waited", name=one.name, waited=waited)
        elif ran >= FULL:
            yield worded("worker.full", name=one.name, ran=ran)
    if cpus and len(workers) > len(cpus):
        where = f"CPU {cpus[0]}" if len(cpus) == 1 else f"{len(cpus)} CPUs"
        yield worded("worker.share", workers=len(workers), where=where)


def _cpus(record: TrialRecord | None) -> list[int]:
    return sorted(parse_cpus(record.sut_cpus)) if record and record.sut_cpus else []


def _sure(searched: SearchedCell, answer: Answer, source: StorySource, ends: Ends) -> Sure:
    found, odd = answer.confidence, [*disagreeing(searched, answer)]
    asked = table_in(source.run.manifest, "search").get("rounds")
    rounds = asked if isinstance(asked, int) else len(answer.rounds)
    found_odd = [(t.record.index, good) for t, good in odd]
    return Sure(
        confidence=found,
        width=answer.reached_width,
        rounds=len(answer.rounds),
        rounds_asked=rounds,
        cut=answer.cut_rounds,
        **_counted((*searched.ramps, *searched.trials)),
        disagree=[t.name for t, _ in odd],
        words=[*_sure_words(searched, answer, found_odd, rounds, ends)],
    )  # fmt: skip


def _counted(trials: Sequence[StoredTrial]) -> dict[str, Any]:
    outcomes = Counter(trial.outcome for trial in trials)
    counted = {outcome: outcomes[outcome] for outcome in OUTCOMES}
    closed = sum(bool(t.record.packets.books_closed) for t in trials)
    return {"trials": len(trials), **counted, "books_closed": closed}


def _sure_words(
    searched: SearchedCell, answer: Answer, odd: Sequence[tuple[int, bool]], rounds: int,
    ends: Ends,
) -> Iterator[str]:  # fmt: skip
    """`rounds`: asked for; `odd`: trials that disagree, and whether each carried its load."""
    yield from _speeds(searched)
    if answer.lower is not None:
        runs, goal = {*answer.lower.runs}, answer.goal
        met = [tried(t.record).good(goal) for t in searched.trials if t.name in runs]
        yield worded("trials.met", met=met.count(True), trials=len(met) - met.count(None))
        yield from _margin(answer.fullest_ratio)
    if answer.confidence is None or answer.confidence.reason.code != "sure.bounds":
        width = answer.reached_width
        below = f"{bounds_words(answer).capitalize()}."
        yield below if width is None else worded("trials.below", width=width)
    if answer.cut_rounds:
        complete = len(answer.rounds) - answer.cut_rounds
        yield worded("trials.rounds", complete=complete, rounds=rounds)
    for carried, code in ((True, "carried"), (False, "not_carried")):
        if named := [n for n, good in odd if good is carried]:
            names = ", ".join(map(str, named[:4])) + (" …" if len(named) > 4 else "")
            yield worded(f"odd.{code}", trials=noun(len(named), "Trial"), names=names)
    # The card writes no digit that is not known; tables and drawings have what was measured.
    seen = [end for end in ends if end is not None and end.pps is not None and end.shown_pps]
    measured = [f"{one.pps:,.0f}" for one in seen]
    if measured != [one.shown_pps for one in seen]:
        yield worded("trials.measured", rates=" and ".join(measured))


def _speeds(searched: SearchedCell) -> Iterator[str]:
    """A SUT whose CPU is not as fast in one trial as in another has no limit closer than that."""
    of_trials = [t.record.disturbed for t in searched.trials if t.valid]
    slowed = [
        of_trial.slowed
        for of_trial in of_trials
        if of_trial is not None and of_trial.slowed is not None
    ]
    speeds = [1 - one.lost_ratio for one in slowed]
    if 2 * len(speeds) > len(of_trials) and max(speeds) >= UNSTEADY * min(speeds):
        yield worded("trials.speeds", least_pct=100 * min(speeds), most=max(speeds))


def _margin(fullest: float | None) -> Iterator[str]:
    """How near to its limit the ring came in the trials that carried a load."""
    if fullest is not None:
        yield worded("card-margin", fullest=fullest)


def ordered(searched: SearchedCell) -> list[StoredTrial]:
    """Every trial in the order measured, ramps and soaks too."""
    every = (*searched.ramps, *searched.trials, *searched.soaks)
    return sorted(every, key=lambda t: t.record.index)


def _ways_out(
    story: Story, source: StorySource, limit: _Limit, again: float | None
) -> Iterator[Action]:
    """The cheapest first; each is a hypothesis that its state tells."""
    proofs, above = states(source.run), limit.above or limit.lost
    lossy = limit.by == "sut" or bool(limit.lost)

    def one(
        name: str, *settings: str, predicted: Predicted | None = None, **words: object
    ) -> Action:
        shown = settings if predicted is None else (*settings, predicted.setting)
        made = _action(name, source.command_with(*shown), again, **words)
        if predicted is not None:
            why = " ".join(filter(None, (made.why, predicted.words)))
            made = made.model_copy(update={"why": why, "predicted": predicted.value})
        state = proofs.get(" ".join(s for s in settings if not s.startswith("search.")))
        return made.model_copy(update={"state": state}) if state else made

    void = next((s for s in always_void(story) if s.to_do), None)
    # No setting mends what other programs made void.
    crowded = limit.by == "other_programs"
    if void and not crowded and not (limit.carried and limit.by == "generator"):
        pasted = re.search("`(nodrop [^`]*)`", void.to_do)
        yield _action("void", pasted[1] if pasted else source.command_with(), again)
    if limit.by == "not_judged":
        yield _action("more-detections", source.command_with())
    elif limit.by == "other_programs" or limit.crowded:
        yield one("quiet")
    record = above[0].record if above else None
    workers, cpus = workers_of(record) if record else [], _cpus(record)
    if limit.by in ("sut", "other_programs") and cpus and len(workers) > len(cpus):
        n, names = len(cpus), {1: "one worker", 2: "two workers"}
        words: dict[str, Any] = {"few": names.get(n, f"{n} workers"), "many": len(workers)}
        yield one("fewer-workers", f"sut.threads={n}", cpus="a CPU" if n == 1 else "CPUs", **words)
    # Part of the time in which the busiest ran, or waited for a CPU.
    ran = workers[0].cpu_ratio if workers else None
    busy = None if ran is None else ran + (workers[0].wait_ratio or 0.0)
    full, idle = busy is not None and busy >= FULL, busy is not None and busy < IDLE
    bursts = lossy and _mostly(above, "burst", "costly")
    perhaps = lossy and _mostly(above, "burst", "costly", "not_known") and not full
    if (bursts or perhaps) and limit.knob.startswith("sut.ring_size"):
        name = "room" if bursts else "room-perhaps"
        yield one(name, f"sut.ring_size={ROOMY_SLOTS}", predicted=limit.predicted.room)
    options = [table_in(load, "options") for load in tables_in(source.run.manifest, "loads")]
    left_out = [table_in(load, "withhold") for load in options[:1] if "withhold" in load]
    if lossy and limit.predicted.without and not any(one.get("ratio") for one in left_out):
        flow, predicted = limit.predicted.without
        flows = [*(str(name) for one in left_out for name in one.get("flows", ())), flow.flow]
        named = ",".join(f'"{escape.plain(name, longest=120)}"' for name in flows)
        setting = f"load.withhold={{flows=[{named}]}}"
        yield one("without-flow", setting, predicted=predicted, kind=escape.plain(flow.kind))
    host = value_in(source.run.manifest, "host", "cpu", "cpus")
    # An idle one would change nothing with another CPU.
    suts = tables_in(source.run.manifest, "suts")
    sut = table_in(suts[0], "options") if len(suts) == 1 else {}
    shared_rate = "service_rate_pps" in sut  # of all threads of a sink
    second = limit.predicted.workers.get(2)
    waste = idle or (bursts and second is None)
    if limit.by == "sut" and cpus and workers and not (waste or shared_rate):
        more = [*cpus, max(cpus) + 1]
        wanted, enough = [f'limits.cpus="{",".join(map(str, more))}"'], len(workers) <= len(cpus)
        if enough and isinstance(threads := sut.get("threads"), int):
            wanted.append(f"sut.threads={threads + 1}")
        if not enough or sut.get("capture", "af-packet") == "af-packet":
            spare = isinstance(host, int) and max(more) < host
            name = "another-cpu" if spare else "another-host"
            two = second if len(workers) == 1 and len(more) == 2 else None
            yield one(name, *wanted, sut=limit.sut, n=max(more) + 1, predicted=two)
        elif "buffer_bytes" not in sut:
            yield one("af-packet", "sut.capture=af-packet")
    if limit.by == "generator" and not limit.crowded:
        yield _action("sender", from_another_host(source.command_with()))


def _action(name: str, command: str = "", cost_s: float | None = None, **words: object) -> Action:
    text, why = (said.format(**words) for said in WORDS["actions"][name])
    return Action(text=text, why=why, command=command, cost_s=cost_s)


def _allowed(
    story: Story, source: StorySource, limit: _Limit, again: float | None, more: Iterable[Action]
) -> list[Action]:
    """The first few; none sets what the experiment varies, but for a search from its own cell. More
    time comes first where the budget ended a search that found nothing carried."""
    searching, varied = (SEARCHING, "nodrop capacity "), [f"{factor}=" for factor in story.factors]
    out = _ways_out(story, source, limit, again)
    ways = (*more, *out) if limit.by == "budget" and not limit.carried else (*out, *more)
    may = (
        way
        for way in ways
        if any(map(way.command.count, searching)) or not any(map(way.command.count, varied))
    )
    return [*islice(_ranked([*may]), MOST_ACTIONS)]


def _ranked(ways: Sequence[Action]) -> Iterator[Action]:
    """Actions with a predicted load in its order among themselves, the highest first; others stay
    where they are."""
    predicted = [(way.predicted, n) for n, way in enumerate(ways) if way.predicted is not None]
    best = iter(sorted(predicted, key=lambda one: -one[0]))
    for way in ways:
        yield way if way.predicted is None else ways[next(best)[1]]


EVEN = 2.0
"""Factor by which a ramp went higher: from this on, bursts made the sender late, not packets/s."""


def _search_more(cell: SearchedCell, source: StorySource, again: float | None) -> Iterator[Action]:
    """Ways to see more by a longer search; of a sender that was late, by another sender."""
    answer, search = cell.answers[0], table_in(source.run.manifest, "search")
    budget, needed = search.get("budget_s"), runs_needed()
    late = [t for t in cell.trials if SENDER_REASONS & {*t.record.invalid_reasons}]
    if answer.limited_by == "budget" and 2 * len(late) > len(cell.trials):
        command = from_another_host(source.command_with())
        yield _action("sender-late", command, n=len(late), of=len(cell.trials))
    elif answer.limited_by == "budget" and isinstance(budget, int | float):
        more_time = source.command_with(f"search.budget_s={budget * 2:.0f}")
        yield _action("more-time", more_time, budget * 2)
    ramps = [t.record.searched for t in cell.ramps]
    sent = [s.value for s in ramps if s and s.ramp and not s.ramp.sender_to]
    if late and sent and answer.upper is None and answer.lower is not None:
        even = source.command_with("search.by=pps")
        if answer.by != "pps" and sent[0] >= EVEN * answer.lower.value:
            yield _action("even-gaps", even, again, times=sent[0] / answer.lower.value)
    closed = any(each.closed for each in answer.rounds)
    if search and len(answer.rounds) < needed and answer.lower is not None and closed:
        settings, times = [f"search.rounds={needed}"], needed / len(answer.rounds)
        longer = again * times if again else None
        if isinstance(budget, int | float):
            longer = budget * times * 1.3
            settings.append(f"search.budget_s={longer:.0f}")
        yield _action("rounds", source.command_with(*settings), longer, n=needed)


def _mostly(above: Sequence[StoredTrial], *rules: str) -> bool:
    """Most of the trials lost packets for one of these causes."""
    found = [any(c.rule in rules for c in t.record.packets.loss_causes) for t in above]
    return 2 * sum(found) > len(found)


def _crowded(trials: Sequence[StoredTrial]) -> bool:
    """Other programs had much of the CPUs in most trials that say something, or were to."""
    return 2 * sum(trial.record.host_was_busy for trial in trials) > len(trials)
