"""Packets that came in at each port of a SUT that captures on several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nodrop.report import escape, numbers
from nodrop.report import sentences as rules
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.report.trials import Trial
from nodrop.results.packets import Port
from nodrop.results.summary import cell_key, idle_ports


def ports_table(models: Mapping[str, Trial]) -> Table:
    """By the names of the models, each with a trial of its own."""
    named = any(p.trace for trial in models.values() for p in trial.record.packets.ports)
    figures = {"received": "Received", "captured": "Captured", "dropped": "Dropped"}
    return Table(
        name="ports",
        title="What came in at each port",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="run", title="Run"),
            Column(name="port", title="Port"),
            *([Column(name="trace", title="Trace")] if named else []),
            numeric("share_pct", "Share, %"),
            *(numeric(f"{n}_packets", t) for n, t in figures.items()),
        ),
        rows=tuple(
            Row(
                anchor=trial.anchor,
                values=(
                    text(model),
                    text(trial.name),
                    text(port.port),
                    *([_name(port.trace)] if named else []),
                    _share(port.received_packets, trial.record.packets.ports),
                    *(_count(getattr(port, f"{name}_packets")) for name in figures),
                ),
            )
            for model, trial in models.items()
            for port in trial.record.packets.ports
        ),
    )


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
        rule=rules.IDLE_PORT,
        text=f"what several ports carry: {' and '.join(ports)} received nothing, and the threads "
        f"there had no work, in {len(found)} of {plural(len(cells), 'cell')} with several ports",
        evidence={"idle": list(found.values()), "cells": len(cells)},
        trials=tuple(t for key in found for t in cells[key]),
    )


def _name(trace: str | None) -> Value:
    return Value(raw=trace, shown=escape.plain(Path(trace or "").name, longest=60))


def _count(packets: int | None) -> Value:
    return Value(raw=packets, shown=numbers.count(packets))


def _share(packets: int, ports: Sequence[Port]) -> Value:
    every = sum(port.received_packets for port in ports)
    ratio = packets / every if every else 0.0
    return Value(raw=ratio * 100, shown=numbers.percent(ratio))
