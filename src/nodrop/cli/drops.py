"""`nodrop drops` and `nodrop audit`: where a sensor loses packets, which settings cost some."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nodrop.audit.host_role import HostRole
from nodrop.config.units import count_of, time_s
from nodrop.errors import BadInput, NotReady, interrupts
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN, NO_ANSWER
from nodrop.terminal.arguments import (
    AsJson,
    Become,
    FarHost,
    SshConfig,
    complain,
    only_for_a_host,
    say,
    say_json,
    write_anew,
    written_anew,
)

if TYPE_CHECKING:
    from rich.console import Console

    from nodrop.audit.audit_answer import AuditAnswer, FindingAnswer
    from nodrop.drops.openmetrics import Metrics
    from nodrop.drops.recording import RecordedWatch
    from nodrop.drops.watching import DropsInterval
    from nodrop.results.watched import WatchedInterval
    from nodrop.testbed.hosts.local import LocalHost
    from nodrop.testbed.hosts.ssh import SshHost


def audit(
    where: FarHost = None,
    role: Annotated[
        HostRole, typer.Option("--role", help="What this host does.")
    ] = HostRole.SENSOR,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A suricata.yaml (on HOST, if given). Default: that of each running Suricata.",
        ),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="NAME",
            help="Judge this port and the programs that capture there. Default: every port that a "
            "program captures on. Repeatable.",
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="TIME",
            help="Watch real flows for this time (5s): do both directions of each reach one "
            "thread? Adds a listener to the port, for a part of its flows.",
        ),
    ] = None,
    become: Become = None,
    ssh_config: SshConfig = None,
    as_json: AsJson = False,
    sarif_file: Annotated[
        Path | None,
        typer.Option(
            "--sarif",
            metavar="FILE",
            help="Write the findings as SARIF 2.1.0.",
            callback=written_anew("SARIF file of nodrop audit", b"sarif-2.1.0.json"),
        ),
    ] = None,
) -> int:
    """Read a host and list the settings that cost packets, with the command that changes each.

    It changes nothing and loads no module. It lists what this user may not read, with the right
    that it needs. On a HOST over ssh it puts one file, the node, into /var/lib/nodrop, and runs it
    as root.

    \b
    nodrop audit
    nodrop audit --watch 5s
    nodrop audit --port eth1 --config /etc/suricata/suricata.yaml
    nodrop audit --role generator --json
    nodrop audit sensor1 --become sudo

    Exit code 0: no finding; 1: there are findings (notes do not count); 6: no finding, and
    something could not be read; 2: bad input.
    """
    from nodrop.audit.audit_answer import audited, sarif
    from nodrop.tune.namespaces import some_port

    watch_s = None if watch is None else time_s("--watch", watch, least=1.0)
    with _host(where, become, ssh_config, "audit") as sensor:
        found = audited(sensor, role=role, config=config, ports=ports or [], watch_s=watch_s)
    if sarif_file is not None:
        write_anew(sarif_file, (sarif(found) + "\n").encode())
    if as_json:
        say_json(found.model_dump())
    else:
        _print(found)
        if not found.ports:
            host = [where] if where else []
            port = "NAME" if where else some_port()
            say()
            say("Start the sensor, or name its port:")
            say(f"do: {shlex.join(['nodrop', 'audit', *host, '--port', port])}")
    return found.exit_code


def _print(answer: AuditAnswer) -> None:
    from nodrop.terminal.console import console

    out = console()
    findings = [finding for finding in answer.findings if not finding.note]
    notes = [finding for finding in answer.findings if finding.note]
    ports = ", ".join(answer.ports) or "no port that anybody captures on"
    number = count_of(len(findings), "finding")
    say(f"{answer.role}, {ports}: {number} in {answer.took_s:.2f} s")
    for place, one in enumerate(findings, 1):
        _finding(out, f"{place}", one)
    for one in notes:
        _finding(out, "note", one)
    if answer.missing:
        say()
        say("Not read:")
        for lack in answer.missing:
            say(f"  {lack.what}: needs {lack.needs}")
    say()
    say("Shown, not judged:")
    for value in answer.values:
        say(f"  {value.what}: {value.value}")


def _finding(out: Console, name: str, answer: FindingAnswer) -> None:
    """Prints a finding: on a terminal a small table as wide as it is, else one line."""
    read = "; ".join(f"{each.value} ({each.at})" for each in answer.read)
    if not out.is_terminal:
        say(
            f"{name}. {answer.id}: {answer.where}: {answer.says}. Read: {read}. "
            f"Change: {answer.change}"
        )
        return
    from rich.table import Table

    say()
    out.print(f"{name}. {answer.id}: {answer.where}", markup=False, style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=9)
    table.add_column(overflow="fold")
    rows = {
        "": answer.says,
        "read": read,
        "why": answer.why,
        "change": answer.change,
        "unless": answer.not_when,
    }
    for head, words in rows.items():
        table.add_row(f"   {head}", words)
    out.print(table)


LEAST_S, MOST_S = 0.1, 3600.0
SPARK_INTERVALS = 12


def add_to(app: typer.Typer) -> None:
    app.command("drops")(drops)
    app.command("audit")(audit)


def drops(
    where: FarHost = None,
    once: Annotated[bool, typer.Option("--once", help="One interval, then end.")] = False,
    as_json: AsJson = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Length of each look: 500ms, 1s, 1m.")
    ] = "1s",
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after this time: 30s, 10m, 2h."),
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
        Path | None,
        typer.Option(
            "--metrics",
            metavar="FILE",
            help="Write each interval as OpenMetrics, for node_exporter's textfile collector "
            "(FILE.prom).",
        ),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="NAME",
            help="Only captures at this port, or at every port (any). Repeatable.",
        ),
    ] = None,
    fail_on_loss: Annotated[
        bool, typer.Option("--fail-on-loss", help="Exit with 1 if a packet was lost.")
    ] = False,
    fail_above_level: Annotated[
        str | None,
        typer.Option(
            "--fail-above-level",
            metavar="SHARE",
            help="Exit with 1 if a ring was fuller than this at any look: 80%.",
        ),
    ] = None,
    become: Become = None,
    ssh_config: SshConfig = None,
) -> int:
    """Show where packets die now on a sensor at work (port, kernel, socket rings, decoder), why,
    and the command that changes it.

    It finds all programs that capture packets (Suricata, Snort, Zeek, tcpdump …), also in
    containers and other network namespaces. It only reads: it resets no counter and does nothing
    per packet. For a normal user it shows what that user may see, and names the right that the
    rest needs. On a HOST over ssh it puts one file, the node, into /var/lib/nodrop.

    \b
    nodrop drops --once --json
    nodrop drops --interval 5s --for 10m
    nodrop drops --record monday --metrics /var/lib/node_exporter/nodrop.prom
    nodrop drops --port eth1 --for 10m --fail-on-loss --fail-above-level 80%
    nodrop drops sensor1 --become sudo

    Exit code 0: it could see; 1: a packet was lost (--fail-on-loss), or a ring was fuller than
    --fail-above-level; 6: no loss was seen, and nobody would have seen one at a port, at the end or
    for a time (no program captures there, it is down, its program is stopped, its ring is not
    visible to this user, a program there reads its own counters or cuts the longest frames), or no
    level was visible for --fail-above-level; 2: bad input.
    """
    from nodrop.audit.reading import peer_of
    from nodrop.drops.outlets import lost_at
    from nodrop.drops.places import ANALYSIS
    from nodrop.drops.watching import intervals
    from nodrop.results.writer import must_be_new
    from nodrop.testbed.hosts.control_groups import SocketLooks

    at = f"{', '.join(ports)} on {where or 'this host'}" if ports else where or "this host"
    interval_s = time_s("--interval", interval, least=LEAST_S, most=MOST_S)
    for_s = time_s("--for", for_, least=interval_s) if for_ is not None else None
    most_level = None if fail_above_level is None else share("--fail-above-level", fail_above_level)
    if record is not None:
        must_be_new(record)
    with (
        interrupts(),  # also SIGTERM ends with the totals, and with a whole record
        _host(where, become, ssh_config, "drops") as host,
        closing(SocketLooks(host, root=None if where else Path("/"))) as looks,
        _outlets(host, record, metrics) as outlets,
    ):
        levels = HighestLevel()
        found = _passed_on(
            intervals(
                looks,
                interval_s=interval_s,
                for_s=interval_s if once else for_s,
                levels=None if once else looks.levels,
                spells=None if once else looks.spells,
                peer_of=partial(peer_of, host),
                chosen=ports or (),
            ),
            [*outlets, levels],
        )
        last: DropsInterval | None = None
        if as_json:
            for last in found:
                _must_see_one(last, once, at)
                say_json(last.answer.model_dump())
        else:
            last = _show(found, once, at)
    if last is None:
        return 0
    lost = [lost_at(row) for row in last.answer.places if row.place != ANALYSIS]
    if fail_on_loss and lost:
        complain(f"lost: {'; '.join(lost)}")
        return FAULTS_SEEN
    if most_level is not None:
        if levels.ratio is not None and levels.ratio > most_level:
            complain(f"a ring was {levels.ratio * 100:.0f} % full: more than {fail_above_level}")
            return FAULTS_SEEN
        if levels.ratio is None:
            complain("no level of a ring is visible: nothing to hold against --fail-above-level")
            return NO_ANSWER
    return NO_ANSWER if last.cannot_tell else ANSWERED


@dataclass(slots=True)
class HighestLevel:
    """Fullest ring of a watch, those included of captures that ended."""

    ratio: float | None = None

    def add(self, interval: WatchedInterval) -> None:
        levels = [capture.level.highest_ratio for capture in interval.captures if capture.level]
        self.ratio = max((*levels, self.ratio or 0.0)) if levels else self.ratio


def share(option: str, text: str) -> float:
    """Share that a text says: `80%` → 0.8."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not (text.endswith("%") and 0 <= value <= 1):
        raise BadInput(f"{option} {text}: must be a share from 0% to 100%, such as 80%")
    return value


@contextmanager
def _outlets(
    host: LocalHost | SshHost, record: Path | None, metrics: Path | None
) -> Iterator[Sequence[RecordedWatch | Metrics]]:
    from nodrop.drops.openmetrics import Metrics
    from nodrop.drops.recording import RecordedWatch

    with ExitStack() as open_ones:
        found: list[RecordedWatch | Metrics] = []
        if metrics is not None:
            found.append(open_ones.enter_context(closing(Metrics(metrics))))
        if record is not None:
            facts = host.probe("host")["host"]
            made = RecordedWatch(record, host=facts, command=sys.argv)
            found.append(open_ones.enter_context(closing(made)))
        yield found


def _passed_on(
    intervals: Iterator[DropsInterval], outlets: Sequence[RecordedWatch | Metrics | HighestLevel]
) -> Iterator[DropsInterval]:
    for interval in intervals:
        for outlet in outlets:
            outlet.add(interval.answer)
        yield interval


@contextmanager
def _host(
    where: str | None, become: Literal["sudo"] | None, config: Path | None, label: str
) -> Iterator[LocalHost | SshHost]:
    """The host to look at, without a lock: others may measure there meanwhile."""
    from nodrop.testbed.hosts.journal import new_label
    from nodrop.testbed.hosts.local import LocalHost
    from nodrop.testbed.hosts.node import find_node_binary
    from nodrop.testbed.hosts.ssh import SshHost

    if where is None:
        only_for_a_host(become, config)
        with closing(LocalHost(name="here", node=find_node_binary(), label=label)) as host:
            yield host
    else:
        with SshHost(
            where,
            label=f"{label}-{new_label()}",
            become=become,
            config=config,
            holds=False,
        ) as far:
            yield far


def _must_see_one(interval: DropsInterval, once: bool, at: str) -> None:
    if once and not interval.balances:
        hint = "; ".join(f"{one['what']}: {one['needs']}" for one in interval.driven)
        raise NotReady(nobody(at), hint=hint or "start one, then look again")


def nobody(at: str) -> str:
    return f"no program captures packets on {at}"


def _show(intervals: Iterator[DropsInterval], once: bool, at: str) -> DropsInterval | None:
    """Shows the intervals as they come, and returns the last."""
    from nodrop.drops.outlets import ending, lines
    from nodrop.terminal.console import console

    out = console()
    began: int | None = None
    last: DropsInterval | None = None
    try:
        if out.is_terminal and not once:
            for last in _live(intervals):
                began = began or last.answer.began_real_ns
        else:
            idle = False
            for last in intervals:
                began = began or last.answer.began_real_ns
                _must_see_one(last, once, at)
                if not last.balances and not idle:
                    say(f"{nobody(at)}; waiting for one")
                idle = not last.balances
                for line in lines(last) if not once else ():
                    say(line)
    finally:
        if last is not None and began is not None and (last.balances or not once):
            for line in ending(last, began):
                say(line)
    return last


def _live(intervals: Iterator[DropsInterval]) -> Iterator[DropsInterval]:
    from rich.live import Live as Display

    from nodrop.drops.outlets import view
    from nodrop.terminal.console import console

    rates: dict[str, list[float]] = {}
    began: int | None = None
    with Display(console=console(), auto_refresh=False, transient=True, screen=False) as display:
        for interval in intervals:
            began = began or interval.answer.began_real_ns
            for row in interval.answer.places:
                at = f"{row.place}, {row.where} {row.counter}"
                rates[at] = [*rates.get(at, []), row.rate_pps][-SPARK_INTERVALS:]
            display.update(view(interval, began, rates), refresh=True)
            yield interval
