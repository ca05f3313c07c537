"""The flame graph: widths are shares, every function can be read without seeing it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from nodrop.profile.functions import (
    WAITS,
    NamedFunctions,
    Profiled,
    RoleProfile,
    Stack,
    TrialProfile,
    flame,
    flame_difference,
    shifts_table,
)
from nodrop.report.chart import Chart
from tests.made.told import told


def boxes(drawn: Chart) -> list[tuple[str, str, str]]:
    """Words, width in % and style of each function."""
    box = r'<svg x="[^"]*" y="[^"]*" width="([\d.]+)%"[^>]*><rect [^>]*class="part (s\d)"'
    found = re.findall(box, str(drawn))
    return [(said, *one) for said, one in zip(told(drawn), found, strict=True)]


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
    shown = [(said.partition(" % ")[0], wide) for said, wide, _ in boxes(drawn)]
    assert sorted(shown) == [
        ("receive: 10.00", "10"),
        ("s: <Flow>: 30.00", "30"),
        ("s: Decode: 60.00", "60"),
        ("s: main: 10.00", "10"),
        ("s: main: 90.00", "90"),
        ("worker: 90.00", "90"),
    ]
    assert str(drawn).count('tabindex="0"') == 1, "one stop of the keyboard"
    assert "decode 60.00 %" in str(drawn) and "<Flow>" not in str(drawn)


def test_what_is_too_narrow_is_left_out() -> None:
    drawn = flame("x", {("worker", "wide"): (9999, "other"), ("worker", "narrow"): (1, "other")})
    assert "narrow" not in str(drawn) and "wide" in str(drawn)
    assert not flame("x", {})


def test_no_two_groups_have_one_colour_and_the_smallest_are_grey() -> None:
    groups = [f"group {letter}" for letter in "abcdefghij"]
    stacks = {
        (role, f"f{n}"): (100 - n, group) for role in ("r", "w") for n, group in enumerate(groups)
    }
    drawn = flame("x", stacks, largest=["other", *groups])
    styles = {said.rpartition("; ")[2]: style for said, _, style in boxes(drawn)}
    own = {styles[group] for group in groups[:7]}
    assert len(own) == 7 and "s6" not in own
    assert [styles[group] for group in groups[7:]] == ["s6"] * 3


def test_waits_are_in_ms() -> None:
    stacks = {("w", "poll"): (7_500_000, "poll"), ("w", "futex"): (2_500_000, "locks")}
    drawn = flame("x", stacks, weighed=WAITS)
    assert "poll: 75.00 % of the waits, 7 ms; poll" in told(drawn)
    assert drawn.title == "Flame graph of x: 10 ms"


def test_a_difference_colours_only_what_is_no_chance() -> None:
    before = {("w", "more"): (100, "x"), ("w", "less"): (300, "x"), ("w", "same"): (600, "x")}
    after = {("w", "more"): (300, "x"), ("w", "less"): (100, "x"), ("w", "same"): (610, "x")}
    drawn = flame_difference("b", "a", after, before)
    signs = {said.partition(":")[0]: style for said, _, style in boxes(drawn)}
    assert signs == {"w": "s6", "more": "s1", "less": "s0", "same": "s6"}
    page = str(drawn)
    assert "▲ more" in page and "▼ less" in page and "60.00 % in a, which may be chance" in page
    assert not flame_difference("b", "a", after, {}) and not flame_difference("b", "a", {}, before)


def trial_of(counts: dict[str, int]) -> TrialProfile:
    stacks = {
        Stack(frames=(NamedFunctions(module="s", function=name),), group=f"of {name}"): count
        for name, count in counts.items()
    }
    role = RoleProfile(
        role="worker", threads=1, seen_ns=1, cpu_ns=1, queued_ns=0, blocked_ns=0,
        running=stacks, waiting={}, hardware={}, uncounted_ns=0,
    )  # fmt: skip
    return TrialProfile(
        roles={"worker": role}, own_cpu_ratio=0.0, lost=0, missing={}, concurrency=(),
        concurrency_error=0.0,
    )  # fmt: skip


def cell_of(label: str, trials: Sequence[dict[str, int]]) -> Profiled:
    return Profiled(label=label, trials=tuple((n, trial_of(t)) for n, t in enumerate(trials)))


@pytest.mark.parametrize("runs", [3, 12, 20])
@pytest.mark.parametrize("moved", [30, 10, 0])
def test_a_shift_has_an_interval_if_there_are_enough_runs(runs: int, moved: int) -> None:
    base = cell_of("a", [{"detect": 500 + n, "decode": 500 - n} for n in range(runs)])
    other = cell_of(
        "b", [{"detect": 500 + 10 * moved + n, "decode": 500 - 10 * moved - n} for n in range(runs)]
    )
    table = shifts_table([base, other])
    assert table is not None
    found = {row.values[3].shown: row.values for row in table.rows}
    detect = found["of detect"]
    assert detect[6].raw == pytest.approx(moved)
    if runs < 6:
        assert "cannot tell: needs" in detect[9].shown and detect[7].raw is None
    elif moved:
        assert (detect[9].shown, found["decode (s)"][9].shown) == ("more", "less")
        low, high = detect[7].raw, detect[8].raw
        assert isinstance(low, float) and isinstance(high, float) and low <= moved <= high
    else:
        assert detect[9].shown in ("same within 2 points", "cannot tell")
    assert shifts_table([base]) is None
