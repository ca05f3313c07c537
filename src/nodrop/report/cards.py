"""The answer card of a searched cell, made of what its search found."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodrop.capacity.answer import Answer, Bound
from nodrop.capacity.cells import SearchedCell, searches
from nodrop.capacity.knee import workers_of
from nodrop.capacity.searched import judged_ratio
from nodrop.capacity.statements import writing
from nodrop.config.units import count_of, parse_cpus
from nodrop.findings.load_words import apart, goal_words, written
from nodrop.report import escape, numbers
from nodrop.report.always_void import always_void
from nodrop.report.flows import hop_title
from nodrop.report.story import Source, Story, once
from nodrop.report.trials import Trial
from nodrop.results.capacity import (
    Action,
    Breaks,
    Card,
    CardLoad,
    CardThread,
    Confidence,
    Sure,
)
from nodrop.results.proved import states
from nodrop.stats.interval import runs_needed

MOST_ACTIONS = 3
WAITED, FULL = 0.1, 0.9
"""Parts of the time from which a worker is said to have waited, and to have been busy."""
MOST_PATH = 6
ROOMY_FRAMES = 32_768
"""Frames of a socket ring, as many as lossless baselines have (suts/suricata/sut.py)."""

VERDICTS: Mapping[str, tuple[str, str]] = {
    "sut_failed": ("{sut} fails.", "It died, hung or was killed under this load."),
    "before_sut": ("Packets die before {sut}.", "{sut} never saw them."),
    "other_programs": ("Other programs took its CPU.", "{sut} lost packets while they ran."),
    "sender_cpu": ("The sender took its CPU.", "Sender and {sut} share a CPU."),
    "interrupts": ("Interrupts took its CPU.", "Its CPU served the kernel, not {sut}."),
    "quota": ("Its CPU quota is spent.", "The kernel held {sut} back."),
    "hypervisor": ("The hypervisor took its CPU.", "This host is a guest; others had its CPU."),
    "not_known": ("What breaks is not known.", "Most trials say nothing of their load."),
    "generator": ("The sender is the limit.", "It fell behind before {sut} did."),
    "max": ("Nothing breaks yet.", "The highest load of the search was carried."),
    "min": ("The least load is too much.", "The search tried nothing below it."),
    "loss_at_every_load": ("Loss at every load.", "The same part is lost of each."),
    "budget": ("The budget ran out.", "No load above it was decided."),
    "void_above": ("Higher loads say nothing.", "Every trial above it is void."),
    "unfinished": ("The search is not finished.", "Resume it."),
    "lab": ("The lab failed.", "A cable was out, or a host was gone."),
    "changes": ("{sut} grows slower.", "It serves less from trial to trial."),
    "nothing_measured": ("Nothing was measured.", "No trial says anything of {sut}."),
}
"""Verdict and reason of each end of a search but `sut`, whose verdict names the place."""
PLACES: Mapping[str, str] = {
    "socket ring": "The socket ring overflows.",
    "generator": "The sender is the limit.",
}


@once
def cards(story: Story) -> tuple[Card, ...]:
    """One per searched cell, for its first goal."""
    return tuple(_card(story, one) for one in searches(story))


def _card(story: Story, searched: SearchedCell) -> Card:
    answer, source = searched.answers[0], story.sources[searched.source]
    lower, upper = answer.lower, answer.upper
    above = [
        t
        for t in searched.trials
        if upper is not None and (asked := t.record.searched) and asked.value == upper.value
    ]
    known = [t for t in above if t.valid and judged_ratio(t.record) is not None]
    lossy = [t for t in known if (judged_ratio(t.record) or 0.0) > answer.goal]
    losses = [judged_ratio(t.record) or 0.0 for t in lossy]
    return Card(
        subject=searched.subject,
        by=answer.by,
        goal=answer.goal,
        goals_of=answer.goals_of,
        headline=headline(answer),
        carried=_load(answer, lower),
        too_much=_load(answer, upper),
        lost=(min(losses), max(losses)) if losses else None,
        lossy=len(lossy),
        lossy_of=len(known),
        tolerated=_tolerated(searched.answers),
        window="" if searched.window is None else searched.window.name,
        breaks=_breaks(searched, answer, lossy or above),
        sure=_sure(searched, answer, source),
        actions=list(_actions(story, searched, answer, source, lossy or above))[:MOST_ACTIONS],
    )


def _load(answer: Answer, bound: Bound | None) -> CardLoad | None:
    """Digits follow what is known, as in every sentence: the carried load is rounded down, the
    other up."""
    if bound is None:
        return None
    known, up = writing(answer).known, bound is answer.upper
    ends = (answer.lower, answer.upper)

    def shown(of: Callable[[Bound], float | None], value: float | None) -> str:
        pair = [v for end in ends if end is not None and (v := of(end)) is not None]
        if value is None:
            return ""
        if len(pair) == 2 and pair[0] < pair[1]:
            return apart(pair[0], pair[1], known)[up]
        return written(value, known, up=up)

    return CardLoad(
        pps=bound.pps,
        bps=bound.bps,
        value=bound.value,
        runs=[*bound.runs],
        shown_pps=shown(lambda b: b.pps, bound.pps),
        shown_mbit="" if bound.bps is None else written(bound.bps / 1e6, max(known, 1e-3)),
        shown_value=shown(lambda b: b.value, bound.value),
    )


def headline(answer: Answer) -> str:
    """At most 8 words and one number."""
    lower = _load(answer, answer.lower)
    if lower is None:
        return "No load is shown to be carried."
    rate = f"{lower.shown_pps} packets/s" if lower.shown_pps else f"{lower.shown_value}X"
    detections = answer.goals_of == "detections"
    if answer.goal == 0:
        return f"{rate} carried without {'a missed detection' if detections else 'loss'}"
    return f"{rate} carried within the tolerated {'missed detections' if detections else 'loss'}"


def _tolerated(answers: Sequence[Answer]) -> str:
    """Goals with the same bounds share one line."""
    first, *others = answers
    said = []
    for one in others:
        what = "missed detections" if one.goals_of == "detections" else "loss"
        goal = f"{numbers.percent(one.goal)} % {what}"
        if _bounds(one) == _bounds(first):
            said.append(f"Tolerating {goal} changes nothing.")
        elif one.lower is not None and first.lower and one.lower.value == first.lower.value:
            said.append(f"Tolerating {goal} is not shown to carry more.")
        elif one.lower is not None and one.lower.pps is not None:
            # As many digits as the stricter goal has: with fewer it could look like less.
            known = min(writing(goal_of).known for goal_of in (first, one))
            said.append(f"Tolerating {goal}: {written(one.lower.pps, known, up=False)} packets/s.")
    return " ".join(said)


def _bounds(answer: Answer) -> tuple[float | None, float | None]:
    ends = (answer.lower, answer.upper)
    low, high = (None if end is None else end.value for end in ends)
    return low, high


def _breaks(searched: SearchedCell, answer: Answer, above: Sequence[Trial]) -> Breaks:
    worst = sorted(above, key=lambda t: judged_ratio(t.record) or 0.0)
    trial = worst[len(worst) // 2] if worst else None
    record = trial.record if trial else None
    workers = workers_of(record) if record else []
    sut = _sut(searched)
    place = escape.plain(answer.place, longest=40) if answer.place else None
    path = _path(trial)
    if answer.limited_by in VERDICTS:
        verdict, why = (words.format(sut=sut) for words in VERDICTS[answer.limited_by])
    elif answer.goals_of == "detections" and record and record.packets.lost_packets == 0:
        verdict = "Detections are missed, no packet."
        why = "A memcap, a timeout or a depth cost them."
    else:
        verdict = PLACES.get(place or "", f"Packets die in the {place or 'SUT'}.")
        why = ""
    busy = _worker_words(workers[0].name, workers[0].cpu_ratio, workers[0].wait_ratio) if (
        workers and (workers[0].dropped_packets or len(workers) == 1)
    ) else ""  # fmt: skip
    shared = _shared(record.sut_cpus, len(workers), 0) if record else ""
    return Breaks(
        verdict=verdict,
        limited_by=answer.limited_by,
        place=place,
        path=path,
        why=" ".join(filter(None, (why, busy, shared))),
        lost=record.packets.lost_packets if record else None,
        sent=record.offered.sent if record else None,
        run=trial.name if trial else None,
        threads=[
            CardThread(name=w.name, ran=w.cpu_ratio, waited=w.wait_ratio, dropped=w.dropped_packets)
            for w in workers[:4]
        ],
    )


def _sut(searched: SearchedCell) -> str:
    return escape.plain(searched.subject if not searched.label else "The SUT", longest=24)


def _path(trial: Trial | None) -> list[str]:
    """Stages that counted, by the names that losses have."""
    if trial is None or trial.ledger is None:
        return []
    seen = [hop_title(hop.name) for hop in trial.ledger.hops if hop.packets is not None]
    return seen[-MOST_PATH + 1 :] if len(seen) > MOST_PATH else seen[1:]


def _worker_words(name: str, ran: float | None, waited: float | None) -> str:
    if waited is not None and waited >= WAITED:
        return f"Worker {name} waited for its CPU {waited * 100:.0f} % of the time."
    if ran is not None and ran >= FULL:
        return f"Worker {name} ran {ran * 100:.0f} % of the time: its CPU is full."
    return ""


def _cpus(text: str | None) -> list[int]:
    return sorted(parse_cpus(text)) if text else []


def _shared(sut_cpus: str | None, workers: int, least: int) -> str:
    cpus = _cpus(sut_cpus)
    if not cpus or workers <= max(len(cpus), least):
        return ""
    where = f"CPU {cpus[0]}" if len(cpus) == 1 else f"{len(cpus)} CPUs"
    return f"{workers} workers share {where}."


def _sure(searched: SearchedCell, answer: Answer, source: Source) -> Sure:
    every = (*searched.ramps, *searched.trials)
    found = answer.confidence
    outcomes = [t.outcome for t in every]
    odd, places = (
        _disagree(searched, answer),
        {t.name: n for n, t in enumerate(ordered(searched), 1)},
    )
    asked = _search(source).get("rounds")
    return Sure(
        confidence=None
        if found is None
        else Confidence(level=found.level, why=found.why, known_ratio=found.known),
        width=answer.reached_width,
        rounds=len(answer.rounds),
        rounds_asked=asked if isinstance(asked, int) else len(answer.rounds),
        cut=answer.cut_rounds,
        trials=len(every),
        measured=outcomes.count("measured"),
        void=outcomes.count("void"),
        failed=outcomes.count("failed"),
        books_closed=sum(bool(t.record.packets.books_closed) for t in every),
        disagree=[t.name for t in odd],
        words=list(_sure_words(answer, [places[t.name] for t in odd])),
    )


def _sure_words(answer: Answer, odd: Sequence[int]) -> Iterator[str]:
    if answer.reached_width is not None:
        yield f"Bounds {numbers.percent(answer.reached_width)} % apart."
    else:
        yield "No bounds on both sides."
    if answer.cut_rounds:
        yield f"{answer.cut_rounds} of {len(answer.rounds)} rounds cut short."
    if odd:
        names = ", ".join(map(str, odd[:4])) + (" …" if len(odd) > 4 else "")
        yield f"Trial{'s' if len(odd) > 1 else ''} {names} disagree{'s' if len(odd) == 1 else ''}."


def ordered(searched: SearchedCell) -> list[Trial]:
    """Every trial in the order measured, ramps and soaks too: its number is its place here."""
    every = (*searched.ramps, *searched.trials, *searched.soaks)
    return sorted(every, key=lambda t: t.record.index)


def _disagree(searched: SearchedCell, answer: Answer) -> list[Trial]:
    """Trials that met the goal at the load that is too much or above, or missed it below."""
    low = answer.lower.value if answer.lower else None
    high = answer.upper.value if answer.upper else None
    found = []
    for trial in searched.trials:
        asked, loss = trial.record.searched, judged_ratio(trial.record)
        if asked is None or not trial.valid or loss is None:
            continue
        good = loss <= answer.goal
        if (good and high is not None and asked.value >= high) or (
            not good and low is not None and asked.value <= low
        ):
            found.append(trial)
    return found


def _actions(
    story: Story, searched: SearchedCell, answer: Answer, source: Source, above: Sequence[Trial]
) -> Iterator[Action]:
    """The cheapest first; each is a hypothesis that its state tells."""
    again = sum(t.record.took_s or 0.0 for t in (*searched.ramps, *searched.trials)) or None

    proofs = states(source.run)

    def one(text: str, why: str, *settings: str, cost: float | None = again) -> Action:
        made = Action(text=text, why=why, command=command(source, *settings), cost_s=cost)
        state = proofs.get(" ".join(settings))
        return made.model_copy(update={"state": state}) if state else made

    void = [s for s in always_void(story) if s.to_do]
    for sentence in void[:1]:
        pasted = sentence.to_do.strip("`. ").rpartition("`")[2]
        text, why = "Mend what makes trials void.", "All trials of a load are void."
        yield Action(text=text, why=why, command=pasted, cost_s=again)
    if answer.limited_by == "other_programs" or _crowded(answer):
        yield one("Measure again on a quiet host.", "Other programs had its CPU.")
    record = above[0].record if above else None
    workers = workers_of(record) if record else []
    cpus = _cpus(record.sut_cpus if record else None)
    if answer.limited_by in ("sut", "other_programs") and cpus and len(workers) > len(cpus):
        n, names = len(cpus), {1: "one worker", 2: "two workers"}
        text = f"Run {names.get(n, f'{n} workers')} instead of {len(workers)}."
        yield one(text, "They compete for a CPU." if n == 1 else "They compete for CPUs.",
                  f"sut.threads={n}")  # fmt: skip
    bursts = answer.limited_by == "sut" and _burst(above)
    if bursts and answer.knob.startswith("sut.ring_size"):
        why = "Bursts overflow it; its thread has time left."
        yield one("Give the socket ring more room.", why, f"sut.ring_size={ROOMY_FRAMES}")
    host = _host_cpus(source)
    if answer.limited_by == "sut" and not bursts and cpus and workers:
        more = [*cpus, max(cpus) + 1]
        spare = host is not None and max(more) < host
        why = "" if spare else f"Needs a host with {max(more) + 1} CPUs."
        text = f"Give {_sut(searched)} another CPU."
        yield one(text, why, f'limits.cpus="{",".join(map(str, more))}"')
    if answer.limited_by == "generator":
        text = "Send from a host of its own."
        yield Action(text=text, why="The sender fell behind.", command="", cost_s=None)
    search, needed = _search(source), runs_needed()
    budget = search.get("budget_s")
    if answer.limited_by == "budget" and isinstance(budget, int | float):
        cost = again * 2 if again else None
        more_time = f"search.budget_s={budget * 2:.0f}"
        yield one("Give the search more time.", "The budget ended it.", more_time, cost=cost)
    if search and len(answer.rounds) < needed and answer.lower is not None:
        settings = [f"search.rounds={needed}"]
        rounds = max(len(answer.rounds), 1)
        if isinstance(budget, int | float):
            settings.append(f"search.budget_s={budget * needed / rounds * 1.3:.0f}")
        longer = again * (needed / rounds) if again else None
        yield one(f"For a 95 % interval, search {needed} rounds.", "", *settings, cost=longer)


def _burst(above: Sequence[Trial]) -> bool:
    """Most of the trials lost packets to bursts, not to a thread without time left."""
    found = [any(c.rule == "burst" for c in t.record.packets.loss_causes) for t in above]
    return 2 * sum(found) > len(found)


def _crowded(answer: Answer) -> bool:
    return answer.confidence is not None and "others had the CPUs" in answer.confidence.why


def _search(source: Source) -> Mapping[str, Any]:
    found = source.run.manifest.get("search")
    return found if isinstance(found, dict) else {}


def _host_cpus(source: Source) -> int | None:
    found: Any = source.run.manifest.get("host")
    cpus = found.get("cpu", {}).get("cpus") if isinstance(found, dict) else None
    return cpus if isinstance(cpus, int) else None


def command(source: Source, *settings: str) -> str:
    """The run's own command with settings more; the settings alone if it is not recorded."""
    more = [word for one in settings for word in ("--set", one)]
    return shlex.join([*(word for word in source.command if word != "--resume"), *more])


def cost_words(action: Action) -> str:
    if action.cost_s is None:
        return ""
    minutes = action.cost_s / 60
    return f"About {minutes:.0f} min." if minutes >= 1.5 else f"About {action.cost_s:.0f} s."


def state_words(action: Action) -> str:
    signs = {"untried": "Untried.", "helps": "Helps.", "does not": "Does not help.",
             "cannot tell yet": "? Cannot tell yet."}  # fmt: skip
    return signs[action.state]


def lost_words(card: Card) -> str:
    """`1.75 to 1.96 % lost in 3 of 3 trials`."""
    if card.lost is None:
        return ""
    low, high = map(numbers.percent, card.lost)
    span = low if low == high else f"{low} to {high}"
    what = "of detections missed" if card.goals_of == "detections" else "lost"
    return f"{span} % {what} in {card.lossy} of {count_of(card.lossy_of, 'trial')}"


def card_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line, for a terminal and for markdown."""
    carried, too_much = card.carried, card.too_much
    yield "carried", card.headline if carried is None else _load_line(carried, card)
    if too_much is not None:
        yield "too much", ", ".join(filter(None, (_rate(too_much), lost_words(card))))
    if card.tolerated:
        yield "", card.tolerated
    yield "breaks", card.breaks.verdict
    for words in filter(None, card.breaks.why.split(". ")):
        yield "", f"{words.rstrip('.')}."
    yield from action_lines(card)
    if card.sure.confidence is not None:
        yield "sure", f"{card.sure.confidence.level}: {card.sure.confidence.why}"
    yield ("" if card.sure.confidence else "sure"), " ".join(card.sure.words)


def action_lines(card: Card) -> Iterator[tuple[str, str]]:
    for n, action in enumerate(card.actions, 1):
        aside = " ".join(filter(None, (action.why, cost_words(action), state_words(action))))
        yield ("do" if n == 1 else ""), f"{n} {action.text} {aside}"
        if action.command:
            yield "", f"  {action.command}"


def _rate(load: CardLoad) -> str:
    return f"{load.shown_pps} packets/s" if load.shown_pps else f"{load.shown_value}X"


def _load_line(load: CardLoad, card: Card) -> str:
    bits = f"{load.shown_mbit} Mbit/s" if load.shown_mbit else ""
    scale = f"{load.shown_value}X of {card.window or 'the trace'}"
    scale = scale if card.by == "multiplier" and load.shown_pps else ""
    goal = "" if card.goal else "without loss"
    if card.goals_of == "detections":
        goal = goal_words(card.goal, card.goals_of)
    return ", ".join(filter(None, (_rate(load), bits, scale, goal)))
