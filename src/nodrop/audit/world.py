"""The host as an audit judges it, and what a finding is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodrop.audit.symmetry import Dealt
from nodrop.sensor.snapshot import Snapshot, SnapshotPort


class PortRole(StrEnum):
    SENSOR = "sensor"
    GENERATOR = "generator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A suricata.yaml."""

    path: str
    document: Mapping[str, Any]
    newer: bool = False
    """Whether it was written after the program that read it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSnapshot(Snapshot):
    """A snapshot whose ports are those that are judged."""

    role: PortRole = PortRole.SENSOR
    given: Settings | None = None
    """The file of --config, which stands for those of all programs."""
    settings: Mapping[int, Settings] = field(default_factory=dict)
    """Process id of a Suricata → its configuration."""
    dealt: Mapping[str, tuple[Dealt, ...]] = field(default_factory=dict)
    """Port → meetings of real flows there, if they were asked for (`--watch`)."""

    @property
    def configurations(self) -> list[Settings]:
        return [*self.settings.values()] if self.given is None else [self.given]

    def flows(self, port: SnapshotPort) -> tuple[Dealt, ...]:
        return self.dealt.get(port.where, ())


# A kind of finding: what it reads, why that costs packets, and the command that changes it.


class Costs(StrEnum):
    """Cost of a finding."""

    PACKETS = "packets"
    ANALYSIS = "analysis"
    """Packets arrive, and are not looked at."""
    CPU_TIME = "CPU time"
    NOTHING = "nothing"
    """A note: a number of this host that is easily misread."""


@dataclass(frozen=True, slots=True)
class Read:
    """A value, and where it stood."""

    value: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvidence:
    """A finding's evidence on this host."""

    where: str
    says: str
    read: tuple[Read, ...]
    change: str
    """The command, with this host's names in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    id: str
    """Stable: it never means anything else."""
    title: str
    costs: Costs
    why: str
    source: str
    not_when: str
    """Condition under which it does not apply."""
    change: str
    roles: tuple[PortRole, ...] = (PortRole.SENSOR,)
    look: Callable[[JudgedSnapshot], Iterator[FindingEvidence]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    kind: Kind
    seen: FindingEvidence


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "not known"


ONE_IN = 1_000_000
"""Losses since the counter began that are fewer than one in so many are those of any host."""


def matters(lost: int, arrived: int) -> bool:
    return lost > 0 and lost * ONE_IN >= arrived
