"""Inputs of the user that were not taken as they are: captures that were changed before they were
sent, rules that were not measured, keys of a yaml that were replaced."""

from __future__ import annotations

from collections.abc import Iterator

from nodrop.capacity.searched_cells import subject
from nodrop.config.units import count_of
from nodrop.report import escape, numbers
from nodrop.report.sentences import WORDS, Sentence, first_of, phrase, sentence_of
from nodrop.report.story import Story, once
from nodrop.report.trials import Sensor, Trial
from nodrop.results.summary import cell_key, idle_ports, not_whole
from nodrop.untrusted.json_text import list_in, table_in, tables_in

MOST_NAMED = 5
"""Rules in a sentence, keys in a line of a terminal."""
LOG = "engine.json"


def sensor_sentences(story: Story) -> Iterator[Sentence]:
    yield from trace_changes(story)
    found: dict[Sensor, list[Trial]] = {}
    for trial in story.trials:
        if (sensor := trial.aside.sensor) is not None:
            found.setdefault(sensor, []).append(trial)
    for sensor, trials in found.items():
        yield from _rules(sensor, tuple(trials))
        if sensor.yaml and sensor.replaced:
            changes = [
                f"{_plain(key)} ({_plain(was)} → {_plain(now)})"
                for key, was, now in sensor.replaced
            ]
            each = [dict(zip(("key", "was", "now"), row, strict=True)) for row in sensor.replaced]
            yield sentence_of(
                "yaml-replaced", {"yaml": sensor.yaml, "replaced": each}, trials,
                n=len(each), file=_plain(sensor.yaml), changes="; ".join(changes),
            )  # fmt: skip


def sensor_words(story: Story) -> list[str]:
    """For a terminal, whose reader has the page for more."""
    told = []
    for one in sensor_sentences(story):
        if one.rule != "yaml-replaced":
            told.append(f"{one.text}.")
            continue
        named = first_of([_plain(row["key"]) for row in one.evidence["replaced"]], MOST_NAMED)
        keys = count_of(len(one.evidence["replaced"]), "key")
        told.append(f"{keys} of {_plain(one.evidence['yaml'])} replaced: {named} (see Trust).")
    return [*dict.fromkeys(told)]


def trace_changes(story: Story) -> Iterator[Sentence]:
    """Sentences on changes made to captures before they were sent, and on oddities in them."""
    found: dict[str, str] = {}
    for source in story.sources:
        for load in tables_in(source.run.manifest, "loads"):
            for one in (table_in(load, "captured"), *tables_in(load, "ports")):
                for said in list_in(one, "words"):
                    trace = escape.plain(one.get("trace"), longest=1000).rpartition("/")[2]
                    found[escape.plain(f"{trace}: {said}", longest=1000)] = trace
    for said, trace in found.items():
        yield Sentence("trace-changed", said, {"trace": trace})


def _rules(sensor: Sensor, trials: tuple[Trial, ...]) -> Iterator[Sentence]:
    loaded, failed, skipped = sensor.rules_loaded, sensor.rules_failed, sensor.rules_skipped

    def said(words: str, **evidence: object) -> Sentence:
        return Sentence("rules-not-loaded", words, evidence, trials)

    if loaded is not None and failed:
        named = "; ".join(map(_plain, sensor.failed_first[:MOST_NAMED]))
        if (more := failed - len(sensor.failed_first[:MOST_NAMED])) > 0:
            named += f" and {numbers.count(more)} more, in {LOG} of each trial"
        words = phrase("rules-failed", failed=failed, of=loaded + failed, named=named)
        yield said(words, loaded=loaded, failed=failed, first=[*sensor.failed_first])
    if skipped:
        yield said(phrase("rules-skipped", n=skipped), loaded=loaded, skipped=skipped)
    if lacking := [*map(_plain, sensor.rules_lacking)]:
        words = phrase("rules-lacking", n=len(lacking), file=_plain(sensor.yaml),
                       named=first_of(lacking, MOST_NAMED))  # fmt: skip
        yield said(words, yaml=sensor.yaml, lacking=lacking)


def _plain(text: str | None) -> str:
    return "not there" if text is None else escape.plain(text)


@once
def decoder_sentences(story: Story) -> tuple[Sentence, ...]:
    measured: dict[str, list[Trial]] = {}
    for cell in story.cells:
        measured.setdefault(subject(story, cell), []).extend(cell.valid)
    said = []
    for whose, trials in measured.items():
        for about, rule in (("cut", "frames-cut"), ("invalid", "frames-invalid")):
            shares = [(t, not_whole(t.record).get(about)) for t in trials]
            found = [(t, share) for t, share in shares if share]
            if not found:
                continue
            worst, _ = max(found, key=lambda one: one[1])
            remark = next(r for r in worst.record.packets.remarks if r.about == about)
            books = [trial.record.packets for trial, _ in found]
            at_most = ", at the most" if len(found) > 1 else ""
            of = count_of(len(trials), "measured trial")
            text = f"{whose}: in {len(found)} of {of}{at_most}, "
            text += f"{escape.plain(remark.words, longest=1000)}: {WORDS['decoder'][about]}."
            evidence = {
                "packets": [getattr(one, f"{about}_packets") for one in books],
                "decoded_packets": [one.decoded_packets for one in books],
                "measured": len(trials),
            }
            knob = escape.plain(remark.knob, longest=1000)
            said.append(Sentence(rule, text, evidence, tuple(t for t, _ in found), whose, knob))
    return tuple(said)


def decoder_words(story: Story) -> list[str]:
    """For a terminal."""
    told = decoder_sentences(story)
    return [f"{one.text} What touches it: {one.knob}." if one.knob else one.text for one in told]


def without_work(story: Story) -> Iterator[Sentence]:
    """By cell, whatever loads a search offered it."""
    cells: dict[str, list[Trial]] = {}
    for trial in story.trials:
        if trial.valid and trial.record.packets.ports:
            cells.setdefault(cell_key(trial.record.cell), []).append(trial)
    told = [(idle_ports([t.record for t in trials]), trials) for trials in cells.values()]
    found = [(ports, trials) for ports, trials in told if ports]
    if found:
        ports = dict.fromkeys(escape.plain(port) for ports, _ in found for port in ports)
        evidence = {"idle": [ports for ports, _ in found], "cells": len(cells)}
        without = (t for _, trials in found for t in trials)
        named = " and ".join(ports)
        yield sentence_of("idle-port", evidence, without, ports=named, n=len(found))
