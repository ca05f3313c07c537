"""Words of an answer card that need no report: its loads, its headline and what breaks.

Whoever watches a search says the same of the trials so far as the report says of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodrop.answer.finding import WORDS, Finding, render, sentence_case, worded
from nodrop.capacity.findings import rate_words
from nodrop.capacity.load_words import goal_words
from nodrop.ledger.verdict import percent
from nodrop.results.capacity import Action, Card, CardLoad


def lost_words(card: Card) -> str:
    """`1.75 to 1.96 % lost in 3 of 3 trials`."""
    of = "transactions" if card.by == "rate" else card.goals_of
    return lost_in(card.lost or (), card.lossy, card.lossy_of, of)


def lost_in(losses: Sequence[float], lossy: int, of: int, what: str) -> str:
    """Words on what trials lost (packets, transactions, detections); empty if that is nothing."""
    if not losses:
        return ""
    least, most = percent(min(losses)), percent(max(losses))
    span = most if least == most else f"{least.removesuffix(' %')} to {most}"
    return worded(f"lost.{what}", span=span, k=lossy, of=of)


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
    named = (place or "").replace(" ", "_")
    of_sut = "detections" if missed_alone else "behind" if behind else named
    of_others = "behind_others" if behind else ""
    said = {"sut": of_sut, "other_programs": of_others}.get(limited_by, "")
    code = f"breaks.{said}" if said in WORDS["breaks"] else f"limited_by.{limited_by}"
    values = {"sut": "the SUT" if sut == "The SUT" else sut, "place": place or "SUT"}
    found = Finding(code=code, values=values)
    return sentence_case(render(found, "title")), sentence_case(render(found))


def kicker(card: Card) -> str:
    """Words above the number."""
    code = "seen" if card.only_seen else "at_least" if _no_end(card) else "carried"
    return worded(f"kicker.{code}", within=goal_words(card.goal, card.goals_of, card.by))


def _no_end(card: Card) -> bool:
    """A search that met no load that is too much."""
    return card.too_much is None and card.by != "given"


def units_words(load: CardLoad, card: Card) -> str:
    """The load in other units than packets/s: `43.2 Mbit/s, 8X of the trace`."""
    bits = f"{load.shown_mbit} Mbit/s" if load.shown_mbit else ""
    times = f"{load.shown_value}X of {card.window or 'the trace'}"
    scale = {"multiplier": times, "given": load.shown_value}.get(card.by, "")
    return ", ".join(filter(None, (bits, scale if load.shown_pps else "")))


def load_words(load: CardLoad, card: Card) -> str:
    lossless = "" if card.goal else "without loss"
    by_detections = card.goals_of == "detections"
    goal = goal_words(card.goal, card.goals_of, card.by) if by_detections else lossless
    least, sure = "at least " if _no_end(card) else "", card.sure.confidence
    rate = f"{least}{rate_words(load)}" + (f" ({sure.level} confidence)" if sure else "")
    peak = peak_words(card) if load is card.carried else ""
    return ", ".join(filter(None, (rate, units_words(load, card), goal, peak)))


def peak_words(card: Card) -> str:
    """`a mean, with 9,900 packets/s in the trace's busiest second`; empty if not known."""
    times = None if card.carried is None else card.carried.value
    if not times or not card.peak_pps or card.by != "multiplier":
        return ""
    return worded("card-peak", pps=float(f"{times * card.peak_pps:.3g}"))


STATES: Mapping[str, str] = WORDS["states"]


def too_much_words(card: Card) -> str | None:
    """The load that is too much, with its loss; None without such a load, empty without words for
    it."""
    load = card.too_much
    return None if load is None else ", ".join(filter(None, (rate_words(load), lost_words(card))))


def loads_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line on what is carried, and on what breaks."""
    carried = card.headline if card.carried is None else load_words(card.carried, card)
    lines = (
        ("no loss" if card.only_seen else "carried", carried),
        ("too much", too_much_words(card)),
        ("", card.tolerated or None),
        ("need", card.needed or None),
        ("predicted", card.predicted or None),
        ("breaks", card.breaks.verdict),
    )
    yield from ((key, words) for key, words in lines if words is not None)


def action_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line on what to do; a command to paste is indented."""
    for n, action in enumerate(card.actions, 1):
        yield ("do" if n == 1 else ""), f"{n} {action.text} {aside_words(action)}"
        if action.command:
            yield "", f"  {action.command}"


def card_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Key and value of each line, for a terminal and for markdown."""
    yield from loads_lines(card)
    yield from (("", words) for words in card.breaks.why)
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
