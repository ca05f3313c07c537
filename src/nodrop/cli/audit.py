"""The command that reads this host and says which settings cost packets: audit."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.cli.arguments import AsJson, seconds, write_anew, written_anew
from nodrop.cli.saying import say, say_json

if TYPE_CHECKING:
    from rich.console import Console

    from nodrop.audit.answer import AuditAnswer, FindingAnswer


class HostRole(StrEnum):
    """`audit.world.Role`, which is not imported before it is needed; a test holds them equal."""

    SENSOR = "sensor"
    GENERATOR = "generator"


def add_to(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    role: Annotated[
        HostRole, typer.Option("--role", help="What this host does.")
    ] = HostRole.SENSOR,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A suricata.yaml; else that of each Suricata that runs.",
        ),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="NAME",
            help="Judge this port; else those that somebody captures on. Repeatable.",
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="TIME",
            help="Watch real flows so long (5s): do both directions of each meet in one thread? "
            "One more listener at the port, of a part of its flows.",
        ),
    ] = None,
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
    """Read this host, and say which settings cost packets, with the command that changes each.

    Nothing is changed and no module is loaded. What this user may not read is listed with the
    right that it needs.

    \b
    nodrop audit
    nodrop audit --watch 5s
    nodrop audit --port eth1 --config /etc/suricata/suricata.yaml
    nodrop audit --role generator --json

    Exit code 0: no finding; 1: there are findings (notes do not count); 6: no finding, and
    something could not be read; 2: bad input.
    """
    from nodrop.audit.answer import answer, sarif
    from nodrop.audit.reading import read_world
    from nodrop.audit.world import Role

    began = time.monotonic()
    watch_s = None if watch is None else seconds("--watch", watch, least=1.0)
    world = read_world(role=Role(role), config=config, ports=ports or (), watch_s=watch_s)
    found = answer(world, took_s=time.monotonic() - began)
    if sarif_file is not None:
        write_anew(sarif_file, (sarif(found) + "\n").encode())
    if as_json:
        say_json(found.model_dump())
    else:
        _print(found)
    return found.exit_code


def _print(found: AuditAnswer) -> None:
    from nodrop.cli.terminal import console

    out = console()
    findings = [one for one in found.findings if not one.note]
    notes = [one for one in found.findings if one.note]
    ports = ", ".join(found.ports) or "no port that anybody captures on"
    number = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
    say(f"{found.role}, {ports}: {number} in {found.took_s:.2f} s")
    for place, one in enumerate(findings, 1):
        _finding(out, f"{place}", one)
    for one in notes:
        _finding(out, "note", one)
    if found.missing:
        say()
        say("Not read:")
        for lack in found.missing:
            say(f"  {lack.what}: needs {lack.needs}")
    say()
    say("Shown, not judged:")
    for value in found.values:
        say(f"  {value.what}: {value.value}")


def _finding(out: Console, name: str, one: FindingAnswer) -> None:
    """On a terminal a small table as wide as it is; else one line."""
    read = "; ".join(f"{each.value} ({each.at})" for each in one.read)
    if not out.is_terminal:
        say(f"{name}. {one.id}: {one.where}: {one.says}. Read: {read}. Change: {one.change}")
        return
    from rich.table import Table

    say()
    out.print(f"{name}. {one.id}: {one.where}", markup=False, style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=9)
    table.add_column(overflow="fold")
    rows = {
        "": one.says,
        "read": read,
        "why": one.why,
        "change": one.change,
        "unless": one.not_when,
    }
    for head, words in rows.items():
        table.add_row(f"   {head}", words)
    out.print(table)
