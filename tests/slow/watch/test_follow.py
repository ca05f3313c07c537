"""A long run looked at while it is written: the work does not grow with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodrop.results.writer import RunWriter
from nodrop.watch import follow
from nodrop.watch.follow import MOST_ENDED, RunFollower
from nodrop.watch.serve import event_of
from tests.made.outcome_runs import trial
from tests.unit.watch.test_follow import planned, writer


def fill(to: RunWriter, runs: list[str]) -> None:
    lost = {"lost_packets": 1, "loss_ratio": 0.5, "offered_packets": 2}
    rest = {"cell": {}, "repetition": 1, "index": 1, "valid": True, "verdict": "lost", **lost}
    records = [trial(run=run, **rest) for run in runs]
    to.finish_all((record, {"timings_s": {"offer": 2.0}}) for record in records)


@pytest.mark.parametrize("n", [3, 40, 500])
@pytest.mark.parametrize("known", [True, False])
def test_a_look_touches_only_what_is_new(
    n: int, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many trials have ended: counted in files opened, folders listed, lines judged."""
    order = planned(n + 3)
    with writer(tmp_path, order=order if known else None) as to:
        fill(to, order[:n])
        to.trial(order[n])
        os.utime(to.path / "runs", ns=(0, 10**18))  # long ago: a young folder is listed again
        follower = RunFollower.of(to.path)
        view = follower.look()
        assert (view.done, view.trial, len(view.new)) == (n, order[n], n)
        did = counted(monkeypatch)
        view = follower.look()
        assert (view.done, view.trial, view.new) == (n, order[n], ())
        assert did["listed"] == did["judged"] == 0
        assert did["opened"] <= 40
        fill(to, order[n : n + 1])
        did.update(dict.fromkeys(did, 0))
        view = follower.look()
        assert (view.done, view.trial, [e.run for e in view.new]) == (n + 1, None, [order[n]])
        assert (did["judged"], did["listed"] <= 1) == (1, True)
        assert did["opened"] <= 60
        if known:
            assert view.remaining is not None and view.remaining.seconds == 2 * 2.0


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    did = {"opened": 0, "listed": 0, "judged": 0}
    calls = (("opened", os, "open"), ("listed", os, "scandir"))
    for name, where, function in (*calls, ("judged", follow, "record_words")):
        real = getattr(where, function)

        def count(*a: Any, _name: str = name, _real: Any = real, **k: Any) -> Any:
            did[_name] += 1
            return _real(*a, **k)

        monkeypatch.setattr(where, function, count)
    return did


@pytest.mark.parametrize("n", [MOST_ENDED + 1, 3 * MOST_ENDED])
def test_a_view_of_a_long_run_is_no_larger(n: int, tmp_path: Path) -> None:
    order = planned(n)
    with writer(tmp_path, order=order) as to:
        fill(to, order[:MOST_ENDED])
        short = event_of(RunFollower.of(to.path).look())
        fill(to, order[MOST_ENDED:])
        follower = RunFollower.of(to.path)
        view = follower.look()
        while view.is_behind:
            view = follower.look()
    assert [trial.run for trial in view.ended] == order[-MOST_ENDED:]
    assert (view.counts["loss"], view.done, view.finished) == (n, n, False)
    assert len(event_of(view)) <= len(short) + 200
