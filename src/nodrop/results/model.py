"""What all that stands in a run directory has in common: strict types, and units in names."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
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
