"""The door: what a node says is held against the types of its events before anything reads it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from nodrop.untrusted.json_text import NotJson, shown

Event = TypeVar("Event")


def fit(kind: type[Event], said: Mapping[str, Any]) -> Event:
    """`said` itself. NotJson, whose words need the source in front, names the first field that is
    of another type. Unknown fields may be there: a newer node says more."""
    try:
        _adapter(cast(Any, kind)).validate_python(said, strict=True)
    except ValidationError as error:
        raise NotJson(_words(error)) from None
    return cast(Event, said)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _words(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"has no {field}"
    return f"{field}: {shown(first['input'])}: {first['msg']}"
