"""A kind of finding: what it reads, why that costs packets, and the command that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from nodrop.audit.world import Role, World


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
class Seen:
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
    """When it does not apply."""
    change: str
    roles: tuple[Role, ...] = (Role.SENSOR,)
    look: Callable[[World], Iterator[Seen]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    kind: Kind
    seen: Seen


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "not known"


ONE_IN = 1_000_000
"""Losses since the counter began that are fewer than one in so many are those of any host."""


def matters(lost: int, arrived: int) -> bool:
    return lost > 0 and lost * ONE_IN >= arrived
