"""Sentences of words.toml: they agree with their numbers, and foreign words fill no field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodrop.answer.finding import WORDS
from nodrop.report.sentences import RULES, phrase, sentence_of
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.made.outcome_runs import Load, outcome_run


@pytest.mark.parametrize(
    ("trials", "words"), [(1, "1 measured trial has no "), (2, "2 measured trials have no ")]
)
def test_a_sentence_agrees_with_its_number(trials: int, words: str) -> None:
    said = sentence_of("sender-silent", {"trials": trials})
    assert said.text.startswith(words)
    assert said.evidence == {"trials": trials}


def test_foreign_words_fill_no_field() -> None:
    name = "{file.__class__} {0} {"
    said = sentence_of("cannot-read", {"run_directory": name, "file": "a", "problem": "b"})
    assert said.text == f"{name}: a cannot be read (b)"
    assert phrase("rules-failed", failed=1, of=2, named=name).endswith(name)


def test_every_worded_sentence_is_a_rule() -> None:
    assert WORDS["sentences"].keys() <= RULES.keys()


def test_thousands_are_written_in_one_way(tmp_path: Path) -> None:
    story = read_story(
        [outcome_run(tmp_path, [Load(cell={}, pps=99_970.0, trials=[0.0, 0.01] * 3)])]
    )
    page = write_report(story, tmp_path / "out")
    for text in (page.read_text(), (tmp_path / "out/report.md").read_text()):
        assert "99,970" in text and not re.search(r"\d[\u202f\u00a0]\d{3}\b", text)
