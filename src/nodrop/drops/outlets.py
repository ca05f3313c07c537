"""A watch in words: lines for a pipe, a view for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nodrop.config.units import count_of
from nodrop.drops.capture_books import AccountRange, Balance
from nodrop.drops.headroom_words import before_words, clock, headroom_words, percent
from nodrop.drops.places import PlaceTotal, thread_shares, unit
from nodrop.drops.watching import DropsInterval, oldest_ms
from nodrop.results.other_records import BlindPort
from nodrop.sensor.blind import BLIND

NOT_VISIBLE = "not visible"
SPARKS = "▁▂▃▄▅▆▇█"
MOST_THREADS = 3


def number(bounds: AccountRange | None) -> str:
    """One number where both readings agree."""
    if bounds is None:
        return NOT_VISIBLE
    if bounds.low == bounds.high:
        return f"{bounds.low:,}"
    return f"{bounds.low:,}…{bounds.high:,}"


def lines(found: DropsInterval) -> Iterator[str]:
    """An interval for a pipe: one line a program, one a place that lost, one a note."""
    at = clock(found.real_ns)
    for note in found.notes:
        yield f"{at} {note}"
    for one in found.ended:
        if one.ended_real_ns == found.real_ns:
            yield f"{at} (ended) {capture_line(one, found)}{unsaid(one)}"
    for one in found.balances:
        yield f"{at} {capture_line(one, found)}"
        yield from (f"{at}   {member_line(member, found)}" for member in one.members)
    for row in found.rows:
        if row.rate_pps:
            yield f"{at} {row_line(row)}"


def capture_line(one: Balance, found: DropsInterval) -> str:
    reading = one.reading
    words = [
        f"{reading.port_name}: {number(one.offered)} came",
        *([f"{number(one.merged)} merged"] if reading.taken is not None else []),
        f"{reading.name}: {'at least ' if one.at_least else ''}{number(one.arrived)} arrived"
        f"{waited_before(one)}",
        f"{dropped_words(one)} dropped",
        f"{number(one.waiting)} wait{filled(one, found)}",
        f"{number(one.read)} read",
        *level_words(one, found),
        closing(one),
    ]
    if cpu := cpu_words(one):
        words.append(cpu)
    return ", ".join(words)


def member_line(one: Balance, found: DropsInterval) -> str:
    """Packets of one process of a fanout group: those of its own sockets."""
    words = [
        f"{one.reading.name}: {'at least ' if one.at_least else ''}{number(one.arrived)} arrived",
        f"{dropped_words(one)} dropped",
        f"{number(one.waiting)} wait{filled(one, found)}",
    ]
    if cpu := cpu_words(one):
        words.append(cpu)
    return ", ".join(words)


def dropped_words(one: Balance) -> str:
    if one.dropped_seen is None:
        return NOT_VISIBLE
    return f"{'at least ' if one.at_least else ''}{one.dropped_seen:,}"


def waited_before(one: Balance) -> str:
    """` (+91 that waited before)`: arrived and these are dropped, waiting and read."""
    before = one.waited_before
    return f" (+{number(before)} that waited before)" if before and before.high else ""


def filled(one: Balance, found: DropsInterval) -> str:
    """` (76 of 76 blocks, oldest 721 ms, full in 0 ms)` if any block waits."""
    fills = [socket["waiting"][1] for socket in one.reading.sockets if socket["waiting"]]
    full, of = (sum(fill[key] for fill in fills) for key in ("full", "of"))
    if not full:
        return ""
    rings = [socket["ring"] for socket in one.reading.sockets]
    version3 = any(ring is not None and ring["version"] == 3 for ring in rings)
    words = [f"{full:,} of {of:,} {'blocks' if version3 else 'frames'}"]
    if (age_ms := oldest_ms(one, found.real_ns)) is not None:
        words.append(f"oldest {age_ms} ms")
    if (left_ms := found.overflow_ms.get(one.reading.key)) is not None:
        words.append(f"full in {left_ms} ms" if left_ms else "full")
    return f" ({', '.join(words)})"


def level_words(one: Balance, found: DropsInterval) -> Iterator[str]:
    """`level 31 % (highest 84 % at 14:02:11)`; nothing of a capture without a visible ring."""
    if (level := found.levels.get(one.reading.key.inodes)) is not None:
        highest = f"{percent(level.highest_ratio)} at {clock(level.highest_real_ns)}"
        yield f"level {percent(level.ratio)} (highest {highest})"


def closing(one: Balance) -> str:
    if one.residual is None:
        if one.at_least and one.ended_real_ns is not None:
            return "books cannot close: it ended between two looks, with its counters"
        if one.at_least:
            return "books cannot close: its owner reads the counters and does not say them"
        if any(socket["selective"] for socket in one.reading.sockets):
            return "its filter leaves packets out, and nobody counts those"
        side = "port" if one.offered is None else "socket"
        return f"books cannot close: the {side} is not visible"
    if one.closed:
        return f"closed ({number(one.residual)})"
    if one.closed is None:
        return f"within ±{one.slack:,}: too far apart to say whether the books close"
    return f"OPEN: residual {number(one.residual)}"


def cpu_words(one: Balance) -> str:
    if one.reading.program and one.reading.program["stopped"]:
        return "stopped"
    shares = [t for t in thread_shares(one) if t.ran >= 0.01 or t.waited >= 0.01]
    return ", ".join(
        f"{t.name} runs {t.ran * 100:.0f} %"
        + (f" waits {t.waited * 100:.0f} %" if t.waited >= 0.01 else "")
        for t in shares[:MOST_THREADS]
    )


def lost_at(row: PlaceTotal) -> str:
    """A place and how much it has lost since the watch began."""
    return f"{row.loss.place}, {row.loss.where}: {total(row)} {unit(row.loss.place)}"


def total(row: PlaceTotal) -> str:
    return f"{'at least ' if row.at_least else ''}{row.total:,}"


def unsaid(one: Balance) -> str:
    """Packets after the last books of a capture that has ended; empty if there are none."""
    if one.unsaid_offered is None:
        return ""
    dropped = f", at least {one.unsaid_dropped:,} of them dropped" if one.unsaid_dropped else ""
    return f"; then {number(one.unsaid_offered)} came{dropped}: it ended, and said no more"


def row_line(row: PlaceTotal) -> str:
    return (
        f"▼ {row.loss.place}, {row.loss.where}: {row.rate_pps:,.0f} {unit(row.loss.place)}/s "
        f"({total(row)} in all): {row.loss.why}; do: {row.loss.do}"
    )


def ending(found: DropsInterval, began_real_ns: int) -> Iterator[str]:
    """Once, behind the last interval: the answer, the losses, then the books."""
    yield f"since {clock(began_real_ns)}:"
    if worst := max(found.rows, key=lambda row: row.total, default=None):
        yield f"  most die in the {worst.loss.place}: {worst.mostly.why}"
        yield f"  do: {worst.mostly.do}"
    elif found.clear:
        yield (
            f"  nothing lost on {', '.join(found.clear)} at any place that is visible in this watch"
        )
    elif not found.blind:
        yield "  no program captures packets on a port of the kernel: nobody would see a loss there"
    for one in found.balances:
        yield from (f"  {line}" for line in headroom_words(one, found))
        yield from (f"  {line}" for line in before_words(one))
    yield from (f"  {blind_words(one)}" for one in found.blind)
    for row in sorted(found.rows, key=lambda row: -row.total):
        first, last = (clock(at) if at else "–" for at in (row.first_real_ns, row.last_real_ns))
        yield (
            f"  {lost_at(row)} lost from {first} to {last}, in {count_of(row.bursts, 'period')}, "
            f"at most {row.worst_pps:,.0f}/s at {clock(row.worst_real_ns)} ({row.loss.counter})"
        )
    for one in found.ended:
        at = "" if one.ended_real_ns is None else f" at {clock(one.ended_real_ns)}"
        yield f"  (ended{at}) {capture_line(one, found)}{unsaid(one)}"
    for one in found.balances:
        yield f"  {capture_line(one, found)}"
        yield from (f"    {member_line(member, found)}" for member in one.members)
    if found.not_for_us:
        yield f"  no loss: {found.not_for_us:,} of the last interval that no protocol wanted"
    yield from (f"  {line}" for line in hidden(found))


def blind_words(one: BlindPort) -> str:
    since = clock(one.since_real_ns)
    if one.until_real_ns is None:
        return f"blind at {one.port} since {since}: {BLIND[one.why]}"
    return f"was blind at {one.port} from {since} to {clock(one.until_real_ns)}: {BLIND[one.why]}"


def hidden(found: DropsInterval) -> Iterator[str]:
    for one in found.not_visible:
        yield f"{NOT_VISIBLE}: {one['what']} (needs {one['needs']}; {one['why']})"


def sparkline(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    if not most:
        return ""
    return "".join(
        SPARKS[round(rate / most * (len(SPARKS) - 1))] if rate else " " for rate in rates
    )


def view(found: DropsInterval, began_real_ns: int, rates: dict[str, list[float]]) -> RenderableType:
    """For a terminal of 80 columns: the worst place on top, then the books of each program."""
    parts: list[RenderableType] = [
        Text(f"since {clock(began_real_ns)}, now {clock(found.real_ns)}; Ctrl-C ends", style="dim"),
        *(Text(note, style="bold") for note in found.notes),
    ]
    places = Table(box=None, pad_edge=False, padding=(0, 1))
    for name, justify in (("dies in", "left"), ("/s", "right"), ("in all", "right"), ("", "left")):
        places.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in found.rows:
        style = "bold red" if row.rate_pps else ""
        at = f"{row.loss.place}, {row.loss.where}"
        places.add_row(
            Text(("▼ " if row.rate_pps else "  ") + at, style=style),
            Text(f"{row.rate_pps:,.0f}", style=style),
            f"{'≥ ' if row.at_least else ''}{row.total:,}",
            sparkline(rates.get(f"{at} {row.loss.counter}", [])),
        )
    if found.rows:
        parts.append(places)
        worst = found.rows[0]
        said = worst.loss if worst.rate_pps else worst.mostly
        parts.append(Text(f"  {said.why}"))
        parts.append(Text(f"  do  {said.do}", style="bold"))
    elif found.clear:
        ports = ", ".join(found.clear)
        parts.append(Text(f"● nothing is lost on {ports} at any place that is visible"))
    elif not found.blind:
        parts.append(Text("no program captures packets on a port here; waiting for one"))
    parts += [Text(blind_words(one), style="bold red") for one in found.blind]
    for one in found.balances:
        parts += [Text(""), Text(f"{one.reading.port_name}  {one.reading.name}", style="bold")]
        for name, value in (
            ("came", number(one.offered)),
            ("merged", number(one.merged) if one.reading.taken is not None else ""),
            ("arrived", number(one.arrived) + waited_before(one)),
            ("dropped", dropped_words(one)),
            ("waiting", number(one.waiting) + filled(one, found)),
            ("level", "".join(level_words(one, found)).removeprefix("level ")),
            ("read", number(one.read)),
            ("fits", " ".join(headroom_words(one, found))),
            ("before", " ".join(before_words(one))),
            ("books", closing(one)),
            ("CPU", cpu_words(one)),
            *(("of it", member_line(member, found)) for member in one.members),
        ):
            if value:
                parts.append(Text(f"  {name:<8} {value}"))
    if hidden_lines := [*hidden(found)]:
        parts.append(Text(""))
        parts += [Text(line, style="dim") for line in hidden_lines]
    return Group(*parts)
