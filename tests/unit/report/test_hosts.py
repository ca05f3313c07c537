"""Cells that several pairs of a fleet measured: a section, and a sentence that pools nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.capacity.pictures import efficiency, with_spread
from nodrop.capacity.searched_cells import searches
from nodrop.compare.sides import read_side
from nodrop.compare.versus import versus
from nodrop.config.search import Repetitions
from nodrop.report.answer import answer
from nodrop.report.comparison import family_words
from nodrop.report.figures import trials_page_table, trials_table
from nodrop.report.hosts import hosts_tables, on_hosts
from nodrop.report.repeats import stopped
from nodrop.report.setups import conditions
from nodrop.report.setups_section import activations
from nodrop.report.story import Story, read_story
from nodrop.report.trust import findings
from nodrop.report.write import write_report
from nodrop.results.summary import settled, summarize_cells
from nodrop.stats.interval import Family
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried
from tests.pages import page_of

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
    return [f.rule for f in findings(story) if f.rule in CODES]


def test_hosts_that_differ_more_than_their_trials(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9], "b": [4.0, 4.1, 3.9], "c": [3.0, 3.1, 2.9]})
    _, sentence = [f for f in findings(story) if f.rule in CODES]
    assert sentence.rule == "hosts-differ" and not sentence.good
    assert sentence.text.startswith(
        "hosts differ by more than trials of one host do in 1 cell (SUT CPU)"
    )
    (table,) = hosts_tables(story)
    (row,) = [row for row in table.rows if row.values[1].raw == "SUT CPU, s"]
    shown = [value.shown for value in row.values]
    assert shown[2] == "a 2.00 (3), b 4.00 (3), c 3.00 (3)"
    assert (shown[3], shown[5], shown[6], shown[7]) == ("3.00", "1.00", "0.10", "yes")
    page = write_report(read_story([story.sources[0].run.path])).read_text()
    assert '<h2 id="h-hosts">Hosts</h2>' in page
    assert (story.sources[0].run.path / "report" / "hosts.csv").exists()


def test_hosts_that_are_alike_are_not_called_so(tmp_path: Path) -> None:
    """Four hosts show a difference between hosts only if it is large."""
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9], "b": [2.0, 1.9, 2.1]})
    assert said(story) == ["several-hosts"]
    (sentence,) = [f for f in findings(story) if f.rule in CODES]
    assert not sentence.good and "each host counts once" in sentence.text
    words = family_words(Family(parts=4), story.cells)
    assert "needs at least 9 runs (of several hosts: hosts) per cell" in words
    assert "differ by" not in sentence.text and "not seen" not in sentence.text
    (table,) = hosts_tables(story)
    assert {row.values[7].shown for row in table.rows} == {"cannot tell"}


def test_an_interval_of_few_hosts_claims_nothing_that_cannot_be(tmp_path: Path) -> None:
    """No loss in two hosts is no interval from 0 to 0, and no CPU time is below 0."""
    story = story_of(tmp_path, {"a": [2.0, 2.1], "b": [1.0, 1.1]})
    (table,) = hosts_tables(story)
    shown = {row.values[1].raw: row.values[4].shown for row in table.rows}
    assert shown["Loss, %"] == "none: hosts are alike"
    assert shown["SUT CPU, s"] == "0 to 7.90"


@pytest.mark.parametrize(("boots", "one"), [("xxx", True), ("xxy", False), ("xx", False)])
def test_pairs_of_one_machine_say_nothing_of_others(tmp_path: Path, boots: str, one: bool) -> None:
    path = story_of(tmp_path, {"a": [2.0, 2.1], "b": [2.0], "c": [2.0]}).sources[0].run.path
    manifest = json.loads((path / "manifest.json").read_text())
    pairs = {pair: {"host": {"boot_id": boot}} for pair, boot in zip("abc", boots, strict=False)}
    (path / "manifest.json").write_text(json.dumps(manifest | {"fleet": {"pairs": pairs}}))
    (sentence,) = [f for f in findings(read_story([path])) if f.rule == "several-hosts"]
    assert sentence.text.endswith("of others this says nothing") is one


@pytest.mark.parametrize(("hosts", "interval"), [(2, None), (5, None), (6, (1.0, 6.0))])
@pytest.mark.parametrize("trials", [1, 2, 8])
def test_an_interval_counts_hosts_and_not_trials(
    tmp_path: Path, hosts: int, interval: tuple[float, float] | None, trials: int
) -> None:
    """Trials of a host lie within 0.1 of it, so that its median is its number."""
    near = [0.1 * (2 * n / (trials - 1) - 1) if trials > 1 else 0.0 for n in range(trials)]
    story = story_of(tmp_path, {"abcdef"[h]: [h + 1 + d for d in near] for h in range(hosts)})
    (cell,) = story.cells
    found = cell.summary("sut_cpu_s")
    assert found is not None and found.n == hosts * trials and found.hosts == hosts
    assert found.median == pytest.approx((hosts + 1) / 2)
    if interval is None:
        assert found.interval is None
        assert found.why_no_interval == f"needs 6 hosts, has {hosts}"
    else:
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx(interval)
    assert cell.independent_name == "hosts" and cell.starts == hosts


def test_the_terminal_and_a_rule_count_hosts_too(tmp_path: Path) -> None:
    story = story_of(tmp_path, {pair: [2.0, 2.1, 1.9, 2.0, 2.1] for pair in "abc"})
    records = [trial.record for trial in story.trials]
    (row,) = summarize_cells(records)
    assert row.loss is not None and row.loss.why_no_interval == "needs 6 hosts, has 3"
    until = Repetitions.of({"min": 6, "max": 99, "until": ["sut_cpu_s half-width <= 50 %"]})
    alone = [record.model_copy(update={"pair": "a"}) for record in records]
    assert settled(alone, until, "fresh") and not settled(records, until, "fresh")


def test_few_hosts_are_said_wherever_an_interval_is_missing(tmp_path: Path) -> None:
    story = story_of(tmp_path, {pair: [2.0, 2.1, 1.9] for pair in "abcd"})
    told = {one.rule: one.text for one in answer(story).cannot_say}
    assert "1 cell that fewer than 6 hosts measured" in told["too-few-hosts"]
    assert "too-few-starts" not in told
    (carries,) = answer(story).sentences
    assert "of such hosts do (95 % confidence)" in carries.text


@pytest.mark.parametrize(
    ("hosts", "said"), [("abcd", "more hosts"), ("abcdefghij", "different by")]
)
def test_a_comparison_counts_hosts(tmp_path: Path, hosts: str, said: str) -> None:
    """64 trials of four hosts say no more of other hosts than four do."""
    near = [0.0, 0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01]
    sides = []
    for name, middle in (("a", 2.0), ("b", 4.0)):
        values = {pair: [middle + d for d in near] for pair in hosts}
        path = story_of(tmp_path / name, values).sources[0].run.path
        sides.append(read_side(str(path)))
    (row,) = versus(*sides, metrics=["cpu_us_per_packet"]).rows
    assert said in row.words, row.words
    assert (row.a_n, row.b_n) == (8 * len(hosts),) * 2


def test_rounds_that_mix_hosts_have_no_interval(tmp_path: Path) -> None:
    """Ten rounds: of one pair an interval, of three none."""
    for pairs, why in (("a", ""), ("abc", "each mixes trials of 3 hosts")):
        each = {r: {"pair": pairs[r % len(pairs)]} for r in range(1, 11)}
        loads = [tried(4.9, [0.0] * 10), tried(5, [0.3] * 10)]
        on = [replace(one, each={r: {**one.each[r], **each[r]} for r in each}) for one in loads]
        path = outcome_search(tmp_path / pairs, on, search={"goals": [0], "rounds": 10})
        (searched,) = searches(read_story([path]))
        between = searched.answers[0].between
        assert between is not None and between.why_no_interval == why
        assert (between.interval is None) is bool(why)
        (side,) = read_side(str(path)).cells
        starts = side.figures["capacity_multiplier_at_0"].starts
        assert len(set(starts)) == (1 if why else 10)


def test_a_trial_on_each_host_tells_nothing_apart(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0], "b": [4.0]})
    assert all(one.spread is None for one in on_hosts(story))
    assert said(story) == ["several-hosts"]


def test_cells_that_stayed_on_one_pair_have_no_section(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1, 1.9]})
    assert hosts_tables(story) == () and said(story) == []
    assert "h-hosts" not in page_of(story.sources[0].run.path)


def test_each_trial_says_which_pair_measured_it(tmp_path: Path) -> None:
    story = story_of(tmp_path, {"a": [2.0, 2.1], "b": [4.0]})
    table = trials_table(story)
    assert table.columns[-1].title == "Pair"
    assert [row.values[-1].raw for row in table.rows] == ["a", "a", "b"]
    assert "Pair" in [column.title for column in trials_page_table(story).columns]
    alone = read_story([outcome_run(tmp_path / "alone", [Load(cell={}, trials=[0.0])])])
    assert "Pair" not in [column.title for column in trials_table(alone).columns]


def test_a_rule_that_few_hosts_cannot_reach_says_so(tmp_path: Path) -> None:
    rule = {"min": 6, "max": 9, "until": ["sut_cpu_s half-width <= 50 %"]}
    path = story_of(tmp_path, {pair: [2.0, 2.1, 1.9] for pair in "abc"}).sources[0].run.path
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"measure": {"repetitions": rule}}))
    (said,) = stopped(read_story([path]))
    assert said.text.endswith("sut_cpu_s has no interval of 3 hosts after 9 trials")


def test_a_busy_core_and_an_activation_count_hosts(tmp_path: Path) -> None:
    loads = [
        Load(
            cell={"setup.kind": kind, "load.pps": 10_000},
            trials=[0.0] * 12,
            each={
                r: {"pair": "abc"[r % 3], "sut_cpu_s": 1.0, "activation_s": 1.0 + r % 3}
                for r in range(1, 13)
            },
        )
        for kind in ("bare", "docker")
    ]
    story = read_story([outcome_run(tmp_path, loads)])
    records = [trial.record for trial in story.cells[0].trials]
    busy = efficiency(records)
    assert busy is not None and (busy.packets.hosts, busy.packets.interval) == (3, None)
    assert with_spread(busy.packets, str).endswith("in 3 hosts)")
    alone = efficiency([record.model_copy(update={"pair": "a"}) for record in records])
    assert alone is not None and alone.packets.hosts == 0 and alone.packets.interval is not None
    for _, _, whole in activations(conditions(story)):
        assert (whole.hosts, whole.interval, whole.median) == (3, None, 2.0)
