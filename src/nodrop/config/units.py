"""Quantities as people write them, in the units the code uses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nodrop.errors import BadInput

_UNIT_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

NOTHING = '""'
UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MOST_SECONDS = 1000 * 365.25 * 86_400


def time_s(option: str, text: str, *, least: float = 0.0, most: float = math.inf) -> float:
    """`10m` → 600; a number alone is seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{0,3})", text.strip(), re.ASCII)
    if match is None or match[2] not in UNITS_S or not float(match[1]):
        raise BadInput(f"{option} {text or NOTHING}: must be a time, such as 90s, 10m or 1h")
    found = float(match[1]) * UNITS_S[match[2]]
    if not least <= found <= most:
        at_most = f" and at most {most:g} s" if most < math.inf else ""
        raise BadInput(f"{option} {text}: must be at least {least:g} s{at_most}")
    return found


def parse_bytes(text: str) -> int:
    """`512MiB` → 536870912. ValueError in words for people."""
    pattern = r"\s*(\d{1,19}(?:\.\d{1,19})?)\s*([A-Za-z]{0,3})\s*"
    match = re.fullmatch(pattern, text, re.ASCII)
    if match is None or match[2].lower() not in _UNIT_BYTES:
        raise ValueError('must be bytes, such as 1048576, "512MiB" or "2GB"')
    count = round(float(match[1]) * _UNIT_BYTES[match[2].lower()])
    if count >= 1 << 63:
        raise ValueError("must be less than 8 EiB")
    return count


def noun(number: float | None, word: str) -> str:
    """`packet` of 1, `packets` and `attaches` of any other number."""
    if number == 1:
        return word
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def count_of(number: int, word: str) -> str:
    """`1 packet`, `2,072 packets`."""
    return f"{number:,} {noun(number, word)}"


def format_seconds(seconds: float) -> str:
    """75 → `1 min 15 s`, for people."""
    if seconds > MOST_SECONDS:  # a speed of 1e-300 makes it infinite
        return "more than 1,000 years"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def from_to(least_s: float, most_s: float) -> str:
    """`about 4 min 5 s` if both are written the same."""
    least, most = format_seconds(least_s), format_seconds(most_s)
    return f"{least} to {most}" if least != most else f"about {least}"


def parse_cpus(text: str) -> tuple[int, ...]:
    """`0-2,5` → (0, 1, 2, 5), as in cpuset(7). ValueError in words for people."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part, re.ASCII)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ValueError('must be a list of CPUs, such as "0-2,5"')
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(cpus))


def cpu_mask(cpus: Iterable[int]) -> str:
    """A CPU mask in the form of sysfs files: hexadecimal, a comma between 32 bits each."""
    digits = f"{sum(1 << cpu for cpu in set(cpus)):x}"
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups))


def format_cpus(cpus: Iterable[int]) -> str:
    """(0, 1, 2, 5) → `0-2,5`: what `parse_cpus` reads."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
