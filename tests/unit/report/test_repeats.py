"""A/A: repetitions of the same cell, and what difference they leave visible."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

from nodrop.report.repeats import repeats, repeats_plot, repeats_words
from nodrop.report.story import read_story
from nodrop.stats.comparison import compare, resolution
from nodrop.testing.rundirs import Fake, make_run


def test_what_can_be_seen_is_what_compare_would_see() -> None:
    """Over many pairs of cells without a difference, the band is as wide as their interval."""
    chance = random.Random(20261121)
    for runs in (4, 6, 10):
        bands, halves = [], []
        for _ in range(200):
            one, other = ([chance.gauss(0, 1) for _ in range(runs)] for _ in range(2))
            found = compare(one, other, margin=0)
            assert found is not None and found.interval is not None
            bands.append(resolution(one) or 0.0)
            halves.append((found.interval.high - found.interval.low) / 2)
        assert 0.8 < median(bands) / median(halves) < 1.3


def test_three_runs_see_no_difference_however_large() -> None:
    assert resolution([1.0, 2.0, 3.0]) is None
    assert resolution([1.0, 1.0, 1.0, 1.0]) == 0


def test_runs_stand_about_their_median_and_the_band_is_told(demo: Path) -> None:
    found = repeats(read_story([demo]))
    assert {r.figure.name for r in found} == {"loss_pct", "sut_cpu_s", "activation_s"}
    assert all(min(r.deviations) <= 0 <= max(r.deviations) for r in found)
    assert len(found) == 9
    assert any(words.startswith("Activation: about 0.0") for words in repeats_words(found))
    assert repeats_plot(found).count('class="band"') == 9


def test_one_run_of_each_cell_has_nothing_to_compare(tmp_path: Path) -> None:
    found = repeats(read_story([make_run(tmp_path, Fake(repetitions=1, samples=False))]))
    assert (found, repeats_plot(found)) == ([], "")
