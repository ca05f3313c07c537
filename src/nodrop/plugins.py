"""Setups, SUTs, generators, controllers and labs by name, built-in or not, by entry point."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from nodrop.config.lab_file import LabSource
from nodrop.config.options import shown, unknown_key
from nodrop.errors import BadInput, LabProblem
from nodrop.labs.seam import Lab
from nodrop.load.seam import LoadGenerator
from nodrop.setups.seam import Setup
from nodrop.suts.seam import Sut

GROUPS = {
    "setup": "nodrop.setups",
    "sut": "nodrop.suts",
    "load": "nodrop.loads",
    "controller": "nodrop.controllers",
    "lab": "nodrop.labs",
}
"""What it is → entry point group."""


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


def build_lab(source: LabSource) -> Lab:
    try:
        found = factory("lab", source.kind, key="kind")
        lab = found(source.table, base=source.path.absolute().parent)
    except BadInput as error:
        raise BadInput(f"{source.path}: {error.message}", hint=error.hint) from None
    return cast(Lab, lab)


def _build(table: str, options: Mapping[str, Any], base: Path) -> Any:
    """Constructors check their options and touch nothing."""
    return factory(table, options["kind"], key=f"{table}.kind")(options, base=base)


def factory(table: str, kind: str, *, key: str) -> Any:
    """`key` chooses it in the experiment file."""
    known = {p.kind: p for p in plugins() if p.table == table}
    if kind not in known:
        near = unknown_key(kind, list(known))
        near = near if "did you mean" in near else ""
        raise BadInput(f"{key} = {shown(kind)}: allowed are {', '.join(known)}{near}")
    plugin = known[kind]
    try:
        return plugin.entry.load()
    except (ImportError, AttributeError) as error:
        raise LabProblem(
            f"plugin {table}.{kind} of {plugin.origin} cannot be imported: {error}",
            hint="reinstall it, or choose another kind",
        ) from error


def _entry_points() -> Iterator[tuple[metadata.EntryPoint, str]]:
    checkout = Path(__file__).parents[2] / "pyproject.toml"
    for distribution in metadata.distributions():
        # A checkout may have moved on since it was installed, and need not be installed at all.
        if distribution.name == "nodrop" and checkout.exists():
            continue
        for entry in distribution.entry_points:
            yield entry, f"{distribution.name} {distribution.version}"
    if checkout.exists():
        yield from _checkout_entry_points(checkout)


def _checkout_entry_points(checkout: Path) -> Iterator[tuple[metadata.EntryPoint, str]]:
    project = tomllib.loads(checkout.read_text())["project"]
    for group, entries in project["entry-points"].items():
        for name, value in entries.items():
            entry = metadata.EntryPoint(name=name, value=value, group=group)
            yield entry, f"nodrop {project['version']}"
