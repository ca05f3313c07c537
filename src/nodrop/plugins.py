"""Setups, SUTs and load generators by name: built-in and third-party alike, from entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from nodrop.config.options import shown, unknown_key
from nodrop.errors import BadInput, LabProblem
from nodrop.load.seam import LoadGenerator
from nodrop.setups.seam import Setup
from nodrop.suts.seam import Sut

GROUPS = {"setup": "nodrop.setups", "sut": "nodrop.suts", "load": "nodrop.loads"}
"""Table of the experiment file → entry point group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    table: str
    kind: str
    origin: str
    """Distribution and version it comes from."""
    entry: metadata.EntryPoint


@cache
def plugins() -> tuple[Plugin, ...]:
    """Every plugin there is, not yet imported. A third party cannot take the name of a built-in.

    Cached: reading the metadata of all distributions takes tens of ms, and a plan asks per cell.
    """
    found: dict[tuple[str, str], Plugin] = {}
    for entry, origin in sorted(_entry_points(), key=lambda e: not e[1].startswith("nodrop ")):
        for table, group in GROUPS.items():
            if entry.group == group:
                plugin = Plugin(table=table, kind=entry.name, origin=origin, entry=entry)
                found.setdefault((table, entry.name), plugin)
    return tuple(found[key] for key in sorted(found))


def build_setup(table: Mapping[str, Any], *, base: Path) -> Setup:
    return cast(Setup, _build("setup", table, base))


def build_sut(table: Mapping[str, Any], *, base: Path) -> Sut:
    return cast(Sut, _build("sut", table, base))


def build_load(table: Mapping[str, Any], *, base: Path) -> LoadGenerator:
    return cast(LoadGenerator, _build("load", table, base))


def _build(table: str, options: Mapping[str, Any], base: Path) -> Any:
    """Constructors check their options and touch nothing."""
    kind = options["kind"]
    known = {p.kind: p for p in plugins() if p.table == table}
    if kind not in known:
        near = unknown_key(kind, list(known))
        near = near if "did you mean" in near else ""
        raise BadInput(f"{table}.kind = {shown(kind)}: allowed are {', '.join(known)}{near}")
    plugin = known[kind]
    try:
        build = plugin.entry.load()
    except (ImportError, AttributeError) as error:
        raise LabProblem(
            f"plugin {table}.{kind} of {plugin.origin} cannot be imported: {error}",
            hint="reinstall it, or choose another kind",
        ) from error
    return build(options, base=base)


def _entry_points() -> Iterator[tuple[metadata.EntryPoint, str]]:
    installed = False
    for distribution in metadata.distributions():
        installed = installed or distribution.name == "nodrop"
        for entry in distribution.entry_points:
            yield entry, f"{distribution.name} {distribution.version}"
    if not installed:
        yield from _checkout_entry_points()


def _checkout_entry_points() -> Iterator[tuple[metadata.EntryPoint, str]]:
    """Run from a source tree that was never installed: what pyproject.toml would install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for group, entries in project["entry-points"].items():
        for name, value in entries.items():
            entry = metadata.EntryPoint(name=name, value=value, group=group)
            yield entry, f"nodrop {project['version']}"
