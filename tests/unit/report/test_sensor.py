"""Rules that were not measured and keys that were replaced, as the page and a terminal say them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.report.trials import TrialDetails, _sensor
from nodrop.report.trust import sensor_sentences, sensor_words

KEYS = ["af-packet.0.threads", "stats.interval", "logging", "outputs.3", "a", "b", "c"]


def told(*facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    trials = [SimpleNamespace(aside=TrialDetails(sensor=_sensor(said))) for said in facts]
    story: Any = SimpleNamespace(trials=trials, sources=())
    return [one.text for one in sensor_sentences(story)], sensor_words(story)


@pytest.mark.parametrize(
    ("loaded", "bad", "words"),
    [
        (19_192, ["et.rules line 7 (sid 1: no)", "et.rules line 9 (sid 2: no)"],
         "2 of 19,194 rules did not load and are not measured: et.rules line 7 (sid 1: no); "
         "et.rules line 9 (sid 2: no)"),
        (2, ["x.rules line 1 (without sid: ?)"],
         "1 of 3 rules did not load and is not measured: x.rules line 1 (without sid: ?)"),
    ],
)  # fmt: skip
def test_rules_that_do_not_load_are_counted_and_named(
    loaded: int, bad: list[str], words: str
) -> None:
    said = {"rules_loaded": loaded, "rules_failed": len(bad), "rules_failed_first": bad}
    assert told(said, said) == ([words], [f"{words}."]), "once for all trials"


def test_many_rules_that_do_not_load_are_counted() -> None:
    first = [f"x.rules line {n} (sid {n}: no)" for n in range(20)]
    said = {"rules_loaded": 5, "rules_failed": 700, "rules_failed_first": first}
    ((words,), _) = told(said)
    assert words.startswith("700 of 705 rules") and words.endswith(
        "line 4 (sid 4: no) and 695 more, in engine.json of each trial"
    )


def test_rules_that_all_load_are_no_sentence() -> None:
    assert told({"rules_loaded": 5, "rules_failed": 0, "rules_skipped": 0}, {}) == ([], [])


@pytest.mark.parametrize("count", [3, 7])
def test_replaced_keys_are_listed_and_few_of_them_in_a_terminal(count: int) -> None:
    rows = [{"key": key, "was": None, "now": "1"} for key in KEYS[:count]]
    said = {"yaml": "my.yaml", "yaml_replaced": rows, "rules_lacking": ["/etc/r/x.rules"]}
    (lacking, page), (_, terminal) = told(said)
    assert "names what is not there, and was not measured: /etc/r/x.rules" in lacking
    assert page.startswith(f"{count} keys of my.yaml replaced, and all others kept: af-packet.0.")
    assert all(f"{key} (not there → 1)" in page for key in KEYS[:count])
    more = " and 2 more" if count == 7 else ""
    assert (
        terminal == f"{count} keys of my.yaml replaced: {', '.join(KEYS[:count][:5])}{more} "
        "(see Trust)."
    )


@pytest.mark.parametrize(
    "said",
    [
        {"rules_loaded": "many", "rules_failed": True, "yaml": 7},
        {"rules_loaded": 1, "rules_failed": -3, "rules_failed_first": [1, {}], "yaml_replaced": 9},
        {"yaml": "\x1b[2J", "yaml_replaced": [{"key": 1}, "x", {"key": "\x1b", "was": []}]},
    ],
)
def test_what_a_stranger_wrote_is_text_or_nothing(said: dict[str, Any]) -> None:
    for words in (*told(said)[0], *told(said)[1]):
        assert words.replace("\u202f", "").isprintable()
