"""The answer in sentences, what it rests on, and what it cannot say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nodrop.capacity.searched_cells import SearchedCell, given_cells, searches
from nodrop.capacity.words import answer_sentences, cost_sentence
from nodrop.config.units import count_of
from nodrop.report import escape, numbers
from nodrop.report.comparison import cost_sentences, family_words
from nodrop.report.direct import direct_sentences
from nodrop.report.hosts import hosts_between
from nodrop.report.loads import always_void, ladders, load_words, sentences_of
from nodrop.report.sections import sections, unusable
from nodrop.report.sentences import AnswerText, Sentence, listed, sentence_of
from nodrop.report.setups import compared_at_once, conditions
from nodrop.report.story import RunCell, Story, by_key, once
from nodrop.report.trust import decoder_sentences, flows_differ, other_programs, without_work
from nodrop.stats.interval import runs_needed
from nodrop.untrusted.json_text import tables_in

NO_TRIAL = AnswerText(sentences=(sentence_of("no-trial"),))


@once
def answer(story: Story) -> AnswerText:
    """The direct answer, and cells that are always void; what each search found; what each setup
    costs against the base; then those of each group of cells that differ in only in how much load
    there is. Without a trial, what a section says."""
    if not story.trials:
        told = next(filter(None, (section.answer(story) for section in sections())), NO_TRIAL)
        return replace(told, cannot_say=(*told.cannot_say, *_unreadable(story)))
    found, void = searches(story), always_void(story)
    planned = replace(story, cells=given_cells(story))
    searched = [sentence for one in found for sentence in answer_sentences(one)]
    always = {t.anchor for sentence in void for t in sentence.trials}
    loads = [
        sentence
        for ladder in ladders(story)
        for sentence in sentences_of(ladder)
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
    return AnswerText(
        sentences=tuple(said),
        rests_on=tuple(_rests_on(story, found)),
        cannot_say=(*_unreadable(story), *_cannot_say(story, planned)),
    )


def _on_its_hosts(sentence: Sentence) -> Sentence:
    """The sentence with the hosts that its trials ran on: other pairs measured other cells."""
    pairs = sorted({escape.plain(t.pair) for t in sentence.trials if t.valid and t.pair})
    if not pairs:
        return sentence
    said = f"{sentence.text.removesuffix('.')} (measured by {listed(pairs)})."
    return replace(sentence, text=said)


def _rests_on(story: Story, cells: Sequence[SearchedCell]) -> Iterator[Sentence]:
    measured = tuple(t for cell in story.cells for t in cell.valid)
    per_cell = numbers.least_to_most(len(cell.valid) for cell in story.cells)
    outcomes = Counter(t.outcome for t in story.trials)
    others = {outcome: outcomes[outcome] for outcome in ("failed", "void")}
    rest = "".join(f", {n} {outcome}" for outcome, n in others.items() if n)
    noun = "load" if cells else "cell"
    yield sentence_of(
        "trials-counted",
        {"trials": len(story.trials), "measured": len(measured), **others},
        measured,
        rest=rest, cells=count_of(len(story.cells), noun), each=f"{per_cell} per {noun}",
    )  # fmt: skip
    yield _books(story)
    if conditions(story):
        family = compared_at_once(story)
        evidence = {"parts": family.parts, "runs_needed": family.runs_needed()}
        yield Sentence("compared-at-once", family_words(family, story.cells), evidence)
    yield from map(cost_sentence, cells)


def _books(story: Story) -> Sentence:
    """The sentence on the books. An imported run has what it brings along: by design it has no
    books of ours."""
    if story.answered:
        whole = tuple(t for t in story.trials if t.closed)
        evidence = {"trials": len(story.trials), "closed": len(whole)}
        return sentence_of("classes-closed", evidence, whole)
    imported = [bool(source.run.manifest.get("imported_from")) for source in story.sources]
    there = [t for t in story.trials if t.has_books or imported[t.source]]
    closed = tuple(t for t in there if t.record.packets.books_closed)
    evidence = {"trials": len(story.trials), "closed": len(closed), "there": len(there)}
    missing = len(story.trials) - len(there)
    none = f"; of {missing} there are no books" if missing else ""
    return sentence_of("books-closed", evidence, closed, none=none)


def _unreadable(story: Story) -> Iterator[Sentence]:
    for error in unusable():
        words = escape.plain(error.message, longest=1000)
        yield sentence_of("part-missing", {"problem": words})
    for source in story.sources:
        for damage in source.run.all_damage:
            where, words = escape.plain(damage.where), escape.plain(damage.words)
            evidence = {"run_directory": source.name, "file": where, "problem": words}
            yield sentence_of("cannot-read", evidence)


def _cannot_say(story: Story, planned: Story) -> Iterator[Sentence]:
    yield from _too_few(planned)
    if between := hosts_between(story):
        yield between
    for rule, outcome in (("void-says-nothing", "void"), ("failed-in-no-figure", "failed")):
        if trials := [t for t in story.trials if t.outcome == outcome]:
            yield sentence_of(rule, {outcome: len(trials)}, trials)
    if tops := [
        (ladder.subject, top) for ladder in ladders(story) if (top := ladder.nothing_above)
    ]:
        highest = ", ".join(dict.fromkeys(load_words(top) for _, top in tops))
        evidence, whose = {w: top.offered_pps for w, top in tops}, ", ".join(w for w, _ in tops)
        known = (t for _, top in tops for t in top.known)
        yield sentence_of("beyond-not-tried", evidence, known, whose=whose, highest=highest)
    others = other_programs(story)
    if others.crowded:
        evidence = {"most_ratio": max(others.ratios), "trials": len(others.ratios)}
        yield sentence_of("quiet-host", evidence, others.crowded, others=others)
    yield from _beyond_windows(story)
    yield from without_work(story)
    # Conclusions that imported figures must not be used for.
    stored = (source.run.beside("findings") for source in story.sources)
    for item in (one for found in stored for one in tables_in(found, "findings")):
        if item.get("severity") == "serious":
            words = f"{item.get('title')}: {item.get('effect')}".rstrip(".")
            yield Sentence("serious-finding", escape.plain(words, longest=1000))
    yield from flows_differ(story)
    yield sentence_of("not-extrapolated")
    if emulated := [t for t in story.trials if t.accelerator == "tcg"]:
        yield sentence_of("emulated", {"trials": len(emulated)}, emulated)


def _beyond_windows(story: Story) -> Iterator[Sentence]:
    told = ((trial.record.window, trial) for trial in story.trials)
    found = by_key((f"{w.trace_packets} {w.span}", (w, trial)) for w, trial in told if w)
    for each in found.values():
        window, trials = each[0][0], [trial for _, trial in each]
        if not window.is_whole:
            yield sentence_of("beyond-window", window.model_dump(), trials, window=window)
        if window.begun_warning:
            evidence = {"begun_packet_ratio": window.begun_packet_ratio}
            yield sentence_of("few-flows-begin", evidence, trials, warning=window.begun_warning)


def _too_few(story: Story) -> Iterator[Sentence]:
    """Cells of which no interval of a median exists."""
    needed = runs_needed()
    together = [c for c in story.cells if c.starts < needed <= len(c.valid)]
    found: tuple[tuple[str, list[RunCell], str, Callable[[RunCell], object]], ...] = (
        ("too-few-for-an-interval", [c for c in story.cells if 0 < len(c.valid) < needed],
         "cells", lambda c: len(c.valid)),
        ("too-few-hosts", [c for c in together if len(c.pairs) > 1],
         "hosts", lambda c: [*c.pairs]),
        ("too-few-starts", [c for c in together if len(c.pairs) < 2],
         "starts", lambda c: c.starts),
    )  # fmt: skip
    for rule, cells, name, of in found:
        if cells:
            evidence = {"needed": needed, name: {c.label: of(c) for c in cells}}
            yield sentence_of(rule, evidence, (t for c in cells for t in c.valid), n=len(cells))
