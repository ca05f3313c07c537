"""Knobs as data: what they show and write, and their page."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.tune.knobs import KNOBS, find
from tools import knobs as knobs_page


@pytest.mark.parametrize(
    ("raw", "value", "written", "shown"),
    [
        ("0", "0-1", "3", "0-1"),
        ("00", "0-1", "03", "0-1"),
        ("00000000,00000000", "33", "00000002,00000000", "33"),
        ("0000,00000000", "none", "0000,00000000", "none"),
        ("f", "2", "4", "2"),
    ],
)
def test_a_mask_is_as_wide_as_the_kernel_shows_it(
    raw: str, value: str, written: str, shown: str
) -> None:
    knob = find("rps", KNOBS)
    assert knob.edit(raw, value) == written
    assert knob.show(written) == shown


def test_every_knob_is_whole_and_its_name_is_its_own() -> None:
    assert len({knob.id for knob in KNOBS}) == len(KNOBS) > 40
    for knob in KNOBS:
        assert all((knob.title, knob.values, knob.why, knob.source)), knob.id


def test_the_page_of_the_docs_is_the_one_of_the_knobs() -> None:
    docs = Path(__file__).parents[3] / "docs/reference/knobs.md"
    assert docs.read_text() == knobs_page.page()
