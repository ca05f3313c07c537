"""A SUT that does not get ready: no load did that, so its search ends without a verdict on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.capacity.answering import answers
from nodrop.capacity.searched_cells import searches
from nodrop.capacity.terminal import ends_with, print_answers
from nodrop.config.search import Search
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.report.story import read_story
from nodrop.results.trial import TrialRecord
from tests.made import outcome_runs
from tests.made.outcome_runs import outcome_search, tried
from tests.simulated_sut import cell, controller, run, texts

SAID = "failed: ready: Suricata ended before it was stopped (exit 1): Error: no such rule file"
REASONS = [{"invalid_reasons": ["sut_not_ready"]}, {"invalid_reasons": ["sut_died"]}]


def not_ready(trial: TrialInput, **how: Any) -> TrialRecord:
    assert trial.searched is not None
    return outcome_runs.trial(
        cell=dict(trial.cell), repetition=trial.repetition, index=trial.index, run=trial.run_name,
        took_s=2.0, searched=trial.searched, outcome="failed", valid=False, verdict=SAID,
        offered_packets=0, **how,
    )  # fmt: skip


@pytest.mark.parametrize("search", [{}, {"budget_s": 60.0}, {"need": "3X"}])
@pytest.mark.parametrize("how", REASONS)
def test_two_such_trials_end_the_search_of_their_cell(
    how: Mapping[str, Any], search: dict[str, Any]
) -> None:
    """Seen: 16 of 16 trials of 0.24 s, and "carried less than 0.0625X", "sure fair"."""
    asked = Search(**search)
    cells = [cell(factors={"setup.kind": kind}) for kind in ("bare", "oci")]
    done = run(controller(asked, *cells), lambda trial: not_ready(trial, **how))
    assert len(done) == 2 * len(cells)
    for answer in answers(done, asked):
        assert (answer.lower, answer.upper) == (None, None) and SAID in texts(answer)
        assert answer.limited_by == "nothing_measured"


@pytest.mark.parametrize("how", REASONS)
def test_it_is_no_verdict_and_ends_with_the_suts_own_words(
    how: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = tried(4, ["not ready", "not ready"])
    each = {n: {**f, **how, "verdict": SAID, "offered_packets": 0} for n, f in load.each.items()}
    story = read_story([outcome_search(tmp_path, [replace(load, each=each)])])
    assert ends_with(searches(story)) == 6
    print_answers(story, tmp_path / "report/index.html")
    said = " ".join(capsys.readouterr().out.split())
    assert "no load is shown to be carried" in said and "Error: no such rule file" in said
    assert "too much" not in said and "less load" not in said and "4X" not in said
