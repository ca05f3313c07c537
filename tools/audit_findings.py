"""The page of findings: `python -m tools.audit_findings > docs/reference/audit.md` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from nodrop.audit.kinds import KINDS


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Findings of `nodrop audit`"
    yield ""
    yield (
        "`python -m tools.audit_findings` writes this page from the findings in "
        "`src/nodrop/audit/`; edit those. The findings with the largest likely effect come first. "
        "An id never changes its meaning. A finding that costs *nothing* is a note about a number "
        "that is easily misread; it sets no exit code. [How to use it](../how-to/audit.md)."
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


if __name__ == "__main__":
    sys.stdout.write(page())
