"""The answer in sentences, what it rests on, and what it cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from nodrop.report import escape, numbers
from nodrop.report.comparison import cost_sentences
from nodrop.report.other_programs import other_programs
from nodrop.report.setups import conditions
from nodrop.report.stored import serious_findings
from nodrop.report.story import Cell, Story
from nodrop.stats.interval import Summary, runs_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    text: str
    subject: str = ""
    """What the text begins with, where several sentences must be told apart at a glance."""
    knob: str = ""
    """What touches the loss it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    sentences: tuple[Sentence, ...]
    """What each setup costs against the base, then one per group of cells that differ in nothing
    but the load."""
    rests_on: tuple[str, ...]
    cannot_say: tuple[str, ...]


def answer(story: Story) -> Answer:
    if not story.trials:
        return Answer(
            sentences=(Sentence(text="No trial of this run can be read, so there is no answer."),),
            rests_on=(),
            cannot_say=_unreadable(story),
        )
    groups = [list(cells) for _, cells in groupby(story.cells, key=lambda c: (c.source, c.group))]
    return Answer(
        sentences=(
            *(
                Sentence(subject=subject, text=text)
                for subject, text in cost_sentences(conditions(story))
            ),
            *_knobs_once(_sentence(_subject(story, cells[0]), cells) for cells in groups),
        ),
        rests_on=_rests_on(story),
        cannot_say=(*_unreadable(story), *_cannot_say(story)),
    )


def _knobs_once(sentences: Iterable[Sentence]) -> Iterator[Sentence]:
    """What touches several losses is said at the first of them."""
    said = set()
    for sentence in sentences:
        yield replace(sentence, knob="" if sentence.knob in said else sentence.knob)
        said.add(sentence.knob)


def _subject(story: Story, cell: Cell) -> str:
    if cell.group:
        return cell.group
    names = story.sources[cell.source].sut_names
    return escape.plain(names[0]).capitalize() if len(names) == 1 else "The SUT"


def _sentence(subject: str, cells: Sequence[Cell]) -> Sentence:
    judged = sorted((c for c in cells if c.valid), key=lambda c: c.offered_pps or 0.0)
    if not judged:
        reasons = sorted({code for c in cells for code in c.invalid_reasons})
        why = ", ".join(map(escape.plain, reasons))
        return Sentence(subject=subject, text=f"{subject}: no trial was valid ({why}).")
    judged = [c for c in judged if c.loss is not None]
    if not judged:
        text = f"{subject}: the loss is not known, for the packet books do not close."
        return Sentence(subject=subject, text=text)
    first_lossy = next((i for i, c in enumerate(judged) if c.lossy), None)
    if first_lossy is None:
        return Sentence(subject=subject, text=_never_lost(subject, judged))
    worst = judged[first_lossy]
    lossy = f"at {_load(worst)}, {_loss_words(worst)}"
    if first_lossy:
        text = f"{subject} carries {_load(judged[first_lossy - 1])} without loss; {lossy}."
    elif len(judged) > 1:
        text = f"{subject} loses packets already at the lowest load offered: {lossy}."
    else:
        text = f"{subject}: {lossy}."
    return Sentence(subject=subject, text=text, knob=escape.plain(worst.loss_example.record.knob))


def _never_lost(subject: str, judged: Sequence[Cell]) -> str:
    best = judged[-1]
    said = f"{subject} carries {_load(best)} without loss"
    if len(judged) > 1:
        said += ", the most that was offered"
    return f"{said}: what it carries beyond that was not tried."


def _load(cell: Cell) -> str:
    pps = cell.offered_pps
    rate = f"{numbers.count(pps)} packets/s" if pps is not None else "the load"
    return f"{cell.load_label} ({rate})" if cell.load_label else rate


def _loss_words(cell: Cell) -> str:
    loss = cell.loss
    if loss is None:
        return "the loss is not known"
    place = f" in the {escape.plain(cell.loss_place)}" if cell.loss_place else ""
    if cell.lossy < len(cell.valid):
        lose = "loses" if cell.lossy == 1 else "lose"
        most = numbers.percent(loss.high)
        return f"{cell.lossy} of {len(cell.valid)} trials {lose} packets{place} (at most {most} %)"
    return f"{percent_with_interval(loss)} are lost{place}{_why(cell)}"


def _why(cell: Cell) -> str:
    """A guess is called by its evidence: the thread that had no time, the host that was busy."""
    cause = cell.loss_example.record.loss_cause
    return f": {escape.plain(cause)}" if cause else ""


def percent_with_interval(loss: Summary) -> str:
    """`3.10 % [2.81, 3.52]`; without an interval the range of the runs, called that."""
    said = f"{numbers.percent(loss.median)} %"
    if loss.interval:
        low, high = loss.interval.low, loss.interval.high
        return f"{said} {numbers.between(low, high, numbers.percent)}"
    if loss.n == 1:
        return f"{said} (one run)"
    smallest, largest = numbers.percent(loss.low), numbers.percent(loss.high)
    return f"{said} ({smallest} to {largest} in {loss.n} runs)"


def _rests_on(story: Story) -> tuple[str, ...]:
    valid = sum(len(cell.valid) for cell in story.cells)
    sizes = sorted({len(cell.valid) for cell in story.cells})
    per_cell = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    found = [
        f"{_plural(valid, 'valid trial')} of {len(story.trials)} in "
        f"{_plural(len(story.cells), 'cell')}, {per_cell} per cell"
    ]
    closed = sum(1 for t in story.trials if t.record.books_closed)
    found.append(f"packet books that close to zero in {closed} of {len(story.trials)} trials")
    return tuple(found)


def _unreadable(story: Story) -> tuple[str, ...]:
    return tuple(
        f"{source.name}: {escape.plain(d.where)} cannot be read ({escape.plain(d.words)})"
        for source in story.sources
        for d in source.damage
    )


def _cannot_say(story: Story) -> tuple[str, ...]:
    found = []
    needed = runs_needed()
    few = [c for c in story.cells if 0 < len(c.valid) < needed]
    if few:
        found.append(
            f"{_plural(len(few), 'cell')} with fewer than {needed} valid trials: no 95 % interval "
            "exists for them, only the range of the runs"
        )
    invalid = [t for t in story.trials if not t.record.valid]
    if invalid:
        said, enter = ("says", "enters") if len(invalid) == 1 else ("say", "enter")
        found.append(
            f"{_plural(len(invalid), 'invalid trial')} {said} nothing about the SUT and "
            f"{enter} no figure"
        )
    others = other_programs(story)
    if others.crowded:
        found.append(
            "how a quiet host does: other programs competed for its CPUs "
            f"(up to {max(others.ratios) * 100:.0f} %; {others.words})"
        )
    found += serious_findings(story)
    found.append("other hosts, other CPU counts and other traces: nothing is extrapolated")
    emulated = sum(1 for t in story.trials if t.record.accelerator == "tcg")
    if emulated:
        ran = "trial ran in a guest" if emulated == 1 else "trials ran in guests"
        found.append(f"what KVM costs: {emulated} {ran} under software emulation (TCG)")
    return tuple(found)


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
