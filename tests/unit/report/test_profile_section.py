"""The flame graph: widths are shares, every function can be read without seeing it."""

from __future__ import annotations

import re

from nodrop.report.flame import flame


def test_widths_are_parts_of_the_samples() -> None:
    drawn = flame(
        "one cell",
        {
            ("worker", "s: main", "s: Decode"): (60, "decode"),
            ("worker", "s: main", "s: <Flow>"): (30, "flow table"),
            ("receive", "s: main"): (10, "other"),
        },
    )
    widths = re.findall(r'aria-label="([^"]*?): [\d.]+ %[^"]*"><title>.*?width="([\d.]+)"', drawn)
    assert dict(widths) == {
        "worker": "900",
        "receive": "100",
        "s: main": "900",
        "s: Decode": "600",
        "s: &lt;Flow&gt;": "300",
    }
    assert drawn.count('tabindex="0"') == 6 == drawn.count("mark-part")
    assert "decode 60.00 %" in drawn and "<Flow>" not in drawn


def test_what_is_too_narrow_is_left_out() -> None:
    drawn = flame("x", {("worker", "wide"): (9999, "other"), ("worker", "narrow"): (1, "other")})
    assert "narrow" not in drawn and "wide" in drawn
    assert flame("x", {}) == ""
