"""Reading a TOML file, and `--set key=value` on top of it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.untrusted.folder import read_file

LONGEST_FILE_BYTES = 1 << 20


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The table and the text of the file. BadInput with the line where it is no TOML."""
    try:
        text = read_file(path, most_bytes=LONGEST_FILE_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a TOML file: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        words = re.fullmatch(r"(.*) \(at (.*)\)", str(error))
        where = f"{words[2]}: {words[1]}" if words else str(error)
        raise BadInput(f"{path}: {where}") from None


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
        return f"--set {printable(self.text)}"


def parse_setting(text: str) -> Setting:
    """`load.multiplier=4`. The value is read as TOML and, where it is none, as a text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {printable(text)}: must be key=value, such as load.multiplier=4")
    return Setting(text=text, path=key_path(key, f"--set {printable(text)}"), value=_value(value))


def key_path(key: str, where: str) -> tuple[str, ...]:
    """`sut.overrides."a.b"` → ("sut", "overrides", "a.b")."""
    try:
        table: Any = tomllib.loads(f"{key.strip()} = 0") if "\n" not in key else {}
    except tomllib.TOMLDecodeError:
        table = {}
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        [(name, table)] = table.items()
        path.append(name)
    if table != 0:
        raise BadInput(f"{where}: {key.strip()!r} is not a dotted key such as load.multiplier")
    return tuple(path)


def _value(text: str) -> Any:
    if not text.strip():
        return None
    try:
        table = tomllib.loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["v"] if len(table) == 1 else text


def printable(text: str) -> str:
    """Without line ends or terminal controls: an error stays one line, whatever was typed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
