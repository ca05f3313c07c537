"""`nodrop drops`: where a sensor at work loses packets, read only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.errors import NotReady
from nodrop.terminal.arguments import (
    AsJson,
    Become,
    Becoming,
    FarHost,
    SshConfig,
    only_for_a_host,
    seconds,
)
from nodrop.terminal.saying import complain, say, say_json

if TYPE_CHECKING:
    from nodrop.drops.outlets import Metrics, Record
    from nodrop.drops.watching import Interval
    from nodrop.hosts.local import LocalHost
    from nodrop.hosts.ssh import SshHost

LEAST_S, MOST_S = 0.1, 3600.0
SPARK_INTERVALS = 12


def add_to(app: typer.Typer) -> None:
    app.command("drops")(drops)


def drops(
    where: FarHost = None,
    once: Annotated[bool, typer.Option("--once", help="One interval, then end.")] = False,
    as_json: AsJson = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Of each look: 500ms, 1s, 1m.")
    ] = "1s",
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after that long: 30s, 10m, 2h."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Keep every interval there; `nodrop report DIR` makes a page of it.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="PLACE",
            help="Serve OpenMetrics on a port of 127.0.0.1 (9100; 0 = a free one), or on a Unix "
            "socket (./drops.sock).",
        ),
    ] = None,
    become: Become = None,
    ssh_config: SshConfig = None,
) -> None:
    """Where packets die now on a sensor at work: port, kernel, socket rings, decoder; why, and the
    command that changes it.

    Finds all programs that capture packets (Suricata, Snort, Zeek, tcpdump …), in containers and
    other network namespaces too. Reads only: no counter is reset, nothing runs per packet. As a
    normal user it shows what that user may see, and names the right that the rest needs. On a HOST
    over ssh nothing is put but the node's file, in /var/lib/nodrop.

    \b
    nodrop drops --once --json
    nodrop drops --interval 5s --for 10m
    nodrop drops --record monday --metrics 9100
    nodrop drops sensor1 --become sudo
    """
    from nodrop.audit.reading import peer_mtu
    from nodrop.drops.watching import intervals, written
    from nodrop.hosts.captures import Looks
    from nodrop.results.writer import must_be_new

    interval_s = seconds("--interval", interval, least=LEAST_S, most=MOST_S)
    for_s = seconds("--for", for_, least=interval_s) if for_ is not None else None
    if record is not None:
        must_be_new(record)
    with (
        _host(where, become, ssh_config) as host,
        closing(Looks(host, root=None if where else Path("/"))) as looks,
        _outlets(host, record, metrics) as outlets,
    ):
        found = _passed_on(
            intervals(
                looks,
                interval_s=interval_s,
                for_s=interval_s if once else for_s,
                levels=None if once else looks.levels,
                peer_mtu=None if where else peer_mtu,
            ),
            outlets,
        )
        if as_json:
            for one in found:
                _must_see_one(one, once, where)
                say_json(written(one).model_dump())
        else:
            _show(found, once, where)


@contextmanager
def _outlets(
    host: LocalHost | SshHost, record: Path | None, metrics: str | None
) -> Iterator[Sequence[Record | Metrics]]:
    from nodrop.drops.outlets import Metrics, Record

    with ExitStack() as open_ones:
        found: list[Record | Metrics] = []
        if metrics is not None:
            open_metrics = open_ones.enter_context(closing(Metrics(metrics)))
            found.append(open_metrics)
            complain(f"OpenMetrics: {open_metrics.address}")
        if record is not None:
            facts = host.probe("host")["host"]
            made = Record(record, host=facts, command=sys.argv)
            found.append(open_ones.enter_context(closing(made)))
        yield found


def _passed_on(
    found: Iterator[Interval], outlets: Sequence[Record | Metrics]
) -> Iterator[Interval]:
    from nodrop.drops.watching import written

    for one in found:
        if outlets:
            kept = written(one)
            for outlet in outlets:
                outlet.add(kept)
        yield one


@contextmanager
def _host(
    where: str | None, become: Becoming | None, config: Path | None
) -> Iterator[LocalHost | SshHost]:
    """Held by nobody: others may measure there meanwhile."""
    from nodrop.hosts.binary import find_node_binary
    from nodrop.hosts.journal import new_label
    from nodrop.hosts.local import LocalHost
    from nodrop.hosts.ssh import SshHost

    if where is None:
        only_for_a_host(become, config)
        with closing(LocalHost(name="here", node=find_node_binary(), label="drops")) as host:
            yield host
    else:
        with SshHost(
            where,
            label=f"drops-{new_label()}",
            become="sudo" if become else None,
            config=config,
            holds=False,
        ) as far:
            yield far


def _must_see_one(found: Interval, once: bool, where: str | None) -> None:
    if once and not found.balances:
        raise NotReady(nobody(where), hint="start one, then look again")


def nobody(where: str | None) -> str:
    return f"no program captures packets on {where or 'this host'}"


def _show(found: Iterator[Interval], once: bool, where: str | None) -> None:
    from nodrop.drops.words import ending, lines
    from nodrop.terminal.tables import console

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
                _must_see_one(last, once, where)
                if not last.balances and not idle:
                    say(f"{nobody(where)}; waiting for one")
                idle = not last.balances
                for line in lines(last) if not once else ():
                    say(line)
    finally:
        if last is not None and began is not None and (last.balances or not once):
            for line in ending(last, began):
                say(line)


def _live(found: Iterator[Interval]) -> Iterator[Interval]:
    from rich.live import Live as Display

    from nodrop.drops.words import view
    from nodrop.terminal.tables import console

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
