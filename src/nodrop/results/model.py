"""Base of all records: strict models, and the format of a line."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

FORMAT: Final[Literal[2]] = 2
"""Format of a line of trials.jsonl: an envelope with a body by kind."""
RUN_FORMAT = 1
"""Format of manifest.json."""


class UnknownFormat(Exception):
    """The line is of no format that this nodrop reads; says so in words."""


def current(line: dict[str, Any]) -> dict[str, Any]:
    """The line, if it is of this format."""
    found = line.get("format")
    if found != FORMAT or not isinstance(found, int):
        newer = isinstance(found, int) and found > FORMAT
        words = f"{found} is of a newer nodrop; this one reads" if newer else "must be"
        raise UnknownFormat(f"{words} {FORMAT}")
    return line


class Model(BaseModel):
    # Unknown fields are ignored: one may read what a newer nodrop wrote.
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        strict=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        defer_build=True,  # most starts need few of the models
    )

    def model_post_init(self, _: Any) -> None:
        # Which fields a line gave is never asked, and its set is half the memory of a record.
        object.__setattr__(self, "__pydantic_fields_set__", _all_fields(type(self)))


@cache
def _all_fields(model: type[BaseModel]) -> set[str]:
    """Shared by all its objects, which are frozen; a changed copy gets a set of its own."""
    return set(model.model_fields)
