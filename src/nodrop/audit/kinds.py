"""Kinds of findings in the order of their likely effect, with their words (kinds.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Literal

from pydantic import TypeAdapter

from nodrop.audit.host_role import HostRole


class Costs(StrEnum):
    """Cost of a finding."""

    PACKETS = "packets"
    ANALYSIS = "analysis"
    CPU_TIME = "CPU time"
    NOTHING = "nothing"


Subject = Literal["host", "ports", "captured ports", "captures", "programs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A row of the table, which describes its columns."""

    id: str
    title: str
    costs: Costs
    judges: Subject
    why: str
    source: str
    not_when: str
    change: str
    roles: tuple[HostRole, ...] = (HostRole.SENSOR,)

    @property
    def note(self) -> bool:
        return self.costs is Costs.NOTHING


TABLE = files("nodrop.audit").joinpath("kinds.toml").read_text("utf-8")
KINDS = TypeAdapter(tuple[Kind, ...]).validate_python(tomllib.loads(TABLE)["kind"])
