"""Where threads wait for locks and conditions: by who called, beyond the C library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from nodrop.findings.functions import Named, RoleProfile, Stack
from nodrop.report import numbers
from nodrop.report.profiled import Profiled
from nodrop.report.tables import Column, Row, Table, Value, numeric, text

LOCKS = "locks and conditions"
LIBRARY = ("[[]*", "libc.so*", "libc-*", "libpthread*", "ld-linux*", "ld-musl*", "libstdc++*")
MOST_SITES = 8
"""Of each role."""
LEAST_RATIO = 0.0005
"""Of its time: less is shown as 0.0."""
Site = tuple[str, str]
"""The call site, and what called it."""


def locks_table(cells: Sequence[Profiled]) -> Table | None:
    """None if no such wait was seen with its caller."""
    rows = tuple(_rows(cells))
    if not rows:
        return None
    return Table(
        name="profile-locks",
        title="Where they wait for locks and conditions",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="role", title="Role"),
            Column(
                name="site",
                title="Waits in",
                help="the function that called the C library; an idle thread waits as well",
            ),
            Column(name="caller", title="Called by"),
            numeric(
                "time_pct",
                "Of its time, %",
                "of all threads of the role together; median over the runs",
            ),
        ),
        rows=rows,
    )


def _rows(cells: Sequence[Profiled]) -> Iterator[Row]:
    for cell in cells:
        for role in cell.all_roles():
            for (site, caller), summary in cell.over(role, sites)[:MOST_SITES]:
                if summary.median < LEAST_RATIO:
                    break
                raw = summary.median * 100
                share = Value(raw=raw, shown=numbers.percent(summary.median))
                yield Row(values=(*map(text, (cell.label, role, site, caller)), share))


def sites(role: RoleProfile) -> dict[Site, float]:
    """Of the time of its threads, by call site."""
    found: Counter[Site] = Counter()
    for stack, ns in role.waiting.items():
        if stack.group == LOCKS and (site := _site(stack)) is not None:
            found[site] += ns
    return {site: ns / role.seen_ns for site, ns in found.items()} if role.seen_ns else {}


def _site(stack: Stack) -> Site | None:
    own = [frame for frame in stack.frames if not _in_library(frame)]
    if not own:
        return None
    return own[-1].function, own[-2].function if len(own) > 1 else ""


def _in_library(frame: Named) -> bool:
    return any(fnmatchcase(frame.module, pattern) for pattern in LIBRARY)
