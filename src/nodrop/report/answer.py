"""The answer in sentences, what it rests on, and what it cannot say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodrop.capacity.cells import SearchedCell, given_cells, searches, subject
from nodrop.capacity.words import answer_sentences, cost_sentence
from nodrop.config.units import count_of
from nodrop.report import escape
from nodrop.report.comparison import cost_sentences, family_words
from nodrop.report.direct import direct_sentences
from nodrop.report.hosts import hosts_between
from nodrop.report.loads import (
    always_void,
    groups,
    ladders,
    load_words,
    nothing_above,
    sentences_of,
)
from nodrop.report.sensor import decoder_sentences, without_work
from nodrop.report.sentences import Sentence, listed
from nodrop.report.setups import conditions
from nodrop.report.story import Story, once, serious_findings
from nodrop.report.trials import Trial
from nodrop.report.trust import flows_differ, other_programs
from nodrop.report.watched import watched, watched_hidden, watched_sentences, watched_words
from nodrop.results.records import LoadWindow
from nodrop.stats.interval import runs_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    sentences: tuple[Sentence, ...]
    """The direct answer, and cells that are always void; what each search found; what each setup
    costs against the base; then those of each group of cells that differ in only in how much load
    there is."""
    rests_on: tuple[Sentence, ...]
    cannot_say: tuple[Sentence, ...]


@once
def answer(story: Story) -> Answer:
    if not story.trials and watched(story):
        return Answer(
            sentences=tuple(watched_sentences(story)),
            rests_on=tuple(watched_words(story)),
            cannot_say=(*watched_hidden(story), *_unreadable(story)),
        )
    if not story.trials:
        none = Sentence("no-trial", "No trial of this run can be read, so there is no answer.")
        return Answer(sentences=(none,), rests_on=(), cannot_say=tuple(_unreadable(story)))
    found, void = searches(story), always_void(story)
    planned = replace(story, cells=given_cells(story))
    searched = [sentence for one in found for sentence in answer_sentences(one)]
    always = {t.anchor for sentence in void for t in sentence.trials}
    loads = [
        sentence
        for one in ladders(planned.cells)
        for sentence in sentences_of(subject(story, one.cells[0]), one)
        # Loads whose void trials are a finding of their own need no other line.
        if sentence.rule not in ("load-void", "some-void")
        or not {t.anchor for t in sentence.trials} <= always
    ]
    if hosts_between(story):
        searched, loads = ([*map(_on_its_hosts, each)] for each in (searched, loads))
    costs = cost_sentences(conditions(planned))
    said = [*direct_sentences(story), *void, *searched, *costs, *loads, *decoder_sentences(story)]
    knobs: set[str] = set()
    for n, sentence in enumerate(said):  # a knob that touches several losses is named once
        said[n] = replace(sentence, knob="" if sentence.knob in knobs else sentence.knob)
        knobs.add(sentence.knob)
    return Answer(
        sentences=tuple(said),
        rests_on=tuple(_rests_on(story, found)),
        cannot_say=(*_unreadable(story), *_cannot_say(story, planned)),
    )


def _on_its_hosts(sentence: Sentence) -> Sentence:
    """Other pairs measured other cells."""
    pairs = sorted({escape.plain(t.pair) for t in sentence.trials if t.valid and t.pair})
    if not pairs:
        return sentence
    said = f"{sentence.text.removesuffix('.')} (measured by {listed(pairs)})."
    return replace(sentence, text=said)


def _rests_on(story: Story, found: Sequence[SearchedCell]) -> Iterator[Sentence]:
    measured = tuple(t for cell in story.cells for t in cell.valid)
    sizes = sorted({len(cell.valid) for cell in story.cells})
    per_cell = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    outcomes = Counter(t.outcome for t in story.trials)
    others = {outcome: outcomes[outcome] for outcome in ("failed", "void")}
    rest = "".join(f", {n} {outcome}" for outcome, n in others.items() if n)
    what = "load" if found else "cell"
    yield Sentence(
        "trials-counted",
        f"{count_of(len(measured), 'measured trial')} of {len(story.trials)}{rest} in "
        f"{count_of(len(story.cells), what)}, {per_cell} per {what}",
        {"trials": len(story.trials), "measured": len(measured), **others},
        measured,
    )
    yield _books(story)
    for compared in conditions(story)[:1]:
        family = compared.family
        evidence = {"parts": family.parts, "runs_needed": family.runs_needed()}
        yield Sentence("compared-at-once", family_words(family, story.cells), evidence)
    for one in found:
        yield from cost_sentence(one)


def _books(story: Story) -> Sentence:
    """For an imported run, what it brings along: by design it has no books of ours."""
    imported = [bool(source.run.manifest.get("imported_from")) for source in story.sources]
    there = [t for t in story.trials if t.has_books or imported[t.source]]
    closed = tuple(t for t in there if t.record.packets.books_closed)
    n = len(story.trials)
    words = f"packet books that close to zero in {len(closed)} of {count_of(n, 'trial')}"
    if len(there) < n:
        words += f"; of {n - len(there)} there are no books"
    return Sentence(
        "books-closed", words, {"trials": n, "closed": len(closed), "there": len(there)}, closed
    )


def _unreadable(story: Story) -> Iterator[Sentence]:
    for source in story.sources:
        for damage in source.damage:
            where, words = escape.plain(damage.where), escape.plain(damage.words)
            yield Sentence(
                "cannot-read",
                f"{source.name}: {where} cannot be read ({words})",
                {"run_directory": source.name, "file": where, "problem": words},
            )


def _cannot_say(story: Story, planned: Story) -> Iterator[Sentence]:
    yield from _too_few(planned)
    if between := hosts_between(story):
        yield between
    yield from _not_measured(story)
    yield from _not_tried(planned)
    others = other_programs(story)
    if others.crowded:
        yield Sentence(
            "quiet-host",
            "how a quiet host does: other programs competed for "
            f"{others.whole} (up to {max(others.ratios) * 100:.0f} %; {others.words})",
            {"most_ratio": max(others.ratios), "trials": len(others.ratios)},
            others.crowded,
        )
    yield from _beyond_windows(story)
    yield from without_work(story)
    for words in serious_findings(story):
        yield Sentence("serious-finding", words)
    yield from flows_differ(story)
    yield Sentence(
        "not-extrapolated",
        "other hosts, other CPU counts and other traces: nothing is extrapolated",
    )
    emulated = tuple(t for t in story.trials if t.accelerator == "tcg")
    if emulated:
        ran = "trial ran in a guest" if len(emulated) == 1 else "trials ran in guests"
        yield Sentence(
            "emulated",
            f"what KVM costs: {len(emulated)} {ran} under software emulation (TCG)",
            {"trials": len(emulated)},
            emulated,
        )


def _beyond_windows(story: Story) -> Iterator[Sentence]:
    found: dict[str, tuple[LoadWindow, list[Trial]]] = {}
    for trial in story.trials:
        if (window := trial.record.window) is not None:
            key = f"{window.trace_packets} {window.span}"
            found.setdefault(key, (window, []))[1].append(trial)
    for window, trials in found.values():
        if not window.is_whole:
            yield Sentence(
                "beyond-window",
                f"the rest of the trace: the load sends {window.name}, {window.beside_trace}",
                window.model_dump(),
                tuple(trials),
            )
        if window.begun_warning:
            yield Sentence(
                "few-flows-begin",
                f"how a sensor does that saw the flows begin: {window.begun_warning}",
                {"begun_packet_ratio": window.begun_packet_ratio},
                tuple(trials),
            )


def _too_few(story: Story) -> Iterator[Sentence]:
    """Cells of which no interval of a median exists."""
    needed = runs_needed()
    together = [c for c in story.cells if c.starts < needed <= len(c.valid)]
    no_interval, range_alone = "no 95 % interval", "exists for them, only the range of the runs"
    for rule, cells, name, of, words in (
        (
            "too-few-for-an-interval", [c for c in story.cells if 0 < len(c.valid) < needed],
            "cells", lambda c: len(c.valid),
            f"with fewer than {needed} measured trials: {no_interval} {range_alone}",
        ),
        (
            "too-few-hosts", [c for c in together if len(c.pairs) > 1],
            "hosts", lambda c: [*c.pairs],
            f"that fewer than {needed} hosts measured, each of which counts once: {no_interval} of "
            f"a median {range_alone}; that of a mean of such hosts stands in Hosts",
        ),
        (
            "too-few-starts", [c for c in together if len(c.pairs) < 2],
            "starts", lambda c: c.starts,
            f"whose measured trials share fewer than {needed} starts of the SUT: {no_interval} "
            f"{range_alone}",
        ),
    ):  # fmt: skip
        if cells:
            yield Sentence(
                rule,
                f"{count_of(len(cells), 'cell')} {words}",
                {"needed": needed, name: {c.label: of(c) for c in cells}},
                tuple(t for c in cells for t in c.valid),
            )


def _not_measured(story: Story) -> Iterator[Sentence]:
    void = tuple(t for t in story.trials if t.outcome == "void")
    if void:
        says, enter = ("says", "enters") if len(void) == 1 else ("say", "enter")
        yield Sentence(
            "void-says-nothing",
            f"{count_of(len(void), 'void trial')} {says} nothing of the SUT and {enter} no figure",
            {"void": len(void)},
            void,
        )
    failed = tuple(t for t in story.trials if t.outcome == "failed")
    if failed:
        count, enter = ("counts", "enters") if len(failed) == 1 else ("count", "enter")
        yield Sentence(
            "failed-in-no-figure",
            f"how much was lost in {count_of(len(failed), 'failed trial')}, which {count} "
            f"against the load and {enter} no figure of loss, CPU or memory",
            {"failed": len(failed)},
            failed,
        )


def _not_tried(story: Story) -> Iterator[Sentence]:
    tops = [(cells, top) for cells in groups(story.cells) if (top := nothing_above(cells))]
    if tops:
        whose = [subject(story, cells[0]) for cells, _ in tops]
        highest = ", ".join(dict.fromkeys(load_words(top) for _, top in tops))
        yield Sentence(
            "beyond-not-tried",
            f"where loss begins for {', '.join(whose)}: nothing above {highest} was asked for",
            {w: top.offered_pps for w, (_, top) in zip(whose, tops, strict=True)},
            tuple(t for _, top in tops for t in top.known),
        )
