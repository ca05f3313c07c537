"""The base of all models of a run directory: strict types, and units in names."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST = 2**63 - 1
"""A signed number of 64 bits: what tables of other programs hold."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Signed = Annotated[int, Field(ge=-MOST, le=MOST)]
Packets = Count
Seconds = Annotated[float, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Model(BaseModel):
    # Unknown fields are ignored: an older nodrop reads what a newer one wrote.
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )

    def model_post_init(self, _: Any) -> None:
        # Which fields a line gave is never asked, and its set is half the memory of a record.
        object.__setattr__(self, "__pydantic_fields_set__", _all_fields(type(self)))


@cache
def _all_fields(model: type[BaseModel]) -> set[str]:
    """Shared by all its objects, which are frozen; a changed copy gets a set of its own."""
    return set(model.model_fields)
