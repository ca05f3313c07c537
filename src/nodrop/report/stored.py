"""Findings that an imported run directory brought along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodrop.report import escape
from nodrop.report.story import Source, Story


def serious_findings(story: Story) -> list[str]:
    """Conclusions that imported figures must not be used for, in one line each."""
    return [
        escape.plain(f"{item.get('title')}: {item.get('effect')}".rstrip("."), longest=1000)
        for source in story.sources
        for item in stored_findings(source)
        if item.get("severity") == "serious"
    ]


def stored_findings(source: Source) -> list[Mapping[str, Any]]:
    content = source.run.beside("findings")
    listed = content.get("findings") if isinstance(content, dict) else None
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
