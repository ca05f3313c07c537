"""The table of words: each value of an answer's enums stands in it once, in each form."""

from __future__ import annotations

from typing import get_args

import pytest

from nodrop.answer.finding import WORDS, Finding, render
from nodrop.capacity.tried import Aside
from nodrop.drops.places import DropCause
from nodrop.ledger.cause import Rule
from nodrop.results.capacity import LimitedBy
from nodrop.results.watched import Blind, WatchedLevel

LIMIT_FORMS = {"short", "title", "sentence", "why"}
NO_REASON = {"sut", "min", "loss_at_every_load"}
"""Limits that say all in the sentence on the bounds itself."""


@pytest.mark.parametrize(
    ("table", "codes", "forms"),
    [
        ("limited_by", set(get_args(LimitedBy)), LIMIT_FORMS),
        ("cause", set(Rule), {"short"}),
        ("aside", set(get_args(Aside)), {"why"}),
    ],
)
def test_each_value_has_one_entry_in_each_form(
    table: str, codes: set[str], forms: set[str]
) -> None:
    assert WORDS[table].keys() == codes
    assert all(entry.keys() == forms for entry in WORDS[table].values())


def test_what_drops_says_has_words_for_each_of_its_codes() -> None:
    assert WORDS["drop_causes"].keys() == {*DropCause} - {DropCause.PLACE}
    forms = {
        "drop_causes": {"why", "do"},
        "drop_places": {"counter", "why", "do"},
        "not_visible": {"what", "needs", "why"},
    }
    for table, form in forms.items():
        assert all(entry.keys() == form for entry in WORDS[table].values())
    literal, none = get_args(WatchedLevel.model_fields["withheld"].annotation)
    assert WORDS["withheld"].keys() == {*get_args(literal), "not_yet"} and none is type(None)
    assert WORDS["blind"].keys() == {*get_args(Blind)}


def test_no_two_limits_read_alike() -> None:
    for form in LIMIT_FORMS:
        said = {code: entry[form] for code, entry in WORDS["limited_by"].items() if entry[form]}
        assert len(set(said.values())) == len(said), form
    assert {code for code, entry in WORDS["limited_by"].items() if not entry["why"]} == NO_REASON


@pytest.mark.parametrize(
    ("code", "values", "said"),
    [
        ("causes.sut", {"names": "a burst"}, "Cause: a burst."),
        ("limited_by.changes", {"sut": "Snort"}, "It serves less from trial to trial."),
    ],
)
def test_a_finding_is_filled_in_with_its_values(
    code: str, values: dict[str, str], said: str
) -> None:
    assert render(Finding(code=code, values=values)) == said
