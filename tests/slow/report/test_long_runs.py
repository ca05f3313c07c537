"""A long run: a page of bounded size, csv files with every row, work that grows with the trials."""

from __future__ import annotations

import csv
import re
import tracemalloc
from collections import Counter
from contextlib import AbstractContextManager
from cProfile import Profile
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pytest

from nodrop.report import bounded, write
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.layout import WrittenPart
from nodrop.results.rundir import made
from nodrop.untrusted.folder import Folder
from tests.made.long_runs import make_long_run
from tests.made.rundirs import Fake, Trouble, make_run
from tests.pages import page_of

CELLS = tuple({"load.multiplier": n} for n in (1, 4, 8))
TROUBLE = {2: Trouble(late=True), 7: Trouble(not_ready=True)}


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_ROWS", 12)
    monkeypatch.setattr(bounded, "MOST_TOLD", 12)
    monkeypatch.setattr(bounded, "MOST_MARKS", 40)
    monkeypatch.setattr(bounded, "FEWEST_MARKS", 5)
    monkeypatch.setattr(write, "MOST_CELLS", 4)
    for name, most in (("MOST_FIGURES", 6), ("MOST_CHARTS", 4)):
        monkeypatch.setattr(write, name, (most, most))


def long_run(out: Path, repetitions: int, cells: int = 3, *, samples: bool = True) -> Path:
    many = tuple({"load.multiplier": n} for n in (1, 4, 8, *range(9, 6 + cells)))
    fake = Fake(cells=many, repetitions=repetitions, trouble=TROUBLE, samples=samples)
    return make_run(out, fake)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(
    ("short", "repetitions", "cells", "part"),
    [((12, 3), 30, 3, WrittenPart.FIGURES), ((2, 10), 2, 30, WrittenPart.CSV)],
)
def test_the_page_is_bounded_and_the_csv_is_whole(
    short: tuple[int, int], repetitions: int, cells: int, part: WrittenPart, tmp_path: Path
) -> None:
    shorter = page_of(long_run(tmp_path / "a", *short))
    run = long_run(tmp_path / "b", repetitions, cells)
    found = write_report(read_story([run]), only={WrittenPart.HTML, WrittenPart.MARKDOWN, part})
    html, n = found.read_text(encoding="utf-8"), repetitions * cells
    assert len(html) <= len(shorter) * 1.3
    assert f"{n - 12} more in trials.csv" in html
    for name in {WrittenPart.CSV: ("trials.csv",), WrittenPart.FIGURES: ("figures/loss.csv",)}[
        part
    ]:
        with (found.parent / name).open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == n
    markdown = (found.parent / "report.md").read_text(encoding="utf-8")
    assert f"{n - 12} more in trials.csv" in markdown
    assert len(markdown.splitlines()) < 90


@pytest.mark.usefixtures("small_bounds")
def test_every_link_of_a_shortened_page_leads_somewhere(tmp_path: Path) -> None:
    html = page_of(long_run(tmp_path, 9, 8))
    links = set(re.findall(r'href="#([^"]+)"', html))
    assert links <= set(re.findall(r'id="([^"]+)"', html))


@pytest.mark.usefixtures("small_bounds")
def test_what_went_wrong_stands_before_what_went_well(tmp_path: Path) -> None:
    story = read_story([long_run(tmp_path, 30)])
    told = bounded.told(story)
    assert len(told) == 12
    assert {t.anchor for t in story.trials if not t.record.valid} <= told
    assert {cell.typical.anchor for cell in story.cells} <= told


def test_a_run_with_room_is_shown_whole(tmp_path: Path) -> None:
    html = page_of(long_run(tmp_path, 10))
    assert "more in " not in html
    assert "not each has its mark" not in html


@pytest.mark.parametrize("n", [31, 500, 20_000])
def test_marks_are_drawn_evenly_with_both_ends(n: int) -> None:
    drawn = bounded.marks([(i * 7919) % n for i in range(n)], strips=1000, key=float)
    assert len(drawn) == bounded.FEWEST_MARKS
    assert (drawn[0], drawn[-1]) == (0, n - 1)
    gaps = {b - a for a, b in pairwise(drawn)}
    assert max(gaps) - min(gaps) <= 1


def test_the_work_grows_with_the_trials_and_no_faster(tmp_path: Path) -> None:
    """Counted in calls of functions, not in time: pairs of trials would make it four times."""
    calls = [called(long_run(tmp_path / str(n), n, samples=False)) for n in (5, 10, 20)]
    first, second = calls[1] - calls[0], calls[2] - calls[1]
    assert second <= 2.5 * first, f"{calls} calls for 15, 30 and 60 trials"


def called(run: Path) -> int:
    profile = Profile()
    profile.enable()
    write_report(read_story([run]), only={WrittenPart.HTML, WrittenPart.CSV, WrittenPart.MARKDOWN})
    profile.disable()
    return sum(function.callcount for function in profile.getstats())


@pytest.mark.usefixtures("small_bounds")
def test_each_further_trial_costs_so_many_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (make_long_run(tmp_path / str(n), n, repetitions=1) for n in (20, 60))
    opened: Counter[str] = Counter()
    really = Folder.open

    def counting(self: Folder, name: str) -> AbstractContextManager[BinaryIO]:
        opened[name] += 1
        return really(self, name)

    monkeypatch.setattr(Folder, "open", counting)
    write_report(read_story([short]))
    few = Counter(opened)
    opened.clear()
    write_report(read_story([long]))
    more = {name: (n - few[name]) / 40 for name, n in opened.items() if n != few[name]}
    assert more.pop("ledger.json") <= 2.1, "once to balance it, once for ledger.csv"
    assert {name for name, n in more.items() if n > 1.1} == set()
    assert opened["trials.jsonl"] == 1


def test_a_trial_holds_so_much_memory(tmp_path: Path) -> None:
    short, long = (make_long_run(tmp_path / str(n), n, repetitions=1) for n in (40, 140))
    read_story([short])

    def held(run: Path) -> int:
        made.clear()  # what was made before counts for neither
        tracemalloc.start()
        story = read_story([run])
        made.clear()
        found = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert story.trials
        return found

    assert (held(long) - held(short)) / 100 <= 2_000


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(("repetitions", "cells", "told"), [(4, 3, 12), (5, 3, 7), (7, 2, 7)])
def test_a_run_is_told_whole_or_by_a_few_of_its_trials(
    repetitions: int, cells: int, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MOST_TOLD", 7)
    story = read_story([long_run(tmp_path, repetitions, cells)])
    assert len(bounded.told(story)) == told
