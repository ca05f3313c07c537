"""Role of a host that is audited."""

from __future__ import annotations

from enum import StrEnum


class HostRole(StrEnum):
    SENSOR = "sensor"
    GENERATOR = "generator"
