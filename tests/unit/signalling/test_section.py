"""A run of transactions in a report's, a terminal's and a machine's words."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.capacity.answer_cards import given_cards
from nodrop.compare.sides import read_side
from nodrop.compare.versus import versus
from nodrop.report.figures import cells_table, trials_table
from nodrop.report.sections import objects, verdicts
from nodrop.report.story import Story, read_story
from nodrop.report.write import page, report_json
from nodrop.signalling.section import SECTION
from nodrop.watch.so_far import SoFarRow
from tests.made.answered import attaches, make_answered


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole, full = attaches(4000), attaches(8000, rejected=1500, timed_out=500)
    return make_answered(tmp_path_factory.mktemp("mme"), {4000: [whole] * 2, 8000: [full]})


@pytest.fixture(scope="module")
def story(run: Path) -> Story:
    return read_story([run])


def test_each_cell_is_one_sentence_in_the_fields_words(story: Story) -> None:
    whole, full, transport = SECTION.sentences(story)
    assert whole == (
        "count 4,000: all 8,000 attaches at 400 per second completed in 2 trials; the last after "
        "10 s; p99 4.7 ms from the scheduled start; SUT CPU 1.1 ms each."
    )
    assert full.startswith(
        "count 8,000: 2,000 of 8,000 attaches at 400 per second failed (25.00 %) in 1 trial: "
        "1,500 rejected: cause 22, congestion; 500 timed out; "
    )
    assert transport == "Transport: tcp-framed (not SCTP)."
    assert [*SECTION.lines(story)] == [whole, full, transport]


def test_the_tables_have_classes_times_and_the_activation(story: Story) -> None:
    cells, steps, activation = map(objects, SECTION.tables(story))
    assert [(row["cell"], row["failed"], row["completed"]) for row in cells] == [
        ("count 4,000", 0, 4000),
        ("count 8,000", 2000, 6000),
    ]
    assert cells[0]["time_taken_s"] == 10.0
    assert {row["step"] for row in steps} == {"authentication", "detach"}
    assert activation[0]["listen_s"] == 0.013


def test_no_figure_of_packets_is_made_of_transactions(story: Story) -> None:
    for row in objects(trials_table(story)):
        assert row["decoded_packets"] is row["offered_pps"] is None
    rows = objects(cells_table(story))
    assert [row["loss_pct_median"] for row in rows] == [0, 25.0]
    assert [row["latency_p99_ms_median"] for row in rows] == [4.7, 4.7]
    assert given_cards(story) == ()


OF_PACKETS = re.compile(r"\bloss\b|\blos(es|t|sy)\b|packets? (lost|sent)|packets/s", re.IGNORECASE)


def test_no_word_of_packets_is_said_of_attaches(story: Story, run: Path) -> None:
    """But in the glossary, and in what is offered and received on the wire over time."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page(story), flags=re.DOTALL)
    told = re.sub(r"(<[^>]+>|\s)+", " ", text.partition('id="words"')[0].partition("<body")[2])
    assert "none failed" in told and "failures" in told and "Failures, points" in told
    said = [told[max(0, m.start() - 60) : m.end() + 30] for m in OF_PACKETS.finditer(told)]
    assert not said, said
    rows = objects(trials_table(story))
    assert [row["failed_transactions"] for row in rows] == [0, 0, 2000]
    assert [row["failures_pct"] for row in rows] == [0, 0, 25.0]
    a, b = (read_side(f"{run}::load.count={count}") for count in (4000, 8000))
    metrics = {row.metric for row in versus(a, b, differs=["load"]).rows}
    assert "failures_pct" in metrics and not metrics & {"loss_pct", "cpu_us_per_packet"}
    record = story.trials[-1].record
    row = SoFarRow.of(record)
    assert (row.said, row.per_s, row.unit) == ("25.00 % failed", 400.0, "transactions")


def test_page_and_json_show_it(story: Story) -> None:
    html = page(story)
    assert "In 1 of 2 cells every transaction completed." in html
    assert "1,500 rejected: cause 22, congestion" in html
    assert "2,000 of 8,000 failed" in html
    assert "lost a packet" not in html and "Where packets die" not in html
    assert "each is in one class in 3 of 3 trials" in html
    assert "Failed, %" in html and "Offered, packets/s" not in html
    assert len(verdicts(story)) >= 1
    assert json.dumps(report_json(story))


def test_a_record_that_its_books_do_not_bear_out_is_void(run: Path, tmp_path: Path) -> None:
    path = make_answered(tmp_path, {4000: [attaches(4000)]})
    file = next(path.glob("runs/*/transactions.json"))
    said = json.loads(file.read_text())
    for changed in ({"timed_out": 1}, {"completed": 3999, "timed_out": 1}, {"started": "4000"}):
        file.write_text(json.dumps(said | changed))
        (trial,) = read_story([path]).trials
        assert (trial.outcome, trial.invalid_reasons) == ("void", ("books_differ",))
    file.unlink()
    assert read_story([path]).trials[0].outcome == "void"


def test_void_trials_alone_say_so(tmp_path: Path) -> None:
    lost = replace(attaches(4000), completed=3990)
    story = read_story([make_answered(tmp_path, {4000: [lost]})])
    assert [*SECTION.sentences(story)] == ["all trials: no trial was measured (1 void)."]
    assert [trial.outcome for trial in story.trials] == ["void"]


def test_a_trial_that_ended_before_its_load_began_has_its_place_in_the_report(
    tmp_path: Path,
) -> None:
    story = read_story([make_answered(tmp_path, {4000: [attaches(4000), None], 8000: [None]})])
    told = page(story)
    assert told.count("nothing was begun") == 2
    assert "count 8,000: no trial was measured (1 void)." in told
    assert [row["failed_transactions"] for row in objects(trials_table(story))] == [0, None, None]
