"""A run directory looked at while another process writes it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli import main
from nodrop.cli.inspect import closing_words
from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.results.writer import RunWriter
from nodrop.watch.follow import MOST_READ, RunFollower, cell_of
from nodrop.watch.serve import event_of
from tests.made.outcome_runs import Load, outcome_run, trial

ORDER = ["0001-4x-r01", "0002-1x-r01", "0003-4x-r02"]


def writer(out: Path, **manifest: Any) -> RunWriter:
    given = {"question": "How much?", "order": ORDER} | manifest
    return RunWriter.create(out, "demo", experiment="", lab="", plan_sha256="p", manifest=given)


def finish(to: RunWriter, run: str, took_s: float, **fields: Any) -> None:
    record = {"cell": {}, "repetition": 1, "index": 1, "run": run, "valid": True, "took_s": took_s}
    found = trial(**record | {"verdict": "no loss"} | fields)
    to.finish(found, {"timings_s": {"launch": took_s / 2, "offer": took_s / 2}})


def test_a_run_without_a_trial_has_none_yet(tmp_path: Path) -> None:
    """A copy that was made while the run began has no file of trials."""
    with writer(tmp_path) as to:
        pass
    (to.path / "trials.jsonl").unlink()
    view = RunFollower.of(to.path).look()
    assert (view.total, view.ended, view.over) == (3, (), True)


def test_a_run_from_its_first_trial_to_its_end(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        follower = RunFollower.of(to.path)
        view = follower.look()
        assert (view.total, view.ended, view.goes_on, view.over) == (3, (), True, False)
        folder = to.trial(ORDER[0])
        folder.append_live({"mono_ns": time.monotonic_ns(), "phase": "launch"})
        view = follower.look()
        assert (view.trial, view.phase, view.reading) == (ORDER[0], "launch", None)
        folder.append_live({"mono_ns": 5, "phase": "offer", "intended_packets": 9, "sent_pps": 3.5})
        folder.append_live({"mono_ns": 6, "phase": "drain"})
        view = follower.look()
        assert view.phase == "drain"
        assert view.reading is not None and view.reading.sent_pps == 3.5
        finish(to, ORDER[0], 8.0)
        to.trial(ORDER[1])
        finish(to, ORDER[1], 4.0, lost_packets=1, loss_ratio=0.5, offered_packets=2)
        view = follower.look()
        assert [(e.run, e.mark) for e in view.ended] == [(ORDER[0], "good"), (ORDER[1], "loss")]
        assert view.trial is None
        assert view.remaining is not None and view.remaining.seconds == 8.0
        to.trial(ORDER[2])
        finish(to, ORDER[2], 8.0, valid=False, invalid_reasons=["sender_late"])
        to.update_manifest({"finished_utc": "2026-11-21T22:00:00+00:00"})
        view = follower.look()
        assert (view.finished, view.over, view.ended[-1].mark) == (True, True, "void")


def test_a_run_that_was_killed_goes_on_no_more(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        to.trial(ORDER[0])
        assert RunFollower.of(to.path).look().trial == ORDER[0]
    view = RunFollower.of(to.path).look()
    assert (view.goes_on, view.finished, view.over, view.trial) == (False, False, True, None)


@pytest.mark.parametrize("spoilt", [1, 2])
def test_trials_that_cannot_be_read_are_not_called_open(tmp_path: Path, spoilt: int) -> None:
    with writer(tmp_path) as to:
        for run in ORDER:
            finish(to, run, 1.0)
    trials = to.path / "trials.jsonl"
    trials.write_bytes(trials.read_bytes().replace(b'"format":2', b'"format":99', spoilt))
    view = RunFollower.of(to.path).look()
    assert (view.done, view.unread_lines) == (3 - spoilt, spoilt)
    said = closing_words(view)
    assert (
        f"{count_of(spoilt, 'line')} of trials.jsonl cannot be read" in said
        and "--resume" not in said
    )


def test_watching_takes_no_lock(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        follower = RunFollower.of(to.path)
    follower.look()
    with RunWriter.resume(to.path, plan_sha256="p"):
        assert follower.look().goes_on


def test_damage_is_passed_over(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        folder = to.trial(ORDER[0])
        (folder.path / "live.jsonl").write_text(
            'cut off}\n{"phase":"offer","intended_packets":1,"busiest_thread":{"x":1}}\n{"mo'
        )
        with (to.path / "trials.jsonl").open("a") as file:
            file.write('not json\n{"half')
        view = RunFollower.of(to.path).look()
        assert (view.ended, view.phase, view.reading) == ((), "offer", None)


def test_a_resumed_run_whose_file_was_cut_is_read_anew(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        to.trial(ORDER[0])
        finish(to, ORDER[0], 1.0)
        follower = RunFollower.of(to.path)
        assert len(follower.look().ended) == 1
        (to.path / "trials.jsonl").write_text("")
        follower.look()
        finish(to, ORDER[1], 1.0)
        assert [e.run for e in follower.look().ended] == ORDER[:2]


def test_hostile_words_are_spelled_out(tmp_path: Path) -> None:
    with writer(tmp_path, question="\x1b[2Jgone\u202e") as to:
        to.trial(ORDER[0])
        finish(to, ORDER[0], 1.0, verdict="\x1b]0;title\x07", valid=False, invalid_reasons=["x"])
        view = RunFollower.of(to.path).look()
    assert view.question == "\\u001b[2Jgone\\u202e"
    assert view.ended[0].words == "\\u001b]0;title\\u0007"
    assert "\x1b" not in json.dumps(view.ended[0].words)


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run directory"):
        RunFollower.of(tmp_path)


@pytest.mark.parametrize(
    ("run", "cell"),
    [("0007-docker-4x-r03", "docker-4x"), ("0001-r01", ""), ("strange", "strange")],
)
def test_the_cell_of_a_run(run: str, cell: str) -> None:
    assert cell_of(run) == cell


def planned(n: int) -> list[str]:
    return [f"{i:05}-4x-r{i:02}" for i in range(1, n + 1)]


def test_a_trial_measured_again_counts_once(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        follower = RunFollower.of(to.path)
        to.trial(ORDER[0])
        finish(to, ORDER[0], 1.0)
        follower.look()
        finish(to, ORDER[0], 1.0, valid=False, invalid_reasons=["sender_late"])
        view = follower.look()
    assert [(e.run, e.mark) for e in view.ended] == [(ORDER[0], "void")]
    assert (view.done, view.counts["void"], view.counts["good"]) == (1, 1, 0)


def test_a_damaged_line_hides_no_later_trial(tmp_path: Path) -> None:
    with writer(tmp_path) as to:
        to.trial(ORDER[0])
        finish(to, ORDER[0], 1.0)
        (to.path / "trials.jsonl").write_text("damaged\n")
        to.trial(ORDER[1])
        view = RunFollower.of(to.path).look()
    assert (view.done, view.trial) == (0, ORDER[1])


@pytest.mark.parametrize("trials", [1, 500, 501, 1234])
def test_a_long_run_is_read_in_parts_and_to_its_end(tmp_path: Path, trials: int) -> None:
    order = [f"{number:05}-1x-r01" for number in range(trials)]
    with writer(tmp_path, order=order) as to:
        finish(to, order[0], 1.0)
        line = (to.path / "trials.jsonl").read_text()
        text = "".join(line.replace(order[0], run) for run in order)
        (to.path / "trials.jsonl").write_text(text)
        path = to.path
    follower = RunFollower.of(path)
    seen: list[str] = []
    for looks in range(1, 9):
        view = follower.look()
        assert len(view.new) <= MOST_READ
        seen += [trial.run for trial in view.new]
        assert view.done == len(seen) == min(trials, looks * MOST_READ)
        assert not view.goes_on
        assert view.over == (view.done == trials) == (not view.is_behind)
        if view.over:
            break
    assert seen == order


def searched(to: RunWriter, rounds: list[int], took_s: float) -> None:
    for n, number in enumerate(rounds, 1):
        by = {"by": "multiplier", "value": 2.0, "duration_s": 3.0, "round": number}
        finish(to, f"{n:04}-2x-r{n:02}", took_s, searched=by)


@pytest.mark.parametrize(
    ("rounds", "most", "budget_s", "progress", "left", "ratio"),
    [
        ([1] * 11, 3, 120.0, "11 trials, round 1 of at most 3", "at most 54 s left", 0.55),
        ([1, 1, 2], 5, None, "3 trials, round 2 of at most 5", "", 0.2),
        ([1], 1, 60.0, "1 trial, round 1 of at most 1", "at most 54 s left", 0.1),
        ([1] * 4 + [2] * 3 + [3] * 21, 3, 150.0, "28 trials, round 3 of at most 3", None, 1.0),
    ],
)
def test_a_search_has_rounds_and_a_budget_and_no_number_of_trials(
    tmp_path: Path,
    rounds: list[int],
    most: int,
    budget_s: float | None,
    progress: str,
    left: str | None,
    ratio: float,
) -> None:
    """Its plan holds the one trial that is certain: `28 of 1 trials` was said of it."""
    search = {"rounds": most, "budget_s": budget_s}
    plan = {"order": ["0001-2x-r01"], "search": search, "cells": [{}], "repetitions": 3}
    with writer(tmp_path, **plan) as to:
        searched(to, rounds, took_s=6.0)
        view = RunFollower.of(to.path).look()
        assert (view.progress, view.total) == (progress, None)
        assert view.left == ("at most 0.0 s left" if left is None else left)
        assert view.done_ratio == pytest.approx(ratio)
        assert json.loads(event_of(view))["progress"] == progress
        to.update_manifest({"finished_utc": "2026-11-21T22:00:00+00:00"})
        ended = RunFollower.of(to.path).look()
        trials = f"{len(rounds)} trial" + "s" * (len(rounds) > 1)
        assert (closing_words(ended), ended.left) == (f"finished: {trials}", "")
        assert ended.done_ratio == 1.0


@pytest.mark.parametrize(
    ("certain", "cells", "each", "done", "progress", "left"),
    [
        (4, 2, 10, 3, "3 of 4 to 20 trials", "at most 34 s left"),
        (24, 2, 80, 25, "25 of 25 to 160 trials", "at most 4 min 30 s left"),
    ],
)
def test_a_run_that_may_end_early_says_from_where_to_where(
    tmp_path: Path, certain: int, cells: int, each: int, done: int, progress: str, left: str
) -> None:
    """By a rule of repetitions, or because two builds can be told apart."""
    order = planned(certain)
    plan = {"order": order, "cells": [{}] * cells, "repetitions": each}
    with writer(tmp_path, **plan) as to:
        for run in planned(done):
            to.trial(run)
            finish(to, run, 2.0)
        to.trial(planned(done + 1)[-1])
        view = RunFollower.of(to.path).look()
    assert (view.progress, view.left) == (progress, left)


def test_a_killed_search_is_not_called_finished(tmp_path: Path) -> None:
    argv = ["/usr/bin/nodrop", "capacity", "a b.pcap", "--out", "results"]
    with writer(tmp_path, order=["0001-2x-r01"], search={"rounds": 3}, nodrop={"argv": argv}) as to:
        searched(to, [1, 1, 2], took_s=6.0)
    said = closing_words(RunFollower.of(to.path).look())
    assert (
        "3 trials, round 2 of at most 3 so far; go on: nodrop capacity 'a b.pcap' --resume --out "
        in said
    )


@pytest.mark.parametrize("newest", ["a", "b"])
def test_a_folder_stands_for_its_newest_run(
    tmp_path: Path, newest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        made = outcome_run(tmp_path / "made" / name, [Load(cell={}, trials=[0.0])])
        run = made.rename(tmp_path / f"{name}-20260101T000000Z")
        at = 2e9 if name == newest else 1e9
        os.utime(run / "manifest.json", (at, at))
    said = f"nodrop: the newest run there is {newest}-20260101T000000Z\n"
    for given in ([tmp_path], sorted(tmp_path.glob("?-*"))):
        assert main.exit_code(["watch", *map(str, given)]) == 0
        assert capsys.readouterr().err == said
    assert main.exit_code(["watch", str(run)]) == 0
    assert capsys.readouterr().err == ""
