"""What came in at each port of a SUT that captures on several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nodrop.report import escape, numbers
from nodrop.report.tables import Column, Row, Table, Value, text
from nodrop.report.trials import Trial
from nodrop.results.packets import Port


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
            Column(name="share_pct", title="Share, %", numeric=True),
            *(Column(name=f"{n}_packets", title=t, numeric=True) for n, t in figures.items()),
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


def _name(trace: str | None) -> Value:
    return Value(raw=trace, shown=escape.plain(Path(trace or "").name, longest=60))


def _count(packets: int | None) -> Value:
    return Value(raw=packets, shown=numbers.count(packets))


def _share(packets: int, ports: Sequence[Port]) -> Value:
    every = sum(port.received_packets for port in ports)
    ratio = packets / every if every else 0.0
    return Value(raw=ratio * 100, shown=numbers.percent(ratio))
