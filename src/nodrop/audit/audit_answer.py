"""Answer of `nodrop audit`, as `--json` has it, or as SARIF."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nodrop import __version__
from nodrop.audit import capture_kinds, port_kinds, reading, spread_kinds
from nodrop.audit.host_role import HostRole
from nodrop.audit.kinds import KINDS, Kind
from nodrop.audit.real_flows import watched
from nodrop.audit.world import JudgedSnapshot, Look, Read
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN, NO_ANSWER
from nodrop.ledger.quantities import NotNegative
from nodrop.results.model import Model
from nodrop.sensor.snapshot import Missing, ShownSetting
from nodrop.testbed.hosts.api import Host

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LOOKS: Mapping[str, Look] = {**capture_kinds.LOOKS, **port_kinds.LOOKS, **spread_kinds.LOOKS}


class FindingAnswer(Model):
    id: str
    title: str
    note: bool
    """Whether it sets no exit code: a number that is easily misread."""
    costs: str
    where: str
    says: str
    read: list[Read]
    why: str
    source: str
    not_when: str
    change: str


class AuditAnswer(Model):
    format: Literal[1]
    role: str
    ports: list[str]
    """Ports that were judged."""
    findings: list[FindingAnswer]
    """Findings, those of the largest likely effect first."""
    missing: list[Missing]
    """Sources that could not be read, each with the right that it needs."""
    values: list[ShownSetting]
    """Settings that are shown and not judged."""
    took_s: NotNegative
    exit_code: int


def audited(
    host: Host,
    *,
    role: HostRole,
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
    found = [*findings(world)]
    parted = port_kinds.not_parted(world)
    missing = [*world.missing, *parted, *capture_kinds.not_counted(world)]
    cannot_tell = NO_ANSWER if missing else ANSWERED
    return AuditAnswer(
        format=1,
        role=str(world.role),
        ports=[port.where for port in world.ports],
        findings=found,
        missing=missing,
        values=[*world.values],
        took_s=round(took_s, 3),
        exit_code=cannot_tell if all(one.note for one in found) else FAULTS_SEEN,
    )


def findings(world: JudgedSnapshot) -> Iterator[FindingAnswer]:
    for kind in KINDS:
        for where, *subject in _subjects(world, kind) if world.role in kind.roles else ():
            for seen in LOOKS[kind.id](world, *subject):
                yield FindingAnswer(
                    id=kind.id,
                    title=kind.title,
                    note=kind.note,
                    costs=str(kind.costs),
                    where=seen.where or where,
                    says=seen.says,
                    read=[*seen.read],
                    why=kind.why,
                    source=kind.source,
                    not_when=kind.not_when,
                    change=seen.change,
                )


def _subjects(world: JudgedSnapshot, kind: Kind) -> Iterable[tuple[Any, ...]]:
    """Names of the subjects that a kind judges, each with the subject."""
    match kind.judges:
        case "host":
            return [("",)]
        case "ports":
            return [(port.where, port) for port in world.ports]
        case "captured ports":
            return [(port.where, port) for port in world.captured()]
        case "captures":
            return [(capture.where, capture) for capture in world.captures()]
        case "programs":
            return [(str(program), program) for program in world.programs]


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
            "ruleId": finding.id,
            "ruleIndex": places.index(finding.id),
            "level": "note" if finding.note else "warning",
            "message": {"text": f"{finding.where}: {finding.says}. Change: {finding.change}"},
            "locations": [
                {
                    "logicalLocations": [{"fullyQualifiedName": finding.where}],
                    "message": {"text": f"{read.value} ({read.at})"},
                }
                for read in finding.read
            ],
        }
        for finding in found.findings
    ]
    driver = {"name": "nodrop audit", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)
