"""The page of the packet books: places where packets can die, hops that count, and accounts.

`python -m tools.places > docs/reference/places.md` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodrop.ledger.hops import DEFINITIONS, ON_EVERY_HOST, Owner, Place, places_of
from nodrop.plugins import Plugin, plugins
from nodrop.testbed.labs.split import LINUX_BRIDGE

SPLITTER = 'splitter = "bridge"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    place: Place
    by: tuple[str, ...]
    """The kinds of setup, or the SUT, that name it; empty for what every host has."""


def places(of: Iterable[Plugin] | None = None) -> tuple[Registered, ...]:
    """In the order of a packet's way: the host's, what a setup puts there, what the SUT brings."""
    named: dict[Place, list[str]] = {LINUX_BRIDGE: [SPLITTER]}
    for plugin in plugins() if of is None else of:
        for place in places_of(plugin.load()):
            named.setdefault(place, []).append(plugin.kind)
    found = [Registered(place=place, by=()) for place in ON_EVERY_HOST]
    for owner in (Owner.SETUP, Owner.SUT):
        found += (Registered(place=p, by=tuple(by)) for p, by in named.items() if p.owner is owner)
    return tuple(found)


def page(registered: Iterable[Registered]) -> str:
    return "\n".join(_lines(registered)) + "\n"


def _lines(registered: Iterable[Registered]) -> Iterator[str]:
    yield "# The packet books: places, hops, accounts"
    yield ""
    yield (
        "`python -m tools.places` writes this page from the entries that hosts, setups and SUTs "
        "give (`nodrop.ledger.hops`); edit those. A *hop* counts packets, a *place* is where they "
        "can die, and an *account* says why packets of one hop are not at the next."
    )
    yield ""
    yield "## Places where packets can die"
    yield (
        "A verdict uses the name of a place: `lost in the socket ring`. A plugin adds places as "
        "the attribute `places` of its class."
    )
    yield ""
    yield (
        "*Before the SUT*: a packet lost there did not reach the SUT's sockets. *Waits for*: a "
        "packet waits for a CPU, a thread of the SUT, its emulator, or nothing. This decides which "
        "causes of loss can be named there ([methodology](../methodology.md#the-cause)). Stolen "
        "CPU time explains losses wherever packets wait."
    )
    yield ""
    columns = ("place", "owner", "lies", "waits for", "counter", "who drops", "what touches it")
    yield from _table(columns, (_place(one) for one in registered))
    yield ""
    yield "## Hops that count packets"
    yield "Setups add theirs between `rx_nic` and `socket`. [Counters](counters.md) has each field."
    yield ""
    hops = [one for one in DEFINITIONS if one.kind is None]
    counted = ((f"`{one.name}`", one.counted_by, one.meaning) for one in hops)
    yield from _table(("hop", "counter", "meaning"), counted)
    yield ""
    yield "## Accounts"
    yield "A plugin's own accounts have names of their own."
    yield ""
    yield from _table(
        ("account", "class", "counted by", "meaning"),
        (
            (f"`{one.name}`", str(one.kind), one.counted_by, one.meaning)
            for one in DEFINITIONS
            if one.kind is not None
        ),
    )


def _place(one: Registered) -> tuple[str, ...]:
    place = one.place
    return (
        f"**{place.name}**",
        str(place.owner) + (f": {', '.join(one.by)}" if one.by else ""),
        "within the SUT" if place.within_sut else "before the SUT",
        str(place.waits_for),
        place.counter,
        place.source,
        place.knob,
    )


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (columns, ("---",) * len(columns), *rows):
        yield "| " + " | ".join(words.replace("|", "\\|") for words in row) + " |"


def built_in() -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins() if plugin.origin.startswith("nodrop "))


if __name__ == "__main__":
    sys.stdout.write(page(places(built_in())))
