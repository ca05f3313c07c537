"""The file that describes a capture program: how to run it, and what its numbers mean.

docs/reference/program-file.md has every key. There is no code per program: expressions have names,
whole numbers, `+` and `-`; an identity compares two of them.
"""

from __future__ import annotations

import ast
import csv
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from nodrop.config.options import (
    CpuList,
    InputFile,
    Name,
    Options,
    YesNo,
    check,
    input_path,
    read_toml,
    unknown_key,
)
from nodrop.errors import BadInput, BadKey
from nodrop.ledger.imbalance import ThreadRole
from nodrop.untrusted.json_text import NotJson, decode_object
from nodrop.untrusted.matching import TooSlow, matches

SHIPPED = Path(__file__).parent / "programs"
STATEMENT_BYTES = 64 << 10
"""Read of the end of a program's text."""
COUNTER_MOST = 1 << 63
"""Programs subtract counters that are not the same age: 4294965006 and 2^64-1 have been printed."""
PLACES = ("interface", "work")
"""Names in `argv` that nodrop fills in; all others are knobs."""
_REPEATED_TWICE = re.compile(r"[+*}]\??\)[+*{]")
MOST_REPETITIONS = 16
_COMPARED = {ast.Eq: operator.eq, ast.LtE: operator.le, ast.GtE: operator.ge}


def _within_work(path: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ValueError("must name something in the work folder: no leading /, no ..")
    return path


WorkPath = Annotated[str, AfterValidator(_within_work)]
"""Path from the work folder on, which it does not leave."""


# --- expressions -------------------------------------------------------------------------------


def _parsed(text: str, *, compares: bool) -> ast.expr:
    try:
        found = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"{text!r} is no expression") from None
    if compares:
        if not isinstance(found, ast.Compare) or type(found.ops[0]) not in _COMPARED:
            raise ValueError("must compare two sums with ==, <= or >=")
        if len(found.ops) > 1:
            raise ValueError("must have one comparison")
        sides = [found.left, found.comparators[0]]
    else:
        sides = [found]
    for side in sides:
        _must_be_sum(side)
    return found


def _must_be_sum(node: ast.expr) -> None:
    match node:
        case ast.Name():
            return
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            _must_be_sum(left)
            _must_be_sum(right)
        case _:
            raise ValueError("may have names, whole numbers, + and - only")


def names_in(text: str) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name))


def value_of(text: str, counted: Mapping[str, int]) -> int:
    """A sum; KeyError names a counter that is not there."""
    return _sum(_parsed(text, compares=False), counted)


def holds(text: str, counted: Mapping[str, int]) -> bool:
    found = _parsed(text, compares=True)
    assert isinstance(found, ast.Compare)
    left, right = _sum(found.left, counted), _sum(found.comparators[0], counted)
    return bool(_COMPARED[type(found.ops[0])](left, right))


def _sum(node: ast.expr, counted: Mapping[str, int]) -> int:
    match node:
        case ast.Name(id=name):
            return counted[name]
        case ast.Constant(value=int() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            sign = 1 if isinstance(op, ast.Add) else -1
            return _sum(left, counted) + sign * _sum(right, counted)
    raise AssertionError(ast.dump(node))


def _sum_text(text: str) -> str:
    _parsed(text, compares=False)
    return text


def _identity_text(text: str) -> str:
    _parsed(text, compares=True)
    return text


def _regex_text(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if _REPEATED_TWICE.search(text):
        raise ValueError("repeats a group that ends with a repetition: it may take for ever")
    if _repeats_a_choice(_parser.parse(text)):
        raise ValueError("repeats a group that chooses among texts: it may take for ever")
    return text


def _repeats_a_choice(parsed: Iterable[Any], *, repeated: bool = False) -> bool:
    """Whether a group without a limit of repetitions can match one text in two ways: `(a|aa)+`."""
    for kind, argument in parsed:
        if kind is _parser.BRANCH and repeated:
            return True
        again = repeated
        if kind in (_parser.MAX_REPEAT, _parser.MIN_REPEAT):
            again = repeated or argument[1] > MOST_REPETITIONS
        for inner in _within(argument):
            if _repeats_a_choice(inner, repeated=again):
                return True
    return False


def _within(argument: Any) -> Iterator[Iterable[Any]]:
    """Parsed texts that an operator holds, however deep its argument keeps them."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for one in argument:
            yield from _within(one)


Sum = Annotated[str, AfterValidator(_sum_text)]
Identity = Annotated[str, AfterValidator(_identity_text)]
Regex = Annotated[str, AfterValidator(_regex_text)]
Source = Annotated[str, Field(pattern=r"^(stdout|stderr|file:[A-Za-z0-9][A-Za-z0-9._-]*)$")]
Signal = Literal["INT", "TERM", "QUIT", "HUP", "USR1", "USR2"]


# --- the file ----------------------------------------------------------------------------------


class Version(Options):
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    regex: Regex
    """Expression whose first group is the version."""


class ProgramKnob(Options):
    """A key of `[sut]` in an experiment, and a `{name}` in `argv`."""

    type: Literal["int", "choice", "file"] = "int"
    default: int | str | None = None
    """A file has none: the experiment names it, and the program finds it in its work folder."""
    min: int = 0
    max: int = 1 << 31
    choices: tuple[str, ...] = ()
    meaning: Literal["ring", "threads"] | None = Field(default=None, alias="is")
    """The place it has in advice: what makes the ring larger, what adds capture threads."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.type == "file":
            if self.default is not None:
                raise ValueError("a file has no default")
        elif self.type == "choice":
            if self.default not in self.choices:
                raise ValueError("default must be one of choices")
        elif not isinstance(self.default, int) or not self.min <= self.default <= self.max:
            raise ValueError("default must be a whole number from min to max")
        return self

    def field(self) -> tuple[Any, Any]:
        """The knob's type and default, as pydantic's create_model takes them."""
        if self.type == "file":
            return InputFile | None, None
        if self.type == "choice":
            return Literal[self.choices], self.default
        return Annotated[int, Field(ge=self.min, le=self.max)], self.default


class ReadyLine(Options):
    source: Source = Field(alias="from")
    regex: Regex


class Ready(Options):
    sockets: Sum = "1"
    """Capture sockets of the process tree on the interface: numbers and knobs."""
    ring: YesNo = True
    """Each socket has a ring of its own."""
    line: ReadyLine | None = None
    """Text that it prints besides; the sockets are looked at all the same."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 20


class Stop(Options):
    signal: Signal = "TERM"
    grace_s: Annotated[float, Field(gt=0, le=120)] = 5
    exit: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    """Statuses of a good end."""
    nudge: YesNo = False
    """The program ends only when one more packet comes: nodrop sends one, and takes it off its
    counts."""
    settle_s: Annotated[float, Field(ge=0, le=60)] = 2
    """Time to work off the rest where its ring cannot be seen from outside."""


class Statement(Options):
    """A text with counters."""

    source: Source = Field(alias="from")
    signal: Signal | None = None
    """Makes it print the statement while it runs; of `[live]` alone."""
    format: Literal["regex", "json_lines", "csv"] = "regex"
    regex: Regex | None = None
    """Expression whose named groups are the counters."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Counter → dotted path in a JSON line, or column of a csv file with a header."""
    take: Literal["only", "last", "sum"] = "only"
    """The choice among several statements: refuse them, take the last, or add them up."""
    absent: dict[str, int] = Field(default_factory=dict)
    """Counters that are not printed if they have this value."""
    required: tuple[str, ...] = ()
    """Counters without which nothing was said: the program was killed, or the text is cut."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.format == "regex":
            if self.regex is None or self.fields:
                raise ValueError('format = "regex" takes regex, and no fields')
            if not re.compile(self.regex).groupindex:
                raise ValueError("regex has no named group: (?P<received>\\d+)")
        elif self.regex is not None or not self.fields:
            raise ValueError(f'format = "{self.format}" takes fields, and no regex')
        if stray := sorted({*self.absent, *self.required} - self.names):
            raise ValueError(f"{stray[0]} is none of its counters")
        return self

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.fields or re.compile(self.regex or "").groupindex)

    def read(self, text: str) -> dict[str, int]:
        """The counters; NoStatement says in words what is wrong with the text."""
        found = [*self._each(text)]
        if not found:
            raise NoStatement("nothing in it matches")
        if len(found) > 1 and self.take == "only":
            raise NoStatement(f'{len(found)} statements match: say take = "last" or "sum"')
        wanted = found if self.take == "sum" else found[-1:]
        total: dict[str, int] = {}
        for one in wanted:
            if missing := [name for name in self.required if name not in one]:
                raise NoStatement(f"{missing[0]} is missing")
            for name, value in {**self.absent, **one}.items():
                total[name] = total.get(name, 0) + value
        return total

    def how_often(self, text: str) -> int:
        return sum(1 for _ in self._each(text))

    def _each(self, text: str) -> Iterable[dict[str, int]]:
        if self.format == "regex":
            try:
                statements = matches(self.regex or "", text)
            except TooSlow as error:
                raise NoStatement(str(error)) from None
            for match in statements:
                yield _counters(match.groupdict())
        elif self.format == "csv":
            for row in csv.DictReader(text.splitlines()):
                yield _counters({name: row.get(column) for name, column in self.fields.items()})
        else:
            for line in text.splitlines():
                try:
                    record = decode_object(line)
                except NotJson:
                    continue  # the first is cut where the reading began, the last where it ended
                found = {name: _at(record, path) for name, path in self.fields.items()}
                if any(value is not None for value in found.values()):
                    yield _counters(found)


class NoStatement(Exception):
    """The program's text has no counters in it, or not as its description says."""


def _at(record: Mapping[str, Any], path: str) -> str | None:
    here: Any = record
    for name in path.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return None
        here = here[name]
    return None if isinstance(here, dict | list | bool) else str(here)


def _counters(found: Mapping[str, str | None]) -> dict[str, int]:
    counted = {}
    for name, text in found.items():
        if text is None or not text.strip():
            continue
        digits = text.strip().replace(",", "")
        if not digits.isdecimal() or not digits.isascii():
            raise NoStatement(f"{name} is {text.strip()[:40]!r}, no whole number")
        if int(digits) >= COUNTER_MOST:
            raise NoStatement(f"{name} = {digits[:40]}: no host counts so many packets")
        counted[name] = int(digits)
    return counted


class ProgramLoss(Options):
    """A place within the program where packets are lost."""

    packets: Sum
    knob: str = ""


class Books(Options):
    """Counters → the places of the packet books. What is not given is not visible."""

    captured: Sum | None = None
    """The kernel had for its sockets, those that found no room in the ring included."""
    dropped_ring_full: Sum | None = None
    decoded: Sum | None = None
    lost: dict[str, ProgramLoss] = Field(default_factory=dict)

    def sums(self) -> dict[str, str]:
        own = {
            "captured": self.captured,
            "dropped_ring_full": self.dropped_ring_full,
            "decoded": self.decoded,
        }
        losses = {f"lost.{name}": loss.packets for name, loss in self.lost.items()}
        return {**{name: text for name, text in own.items() if text is not None}, **losses}


class ProgramDescription(Options):
    name: Name
    licence: str = ""
    """Licence of the program that is run; nodrop links nothing of it."""
    version: Version | None = None
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    knobs: dict[str, ProgramKnob] = Field(default_factory=dict)
    files: dict[WorkPath, str] = Field(default_factory=dict)
    """Name in the work folder → content, in which `{interface}`, `{work}` and knobs are filled."""
    folders: tuple[WorkPath, ...] = ()
    """Folders in the work folder that are made before the program starts."""
    needs: tuple[Literal["IPC_LOCK"], ...] = ()
    """Capabilities beside NET_RAW: IPC_LOCK, for a ring in locked memory."""
    discard: tuple[WorkPath, ...] = ()
    """Files that the program writes and no one reads. They are removed after each trial; a name may
    end in `*`."""
    ready: Ready = Ready()
    stop: Stop = Stop()
    threads: dict[Literal["receive", "worker", "flow manager", "other"], Regex] = Field(
        default_factory=dict
    )
    """Role → kernel names of threads, of all processes of the tree."""
    exit: Statement | None = None
    """The program's last words. None: it says nothing, and the kernel's counters of its sockets
    stand."""
    live: Statement | None = None
    """The program's statement while it runs, with the same counters."""
    books: Books = Books()
    identities: dict[str, Identity] = Field(default_factory=dict)
    """Rules that its counters must fulfil; if one does not hold, the trial is void."""
    variants: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Knob → its value → keys of this file that are others then."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        own = set(CommandOptions.model_fields) | {"kind", *PLACES}
        if taken := sorted(own & set(self.knobs)):
            raise ValueError(f"knobs.{taken[0]}: the name is taken")
        fillable = {*PLACES, *self.knobs}
        for words in (*self.argv, *self.files.values()):
            for name in re.findall(r"\{(\w+)\}", words):
                if name not in fillable:
                    raise ValueError(f"{{{name}}}{unknown_key(name, sorted(fillable))}")
        for name, values in self.variants.items():
            knob = self.knobs.get(name)
            if knob is None or knob.type != "choice":
                raise ValueError(f"variants.{name}: is no knob of type choice")
            if unknown := sorted(set(values) - set(knob.choices)):
                raise ValueError(f"variants.{name}.{unknown[0]}: is none of its choices")
        if stray := sorted(names_in(self.ready.sockets) - set(self.knobs)):
            raise ValueError(f"ready.sockets: {stray[0]} is no knob")
        counters = set() if self.exit is None else set(self.exit.names)
        used = [(f"books.{at}", text) for at, text in self.books.sums().items()]
        used += [(f"identities.{at}", text) for at, text in self.identities.items()]
        for at, text in used:
            if stray := sorted(names_in(text) - counters):
                where = "no [exit] says any" if self.exit is None else "none of [exit]"
                raise ValueError(f"{at}: {stray[0]} is no counter: {where}")
        if self.exit is not None and not self.books.sums():
            raise ValueError("[exit] has counters, and [books] does not say what they mean")
        if self.exit is not None and self.exit.signal is not None:
            raise ValueError("exit.signal: only [live] is asked for by a signal")
        if self.live is not None and self.live.names < counters:
            lacks = sorted(counters - self.live.names)[0]
            raise ValueError(f"live: has no {lacks}, which [exit] has")
        return self

    def filled(self, words: str, values: Mapping[str, Any]) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), words)

    def options(self) -> type[CommandOptions]:
        """The model of `[sut]` of an experiment that measures it."""
        fields: dict[str, Any] = {name: knob.field() for name, knob in self.knobs.items()}
        made: type[CommandOptions] = create_model("KnobOptions", __base__=CommandOptions, **fields)
        return made

    def role(self, thread: str) -> ThreadRole | None:
        for role, names in self.threads.items():
            if re.search(names, thread):
                return ThreadRole(role)
        return None

    def knob_names(self, meaning: str) -> Sequence[str]:
        return [f"sut.{name}" for name, knob in self.knobs.items() if knob.meaning == meaning]


class CommandOptions(Options):
    program: str
    """Shipped name, or path of a description that ends in .toml."""
    binary: InputFile | None = None
    """Program instead of the one in PATH."""
    image: str | None = None
    """Name of the image to run it from."""
    cpus: CpuList | None = None
    """CPUs to pin it to, as in cpuset(7)."""


def shipped() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def find_program(written: object, *, base: Path) -> Path:
    known = shipped()
    if written is None:
        raise BadKey(
            "sut.program", f"missing; it must be given: {', '.join(known)}, or a .toml file"
        )
    if not isinstance(written, str):
        raise BadKey("sut.program", "must be a text in quotes")
    if written in known:
        return known[written]
    if not written.endswith(".toml"):
        near = unknown_key(written, list(known))
        raise BadKey(
            "sut.program", f"is no shipped program, and no .toml file{near}", given=f'"{written}"'
        )
    return input_path(Path(written), base)


def read_program(path: Path, values: Mapping[str, Any] | None = None) -> ProgramDescription:
    """The program as these values of its knobs make it, or their defaults. BadInput: file, key, and
    what is allowed, of its variants too."""
    table, _ = read_toml(path)
    try:
        _must_be_words({key: value for key, value in table.items() if key != "files"})
        program = check(ProgramDescription, table, table="", base=path.parent)
        for name, variants in program.variants.items():
            chosen = (values or {}).get(name, program.knobs[name].default)
            for value, keys in variants.items():
                where = f"variants.{name}.{value}"
                if fixed := sorted({"name", "variants"} & set(keys)):
                    raise BadInput(f"{where}.{fixed[0]}: is the same for all variants")
                check(ProgramDescription, _merged(table, keys), table=where, base=path.parent)
                table = _merged(table, keys) if value == chosen else table
        return check(ProgramDescription, table, table="", base=path.parent)
    except BadInput as error:
        raise error.at(path) from None


def _must_be_words(value: Any, key: str = "") -> None:
    """BadInput for a text that execve(2) does not take."""
    if isinstance(value, str) and "\0" in value:
        raise BadInput(f"{key}: has a NUL byte, which no command line takes")
    if isinstance(value, Mapping):
        for name, one in value.items():
            _must_be_words(one, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for one in value:
            _must_be_words(one, key)


def _merged(table: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(table[key], keys[key])
        for key in table.keys() & keys.keys()
        if isinstance(table[key], dict) and isinstance(keys[key], dict)
    }
    return {**table, **keys, **both}
