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
from nodrop.results.watched import BlindPort, WatchedPlace

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


def lines(interval: DropsInterval) -> Iterator[str]:
    """An interval for a pipe: one line a program, one a place that lost, one a note."""
    at = clock(interval.answer.real_ns)
    for note in interval.answer.notes:
        yield f"{at} {note}"
    for one in interval.ended:
        if one.ended_real_ns == interval.answer.real_ns:
            yield f"{at} (ended) {capture_line(one)}{unsaid(one)}"
    for one in interval.balances:
        yield f"{at} {capture_line(one)}"
        yield from (f"{at}   {member_line(member)}" for member in one.members)
    for row in interval.answer.places:
        if row.rate_pps:
            yield f"{at} {row_line(row)}"


def capture_line(balance: Balance) -> str:
    reading = balance.reading
    words = [
        f"{reading.port_name}: {number(balance.offered)} came",
        f"{number(balance.merged)} merged" if reading.taken is not None else "",
        *_of_sockets(balance, waited_before(balance)),
        f"{number(balance.read)} read",
        f"level {level}" if (level := level_words(balance)) else "",
        closing(balance),
        cpu_words(balance),
    ]
    return ", ".join(filter(None, words))


def member_line(balance: Balance) -> str:
    """Packets of one process of a fanout group: those of its own sockets."""
    return ", ".join(filter(None, [*_of_sockets(balance), cpu_words(balance)]))


def _of_sockets(balance: Balance, before: str = "") -> Iterator[str]:
    least = "at least " if balance.at_least else ""
    yield f"{balance.reading.name}: {least}{number(balance.arrived)} arrived{before}"
    yield f"{dropped_words(balance)} dropped"
    yield f"{number(balance.reading.waiting)} wait{filled(balance)}"


def dropped_words(balance: Balance) -> str:
    if balance.dropped_seen is None:
        return NOT_VISIBLE
    return f"{'at least ' if balance.at_least else ''}{balance.dropped_seen:,}"


def waited_before(balance: Balance) -> str:
    """` (+91 that waited before)`: arrived and these are dropped, waiting and read."""
    before = balance.waited_before
    return f" (+{number(before)} that waited before)" if before and before.high else ""


def filled(balance: Balance) -> str:
    """` (76 of 76 blocks, oldest 721 ms, full in 0 ms)` if any block waits."""
    fills = [socket["waiting"][1] for socket in balance.reading.sockets if socket["waiting"]]
    full, of = (sum(fill[key] for fill in fills) for key in ("full", "of"))
    if not full:
        return ""
    rings = [socket["ring"] for socket in balance.reading.sockets]
    version3 = any(ring is not None and ring["version"] == 3 for ring in rings)
    words = [f"{full:,} of {of:,} {'blocks' if version3 else 'frames'}"]
    if balance.rings.oldest_ms is not None:
        words.append(f"oldest {balance.rings.oldest_ms} ms")
    if (left_ms := balance.rings.overflow_ms) is not None:
        words.append(f"full in {left_ms} ms" if left_ms else "full")
    return f" ({', '.join(words)})"


def level_words(balance: Balance) -> str:
    """`31 % (highest 84 % at 14:02:11)`; empty of a capture without a visible ring."""
    if (level := balance.rings.level) is None:
        return ""
    highest = f"{percent(level.highest_ratio)} at {clock(level.highest_real_ns)}"
    return f"{percent(level.ratio)} (highest {highest})"


def closing(balance: Balance) -> str:
    if balance.residual is None:
        if balance.at_least and balance.ended_real_ns is not None:
            return "books cannot close: it ended between two looks, with its counters"
        if balance.at_least:
            return "books cannot close: its owner reads the counters and does not say them"
        if any(socket["selective"] for socket in balance.reading.sockets):
            return "its filter leaves packets out, and nobody counts those"
        side = "port" if balance.offered is None else "socket"
        return f"books cannot close: the {side} is not visible"
    if balance.closed:
        return f"closed ({number(balance.residual)})"
    if balance.closed is None:
        return f"within ±{balance.slack:,}: too far apart to say whether the books close"
    return f"OPEN: residual {number(balance.residual)}"


def cpu_words(balance: Balance) -> str:
    if balance.reading.program and balance.reading.program["stopped"]:
        return "stopped"
    shares = [t for t in thread_shares(balance) if t.ran >= 0.01 or t.waited >= 0.01]
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


def unsaid(balance: Balance) -> str:
    """Packets after the last books of a capture that has ended; empty if there are none."""
    if balance.unsaid_offered is None:
        return ""
    dropped = (
        f", at least {balance.unsaid_dropped:,} of them dropped" if balance.unsaid_dropped else ""
    )
    return f"; then {number(balance.unsaid_offered)} came{dropped}: it ended, and said no more"


def row_line(row: WatchedPlace) -> str:
    return (
        f"▼ {row.place}, {row.where}: {row.rate_pps:,.0f} {unit(row.place)}/s "
        f"({total(row)} in all): {row.why}; do: {row.do}"
    )


def ending(interval: DropsInterval, began_real_ns: int) -> Iterator[str]:
    """Once, behind the last interval: the answer, the losses, then the books."""
    yield f"since {clock(began_real_ns)}:"
    if worst := max(interval.answer.places, key=lambda row: row.total, default=None):
        yield f"  most die in the {worst.place}: {worst.cause}"
        yield f"  do: {worst.remedy}"
    elif interval.clear:
        yield (
            f"  nothing lost on {', '.join(interval.clear)} at any place that is visible in this "
            "watch"
        )
    elif not interval.answer.blind:
        yield "  no program captures packets on a port of the kernel: nobody would see a loss there"
    for one in interval.balances:
        yield from (f"  {line}" for line in headroom_words(one))
        yield from (f"  {line}" for line in before_words(one))
    yield from (f"  {blind_words(port)}" for port in interval.answer.blind)
    for row in sorted(interval.answer.places, key=lambda row: -row.total):
        first, last = (clock(at) if at else "–" for at in (row.first_real_ns, row.last_real_ns))
        yield (
            f"  {lost_at(row)} lost from {first} to {last}, in {count_of(row.bursts, 'period')}, "
            f"at most {row.worst_pps:,.0f}/s at {clock(row.worst_real_ns)} ({row.counter})"
        )
    for one in interval.ended:
        at = "" if one.ended_real_ns is None else f" at {clock(one.ended_real_ns)}"
        yield f"  (ended{at}) {capture_line(one)}{unsaid(one)}"
    for one in interval.balances:
        yield f"  {capture_line(one)}"
        yield from (f"    {member_line(member)}" for member in one.members)
    if unwanted := interval.answer.not_for_us_packets:
        yield f"  no loss: {unwanted:,} of the last interval that no protocol wanted"
    yield from (f"  {line}" for line in hidden(interval))


def blind_words(port: BlindPort) -> str:
    since, why = clock(port.since_real_ns), WORDS["blind"][port.why]
    if port.until_real_ns is None:
        return f"blind at {port.port} since {since}: {why}"
    return f"was blind at {port.port} from {since} to {clock(port.until_real_ns)}: {why}"


def hidden(interval: DropsInterval) -> Iterator[str]:
    for one in interval.answer.not_visible:
        yield f"{NOT_VISIBLE}: {one.what} (needs {one.needs}; {one.why})"


def sparkline(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    if not most:
        return ""
    return "".join(
        SPARKS[round(rate / most * (len(SPARKS) - 1))] if rate else " " for rate in rates
    )


def view(
    interval: DropsInterval, began_real_ns: int, rates: dict[str, list[float]]
) -> RenderableType:
    """For a terminal of 80 columns: the worst place on top, then the books of each program."""
    now = clock(interval.answer.real_ns)
    parts: list[RenderableType] = [
        Text(f"since {clock(began_real_ns)}, now {now}; Ctrl-C ends", style="dim"),
        *(Text(note, style="bold") for note in interval.answer.notes),
    ]
    places = Table(box=None, pad_edge=False, padding=(0, 1))
    for name, justify in (("dies in", "left"), ("/s", "right"), ("in all", "right"), ("", "left")):
        places.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in interval.answer.places:
        style = "bold red" if row.rate_pps else ""
        at = f"{row.place}, {row.where}"
        places.add_row(
            Text(("▼ " if row.rate_pps else "  ") + at, style=style),
            Text(f"{row.rate_pps:,.0f}", style=style),
            f"{'≥ ' if row.at_least else ''}{row.total:,}",
            sparkline(rates.get(f"{at} {row.counter}", [])),
        )
    if interval.answer.places:
        parts.append(places)
        worst = interval.answer.places[0]
        why, do = (worst.why, worst.do) if worst.rate_pps else (worst.cause, worst.remedy)
        parts.append(Text(f"  {why}"))
        parts.append(Text(f"  do  {do}", style="bold"))
    elif interval.clear:
        ports = ", ".join(interval.clear)
        parts.append(Text(f"● nothing is lost on {ports} at any place that is visible"))
    elif not interval.answer.blind:
        parts.append(Text("no program captures packets on a port here; waiting for one"))
    parts += [Text(blind_words(port), style="bold red") for port in interval.answer.blind]
    for balance in interval.balances:
        parts += [
            Text(""),
            Text(f"{balance.reading.port_name}  {balance.reading.name}", style="bold"),
        ]
        for name, value in (
            ("came", number(balance.offered)),
            ("merged", number(balance.merged) if balance.reading.taken is not None else ""),
            ("arrived", number(balance.arrived) + waited_before(balance)),
            ("dropped", dropped_words(balance)),
            ("waiting", number(balance.reading.waiting) + filled(balance)),
            ("level", level_words(balance)),
            ("read", number(balance.read)),
            ("fits", " ".join(headroom_words(balance))),
            ("before", " ".join(before_words(balance))),
            ("books", closing(balance)),
            ("CPU", cpu_words(balance)),
            *(("of it", member_line(member)) for member in balance.members),
        ):
            if value:
                parts.append(Text(f"  {name:<8} {value}"))
    if hidden_lines := [*hidden(interval)]:
        parts.append(Text(""))
        parts += [Text(line, style="dim") for line in hidden_lines]
    return Group(*parts)
