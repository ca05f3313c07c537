"""Every kind of finding, by likely effect, and the answer of `nodrop audit --json`, or as SARIF."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nodrop import __version__
from nodrop.audit import capture_kinds as capture
from nodrop.audit import port_kinds as port
from nodrop.audit import reading
from nodrop.audit import spread_kinds as spread
from nodrop.audit.port_kinds import not_parted
from nodrop.audit.real_flows import watched
from nodrop.audit.world import AuditFinding, Costs, JudgedSnapshot, Kind, PortRole
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN, NO_ANSWER
from nodrop.ledger.quantities import NotNegative
from nodrop.results.records import Model
from nodrop.sensor.snapshot import Missing
from nodrop.testbed.hosts.api import Host

"""Exit codes: there are findings; there are none, and something could not be read."""
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

KINDS: tuple[Kind, ...] = (
    *capture.FIRST,
    *port.FIRST,
    *spread.FLOWS,
    *spread.INTERRUPTS,
    *port.MIDDLE,
    *capture.MIDDLE,
    *port.LATER,
    *capture.ANALYSIS,
    *port.SENDING,
    *capture.SECONDS,
    *spread.PLACES,
    *capture.NOTES,
    *port.NOTES,
)


def findings(world: JudgedSnapshot) -> tuple[AuditFinding, ...]:
    return tuple(
        AuditFinding(kind=kind, seen=seen)
        for kind in KINDS
        if world.role in kind.roles
        for seen in kind.look(world)
    )


def is_note(kind: Kind) -> bool:
    return kind.costs is Costs.NOTHING


class Evidence(Model):
    value: str
    at: str
    """The file or the question where it was read."""


class FindingAnswer(Model):
    id: str
    title: str
    note: bool
    """Whether it sets no exit code: a number that is easily misread."""
    costs: str
    where: str
    says: str
    read: list[Evidence]
    why: str
    source: str
    not_when: str
    change: str


class MissingAnswer(Model):
    what: str
    needs: str


class ValueAnswer(Model):
    what: str
    value: str
    at: str


class AuditAnswer(Model):
    format: Literal[1]
    role: str
    ports: list[str]
    """Ports that were judged."""
    findings: list[FindingAnswer]
    """Findings, those of the largest likely effect first."""
    missing: list[MissingAnswer]
    """Sources that could not be read, each with the right that it needs."""
    values: list[ValueAnswer]
    """Settings that are shown and not judged."""
    took_s: NotNegative
    exit_code: int


def audited(
    host: Host,
    *,
    role: PortRole,
    config: Path | None,
    ports: Sequence[str],
    watch_s: float | None,
) -> AuditAnswer:
    """Reads the host by its node, and with `watch_s` its real flows."""
    began = time.monotonic()
    files = [] if config is None else [str(config.absolute())]
    seen = reading.look(host, ports=ports, files=files)
    world = reading.judged(seen, role=role, config=config, ports=ports)
    if watch_s is not None:
        world = watched(host, world, watch_s)
    return answer(world, took_s=time.monotonic() - began)


def answer(world: JudgedSnapshot, *, took_s: float) -> AuditAnswer:
    found = findings(world)
    missing = (*world.missing, *not_parted(world), *capture.not_counted(world))
    return AuditAnswer(
        format=1,
        role=str(world.role),
        ports=[port.where for port in world.ports],
        findings=[_finding(one) for one in found],
        missing=[MissingAnswer(what=one.what, needs=one.needs) for one in missing],
        values=[ValueAnswer(what=one.what, value=one.value, at=one.at) for one in world.values],
        took_s=round(took_s, 3),
        exit_code=_exit_code(found, missing),
    )


def _exit_code(found: Sequence[AuditFinding], missing: Sequence[Missing]) -> int:
    if any(not is_note(one.kind) for one in found):
        return FAULTS_SEEN
    return NO_ANSWER if missing else ANSWERED


def _finding(found: AuditFinding) -> FindingAnswer:
    kind, seen = found.kind, found.seen
    return FindingAnswer(
        id=kind.id,
        title=kind.title,
        note=is_note(kind),
        costs=str(kind.costs),
        where=seen.where,
        says=seen.says,
        read=[Evidence(value=one.value, at=one.at) for one in seen.read],
        why=kind.why,
        source=kind.source,
        not_when=kind.not_when,
        change=seen.change,
    )


def sarif(found: AuditAnswer) -> str:
    rules = [
        {
            "id": kind.id,
            "shortDescription": {"text": kind.title},
            "fullDescription": {"text": kind.why},
            "help": {"text": f"{kind.change}. Does not apply: {kind.not_when} ({kind.source})"},
        }
        for kind in KINDS
    ]
    places = [kind.id for kind in KINDS]
    results: list[dict[str, Any]] = [
        {
            "ruleId": one.id,
            "ruleIndex": places.index(one.id),
            "level": "note" if one.note else "warning",
            "message": {"text": f"{one.where}: {one.says}. Change: {one.change}"},
            "locations": [
                {
                    "logicalLocations": [{"fullyQualifiedName": one.where}],
                    "message": {"text": f"{read.value} ({read.at})"},
                }
                for read in one.read
            ],
        }
        for one in found.findings
    ]
    driver = {"name": "nodrop audit", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)
