"""Sentences of words.toml: they agree with their numbers, and foreign words fill no field."""

from __future__ import annotations

import pytest

from nodrop.report.sentences import RULES, WORDS, phrase, sentence_of


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
