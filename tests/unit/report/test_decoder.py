"""Words beside "no loss" on frames that were cut, or that the decoder calls invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.report.answer import answer
from nodrop.report.figures import trials_table
from nodrop.report.story import read_story
from nodrop.report.trust import decoder_sentences, decoder_words
from nodrop.results.summary import record_words, summarize_cells
from nodrop.terminal.console import cells_table
from tests.made.outcome_runs import Load, outcome_run

KNOB = "sut.overrides.default-packet-size = 65160 takes them whole"


def not_whole(about: str, packets: int, knob: str = "") -> dict[str, Any]:
    remark = {"about": about, "words": f"{packets} of 20,000 were {about}", "knob": knob}
    return {f"{about}_packets": packets, "remarks": [remark]}


def run(out: Path, *each: dict[str, Any], lost: float = 0.0) -> Path:
    load = Load(
        cell={"load.pps": 10_000}, trials=[lost] * len(each), each=dict(enumerate(each, start=1))
    )
    return outcome_run(out, [load])


@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_the_worst_trial_speaks_for_those_that_have_some(tmp_path: Path, lost: float) -> None:
    each = not_whole("cut", 5, "less"), not_whole("cut", 9_000, KNOB), {"cut_packets": 0}, {}
    story = read_story([run(tmp_path, *each, lost=lost)])
    (sentence,) = decoder_sentences(story)
    assert sentence in answer(story).sentences
    assert sentence.text.startswith(
        "Suricata: in 2 of 4 measured trials, in the worst of them 9000 of 20,000 were cut: "
        "no packet is "
    )
    assert (sentence.knob, len(sentence.trials)) == (KNOB, 2)
    assert decoder_words(story) == [f"{sentence.text} What touches it: {KNOB}."]
    table = trials_table(story)
    names = [column.name for column in table.columns]
    cut = [row.values[names.index("cut_packets")].raw for row in table.rows]
    assert cut == [5, 9_000, 0, None]


def test_each_kind_has_a_sentence_and_no_other(tmp_path: Path) -> None:
    cut, invalid = not_whole("cut", 50), not_whole("invalid", 20_000)
    wrong = not_whole("checksum", 5_000, "--set x")
    every = {**cut, **invalid, **wrong}
    every["remarks"] = [remark for one in (cut, invalid, wrong) for remark in one["remarks"]]
    story = read_story([run(tmp_path, every)])
    told = decoder_sentences(story)
    assert [s.rule for s in told] == ["frames-cut", "frames-invalid", "frames-checksum"]
    assert "leaves them out of its streams" in told[2].text and told[2].knob == "--set x"
    whole = read_story([run(tmp_path / "whole", {"cut_packets": 0, "invalid_packets": 0})])
    assert decoder_sentences(whole) == () and decoder_words(whole) == []


def test_own_drops_that_the_ring_contradicts(tmp_path: Path) -> None:
    """A tenth of 20,000 packets was lost below a driver whose user says "drops: 0"."""
    each = {"own_dropped_packets": 0}, {"own_dropped_packets": 2_000}, {}
    story = read_story([run(tmp_path, *each, lost=0.1)])
    (sentence,) = decoder_sentences(story)
    assert sentence.rule == "drops-denied" and sentence in answer(story).sentences
    assert "say 0 dropped in the worst of 1 trial, and 2,000 packets were lost" in sentence.text
    assert sentence.evidence == {"own_dropped_packets": [0], "lost_packets": [2_000]}
    none = read_story([run(tmp_path / "none", {"own_dropped_packets": 0})])
    assert decoder_sentences(none) == ()


@pytest.mark.parametrize(
    ("fields", "line", "cell"),
    [
        ({}, "no loss in 20,000 packets", "nothing lost"),
        (not_whole("cut", 12_500), "no loss in 20,000 packets, 62.50 % cut",
         "nothing lost; 62.50 % cut"),
        (not_whole("invalid", 20_000), "no loss in 20,000 packets, 100.00 % invalid",
         "nothing lost; 100.00 % invalid"),
        (not_whole("checksum", 5_000), "no loss in 20,000 packets, 25.00 % with a wrong checksum",
         "nothing lost; 25.00 % with a wrong checksum"),
        (not_whole("checksum", 199), "no loss in 20,000 packets", "nothing lost"),
        # Of every real trace, in each of its trials: the answer says so once.
        (not_whole("invalid", 42), "no loss in 20,000 packets", "nothing lost; 0.21 % invalid"),
    ],
)  # fmt: skip
def test_nothing_lost_never_stands_alone(
    tmp_path: Path, fields: dict[str, Any], line: str, cell: str
) -> None:
    story = read_story([run(tmp_path, {**fields, "sustained": True})])
    (record,) = (trial.record for trial in story.trials)
    assert record_words(record) == line
    assert [*cells_table(summarize_cells([record])).columns[6].cells] == [cell]


def test_lost_analysis_is_named_with_its_first_trial(tmp_path: Path) -> None:
    segments, emergency = "tcp.segment_memcap_drop", "flow.emerg_mode_entered"
    each = {}, {"analysis_lost": {segments: 1_423}}, {"analysis_lost": {segments: 9, emergency: 1}}
    story = read_story([run(tmp_path, *each)])
    (sentence,) = decoder_sentences(story)
    assert sentence.rule == "analysis-lost" and sentence in answer(story).sentences
    assert sentence.evidence["counters"] == {segments: 1_423, emergency: 1}
    assert sentence.evidence["first"] == sentence.trials[0].name
    assert [trial.record.index for trial in sentence.trials] == [2, 3]
    assert sentence.knob == "flow.memcap, stream.reassembly.memcap"
    assert f"({segments} 1,423)" in sentence.text
