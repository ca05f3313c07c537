"""The host as an audit judges it, and the evidence of a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nodrop.audit.host_role import HostRole
from nodrop.audit.symmetry import Dealt
from nodrop.sensor.snapshot import Snapshot, SnapshotPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A suricata.yaml."""

    path: str
    document: Mapping[str, Any]
    newer: bool = False
    """Whether it was written after the program that read it was started."""

    def entries(self, section: str) -> list[Mapping[str, Any]]:
        """Entries of a section, each of which names a port; those of dpdk are one level down."""
        found = self.document.get(section)
        if isinstance(found, dict):
            found = found.get("interfaces")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSnapshot(Snapshot):
    """A snapshot whose ports are those that are judged."""

    role: HostRole = HostRole.SENSOR
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


@dataclass(frozen=True, slots=True)
class Read:
    value: str
    at: str
    """The file or the question where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvidence:
    """A finding's evidence on this host."""

    says: str
    read: tuple[Read, ...]
    change: str
    """The command, with this host's names in it."""
    where: str = ""
    """Empty: the subject that was looked at."""


Look: TypeAlias = Callable[..., Iterator[FindingEvidence]]
"""Looks for one kind of finding, in a `JudgedSnapshot` and at one subject of it (`Kind.judges`)."""


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "not known"


ONE_IN = 1_000_000
"""Losses since the counter began that are fewer than one in so many are those of any host."""


def matters(lost: int, arrived: int) -> bool:
    return lost > 0 and lost * ONE_IN >= arrived
