"""The command that reads this host and says which settings cost packets: audit."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.errors import BadInput, LabProblem
from nodrop.terminal.arguments import (
    AsJson,
    Become,
    Becoming,
    FarHost,
    SshConfig,
    only_for_a_host,
    seconds,
    write_anew,
    written_anew,
)
from nodrop.terminal.saying import say, say_json
from nodrop.untrusted.words import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from nodrop.audit.answer import Asked, AuditAnswer, FindingAnswer


THERE_TIMEOUT_S = 180.0
"""The first time Python compiles nodrop there, on a host that may be slow and busy."""


class HostRole(StrEnum):
    """`audit.world.Role`, which is not imported before it is needed; a test holds them equal."""

    SENSOR = "sensor"
    GENERATOR = "generator"


def add_to(app: typer.Typer) -> None:
    app.command("audit")(audit)


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
            help="A suricata.yaml (of HOST, if given); else that of each Suricata that runs.",
        ),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="NAME",
            help="Judge this port and who captures there; else every port that somebody "
            "captures on. Repeatable.",
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
    """Read a host, and say which settings cost packets, with the command that changes each.

    Nothing is changed and no module is loaded. What this user may not read is listed with the
    right that it needs. Onto a HOST over ssh nodrop is copied, as for measuring there
    (/var/lib/nodrop), and run as root.

    \b
    nodrop audit
    nodrop audit --watch 5s
    nodrop audit --port eth1 --config /etc/suricata/suricata.yaml
    nodrop audit --role generator --json
    nodrop audit sensor1 --become sudo

    Exit code 0: no finding; 1: there are findings (notes do not count); 6: no finding, and
    something could not be read; 2: bad input.
    """
    from nodrop.audit.answer import Asked, audited, sarif

    asked = Asked(
        role=role.value,
        config=None if config is None else str(config),
        ports=ports or [],
        watch_s=None if watch is None else seconds("--watch", watch, least=1.0),
    )
    if where is None:
        only_for_a_host(become, ssh_config)
        found = audited(asked)
    else:
        found = _there(where, become, ssh_config, asked)
    if sarif_file is not None:
        write_anew(sarif_file, (sarif(found) + "\n").encode())
    if as_json:
        say_json(found.model_dump())
    else:
        _print(found)
    return found.exit_code


def _there(where: str, become: Becoming | None, config: Path | None, asked: Asked) -> AuditAnswer:
    from pydantic import ValidationError

    from nodrop.audit.answer import AuditAnswer
    from nodrop.elsewhere.control_plane import placed
    from nodrop.hosts.journal import new_label
    from nodrop.hosts.ssh import SshHost

    with SshHost(
        where,
        label=f"audit-{new_label()}",
        become="sudo" if become else None,
        config=config,
        holds=False,
    ) as host:
        argv = [*placed(host), "nodrop.audit.answer", asked.model_dump_json()]
        timeout_s = THERE_TIMEOUT_S + (asked.watch_s or 0)
        done = host.run(argv, timeout_s=timeout_s, check=False)
    said = one_line(done.stderr, longest=2000)
    if done.returncode == BadInput.exit_code:
        raise BadInput(f"{where}: {said}")
    try:
        return AuditAnswer.model_validate_json(done.stdout)
    except ValidationError:
        raise LabProblem(f"{where}: nodrop audit cannot run there: {said}") from None


def _print(found: AuditAnswer) -> None:
    from nodrop.terminal.console import console

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
