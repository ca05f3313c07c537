"""Numbers and texts of books and records, with their bounds: a part of a record checks itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

MOST = 2**63 - 1
"""A signed number of 64 bits: what tables of other programs hold."""
Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Signed = Annotated[int, Field(strict=True, ge=-MOST, le=MOST)]
Packets = Count
Seconds = Annotated[float, Field(strict=True, ge=0)]
NotNegative = Annotated[float, Field(strict=True, ge=0)]
AtLeastOne = Annotated[float, Field(strict=True, ge=1)]
Text = Annotated[str, Field(strict=True)]

PART = ConfigDict(
    strict=False,
    allow_inf_nan=False,
    revalidate_instances="always",
    json_schema_serialization_defaults_required=True,
)
"""Config of a dataclass that a record holds as it is. Strict is each field by its type: a strict
dataclass would refuse the table that a line has of it."""
