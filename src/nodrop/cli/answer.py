"""The answer of a search in a terminal: sentences, figures and the knee."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from nodrop.cli.knee import ASCII, UNICODE, knee
from nodrop.cli.saying import say
from nodrop.cli.tables import console
from nodrop.findings.answer import Answer, Bound
from nodrop.findings.load_words import value_words
from nodrop.report.always_void import always_void
from nodrop.report.answer import answer as answer_of
from nodrop.report.capacity import between_words
from nodrop.report.capacity_pictures import knee_of
from nodrop.report.capacity_words import (
    broke,
    confidence_words,
    doubts,
    forecast_words,
    goal_name,
    headline,
    lowered,
    soak_words,
    window_words,
)
from nodrop.report.cards import action_lines
from nodrop.report.direct import direct_sentences
from nodrop.report.escape import THIN
from nodrop.report.fitted import fitted, fitted_words
from nodrop.report.numbers import rate
from nodrop.report.searched import SearchedCell, searches
from nodrop.report.sentences import BESIDE_LOSS
from nodrop.report.story import Story
from nodrop.results.capacity import Card
from nodrop.stats.loss_curve import LossCurve

NO_FIGURE = 6
"""Exit code of a search that has no load that is carried, for a cell or a goal, and of a run that
was disturbed too often for its cells to be compared."""


def ends_with(searches: Sequence[SearchedCell]) -> int:
    """The exit code of a search. A void trial on the way to a figure is no failure: the sender is
    late at loads beyond its own."""
    answers = [answer for one in searches for answer in one.answers]
    found = answers and all(answer.lower is not None for answer in answers)
    return 0 if found else NO_FIGURE


MOST_SENTENCES = 4
"""Sentences printed at most for a run with given loads and one cell; the page has all of them."""


def print_direct(story: Story) -> None:
    """Prints the answer of a run with several cells; for one whose loads alone differ, what was
    carried and lost."""
    said = [*direct_sentences(story), *always_void(story)]
    if not said and not searches(story):
        told = [s for s in answer_of(story).sentences if s.rule not in BESIDE_LOSS]
        said = told[:MOST_SENTENCES]
    for sentence in said:
        say(sentence.text)
        if sentence.to_do:
            say(f"  What to do: {sentence.to_do}.")
    if said:
        say()


def print_capacity(searched: SearchedCell, card: Card | None = None) -> None:
    """The answer of a search: the load that is carried, what broke above it, actions, the knee."""
    out, said = console(), set[str]()
    for answer in searched.answers:
        say(headline(searched.subject, answer))
        broken = broke(answer)
        touches = f"What touches it: {answer.knob}." if answer.knob not in broken else ""
        if sure := confidence_words(answer):
            say(f"  {sure}")
        for words in filter(None, (broken, touches, *doubts(answer))):
            if words not in said:
                say(f"  {words}")
            said.add(words)
    for key, words in action_lines(card) if card else ():
        say(f"  {key:4}{words}")
    say()
    if (window := searched.window) is not None:
        say(window_words(searched))
        if window.begun_warning:
            say(f"warning: {window.begun_warning}.")
    for soak in searched.soaks:
        say(f"{searched.subject}: {soak_words(soak.record)}.")
    if window is not None or searched.soaks:
        say()
    out.print(answers_table(searched))
    picture = knee_of(searched)
    signs = UNICODE if speaks_unicode(out) else ASCII
    say()
    for line in knee(
        picture.dots,
        answer=picture.answer_pps,
        signs=signs,
        columns=out.width if out.is_terminal else None,
    ):
        out.print(line, markup=False, soft_wrap=True)
    curve = fitted(searched)
    if isinstance(curve, LossCurve):
        say(f"{searched.subject}: {lowered(fitted_words(curve))}")
    if words := forecast_words(searched):
        say(words)


def answers_table(searched: SearchedCell) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("goal", "", "packets/s", "Mbit/s", "load"):
        table.add_column(column, overflow="fold", justify="right" if "/s" in column else "left")
    for answer in searched.answers:
        table.add_row(goal_name(answer.goal), "carried", *_figures(answer, answer.lower))
        table.add_row("", "not carried", *_figures(answer, answer.upper))
        table.add_row("", "between rounds", "", "", between_words(answer))
    return table


def _figures(answer: Answer, bound: Bound | None) -> tuple[str, str, str]:
    if bound is None:
        return "", "", "none found"
    pps = "" if bound.pps is None else rate(bound.pps).replace(THIN, ",")
    bps = "" if bound.bps is None else f"{bound.bps / 1e6:,.1f}"
    return pps, bps, value_words(answer.by, bound.value)


def speaks_unicode(out: Console) -> bool:
    return out.is_terminal and out.encoding.lower().replace("-", "") == "utf8"
