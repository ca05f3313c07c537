"""The knee in the terminal: what stands where, in Unicode and in plain signs."""

from __future__ import annotations

import pytest

from nodrop.capacity.knee import Dot
from nodrop.capacity.terminal import ASCII, HEIGHT, LEFT, NARROWEST, UNICODE, WIDTH, knee

AXIS = LEFT + 2
"""Column of 0 packets/s."""


def dot(pps: float, loss_ratio: float | None = 0.0) -> Dot:
    mark = "failed" if loss_ratio is None else "loss" if loss_ratio else "good"
    return Dot(run="0001-r01", pps=pps, loss_ratio=loss_ratio, mark=mark)


KNEE = (dot(10_000), dot(50_000), dot(60_000, 0.02), dot(80_000, 0.2), dot(90_000, None))


def test_without_a_trial_there_is_no_picture() -> None:
    assert knee([], answer=None, signs=ASCII) == []


def test_a_trial_stands_at_its_load_and_its_loss() -> None:
    lines = knee(KNEE, answer=(50_000, 60_000), signs=ASCII)
    assert lines[0].startswith(" 20 % lost |") and lines[HEIGHT - 1].startswith("         0 +")
    at = {pps: AXIS + round(pps / 90_000 * (WIDTH - 1)) for pps in (10_000, 50_000, 60_000, 80_000)}
    assert lines[HEIGHT - 1][at[10_000]] == lines[HEIGHT - 1][at[50_000]] == "o"
    assert lines[HEIGHT - 2][at[60_000]] == "v", "a tenth of the axis"
    assert lines[0][at[80_000]] == "v"
    assert lines[0].endswith("x"), "a SUT that failed stands on top"
    assert lines[HEIGHT + 1].index("=") == at[50_000]
    assert lines[HEIGHT + 1].rindex("=") == at[60_000]


@pytest.mark.parametrize("columns", [10, 40, 80, 300])
@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_it_keeps_to_its_width(columns: int, signs: object) -> None:
    lines = knee(KNEE, answer=(50_000, 60_000), signs=signs, columns=columns)  # type: ignore[arg-type]
    assert max(map(len, lines[:HEIGHT])) <= max(min(columns, AXIS + WIDTH), AXIS + NARROWEST)


def test_where_two_trials_meet_the_worse_one_is_seen() -> None:
    pair = (dot(50_000), dot(50_001, 1e-9))
    for order in (pair, pair[::-1]):
        floor = knee([*order, dot(90_000, 0.2)], answer=None, signs=ASCII)[HEIGHT - 1]
        assert "v" in floor[AXIS:] and "o" not in floor[AXIS:]


@pytest.mark.parametrize("far", [[130_000], [200_000, 400_000]])
def test_trials_far_beyond_the_answer_are_counted_not_drawn(far: list[int]) -> None:
    lines = knee([*KNEE, *(dot(pps, 0.5) for pps in far)], answer=(50_000, 60_000), signs=ASCII)
    assert lines[: HEIGHT + 2] == knee(KNEE, answer=(50_000, 60_000), signs=ASCII)[: HEIGHT + 2]
    trials = "1 trial" if len(far) == 1 else f"{len(far)} trials"
    assert lines[-1].strip() == f"not drawn: {trials} at {far[0] // 1000}k packets/s and more"


def test_plain_signs_are_plain() -> None:
    assert "\n".join(knee(KNEE, answer=(1, 2), signs=ASCII)).isascii()


def test_what_nothing_shows_is_not_in_the_key() -> None:
    assert knee([dot(5_000)], answer=None, signs=ASCII)[-1].strip() == (
        "each sign is a trial: o no loss"
    )
