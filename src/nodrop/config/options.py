"""A table of an experiment or lab file, checked against a model: bad input becomes one clear line.

A plugin declares its table as a subclass of `Options` and calls `check` in its constructor:

    class SuricataOptions(Options):
        defrag: YesNo = True
        threads: PositiveInt | Literal["auto"] = "auto"
        rules: tuple[InputFile, ...] = ()

    class Suricata:
        def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
            self.options = check(SuricataOptions, options, table="sut", base=base)

`sut.threads = "many": must be a whole number or auto` is the kind of line a user then sees.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
import shlex
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails

from nodrop.config.units import parse_bytes, parse_cpus
from nodrop.errors import BadInput, BadKey
from nodrop.untrusted.folder import open_file, read_file
from nodrop.untrusted.json_text import is_utf8

# Reading a TOML file, and `--set key=value` on top of it.

LONGEST_FILE_BYTES = 1 << 20
CAPTURE = re.compile(rb"\xa1\xb2..|..\xb2\xa1|\n\r\r\n|snoo", re.DOTALL)
"""First bytes of pcap in each byte order and resolution, pcapng and snoop."""
PACKED_CAPTURE = re.compile(r"\.p?cap(ng)?\.(gz|xz|zst|lz4|bz2)$")
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
        with open_file(path) as file:
            begin = file.read(4)
        if CAPTURE.fullmatch(begin) or PACKED_CAPTURE.search(path.name):
            hint = f"to measure with it: nodrop capacity {shlex.quote(str(path))}"
            raise BadInput(f"{path}: is a capture, and no TOML file", hint=hint)
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
    """The text is beyond a bound that every experiment keeps: names the bound and the place."""

    def __init__(self, words: str, *, key: str = "") -> None:
        super().__init__(f"{key}: {words}" if key else words)
        self.words = words


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
            raise Unbounded("the number is beyond 64 bits", key=printable(key))
        if isinstance(value, dict | list):
            if depth > DEPTH:
                table_key = printable(key.partition(".")[0])
                raise Unbounded(f"is nested deeper than {DEPTH}", key=table_key)
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
        return Setting(text=text, path=key_path(key, where), value=_toml_value(value))
    except Unbounded as error:
        raise BadInput(f"{where}: {error.words}") from None


def setting_text(key: str, value: Any) -> str:
    """`load.multiplier=4`, of which `parse_setting` makes this value again. A text that TOML would
    read as something else stays in quotes."""
    plain = isinstance(value, str) and _toml_value(value) == value and value.strip()
    return f"{key}={value if plain else _written(value)}"


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


def _toml_value(text: str) -> Any:
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
    """The text without line ends or terminal controls: an error stays one line, whatever was
    typed."""
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
        words = f"{path[0]} is a value, so it holds no {'.'.join(path[1:])}"
        raise BadInput(words, keys=path[:1])
    put(inner, path[1:], value)


Scalar = str | int | float | bool


class Options(BaseModel):
    """A table: unknown keys and other types are errors, `nan` and `inf` are no numbers."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
    )


ModelT = TypeVar("ModelT", bound=BaseModel)


def check(model: type[ModelT], options: Mapping[str, Any], *, table: str, base: Path) -> ModelT:
    """The validated table. `base` is the folder of the file: relative paths start there.

    `table` is the dotted name of the table in its file, empty for the whole file. `kind` chose the
    plugin and is taken out unless the model wants it.
    """
    given = dict(options)
    if "kind" not in model.model_fields:
        given.pop("kind", None)
    try:
        return _validated(model, given, base)
    except ValidationError as error:
        raise _first(error, model, given, table, base) from None


def _validated(model: type[ModelT], given: Mapping[str, Any], base: Path) -> ModelT:
    # Through JSON: strictness then allows exactly what TOML can write (a list for a tuple, a string
    # for a path), and refuses "5" or true for a number.
    return model.model_validate_json(json.dumps(given, default=str), context={"base": base})


def _first(
    error: ValidationError,
    model: type[BaseModel],
    given: Mapping[str, Any],
    table: str,
    base: Path,
) -> BadInput:
    """The first thing that is wrong, and what is allowed."""
    errors = error.errors(include_url=False)
    # A misspelt key is the likely cause of a missing one, so it comes first.
    errors.sort(key=lambda e: e["type"] != "extra_forbidden")
    place = _place(errors[0], given)
    alternatives = [e for e in errors if _place(e, given) == place]
    key = _dotted(table, place)
    match errors[0]["type"]:
        case "extra_forbidden":
            return BadKey(key, f"no such key{_nearest(place, model, table)}", unknown=True)
        case "missing":
            return BadKey(key, "missing; it must be given")
    allowed = " or ".join(dict.fromkeys(_allowed(e) for e in alternatives))
    allowed = allowed.replace(" or must be ", " or ").replace(" or allowed are ", " or ")
    value, keys = _value(place, given), [key]
    if isinstance(value, Mapping) and errors[0]["type"] == "value_error":
        # None are at odds where one is missing.
        keys = [_dotted(key, [name]) for name in _at_odds(model, given, place, base)] or keys
    if not place:
        return BadKey(key, allowed, keys=keys) if key else BadInput(allowed, keys=keys)
    return BadKey(key, allowed, given=shown(value), keys=keys)


MOST_AT_ODDS = 100
"""Keys of a table that are looked at; a table of a model has fewer."""


def _at_odds(
    model: type[BaseModel], given: Mapping[str, Any], place: Sequence[str | int], base: Path
) -> Iterator[str]:
    """Keys of the table at a place that do not fit together: without any one of them the table
    would not be refused as a whole."""
    for name in islice(_value(place, given), MOST_AT_ODDS):
        less = copy.deepcopy(dict(given))
        del _value(place, less)[name]
        try:
            _validated(model, less, base)
        except ValidationError as error:
            if any(_place(e, less) == tuple(place) for e in error.errors(include_url=False)):
                continue
        yield name


def _dotted(table: str, place: Sequence[str | int]) -> str:
    return ".".join([table, *map(_quoted, place)] if table else map(_quoted, place))


def unknown_key(
    key: str,
    known: Sequence[str],
    *,
    prefix: str = "",
    suffix: str = "",
    otherwise: str | None = None,
) -> str:
    """Words for a key that does not exist, with the nearest that does; if none is near
    `otherwise`, by default all that do."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.55)
    if near:
        return f"; did you mean {prefix}{near[0]}{suffix}?"
    if otherwise is not None:
        return otherwise
    return f"; allowed are {', '.join(prefix + k for k in sorted(known))}" if known else ""


def shown(value: object) -> str:
    """A value as TOML would write it, short enough for an error line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = str(value)
    text = printable(text)
    return text if len(text) <= 60 else text[:57] + "..."


# --- types that tables share -------------------------------------------------------------------


def _yes_no(value: object) -> object:
    """`yes` and `no`, as Suricata's YAML writes them, beside TOML's true and false."""
    if isinstance(value, bool):
        return value
    if value in ("yes", "no"):
        return value == "yes"
    raise ValueError("allowed are yes, no")


class Inputs:
    """The place of the files that an experiment names."""

    def find(self, written: Path, base: Path) -> Path:
        # Made absolute but symbolic links are kept: a user recognises the path in a message.
        return Path(base / written.expanduser()).absolute()

    def matching(self, pattern: Path) -> list[Path]:
        """Files that an absolute path with a shell's wildcards names, in order."""
        root = Path(pattern.anchor)
        return sorted(root.glob(str(pattern.relative_to(root))))

    def image(self, name: str) -> str:
        """Name by which the cache of this machine has an image that an experiment names, or that
        its SUT takes without a word."""
        return name


INPUTS: ContextVar[Inputs] = ContextVar("inputs", default=Inputs())  # noqa: B039  has no state
"""The inputs of this machine; others if the experiment was asked on another one (remote/inputs.py).
"""


def input_path(written: Path, base: Path) -> Path:
    return INPUTS.get().find(written, base)


def _from_base(path: Path, info: ValidationInfo) -> Path:
    base: Path = info.context["base"] if info.context else Path()
    try:
        full = input_path(path, base)
    except RuntimeError:
        raise ValueError("no such user: ~ has no home to stand for") from None
    if not is_utf8(full):
        raise ValueError("its name is not UTF-8, and JSON takes no other: rename it, or its folder")
    return full


def existing_file(path: Path, info: ValidationInfo) -> Path:
    """Validator: the absolute path of a file that must be there."""
    full = _from_base(path, info)
    try:
        if not full.exists():
            raise ValueError(f"no such file: {full}")
        if not full.is_file():
            raise ValueError(f"must be a file, and {full} is not one")
    except OSError as error:
        raise ValueError(f"cannot be looked at: {error.strerror}") from None
    return full


def _memory(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


def _flat(value: object) -> object:
    """`stream.memcap = "1gb"`, quoted as one key or bare as two tables, means the same."""
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")
    flat: dict[str, object] = {}

    def add(prefix: str, table: Mapping[str, object]) -> None:
        for name, entry in table.items():
            key = f"{prefix}{name}"
            if isinstance(entry, Mapping):
                add(f"{key}.", entry)
            elif key in flat:
                raise ValueError(f"{key} is given twice")
            else:
                flat[key] = entry

    add("", value)
    return flat


NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""Names a file or folder of ours."""
YesNo = Annotated[
    bool,
    BeforeValidator(_yes_no),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no"]}]}),
]
InputFile = Annotated[Path, AfterValidator(existing_file)]
"""A file that must be there; relative to the file that names it."""
AnyPath = Annotated[Path, AfterValidator(_from_base)]
"""A path that need not exist yet; relative to the file that names it."""


def _cpu_list(text: str) -> str:
    parse_cpus(text)
    return text


def _one_cpu(given: object) -> object:
    return str(given) if type(given) is int else given


CpuList = Annotated[str, BeforeValidator(_one_cpu), AfterValidator(_cpu_list)]
"""A list such as "0-2,5"; a number is that CPU."""
MemorySize = Annotated[
    int,
    BeforeValidator(_memory),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]
"""Bytes: 536870912 or "512MiB"."""
Overrides = Annotated[dict[str, Scalar | list[Scalar]], BeforeValidator(_flat)]
"""Dotted path → value; nested tables are flattened."""


# --- words for pydantic's errors ---------------------------------------------------------------

_TYPE_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text in quotes",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "finite_number": "must be a finite number",
}
_BOUND_WORDS = {
    "greater_than": ("gt", "must be > {}"),
    "greater_than_equal": ("ge", "must be >= {}"),
    "less_than": ("lt", "must be < {}"),
    "less_than_equal": ("le", "must be <= {}"),
    "too_short": ("min_length", "must have at least {} entries"),
    "string_too_short": ("min_length", "must have at least {} characters"),
    "string_too_long": ("max_length", "must have at most {} characters"),
}


def _allowed(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "literal_error":
        return "allowed are " + re.sub("'([^']*)'", r"\1", context["expected"]).replace(
            " or ", ", "
        )
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUND_WORDS:
        name, words = _BOUND_WORDS[kind]
        bound = context[name]
        if bound == 1:
            words = words.replace("entries", "entry").replace("characters", "character")
        return words.format(f"{bound:g}" if isinstance(bound, float) else bound)
    if kind == "string_pattern_mismatch" and context["pattern"] == NAME_PATTERN:
        return "must be lower case letters, digits and dashes, at most 64, no dash first"
    return _TYPE_WORDS.get(kind, error["msg"][:1].lower() + error["msg"][1:])


def _place(error: ErrorDetails, given: object) -> tuple[str | int, ...]:
    """pydantic's location without the names of union members that it adds."""
    place: list[str | int] = []
    here: Any = given
    for number, part in enumerate(error["loc"], start=1):
        if isinstance(here, list | tuple):
            inside = isinstance(part, int) and part < len(here)
        else:
            inside = isinstance(here, Mapping) and part in here
        if inside:
            here = here[part]
        elif error["type"] != "missing" or number < len(error["loc"]):
            continue
        place.append(part)
    return tuple(place)


def _value(place: Sequence[str | int], given: object) -> Any:
    here: Any = given
    for part in place:
        here = here[part]
    return here


def _quoted(part: str | int) -> str:
    if isinstance(part, int):
        return str(part)
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else shown(part)


def _nearest(place: Sequence[str | int], model: type[BaseModel], table: str) -> str:
    inner: type[BaseModel] | None = model
    for part in place[:-1]:
        field = inner.model_fields.get(str(part)) if inner else None
        inner = _model_of(field.annotation) if field else None
    if inner is None:
        return ""
    prefix = _dotted(table, place[:-1])
    return unknown_key(
        str(place[-1]), list(inner.model_fields), prefix=prefix + "." if prefix else ""
    )


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    found = [_model_of(argument) for argument in typing.get_args(annotation)]
    return next((m for m in found if m), None)
