"""Inputs of the user that were not taken as they are: captures that were changed before they were
sent, rules that were not measured, keys of a yaml that were replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodrop.capacity.cells import subject
from nodrop.report import escape, numbers
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story, once
from nodrop.report.tables import Column, Field, Table, Value, number, table_of, words
from nodrop.report.trials import Sensor, Trial
from nodrop.results.records import Port, Remark
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
        yield from _yaml(sensor, tuple(trials))


def sensor_words(story: Story) -> list[str]:
    """For a terminal, whose reader has the page for more."""
    told = []
    for one in sensor_sentences(story):
        if one.rule != "yaml-replaced":
            told.append(f"{one.text}.")
            continue
        keys = [_plain(row["key"]) for row in one.evidence["replaced"]]
        more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
        named = f"{', '.join(keys[:MOST_NAMED])}{more}"
        told.append(
            f"{plural(len(keys), 'key')} of {_plain(one.evidence['yaml'])} replaced: {named} "
            "(see Trust)."
        )
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
    loaded, failed = sensor.rules_loaded, sensor.rules_failed
    if loaded is not None and failed:
        named = "; ".join(map(_plain, sensor.failed_first[:MOST_NAMED]))
        more = failed - len(sensor.failed_first[:MOST_NAMED])
        beyond = f" and {numbers.count(more)} more, in {LOG} of each trial" if more > 0 else ""
        did = "did not load and is" if failed == 1 else "did not load and are"
        yield Sentence(
            "rules-not-loaded",
            f"{numbers.count(failed)} of {numbers.count(loaded + failed)} rules {did} not "
            f"measured: {named}{beyond}",
            {"loaded": loaded, "failed": failed, "first": [*sensor.failed_first]},
            trials,
        )
    if sensor.rules_skipped:
        yield Sentence(
            "rules-not-loaded",
            f"{plural(sensor.rules_skipped, 'rule')} skipped by Suricata for want of what "
            "they require",
            {"loaded": loaded, "skipped": sensor.rules_skipped},
            trials,
        )
    if sensor.rules_lacking:
        lacking = [*map(_plain, sensor.rules_lacking)]
        is_are = "is" if len(lacking) == 1 else "are"
        yield Sentence(
            "rules-not-loaded",
            f"rule-files of {_plain(sensor.yaml)} names what {is_are} not there, and was not "
            f"measured: {', '.join(lacking[:MOST_NAMED])}"
            + (f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""),
            {"yaml": sensor.yaml, "lacking": lacking},
            trials,
        )


def _yaml(sensor: Sensor, trials: tuple[Trial, ...]) -> Iterator[Sentence]:
    if not sensor.yaml or not sensor.replaced:
        return
    listed = "; ".join(
        f"{_plain(key)} ({_plain(was)} → {_plain(now)})" for key, was, now in sensor.replaced
    )
    yield Sentence(
        "yaml-replaced",
        f"{plural(len(sensor.replaced), 'key')} of {_plain(sensor.yaml)} replaced, and all "
        f"others kept: {listed}",
        {
            "yaml": sensor.yaml,
            "replaced": [{"key": key, "was": was, "now": now} for key, was, now in sensor.replaced],
        },
        trials,
    )


def _plain(text: str | None) -> str:
    return "not there" if text is None else escape.plain(text)


MEANS = {
    "cut": "no packet is lost by that, so it does not decide whether a load is carried; but what "
    "was cut off is not inspected",
    "invalid": "they count as carried, though most of the work on such a packet is not done",
}


@once
def decoder_sentences(story: Story) -> tuple[Sentence, ...]:
    return tuple(_sentences(story))


def _sentences(story: Story) -> Iterator[Sentence]:
    measured: dict[str, list[Trial]] = {}
    for cell in story.cells:
        measured.setdefault(subject(story, cell), []).extend(cell.valid)
    for whose, trials in measured.items():
        for about, rule in (("cut", "frames-cut"), ("invalid", "frames-invalid")):
            found = [(t, share) for t in trials if (share := not_whole(t.record).get(about))]
            if found:
                worst, share = max(found, key=lambda one: one[1])
                remark = next(r for r in worst.record.packets.remarks if r.about == about)
                yield _sentence(whose, about, rule, remark, [t for t, _ in found], len(trials))


def _sentence(
    whose: str, about: str, rule: str, remark: Remark, trials: list[Trial], measured: int
) -> Sentence:
    books = [trial.record.packets for trial in trials]
    worst = ", at the most" if len(trials) > 1 else ""
    return Sentence(
        rule,
        f"{whose}: in {len(trials)} of {plural(measured, 'measured trial')}{worst}, "
        f"{escape.plain(remark.words, longest=1000)}: {MEANS[about]}.",
        {
            "packets": [b.cut_packets if about == "cut" else b.invalid_packets for b in books],
            "decoded_packets": [b.decoded_packets for b in books],
            "measured": measured,
        },
        tuple(trials),
        subject=whose,
        knob=escape.plain(remark.knob, longest=1000),
    )


def decoder_words(story: Story) -> list[str]:
    """For a terminal."""
    return [
        f"{one.text} What touches it: {one.knob}." if one.knob else one.text
        for one in decoder_sentences(story)
    ]


PortRow = tuple[str, Trial, Port]
PORT_FIELDS: tuple[Field[PortRow], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    words("run", "Run", lambda x: x[1].name),
    words("port", "Port", lambda x: x[2].port),
    Field(Column("trace", "Trace"), lambda x: _name(x[2].trace)),
    number("share_pct", "Share, %", lambda x: _share(x[2], x[1]), numbers.percent, scale=100),
    number("received_packets", "Received", lambda x: x[2].received_packets),
    number("captured_packets", "Captured", lambda x: x[2].captured_packets),
    number("dropped_packets", "Dropped", lambda x: x[2].dropped_packets),
)


def ports_table(models: Mapping[str, Trial]) -> Table:
    """By the names of the models, each with a trial of its own."""
    rows = [(name, trial, p) for name, trial in models.items() for p in trial.record.packets.ports]
    named = any(port.trace for _, _, port in rows)
    fields = [one for one in PORT_FIELDS if named or one.column.name != "trace"]
    title = "What came in at each port"
    return table_of("ports", title, fields, rows, anchor=lambda x: x[1].anchor)


def without_work(story: Story) -> Iterator[Sentence]:
    """By cell, whatever loads a search offered it."""
    cells: dict[str, list[Trial]] = {}
    for trial in story.trials:
        if trial.valid and trial.record.packets.ports:
            cells.setdefault(cell_key(trial.record.cell), []).append(trial)
    idle = {key: idle_ports([t.record for t in trials]) for key, trials in cells.items()}
    found = {key: ports for key, ports in idle.items() if ports}
    if not found:
        return
    ports = [*dict.fromkeys(escape.plain(port) for ports in found.values() for port in ports)]
    yield Sentence(
        "idle-port",
        f"what several ports carry: {' and '.join(ports)} received nothing, and the threads "
        f"there had no work, in {len(found)} of {plural(len(cells), 'cell')} with several ports",
        {"idle": list(found.values()), "cells": len(cells)},
        tuple(t for key in found for t in cells[key]),
    )


def _name(trace: str | None) -> Value:
    return Value(trace, escape.plain(Path(trace or "").name, longest=60))


def _share(port: Port, trial: Trial) -> float:
    every = sum(one.received_packets for one in trial.record.packets.ports)
    return port.received_packets / every if every else 0.0
