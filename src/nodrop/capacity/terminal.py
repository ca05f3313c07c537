"""The answer of a search in a terminal of 24 rows: the number, what breaks, what to do, how sure,
and the number again. Page and report.md have the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from nodrop.answer.finding import Finding, render, sentence_case
from nodrop.capacity.answer_cards import cards
from nodrop.capacity.card import (
    action_lines,
    aside_words,
    card_lines,
    loads_lines,
    peak_words,
    too_much_words,
    units_words,
)
from nodrop.capacity.findings import rate_words
from nodrop.capacity.load_words import goal_words
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.words import DOUBTS, soak_words
from nodrop.config.units import count_of
from nodrop.exit_codes import ANSWERED, NO_ANSWER, WORSE
from nodrop.report.story import Story
from nodrop.report.trust import decoder_words, sensor_words
from nodrop.results.capacity import Card
from nodrop.terminal.arguments import command_lines, laid_out, say
from nodrop.terminal.console import KEY, console, print_keyed
from nodrop.untrusted.json_text import one_line

MOST_ROWS = 15
"""Rows of the answer of one searched cell; the shell's own prompt and some trials have the
others."""
MOST_CELLS = 20
"""Cells printed of a run of several; the page has the others."""


def ends_with(searches: Sequence[SearchedCell]) -> int:
    """The exit code of a search. A void trial on the way to a figure is no failure: the sender is
    late at loads beyond its own."""
    answers = [answer for search in searches for answer in search.answers]
    needs = [search.answers[0].needed for search in searches]
    verdicts = {need.verdict for need in needs if need is not None}
    if "no" in verdicts:
        return WORSE
    found = answers and all(answer.lower is not None for answer in answers)
    return ANSWERED if found and "not shown" not in verdicts else NO_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLine:
    """A line of the answer, and how much of the terminal it may take."""

    key: str
    words: str | Sequence[str]
    """Sentences of which the last ones are left out if all take too many rows."""
    rows: int = 2
    """Rows beyond these are cut."""
    rank: int = 0
    """Lines of the highest rank are left out first; none of rank 0 is."""
    style: str = ""
    command: bool = False
    """The line is to be pasted: left out if it does not fit, never cut."""

    def laid(self, columns: int) -> list[str]:
        said = [self.words] if isinstance(self.words, str) else [*self.words]
        if self.command:
            lines = [f"  {command_line}" for command_line in command_lines(said[0], columns - 2)]
            return lines if len(lines) <= self.rows else []
        lines = laid_out(" ".join(said), columns)
        while len(lines) > self.rows and len(said) > 1:
            said.pop()
            lines = laid_out(" ".join(said), columns)
        if len(lines) > self.rows:
            lines = lines[: self.rows]
            lines[-1] = f"{lines[-1][: columns - 2].rstrip()} …"
        return lines


def fitted(
    lines: Sequence[AnswerLine], columns: int, most: int = MOST_ROWS
) -> list[tuple[AnswerLine, str]]:
    """Each row with its line: no more than `most`. Words of three rows are cut to two before a
    command is left out."""
    lines = [*lines]

    def goes_first(line: AnswerLine) -> tuple[float, int]:
        rows = len(line.laid(columns))
        return (line.rank or (1.5 if rows > 2 and not line.command else 0.0), rows)

    while True:
        rows = [(line, row) for line in lines for row in line.laid(columns)]
        if len(rows) <= most:
            return rows
        last = max(lines, key=goes_first)
        at = lines.index(last)
        shorter = replace(last, rows=min(last.rows, len(last.laid(columns))) - 1)
        lines[at : at + 1] = [shorter] if not last.rank and shorter.rows else []


def print_answers(story: Story, page: Path) -> None:
    """The answer of each searched cell. A single one ends with its number."""
    found, shown = searches(story), cards(story)
    if len(found) != 1:
        print_in_short(shown)
        print_sensor(story)
        say(f"report: {page}")
        return
    out, (searched,), (card,) = console(), found, shown
    lines = [*answer_lines(story, searched, card, page)]
    columns = out.width - KEY - 2 if out.is_terminal else 9999
    key = None
    for line, words in fitted(lines, columns):
        if not words.strip() and not out.is_terminal:
            continue
        name, key = "" if line is key else line.key, line
        text = Text.assemble("  ", (f"{name:{KEY}}", "bold"), (words, line.style))
        text.rstrip()
        out.print(text, soft_wrap=True, highlight=False)


def answer_lines(
    story: Story, searched: SearchedCell, card: Card, page: Path
) -> Iterator[AnswerLine]:
    """Lines in the order of the page's card."""
    action, sure = next(iter(card.actions), None), card.sure.confidence
    do = "" if action is None else f"{action.text} {aside_words(action)}"
    command = "" if action is None else one_line(action.command)
    said = [f"{sure.level}: {sure.why}."] if sure else []
    soaks = (soak_words(soak.record) for soak in searched.soaks)
    lines = (
        AnswerLine(key="", words=" ", rank=9),
        AnswerLine(key="answer", words=card.headline, style="bold"),
        AnswerLine(key="", words=_beside(searched, card), rows=3),
        AnswerLine(key="", words=card.tolerated, rank=2),
        AnswerLine(key="need", words=card.needed, style="bold"),
        AnswerLine(key="predicted", words=card.predicted),
        AnswerLine(key="too much", words=too_much_words(card) or ""),
        AnswerLine(key="breaks", words=(card.breaks.verdict, *card.breaks.why)),
        AnswerLine(key="do", words=do),
        AnswerLine(key="", words=command, rows=4, rank=1, command=True),
        AnswerLine(key="sure", words=(*said, *card.sure.words), rows=3),
        *(AnswerLine(key="soak", words=words, rows=1) for words in soaks),
        AnswerLine(key="but", words=_left_to_the_report(story, searched, card), rows=1),
        AnswerLine(key="report", words=str(page), rows=9),
        AnswerLine(key="carried", words=_again(card), rows=1, style="bold"),
    )
    yield from (line for line in lines if line.words)


def _beside(searched: SearchedCell, card: Card) -> str:
    """Other units of the carried load; why none is known, where none is."""
    trials, carried = count_of(card.sure.trials, "trial"), card.carried
    if carried is None:
        return sentence_case(f"{render(searched.answers[0].findings[0], 'short')}.")
    goal = goal_words(card.goal, card.goals_of, card.by) if card.goal else ""
    said = (goal, units_words(carried, card), peak_words(card), searched.subject, trials)
    return ", ".join(filter(None, said))


def _again(card: Card) -> str:
    """Load that is carried; where none is, the one that is too much."""
    end, sure = card.carried or card.too_much, card.sure.confidence
    values = {
        "rate": rate_words(end) if end else "",
        "open": card.too_much is None,
        "sure": f", {sure.level} confidence" if sure else "",
    }
    form = "sentence" if card.carried else "less" if end else "short"
    return render(Finding(code="terminal.again", values=values), form)


def _left_to_the_report(story: Story, searched: SearchedCell, card: Card) -> str:
    """How many caveats and actions stand in the report alone."""
    window = searched.window
    few_begin = window is not None and bool(window.begun_warning)
    doubts = sum(finding.code in DOUBTS for finding in searched.answers[0].findings)
    caveats = doubts + few_begin + len([*decoder_words(story), *sensor_words(story)])
    more = max(0, len(card.actions) - 1)
    form = "sentence" if caveats and more else "caveats" if caveats else "more"
    values = {"caveats": caveats, "more": more}
    return render(Finding(code="terminal.but", values=values), form) if caveats or more else ""


def print_in_short(cards: Sequence[Card]) -> None:
    """Loads of each cell, and what to do for the first."""
    for n, card in enumerate(cards[:MOST_CELLS]):
        say(f"{card.subject}  {count_of(card.sure.trials, 'trial')}")
        in_short = [*loads_lines(card), *(() if n else action_lines(card))]
        print_keyed(console(), card_lines(card) if len(cards) == 1 else in_short)
    if cards:
        say()


def print_sensor(story: Story) -> None:
    """Packets that the SUT did less work on, rules that it did not load."""
    said = (*decoder_words(story), *sensor_words(story))
    print_keyed(console(), [("sensor", words) for words in said])
