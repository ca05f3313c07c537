"""Text reports of profilers: GNU time, opannotate and opreport, as kept by the studies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nodrop.imports.paper import NoValueError
from nodrop.untrusted.folder import Folder

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
