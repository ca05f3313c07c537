"""Words of an answer card that need no report: its loads, its headline and what breaks.

Whoever watches a search says the same of the trials so far as the report says of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.statements import writing
from nodrop.config.units import count_of
from nodrop.findings.load_words import apart, goal_words, written
from nodrop.ledger.verdict import percent
from nodrop.results.capacity import Action, Card, CardLoad

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
    "budget": ("The budget ran out.", "No higher load was decided."),
    "void_above": ("Higher loads say nothing.", "Every trial above it is void."),
    "unfinished": ("The search is not finished.", "Resume it."),
    "lab": ("The lab failed.", "A cable was out, or a host was gone."),
    "changes": ("{sut} grows slower.", "It serves less from trial to trial."),
    "nothing_measured": ("Nothing was measured.", "No trial says anything of {sut}."),
    "not_judged": ("Detections cannot be judged.", "Fewer than 20 are expected."),
}
"""Verdict and reason of each end of a search but `sut`, whose verdict names the place."""
PLACES: Mapping[str, str] = {
    "socket ring": "The socket ring overflows.",
    "generator": "The sender is the limit.",
}


def load_of(answer: Answer, bound: Bound | None) -> CardLoad | None:
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
    lower = load_of(answer, answer.lower)
    if lower is None:
        return "No load is shown to be carried."
    rate = f"{lower.shown_pps} packets/s" if lower.shown_pps else f"{lower.shown_value}X"
    detections = answer.goals_of == "detections"
    if answer.goal == 0:
        return f"{rate} carried without {'a missed detection' if detections else 'loss'}"
    return f"{rate} carried within the tolerated {'missed detections' if detections else 'loss'}"


def lost_words(card: Card) -> str:
    """`1.75 to 1.96 % lost in 3 of 3 trials`."""
    if card.lost is None:
        return ""
    what = "of detections missed" if card.goals_of == "detections" else "lost"
    trials = count_of(card.lossy_of, "trial")
    return f"{span_words(*card.lost)} {what} in {card.lossy} of {trials}"


def span_words(low: float, high: float) -> str:
    """`1.75 to 1.96 %`."""
    least, most = percent(low), percent(high)
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def breaks_words(
    limited_by: str,
    place: str | None,
    sut: str,
    *,
    missed_alone: bool = False,
    behind: bool = False,
) -> tuple[str, str]:
    """The verdict, and its reason if the place does not say it. `missed_alone`: detections were,
    and no packet was lost; `behind`: nothing was, and not all was done in time."""
    sut = "the SUT" if sut == "The SUT" else sut
    if limited_by in VERDICTS:
        verdict, why = (words.format(sut=sut) for words in VERDICTS[limited_by])
        if behind and limited_by == "other_programs":
            why = f"{sut} fell behind while they ran; it lost nothing yet."
        return verdict[:1].upper() + verdict[1:], why[:1].upper() + why[1:]
    if missed_alone:
        return "Detections are missed, no packet.", "A memcap, a timeout or a depth cost them."
    if behind:
        return (
            f"{sut[:1].upper()}{sut[1:]} falls behind.",
            "Its rings held what it did not do in time.",
        )
    return PLACES.get(place or "", f"Packets die in the {place or 'SUT'}."), ""


def kicker(card: Card) -> str:
    """Words above the number."""
    if card.only_seen:
        return "No loss seen, not shown to be carried"
    at_least = "At least this is carried" if _no_end(card) else "Carried"
    return f"{at_least} {goal_words(card.goal, card.goals_of)}"


def _no_end(card: Card) -> bool:
    """A search that met no load that is too much."""
    return card.too_much is None and card.by != "given"


def rate_words(load: CardLoad) -> str:
    if load.shown_pps:
        return f"{load.shown_pps} packets/s"
    return load.shown_value if load.value is None else f"{load.shown_value}X"


def load_words(load: CardLoad, card: Card) -> str:
    bits = f"{load.shown_mbit} Mbit/s" if load.shown_mbit else ""
    scale = ""
    if card.by == "multiplier" and load.shown_pps:
        scale = f"{load.shown_value}X of {card.window or 'the trace'}"
    elif card.by == "given" and load.shown_pps:
        scale = load.shown_value
    goal = "" if card.goal else "without loss"
    if card.goals_of == "detections":
        goal = goal_words(card.goal, card.goals_of)
    least, sure = "at least " if _no_end(card) else "", card.sure.confidence
    rate = f"{least}{rate_words(load)}" + (f" ({sure.level} confidence)" if sure else "")
    return ", ".join(filter(None, (rate, bits, scale, goal)))


STATES = {"untried": "Untried.", "helps": "Helps.", "does not": "Does not help.",
          "cannot tell yet": "? Cannot tell yet."}  # fmt: skip


def loads_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line on what is carried, and on what breaks."""
    carried, too_much = card.carried, card.too_much
    key = "no loss" if card.only_seen else "carried"
    yield key, card.headline if carried is None else load_words(carried, card)
    if too_much is not None:
        yield "too much", ", ".join(filter(None, (rate_words(too_much), lost_words(card))))
    if card.tolerated:
        yield "", card.tolerated
    yield "breaks", card.breaks.verdict


def action_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line on what to do; a command to paste is indented."""
    for n, action in enumerate(card.actions, 1):
        yield ("do" if n == 1 else ""), f"{n} {action.text} {aside_words(action)}"
        if action.command:
            yield "", f"  {action.command}"


def card_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line, for a terminal and for markdown."""
    yield from loads_lines(card)
    for words in filter(None, card.breaks.why.split(". ")):
        yield "", f"{words.rstrip('.')}."
    yield from action_lines(card)
    if card.sure.confidence is not None:
        yield "sure", f"{card.sure.confidence.level}: {card.sure.confidence.why}"
    yield ("" if card.sure.confidence else "sure"), " ".join(card.sure.words)


def aside_words(action: Action) -> str:
    """Why, what it costs and whether anybody tried it."""
    cost = ""
    if action.cost_s is not None:
        minutes = action.cost_s / 60
        cost = f"About {minutes:.0f} min." if minutes >= 1.5 else f"About {action.cost_s:.0f} s."
    return " ".join(filter(None, (action.why, cost, STATES[action.state])))
