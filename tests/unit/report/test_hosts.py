"""Cells that several pairs of a fleet measured: a section, and a sentence that pools nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodrop.report.hosts import hosts_tables, on_hosts
from nodrop.report.story import Story, read_story
from nodrop.report.trust import findings
from nodrop.report.write import write_report
from nodrop.testing.outcome_runs import Load, outcome_run

CODES = {"hosts-differ", "several-hosts"}


def story_of(out: Path, cpu_s: dict[str, list[float]]) -> Story:
    """A cell whose trials used so much CPU on these pairs."""
    each: dict[int, dict[str, Any]] = {}
    for pair, values in cpu_s.items():
        for value in values:
            each[len(each) + 1] = {"pair": pair, "sut_cpu_s": value}
    load = Load(cell={"load.pps": 10_000}, trials=[0.0] * len(each), each=each)
    return read_story([outcome_run(out, [load])])


def said(story: Story) -> list[str]:
    return [f.rule.code for f in findings(story) if f.rule.code in CODES]


def test_hosts_that_differ_more_than_their_trials(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9], "b": [4.0, 4.1, 3.9], "c": [3.0, 3.1, 2.9]})
    (sentence,) = [f for f in findings(story) if f.rule.code in CODES]
    assert sentence.rule.code == "hosts-differ" and not sentence.good
    assert sentence.text.startswith(
        "hosts differ by more than trials of one host do in 1 cell (SUT CPU)"
    )
    (table,) = hosts_tables(story)
    (row,) = [row for row in table.rows if row.values[1].raw == "SUT CPU, s"]
    shown = [value.shown for value in row.values]
    assert shown[2] == "a 2.00 (3), b 4.00 (3), c 3.00 (3)"
    assert (shown[3], shown[5], shown[6], shown[7]) == ("3.00", "1.00", "0.10", "yes")
    page = write_report([story.sources[0].run.path]).read_text()
    assert '<h2 id="h-hosts">Hosts</h2>' in page
    assert (story.sources[0].run.path / "report" / "hosts.csv").exists()


def test_hosts_that_are_alike(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9], "b": [2.0, 1.9, 2.1]})
    assert said(story) == ["several-hosts"]


def test_a_trial_on_each_host_tells_nothing_apart(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0], "b": [4.0]})
    assert all(one.spread is None for one in on_hosts(story))
    assert said(story) == ["several-hosts"]


def test_cells_that_stayed_on_one_pair_have_no_section(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9]})
    assert hosts_tables(story) == () and said(story) == []
    assert "h-hosts" not in write_report([story.sources[0].run.path]).read_text()
