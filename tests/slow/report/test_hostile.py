"""Whatever a trace, a rule, a host or a cell is called, it stays text."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.report import escape
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.made.outcome_runs import Load, outcome_run
from tests.made.rundirs import Fake, make_run

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></script><svg onload=alert(1)>",
    "\u202egnp.exe\u2066",
    '=HYPERLINK("http://x","y")',
    "\x1b]0;owned\x07\x1b[31m",
    "{{ 7*7 }}{% raw %}",
    "| a | b |\n# heading\n",
    r"\input{/etc/passwd} $x$ %",
    "x" * 10_000,
]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile")
    fake = Fake(
        cells=tuple({"setup.kind": name, "load.multiplier": 1} for name in HOSTILE),
        repetitions=1,
        question=HOSTILE[0] + HOSTILE[1],
        manifest={f"key {name}": name for name in HOSTILE} | {"sut": {"name": HOSTILE[1]}},
    )
    return write_report(read_story([make_run(out, fake)]), out / "report").parent


def test_html_has_no_element_or_handler_that_is_not_ours(report: Path) -> None:
    page = (report / "index.html").read_text(encoding="utf-8")
    parser = Tags()
    parser.feed(page)
    scripts = [attrs.get("type") for tag, attrs in parser.seen if tag == "script"]
    assert scripts == ["application/json", None]
    assert not [tag for tag, _ in parser.seen if tag in ("img", "iframe", "object", "embed")]
    assert not [a for _, attrs in parser.seen for a in attrs if a.startswith("on")]
    assert "\x1b" not in page and "\u202e" not in page
    assert "\\u202egnp.exe" in page
    assert "{{ 7*7 }}" in page
    assert page.count("x" * 301) <= 1 + page.count("<pre")


def test_every_figure_is_well_formed_and_has_no_foreign_element(report: Path) -> None:
    figures = sorted((report / "figures").glob("*.svg"))
    assert len(figures) > len(HOSTILE)
    ours = {"svg", "title", "style", "g", "path", "rect", "line", "text", "tspan"}
    ours |= {"use", "symbol", "defs"}
    for figure in figures:
        root = ElementTree.fromstring(figure.read_text(encoding="utf-8"))
        tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
        assert tags <= ours
        assert not [a for e in root.iter() for a in e.attrib if a.startswith("on")]


def test_csv_never_begins_a_formula(report: Path) -> None:
    for path in report.rglob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"))):
            for field in row:
                assert not re.match(r"[=@\t\r]|[+-](?!\d+(\.\d+)?(e-?\d+)?$)", field), field


def test_markdown_and_latex_keep_their_shape(report: Path) -> None:
    text = (report / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text.replace("\\<script", "")
    assert "\n# heading" not in text
    latex = (report / "cells.tex").read_text(encoding="utf-8")
    assert "\\input" not in latex
    assert len(latex.splitlines()) == len(HOSTILE) + 7


@given(st.text())
def test_nothing_invisible_survives(text: str) -> None:
    shown = escape.plain(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", shown)


@given(st.text(alphabet="=+-@\t\r\n x1'", max_size=5))
def test_a_csv_text_is_never_a_formula(text: str) -> None:
    assert not escape.csv_text(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.text())
def test_latex_has_only_our_commands(text: str) -> None:
    left = escape.latex(text)
    for ours in sorted(escape._LATEX.values(), key=len, reverse=True):
        left = left.replace(ours, "")
    assert not re.search(r"[\\$%&#{}~^_]", left)


@pytest.mark.parametrize("word", ["\x1b[2J", "\u202egnp", "\x00\x07", "\x9b31m"])
def test_no_word_of_a_trial_reaches_page_or_files_with_its_controls(
    word: str, tmp_path: Path
) -> None:
    """Seen: a reason of a stranger's trial stood in the first sentence as it came."""
    said = {"verdict": word, "error": word}
    fields: dict[str, Any] = {
        **dict.fromkeys(("knob", "loss_cause", "loss_evidence", "accelerator"), word),
        "not_as_asked": [word],
        "effective": {word: word},
        "busiest_thread": {"name": word, "cpu_ratio": 0.99},
        "loss_causes": [{"rule": word, "words": word, "thread": word, "share": 0.5}],
    }
    each = {
        3: {**said, "invalid_reasons": [word, "sut_died"]},
        4: {**said, "invalid_reasons": [word]},
    }
    load = Load(cell={"load.multiplier": 2}, trials=[0.0, 0.1, "died", "late"], fields=fields,
                each=each)  # fmt: skip
    page = write_report(read_story([outcome_run(tmp_path / "run", [load])]), tmp_path / "report")
    controls = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]")
    files = [path for path in page.parent.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if controls.search(path.read_text(encoding="utf-8"))]
    assert "\\u" in page.read_text(encoding="utf-8")
