"""Setups side by side: what each costs against the base, with verdicts and with TCG named."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.report.answer import answer
from nodrop.report.comparison import compared
from nodrop.report.costs import FIGURES
from nodrop.report.setups import SetupCondition, conditions
from nodrop.report.setups_section import (
    SECTION,
    activations,
    clock_costs,
    costs_table,
    phases_of,
    setups_pictures,
    shares,
)
from nodrop.report.story import RunCell, Story, read_story
from nodrop.report.trials import StoredTrial
from nodrop.report.write import report_json, write_report
from nodrop.results.layout import WrittenPart
from nodrop.results.rundir import RunDir, pack
from nodrop.stats.comparison import Relation
from nodrop.stats.interval import Family
from nodrop_studies.study_2016 import studies_table, studies_words, study_figures
from tests.made.rundirs import SETUPS, Fake, make_run
from tests.pages import page_of

GUEST = "vm tcg (emulated)"


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def at(found: tuple[SetupCondition, ...], label: str) -> SetupCondition:
    return next(c for c in found if c.label == label)


def verdict(condition: SetupCondition, setup: str, figure: str) -> str:
    place = next(p for p in condition.places if p.name == setup)
    known = next(f for f in FIGURES if f.name == figure)
    return compared(condition.base.cell, place.cell, known, condition.family).verdict


@pytest.fixture(scope="module")
def enough(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A run with enough repetitions to call anything the same."""
    fake = Fake(cells=SETUPS.cells, repetitions=20, samples=False)
    return read_story([make_run(tmp_path_factory.mktemp("enough"), fake)])


@pytest.fixture(scope="module")
def story(isolation: Path) -> Story:
    return read_story([isolation])


@pytest.fixture(scope="module")
def written(isolation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    return write_report(read_story([isolation]), tmp_path_factory.mktemp("written")).parent


def names_of(found: tuple[SetupCondition, ...]) -> list[str]:
    """Setups in the order in which they are drawn."""
    return [*dict.fromkeys(place.name for one in found for place in one.places)]


def test_a_run_with_one_setup_has_no_such_section(demo: Path) -> None:
    story = read_story([demo])
    assert not [*setups_pictures(story)] and not SECTION.html(story)


def test_bare_is_the_base_and_a_guest_says_what_ran_it(story: Story) -> None:
    found = conditions(story)
    assert [c.label for c in found] == ["1X", "2X", "4X"]
    assert {c.base.name for c in found} == {"bare"}
    assert names_of(found) == ["bare", "docker", "docker-macvtap", GUEST]


def test_each_verdict_is_one_of_three(enough: Story) -> None:
    heavy = at(conditions(enough), "4X")
    assert verdict(heavy, GUEST, "loss_pct") == "different"
    same = ", but for at most 17 % of the runs"
    assert verdict(heavy, "docker", "loss_pct") == f"same within 0.1 points{same}"
    assert verdict(heavy, "docker", "memory_mib") == f"same within 5 %{same}"
    assert verdict(heavy, "docker", "activation_s") == "different"
    assert verdict(heavy, "bare", "activation_s") == "base"


@pytest.mark.parametrize(("repetitions", "more"), [(2, 12), (6, 8), (13, 1)])
def test_few_runs_of_a_cell_tell_nothing_yet(repetitions: int, more: int, tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake(cells=SETUPS.cells, repetitions=repetitions, samples=False))
    light = at(conditions(read_story([run])), "1X")
    runs = f"{more} more run{'s' if more > 1 else ''}"
    beyond = "; so far every run lies above the base's" if repetitions > 3 else ""
    said = f"cannot tell yet (at least {runs}{beyond})"
    assert verdict(light, GUEST, "activation_s") == said
    assert verdict(light, "docker", "loss_pct") == f"cannot tell yet (at least {runs})"


def test_the_answer_says_what_each_setup_costs(story: Story, enough: Story) -> None:
    direct, *costs = answer(enough).sentences[:4]
    assert direct.text.startswith(f"{GUEST} loses more than bare at 4X: +")
    said = {s.subject: s.text for s in costs}
    assert list(said) == ["docker", "docker-macvtap", GUEST]
    assert said["docker"].startswith("docker against bare at 4X: different in setup CPU +0.")
    assert ", activation +0.6" in said["docker"]
    same = "the same, but for at most 17 % of the runs, in loss (0.1 points, worst run 0 %, in the"
    assert same in said["docker"]
    assert "different in loss +" in said[GUEST]
    unsure, *costs = answer(story).sentences[:4]
    assert unsure.text.startswith("Cannot tell yet whether docker or docker-macvtap or ")
    few = {s.subject: s.text for s in costs}
    assert few["docker"].startswith("docker against bare at 4X: cannot tell yet in loss (worst run")
    assert few["docker"].endswith("(at least 8 more runs).")
    kvm = "what KVM costs: 18 trials ran in guests under software emulation (TCG)"
    assert kvm in [s.text for s in answer(story).cannot_say]


@pytest.mark.parametrize(("n", "lossy"), [(20, 6), (40, 8), (60, 3)])
def test_no_sentence_hides_that_some_runs_lose_half(n: int, lossy: int, story: Story) -> None:
    """The base never loses, and the medians are equal."""
    condition = at(conditions(story), "1X")
    never = replace(condition.base.cell, trials=_losing(condition.base.cell, [0.0] * n))
    some = replace(never, trials=_losing(never, [0.5] * lossy + [0.0] * (n - lossy)))
    item = compared(never, some, FIGURES[0], Family(parts=3))
    assert item.found is not None and item.found.shift == 0
    assert item.worst_words == "worst run 50.00 %"
    if item.found.answer is Relation.SAME:
        assert f"but for at most {math.ceil(item.found.apart * 100)} % of the runs" in item.verdict
        assert lossy / n < 0.1
    if item.found.by_share:
        assert item.verdict == f"different: {lossy} of {n} runs lose, in the base 0 of {n}"


def _losing(cell: RunCell, ratios: list[float]) -> tuple[StoredTrial, ...]:
    like = cell.valid[0]
    bodies = [like.record.body.model_copy(update={"loss_ratio": r}) for r in ratios]
    records = [like.record.model_copy(update={"body": body}) for body in bodies]
    return tuple(StoredTrial.of(record, pack(record), source=0, run=like.run) for record in records)


def test_differences_are_absolute_and_relative_for_machines(enough: Story, tmp_path: Path) -> None:
    write_report(enough, tmp_path, only=[WrittenPart.CSV])
    found = {
        (row["condition"], row["setup"], row["figure"]): row
        for row in rows(tmp_path / "setups.csv")
    }
    row = found["4X", GUEST, "memory_mib"]
    assert float(row["difference_low"]) < float(row["difference"]) < float(row["difference_high"])
    assert float(row["difference"]) == pytest.approx(410, rel=0.05)
    assert float(row["relative"]) == pytest.approx(410 / 80, rel=0.05)
    assert float(row["median"]) < float(row["largest"])
    assert found["4X", "bare", "memory_mib"]["difference"] == ""
    assert ("4X", GUEST, "anonymous_mib") in found
    assert found["4X", GUEST, "anonymous_mib"]["verdict"] == "not measured"
    told = report_json(enough)["setups"]
    assert len(told) == len(found)


def test_the_report_states_what_it_compares_at_once(written: Path, story: Story) -> None:
    """12 cells: 81 medians, and the losses of 66 pairs."""
    assert {c.family.parts for c in conditions(story)} == {81 + 66}
    page = (written / "index.html").read_text(encoding="utf-8")
    assert page.lower().count("this report compares 147 things at once") == 3
    assert "A difference needs at least 14 runs per cell" in page


def test_every_packet_that_was_sent_is_in_a_bar(story: Story) -> None:
    for condition in conditions(story):
        for place in condition.places:
            sent = sum(t.record.offered.sent or 0 for t in place.cell.valid)
            assert sum(shares(place.cell).values()) == sent


def test_typical_trials_stand_side_by_side_in_the_setups_order(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake(cells=SETUPS.cells[::3], repetitions=1))
    (drawn,) = setups_pictures(read_story([run]))
    assert drawn.chart.columns == ("bare", "docker", "docker-macvtap", GUEST)
    assert {len(pane.plots) for pane in drawn.chart.panes} == {4}
    told = [tuple(value.raw for value in row.values) for row in drawn.table.rows]
    assert {trial for *_, trial in told} == {*drawn.chart.columns}
    assert min(float(at or 0) for _, _, _, at, _, _ in told) >= -1, "no load that was discarded"


def test_activation_is_split_and_what_is_not_split_is_named(story: Story) -> None:
    found = {(setup, phase): of for setup, phase, of in activations(conditions(story))}
    assert found[GUEST, "all"].n == 18
    assert found[GUEST, "boot"].median == pytest.approx(7.26, rel=0.02)
    assert ("bare", "boot") not in found
    assert found["docker", "create"].median == pytest.approx(0.6, rel=0.02)
    for trial in story.trials:
        assert sum(phases_of(trial).values()) == pytest.approx(trial.record.activation_s, rel=0.03)


def test_what_is_measured_of_a_clock_is_told_per_setup(story: Story) -> None:
    table = costs_table(clock_costs(conditions(story)))
    told = {row.values[0].shown: [value.raw for value in row.values[1:]] for row in table.rows}
    assert told["rdtsc"] == [9.8] * 4
    assert told["cpuid"] == [5034.0] * 3 + [7.7]


def test_the_study_is_a_reference_and_emulation_judges_nothing(enough: Story) -> None:
    figures = study_figures(enough, conditions(enough))
    judged = {(f.published.name, r.setup): r.said for f in figures for r in f.rows}
    assert judged["host CPU at 1X", GUEST] == "cannot be judged: emulated, and TCG is not KVM"
    assert judged["host CPU at 1X", "bare"] == "the base of both"
    assert judged["memory at 1X", "docker"] == "holds: within 5 % of bare there and here"
    assert judged["activation", "docker"] == "cannot be judged: 2016 timed an LTE MME"
    here = {r.setup: r.here.median for r in figures[0].rows if r.here}
    assert here["bare"] == pytest.approx(2 * (10 + 0.2 / 4 / 2 * 100), rel=0.02)
    activation = {r.setup: r.here for r in figures[-1].rows}
    assert activation["docker"].n == 40  # at 1X and 2X, the study's loads
    words = studies_words(figures)
    assert "holds here for host CPU at 2X (docker) and memory at 1X (docker, docker-mac" in words
    assert "does not hold here for host CPU at 1X (docker, docker-macvtap)" in words
    assert words.endswith(
        "It cannot be judged for host CPU at 1X (vm), host CPU at 2X (vm) and memory at 1X (vm): "
        "emulated, and TCG is not KVM; nor for activation (docker, vm): 2016 timed an LTE MME."
    )


def test_what_the_study_printed_stands_beside_ours(story: Story) -> None:
    rows = [*studies_table(study_figures(story, conditions(story))).rows]
    assert len(rows) == 15
    printed = [row.values[2].raw for row in rows]
    assert {19.65, 20.92, 21.81, 269.39, 399.90, 23.83, 12.01} <= {*printed}
    # A guest took 13.7 times bare's CPU then, and takes 2.6 times as much in these made-up books.
    assert printed[3] / printed[0] == pytest.approx(269.39 / 19.65)
    here = [row.values[4].raw for row in rows]
    assert here[3] / here[0] == pytest.approx(64.9 / 24.9, rel=0.01)
    assert all(re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", row.values[4].shown) for row in rows)
    titles = {row.values[0].shown for row in rows}
    assert "Activation, 2016: s, of an LTE MME: another program; here: s, of Suricata" in titles


def test_the_study_is_not_held_against_another_sut(tmp_path: Path) -> None:
    fake = Fake(
        cells=SETUPS.cells, repetitions=1, samples=False, manifest={"sut": {"name": "sink"}}
    )
    story = read_story([make_run(tmp_path, fake)])
    assert study_figures(story, conditions(story)) == ()


def test_the_first_load_of_a_guest_is_said_to_be_discarded(written: Path) -> None:
    page = (written / "index.html").read_text(encoding="utf-8")
    assert "What came before 0 s is the guest's first load" in page
    assert "18 trials began in a guest that had just booted" in page
    assert "that load was discarded" in page
    assert "Nothing here is a KVM result" in page


def test_instances_are_compared_within_their_kind(scale_out: Path, tmp_path: Path) -> None:
    story = read_story([scale_out])
    found = conditions(story)
    assert [c.label for c in found] == ["1X", "8X"]
    assert names_of(found) == ["1 instance", "2 instances", "4 instances"]
    write_report(read_story([scale_out]), tmp_path, only=[WrittenPart.CSV, WrittenPart.HTML])
    listed = [r for r in rows(tmp_path / "instances.csv") if r["cell"] == "4 instances · 8X"]
    assert [r["instance"] for r in listed] == ["1", "2", "3", "4"]
    assert sum(float(r["share_pct"]) for r in listed) == pytest.approx(100)
    assert {int(r["residual_packets"]) for r in listed} == {0}
    assert sum(int(r["received_packets"]) for r in listed) == 101_171 * 8
    assert 'id="instances-table"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_every_figure_has_its_numbers_beside_it(written: Path) -> None:
    figures = {p.stem for p in (written / "figures").glob("*.svg")}
    assert {"loss", "repeats", "setups-time-1"} <= figures
    assert figures == {p.stem for p in (written / "figures").glob("*.csv")}


@pytest.mark.parametrize(
    "details",
    [
        {"readiness": {"phases_s": {"boot": "long", "create": float("inf"), "exec": -1}}},
        {"readiness": 7, "facts": [], "instances": {}, "usage": "much"},
        {"facts": {"tsc": {"ns": {"rdtsc": {"best": "x"}, "cpuid": 3}}, "warm_up": True}},
        {"instances": [{"received_packets": "many"}, 5], "imbalance_ratio": "odd"},
        {"instances": [{"received_packets": 0}, {}]},
    ],
)
def test_details_of_another_version_or_a_careless_hand_are_left_out(
    details: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, Fake(cells=SETUPS.cells[::3], repetitions=1, samples=False))
    real = RunDir.detail
    monkeypatch.setattr(
        RunDir,
        "detail",
        lambda self, run, name: (
            {"details": details}
            if name == "trial"
            else real(self, run, name)
            if name == "ledger"
            else None
        ),
    )
    page = page_of(run, out=tmp_path / "out")
    assert "Setups against their base" in page
