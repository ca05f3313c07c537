"""Setups, SUTs, generators, controllers and labs by name, built-in or not, by entry point."""

from __future__ import annotations

import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nodrop.errors import BadInput, BadKey, NodropError, NotReady
from nodrop.untrusted.json_text import one_line

if TYPE_CHECKING:  # `nodrop --help` needs none of them
    from nodrop.config.lab_file import LabSource
    from nodrop.testbed.labs.api import Lab
    from nodrop.testbed.load.api import LoadGenerator
    from nodrop.testbed.setups.api import Setup
    from nodrop.testbed.suts.api import Sut

GROUPS = {
    "setup": "nodrop.setups",
    "sut": "nodrop.suts",
    "load": "nodrop.loads",
    "controller": "nodrop.controllers",
    "lab": "nodrop.labs",
    "knob": "nodrop.knobs",
    "command": "nodrop.commands",
    "section": "nodrop.sections",
    "figure": "nodrop.figures",
    "fleet": "nodrop.fleets",
}
"""Kind of plugin → entry point group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    table: str
    kind: str
    origin: str
    """Distribution and version it comes from."""
    entry: metadata.EntryPoint

    @property
    def built_in(self) -> bool:
        return self.origin.startswith("nodrop ")

    def __str__(self) -> str:
        return f"plugin {self.table}.{self.kind} of {self.origin}"

    def load(self) -> Any:
        """The plugin's factory, mostly a class. NotReady if it cannot be imported."""
        with _others_work(self, "cannot be imported"):
            return self.entry.load()


CANNOT_CAPTURE = {
    "gvisor": "gVisor has no AF_PACKET ring (PACKET_RX_RING, gVisor issue 6699), through which "
    "Suricata and libpcap read packets"
}
"""Setups that others have, and why nodrop has none."""


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


def of_table(table: str) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins() if plugin.table == table)


def knobs() -> tuple[Any, ...]:
    """Knobs of third parties: an entry point names one, or several."""
    named = [plugin.load() for plugin in of_table("knob")]
    return tuple(knob for one in named for knob in (one if isinstance(one, tuple) else (one,)))


def build_setup(table: Mapping[str, Any], *, base: Path) -> Setup:
    return cast("Setup", _build("setup", table, base))


def build_sut(table: Mapping[str, Any], *, base: Path) -> Sut:
    return cast("Sut", _build("sut", table, base))


def build_load(table: Mapping[str, Any], *, base: Path) -> LoadGenerator:
    return cast("LoadGenerator", _build("load", table, base))


def build_lab(source: LabSource) -> Lab:
    try:
        base = source.path.absolute().parent
        lab = _made("lab", source.kind, source.table, key="kind", base=base)
    except BadInput as error:
        raise error.at(source.path) from None
    return cast("Lab", lab)


def _build(table: str, options: Mapping[str, Any], base: Path) -> Any:
    """Constructors check their options and touch nothing."""
    return _made(table, options["kind"], options, key=f"{table}.kind", base=base)


def build_controller(kind: str, asked: object) -> Any:
    return _made("controller", kind, asked, key="measure.mode")


def _made(table: str, kind: str, *what: Any, key: str, **more: Any) -> Any:
    from nodrop.config.options import shown

    plugin = _find(table, kind, key=key)
    make = plugin.load()
    with _others_work(plugin, "cannot be made"):
        made = make(*what, **more)
        if type(made).__module__ == "builtins":
            raise TypeError(f"{shown(made)} is no {table}")
    return made


def _find(table: str, kind: str, *, key: str) -> Plugin:
    """The plugin of a kind. `key` chooses it in the experiment file."""
    from nodrop.config.options import shown, unknown_key

    known = {p.kind: p for p in of_table(table)}
    if kind not in known:
        if why := CANNOT_CAPTURE.get(kind, ""):
            raise BadKey(key, why, given=shown(kind), hint="use docker or oci")
        near = unknown_key(kind, list(known), otherwise="")
        raise BadKey(key, f"allowed are {', '.join(known)}{near}", given=shown(kind))
    return known[kind]


def broken_plugin(error: BaseException) -> Plugin | None:
    """The third party's plugin in whose code `error` was raised, or that was called last."""
    others = {p.entry.module.partition(".")[0]: p for p in plugins() if not p.built_in}
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    packages = (str(f.f_globals.get("__name__")).partition(".")[0] for f in reversed(frames))
    return next((others[name] for name in packages if name in others), None)


@contextmanager
def _others_work(plugin: Plugin, failed: str) -> Iterator[None]:
    """Around code of a third party that is to return: it prints to stderr, ends no process, and
    whatever it raises names the plugin. Bad input stays the user's."""
    if plugin.built_in:
        yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    except NodropError:
        raise
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {one_line(error, longest=300)}".removesuffix(": ")
        raise NotReady(
            f"{plugin} {failed}: {words}",
            hint="reinstall it, choose another kind, or ask its author",
        ) from error


def _entry_points() -> Iterator[tuple[metadata.EntryPoint, str]]:
    checkout = Path(__file__).parents[2] / "pyproject.toml"
    groups = {*GROUPS.values()}
    for distribution in metadata.distributions():
        # To read a distribution's name takes ten times as long as to read its entry points.
        entries = [entry for entry in distribution.entry_points if entry.group in groups]
        # A checkout may have moved on since it was installed, and need not be installed at all.
        if not entries or (distribution.name == "nodrop" and checkout.exists()):
            continue
        for entry in entries:
            yield entry, f"{distribution.name} {distribution.version}"
    if checkout.exists():
        yield from _checkout_entry_points(checkout)


def _checkout_entry_points(checkout: Path) -> Iterator[tuple[metadata.EntryPoint, str]]:
    project = tomllib.loads(checkout.read_text())["project"]
    for group, entries in project["entry-points"].items():
        for name, value in entries.items():
            entry = metadata.EntryPoint(name=name, value=value, group=group)
            yield entry, f"nodrop {project['version']}"
