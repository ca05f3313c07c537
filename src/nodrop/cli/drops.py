"""`nodrop drops`: where a sensor at work loses packets, read only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.cli.arguments import AsJson
from nodrop.cli.saying import say, say_json
from nodrop.errors import BadInput, NotReady

if TYPE_CHECKING:
    from nodrop.drops.watching import Interval

LEAST_S, MOST_S = 0.1, 3600.0
SPARK_INTERVALS = 12
UNITS_S = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def add_to(app: typer.Typer) -> None:
    app.command("drops")(drops)


def drops(
    once: Annotated[bool, typer.Option("--once", help="One interval, then end.")] = False,
    as_json: AsJson = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Of each look: 500ms, 1s, 1m.")
    ] = "1s",
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after that long: 30s, 10m, 2h."),
    ] = None,
) -> None:
    """Where packets die now on a sensor at work: port, kernel, socket rings, decoder; why, and the
    command that changes it.

    Finds all programs that capture packets (Suricata, Snort, Zeek, tcpdump …), in containers and
    other network namespaces too. Reads only: no counter is reset, nothing runs per packet. As a
    normal user it shows what that user may see, and names the right that the rest needs.

    \b
    nodrop drops --once --json
    nodrop drops --interval 5s --for 10m
    """
    from nodrop.drops.watching import as_json as interval_json
    from nodrop.drops.watching import intervals
    from nodrop.hosts.binary import find_node_binary
    from nodrop.hosts.captures import Looks
    from nodrop.hosts.local import LocalHost

    interval_s = seconds("--interval", interval, least=LEAST_S)
    for_s = seconds("--for", for_, least=interval_s) if for_ is not None else None
    host = LocalHost(name="here", node=find_node_binary(), label="drops")
    with closing(host), closing(Looks(host)) as looks:
        found = intervals(looks, interval_s=interval_s, for_s=interval_s if once else for_s)
        if as_json:
            for one in found:
                _must_see_one(one, once)
                say_json(interval_json(one))
        else:
            _show(found, once)


def seconds(option: str, text: str, *, least: float) -> float:
    """`500ms`, `1s`, `10m`."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)", text.strip(), re.ASCII)
    if match is None or match[2] not in UNITS_S:
        raise BadInput(f'{option} {text}: must be a time, such as "500ms", "1s" or "10m"')
    found = float(match[1]) * UNITS_S[match[2]]
    if found < least or (option == "--interval" and found > MOST_S):
        most = f" and at most {MOST_S:g} s" if option == "--interval" else ""
        raise BadInput(f"{option} {text}: must be at least {least:g} s{most}")
    return found


def _must_see_one(found: Interval, once: bool) -> None:
    if once and not found.balances:
        raise NotReady(
            "no program captures packets on this host", hint="start one, then look again"
        )


def _show(found: Iterator[Interval], once: bool) -> None:
    from nodrop.cli.tables import console
    from nodrop.drops.words import ending, lines

    out = console()
    began: int | None = None
    last: Interval | None = None
    try:
        if out.is_terminal and not once:
            for last in _live(found):
                began = began or last.real_ns - round(last.seconds * 1e9)
        else:
            idle = False
            for last in found:
                began = began or last.real_ns - round(last.seconds * 1e9)
                _must_see_one(last, once)
                if not last.balances and not idle:
                    say("no program captures packets on this host; waiting for one")
                idle = not last.balances
                for line in lines(last) if not once else ():
                    say(line)
    finally:
        if last is not None and began is not None and (last.balances or not once):
            for line in ending(last, began):
                say(line)


def _live(found: Iterator[Interval]) -> Iterator[Interval]:
    from rich.live import Live as Display

    from nodrop.cli.tables import console
    from nodrop.drops.words import view

    rates: dict[str, list[float]] = {}
    began: int | None = None
    with Display(console=console(), auto_refresh=False, transient=True, screen=False) as display:
        for one in found:
            began = began or one.real_ns - round(one.seconds * 1e9)
            for row in one.rows:
                at = f"{row.loss.place}, {row.loss.where} {row.loss.counter}"
                rates[at] = [*rates.get(at, []), row.rate_pps][-SPARK_INTERVALS:]
            display.update(view(one, began, rates), refresh=True)
            yield one
