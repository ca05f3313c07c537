"""Foreign words in Markdown: text, and commands as they are typed."""

from __future__ import annotations

import pytest

from nodrop.report import escape


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("set sut.ring_size=2048", "set sut.ring_size=2048"),
        ("a _b_ c", r"a \_b\_ c"),
        ("__x__", r"\_\_x\_\_"),
        ("rx_dropped_ring_full", "rx_dropped_ring_full"),
        ("*x*", r"\*x\*"),
    ],
)
def test_an_underscore_within_a_word_stays(words: str, shown: str) -> None:
    assert escape.markdown(words) == shown
