"""The trial lifecycle as one sentence, and everything undone wherever it breaks off."""

from pathlib import Path
from typing import Any, cast

import pytest

from nodrop.config.experiment import Measure
from nodrop.errors import Interrupted, TrialFailed
from nodrop.ledger.hops import Class
from nodrop.measure.api import Measured, Trial
from nodrop.measure.cells import Cell
from nodrop.measure.measurer import LabMeasurer
from nodrop.results.layout import TrialFolder
from nodrop.testbed.setups.api import Limits
from nodrop.testing.fakes import FakeEnv, FakeJournal, FakeProcess, FakeWorld
from tests.unit.measure.test_manager import FakeParts

SENTENCE = [
    "lab up",
    "provision",
    "prepare load",
    "launch",
    "ready",
    "sample job",
    "offer",
    "drain",
    "finish",
    "stop",
    "sample job closed",
    "put load away",
    "unprovision",
    "lab down",
]
UNDOING = {
    "lab up": "lab down",
    "provision": "unprovision",
    "prepare load": "put load away",
    "launch": "stop",
    "sample job": "sample job closed",
}


OFFERED = [
    *("sample job", "offer", "drain", "count", "mark", "sample job closed"),
]
STANDING = [
    *("lab up", "provision", "prepare load", "launch", "ready"),
    *OFFERED,
    *("aim", *OFFERED),
    *("aim", *OFFERED),
    *("stop", "put load away", "unprovision", "lab down"),
]


CELL = Cell(factors={}, setup={}, sut={}, load={}, limits=Limits())


def trial(world: FakeWorld, folder: Path, *, asks_tsc: bool = False) -> Measured:
    parts = FakeParts([world])
    parts.other_trace({})
    settings = Measure(ready_timeout_s=1, drain_timeout_s=1)
    measurer = LabMeasurer(cast(Any, parts), settings, FakeJournal(world))
    under_way = Trial(
        index=1,
        folder=TrialFolder(run="0001-r01", path=folder),
        watch=lambda _name: None,
        tell=lambda _reading: None,
        asks_tsc=asks_tsc,
    )
    with measurer.stand(CELL, under_way) as standing:
        return standing.measure(CELL.load, under_way)


def test_a_trial_says_its_whole_sentence(tmp_path: Path) -> None:
    world = FakeWorld()
    seen = trial(world, tmp_path)
    assert world.words == SENTENCE
    assert seen.packets.ledger is not None and seen.packets.ledger.residual_packets == 0
    assert seen.verdict is not None and seen.verdict.valid


def test_a_full_ring_is_a_loss_and_the_books_close(tmp_path: Path) -> None:
    seen = trial(FakeWorld(ring_full_packets=7), tmp_path)
    assert seen.packets.ledger is not None
    lost = [(a.into, a.packets) for a in seen.packets.ledger.accounts if a.kind is Class.LOST]
    assert (lost, seen.packets.ledger.residual_packets) == ([("decoded", 7)], 0)


def test_books_that_make_no_sense_are_an_invalid_trial(tmp_path: Path) -> None:
    """A counter ran backwards: it was reset."""
    seen = trial(FakeWorld(ring_full_packets=2000), tmp_path)
    assert seen.packets.ledger is None
    assert seen.verdict is not None and not seen.verdict.valid
    reasons = [str(problem.code) for problem in seen.verdict.invalid_reasons]
    assert "no_books" in reasons
    assert "-1,000 packets" in seen.verdict.words


@pytest.mark.parametrize("late", [1, 250])
def test_packets_after_the_drain_make_a_trial_void(late: int, tmp_path: Path) -> None:
    seen = trial(FakeWorld(late_packets=late), tmp_path)
    assert seen.verdict is not None
    assert [p.code for p in seen.verdict.invalid_reasons] == ["counters_moved_after_drain"]
    assert "received more packets after the drain" in seen.verdict.words


@pytest.mark.parametrize("kills", [0, 2])
def test_a_memory_limit_that_killed_is_told(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {"limit_bytes": 64 << 20, "oom_kills": kills}
    monkeypatch.setattr(FakeEnv, "facts", lambda _: {"memory": memory})
    seen = trial(FakeWorld(), tmp_path)
    assert seen.verdict is not None
    assert seen.verdict.valid is (kills == 0)
    assert ("killed 2 processes of the SUT to keep its limit of 64 MiB" in seen.verdict.words) is (
        kills > 0
    )


@pytest.mark.parametrize("word", SENTENCE)
@pytest.mark.parametrize("error", [None, Interrupted(15)], ids=["failure", "signal"])
def test_a_failure_at_any_step_undoes_what_was_begun(
    word: str, error: BaseException | None, tmp_path: Path
) -> None:
    world = FakeWorld(fails_at=word, dies_at=error)
    with pytest.raises(type(error) if error else TrialFailed):
        trial(world, tmp_path)
    begun = world.words[: world.words.index(word)]
    for begin, end in UNDOING.items():
        if begin in begun:
            assert end in world.words, f"{begin} was not followed by {end}: {world.words}"


@pytest.mark.parametrize("error", [None, Interrupted(2)], ids=["failure", "signal"])
def test_only_a_signal_to_the_controller_ends_the_sut_without_its_last_words(
    error: BaseException | None, tmp_path: Path
) -> None:
    world = FakeWorld(fails_at="offer", dies_at=error)
    with pytest.raises(type(error) if error else TrialFailed):
        trial(world, tmp_path)
    before_stop = world.words[: world.words.index("stop")]
    assert ("signal 9" in before_stop) is (error is not None)


def test_what_a_clock_costs_is_asked_when_the_sut_has_ended(tmp_path: Path) -> None:
    world = FakeWorld()
    seen = trial(world, tmp_path, asks_tsc=True)
    assert seen.facts["tsc"] == {"ns": {}}
    probe = world.words.index("probe job")
    assert world.words[probe - 1 : probe + 2] == ["stop", "probe job", "probe job closed"]


def test_a_place_that_cannot_answer_spoils_no_trial(tmp_path: Path) -> None:
    seen = trial(FakeWorld(fails_at="probe job"), tmp_path, asks_tsc=True)
    assert seen.facts["tsc"] == {"not_asked": "probe job: failed on purpose"}
    assert seen.verdict is not None and seen.verdict.valid


def standing_trials(world: FakeWorld, folder: Path, *names: str) -> list[Measured]:
    parts = FakeParts([world])
    parts.other_trace({})
    measurer = LabMeasurer(cast(Any, parts), Measure(sut="standing"), FakeJournal(world))
    trials = [
        Trial(
            index=index,
            folder=TrialFolder(run=name, path=folder / name),
            watch=lambda _name: None,
            tell=lambda _reading: None,
        )
        for index, name in enumerate(names, 7)
    ]
    for one in trials:
        one.folder.path.mkdir()
    with measurer.stand(CELL, trials[0]) as standing:
        for one in trials:
            assert standing.worn == ""
            standing.measure(CELL.load, one)
    return [one.seen for one in trials]


@pytest.mark.parametrize("dropped", [0, 3, 1000])
def test_a_world_that_stands_carries_one_trial_after_another(tmp_path: Path, dropped: int) -> None:
    """Every counter goes on; what each trial has seen is the difference between quiet moments."""
    world = FakeWorld(ring_full_packets=dropped)
    first, *others = standing_trials(world, tmp_path, "a", "b", "c")
    assert world.words == STANDING
    for seen in (first, *others):
        assert seen.packets.ledger is not None and seen.packets.ledger.closed
        assert seen.packets.ledger.total(Class.LOST) == dropped
        assert seen.verdict is not None and seen.verdict.valid
        assert seen.world.first_trial == 7
    assert first.world.activation_s is not None
    assert {seen.world.activation_s for seen in others} == {None}, "not measured: it stood already"


def test_a_sut_that_ended_does_not_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld()
    parts = FakeParts([world])
    parts.other_trace({})
    measurer = LabMeasurer(cast(Any, parts), Measure(sut="standing"), FakeJournal(world))
    only = Trial(
        index=1,
        folder=TrialFolder(run="a", path=tmp_path),
        watch=lambda _name: None,
        tell=lambda _reading: None,
    )
    with measurer.stand(CELL, only) as standing:
        standing.measure(CELL.load, only)
        assert standing.worn == ""
        monkeypatch.setattr(FakeProcess, "poll", lambda _: -9)
        assert standing.worn == "the SUT has ended"


def test_packets_between_two_trials_are_in_the_books_of_the_second(tmp_path: Path) -> None:
    """Nothing is read anew at the start of a trial, so nothing falls between two of them."""
    world = FakeWorld()

    def trial_of(index: int) -> Trial:
        folder = TrialFolder(run=str(index), path=tmp_path / str(index))
        folder.path.mkdir()
        return Trial(
            index=index, folder=folder, watch=lambda _name: None, tell=lambda _reading: None
        )

    parts = FakeParts([world])
    parts.other_trace({})
    measurer = LabMeasurer(cast(Any, parts), Measure(sut="standing"), FakeJournal(world))
    with measurer.stand(CELL, first := trial_of(1)) as standing:
        assert standing.measure(CELL.load, first).packets.ledger.closed  # type: ignore[union-attr]
        world.offers += 1  # another sender sends as much
        second = standing.measure(CELL.load, trial_of(2))
        assert second.verdict is not None and not second.verdict.valid
        assert "1,000 packets that the generator did not send" in second.verdict.words
