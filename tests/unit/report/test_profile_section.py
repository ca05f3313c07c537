"""The flame graph: widths are shares, every function can be read without seeing it."""

from __future__ import annotations

import re

from nodrop.report.flame import WAITS, flame


def test_widths_are_parts_of_the_samples() -> None:
    drawn = flame(
        "one cell",
        {
            ("worker", "s: main", "s: Decode"): (60, "decode"),
            ("worker", "s: main", "s: <Flow>"): (30, "flow table"),
            ("receive", "s: main"): (10, "other"),
        },
        largest=["decode", "flow table", "other"],
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


def test_no_two_groups_have_one_colour_and_the_smallest_are_grey() -> None:
    groups = [f"group {letter}" for letter in "abcdefghij"]
    stacks = {
        (role, f"f{n}"): (100 - n, group) for role in ("r", "w") for n, group in enumerate(groups)
    }
    drawn = flame("x", stacks, largest=["other", *groups])
    styles = dict(re.findall(r"; (group [a-j])\">.*?class=\"part (s\d)\"", drawn))
    own = {styles[group] for group in groups[:7]}
    assert len(own) == 7 and "s6" not in own
    assert [styles[group] for group in groups[7:]] == ["s6"] * 3


def test_waits_are_in_ms() -> None:
    stacks = {("w", "poll"): (7_500_000, "poll"), ("w", "futex"): (2_500_000, "locks")}
    drawn = flame("x", stacks, weighed=WAITS)
    assert "poll: 75.00 % of the waits, 7 ms; poll" in drawn and "Flame graph of x: 10 ms" in drawn
