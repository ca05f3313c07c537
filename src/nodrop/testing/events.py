"""Whole events of a node for tests that say only the fields they are about."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import is_typeddict

Event = TypeVar("Event")


def whole(kind: type[Event], said: Mapping[str, Any]) -> Event:
    """With nothing (0, "", [], None) in each field that must be there and is not said."""
    hints = get_type_hints(kind, include_extras=True)
    filled = {
        name: _filled(_plain(hint), said.get(name))
        for name, hint in hints.items()
        if name in said or get_origin(hint) is not NotRequired
    }
    return cast(Event, {**said, **filled})


def _plain(hint: Any) -> Any:
    while get_origin(hint) in (NotRequired, Annotated):
        hint = get_args(hint)[0]
    return hint


def _filled(hint: Any, value: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(one for one in map(_plain, get_args(hint)) if one is not type(None))
    if is_typeddict(hint):
        return whole(hint, value or {})
    inner = get_args(hint)
    match get_origin(hint):
        case builtin if builtin is list:
            return [_filled(_plain(inner[0]), one) for one in value or ()]
        case builtin if builtin is dict:
            return {key: _filled(_plain(inner[1]), one) for key, one in (value or {}).items()}
        case builtin if builtin is Literal:
            return inner[0] if value is None else value
    return hint() if value is None else value
