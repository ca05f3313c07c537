"""JSON that anybody may have written: node, guest, eve.json, journals, run directories.

One decoder with limits: bytes, depth, numbers of 64 bits, no NaN. What it returns can be walked,
printed and computed with; what breaks a limit is one NotJson, whose words need only the source
in front of them.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

from nodrop.errors import BadInput, LabProblem

if TYPE_CHECKING:
    from pydantic import ValidationError

# Foreign words as text, on whatever they are shown: names of traces, rules and hosts are written by
# anybody, and a terminal obeys some of them. What does not make sense raises one error that names
# its source.

THIN = "\u202f"
"""Narrow no-break space: groups digits in every language, and never breaks a line."""
LONGEST = 300
"""Limit on a name in running text; a 10 kB name must not bury the page."""


def plain(text: object, *, longest: int = LONGEST) -> str:
    """The text with every invisible or direction-turning character spelled out, and an end."""
    given = str(text)
    if len(given) <= longest and given.replace(THIN, "").isprintable():
        return given  # nearly always, and 20 times as fast
    spelled = "".join(_spelled(c) for c in given[:longest])
    return spelled if len(given) <= longest else f"{spelled}… ({len(given)} characters)"


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(text: str) -> str:
    """A spreadsheet must not compute it (CWE-1236); numbers never come through here."""
    clean = plain(text, longest=10_000)
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def one_line(text: object, *, longest: int = 2000) -> str:
    """Words of an error, a journal or a name for a terminal: on one line, without controls."""
    lines = (line.strip() for line in str(text).splitlines())
    return plain(" ".join(line for line in lines if line), longest=longest)


def is_utf8(text: object) -> bool:
    """The name of a file may hold any bytes; others are lone surrogates here."""
    return not any("\ud800" <= char <= "\udfff" for char in str(text))


_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Invisible characters of a text of many lines; U+202F is left."""


def visible(text: str) -> str:
    """A whole page or file with every such character spelled out, whatever part brought it."""
    return _INVISIBLE.sub(lambda found: _spelled(found[0]), text)


def _spelled(char: str) -> str:
    # Cc control, Cf format (bidirectional marks, zero width), Cs lone surrogates, Zl Zp line ends,
    # Co private use. U+202F is our own thin separator (Zs) and stays.
    if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    return char


@contextmanager
def making_sense(source: str) -> Iterator[None]:
    """Around the few lines that take fields out of what `source` said. A missing field, a list in
    place of an object, a text in place of a number end in LabProblem. Also a decorator."""
    try:
        yield
    except KeyError as error:
        raise LabProblem(f"{source} makes no sense: it has no {_short(error.args[0])}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise LabProblem(f"{source} makes no sense: {_short(error)}") from error


def _short(words: Any) -> str:
    return one_line(words, longest=200)


# How much of a foreign thing is read, and the one key that allows more.
#
# Every bound is far above what nodrop itself writes. `NODROP_BOUNDS_TIMES=8` in the environment
# raises all of them eightfold.
KEY = "NODROP_BOUNDS_TIMES"
MIB = 1 << 20

SMALL_FILE_BYTES = 64 * MIB
"""A file that is read as a whole: a manifest, an experiment, a journal, a rule file's page."""
LINE_BYTES = 4 * MIB
"""A line of JSON. A trial record has a few kilobytes, eve.json's statistics of 64 threads 200."""
LINES_FILE_BYTES = 16 << 30
"""A file that is read line by line: no bound of memory, but of time."""
GUEST_FILE_BYTES = 256 * MIB
"""Limit on one file, or all that one program says, out of a guest; it lies in memory on its way."""
GUEST_TRIAL_BYTES = 1 << 30
"""Limit on all files that a SUT leaves in its guest, of one trial."""
FOLDER_ENTRIES = 1_000_000
"""Names in one folder."""


def times() -> float:
    """The factor by which every bound is multiplied."""
    text = os.environ.get(KEY, "").strip()
    if not text:
        return 1.0
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= 1e6:
        raise BadInput(f"{KEY}={text!r}: must be a number from 1 to 1,000,000")
    return number


def raised(bound: int) -> int:
    return int(bound * times())


def said(number_bytes: int) -> str:
    """A bound in words: `64 MiB`."""
    whole, unit = (number_bytes, "bytes")
    for bigger in ("KiB", "MiB", "GiB"):
        if whole < 1024 or whole % 1024:
            break
        whole, unit = whole // 1024, bigger
    return f"{whole:,} {unit}"


PIECE_BYTES = 1 << 20


def unpack(packed: IO[bytes], to: Path, *, most_bytes: int, where: str) -> None:
    """Writes what `packed` yields to `to`, whole or not at all."""
    most = raised(most_bytes)
    partial = to.with_name(f"{to.name}.{os.getpid()}.partial")
    unpacked = 0
    try:
        with partial.open("xb") as out:
            while piece := packed.read(PIECE_BYTES):
                unpacked += len(piece)
                if unpacked > most:
                    raise BadInput(
                        f"{where}: unpacks to more than {said(most)}",
                        hint=f"{KEY}=2 in the environment allows twice as much",
                    )
                out.write(piece)
        partial.rename(to)
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise BadInput(f"{where}: cannot be unpacked: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadInput(f"{where}: cannot be unpacked: {error}") from None  # gzip's own
    finally:
        partial.unlink(missing_ok=True)


DEPTH = 64
MOST_INT = 1 << 64
_LONGEST_INT = 20
"""Digits; more are not even computed, for that takes the square of their number."""
_LONGEST_SHOWN = 60

Kind = TypeVar("Kind")


class NotJson(ValueError):
    """Says what is wrong; the source is the caller's word."""


def decode(text: bytes | str, *, most_bytes: int = LINE_BYTES) -> Any:
    """Any JSON value."""
    most = raised(most_bytes)
    if len(text) > most:
        raise NotJson(f"has more than {said(most)} ({KEY}=… allows more)")
    try:
        found = _DECODER.decode(text if isinstance(text, str) else text.decode())
    except NotJson:
        raise
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise NotJson(f"is nested deeper than {DEPTH}") from None
    except ValueError as error:
        raise NotJson(f"is not JSON: {error}") from None
    _check_depth(text, found)
    return found


def decode_object(text: bytes | str, *, most_bytes: int = LINE_BYTES) -> dict[str, Any]:
    found = decode(text, most_bytes=most_bytes)
    if not isinstance(found, dict):
        raise NotJson("is not an object")
    return found


def member(table: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind:
    """A field that must be there and be of this type; a bool is no int, an int is a float."""
    if name not in table:
        raise NotJson(f"has no {name}")
    found = table[name]
    fits = isinstance(found, kind) and (kind is bool or not isinstance(found, bool))
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return kind(found)  # type: ignore[call-arg]
    if not fits:
        raise NotJson(f"{name}: {shown(found)} is not {_KINDS.get(kind, kind.__name__)}")
    return found  # type: ignore[no-any-return]


def optional(table: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind | None:
    """A field of this type, or None if it is missing or null."""
    return None if table.get(name) is None else member(table, name, kind)


def value_in(found: object, *path: str) -> Any:
    """The value at this path of nested tables; None if one of them is not there, or no table."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def table_in(found: object, *path: str) -> dict[str, Any]:
    """A table within `found`; empty if there is none."""
    value = value_in(found, *path)
    return value if isinstance(value, dict) else {}


def list_in(found: object, *path: str) -> list[Any]:
    """A list within `found`; empty if there is none."""
    value = value_in(found, *path)
    return value if isinstance(value, list) else []


def tables_in(found: object, *path: str) -> list[dict[str, Any]]:
    return [one for one in list_in(found, *path) if isinstance(one, dict)]


def counted(table: Mapping[str, Any], name: str) -> int:
    """A number that must be whole and not negative."""
    found = member(table, name, int)
    if found < 0:
        raise NotJson(f"{name}: {found} is negative")
    return found


def first_fault(error: ValidationError) -> str:
    """The first field at fault, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return one_line(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"]))))


def shown(value: Any) -> str:
    """A foreign value in an error: short."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


_KINDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def _int(digits: str) -> int:
    if len(digits) <= _LONGEST_INT + 1 and -MOST_INT < (number := int(digits)) < MOST_INT:
        return number
    raise NotJson(f"the number {digits[:_LONGEST_INT]}… ({len(digits)} digits) is beyond 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise NotJson(f"the number {digits[:_LONGEST_SHOWN]} is beyond 64 bits")
    return number


def _constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_constant)


def _check_depth(text: bytes | str, found: Any) -> None:
    whole = text.encode(errors="replace") if isinstance(text, str) else text
    if whole.count(b"{") + whole.count(b"[") <= DEPTH:
        return
    level = [found]
    for _ in range(DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise NotJson(f"is nested deeper than {DEPTH}")
