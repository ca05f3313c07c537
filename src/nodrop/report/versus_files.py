"""A comparison for other readers: Markdown for a pull request, JUnit XML for a CI server."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from nodrop.report import escape
from nodrop.report.versus import shown
from nodrop.results.versus import Row, Versus


def to_markdown(found: Versus) -> str:
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Versus) -> Iterator[str]:
    a, b = (escape.markdown(name) for name in (found.a, found.b))
    yield f"**nodrop: {found.verdict}** ({b} against {a})"
    yield ""
    yield "| cell | metric | A | B | verdict | n |"
    yield "|---|---|---:|---:|---|---:|"
    for row in found.rows:
        cells = (row.cell, row.metric, *_medians(row), row.words, f"{row.a_n} and {row.b_n}")
        yield "| " + " | ".join(escape.markdown(cell) for cell in cells) + " |"
    yield ""
    for words in (*found.missing, *found.differs, *found.notes, *unusual_words(found)):
        yield f"- {escape.markdown(words, longest=1000)}"


def _medians(row: Row) -> tuple[str, str]:
    return shown(row, row.a_median), shown(row, row.b_median)


def unusual_words(found: Versus) -> Iterator[str]:
    for row in found.rows:
        for name, values in (("A", row.unusual_a), ("B", row.unusual_b)):
            if values:
                said = ", ".join(shown(row, value) for value in values)
                yield f"{row.cell}, {row.metric}: unusual in {name}, and counted: {said}"


def to_junit(found: Versus) -> bytes:
    """A test case per metric: worse is a failure; what cannot be told yet is skipped, and so is a
    cell of one side alone."""
    worse = sum(1 for row in found.rows if row.worse)
    unsure = sum(1 for row in found.rows if row.answer == "cannot tell")
    counts = {
        "tests": len(found.rows) + len(found.missing), "failures": worse, "errors": 0,
        "skipped": unsure + len(found.missing),
    }  # fmt: skip
    suite = ElementTree.Element(
        "testsuite", {"name": _xml(f"nodrop: {found.b} against {found.a}"), **_texts(counts)}
    )
    for row in found.rows:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _xml(row.cell), "name": row.metric}
        )
        if row.worse:
            ElementTree.SubElement(case, "failure", {"message": _xml(row.words)})
        elif row.answer == "cannot tell":
            ElementTree.SubElement(case, "skipped", {"message": _xml(row.words)})
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(row.words)
    for words in found.missing:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "cells", "name": "missing"})
        ElementTree.SubElement(case, "skipped", {"message": _xml(words)})
    found_bytes: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found_bytes


def _texts(counts: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _xml(words: str) -> str:
    """XML has no control characters; escaping is the library's."""
    return escape.plain(words, longest=1000)
