"""Every kind of finding, by likely effect, and their page.

`python -m nodrop.audit.kinds > docs/reference/audit.md` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from nodrop.audit import capture_kinds as capture
from nodrop.audit import port_kinds as port
from nodrop.audit.world import Costs, Finding, Kind, World

KINDS: tuple[Kind, ...] = (
    *capture.FIRST,
    *port.FIRST,
    *port.MIDDLE,
    *capture.MIDDLE,
    *port.LATER,
    *capture.ANALYSIS,
    *port.SENDING,
    *capture.SECONDS,
    *port.PLACES,
    *capture.NOTES,
    *port.NOTES,
)


def findings(world: World) -> tuple[Finding, ...]:
    return tuple(
        Finding(kind=kind, seen=seen)
        for kind in KINDS
        if world.role in kind.roles
        for seen in kind.look(world)
    )


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Findings of `nodrop audit`"
    yield ""
    yield (
        "Written by `python -m nodrop.audit.kinds` from the findings themselves "
        "(`src/nodrop/audit/`): edit those. They stand in the order of their likely effect, and "
        "an id never changes its meaning. A finding that costs *nothing* is a note: a number that "
        "is easily misread; it sets no exit code. [How to use it](../how-to/audit.md)."
    )
    yield ""
    columns = ("finding", "costs", "role", "why", "does not apply", "what changes it", "source")
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for kind in KINDS:
        row = (
            f"**{kind.id}**: {kind.title}",
            str(kind.costs),
            ", ".join(kind.roles),
            kind.why,
            kind.not_when,
            f"`{kind.change}`"
            if kind.change.startswith(("ethtool", "ip ", "echo"))
            else kind.change,
            kind.source,
        )
        yield "| " + " | ".join(words.replace("|", "\\|") for words in row) + " |"


def is_note(kind: Kind) -> bool:
    return kind.costs is Costs.NOTHING


if __name__ == "__main__":
    sys.stdout.write(page())
