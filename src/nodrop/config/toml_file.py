"""Reading a TOML file, and `--set key=value` on top of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.json_text import is_utf8

LONGEST_FILE_BYTES = 1 << 20
LONGEST_LINE = 64 << 10
MOST_DOTS = 4096
"""Limit on the dots of a line. Lists of numbers and paths have fewer, and a dotted key of so many
parts takes the square of its length to read."""
DEPTH = 32
MOST_INT = 1 << 65
"""Keys have bounds of their own, up to 64 bits, and say them in their own words."""


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The table and the text of the file. BadInput with the line that is no TOML."""
    try:
        text = read_file(path, most_bytes=LONGEST_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a TOML file: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    return parse_toml(text, path), text


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The table of a text that is kept, or would be kept, at `path`."""
    try:
        return _loads(text)
    except tomllib.TOMLDecodeError as error:
        words = re.fullmatch(r"(.*) \(at (.*)\)", str(error))
        where = f"{words[2]}: {words[1]}" if words else str(error)
        raise BadInput(f"{path}: {printable(where)}") from None
    except Unbounded as error:
        raise BadInput(f"{path}: {error}") from None


class Unbounded(Exception):
    """It may be TOML, but no experiment looks like that: what is beyond a bound, and where."""


def _loads(text: str) -> dict[str, Any]:
    """Tables that can be walked, printed and computed with."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE or line.count(".") > MOST_DOTS:
            raise Unbounded(f"line {number} is longer than {LONGEST_LINE} characters or all dots")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise Unbounded(f"tables or lists are nested deeper than {DEPTH}") from None
    except ValueError:  # Python's own limit of digits
        raise Unbounded("a number has thousands of digits") from None
    _check_bounds(table)
    return table


def _check_bounds(table: dict[str, Any]) -> None:
    open_values: list[tuple[str, int, Any]] = [("", 0, table)]
    while open_values:
        key, depth, value = open_values.pop()
        if isinstance(value, int) and not -MOST_INT <= value < MOST_INT:
            raise Unbounded(f"{printable(key)}: the number is beyond 64 bits")
        if isinstance(value, dict | list):
            if depth > DEPTH:
                raise Unbounded(
                    f"{printable(key.partition('.')[0])}: is nested deeper than {DEPTH}"
                )
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            prefix = f"{key}." if key else ""
            open_values += [(f"{prefix}{name}", depth + 1, one) for name, one in inner]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One `--set`: a dotted key and its value."""

    text: str
    path: tuple[str, ...]
    value: Any
    """None takes the key away (`--set load.speed=`): TOML has no null of its own."""

    @property
    def key(self) -> str:
        return ".".join(self.path)

    def __str__(self) -> str:
        return f"--set {_shortened(self.text)}"


def parse_setting(text: str) -> Setting:
    """`load.multiplier=4`. The value is read as TOML or, if it is not TOML, as a text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {_shortened(text)}: must be key=value, such as load.multiplier=4")
    where = f"--set {_shortened(text)}"
    if not is_utf8(text):
        raise BadInput(f"{where}: is not UTF-8, which TOML must be")
    try:
        return Setting(text=text, path=key_path(key, where), value=_value(value))
    except Unbounded as error:
        raise BadInput(f"{where}: {str(error).removeprefix('v: ')}") from None


def key_path(key: str, where: str) -> tuple[str, ...]:
    """`sut.overrides."a.b"` → ("sut", "overrides", "a.b")."""
    try:
        table: Any = _loads(f"{key.strip()} = 0") if "\n" not in key else {}
    except tomllib.TOMLDecodeError:
        table = {}
    except Unbounded as error:
        raise BadInput(f"{where}: {error}") from None
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        [(name, table)] = table.items()
        path.append(name)
    if table != 0:
        shown = _shortened(repr(key.strip()))
        raise BadInput(f"{where}: {shown} is not a dotted key such as load.multiplier")
    return tuple(path)


def _value(text: str) -> Any:
    if not text.strip():
        return None
    try:
        table = _loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["v"] if len(table) == 1 else text


def to_toml(table: Mapping[str, Any]) -> str:
    """The text of which `read_toml` makes this table again: its values, then its tables."""
    return "".join(_lines(table, ()))


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    own = {name: value for name, value in table.items() if name not in inner}
    if path and (own or not inner):
        yield f"\n[{'.'.join(map(_written_key, path))}]\n"
    for name, value in own.items():
        yield f"{_written_key(name)} = {_written(value)}\n"
    for name, value in inner.items():
        yield from _lines(value, (*path, name))


def _written_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _written(name)


def _written(value: Any) -> str:
    """JSON is TOML here, but for DEL, for exponents, and for tables in lists."""
    if isinstance(value, Mapping):
        pairs = (f"{_written_key(name)} = {_written(inner)}" for name, inner in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def printable(text: str) -> str:
    """Without line ends or terminal controls: an error stays one line, whatever was typed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str) -> str:
    return printable(text if len(text) <= 120 else f"{text[:120]}…")


def put(table: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Sets (or with None takes away) what stands at a dotted path, making tables on the way.

    A key written with dots inside, as `"stream.memcap"` of overrides, is met as a whole first, so
    that one entry is changed and not a second one made beside it.
    """
    whole = ".".join(path)
    if len(path) == 1 or whole in table:
        if value is None:
            table.pop(whole, None)
        else:
            table[whole] = value
        return
    inner = table.setdefault(path[0], {})
    if not isinstance(inner, dict):
        raise BadInput(f"{path[0]} is a value, so it holds no {'.'.join(path[1:])}")
    put(inner, path[1:], value)
