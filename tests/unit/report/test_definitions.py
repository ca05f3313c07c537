"""The page has the definitions of docs/reference/counters.md, all of them and word by word."""

from __future__ import annotations

import re
from pathlib import Path

from nodrop.report.sentences import DEFINITIONS, definition

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "counters.md"


def rows(title: str) -> list[list[str]]:
    part = PAGE.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n\n", 1)[0]
    return [
        [re.sub(r"[`*]", "", cell).strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()[2:]
    ]


def test_the_definitions_are_the_reference_pages() -> None:
    hops = {row[0]: row[2] for row in rows("The way of a packet, and who counts it where")}
    classes = {
        name.strip(): row[3]
        for row in rows("Classes of packets in the ledger")
        for name in row[0].split(",")
    }
    assert {**hops, **classes} == DEFINITIONS


def test_every_errno_is_one_definition() -> None:
    assert definition("tx_refused_emsgsize") == DEFINITIONS["tx_refused_ERRNO"]
    assert definition("of_a_plugin") == ""
