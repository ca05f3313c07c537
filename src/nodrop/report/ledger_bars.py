"""Where the packets of each setup went: one bar per setup and condition, in shares of what was
sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nodrop.report import numbers
from nodrop.report.charts import Bar, Part
from nodrop.report.setups import Condition, Place
from nodrop.report.story import Cell
from nodrop.report.tables import Column, Row, Table, Value, numeric, text

DECODED, MERGED, HELD, RESIDUAL = "decoded", "merged", "held, never whole", "residual"
MOST_PLACES = 6
"""Styles of losses go round after so many places of loss."""


def ledger_bars(found: Sequence[Condition]) -> list[Bar]:
    lost = _lost_places(found)
    return [
        bar
        for condition in found
        for place in condition.places
        if (bar := _bar(condition, place, lost)) is not None
    ]


def _lost_places(found: Sequence[Condition]) -> list[str]:
    """The same for all setups: a place looks alike in every bar."""
    names = {name for c in found for p in c.places for name in shares(p)}
    return sorted(names - {DECODED, MERGED, HELD, RESIDUAL})


def shares(place: Place) -> dict[str, int]:
    """Packets of all measured trials by what became of them; empty if no books closed."""
    if shares not in place.cell.kept:
        place.cell.kept[shares] = _fates(place.cell)
    found: dict[str, int] = place.cell.kept[shares]
    return found


def _fates(cell: Cell) -> dict[str, int]:
    total: Counter[str] = Counter()
    for trial in cell.valid:
        r = trial.record
        if r.packets.decoded_packets is None or not r.offered.sent:
            continue
        held = r.packets.merged_detail.held_packets if r.packets.merged_detail else 0
        total[DECODED] += r.packets.decoded_packets
        total[MERGED] += (r.packets.merged_packets or 0) - held
        total[HELD] += held
        total.update({f"lost: {name}": n for name, n in r.packets.lost_by_place.items()})
        total[RESIDUAL] += abs(r.packets.residual_packets or 0)
    return {name: n for name, n in total.items() if n}


def _bar(condition: Condition, place: Place, lost: Sequence[str]) -> Bar | None:
    found = shares(place)
    whole = sum(found.values())
    if not whole:
        return None
    order = [DECODED, MERGED, HELD, *lost, RESIDUAL]
    parts = tuple(
        Part(
            kind=name,
            value=found[name] / whole * 100,
            says=f"{place.name}{_at(condition)}: {numbers.count(found[name])} of "
            f"{numbers.count(whole)} packets {name} ({numbers.percent(found[name] / whole)} %), "
            f"all measured trials together",
            style=_style(name, lost),
        )
        for name in order
        if found.get(name)
    )
    return Bar(name=place.name, parts=parts, words=_words(found, whole), group=condition.label)


def _at(condition: Condition) -> str:
    return f" at {condition.label}" if condition.label else ""


def _words(found: dict[str, int], whole: int) -> str:
    """What was lost first, for that is looked for. With a residual nothing can be said of it."""
    if residual := found.get(RESIDUAL):
        return f"residual {numbers.percent(residual / whole)} %: no verdict on loss"
    names = sorted(found, key=lambda name: (not name.startswith("lost"), -found[name]))
    lost = [n for n in names if n.startswith("lost")]
    said = [f"{n.removeprefix('lost: ')} {numbers.percent(found[n] / whole)} %" for n in lost]
    return f"lost: {', '.join(said)}" if said else "nothing lost"


def _style(name: str, lost: Sequence[str]) -> str:
    fixed = {DECODED: "p-decoded", MERGED: "p-merged", HELD: "p-held", RESIDUAL: "p-residual"}
    return fixed.get(name) or f"p-lost{lost.index(name) % MOST_PLACES}"


def ledger_bars_table(found: Sequence[Condition]) -> Table:
    return Table(
        name="setups-ledger",
        title="Where the packets went",
        columns=(
            Column(name="condition", title="Condition"),
            Column(name="setup", title="Setup"),
            Column(name="fate", title="What became of them"),
            numeric("packets", "Packets"),
        ),
        rows=tuple(_rows(found)),
    )


def _rows(found: Sequence[Condition]) -> Iterable[Row]:
    for condition in found:
        for place in condition.places:
            for name, n in shares(place).items():
                packets = Value(raw=n, shown=numbers.count(n))
                yield Row(values=(text(condition.label), text(place.name), text(name), packets))
