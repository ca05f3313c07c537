"""The page of a report, as text."""

from __future__ import annotations

from pathlib import Path

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.layout import WrittenPart


def page_of(*runs: Path, out: Path | None = None) -> str:
    """Without the figures and tables beside it, which take as long."""
    return write_report(read_story(runs), out, only={WrittenPart.HTML}).read_text(encoding="utf-8")
