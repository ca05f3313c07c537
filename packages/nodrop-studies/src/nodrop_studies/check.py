"""Whether a list of published or recomputed figures follows from the original files.

Each entry of the list has a recipe: an operation on files, columns and windows. All operations are
defined in docs/how-to/import-published-data.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from rich import box
from rich.table import Table
from rich.text import Text

from nodrop.errors import BadInput
from nodrop.untrusted.folder import Folder, read_file
from nodrop.untrusted.json_text import SMALL_FILE_BYTES, decode
from nodrop_studies import workbooks
from nodrop_studies.paper_tables import TableCell, TableSpec
from nodrop_studies.samples import Sample, Skip
from nodrop_studies.workbooks import NoValueError, read_workbook

# "6.60user 0.00system …" by default, "User time (seconds): 6.60" with -v, "user 6.60" with -p.
_USER_S = re.compile(
    r"^\s*(?:(?P<plain>[\d.]+)user\b|User time \(seconds\):\s*(?P<verbose>[\d.]+)"
    r"|user\s+(?P<posix>[\d.]+)\s*$)",
    re.MULTILINE,
)
# " 75971 43.3474 :  400414:	rdtsc  "; if no sample fell on it both numbers are missing.
_INSTRUCTION = re.compile(
    r"^\s*(?:(?P<samples>\d+)\s+(?P<share>[\d.]+(?:e[-+]?\d+)?))?\s*:"
    r"\s*[0-9a-f]+:\s+(?P<mnemonic>\S+)"
)
_FUNCTION = re.compile(r"^[0-9a-f]{8,} <.*>:")
_REPORT_ROW = re.compile(r"^(?P<samples>\d+)\s+[\d.]+(?:e[-+]?\d+)?\s+(?P<rest>\S.*)$")


def time_user_s(path: Path) -> float:
    """The "user" seconds of the GNU time output in a text file."""
    match = _USER_S.search(_text(path))
    if match is None:
        raise NoValueError(f"{path.name} holds no output of GNU time")
    return float(match["plain"] or match["verbose"] or match["posix"])


def opannotate_share(path: Path, line: str) -> float:
    """Percentage printed for `rdtsc`, or for the instruction after the second `cpuid`.

    A profiler's interrupt is booked on the instruction after the one that was running, so what
    stands beside the latter is the time of the second `cpuid` itself.
    """
    if line not in ("rdtsc", "after_second_cpuid"):
        raise NoValueError(f"line {line!r} is not rdtsc or after_second_cpuid")
    for function in _functions(path):
        words = [mnemonic for mnemonic, _ in function]
        # The dynamic linker, annotated too, times itself with rdtsc; the test has both.
        if "rdtsc" not in words or words.count("cpuid") < 2:
            continue
        if line == "rdtsc":
            return function[words.index("rdtsc")][1]
        after = words.index("cpuid", words.index("cpuid") + 1) + 1
        if after < len(function):
            return function[after][1]
    raise NoValueError(f"{path.name} annotates no function with cpuid, rdtsc, cpuid")


def oprofile_share(path: Path, symbol: str) -> float:
    """100 * samples of the symbol / all samples of the report."""
    total = found = 0
    seen = False
    for samples, rest in _report_rows(path):
        total += samples
        if rest == symbol or rest.endswith(" " + symbol):
            found += samples
            seen = True
    if not seen:
        raise NoValueError(f"{path.name} does not name the symbol {symbol}")
    return 100 * found / total


def _functions(path: Path) -> Iterator[list[tuple[str, float]]]:
    """Instructions with the percentage printed beside them, function by function."""
    function: list[tuple[str, float]] = []
    for line in _text(path).splitlines():
        if _FUNCTION.match(line):
            yield function
            function = []
        elif match := _INSTRUCTION.match(line):
            function.append((match["mnemonic"], float(match["share"] or 0)))
    yield function


def _report_rows(path: Path) -> Iterator[tuple[int, str]]:
    for line in _text(path).splitlines():
        match = _REPORT_ROW.match(line)
        if match is not None:
            yield int(match["samples"]), match["rest"].strip()


def _text(path: Path) -> str:
    try:
        return Folder(path.parent).read(path.name).decode(errors="replace")
    except OSError as error:
        raise NoValueError(f"{path.name} cannot be read: {error}") from error


# Of a figure's size: float sums in another order differ by this much, and never by more.
ROUNDING = 1e-12


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    def value(self, files: RecipeFiles) -> float:
        raise NotImplementedError


class _OfColumn(_Model):
    file: str
    column: str
    floor: bool = False
    divide: float = 1


class Window(_OfColumn):
    op: Literal["window"]
    lo_s: float
    hi_s: float
    stat: Literal["mean", "stdev"]

    def value(self, files: RecipeFiles) -> float:
        return _windowed(self, files.samples(self.file), None)


class WindowDifference(_OfColumn):
    op: Literal["window_difference"]
    minus: str
    lo_s: float
    hi_s: float
    stat: Literal["mean", "stdev"]

    def value(self, files: RecipeFiles) -> float:
        return _windowed(self, files.samples(self.file), files.samples(self.minus))


class Record(_OfColumn):
    op: Literal["record"]
    record: int

    def value(self, files: RecipeFiles) -> float:
        return workbooks.record(
            files.samples(self.file),
            self.column,
            self.record,
            floor=self.floor,
            divide=self.divide,
        )


class OfRecords(_OfColumn):
    op: Literal["last_record", "peak"]

    def value(self, files: RecipeFiles) -> float:
        made = {"last_record": workbooks.last_record, "peak": workbooks.peak}[self.op]
        samples = files.samples(self.file)
        return made(samples, self.column, floor=self.floor, divide=self.divide)


class OfRun(_OfColumn):
    op: Literal["plateau", "run_value", "run_sum"]

    def value(self, files: RecipeFiles) -> float:
        made = {
            "plateau": workbooks.plateau,
            "run_value": workbooks.run_value,
            "run_sum": workbooks.run_sum,
        }[self.op]
        return made(files.samples(self.file), self.column, floor=self.floor) / self.divide


class PlateauTime(_Model):
    op: Literal["plateau_time"]
    file: str
    columns: tuple[str, ...]
    floor: bool = False

    def value(self, files: RecipeFiles) -> float:
        return workbooks.plateau_time(files.samples(self.file), self.columns, floor=self.floor)


class TimeUser(_Model):
    op: Literal["time_user_s"]
    file: str

    def value(self, files: RecipeFiles) -> float:
        return time_user_s(files.path(self.file))


class OpannotateShare(_Model):
    op: Literal["opannotate_share"]
    file: str
    line: str

    def value(self, files: RecipeFiles) -> float:
        return opannotate_share(files.path(self.file), self.line)


class OprofileShare(_Model):
    op: Literal["oprofile_share"]
    file: str
    symbol: str

    def value(self, files: RecipeFiles) -> float:
        return oprofile_share(files.path(self.file), self.symbol)


Recipe = (
    Window
    | WindowDifference
    | Record
    | OfRecords
    | OfRun
    | PlateauTime
    | TimeUser
    | OpannotateShare
    | OprofileShare
)


class ExpectedFigure(BaseModel):
    """One figure: how it is made, what it must be, what was printed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    recipe: Annotated[Recipe, Field(discriminator="op")]
    expected: float | None
    tolerance: float = 0
    published: float | None = None
    published_tolerance: float | None = None
    status: str = ""
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryResult:
    """The result of one entry."""

    entry: ExpectedFigure
    ours: float | None
    problem: str
    """Why there is no figure; empty if there is one."""

    @property
    def hit(self) -> bool:
        """Ours is there, and within the tolerance of what was expected."""
        expected = self.entry.expected
        if self.ours is None or expected is None:
            return self.ours is not None
        slack = self.entry.tolerance + ROUNDING * abs(expected)
        return abs(self.ours - expected) <= slack

    @property
    def published_disagrees(self) -> bool:
        """The printed figure is not ours within its own precision."""
        if self.ours is None or self.entry.published is None:
            return False
        allowed = (self.entry.published_tolerance or 0) + ROUNDING * abs(self.ours)
        return abs(self.ours - self.entry.published) > allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEntry:
    outcomes: tuple[EntryResult, ...]
    skips: tuple[Skip, ...]
    """Parts that were left out of the workbooks that were read."""


class RecipeFiles:
    """The files that recipes name, looked for below the data set's folder."""

    # A difference needs two workbooks at once; more would be memory without use.
    KEPT = 2

    def __init__(self, folder: Path) -> None:
        self._roots = (folder / "original", folder)
        self._open: dict[str, Sequence[Sample]] = {}
        self.skips: list[Skip] = []

    def path(self, name: str) -> Path:
        relative = Path(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise NoValueError(f"{name} does not lie below the data set's folder")
        for root in self._roots:
            *above, file = relative.parts or ("",)
            if root.is_dir() and Folder(root, tuple(above)).is_file(file):
                return root / relative
        raise NoValueError(f"{name} is not there")

    def samples(self, name: str) -> Sequence[Sample]:
        """The samples of a workbook; never an empty sequence."""
        if name not in self._open:
            read = read_workbook(self.path(name))
            self.skips += [skip for skip in read.skips if skip not in self.skips]
            if not read.samples:
                raise NoValueError(f"{name}: {read.skips[0].reason} {read.skips[0].detail}".strip())
            while len(self._open) >= self.KEPT:
                del self._open[next(iter(self._open))]
            self._open[name] = read.samples
        return self._open[name]


def read_entries(path: Path) -> list[ExpectedFigure]:
    """The entries of an expected.json. BadInput naming the first that is not one."""
    try:
        content = decode(read_file(path), most_bytes=SMALL_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {error}", hint="give the data set's expected.json") from error
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{path}: no list `entries`", hint="give the data set's expected.json")
    try:
        return TypeAdapter(list[ExpectedFigure]).validate_python(entries)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path}: entries.{where}: {first['msg']}") from error


def check(entries: Iterable[ExpectedFigure], folder: Path) -> CheckedEntry:
    """Evaluates all recipes, file by file: a workbook is read once. The order stays as given."""
    numbered = list(enumerate(entries))
    files = RecipeFiles(folder)
    outcomes: dict[int, EntryResult] = {}
    for number, entry in sorted(numbered, key=lambda pair: (pair[1].recipe.file, pair[0])):
        outcomes[number] = _outcome(entry, files)
    in_order = tuple(outcomes[number] for number, _ in numbered)
    return CheckedEntry(outcomes=in_order, skips=tuple(files.skips))


def _outcome(entry: ExpectedFigure, files: RecipeFiles) -> EntryResult:
    try:
        return EntryResult(entry=entry, ours=entry.recipe.value(files), problem="")
    except NoValueError as error:
        return EntryResult(entry=entry, ours=None, problem=str(error))


def _windowed(
    recipe: Window | WindowDifference, samples: Sequence[Sample], minus: Sequence[Sample] | None
) -> float:
    figure = workbooks.window(
        samples,
        recipe.column,
        lo_s=recipe.lo_s,
        hi_s=recipe.hi_s,
        minus=minus,
        floor=recipe.floor,
    )
    if recipe.stat == "mean":
        return figure.mean / recipe.divide
    if figure.sigma is None:
        raise NoValueError("one checkpoint alone has no standard deviation")
    return figure.sigma / recipe.divide


# Tables for the terminal and JSON for machines: what a check found, what a table holds.

GIB = 2**30
MIB = 2**20


def check_table(outcomes: Sequence[EntryResult]) -> Table:
    """One row per entry, in the file's order."""
    table = _table("entry", "ours >", "expected >", "published >", "status", "result")
    for outcome in outcomes:
        entry = outcome.entry
        result = "ok" if outcome.hit else f"MISS {outcome.problem}".strip()
        if outcome.published_disagrees:
            result += ", published value disagrees"
        table.add_row(
            *map(
                Text,
                (
                    entry.id,
                    number(outcome.ours),
                    number(entry.expected),
                    number(entry.published),
                    entry.status,
                    result,
                ),
            )
        )
    return table


def check_words(outcomes: Sequence[EntryResult]) -> Iterator[str]:
    """The figures that print and files disagree on, and their count."""
    for outcome in outcomes:
        if outcome.published_disagrees:
            entry = outcome.entry
            note = f": {entry.note}" if entry.note else ""
            yield (
                f"flag: {entry.id}: published {number(entry.published)}, the files give "
                f"{number(outcome.ours)} ({entry.source}){note}"
            )
    hits = sum(outcome.hit for outcome in outcomes)
    yield f"{hits} of {len(outcomes)} figures reproduced, {len(outcomes) - hits} missed"


def check_json(checked: CheckedEntry) -> dict[str, Any]:
    return {
        "entries": [
            {
                "id": outcome.entry.id,
                "ours": outcome.ours,
                "expected": outcome.entry.expected,
                "tolerance": outcome.entry.tolerance,
                "published": outcome.entry.published,
                "status": outcome.entry.status,
                "hit": outcome.hit,
                "published_disagrees": outcome.published_disagrees,
                "problem": outcome.problem or None,
            }
            for outcome in checked.outcomes
        ],
        "hits": sum(outcome.hit for outcome in checked.outcomes),
        "misses": sum(not outcome.hit for outcome in checked.outcomes),
    }


def figure_table(spec: TableSpec, cells: Sequence[TableCell]) -> tuple[Table, int]:
    """Paper and sound side by side, and how many columns name a row. Sigma is over time, the
    interval is between runs."""
    over_time = spec.window is not None
    parts = len({cell.part for cell in cells}) > 1
    paper = (
        ("mean >", "sigma over time >", "n >", "window s", "published >")
        if over_time
        else ("record >", "at")
    )
    table = _table(
        *(["part"] if parts else []),
        *("setup", "load", "memory", "column"),
        *paper,
        *("sound: median of runs >", "95 % interval", "runs >", "flag"),
    )
    table.title = f"{'Table ' if over_time else ''}{spec.name}: {spec.title}"
    for cell in cells:
        where = [cell.part] if parts else []
        words = [*where, *_cell_words(cell), *_paper_words(cell, over_time), *_sound_words(cell)]
        table.add_row(*map(Text, words))
    return table, 4 + parts


def _cell_words(cell: TableCell) -> tuple[str, ...]:
    return cell.published_setup, f"{cell.load}X", memory(cell.memory_bytes), cell.column


def _paper_words(cell: TableCell, over_time: bool) -> tuple[str, ...]:
    if not over_time:
        return number(cell.mean), cell.row
    window = f"{cell.window[0]:g}:{cell.window[1]:g}" if cell.window else ""
    figures = number(cell.mean, 2), number(cell.sigma, 2), number(cell.n)
    return *figures, window, number(cell.published_mean, 2)


def _sound_words(cell: TableCell) -> tuple[str, ...]:
    interval = cell.sound.interval if cell.sound else None
    return (
        number(cell.sound.median, 2) if cell.sound else "",
        f"{number(interval.low, 2)} to {number(interval.high, 2)}" if interval else "",
        str(cell.samples),
        cell.flag,
    )


def number(value: float | None, digits: int | None = None) -> str:
    """Empty if nothing was measured; whole numbers without a point."""
    if value is None:
        return ""
    if value == int(value) and (digits is None or abs(value) >= 1000):
        return str(int(value))
    return f"{value:.{6 if digits is None else digits}f}"


def memory(limit: int | None) -> str:
    if limit is None:
        return "all"
    return f"{limit // GIB}g" if limit % GIB == 0 else f"{limit // MIB}m"


def _table(*columns: str) -> Table:
    """A column whose title ends in `>` holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        numeric = column.endswith(" >")
        table.add_column(
            column.removesuffix(" >"), justify="right" if numeric else "left", no_wrap=numeric
        )
    return table
