"""A watch in words: lines for a pipe, a view for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nodrop.answer.finding import WORDS
from nodrop.config.units import count_of
from nodrop.drops.capture_books import AccountRange, Balance
from nodrop.drops.headroom_words import before_words, clock, headroom_words, percent
from nodrop.drops.places import thread_shares, unit
from nodrop.drops.watching import DropsInterval
from nodrop.results.other_records import BlindPort, WatchedPlace

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
    at = clock(found.answer.real_ns)
    for note in found.answer.notes:
        yield f"{at} {note}"
    for one in found.ended:
        if one.ended_real_ns == found.answer.real_ns:
            yield f"{at} (ended) {capture_line(one)}{unsaid(one)}"
    for one in found.balances:
        yield f"{at} {capture_line(one)}"
        yield from (f"{at}   {member_line(member)}" for member in one.members)
    for row in found.answer.places:
        if row.rate_pps:
            yield f"{at} {row_line(row)}"


def capture_line(one: Balance) -> str:
    reading = one.reading
    words = [
        f"{reading.port_name}: {number(one.offered)} came",
        f"{number(one.merged)} merged" if reading.taken is not None else "",
        *_of_sockets(one, waited_before(one)),
        f"{number(one.read)} read",
        *level_words(one),
        closing(one),
        cpu_words(one),
    ]
    return ", ".join(filter(None, words))


def member_line(one: Balance) -> str:
    """Packets of one process of a fanout group: those of its own sockets."""
    return ", ".join(filter(None, [*_of_sockets(one), cpu_words(one)]))


def _of_sockets(one: Balance, before: str = "") -> Iterator[str]:
    least = "at least " if one.at_least else ""
    yield f"{one.reading.name}: {least}{number(one.arrived)} arrived{before}"
    yield f"{dropped_words(one)} dropped"
    yield f"{number(one.reading.waiting)} wait{filled(one)}"


def dropped_words(one: Balance) -> str:
    if one.dropped_seen is None:
        return NOT_VISIBLE
    return f"{'at least ' if one.at_least else ''}{one.dropped_seen:,}"


def waited_before(one: Balance) -> str:
    """` (+91 that waited before)`: arrived and these are dropped, waiting and read."""
    before = one.waited_before
    return f" (+{number(before)} that waited before)" if before and before.high else ""


def filled(one: Balance) -> str:
    """` (76 of 76 blocks, oldest 721 ms, full in 0 ms)` if any block waits."""
    fills = [socket["waiting"][1] for socket in one.reading.sockets if socket["waiting"]]
    full, of = (sum(fill[key] for fill in fills) for key in ("full", "of"))
    if not full:
        return ""
    rings = [socket["ring"] for socket in one.reading.sockets]
    version3 = any(ring is not None and ring["version"] == 3 for ring in rings)
    words = [f"{full:,} of {of:,} {'blocks' if version3 else 'frames'}"]
    if one.rings.oldest_ms is not None:
        words.append(f"oldest {one.rings.oldest_ms} ms")
    if (left_ms := one.rings.overflow_ms) is not None:
        words.append(f"full in {left_ms} ms" if left_ms else "full")
    return f" ({', '.join(words)})"


def level_words(one: Balance) -> Iterator[str]:
    """`level 31 % (highest 84 % at 14:02:11)`; nothing of a capture without a visible ring."""
    if (level := one.rings.level) is not None:
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


def lost_at(row: WatchedPlace) -> str:
    """A place and how much it has lost since the watch began."""
    return f"{row.place}, {row.where}: {total(row)} {unit(row.place)}"


def total(row: WatchedPlace) -> str:
    return f"{'at least ' if row.at_least else ''}{row.total:,}"


def unsaid(one: Balance) -> str:
    """Packets after the last books of a capture that has ended; empty if there are none."""
    if one.unsaid_offered is None:
        return ""
    dropped = f", at least {one.unsaid_dropped:,} of them dropped" if one.unsaid_dropped else ""
    return f"; then {number(one.unsaid_offered)} came{dropped}: it ended, and said no more"


def row_line(row: WatchedPlace) -> str:
    return (
        f"▼ {row.place}, {row.where}: {row.rate_pps:,.0f} {unit(row.place)}/s "
        f"({total(row)} in all): {row.why}; do: {row.do}"
    )


def ending(found: DropsInterval, began_real_ns: int) -> Iterator[str]:
    """Once, behind the last interval: the answer, the losses, then the books."""
    yield f"since {clock(began_real_ns)}:"
    if worst := max(found.answer.places, key=lambda row: row.total, default=None):
        yield f"  most die in the {worst.place}: {worst.cause}"
        yield f"  do: {worst.remedy}"
    elif found.clear:
        yield (
            f"  nothing lost on {', '.join(found.clear)} at any place that is visible in this watch"
        )
    elif not found.answer.blind:
        yield "  no program captures packets on a port of the kernel: nobody would see a loss there"
    for one in found.balances:
        yield from (f"  {line}" for line in headroom_words(one))
        yield from (f"  {line}" for line in before_words(one))
    yield from (f"  {blind_words(one)}" for one in found.answer.blind)
    for row in sorted(found.answer.places, key=lambda row: -row.total):
        first, last = (clock(at) if at else "–" for at in (row.first_real_ns, row.last_real_ns))
        yield (
            f"  {lost_at(row)} lost from {first} to {last}, in {count_of(row.bursts, 'period')}, "
            f"at most {row.worst_pps:,.0f}/s at {clock(row.worst_real_ns)} ({row.counter})"
        )
    for one in found.ended:
        at = "" if one.ended_real_ns is None else f" at {clock(one.ended_real_ns)}"
        yield f"  (ended{at}) {capture_line(one)}{unsaid(one)}"
    for one in found.balances:
        yield f"  {capture_line(one)}"
        yield from (f"    {member_line(member)}" for member in one.members)
    if unwanted := found.answer.not_for_us_packets:
        yield f"  no loss: {unwanted:,} of the last interval that no protocol wanted"
    yield from (f"  {line}" for line in hidden(found))


def blind_words(one: BlindPort) -> str:
    since, why = clock(one.since_real_ns), WORDS["blind"][one.why]
    if one.until_real_ns is None:
        return f"blind at {one.port} since {since}: {why}"
    return f"was blind at {one.port} from {since} to {clock(one.until_real_ns)}: {why}"


def hidden(found: DropsInterval) -> Iterator[str]:
    for one in found.answer.not_visible:
        yield f"{NOT_VISIBLE}: {one.what} (needs {one.needs}; {one.why})"


def sparkline(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    if not most:
        return ""
    return "".join(
        SPARKS[round(rate / most * (len(SPARKS) - 1))] if rate else " " for rate in rates
    )


def view(found: DropsInterval, began_real_ns: int, rates: dict[str, list[float]]) -> RenderableType:
    """For a terminal of 80 columns: the worst place on top, then the books of each program."""
    now = clock(found.answer.real_ns)
    parts: list[RenderableType] = [
        Text(f"since {clock(began_real_ns)}, now {now}; Ctrl-C ends", style="dim"),
        *(Text(note, style="bold") for note in found.answer.notes),
    ]
    places = Table(box=None, pad_edge=False, padding=(0, 1))
    for name, justify in (("dies in", "left"), ("/s", "right"), ("in all", "right"), ("", "left")):
        places.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in found.answer.places:
        style = "bold red" if row.rate_pps else ""
        at = f"{row.place}, {row.where}"
        places.add_row(
            Text(("▼ " if row.rate_pps else "  ") + at, style=style),
            Text(f"{row.rate_pps:,.0f}", style=style),
            f"{'≥ ' if row.at_least else ''}{row.total:,}",
            sparkline(rates.get(f"{at} {row.counter}", [])),
        )
    if found.answer.places:
        parts.append(places)
        worst = found.answer.places[0]
        why, do = (worst.why, worst.do) if worst.rate_pps else (worst.cause, worst.remedy)
        parts.append(Text(f"  {why}"))
        parts.append(Text(f"  do  {do}", style="bold"))
    elif found.clear:
        ports = ", ".join(found.clear)
        parts.append(Text(f"● nothing is lost on {ports} at any place that is visible"))
    elif not found.answer.blind:
        parts.append(Text("no program captures packets on a port here; waiting for one"))
    parts += [Text(blind_words(one), style="bold red") for one in found.answer.blind]
    for one in found.balances:
        parts += [Text(""), Text(f"{one.reading.port_name}  {one.reading.name}", style="bold")]
        for name, value in (
            ("came", number(one.offered)),
            ("merged", number(one.merged) if one.reading.taken is not None else ""),
            ("arrived", number(one.arrived) + waited_before(one)),
            ("dropped", dropped_words(one)),
            ("waiting", number(one.reading.waiting) + filled(one)),
            ("level", "".join(level_words(one)).removeprefix("level ")),
            ("read", number(one.read)),
            ("fits", " ".join(headroom_words(one))),
            ("before", " ".join(before_words(one))),
            ("books", closing(one)),
            ("CPU", cpu_words(one)),
            *(("of it", member_line(member)) for member in one.members),
        ):
            if value:
                parts.append(Text(f"  {name:<8} {value}"))
    if hidden_lines := [*hidden(found)]:
        parts.append(Text(""))
        parts += [Text(line, style="dim") for line in hidden_lines]
    return Group(*parts)
